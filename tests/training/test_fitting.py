"""Fitting in place of training: the same surrogates, the same records."""

from dataclasses import replace

import pytest
import torch

from svdno import Dataset, Surrogate
from svdno.errors import InputError
from svdno.models.trivial import TRIVIAL
from svdno.training import fitting
from svdno.training.fitting import fit
from svdno.training.losses import relative_l2
from tests.training.problems import make_data, make_surrogate


def build(name: str, data: Dataset) -> Surrogate:
    return replace(make_surrogate("fno", data), name=name, model=TRIVIAL[name](1, 2, 1))


@pytest.mark.parametrize("name", TRIVIAL)
def test_the_history_is_one_row_with_the_errors_of_the_fitted_surrogate(name):
    split, rows = make_data().split(), []
    surrogate = build(name, split.train)
    (row,) = fit(surrogate, split.train, split.validation, rows.append)
    assert rows == [row]
    assert row.epoch == 1
    for error, data in ((row.train_error, split.train), (row.validation_error, split.validation)):
        expected = relative_l2(surrogate.predict(data.inputs), data.outputs).mean().item()
        assert error == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_the_training_mean_comes_back_in_physical_units():
    split = make_data().split()
    surrogate = build("training-mean", split.train)
    fit(surrogate, split.train, split.validation)
    expected = split.train.outputs.mean(dim=0).expand(4, 2, 16, 1)
    torch.testing.assert_close(surrogate.predict(split.test.inputs), expected, rtol=1e-5, atol=1e-5)
    assert surrogate.parameters == 2 * 16


def test_the_nearest_neighbour_gives_training_samples_back():
    split = make_data().split()
    surrogate = build("nearest-neighbour", split.train)
    (row,) = fit(surrogate, split.train, split.validation)
    assert row.train_error < 1e-6
    assert surrogate.parameters == 32 * 16 * 3


def test_pod_regression_solves_a_linear_problem_it_has_not_seen():
    split = make_data().split()
    surrogate = build("pod-regression", split.train)
    fit(surrogate, split.train, split.validation)
    assert relative_l2(surrogate.predict(split.test.inputs), split.test.outputs).max() < 1e-5


def test_models_that_are_trained_are_not_fitted():
    data = make_data()
    with pytest.raises(InputError, match=r"'svdno' is trained, not fitted\. Use train"):
        fit(make_surrogate(), data, data)


def test_more_samples_than_fit_in_memory_are_refused(monkeypatch):
    data = make_data()
    monkeypatch.setattr(fitting, "free_memory", lambda device: 10_000)
    with pytest.raises(InputError, match=r"fitted to all training samples at once.*Use fewer samples"):
        fit(build("training-mean", data), data, data)
