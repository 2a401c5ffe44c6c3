"""Shallow water against the radial equations, and against what is known of its solutions."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from svdno.equations import shallow_water
from svdno.equations.shallow_water import ShallowWater, cover_fraction
from svdno.errors import InputError


def solve_radial(n: int, radius: float, end: float) -> tuple[np.ndarray, np.ndarray]:
    """h(ρ, end) of (ρh)_t + (ρhu)_ρ = 0, (ρhu)_t + (ρ(hu² + ½h²))_ρ = ½h²: Rusanov fluxes, minmod slopes, n cells."""
    faces = np.linspace(0, 2.5, n + 1)
    centres, size = (faces[1:] + faces[:-1]) / 2, 2.5 / n
    q = np.stack((np.where(centres < radius, 2.0, 1.0), np.zeros(n)))

    def rate(q: np.ndarray) -> np.ndarray:
        mirrored = np.concatenate((q[:, :1] * [[1], [-1]], q, q[:, -1:]), axis=1)
        d = np.diff(mirrored, axis=1)
        slope = np.where(d[:, 1:] * d[:, :-1] > 0, np.sign(d[:, 1:]) * np.minimum(abs(d[:, 1:]), abs(d[:, :-1])), 0)
        left, right = (q + slope / 2)[:, :-1], (q - slope / 2)[:, 1:]
        flux = [np.stack((m, m**2 / h + h**2 / 2)) for h, m in (left, right)]
        speed = np.maximum(*(abs(m / h) + np.sqrt(h) for h, m in (left, right)))
        inner = (flux[0] + flux[1] - speed * (right - left)) / 2
        h, m = q[:, -1]
        full = np.concatenate((np.zeros((2, 1)), inner, [[m], [m**2 / h + h**2 / 2]]), axis=1)
        return (np.stack((np.zeros(n), q[0] ** 2 / 2)) - np.diff(faces * full, axis=1) / size) / centres

    steps = math.ceil(end * 2 / (0.4 * size))
    for _ in range(steps):
        first = q + end / steps * rate(q)
        q = (q + first + end / steps * rate(first)) / 2
    return centres, q[0]


def test_dam_break_converges_to_the_solution_of_the_radial_equations():
    rho, profile = solve_radial(1000, 0.5, 0.7)
    errors = []
    for n in (50, 100):
        equation = ShallowWater(points=n, frames=2, end=0.7)
        edges = np.linspace(-2.5, 2.5, n + 1)
        start = torch.from_numpy(1 + cover_fraction(edges, edges, 0.5))
        h = equation.solve(torch.stack((start, 0 * start), dim=-1)[None])[0, -1, ..., 0]
        distance = equation.grid.resized((4 * n, 4 * n)).points.norm(dim=-1)
        fine = torch.from_numpy(np.interp(distance.numpy(), rho, profile))
        exact = fine.unflatten(0, (n, 4)).unflatten(2, (n, 4)).mean(dim=(1, 3))
        errors.append((h - exact).abs().sum() / (exact - 1).abs().sum())
    assert errors[1] < 0.6 * errors[0], errors
    assert (h - exact).norm() / exact.norm() < 0.01
    assert (h - exact).norm() / (exact - 1).norm() < 0.1


def test_velocity_points_away_from_the_rising_ring_and_mass_is_kept():
    equation = ShallowWater(points=48, frames=5, end=0.5)
    a = equation.sample_inputs(2, seed=1)
    u = equation.solve(a)
    points = equation.grid.points
    outward = (u[:, 1:, ..., 1:] * points).sum(dim=-1)
    assert outward.amax(dim=(1, 2, 3)).min() > 0.2
    assert u[:, 0, ..., 1:].abs().max() == 0
    mass = u[..., 0].sum(dim=(2, 3))
    torch.testing.assert_close(mass, mass[:, :1].expand_as(mass), rtol=1e-13, atol=0)


def test_radial_problem_keeps_the_symmetries_of_the_square():
    equation = ShallowWater(points=32, frames=3, end=0.5)
    u = equation.solve(equation.sample_inputs(2, seed=0))
    swapped = u.transpose(2, 3)[..., [0, 2, 1]]
    reflected = u.flip(2) * torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(swapped, u, rtol=0, atol=1e-12)
    torch.testing.assert_close(reflected, u, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bathymetry", ["flat", "random"])
def test_first_frame_is_the_input_and_the_grid_is_that_of_the_input(bathymetry):
    equation = ShallowWater(frames=3, end=0.1)
    a = ShallowWater(points=16, bathymetry=bathymetry).sample_inputs(2, seed=0)
    u = equation.solve(a)
    assert u.shape == (2, 3, 16, 16, 3)
    assert torch.equal(u[:, 0, ..., 0], a[..., 0])
    assert not torch.equal(u[:, 1, ..., 0], a[..., 0])


def test_solution_is_the_same_to_the_last_bit_in_any_batch_and_in_parts(monkeypatch):
    equation = ShallowWater(points=24, frames=4, end=0.3, bathymetry="random")
    a = equation.sample_inputs(3, seed=2)
    together = equation.solve(a)
    assert torch.equal(together[1:2], equation.solve(a[1:2]))
    for cells in (1, 2 * 24**2):
        monkeypatch.setattr(shallow_water, "CPU_CELLS", cells)
        assert torch.equal(equation.solve(a), together)


@pytest.mark.parametrize(("n", "radius"), [(32, 0.3), (47, 0.5123), (64, 0.7)])
def test_cover_fractions_are_areas_of_the_disc(n, radius):
    edges = np.linspace(-2.5, 2.5, n + 1)
    fraction = cover_fraction(edges, edges, radius)
    assert fraction.sum() * (5 / n) ** 2 == pytest.approx(math.pi * radius**2, abs=1e-6)
    assert fraction.min() == 0
    assert fraction.max() == 1
    fine = (np.arange(50 * n) + 0.5) * 5 / (50 * n) - 2.5
    sampled = (np.add.outer(fine**2, fine**2) < radius**2).reshape(n, 50, n, 50).mean(axis=(1, 3))
    assert abs(fraction - sampled).max() < 5e-3


def test_no_radius_leaves_a_hole_in_the_starts():
    for radius in np.random.default_rng(0).uniform(0.3, 0.7, size=200):
        fraction = cover_fraction(np.linspace(-2.5, 2.5, 17), np.linspace(-2.5, 2.5, 17), radius)
        assert fraction.sum() * (5 / 16) ** 2 == pytest.approx(math.pi * radius**2, abs=1e-6)


def test_each_radius_is_a_start_of_its_own_unless_it_is_thresholded():
    covered = ShallowWater(points=64).sample_inputs(300, seed=0)[..., 0]
    thresholded = ShallowWater(points=64, start="thresholded").sample_inputs(300, seed=0)[..., 0]
    assert len(covered.unique(dim=0)) == 300
    assert len(thresholded.unique(dim=0)) < 60
    radii = ((covered - 1).sum(dim=(1, 2)) * (5 / 64) ** 2 / math.pi).sqrt()
    assert 0.3 <= radii.min() < 0.31
    assert 0.69 < radii.max() <= 0.7
    distance = ShallowWater(points=64).grid.points.norm(dim=-1)
    assert torch.equal(thresholded, 1 + (distance < radii[:, None, None]).double())


def test_random_beds_are_low_smooth_and_the_same_on_any_grid():
    coarse, fine = (ShallowWater(points=n, bathymetry="random").sample_inputs(50, seed=0) for n in (20, 60))
    bed = fine[..., 1]
    assert bed.min() >= 0
    assert 0.35 < bed.max() <= 0.5
    assert torch.allclose(bed[:, 1::3, 1::3], coarse[..., 1], atol=1e-12)
    assert bed.diff(dim=1).abs().max() < 5 / 60 * 0.25 * 3 * 2 * math.pi / 5 + 1e-12  # |∇b| ≤ ½B·max |k|
    assert len(bed.unique(dim=0)) == 50
    flat = ShallowWater(points=60).sample_inputs(50, seed=0)
    assert torch.allclose(fine.sum(dim=-1), flat[..., 0], atol=1e-12)
    assert (flat[..., 1] == 0).all()


def smooth_start(n: int) -> Tensor:
    x = (torch.arange(n, dtype=torch.float64) + 0.5) * 5 / n - 2.5
    hump = torch.exp(-2 * (x[:, None] ** 2 + (x[None, :] - 0.3) ** 2))
    bed = 0.2 + 0.1 * torch.sin(x[:, None] + x[None, :])
    return torch.stack((1 + 0.2 * hump - bed, bed), dim=-1)[None]


def test_residual_of_a_smooth_solution_falls_at_second_order_and_that_of_a_wrong_one_stays():
    sizes, wrong = [], []
    for n, frames in ((24, 9), (48, 17), (96, 33)):
        equation = ShallowWater(points=n, frames=frames, end=0.4)
        a = smooth_start(n)
        u = equation.solve(a)
        residual = equation.residual(u, a)
        assert residual.shape == (1, frames - 2, n - 2, n - 2, 3)
        sizes.append(residual.abs().mean(dim=(0, 1, 2, 3)))
        altered = [u.clone() for _ in range(3)]
        for field in range(3):
            altered[field][..., field] *= 1.5
        wrong.append(torch.stack([equation.residual(v, a).abs().mean() for v in altered]))
        assert equation.residual(u, a * torch.tensor([1.0, 1.5])).abs().mean() > 2 * sizes[-1].mean()
    order = (sizes[0] / sizes[-1]).log2() / 2
    assert (order > 1.6).all(), order.tolist()
    assert (wrong[-1] > 5 * sizes[-1].mean()).all()
    assert (wrong[-1] > 0.5 * wrong[0]).all()


def test_residual_of_water_at_rest_is_zero_over_any_bed():
    equation = ShallowWater(points=16, frames=4)
    bed = torch.rand(2, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u = torch.zeros(2, 4, 16, 16, 3, dtype=torch.float64)
    u[..., 0] = 1.5 - bed[:, None]
    assert equation.residual(u, torch.stack((1.5 - bed, bed), dim=-1)).abs().max() < 1e-13


def test_bad_parameters_are_named():
    with pytest.raises(InputError, match=r"`gravity` must be positive, got -1"):
        ShallowWater(gravity=-1.0)
    with pytest.raises(InputError, match=r"`frames` must be at least 2, got 1"):
        ShallowWater(frames=1)
    with pytest.raises(InputError, match=r"`cfl` must be at most 1 for a stable step, got 1.5"):
        ShallowWater(cfl=1.5)
    with pytest.raises(InputError, match=r"`bathymetry` must be one of 'flat', 'random', got 'rough'"):
        ShallowWater(bathymetry="rough")
    with pytest.raises(InputError, match=r"`start` must be one of 'cover-fraction', 'thresholded', got 'sharp'"):
        ShallowWater(start="sharp")


def test_bad_fields_are_named():
    equation = ShallowWater(points=8, frames=3)
    a = equation.sample_inputs(1, seed=0)
    with pytest.raises(InputError, match="depth not negative"):
        equation.solve(-a)
    with pytest.raises(InputError, match="must be finite"):
        equation.solve(a / 0)
    with pytest.raises(InputError, match="`u` must hold the 3 output times, got 5"):
        equation.residual(torch.ones(1, 5, 8, 8, 3, dtype=torch.float64), a)


def test_depth_alone_is_the_depth_of_the_whole_solution():
    whole = ShallowWater(points=16, frames=3)
    depth = ShallowWater(points=16, frames=3, outputs="h")
    a = whole.sample_inputs(1, seed=0)
    assert (depth.input_fields, depth.output_fields) == (("h(x, y, 0)",), ("h",))
    assert torch.equal(depth.sample_inputs(1, seed=0), a[..., :1])
    assert torch.equal(depth.solve(a[..., :1]), whole.solve(a)[..., :1])
    with pytest.raises(InputError, match="the residual needs the velocities"):
        depth.residual(depth.solve(a[..., :1]), a)
