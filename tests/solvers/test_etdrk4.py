"""ETDRK4 knows no equation: order of convergence, exactness of the linear part."""

import math
from itertools import pairwise

import pytest
import torch

from svdno.solvers.etdrk4 import coefficients, integrate_etdrk4


def solve_logistic(max_step: float, linear: float) -> float:
    """u_t = linear·u + (r u (1 − u) − linear·u) = r u (1 − u), split in different ways."""
    r = 3.0
    u = torch.tensor([0.1], dtype=torch.complex128)
    times = torch.tensor([0.0, 1.0], dtype=torch.float64)

    def nonlinear(u: torch.Tensor) -> torch.Tensor:
        return r * u * (1 - u) - linear * u

    end = integrate_etdrk4(u, torch.tensor([linear], dtype=torch.float64), nonlinear, times, lambda t: max_step)[
        -1
    ].real.item()
    exact = 0.1 * math.exp(r) / (1 - 0.1 + 0.1 * math.exp(r))
    return abs(end - exact)


@pytest.mark.parametrize("linear", [3.0, 0.0, -2.0])
def test_etdrk4_shows_order_four(linear):
    errors = [solve_logistic(h, linear) for h in (1 / 8, 1 / 16, 1 / 32, 1 / 64)]
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert all(3.7 < order < 4.5 for order in orders), orders


def test_stiff_linear_part_is_exact_at_any_step():
    linear = torch.tensor([-1e6, -1.0, 0.0, 2.0], dtype=torch.float64)
    u = torch.ones(4, dtype=torch.complex128)
    times = torch.tensor([0.0, 0.5, 0.7], dtype=torch.float64)
    states = integrate_etdrk4(u, linear, torch.zeros_like, times, max_step=lambda t: 1.0)
    for state, t in zip(states, (0.0, 0.5, 0.7), strict=True):
        torch.testing.assert_close(state.real, torch.exp(linear * t), rtol=1e-12, atol=1e-12)


def test_a_largest_step_beyond_the_interval_is_one_step():
    assert solve_logistic(1e12, 3.0) == solve_logistic(1.0, 3.0)


def test_coefficients_equal_their_series_where_the_formula_cancels():
    h, z = 0.1, 1e-4
    c = coefficients(torch.tensor([z / h], dtype=torch.float64), h)
    # Series of (−4 − z + eᶻ(4 − 3z + z²))/z³ and its companions around 0.
    assert c.first.item() / h == pytest.approx(1 / 6 + z / 6 + 3 * z**2 / 40, rel=1e-10)
    assert c.middle.item() / h == pytest.approx(1 / 6 + z / 12 + z**2 / 40, rel=1e-10)
    assert c.last.item() / h == pytest.approx(1 / 6 - z**2 / 120, rel=1e-10)
    assert c.inner.item() / h == pytest.approx(1 / 2 + z / 8 + z**2 / 48, rel=1e-10)
