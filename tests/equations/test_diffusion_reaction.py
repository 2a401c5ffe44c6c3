"""Diffusion–reaction against scipy, exact growth, and the stated starts."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from svdno.equations.diffusion_reaction import DiffusionReaction
from svdno.errors import InputError


def test_solution_agrees_with_scipy_at_tight_tolerance():
    equation = DiffusionReaction(points=256, frames=11)
    a = equation.sample_inputs(3, seed=1)
    ours = equation.solve(a)
    k = np.fft.rfftfreq(256, d=1 / 256) * 2 * np.pi

    def rhs(t: float, u: np.ndarray) -> np.ndarray:
        return 0.5 * np.fft.irfft(-(k**2) * np.fft.rfft(u), 256) + u * (1 - u)

    for i in range(3):
        theirs = solve_ivp(
            rhs, (0, 1), a[i, :, 0].numpy(), "LSODA", t_eval=equation.times.numpy(), rtol=1e-10, atol=1e-12
        ).y.T
        error = np.linalg.norm(ours[i, ..., 0].numpy() - theirs) / np.linalg.norm(theirs)
        assert error < 1e-6


def test_constant_start_follows_logistic_growth():
    equation = DiffusionReaction(points=16, frames=11)
    u = equation.solve(torch.full((1, 16, 1), 0.2, dtype=torch.float64))[0, :, 0, 0]
    growth = torch.exp(equation.times)
    torch.testing.assert_close(u, 0.2 * growth / (0.8 + 0.2 * growth), rtol=1e-10, atol=0)


def test_halving_the_step_divides_the_error_by_sixteen():
    x = DiffusionReaction(points=64).grid.axes[0]
    a = (0.5 + 0.4 * torch.sin(2 * torch.pi * x)).reshape(1, 64, 1)
    steps = (0.01, 0.005, 0.0025, 0.0005)
    u = [DiffusionReaction(frames=3, end=0.1, first_step=h, max_step=h).solve(a) for h in steps]
    errors = torch.stack([(v - u[-1]).norm() for v in u[:-1]])
    order = (errors[:-1] / errors[1:]).log2()
    assert ((order > 3.5) & (order < 4.6)).all(), order.tolist()


def test_values_stay_between_zero_and_one_and_the_mean_grows():
    equation = DiffusionReaction(points=256, frames=21)
    u = equation.solve(equation.sample_inputs(20, seed=0))
    later = u[:, 1:]
    assert later.min() > -1e-6
    assert later.max() < 1 + 1e-6
    assert (u.mean(dim=2).diff(dim=1) > 0).all(), "the public file freezes; a correct solution grows"


def test_residual_is_small_on_solutions_and_large_on_wrong_ones():
    equation = DiffusionReaction(points=256, frames=401)
    a = equation.sample_inputs(4, seed=0)
    u = equation.solve(a)
    frozen = u[:, 200:201].expand_as(u)
    small = equation.residual(u, a)[:, 40:].abs().max()
    assert small < 1e-3
    assert equation.residual(frozen, a).abs().max() > 100 * small


def test_starts_fill_zero_to_one_and_depend_on_seed_and_index_alone():
    equation = DiffusionReaction(points=64)
    a = equation.sample_inputs(30, seed=5)
    torch.testing.assert_close(a.amin(dim=1), torch.zeros(30, 1).double(), rtol=0, atol=1e-15)
    torch.testing.assert_close(a.amax(dim=1), torch.ones(30, 1).double(), rtol=0, atol=1e-15)
    assert torch.equal(a[20:], equation.sample_inputs(10, seed=5, first=20))


def test_points_are_the_centres_of_cells():
    torch.testing.assert_close(DiffusionReaction(points=8).grid.axes[0], (torch.arange(8).double() + 0.5) / 8)


def test_bad_parameters_are_named():
    with pytest.raises(InputError, match="`diffusion` must be positive"):
        DiffusionReaction(diffusion=0.0)
