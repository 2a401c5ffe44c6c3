"""Diffusion–sorption against scipy, exact solutions and refined grids, and against what is known of its solutions."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.special import erf, erfc, erfcx
from torch import Tensor

from svdno.equations import Equation
from svdno.equations.diffusion_sorption import DiffusionSorption
from svdno.errors import InputError


def constant(value: float, cells: int) -> Tensor:
    return torch.full((1, cells, 1), value, dtype=torch.float64)


def relative_error(ours: Tensor, theirs: Tensor) -> float:
    return ((ours - theirs).norm() / theirs.norm()).item()


def at_coarse_centres(u: Tensor, cells: int) -> Tensor:
    """A coarse centre is the face between two of the fine cells."""
    ratio = u.shape[2] // cells
    fine = u[..., 0].unflatten(2, (cells, ratio))
    return fine[..., ratio // 2 - 1 : ratio // 2 + 1].mean(dim=-1).unsqueeze(-1)


def flux_form(t: float, u: np.ndarray) -> np.ndarray:
    """The paper's setting as differences of face fluxes, written anew."""
    D, p, rho, k, n = 5e-4, 0.29, 2880, 3.5e-4, 0.874
    dx = 1 / len(u)
    outer = u[-1] / (D + dx / 2)  # −u_x on the last face, where u = −D u_x half a cell from the centre
    gradient = np.concatenate([[(u[0] - 1) / (dx / 2)], np.diff(u) / dx, [-outer]])
    R = 1 + (1 - p) / p * rho * k * n * (u + 1e-6) ** (n - 1)
    return D / R * np.diff(gradient) / dx


@pytest.mark.parametrize("start", [1e-4, 0.15])
def test_solution_agrees_with_scipy_at_tight_tolerance(start):
    equation = DiffusionSorption(points=128)
    theirs = solve_ivp(
        flux_form,
        (0, 500),
        np.full(128, start),
        "LSODA",
        equation.times.numpy(),
        rtol=1e-9,
        atol=1e-11,
        lband=1,
        uband=1,
    ).y.T
    ours = equation.solve(constant(start, 128))[0, ..., 0]
    assert relative_error(ours, torch.from_numpy(theirs)) < 1e-6


def exact_without_retardation_change(x: np.ndarray, start: float, D: float, kappa: float, t: float) -> np.ndarray:
    """n = 1: u_t = κ u_xx. Two half-lines, right as long as their layers do not meet."""
    width = 2 * math.sqrt(kappa * t)
    left, right = x / width, (1 - x) / width
    outflow = erf(right) + np.exp(-(right**2)) * erfcx(right + width / (2 * D))
    return start * outflow + (1 - start) * erfc(left)


