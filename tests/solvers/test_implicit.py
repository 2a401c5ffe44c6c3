"""RODAS4 and cyclic reduction know no equation: dense matrices, exact solutions, orders, stiff decay."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.linalg import solve_banded
from torch import Tensor

from svdno.errors import InputError
from svdno.solvers import implicit
from svdno.solvers.implicit import Tridiagonal, factorize, integrate_rodas4, solve_factorized, step


def dense(matrix: Tridiagonal) -> Tensor:
    lower, diagonal, upper = matrix
    return torch.diag_embed(lower, -1) + torch.diag_embed(diagonal) + torch.diag_embed(upper, 1)


def random_tridiagonal(samples: int, n: int) -> Tridiagonal:
    """Diagonally dominant, with signs of both kinds."""
    lower, upper = torch.randn(2, samples, n - 1, dtype=torch.float64)
    diagonal = torch.randn(samples, n, dtype=torch.float64).sign() * (0.1 + torch.rand(samples, n))
    diagonal[:, 1:] += diagonal[:, 1:].sign() * lower.abs()
    diagonal[:, :-1] += diagonal[:, :-1].sign() * upper.abs()
    return Tridiagonal(lower, diagonal, upper)


def logistic(u: Tensor) -> Tensor:
    return 3 * u * (1 - u)


def logistic_jacobian(u: Tensor) -> Tridiagonal:
    return Tridiagonal(u[..., 1:] * 0, 3 - 6 * u, u[..., 1:] * 0)


def exact_logistic(start: Tensor, t: float) -> Tensor:
    growth = math.exp(3 * t)
    return start * growth / (1 - start + start * growth)


def steps_of(u: Tensor, h: float, count: int, slope, jacobian) -> Tensor:
    for _ in range(count):
        u, _ = step(u, torch.full((u.shape[0], 1), h, dtype=torch.float64), slope, jacobian)
    return u


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16, 37, 200])
def test_cyclic_reduction_equals_the_dense_solve(n):
    torch.manual_seed(n)
    matrix, d = random_tridiagonal(5, n), torch.randn(5, n, dtype=torch.float64)
    x = solve_factorized(factorize(matrix), d)
    torch.testing.assert_close(x, torch.linalg.solve(dense(matrix), d), rtol=1e-11, atol=1e-12 * x.abs().max().item())


def test_cyclic_reduction_equals_scipys_banded_solve_of_a_stiff_diffusion_matrix():
    n, h = 1024, 1e6
    diagonal = torch.full((1, n), 1 + 2 * h, dtype=torch.float64)
    off = torch.full((1, n - 1), -h, dtype=torch.float64)
    d = torch.sin(torch.linspace(0, 9, n, dtype=torch.float64)).unsqueeze(0)
    ours = solve_factorized(factorize(Tridiagonal(off, diagonal, off)), d)[0].numpy()
    bands = np.full((3, n), -h)
    bands[1] = 1 + 2 * h
    theirs = solve_banded((1, 1), bands, d[0].numpy())
    assert np.linalg.norm(ours - theirs) < 1e-12 * np.linalg.norm(theirs)


def test_rodas4_shows_order_four_on_a_nonlinear_problem():
    start = torch.tensor([[0.1]], dtype=torch.float64)
    ends = [steps_of(start, 1 / n, n, logistic, logistic_jacobian) for n in (8, 16, 32, 64)]
    errors = [(end - exact_logistic(start, 1.0)).abs().item() for end in ends]
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert all(3.7 < order < 4.5 for order in orders), orders


def test_rodas4_shows_order_four_on_coupled_diffusion_with_modes_that_no_step_resolves():
    """u_t = κ δ²u with eigenvalues from −10 to −2·10⁶: slow modes at order four, the fast ones are damped."""
    n = 640
    off, diagonal = torch.ones(1, n - 1, dtype=torch.float64), torch.full((1, n), -2.0, dtype=torch.float64)
    matrix = Tridiagonal(off * (n + 1) ** 2, diagonal * (n + 1) ** 2, off * (n + 1) ** 2)
    x = torch.arange(1, n + 1, dtype=torch.float64) / (n + 1)
    start = sum(torch.sin(math.pi * m * x) for m in (1, 2, n)).unsqueeze(0)
    rate = {m: -4 * (n + 1) ** 2 * math.sin(math.pi * m / (2 * (n + 1))) ** 2 for m in (1, 2)}
    exact = sum(math.exp(0.1 * rate[m]) * torch.sin(math.pi * m * x) for m in (1, 2))
    A = dense(matrix)[0]
    ends = [steps_of(start, 0.1 / k, k, lambda u: u @ A.T, lambda u: matrix) for k in (4, 8, 16, 32)]
    errors = [(end - exact).norm().item() for end in ends]
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert all(3.6 < order < 4.5 for order in orders), orders


def test_error_estimate_is_of_order_three():
    start = torch.tensor([[0.1]], dtype=torch.float64)
    sizes = [
        step(start, torch.full((1, 1), h, dtype=torch.float64), logistic, logistic_jacobian)[1].abs().item()
        for h in (0.1, 0.05, 0.025)
    ]
    orders = [math.log2(a / b) for a, b in pairwise(sizes)]
    assert all(3.7 < order < 4.4 for order in orders), orders


def relax(u: Tensor) -> Tensor:
    """u₀' = −10⁸ (u₀ − cos u₁) and u₁' = 1, the time."""
    return torch.stack([-1e8 * (u[:, 0] - torch.cos(u[:, 1])), torch.ones_like(u[:, 1])], dim=1)


def relax_jacobian(u: Tensor) -> Tridiagonal:
    zero = torch.zeros_like(u[:, :1])
    return Tridiagonal(zero, torch.cat([zero - 1e8, zero], dim=1), -1e8 * torch.sin(u[:, 1:]))


def test_one_step_damps_a_fast_decay_the_more_the_longer_it_is():
    """L-stability: the amplification falls like 1/(10⁸ h)."""
    start = torch.tensor([[5.0, 0.0]], dtype=torch.float64)
    for h in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1):
        u, _ = step(start, torch.tensor([[h]], dtype=torch.float64), relax, relax_jacobian)
        assert abs(u[0, 0].item() - math.cos(h)) < 50 / (1e8 * h) + h**4, h


def test_a_fast_relaxation_is_followed_with_few_steps(monkeypatch):
    calls = []
    monkeypatch.setattr(implicit, "step", lambda *given: calls.append(1) or step(*given))
    start = torch.tensor([[0.0, 0.0]], dtype=torch.float64)
    times = torch.linspace(0, 3, 4, dtype=torch.float64)
    states = integrate_rodas4(start, relax, relax_jacobian, times, tolerance=1e-7)
    for t, state in zip(times.tolist()[1:], states[1:], strict=True):
        assert abs(state[0, 0].item() - math.cos(t)) < 1e-6
    assert len(calls) < 150, "explicit steps would be 10⁸"


def test_error_follows_the_tolerance_at_each_output_time():
    start = torch.tensor([[0.01], [0.5], [1.7]], dtype=torch.float64)
    times = torch.tensor([0.0, 0.1, 1.0, 4.0], dtype=torch.float64)
    errors = []
    for tolerance in (1e-4, 1e-6, 1e-8):
        states = integrate_rodas4(start, logistic, logistic_jacobian, times, tolerance)
        exact = torch.stack([exact_logistic(start, t) for t in times.tolist()])
        errors.append((torch.stack(states) - exact).abs().max().item() / tolerance)
    assert all(1e-3 < error < 10 for error in errors), errors


def test_a_start_at_rest_stays_there():
    start = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    times = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    assert torch.equal(integrate_rodas4(start, logistic, logistic_jacobian, times, 1e-6)[-1], start)


def test_sample_does_not_depend_on_its_batch():
    torch.manual_seed(0)
    start = torch.rand(5, 37, dtype=torch.float64) * torch.tensor([[1e-3], [0.1], [1.0], [3.0], [9.0]])
    times = torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64)
    together = integrate_rodas4(start, logistic, logistic_jacobian, times, 1e-6)[-1]
    for i in range(5):
        alone = integrate_rodas4(start[i : i + 1], logistic, logistic_jacobian, times, 1e-6)[-1]
        assert torch.equal(together[i : i + 1], alone)


def test_integration_that_cannot_go_on_says_so_and_names_the_samples(monkeypatch):
    monkeypatch.setattr(implicit, "MAX_STEPS", 20)
    start = torch.tensor([[0.1], [torch.nan]], dtype=torch.float64)
    with pytest.raises(InputError, match=r"`tolerance` 1e-06 .* in 20 steps .* 1 of 2 samples .* \(number 1\)"):
        integrate_rodas4(start, logistic, logistic_jacobian, torch.tensor([0.0, 1.0], dtype=torch.float64), 1e-6)
