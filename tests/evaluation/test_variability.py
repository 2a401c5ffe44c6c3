import math

import pytest
import torch

from svdno.evaluation.variability import spatial_variability


def test_variability_of_a_sine_is_that_of_its_variogram():
    n, k = 1000, 3
    x = torch.arange(n).double() / n
    u = torch.sin(2 * torch.pi * k * x).reshape(1, 1, n, 1)
    # mean (sin(x+h) − sin x)² / ½ = 2 (1 − cos kh)
    expected = sum(2 * (1 - math.cos(2 * math.pi * k * h / n)) for h in range(1, 6)) / 5
    assert spatial_variability(u) == pytest.approx(expected, rel=0.01)


def test_white_noise_has_variability_two_in_any_dimension():
    torch.manual_seed(0)
    assert spatial_variability(torch.randn(2, 3, 2000, 1)) == pytest.approx(2, rel=0.05)
    assert spatial_variability(torch.randn(2, 3, 60, 70, 2)) == pytest.approx(2, rel=0.05)


def test_variability_ignores_scale_shift_and_constant_frames():
    torch.manual_seed(0)
    u = torch.randn(2, 3, 100, 1).cumsum(dim=2)
    beta = spatial_variability(u)
    assert spatial_variability(5 * u - 7) == pytest.approx(beta, rel=1e-5)
    assert spatial_variability(torch.cat([u, torch.ones(2, 1, 100, 1)], dim=1)) == pytest.approx(beta, rel=1e-5)
