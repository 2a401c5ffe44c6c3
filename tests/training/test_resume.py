"""A training that is stopped at any moment continues and ends with the same bits."""

import json
import pickle
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from svdno import TrainingSettings, load, save, train
from svdno.errors import InputError
from svdno.training import loop, schedules
from tests.training.problems import make_data, make_surrogate

SETTINGS = TrainingSettings(epochs=6, batch_size=8, learning_rate=1e-2, schedule="one-cycle", clip=1.0)


class PowerCut(BaseException):
    """Nothing may catch this."""


@pytest.fixture(autouse=True)
def save_after_every_epoch(monkeypatch):
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)


def weights(surrogate) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in surrogate.model.parameters()])


def train_with_cuts(path: Path, cuts: list[int], settings=SETTINGS, name="svdno", **arguments):
    """Train, with the power cut off after each of the epochs named."""
    split = make_data().split()
    for cut in [*cuts, None]:
        surrogate = make_surrogate(name, **arguments)

        def fail(row, cut=cut):
            if row.epoch == cut:
                raise PowerCut

        try:
            history = train(surrogate, split.train, split.validation, settings, fail, path)
        except PowerCut:
            continue
    return weights(surrogate), [replace(row, seconds=0.0) for row in history]


def test_a_training_cut_off_before_its_last_solve_ends_with_the_same_bits(tmp_path):
    settings = replace(SETTINGS, refit=True)
    whole = train_with_cuts(tmp_path / "whole", [], settings, "svdno-plus")
    cut = train_with_cuts(tmp_path / "cut", [settings.epochs + 1], settings, "svdno-plus")
    assert torch.equal(whole[0], cut[0])
    assert whole[1] == cut[1]


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
@pytest.mark.parametrize(("name", "arguments"), [("svdno", {}), ("svdno", {"singular_net": "lstm"}), ("fno", {})])
def test_a_training_cut_off_twice_ends_with_the_same_bits(tmp_path, name, arguments, optimizer):
    settings = replace(SETTINGS, optimizer=optimizer, weight_decay=1e-3)
    whole = train_with_cuts(tmp_path / "whole", [], settings, name, **arguments)
    cut = train_with_cuts(tmp_path / "cut", [2, 5], settings, name, **arguments)
    assert torch.equal(whole[0], cut[0])
    assert whole[1] == cut[1]


def test_averaged_weights_are_part_of_the_state(tmp_path):
    settings = replace(SETTINGS, average=0.9)
    whole = train_with_cuts(tmp_path / "whole", [], settings)
    cut = train_with_cuts(tmp_path / "cut", [3], settings)
    assert torch.equal(whole[0], cut[0])
    assert not torch.equal(whole[0], train_with_cuts(tmp_path / "plain", [])[0])


def test_a_write_that_is_cut_off_leaves_the_last_state(tmp_path, monkeypatch):
    whole = train_with_cuts(tmp_path / "whole", [])

    def half_write(tensors, path, metadata):
        Path(path).write_bytes(b"half a file")
        raise PowerCut

    from svdno.training import state

    path = tmp_path / "cut"
    split = make_data().split()

    def break_writing(row):
        if row.epoch == 3:
            monkeypatch.setattr(state, "save_file", half_write)

    with pytest.raises(PowerCut):
        train(make_surrogate(), split.train, split.validation, SETTINGS, break_writing, path)
    monkeypatch.setattr(state, "save_file", save_file)
    assert torch.equal(train_with_cuts(path, [])[0], whole[0])


def test_a_full_disk_is_reported_and_the_last_state_kept(tmp_path, monkeypatch):
    from svdno.training import state

    path = tmp_path / "state"
    split = make_data().split()
    kept = []

    def fill_disk(row):
        if row.epoch == 3:
            kept.append(path.read_bytes())
            monkeypatch.setattr(state, "save_file", no_space)

    def no_space(tensors, path, metadata):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    with pytest.raises(InputError, match=r"cannot be written .* No space left on device .* The last one is kept"):
        train(make_surrogate(), split.train, split.validation, SETTINGS, fill_disk, path)
    assert [path.read_bytes()] == kept
    assert not (tmp_path / "state.unfinished").exists()


def test_the_state_of_another_training_is_refused_with_what_differs(tmp_path):
    train_with_cuts(tmp_path / "state", [2])
    with pytest.raises(InputError, match=r"other settings: learning_rate was 0.01 and is 0.02\."):
        train_with_cuts(tmp_path / "state", [], replace(SETTINGS, learning_rate=0.02))
    with pytest.raises(InputError, match="rank was 4 and is 5"):
        train_with_cuts(tmp_path / "state", [], rank=5)


def test_damaged_and_foreign_states_are_named(tmp_path):
    path = tmp_path / "state"
    train_with_cuts(path, [2])
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(InputError, match="is damaged or is not the state of this training"):
        train_with_cuts(path, [])
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(InputError, match="is damaged or is not the state of this training"):
        train_with_cuts(path, [])
    header = {"format": 99, "identity": {}, "history": []}
    save_file({"a": torch.zeros(2)}, path, metadata={"state": json.dumps(header)})
    with pytest.raises(InputError, match="has format 99"):
        train_with_cuts(path, [])


class Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return (Path.touch, (self.trace,))


@pytest.mark.parametrize("name", ["model.safetensors", "surrogate.json"])
def test_a_pickle_in_place_of_a_checkpoint_is_refused_and_not_executed(tmp_path, name):
    save(make_surrogate(), tmp_path)
    trap = pickle.dumps(Trap(tmp_path / "executed"))
    (tmp_path / name).write_bytes(trap)
    with pytest.raises(InputError, match="damaged or was not written by svdno"):
        load(tmp_path)
    state = tmp_path / "state"
    state.write_bytes(trap)
    with pytest.raises(InputError, match="is damaged"):
        train_with_cuts(state, [])
    assert not (tmp_path / "executed").exists()
    pickle.loads(trap)
    assert (tmp_path / "executed").exists(), "the trap works"


def test_training_stops_when_validation_stalls():
    split = make_data().split()
    settings = TrainingSettings(epochs=200, batch_size=8, learning_rate=5e-2, schedule="constant", patience=3)
    history = train(make_surrogate(), split.train, split.validation, settings)
    best = min(history, key=lambda row: row.validation_error).epoch
    assert len(history) == best + 3 < 200


def test_a_training_with_a_limit_of_time_ends_with_it_and_its_schedule_too(tmp_path, monkeypatch):
    """On a clock that goes on by a second with each look at it."""
    monkeypatch.setattr(schedules, "perf_counter", count(step=1.0).__next__)
    settings, split = replace(SETTINGS, epochs=10**6, seconds=400.0), make_data().split()
    history = train(make_surrogate(), split.train, split.validation, settings, state_file=tmp_path / "state")
    assert 10 < len(history) < 200
    assert 400 <= history[-1].seconds < 410
    peak = max(row.learning_rate for row in history)
    assert history[-1].learning_rate < 1e-3 * settings.learning_rate < 0.1 * settings.learning_rate < peak
    again = train(make_surrogate(), split.train, split.validation, settings, state_file=tmp_path / "state")
    assert again == history


def test_accumulated_parts_give_the_same_step():
    split = make_data().split()

    def trained(parts: int) -> torch.Tensor:
        surrogate = make_surrogate(orthogonality="none")
        settings = TrainingSettings(epochs=2, batch_size=8, accumulate=parts)
        train(surrogate, split.train, split.validation, settings)
        return weights(surrogate)

    torch.testing.assert_close(trained(1), trained(4), rtol=1e-4, atol=1e-5)
