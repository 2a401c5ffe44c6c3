"""Allen–Cahn against scipy, and against what is known of its solutions."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from svdno.equations import AllenCahn
from svdno.errors import InputError


def test_solution_agrees_with_scipy_at_tight_tolerance():
    equation = AllenCahn(points=512, frames=6, diffusion=1e-3)
    a = equation.sample_inputs(2, seed=3)
    ours = equation.solve(a)
    k = np.fft.rfftfreq(512, d=2 / 512) * 2 * np.pi

    def rhs(t: float, u: np.ndarray) -> np.ndarray:
        return 1e-3 * np.fft.irfft(-(k**2) * np.fft.rfft(u), 512) + 5 * (u - u**3)

    for i in range(2):
        theirs = solve_ivp(
            rhs, (0, 1), a[i, :, 0].numpy(), "DOP853", t_eval=equation.times.numpy(), rtol=1e-10, atol=1e-12
        ).y.T
        error = np.linalg.norm(ours[i, ..., 0].numpy() - theirs) / np.linalg.norm(theirs)
        assert error < 1e-6


def test_paper_setting_agrees_with_scipy():
    """ε = 1e-4 on 1024 points, the thin layers of the benchmark."""
    equation = AllenCahn(frames=3)
    a = equation.sample_inputs(1, seed=0)
    k = np.fft.rfftfreq(1024, d=2 / 1024) * 2 * np.pi

    def rhs(t: float, u: np.ndarray) -> np.ndarray:
        return 1e-4 * np.fft.irfft(-(k**2) * np.fft.rfft(u), 1024) + 5 * (u - u**3)

    theirs = solve_ivp(
        rhs, (0, 1), a[0, :, 0].numpy(), "DOP853", t_eval=equation.times.numpy(), rtol=1e-10, atol=1e-12
    ).y.T
    error = np.linalg.norm(equation.solve(a)[0, ..., 0].numpy() - theirs) / np.linalg.norm(theirs)
    assert error < 1e-6


def test_constant_start_follows_the_exact_solution_of_the_reaction():
    equation = AllenCahn(points=16, frames=11)
    u0 = 0.1
    u = equation.solve(torch.full((1, 16, 1), u0, dtype=torch.float64))[0, :, 0, 0]
    growth = torch.exp(10 * equation.times)  # v = u²: v_t = 10 v (1 − v)
    exact = (u0**2 * growth / (1 - u0**2 + u0**2 * growth)).sqrt()
    torch.testing.assert_close(u, exact, rtol=1e-7, atol=0)


def test_halving_the_step_divides_the_error_by_sixteen():
    a = AllenCahn(points=256, diffusion=1e-3).sample_inputs(2, seed=1)
    u = [AllenCahn(frames=3, diffusion=1e-3, max_step=h).solve(a) for h in (0.04, 0.02, 0.01, 0.00125)]
    errors = torch.stack([(v - u[-1]).norm() for v in u[:-1]])
    order = (errors[:-1] / errors[1:]).log2()
    assert ((order > 3.6) & (order < 4.5)).all(), order.tolist()


def test_first_frame_is_the_input_and_the_grid_is_that_of_the_input():
    equation = AllenCahn(frames=3)
    a = AllenCahn(points=128).sample_inputs(2, seed=0)
    u = equation.solve(a)
    assert u.shape == (2, 3, 128, 1)
    torch.testing.assert_close(u[:, 0], a, rtol=0, atol=1e-13)


def test_starts_have_the_stated_distribution():
    equation = AllenCahn(points=256)
    a = equation.sample_inputs(400, seed=0)[..., 0]
    spectrum = torch.fft.rfft(a).abs() / 128
    even = torch.arange(129) % 2 == 0
    assert spectrum[:, ~even].max() < 1e-10, "k = 2πm on a box of length 2: only even modes"
    assert spectrum[:, 17:].max() < 1e-10, "m ≤ 8"
    assert spectrum[:, 16].max() > 0.5, "m = 8 is drawn"
    assert a.abs().max() < 2
    assert a.square().mean().item() == pytest.approx(1 / 3, rel=0.1)  # 2 · E[A²]/2


def test_bad_parameters_are_named():
    with pytest.raises(InputError, match="`diffusion` must be positive, got -1"):
        AllenCahn(diffusion=-1.0)
    with pytest.raises(InputError, match="`frames` must be at least 2, got 1"):
        AllenCahn(frames=1)


def test_residual_is_small_on_solutions_and_large_on_wrong_ones():
    equation = AllenCahn(points=512, frames=401, diffusion=1e-3)
    a = equation.sample_inputs(4, seed=0)
    u = equation.solve(a)
    small = equation.residual(u, a).abs().max()
    assert small < 1e-2
    assert equation.residual(a.unsqueeze(1).expand_as(u), a).abs().max() > 100 * small
