"""On a GPU: the recorded step gives the numbers of the plain one, and a resumed training the same bits."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from svdno import Surrogate, TrainingSettings, train
from svdno.training import batches, loop
from tests.training.problems import SMALL, make_data

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

SETTINGS = TrainingSettings(epochs=8, batch_size=6, learning_rate=1e-2, schedule="one-cycle", clip=1.0)
CASES = [("svdno", {}, {}), ("svdno", {"singular_net": "lstm"}, {}), ("svdno", {"orthogonality": "exact"}, {})]
CASES += [(name, {}, {}) for name in ("svdno-plus", "fno", "uno", "unet", "deeponet", "mpnn")]
CASES += [("svdno-plus", {}, {"optimizer": "muon", "symmetries": ["shift", "mirror"]})]


def trained(settings, name="svdno", on_epoch=lambda row: None, state_file=None, **arguments) -> torch.Tensor:
    split = make_data().split()
    torch.manual_seed(0)
    surrogate = Surrogate.build(name, split.train, **{**SMALL[name], **arguments})
    surrogate.model.cuda()
    train(surrogate, split.train, split.validation, settings, on_epoch, state_file)
    return torch.cat([p.detach().flatten() for p in surrogate.model.parameters()])


@pytest.fixture(autouse=True)
def reproducible(monkeypatch):
    monkeypatch.setitem(os.environ, "CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.mark.parametrize(("name", "arguments", "changes"), CASES)
def test_the_recorded_step_gives_the_numbers_of_the_plain_one(name, arguments, changes):
    """32 samples in batches of 6: the last batch of an epoch has 2, and a recording of its own."""
    # Sums over a graph's neighbours are not deterministic by default.
    settings = replace(SETTINGS, deterministic=True, **changes)
    plain = trained(replace(settings, capture=False), name, **arguments)
    torch.testing.assert_close(trained(settings, name, **arguments), plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("singular_net", ["mlp", "lstm"])
def test_a_compiled_step_trains(singular_net):
    """In a process of its own: the checks of shapes that the tests switch on cannot be compiled."""
    code = f"""
from tests.training.test_gpu import *
errors = []
settings = replace(SETTINGS, epochs=30, compile=True)
trained(settings, singular_net="{singular_net}", on_epoch=lambda row: errors.append(row.validation_error))
assert errors[-1] < errors[0] / 2, errors
"""
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("svdno", {}), ("svdno", {"singular_net": "lstm"}), ("svdno", {"orthogonality": "exact"}), ("svdno-plus", {})],
)
def test_compiled_gradients_are_the_plain_ones(name, arguments):
    """In a process of its own, as above."""
    code = f"""
from svdno.training.loop import _compile
from svdno.training.losses import Objective
from tests.training.test_gpu import *
data = make_data().split().train
torch.manual_seed(0)
surrogate = Surrogate.build("{name}", data, **{{**SMALL["{name}"], **{arguments}}})
surrogate.model.cuda()
objective = Objective(surrogate, 1.0, {{}}, None)
batch = next(iter(batches.Batches(surrogate, data).fetch([torch.arange(6)])))
found = []
for evaluate in (objective, _compile(objective, replace(SETTINGS, compile=True), on_gpu=True)):
    objective.zero_grad()
    evaluate(*batch)[0].backward()
    found.append([p.grad.clone() for p in objective.parameters()])
for plain, compiled in zip(*found):
    assert (compiled - plain).norm() <= 1e-3 * plain.norm(), (plain.shape, compiled, plain)
"""
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True)


@pytest.mark.parametrize("changes", [{"precision": "bf16"}, {"precision": "fp32"}, {"accumulate": 2}])
def test_each_setting_trains(changes):
    errors = []
    trained(replace(SETTINGS, epochs=30, **changes), on_epoch=lambda row: errors.append(row.validation_error))
    assert errors[-1] < errors[0] / 2


@pytest.mark.parametrize("name", ["svdno", "svdno-plus", "fno", "nearest-neighbour"])
def test_a_recorded_prediction_is_the_prediction_also_with_new_weights(name):
    data = make_data()
    surrogate = Surrogate.build(name, data, **SMALL.get(name, {}))
    if name == "nearest-neighbour":
        surrogate.model.fit(data.inputs, data.outputs.movedim(1, -2).flatten(-2), lambda: 0.0)
    surrogate.model.cuda()
    predict = surrogate.recorded(data.inputs[:1])
    for i in range(6):
        if i == 5:
            with torch.no_grad():
                for p in surrogate.model.parameters():
                    p.mul_(0.9)
        a = data.inputs[i : i + 1]
        torch.testing.assert_close(predict(a), surrogate.predict(a), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["svdno-plus", "fno"])
def test_least_squares_at_the_end_lowers_the_error(name):
    errors = []
    trained(replace(SETTINGS, refit=True), name, on_epoch=lambda row: errors.append(row.validation_error))
    assert len(errors) == SETTINGS.epochs + 1
    assert errors[-1] < 0.9 * min(errors[:-1])


@pytest.mark.parametrize("name", ["svdno-plus", "fno"])
def test_a_table_at_the_end_is_seen_by_what_is_recorded_later(name):
    errors = []
    trained(replace(SETTINGS, tabulate=True), name, on_epoch=lambda row: errors.append(row.validation_error))
    assert len(errors) == SETTINGS.epochs + 1
    assert errors[-1] <= 1.001 * min(errors[:-1])


class PowerCut(BaseException):
    """Nothing may catch this."""


@pytest.mark.parametrize(("name", "arguments", "changes"), CASES)
def test_a_training_cut_off_ends_with_the_same_bits_in_deterministic_mode(
    tmp_path, monkeypatch, name, arguments, changes
):
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    settings = replace(SETTINGS, deterministic=True, **changes)
    whole = trained(settings, name, **arguments)

    def fail(row):
        if row.epoch == 5:
            raise PowerCut

    with pytest.raises(PowerCut):
        trained(settings, name, fail, tmp_path / "state", **arguments)
    assert torch.equal(trained(settings, name, state_file=tmp_path / "state", **arguments), whole)


def test_streamed_data_gives_the_same_bits(monkeypatch):
    resident = trained(replace(SETTINGS, deterministic=True))
    monkeypatch.setattr(batches, "free_memory", lambda device: 0)
    assert torch.equal(trained(replace(SETTINGS, deterministic=True)), resident)
