"""Darcy flow against an independent matrix, exact solutions and a refined grid."""

import numpy as np
import pytest
import torch

from svdno.equations.darcy import BLOCK, Darcy
from svdno.errors import InputError


def solve_densely(a: np.ndarray, force: float) -> np.ndarray:
    """The same scheme on the unit square, written down cell by cell."""
    n_x, n_y = a.shape
    A = np.zeros((n_x, n_y, n_x, n_y))
    for i, j in np.ndindex(n_x, n_y):
        for di, dj, n in ((1, 0, n_x), (-1, 0, n_x), (0, 1, n_y), (0, -1, n_y)):
            k, m = i + di, j + dj
            if 0 <= k < n_x and 0 <= m < n_y:
                face = 2 * a[i, j] * a[k, m] / (a[i, j] + a[k, m]) * n**2
                A[i, j, k, m] -= face
            else:
                face = 2 * a[i, j] * n**2
            A[i, j, i, j] += face
    return np.linalg.solve(A.reshape(a.size, a.size), np.full(a.size, force)).reshape(a.shape)


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours - theirs).norm() / theirs.norm()).item()


@pytest.mark.parametrize("low", [0.1, 0.01])
def test_solution_agrees_with_a_dense_direct_solve(low):
    equation = Darcy(low=low, force=2.5)
    a = Darcy(low=low, points=24).sample_inputs(3, seed=1)[:, :, :17]
    u = equation.solve(a)
    assert u.shape == (3, 1, 24, 17, 1)
    assert equation.residual(u, a).abs().max() < 1e-8
    for i in range(3):
        assert relative_error(u[i, 0, ..., 0], torch.from_numpy(solve_densely(a[i, ..., 0].numpy(), 2.5))) < 1e-8


def test_uniform_medium_approaches_the_exact_series_with_order_two():
    """u = Σ over odd k, m of 16 sin(kπx) sin(mπy) / (π⁴ a k m (k² + m²))."""
    errors = []
    for n in (16, 32, 64):
        x = Darcy(points=n).grid.axes[0]
        k = torch.arange(1, 400, 2, dtype=torch.float64)
        sines = torch.sin(torch.pi * k * x[:, None])
        weights = 16 / (torch.pi**4 * 0.1 * k[:, None] * k * (k[:, None] ** 2 + k**2))
        exact = sines @ weights @ sines.mT
        u = Darcy().solve(torch.full((1, n, n, 1), 0.1, dtype=torch.float64))[0, 0, ..., 0]
        errors.append(relative_error(u, exact))
    orders = torch.tensor(errors[:-1]).log2() - torch.tensor(errors[1:]).log2()
    assert ((orders > 1.9) & (orders < 2.1)).all(), orders.tolist()
    assert errors[-1] < 1e-3


def test_default_setting_is_within_half_a_percent_of_four_times_as_many_cells():
    equation = Darcy()
    a = equation.sample_inputs(1, seed=0)
    fine = equation.solve(a.repeat_interleave(4, dim=1).repeat_interleave(4, dim=2))
    averaged = fine.reshape(1, 1, 128, 4, 128, 4, 1).mean(dim=(3, 5))
    assert relative_error(equation.solve(a), averaged) < 5e-3


def test_residual_is_small_on_solutions_and_large_beside_them():
    equation = Darcy()
    a = equation.sample_inputs(4, seed=2)
    u = equation.solve(a)
    residual = equation.residual(u, a)
    assert residual.shape == (4, 128, 128, 1)
    assert (residual.flatten(1).norm(dim=1) <= 1e-10 * 128).all(), "‖residual‖ ≤ 1e-10 ‖f‖"
    assert (equation.residual(1.01 * u, a) - 0.01).abs().max() < 1e-8, "A(1.01u) − f = 0.01f"
    assert equation.residual(u, a.flip(0)).square().mean() > 1, "solutions for other media"
    bumped = u.clone()
    bumped[:, :, 64, 64] *= 1.01
    assert equation.residual(bumped, a).abs().max() > 0.1


