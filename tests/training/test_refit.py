"""Least squares for the last weights: against a dense solver, a teacher, and what training does around it."""

from dataclasses import replace

import pytest
import torch

from svdno import Surrogate, TrainingSettings, train
from svdno.errors import InputError
from svdno.training import refit as refitting
from svdno.training.batches import Batches
from svdno.training.fitting import measure
from svdno.training.losses import Objective
from svdno.training.refit import refit
from tests.models.features import form
from tests.training.problems import SMALL, make_data, make_surrogate

SETTINGS = TrainingSettings(epochs=3, batch_size=8, learning_rate=3e-3, refit=True)
MODELS = [("svdno-plus", {"orthogonality": o}) for o in ("none", "penalty", "exact")]
MODELS += [("svdno-plus", {"output_kernel": False}), ("svdno", {}), ("fno", {}), ("uno", {})]


def prepare(name="svdno-plus", **arguments):
    """A surrogate in float64 and how it is refitted to the data: once per call, as the loop does it."""
    data = make_data()
    surrogate = make_surrogate(name, data, **arguments)
    surrogate.model.double()
    batches = Batches(surrogate, data)
    return data, surrogate, Objective(surrogate, 1.0, {}), lambda: batches.in_order(16)


@pytest.mark.parametrize(("name", "arguments"), MODELS)
def test_the_output_is_linear_in_the_weights_of_its_features(name, arguments):
    _, surrogate, objective, batches = prepare(name, **arguments)
    a = next(iter(batches())).inputs
    model, where = surrogate.model.eval(), (objective.points, objective.weights)
    with torch.no_grad():
        u, f = model.output_features(a, *where)
        torch.testing.assert_close(u, model(a, *where))
        f = form(f)
        change = torch.randn(f.shape[-1], u.shape[-1], dtype=f.dtype)
        model.change_output(change)
        torch.testing.assert_close(model(a, *where).flatten(1, -2), u.flatten(1, -2) + f @ change)


def test_a_teacher_with_other_last_weights_is_found(monkeypatch):
    monkeypatch.setattr(refitting, "GRID_ERROR", 0.0)
    data, surrogate, objective, batches = prepare()
    teacher = make_surrogate("svdno-plus", data)
    teacher.model.double()
    u, f = teacher.model.output_features(next(iter(batches())).inputs, objective.points, objective.weights)
    teacher.model.change_output(0.1 * torch.randn(form(f).shape[-1], u.shape[-1], dtype=torch.float64))
    taught = replace(data, outputs=teacher.predict(data.inputs))
    samples = Batches(surrogate, taught)
    error = refit(surrogate, objective, lambda: samples.in_order(16), lambda: measure(surrogate, taught))
    assert error == measure(surrogate, taught) < 1e-7


def test_the_solution_is_that_of_weighted_least_squares(monkeypatch):
    _, surrogate, objective, batches = prepare("fno", projection_channels=6)
    monkeypatch.setattr(refitting, "RIDGES", (0.0,))
    gram, target = refitting._normal_equations(surrogate.model, objective, batches(), None)
    (found,) = refitting.solve(gram, target)
    rows = []
    for a, truth, norms in batches():
        u, f = surrogate.model.output_features(a, objective.points, objective.weights)
        error = ((truth - u) * objective.scale).flatten(1).norm(dim=1)
        root = (norms * error).rsqrt()[:, None, None]
        rows.append(((root * form(f)).flatten(0, 1), (root * (truth - u)).flatten(0, 1)))
    f, R = (torch.cat(part) for part in zip(*rows, strict=True))
    torch.testing.assert_close(found, torch.linalg.lstsq(f, R).solution, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["svdno-plus", "fno"])
def test_what_a_feature_owes_to_the_grid_is_its_ridge(name):
    _, surrogate, objective, batches = prepare(name)
    model, grid = surrogate.model, surrogate.grid.strided(2)
    plain, _ = refitting._normal_equations(model, objective, batches(), None)
    ridged, _ = refitting._normal_equations(model, objective, batches(), refitting.find_coarse(surrogate))
    squares = 0
    for a, truth, norms in batches():
        u, f = model.output_features(a, objective.points, objective.weights)
        change = form(f)[:, ::2] - form(model.output_features(a[:, ::2], *surrogate.locate(grid))[1])
        weights = 1 / (norms * ((truth - u) * objective.scale).flatten(1).norm(dim=1))
        squares = squares + 2 * (weights[:, None, None] * change.square()).sum(dim=(0, 1))
    torch.testing.assert_close(ridged - plain, torch.diag(squares / 64), rtol=1e-6, atol=1e-9)


def test_a_grid_that_has_no_coarser_one_is_solved_without():
    assert refitting.find_coarse(make_surrogate("fno", make_data(n=15))) is None  # an odd number of points
    assert refitting.find_coarse(make_surrogate("fno", make_data(n=8))) is None  # too few for its modes


def test_what_does_not_help_is_not_kept():
    _, surrogate, objective, batches = prepare()
    before = {name: tensor.clone() for name, tensor in surrogate.model.state_dict().items()}
    errors = iter([1.0] + [2.0] * refitting.ROUNDS * len(refitting.RIDGES))
    assert refit(surrogate, objective, batches, lambda: next(errors)) == 1.0
    assert all(torch.equal(tensor, before[name]) for name, tensor in surrogate.model.state_dict().items())


def test_training_ends_with_it_in_a_row_of_its_own():
    split = make_data().split()
    errors = {}
    for settings in (SETTINGS, replace(SETTINGS, refit=False)):
        torch.manual_seed(0)
        surrogate = Surrogate.build("svdno-plus", split.train, **SMALL["svdno-plus"])
        history = train(surrogate, split.train, split.validation, settings)
        assert len(history) == settings.epochs + settings.refit
        if settings.refit:
            assert history[-1].train_error == pytest.approx(measure(surrogate, split.train), rel=1e-4)
        assert history[-1].validation_error == pytest.approx(measure(surrogate, split.validation), rel=1e-4)
        errors[settings.refit] = min(row.validation_error for row in history)
    assert errors[True] < 0.3 * errors[False]


def test_a_model_without_a_linear_end_is_refused_before_any_work():
    data = make_data()
    surrogate = make_surrogate("unet", data)
    with pytest.raises(InputError, match=r"training\.refit needs a model that ends in a linear layer.*got UNet"):
        train(surrogate, data, data, SETTINGS, on_epoch=lambda row: pytest.fail("it began"))
