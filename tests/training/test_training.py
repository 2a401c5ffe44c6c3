"""Training, checkpoints and prediction, on problems small enough for seconds."""

import json
import math

import numpy as np
import pytest
import torch

from svdno import Dataset, Grid, Surrogate, TrainingSettings, load, save, train
from svdno.errors import InputError
from svdno.models import MODELS
from svdno.training.loop import measure_error
from svdno.training.losses import Objective, relative_l2

SMALL = {
    "svdno": {"hidden_channels": 24, "rank": 4, "singular_channels": 16, "singular_layers": 2},
    "fno": {"hidden_channels": 24, "n_modes": 4},
}


def make_data(samples: int = 40, n: int = 16, seed: int = 0) -> Dataset:
    """u(x, t) = 3 + a(x) + t·mean(a): local and non-local parts, a mean and a scale to normalise."""
    generator = torch.Generator().manual_seed(seed)
    grid = Grid((n,), (-1.0,), (1.0,), "periodic")
    phase = 6.28 * torch.rand(samples, 1, generator=generator)
    a = (torch.sin(torch.pi * grid.axes[0].float() + phase) + torch.randn(samples, 1, generator=generator)).unsqueeze(
        -1
    )
    times = torch.tensor([0.0, 1.0], dtype=torch.float64)
    u = 3 + torch.stack([a, a + a.mean(dim=1, keepdim=True)], dim=1)
    return Dataset(a, u, grid, times, ("a",), ("u",))


def make_surrogate(name: str = "svdno", data: Dataset | None = None, **arguments) -> Surrogate:
    torch.manual_seed(0)
    return Surrogate.build(name, data or make_data(), **{**SMALL[name], **arguments})


def test_relative_l2_is_the_norm_of_the_error_over_the_norm_of_the_truth():
    truth, prediction = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[3.0, 5.0], [0.0, 0.0]])
    assert relative_l2(prediction, truth).tolist() == pytest.approx([0.2, 1.0])


def test_loss_is_the_error_in_physical_units_plus_the_weighted_penalty():
    data, surrogate = make_data(), make_surrogate()
    a = surrogate.input_normalizer.encode(data.inputs)
    loss, error, penalty = Objective(surrogate, 0.5)(a, data.outputs, *surrogate.locate((16,)))
    assert loss.item() == pytest.approx(error.item() + 0.5 * penalty.item())
    assert error.item() == pytest.approx(measure_error(surrogate, data), rel=1e-5)
    assert penalty.item() == pytest.approx(surrogate.model.orthogonality(a, *surrogate.locate((16,))).item())


@pytest.mark.parametrize("name", MODELS)
def test_every_model_overfits_four_samples(name):
    data = make_data(samples=4)
    surrogate = make_surrogate(name, data)
    settings = TrainingSettings(epochs=300, batch_size=4, learning_rate=5e-3, schedule="one-cycle")
    train(surrogate, data, data, settings)
    assert measure_error(surrogate, data) < 0.01


def test_training_ends_with_the_weights_of_the_best_validation_error():
    split = make_data().split()
    surrogate = make_surrogate()
    rows = []
    settings = TrainingSettings(epochs=8, batch_size=8, learning_rate=3e-2, schedule="constant")
    history = train(surrogate, split.train, split.validation, settings, rows.append)
    assert rows == history
    assert [row.epoch for row in history] == list(range(1, 9))
    assert measure_error(surrogate, split.validation) == min(row.validation_error for row in history)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    split = make_data().split()

    def weights(seed: int) -> torch.Tensor:
        surrogate = make_surrogate()
        train(surrogate, split.train, split.validation, TrainingSettings(epochs=2, batch_size=8, seed=seed))
        return torch.cat([p.detach().flatten() for p in surrogate.model.parameters()])

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("constant", [1.0] * 4), ("step", [1.0, 1.0, 0.5, 0.5]), ("one-cycle", None)],
)
def test_schedules_change_the_learning_rate_as_they_say(schedule, expected):
    split = make_data().split()
    settings = TrainingSettings(epochs=4, batch_size=8, learning_rate=1e-3, schedule=schedule, step_epochs=2)
    rates = [1e3 * row.learning_rate for row in train(make_surrogate(), split.train, split.validation, settings)]
    if expected is None:
        assert rates[0] < 0.1 < rates[1] > rates[2] > rates[3]
    else:
        assert rates == pytest.approx(expected)


def test_a_loss_that_explodes_stops_with_advice():
    data = make_data()
    surrogate = make_surrogate()
    with torch.no_grad():
        next(iter(surrogate.model.parameters())).fill_(math.nan)
    with pytest.raises(InputError, match=r"the loss became nan in epoch 1.*learning_rate"):
        train(surrogate, data, data, TrainingSettings(epochs=2))


