"""Finite volumes for shallow water against exact solutions, symmetries and invariants."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor

from svdno.errors import InputError
from svdno.solvers import finite_volume
from svdno.solvers.finite_volume import half_changes, hllc_flux, integrate_shallow_water, step, velocities


def cells(n: int, length: float = 5.0) -> Tensor:
    return (torch.arange(n, dtype=torch.float64) + 0.5) * (length / n) - length / 2


def at_rest(h: Tensor) -> Tensor:
    return torch.stack((h, torch.zeros_like(h), torch.zeros_like(h)))


def advance(q: Tensor, b: Tensor, end: float, spacing: tuple[float, float], **options: float) -> Tensor:
    *_, last = integrate_shallow_water(q, b, torch.tensor([0.0, end], dtype=torch.float64), spacing, **options)
    return last


def along(profile: Tensor, axis: str) -> Tensor:
    """A profile (fields, n) laid along x or y on n×4 or 4×n cells, its velocity along that axis."""
    q = profile[:, None, :, None].expand(3, 1, -1, 4)
    return (q if axis == "x" else q[[0, 2, 1]].transpose(-1, -2)).contiguous()


def smooth_bed(n: int) -> Tensor:
    x = cells(n)
    return (0.3 + 0.2 * torch.sin(x[:, None] + 0.5) * torch.cos(1.3 * x[None, :]))[None]


def hump(n: int) -> Tensor:
    x = cells(n)
    return torch.exp(-3 * ((x[:, None] - 0.2) ** 2 + x[None, :] ** 2))[None]


@pytest.mark.parametrize("gravity", [1.0, 9.81])
@pytest.mark.parametrize("roughness", [0.0, 1.0])
def test_lake_at_rest_stays_at_rest_over_any_bed_and_around_islands(roughness, gravity):
    noise = torch.rand(2, 24, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    bed = 0.9 * smooth_bed(24)[..., :20] + roughness * noise + torch.tensor([0.0, 0.3])[:, None, None]
    q = at_rest((1 - bed).clamp_min(0))
    assert roughness == 0 or (q[0] == 0).any()
    after = advance(q, bed, 0.5, (0.1, 0.12), gravity=gravity)
    torch.testing.assert_close(after, q, rtol=0, atol=1e-12)


def test_mass_is_conserved_while_nothing_reaches_the_boundary():
    bed = smooth_bed(48)
    q = at_rest(1 + (hump(48) > 0.3) - bed)
    after = advance(q, bed, 0.5, (5 / 48, 5 / 48))
    assert (after[0] - q[0]).abs().max() > 0.1
    assert abs(after[0].sum().item() / q[0].sum().item() - 1) < 1e-13


@pytest.mark.parametrize("roughness", [0.0, 0.3])
def test_depth_stays_non_negative_where_water_runs_onto_dry_land(roughness):
    bed = roughness * torch.rand(1, 40, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    q = at_rest((hump(40) > 0.3).to(torch.float64))
    states = list(integrate_shallow_water(q, bed, torch.linspace(0, 0.8, 9).double(), (5 / 40, 5 / 40)))
    assert all(state.isfinite().all() and (state[0] >= 0).all() for state in states)
    assert (states[-1][0] > 1e-6).sum() > 2 * (q[0] > 0).sum()
    assert velocities(states[-1]).abs().max() < 2.1  # a front on dry land runs at 2√(gh)
    assert abs(states[-1][0].sum().item() / q[0].sum().item() - 1) < 1e-12


def test_depth_stays_non_negative_in_rough_flows_that_a_step_could_overdraw():
    generator = torch.Generator().manual_seed(0)
    h, u, v, bed = torch.randn(4, 8, 20, 20, dtype=torch.float64, generator=generator)
    h, speed = h.clamp_min(0), torch.logspace(-1, 1.5, 8, dtype=torch.float64)[:, None, None]
    after = advance(torch.stack((h, h * u * speed, h * v * speed)), bed, 0.3, (0.25, 0.25), cfl=1.0)
    assert after.isfinite().all()
    assert (after[0] >= 0).all()


def test_step_that_overdraws_a_cell_is_taken_again_half_as_long(monkeypatch):
    q, bed, taken = at_rest(1 + hump(12)), torch.zeros(1, 12, 12, dtype=torch.float64), []

    def overdraw(q: Tensor, b: Tensor, dt: Tensor, *rest: object) -> Tensor:
        taken.append(dt.item())
        return step(q, b, dt, *rest) if dt < 0.03 else -q

    monkeypatch.setattr(finite_volume, "step", overdraw)
    after = advance(q, bed, 0.1, (0.5, 0.5))
    assert taken[:3] == pytest.approx([0.1, 0.05, 0.025])
    accepted = [dt for dt in taken if dt < 0.03]
    assert sum(accepted) == pytest.approx(0.1, abs=1e-15)
    for dt in accepted:
        q = step(q, bed, torch.tensor([dt], dtype=torch.float64), (0.5, 0.5), 1.0)
    assert torch.equal(after, q)


def test_flow_that_blows_up_is_an_error_that_names_the_sample(monkeypatch):
    q, bed = at_rest((1 + hump(8)).repeat(3, 1, 1)), torch.zeros(3, 8, 8, dtype=torch.float64)
    for bad in (torch.nan, 1e14):
        broken = q.clone()
        broken[0, 1, 4, 4] = bad
        with pytest.raises(InputError, match=r"1 of 3 samples solved together \(number 1\) need more"):
            advance(broken, bed, 0.1, (0.5, 0.5))
    monkeypatch.setattr(finite_volume, "step", lambda q, *_: torch.full_like(q, torch.nan))
    with pytest.raises(InputError, match=r"3 of 3 samples solved together \(number 0, 1, 2\) need more"):
        advance(q, bed, 0.1, (0.5, 0.5))


def test_slopes_are_exact_for_cubic_polynomials_and_vanish_at_extrema():
    x = torch.arange(7, dtype=torch.float64) - 3
    edges = torch.arange(8, dtype=torch.float64) - 3.5
    averages = ((edges**4 / 4 + 20 * edges**2).diff()).expand(1, 7, 7)  # of x³ + 40x
    average_slope = 3 * x**2 + 40 + 0.25  # of the derivative, over a cell
    for field, dim in ((averages, -1), (averages.mT, -2)):
        found = half_changes(field, dim).movedim(dim, -1)
        torch.testing.assert_close(found, (average_slope / 2)[2:-2].expand(1, 7, 3), rtol=1e-14, atol=0)
        assert (half_changes(-field.abs(), dim).movedim(dim, -1)[..., 1] == 0).all()


def simple_wave(x: Tensor, t: float) -> Tensor:
    """(h, hu, 0) with u = 2(√h − 1) everywhere: √h is carried along at 3√h − 2, before waves break."""
    s = torch.ones_like(x)
    for _ in range(60):
        s = 1 + 0.1 * torch.exp(-4 * (x - (3 * s - 2) * t + 0.5) ** 2)
    return torch.stack((s**2, 2 * s**2 * (s - 1), torch.zeros_like(s)))


def averaged_simple_wave(n: int, t: float) -> Tensor:
    return simple_wave(cells(16 * n), t).unflatten(-1, (n, 16)).mean(dim=-1)


@pytest.mark.parametrize("axis", ["x", "y"])
def test_simple_wave_converges_at_second_order(axis):
    errors = []
    for n in (32, 64, 128):
        q = along(averaged_simple_wave(n, 0.0), axis)
        after = advance(q, torch.zeros_like(q[0]), 0.6, (5 / n, 5 / n))
        errors.append((after - along(averaged_simple_wave(n, 0.6), axis)).abs().mean().item())
    orders = [np.log2(a / b) for a, b in pairwise(errors)]
    assert min(orders) > 1.7, orders
    assert errors[-1] < 1e-4


def test_smooth_flow_over_a_smooth_bed_converges_at_second_order_on_oblong_cells():
    results = []
    for n in (16, 32, 64):
        fine = torch.stack((smooth_bed(4 * n), hump(4 * n)))
        bed, wave = fine.unflatten(2, (n, 4)).unflatten(4, (2 * n, 2)).mean(dim=(3, 5))
        results.append(advance(at_rest(1 + 0.2 * wave - bed), bed, 0.4, (5 / n, 2.5 / n)))
    coarse = [q.unflatten(2, (-1, 2)).unflatten(4, (-1, 2)).mean(dim=(3, 5)) for q in results[1:]]
    errors = [(a - b).abs().mean(dim=(1, 2, 3)) for a, b in zip(results, coarse, strict=False)]
    order = (errors[0] / errors[1]).log2()
    assert (order > 1.7).all(), order.tolist()


def stoker(x: np.ndarray, t: float, h_l: float, h_r: float) -> np.ndarray:
    """(h, hu) of the dam break onto wet land, g = 1: a rarefaction, a plateau, a shock."""

    def gap(h: float) -> float:
        return 2 * (np.sqrt(h_l) - np.sqrt(h)) - (h - h_r) * np.sqrt((h + h_r) / (2 * h * h_r))

    h_m = brentq(gap, h_r, h_l, xtol=1e-14)
    u_m = 2 * (np.sqrt(h_l) - np.sqrt(h_m))
    shock = h_m * u_m / (h_m - h_r)
    fan = (2 * np.sqrt(h_l) - x / t) / 3
    zones = [x < -np.sqrt(h_l) * t, x < (u_m - np.sqrt(h_m)) * t, x < shock * t]
    h = np.select(zones, [h_l, fan**2, h_m], h_r)
    return np.stack((h, h * np.select(zones, [0 * x, 2 * (np.sqrt(h_l) - fan), u_m + 0 * x], 0)))


@pytest.mark.parametrize("axis", ["x", "y"])
def test_dam_break_converges_to_the_solution_of_stoker_at_first_order(axis):
    """The mean over ten times, for the error depends on where in a cell the shock is."""
    dams, errors = ((2.0, 1.0), (2.0, 0.2)), []
    times = torch.linspace(0, 0.8, 21, dtype=torch.float64)

    def exact(n: int, t: float) -> Tensor:
        profiles = [torch.from_numpy(stoker(cells(32 * n).numpy(), t, *dam)) for dam in dams]
        averages = [torch.cat((p, 0 * p[:1])).unflatten(-1, (n, 32)).mean(dim=-1) for p in profiles]
        return torch.cat([along(average, axis) for average in averages], dim=1)

    for n in (32, 64, 128):
        q = torch.cat([along(at_rest(torch.where(cells(n) < 0, *dam).double()), axis) for dam in dams], dim=1)
        states = list(integrate_shallow_water(q, torch.zeros_like(q[0]), times, (5 / n, 5 / n)))
        differences = [q - exact(n, t) for q, t in zip(states[11:], times[11:].tolist(), strict=True)]
        errors.append(torch.stack(differences).abs().mean(dim=(0, 1, 3, 4)))
    order = (errors[0] / errors[-1]).log2() / 2
    assert (order > 0.95).all(), order.tolist()
    assert errors[-1].max() < 3e-3


def test_swapping_the_axes_and_reflecting_them_commute_with_the_flow():
    bed = smooth_bed(32)
    q = at_rest(1 + (hump(32) > 0.4) - bed)
    q[1:] = 0.2 * torch.stack((hump(32), -hump(32).flip(1)))
    spacing = (5 / 32, 5 / 32)
    after = advance(q, bed, 0.3, spacing)
    swapped = advance(q[[0, 2, 1]].mT.contiguous(), bed.mT.contiguous(), 0.3, spacing)
    torch.testing.assert_close(swapped, after[[0, 2, 1]].mT, rtol=0, atol=1e-12)
    sign = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)[:, None, None, None]
    reflected = advance(sign * q.flip(2), bed.flip(1), 0.3, spacing)
    torch.testing.assert_close(reflected, sign * after.flip(2), rtol=0, atol=1e-12)


def test_sample_is_the_same_to_the_last_bit_in_any_batch():
    scale = torch.tensor([1.0, 4.0, 0.3], dtype=torch.float64)[:, None, None]  # other speeds, other steps
    bed = 0.2 * scale * smooth_bed(21)[..., :19]
    q = at_rest(scale * (1 + (hump(21) > 0.4))[..., :19])
    together = advance(q, bed, 0.4, (0.2, 0.25))
    for i in range(3):
        alone = advance(q[:, i : i + 1].contiguous(), bed[i : i + 1].contiguous(), 0.4, (0.2, 0.25))
        assert torch.equal(alone, together[:, i : i + 1])


def test_step_of_no_length_changes_nothing():
    bed = smooth_bed(16)
    q = at_rest(1 + hump(16))
    assert torch.equal(step(q, bed, torch.zeros(1, dtype=torch.float64), (0.1, 0.1), 1.0), q)


def test_flux_between_equal_states_is_the_flux_of_the_state():
    h, u, v = torch.tensor([[2.0, 1.0, 0.0], [0.3, -3.0, 0.0], [0.7, 0.2, 0.0]], dtype=torch.float64)
    expected = (h * u, h * u**2 + 9.81 / 2 * h**2, h * u * v)
    state = h, (9.81 * h).sqrt(), u, v
    for ours, exact in zip(hllc_flux(state, state, 9.81), expected, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-14, atol=0)


def test_shear_between_two_streams_stays_sharp():
    x = cells(16)
    q = along(torch.stack((torch.ones(16), torch.zeros(16), torch.where(x < 0, 1.0, -1.0))).double(), "x")
    assert torch.equal(advance(q, torch.zeros_like(q[0]), 0.5, (0.1, 0.1)), q)


def test_flow_has_the_gradients_of_its_differences():
    h, hu, hv, bed = torch.rand(4, 2, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    q = torch.stack((h + torch.tensor([0.5, 3.0])[:, None, None], hu, hv))  # two samples with steps of their own

    def advanced(q: Tensor, bed: Tensor) -> Tensor:
        return torch.stack(list(integrate_shallow_water(q, bed, torch.tensor([0, 0.2, 0.3]), (0.2, 0.25))))

    assert torch.autograd.gradcheck(advanced, (q.requires_grad_(), bed.requires_grad_()), fast_mode=True)


def test_step_compiles_without_graph_breaks():
    """In a process of its own: the shape checks of this suite are not part of the program."""
    program = """
import torch
from svdno.solvers.finite_volume import step
h = 1 + torch.rand(2, 12, 10, dtype=torch.float64)
q, b = torch.stack((h, 0.1 * h, -0.2 * h)), 0.1 * h.flip(1)
dt = torch.tensor([0.01, 0.02], dtype=torch.float64)
compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
torch.testing.assert_close(compiled(q, b, dt, (0.1, 0.2), 1.0), step(q, b, dt, (0.1, 0.2), 1.0), rtol=0, atol=1e-13)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cpu_and_gpu_agree():
    bed = smooth_bed(40)
    q = at_rest(1 + (hump(40) > 0.4) - bed)
    on_gpu = advance(q.cuda(), bed.cuda(), 0.5, (5 / 40, 5 / 40)).cpu()
    torch.testing.assert_close(on_gpu, advance(q, bed, 0.5, (5 / 40, 5 / 40)), rtol=0, atol=1e-10)
