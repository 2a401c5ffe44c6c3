"""Tables at the end of a training: against dense sums, a family of one parameter, and what training does around it."""

from dataclasses import replace

import pytest
import torch

from svdno import Dataset, Grid, Surrogate, TrainingSettings, train
from svdno.errors import InputError
from svdno.training import tabulate as tabulating
from svdno.training.batches import Batches
from svdno.training.fitting import measure
from svdno.training.losses import Objective
from svdno.training.tabulate import tabulate
from tests.training.problems import SMALL, make_data, make_surrogate

POINTS = (torch.arange(16).double() / 16).unsqueeze(-1)
SETTINGS = TrainingSettings(epochs=3, batch_size=8, learning_rate=3e-3, tabulate=True)


def make_family(samples: int = 60) -> Dataset:
    """A front that moves with the level of the start field: one parameter, and nothing smooth about x."""
    level = torch.rand(samples, generator=torch.Generator().manual_seed(0))
    grid = Grid((32,), (0.0,), (1.0,), "cells")
    x = grid.axes[0].float()
    a = level[:, None, None].expand(-1, 32, 1).contiguous()
    u = 2 + torch.tanh(20 * (x - 0.3 - 0.4 * level[:, None])) + 0.1 * torch.sign(torch.sin(40 * x))
    return Dataset(a, u[:, None, :, None], grid, torch.tensor([1.0]), ("a",), ("u",))


def prepare(name="svdno-plus", data=None):
    data = data or make_data()
    surrogate = make_surrogate(name, data)
    surrogate.model.double()
    batches = Batches(surrogate, data)
    return data, surrogate, Objective(surrogate, 1.0, {}), lambda: batches.in_order(16)


def find_rows(surrogate, objective, batches):
    """√w c and √w R of all samples, with features as they are."""
    rows = []
    for a, truth, norms in batches():
        with torch.no_grad(), surrogate.model.watch_last() as seen:
            u = surrogate.model(a, objective.points, objective.weights)
        root = (norms * ((truth - u) * objective.scale).flatten(1).norm(dim=1)).rsqrt()[:, None]
        rows.append((root * seen[0].mean(dim=1), root * (truth - u).flatten(1)))
    return (torch.cat(part) for part in zip(*rows, strict=True))


@pytest.mark.parametrize("ridge", [1e-6, 0.1])
def test_the_table_is_that_of_weighted_least_squares(monkeypatch, ridge):
    """With all components; features are brought to one size and shifted before the ridge counts."""
    monkeypatch.setattr(tabulating, "LEFT_OUT", 0.0)
    _, surrogate, objective, batches = prepare("fno")
    c, R = find_rows(surrogate, objective, batches)
    with torch.no_grad():
        table = tabulating._build_table(tabulating._add_up(surrogate.model, objective, batches), ridge, POINTS)
    shifted = c - c[:, -1:] * table.centre
    size = shifted.norm(dim=0)
    rows, nothing = torch.cat([shifted / size, ridge**0.5 * torch.eye(len(size)).double()]), R.new_zeros(len(size), 32)
    W = torch.linalg.lstsq(rows, torch.cat([R, nothing]), driver="gelsd").solution / size[:, None]
    torch.testing.assert_close(shifted @ table.rows.mT @ table.functions.flatten(1), shifted @ W, rtol=1e-5, atol=1e-7)


def test_the_leading_components_are_those_of_the_fitted_errors(monkeypatch):
    _, surrogate, objective, batches = prepare()
    c, R = find_rows(surrogate, objective, batches)
    with torch.no_grad():
        sums = tabulating._add_up(surrogate.model, objective, batches)
        tables = []
        for left_out in (0.0, 1e-2, 0.5):
            monkeypatch.setattr(tabulating, "LEFT_OUT", left_out)
            tables.append(tabulating._build_table(sums, 1e-3, POINTS))
    shifted = c - c[:, -1:] * sums.centre
    fitted, *parts = (shifted @ table.rows.mT @ table.functions.flatten(1) for table in tables)
    _, S, Vh = torch.linalg.svd(fitted, full_matrices=False)
    remaining = (R - fitted).square().sum()
    for left_out, part, table in zip((1e-2, 0.5), parts, tables[1:], strict=True):
        rank = len(table.rows)
        torch.testing.assert_close(part, fitted @ Vh[:rank].mT @ Vh[:rank], rtol=1e-5, atol=1e-7)
        assert S[rank:].square().sum() <= left_out * remaining < S[rank - 1 :].square().sum()


@pytest.mark.parametrize("name", ["svdno-plus", "fno"])
def test_a_family_of_one_parameter_is_interpolated(name):
    split = make_family().split()
    errors = {}
    for wanted in (False, True):
        torch.manual_seed(0)
        surrogate = Surrogate.build(name, split.train, **SMALL[name])
        settings = replace(SETTINGS, epochs=20, optimizer="muon", tabulate=wanted)
        history = train(surrogate, split.train, split.validation, settings)
        assert len(history) == 20 + wanted
        assert (surrogate.model.table is not None) == wanted
        best = min(row.validation_error for row in history)
        assert best == pytest.approx(measure(surrogate, split.validation), rel=1e-3)
        errors[wanted] = measure(surrogate, split.test)
    assert errors[True] < 0.3 * errors[False]


def test_a_table_that_hardly_helps_is_not_kept():
    _, surrogate, objective, batches = prepare()
    errors = iter([1.0, 0.95, 0.91, 0.92])
    assert tabulate(surrogate, objective, batches, lambda: next(errors)) == 1.0
    assert surrogate.model.table is None


def test_the_best_table_is_kept():
    _, surrogate, objective, batches = prepare()
    seen = []
    errors = iter([1.0, 0.8, 0.5, 0.7])

    def validate():
        seen.append(surrogate.model.table)
        return next(errors)

    assert tabulate(surrogate, objective, batches, validate) == 0.5
    assert surrogate.model.table is seen[2]


def test_a_model_without_a_hidden_layer_at_its_end_is_refused_before_any_work():
    data = make_data()
    with pytest.raises(InputError, match=r"training\.tabulate needs a model that ends in a linear layer.*got UNet"):
        train(make_surrogate("unet", data), data, data, SETTINGS, on_epoch=lambda row: pytest.fail("it began"))


def test_tables_that_memory_does_not_hold_are_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(tabulating, "free_memory", lambda device: 1e4)
    data = make_data()
    with pytest.raises(InputError, match=r"tables of 33 features; 0\.0 GB are free\. Set training\.tabulate = false"):
        train(make_surrogate("svdno-plus", data), data, data, SETTINGS, on_epoch=lambda row: pytest.fail("it began"))