def test_normalisers_see_only_the_training_samples():
    split = make_data().split()
    surrogate = Surrogate.build("svdno", split.train, **SMALL["svdno"])
    assert surrogate.input_normalizer.mean[0] == pytest.approx(split.train.inputs.double().mean().item())
    assert surrogate.input_normalizer.mean[0] != pytest.approx(make_data().inputs.double().mean().item())


@pytest.mark.parametrize("arguments", [{}, {"singular_net": "bilstm", "kernel": "mercer"}, {"truncation": 2}])
def test_saved_and_loaded_surrogate_gives_the_same_bits(arguments, tmp_path):
    data, surrogate = make_data(), make_surrogate(**arguments)
    save(surrogate, tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert torch.equal(loaded.predict(data.inputs), surrogate.predict(data.inputs))
    assert (loaded.grid, loaded.times, loaded.input_normalizer) == (
        surrogate.grid,
        surrogate.times,
        surrogate.input_normalizer,
    )
    for (name, ours), theirs in zip(surrogate.model.named_parameters(), loaded.model.parameters(), strict=True):
        assert torch.equal(ours, theirs), name


def test_a_truncated_model_is_saved_as_such(tmp_path):
    from dataclasses import replace

    surrogate = make_surrogate()
    cut = replace(surrogate, model=surrogate.model.truncated(2))
    save(cut, tmp_path)
    data = make_data()
    assert torch.equal(load(tmp_path).predict(data.inputs), cut.predict(data.inputs))


def test_float64_models_stay_float64_on_disk(tmp_path):
    surrogate = make_surrogate()
    surrogate.model.double()
    save(surrogate, tmp_path)
    assert load(tmp_path).dtype == torch.float64


@pytest.mark.parametrize("name", MODELS)
def test_prediction_keeps_the_kind_of_the_input_and_does_not_depend_on_batches(name):
    data, surrogate = make_data(), make_surrogate(name)
    tensor = surrogate.predict(data.inputs)
    assert tensor.shape == (40, 2, 16, 1)
    array = surrogate.predict(data.inputs.double().numpy(), batch_size=7)
    assert isinstance(array, np.ndarray)
    np.testing.assert_allclose(array, tensor.numpy(), rtol=1e-4, atol=1e-5)


def test_prediction_on_a_finer_grid_sees_the_same_box():
    surrogate = make_surrogate()
    x = torch.linspace(-1, 1, 65, dtype=torch.float64)[:-1]
    fine = torch.sin(torch.pi * x).reshape(1, 64, 1)
    on_fine, on_coarse = surrogate.predict(fine), surrogate.predict(fine[:, ::4])
    torch.testing.assert_close(on_fine[:, :, ::4], on_coarse, rtol=1e-4, atol=1e-4)


def test_prediction_on_a_cloud_in_physical_units_equals_that_on_its_grid():
    data, surrogate = make_data(), make_surrogate()
    grid = data.grid
    cloud = surrogate.predict(data.inputs[:2], points=grid.points, weights=grid.weights)
    torch.testing.assert_close(cloud, surrogate.predict(data.inputs[:2]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("a", "message"),
    [
        (torch.randn(2, 16, 3), r"`a` must be \(batch, x, 1\) with the fields a last; got \(2, 16, 3\)"),
        (torch.randn(16, 1), r"got \(16, 1\)"),
        (torch.randn(2, 4, 4, 1), "has 2 space axes, the model has 1"),
    ],
)
def test_bad_fields_to_predict_are_named(a, message):
    with pytest.raises(InputError, match=message):
        make_surrogate().predict(a)


def test_folders_without_a_model_are_named(tmp_path):
    with pytest.raises(InputError, match=r"no trained model in .*model\.safetensors is missing"):
        load(tmp_path / "nothing")


def test_damaged_and_foreign_checkpoints_are_named(tmp_path):
    save(make_surrogate(), tmp_path)
    description = tmp_path / "surrogate.json"
    good = description.read_text()

    description.write_text(json.dumps({**json.loads(good), "format": 99}))
    with pytest.raises(InputError, match="written in format 99"):
        load(tmp_path)
    description.write_text(good[:100])
    with pytest.raises(InputError, match="damaged or was not written by svdno"):
        load(tmp_path)
    description.write_text(good.replace('"rank": 4', '"rank": 5'))
    with pytest.raises(InputError, match="damaged or was not written by svdno"):
        load(tmp_path)
    description.write_text(good.replace('"model": "svdno"', '"model": "transformer"'))
    with pytest.raises(InputError, match="unknown model 'transformer'"):
        load(tmp_path)
    description.write_text(good)
    (tmp_path / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(InputError, match="damaged or was not written by svdno"):
        load(tmp_path)


def test_unknown_models_and_settings_are_named():
    with pytest.raises(InputError, match="unknown model 'fmo'; there is svdno, fno"):
        Surrogate.build("fmo", make_data())
    with pytest.raises(InputError, match="model 'fno' has no setting rank; it has in_channels"):
        Surrogate.build("fno", make_data(), rank=3)