def test_residual_keeps_precision_and_gradients_of_a_prediction():
    equation = Darcy(points=16)
    a = equation.sample_inputs(2, seed=0).float()
    u = equation.solve(a).float().requires_grad_()
    residual = equation.residual(2 * u, a)
    residual.mean().backward()
    assert residual.dtype == torch.float32
    assert residual.detach().sub(1).abs().max() < 1e-3, "A(2u) − f = f"
    assert u.grad is not None
    # The mean of a divergence is the flux through the boundary: 2·2a/h² of the cells there, in each sample's mean.
    assert u.grad[:, 0, 4:12, 0, 0].allclose(2 * 2 * a[:, 4:12, 0, 0] * 16**2 / (2 * 16**2))
    assert u.grad[:, :, 1:-1, 1:-1].abs().max() < 1e-4


def test_pressure_is_positive_with_its_maximum_inside():
    equation = Darcy(low=0.01)
    u = equation.solve(equation.sample_inputs(8, seed=3))[:, 0, ..., 0]
    assert u.min() > 0
    inside = u[:, 1:-1, 1:-1].amax(dim=(1, 2))
    assert torch.equal(inside, u.amax(dim=(1, 2)))


def test_scaled_medium_divides_the_pressure_and_scaled_force_multiplies_it():
    a = Darcy(points=64).sample_inputs(3, seed=4)
    u = Darcy().solve(a)
    torch.testing.assert_close(Darcy().solve(7 * a), u / 7, rtol=1e-8, atol=0)
    torch.testing.assert_close(Darcy(force=-3.0).solve(a), -3 * u, rtol=1e-8, atol=0)


def test_less_permeable_medium_holds_more_pressure_in_the_mean():
    """∫fu = max over v of 2∫fv − ∫a|∇v|², which grows where a falls."""
    a = Darcy(points=32).sample_inputs(4, seed=0)
    tighter, u = Darcy().solve(a.clamp(max=0.5)), Darcy().solve(a)
    assert (tighter.flatten(1).mean(dim=1) > u.flatten(1).mean(dim=1)).all()


def test_medium_exceeds_the_mean_of_its_block_of_bump_fields():
    """The public recipe with the mean over cells, on 200 samples: the same media but for cells at the threshold."""
    x = (np.arange(64) + 0.5) / 64
    fields = []
    for i in range(BLOCK):
        x_m, y_m, s = np.random.default_rng([9, i]).uniform(size=(3, 5)) * [[1.0], [1.0], [0.5]]
        distance = (x[:, None, None] - x_m) ** 2 + (x[:, None] - y_m) ** 2
        fields.append(np.exp(-distance / s).sum(axis=-1))
    theirs = np.where(fields > np.mean(fields), 1.0, 0.1)
    ours = Darcy(points=64).sample_inputs(BLOCK, seed=9)[..., 0].numpy()
    assert (ours != theirs).mean() < 1e-3


def test_both_phases_are_present_in_plausible_parts():
    a = Darcy(low=0.3, high=3.0, points=64).sample_inputs(BLOCK, seed=0)
    assert a.unique().tolist() == [0.3, 3.0]
    high = (a == 3.0).double().flatten(1).mean(dim=1)
    assert 0.4 < high.mean() < 0.6
    assert high.std() > 0.1


def test_same_sample_on_a_finer_grid_is_the_same_medium():
    coarse, fine = (Darcy(points=n).sample_inputs(4, seed=0) for n in (32, 96))
    assert torch.equal(fine[:, 1::3, 1::3], coarse), "the middle one of three fine cells has the coarse one's centre"


def test_sample_is_solved_alike_alone_and_in_a_batch():
    equation = Darcy(points=64)
    a = equation.sample_inputs(6, seed=0)
    together = equation.solve(a)
    alone = torch.cat([equation.solve(a[i : i + 1]) for i in range(6)])
    torch.testing.assert_close(alone, together, rtol=1e-12, atol=0)


def test_flow_is_steady_on_cells_of_the_unit_square():
    equation = Darcy(points=10)
    assert equation.times.tolist() == [0.0]
    assert equation.grid.placement == "cells"
    assert equation.grid.axes[1][0].item() == pytest.approx(0.05)


def test_bad_parameters_are_named():
    with pytest.raises(InputError, match="`low` must be positive, got 0"):
        Darcy(low=0.0)
    with pytest.raises(InputError, match="`bumps` must be at least 1, got 0"):
        Darcy(bumps=0)
    with pytest.raises(InputError, match="coefficient must be positive"):
        Darcy().solve(-torch.ones(1, 8, 8, 1))
