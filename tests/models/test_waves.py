"""Waves of the position."""

import pytest
import torch

from svdno.models.waves import Waves


@pytest.mark.parametrize(("dim", "frequencies", "count"), [(1, 8, 17), (2, 5, 61), (3, 3, 63), (2, 1, 5)])
def test_waves_on_a_circle_are_orthogonal(dim, frequencies, count):
    axis = torch.arange(18, dtype=torch.float64) / 18
    points = torch.cartesian_prod(*[axis] * dim).reshape(-1, dim)
    waves = Waves(dim, frequencies, periodic=True)
    values = waves(points)
    assert values.shape == (18**dim, count) == (18**dim, waves.count)
    gram = values.T @ values / len(points)
    torch.testing.assert_close(gram, gram.diagonal().diag(), rtol=0, atol=1e-12)
    assert (gram.diagonal() > 0.1).all()
    assert (values[:, 0] == 1).all()


def test_elsewhere_they_have_half_the_rate_and_x_is_among_them():
    x = torch.rand(5, 2, dtype=torch.float64)
    values = Waves(2, 2, periodic=False)(x)
    assert values.shape == (5, 1 + 8 + 4 + 2)
    torch.testing.assert_close(values[:, -2:], x)
    wanted = torch.sin(torch.pi * x[:, 0]) * torch.cos(torch.pi * x[:, 1])
    assert (values - wanted[:, None]).abs().amax(dim=0).min() < 1e-12


def test_without_frequencies_1_and_x_are_left():
    x = torch.rand(5, 3)
    for periodic in (True, False):
        torch.testing.assert_close(Waves(3, 0, periodic)(x), torch.cat([torch.ones(5, 1), x], dim=-1))
