"""Training, checkpoints and prediction, on problems small enough for seconds."""

import json
import math

import numpy as np
import pytest
import torch

from svdno import Dataset, Grid, Surrogate, TrainingSettings, load, save, train
from svdno.errors import InputError
from svdno.models import MODELS
from svdno.training.averaging import AveragedModel
from svdno.training.batches import Batches
from svdno.training.losses import Objective, relative_l2
from svdno.training.terms import relative_h1
from tests.training.problems import SMALL, make_data, make_surrogate


def measure_error(surrogate: Surrogate, data: Dataset) -> float:
    return relative_l2(surrogate.predict(data.inputs), data.outputs).mean().item()


def test_relative_l2_is_the_norm_of_the_error_over_the_norm_of_the_truth():
    truth, prediction = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[3.0, 5.0], [0.0, 0.0]])
    assert relative_l2(prediction, truth).tolist() == pytest.approx([0.2, 1.0])


def test_loss_is_the_error_in_physical_units_plus_the_weighted_penalty_and_further_terms():
    data, surrogate = make_data(), make_surrogate()
    batch = next(Batches(surrogate, data).in_order(40))
    points, weights = surrogate.locate(surrogate.grid)
    objective = Objective(surrogate, penalty=0.5, terms={"h1": 0.25})
    loss, error, penalty = objective(*batch).tolist()
    y = surrogate.model(batch.inputs, points, weights)
    assert loss == pytest.approx(error + 0.5 * penalty + 0.25 * relative_h1(y, batch.targets).mean().item())
    assert error == pytest.approx(measure_error(surrogate, data), rel=1e-5)
    assert penalty == pytest.approx(surrogate.model.orthogonality(batch.inputs, points, weights).item())


def test_the_h1_term_is_the_relative_error_of_the_gradient():
    x = torch.linspace(0, 1, 101, dtype=torch.float64)
    truth = torch.stack([torch.sin(x), x**2]).unsqueeze(-1)
    assert relative_h1(truth + 7, truth).max() < 1e-12
    assert relative_h1(1.1 * truth, truth).tolist() == pytest.approx([0.1, 0.1])
    plane = truth.unsqueeze(1).expand(2, 5, 101, 1)
    assert relative_h1(1.1 * plane, plane).tolist() == pytest.approx([0.1, 0.1])


def test_an_unknown_term_is_named():
    data = make_data()
    with pytest.raises(InputError, match=r"unknown term 'h2' in training\.terms; there is h1"):
        train(make_surrogate(), data, data, TrainingSettings(epochs=1, batch_size=8, terms={"h2": 1.0}))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_overfits_four_samples(name):
    data = make_data(samples=4)
    surrogate = make_surrogate(name, data)
    epochs = 900 if name == "deeponet" else 300  # its trunk has to learn the shape of every wave from scratch
    settings = TrainingSettings(epochs=epochs, batch_size=4, learning_rate=5e-3, schedule="one-cycle")
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
    best = min(row.validation_error for row in history)
    assert measure_error(surrogate, split.validation) == pytest.approx(best, rel=1e-5)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    split = make_data().split()

    def weights(seed: int) -> torch.Tensor:
        surrogate = make_surrogate()
        train(surrogate, split.train, split.validation, TrainingSettings(epochs=2, batch_size=8, seed=seed))
        return torch.cat([p.detach().flatten() for p in surrogate.model.parameters()])

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


def test_a_loss_that_explodes_stops_with_advice():
    data = make_data()
    surrogate = make_surrogate()
    with torch.no_grad():
        next(iter(surrogate.model.parameters())).fill_(math.nan)
    with pytest.raises(InputError, match=r"the loss became nan in epoch 1.*learning_rate"):
        train(surrogate, data, data, TrainingSettings(epochs=2, batch_size=8))


def test_averaged_weights_follow_the_trained_ones():
    trained = torch.nn.BatchNorm1d(2)
    average = AveragedModel(trained, 0.75)
    with torch.no_grad():
        trained.weight.fill_(5.0)
        trained.running_mean.fill_(3.0)
    average.update()
    assert average.model.weight.tolist() == [5.0, 5.0], "the start is forgotten"
    assert average.model.running_mean.tolist() == [3.0, 3.0]
    average.steps.fill_(1000)
    with torch.no_grad():
        trained.weight.fill_(1.0)
    average.update()
    assert average.model.weight.tolist() == [4.0, 4.0]  # ¾·5 + ¼·1
    assert AveragedModel(trained, 0.0).model is trained


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


def test_a_recorded_prediction_is_the_prediction_for_fields_of_its_shape():
    data, surrogate = make_data(), make_surrogate()
    predict = surrogate.recorded(data.inputs[:1])
    for i in range(6):
        torch.testing.assert_close(predict(data.inputs[i : i + 1]), surrogate.predict(data.inputs[i : i + 1]))
    assert isinstance(predict(data.inputs[:1].numpy()), np.ndarray)
    with pytest.raises(InputError, match=r"recorded for fields of shape .* got"):
        predict(data.inputs[:2])


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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dtype", "float33"),
        ("times", [0.0]),
        ("times", ["now"]),
        ("input_fields", ["u", "v"]),
        ("input_normalizer", {"mean": [None], "std": [1.0]}),
        ("output_normalizer", {"mean": [0.0, 0.0], "std": [1.0, 1.0]}),
    ],
)
def test_descriptions_that_do_not_belong_to_their_model_are_refused(tmp_path, key, value):
    save(make_surrogate(), tmp_path)
    description = tmp_path / "surrogate.json"
    description.write_text(json.dumps({**json.loads(description.read_text()), key: value}))
    with pytest.raises(InputError, match="damaged or was not written by svdno"):
        load(tmp_path)


def test_unknown_models_and_settings_are_named():
    with pytest.raises(InputError, match="unknown model 'fmo'; there is svdno, svdno-plus, fno"):
        Surrogate.build("fmo", make_data())
    with pytest.raises(InputError, match="model 'fno' has no setting rank; it has in_channels"):
        Surrogate.build("fno", make_data(), rank=3)


@pytest.mark.parametrize("placement", ["nodes", "cells", "periodic"])
@pytest.mark.parametrize("name", ["svdno", "svdno-plus"])
def test_a_finer_grid_changes_nothing_at_the_trained_points(name, placement):
    fine = Grid((65 if placement == "nodes" else 64,), (-1.0,), (1.0,), placement)
    a = torch.randn(3, *fine.shape, 1)
    a[:, 52:] = a[:, 52:53]  # stencils go on with the value at the last point, which is not the last trained cell
    times = torch.tensor([0.0, 1.0], dtype=torch.float64)
    data = Dataset(a[:, ::4], a[:, None, ::4].expand(-1, 2, -1, -1), fine.strided(4), times, ("a",), ("u",))
    surrogate = make_surrogate(name, data)
    on_fine = surrogate.predict(a, grid=fine)
    torch.testing.assert_close(on_fine[:, :, ::4], surrogate.predict(data.inputs), rtol=1e-4, atol=1e-5)
    assert surrogate.locate(fine)[1].count_nonzero() == math.prod(surrogate.grid.shape)
    other = surrogate.locate(surrogate.grid.resized((40,)))[1]
    assert other.count_nonzero() == 40, "a grid without the trained points has a rule of its own"