def test_halving_the_cells_divides_the_distance_to_the_exact_solution_by_four():
    equation = DiffusionSorption(diffusion=0.05, freundlich_exponent=1.0, frames=2, end=0.2, tolerance=1e-9)
    kappa = 0.05 / (1 + 0.71 / 0.29 * 2880 * 3.5e-4)
    errors = []
    for cells in (64, 128, 256):
        x = (np.arange(cells) + 0.5) / cells
        exact = torch.from_numpy(exact_without_retardation_change(x, 0.4, 0.05, kappa, 0.2))
        u = equation.solve(constant(0.4, cells))[0, -1, :, 0]
        halves = slice(0, cells // 2), slice(cells // 2, cells)
        errors.append([relative_error(u[half], exact[half]) for half in halves])
    order = torch.tensor(errors).log2().diff(dim=0).neg()
    assert ((order > 1.9) & (order < 2.1)).all(), "left and right half: " + str(order.tolist())


def test_scheme_is_of_second_order_in_the_papers_setting():
    equation = DiffusionSorption(frames=6)
    u = {cells: equation.solve(constant(0.05, cells))[:, 1:] for cells in (64, 128, 256, 2048)}
    errors = [relative_error(u[cells], at_coarse_centres(u[2048], cells)) for cells in (64, 128, 256)]
    order = torch.tensor(errors).log2().diff().neg()
    assert ((order > 1.9) & (order < 2.1)).all(), order.tolist()


def test_default_grid_agrees_with_one_four_times_as_fine():
    equation = DiffusionSorption(frames=26)
    coarse, fine = equation.solve(constant(0.01, 1024)), equation.solve(constant(0.01, 4096))
    assert relative_error(coarse, at_coarse_centres(fine, 1024)) < 1e-5


def test_default_tolerance_is_far_below_the_error_in_space():
    a = torch.cat([constant(0.0, 128), constant(0.2, 128)])
    u = [DiffusionSorption(tolerance=tolerance).solve(a) for tolerance in (DiffusionSorption().tolerance, 1e-8)]
    assert relative_error(u[0], u[1]) < 1e-7


def test_jacobian_is_the_derivative_of_the_slope():
    torch.manual_seed(0)
    equation = DiffusionSorption()
    u = torch.rand(23, dtype=torch.float64)
    lower, diagonal, upper = equation._jacobian(u)
    ours = torch.diag_embed(lower, -1) + torch.diag_embed(diagonal) + torch.diag_embed(upper, 1)
    torch.testing.assert_close(ours, torch.autograd.functional.jacobian(equation._slope, u), rtol=1e-12, atol=1e-12)


def test_values_stay_between_outlet_and_inlet_and_fall_from_left_to_right():
    """The outlet is nearly u = 0, below the start, so the start is no lower bound."""
    equation = DiffusionSorption(frames=21)
    a = torch.cat([constant(u0, 1024) for u0 in (0.0, 1e-5, 0.02, 0.2)])
    u = equation.solve(a)
    assert u.min() > -1e-8
    assert u.max() < 1
    assert u[:, 1:].diff(dim=2).max() < 1e-8
    assert (u[2:, -1, -1] < a[2:, -1] / 10).all()


def test_inlet_fills_the_left_half_ever_more():
    u = DiffusionSorption(points=256, frames=21).solve(constant(0.1, 256))[:, :, :64]
    assert u.diff(dim=1).min() > -1e-8
    assert u[:, -1].mean() > 0.6


def test_long_run_ends_at_the_linear_steady_state():
    equation = DiffusionSorption(points=100, frames=3, end=1e5)
    u = equation.solve(equation.sample_inputs(2, seed=0))[:, -1, :, 0]
    x = equation.grid.axes[0]
    torch.testing.assert_close(u, (1 - x / (1 + 5e-4)).expand(2, 100), rtol=0, atol=1e-8)


def test_sample_does_not_depend_on_its_batch():
    equation = DiffusionSorption(points=101, frames=4)
    a = equation.sample_inputs(7, seed=0)
    u = equation.solve(a)
    for i in (0, 3, 6):
        assert torch.equal(u[i : i + 1], equation.solve(a[i : i + 1]))


def test_any_start_on_any_grid_is_solved_and_is_the_first_frame():
    equation = DiffusionSorption(frames=5)
    x = torch.linspace(0, 1, 77, dtype=torch.float64)
    a = torch.stack([torch.sin(9 * x) ** 2, (x > 0.5).double(), 3 * x]).unsqueeze(-1)
    u = equation.solve(a)
    assert u.shape == (3, 5, 77, 1)
    assert torch.equal(u[:, 0], a)
    assert u.min() > -1e-6
    assert (u.amax(dim=(1, 2, 3)) <= a.amax(dim=(1, 2)).clamp(min=1) + 1e-6).all()


def test_residual_of_a_solution_falls_with_the_distance_of_the_frames_squared():
    sizes = []
    for frames in (51, 101, 201):
        equation = DiffusionSorption(points=64, frames=frames, tolerance=1e-8)
        a = constant(0.1, 64)
        residual = equation.residual(equation.solve(a), a)
        assert residual.shape == (1, frames - 3, 64, 1)
        sizes.append(residual[:, frames // 2 :].norm() / math.sqrt(frames))
    order = torch.tensor(sizes).log2().diff().neg()
    assert ((order > 1.8) & (order < 2.2)).all(), order.tolist()


def test_residual_tells_solutions_from_others():
    equation = DiffusionSorption(points=128)
    a = equation.sample_inputs(2, seed=4)
    u = equation.solve(a)
    size = equation.residual(u, a).norm()
    assert DiffusionSorption(diffusion=5.5e-4).residual(u, a).norm() > 4 * size
    assert equation.residual(u[:, 50:51].expand_as(u), a).norm() > 10 * size
    assert equation.residual(u + 1e-3 * (-1) ** torch.arange(128).view(-1, 1), a).norm() > 100 * size
    shifted = equation.residual(u + 0.01, a)[:, 50:].abs().amax(dim=(0, 1, 3))
    assert shifted[[0, -1]].min() > 10 * shifted[1:-1].max(), "only the boundary conditions see a shift"


def test_residual_has_gradients_where_a_prediction_is_negative():
    u = (torch.rand(2, 6, 16, 1) - 0.5).requires_grad_()
    DiffusionSorption(frames=6).residual(u, u[:, 0]).square().mean().backward()
    assert u.grad is not None
    assert u.grad.isfinite().all()


def test_starts_are_constants_evenly_spread_below_the_largest():
    a = DiffusionSorption(points=16).sample_inputs(1000, seed=0)
    assert a.shape == (1000, 16, 1)
    assert torch.equal(a, a[:, :1].expand_as(a))
    fractions = a[:, 0, 0].sort().values / 0.2
    assert (fractions - torch.linspace(0, 1, 1000)).abs().max() < 0.06, "Kolmogorov–Smirnov distance"


def test_it_is_an_equation_with_the_papers_grid_and_times():
    equation = DiffusionSorption()
    assert isinstance(equation, Equation)
    assert equation.grid.axes[0][0].item() == 0.5 / 1024
    assert equation.times.shape == (101,)
    assert equation.times[-1].item() == 500


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("diffusion", -1.0, "`diffusion` must be positive, got -1"),
        ("tolerance", 0.0, "`tolerance` must be positive, got 0"),
        ("end", float("inf"), "`end` must be positive and finite, got inf"),
        ("density", float("nan"), "`density` must be positive, got nan"),
        ("porosity", 1.0, "`porosity` must be between 0 and 1, got 1"),
        ("max_start", -0.1, "`max_start` must be finite and not negative, got -0.1"),
        ("frames", 1, "`frames` must be at least 2, got 1"),
    ],
)
def test_bad_parameters_are_named(name, value, message):
    with pytest.raises(InputError, match=message):
        DiffusionSorption(**{name: value})


def test_a_negative_start_is_refused():
    with pytest.raises(InputError, match=r"must not be negative, got -0\.5"):
        DiffusionSorption().solve(constant(-0.5, 16))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_sample_does_not_depend_on_its_batch_on_the_gpu():
    equation = DiffusionSorption(points=100, frames=4)
    a = equation.sample_inputs(65, seed=0).cuda()
    u = equation.solve(a)
    for i in (0, 31, 64):
        assert torch.equal(u[i : i + 1], equation.solve(a[i : i + 1]))
