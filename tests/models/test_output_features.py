"""Factorised sums over the features of an output, against the same sums of formed features."""

import pytest
import torch

from svdno.models.output_features import OutputFeatures
from tests.models.features import form


def draw(fields, functions, numbers):
    """Features of 3 samples at 7 points."""
    sizes = (3, 7, fields), (3, 7, functions), (3, functions, numbers)
    return OutputFeatures(*(torch.randn(size, dtype=torch.float64) for size in sizes))


@pytest.mark.parametrize("sizes", [(4, 3, 2), (1, 2, 5), (4, 0, 1), (0, 3, 2)])
def test_sums_are_those_of_formed_features(sizes):
    f, roots, R = draw(*sizes), torch.rand(3, 1, 1, dtype=torch.float64), torch.randn(3, 7, 2, dtype=torch.float64)
    gram, target = f.sums(roots, R)
    rows = (roots * form(f)).flatten(0, 1)
    torch.testing.assert_close(gram, rows.mT @ rows)
    torch.testing.assert_close(target, rows.mT @ (roots * R).flatten(0, 1))


@pytest.mark.parametrize("sizes", [(4, 3, 2), (4, 0, 1)])
def test_changes_are_those_of_formed_features(sizes):
    f, other, roots = draw(*sizes), draw(*sizes), torch.rand(3, 1, 1, dtype=torch.float64)
    squares = (roots * (form(other) - form(f))).square().sum(dim=(0, 1))
    torch.testing.assert_close(f.squared_changes(other, roots), squares)


def test_small_changes_keep_their_digits():
    f, roots = draw(2, 3, 2), torch.ones(3, 1, 1, dtype=torch.float64)
    shift = 1e-9 * torch.randn_like(f.numbers)
    squares = torch.einsum("bnk,bke->ke", f.functions.square(), shift.square()).flatten()
    found = f.squared_changes(f._replace(numbers=f.numbers + shift), roots)[2:]
    torch.testing.assert_close(found, squares, rtol=1e-5, atol=0.0)


def test_some_points_and_fields_alone():
    f = draw(4, 3, 2)
    torch.testing.assert_close(form(f.at(torch.tensor([1, 5]))), form(f)[:, [1, 5]])
    torch.testing.assert_close(form(OutputFeatures.of(f.g)), f.g)
