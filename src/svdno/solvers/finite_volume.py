"""Finite volumes for shallow water: (h, hu, hv) on uniform cells over a bed b, zero-gradient boundaries.

The MUSCL–Hancock method (van Leer 1984) without splitting: limited slopes in each cell, half a step forward with them,
the hydrostatic reconstruction of Audusse et al. (2004) and HLLC fluxes (Toro 2001) at the faces. Second order in space
and time with one flux per face and step, stable up to a Courant number of 1. Water at rest stays at rest over any bed,
dry land included, and depths stay non-negative: a step that would overdraw a cell is taken again, half as long.
"""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from svdno.errors import InputError
from svdno.solvers.failures import name_samples

# Surface η = h + b, depth h, velocities u and v, each (samples, x, y).
Fields = Sequence[Tensor]

# Shallower water has no velocity of its own: hu/h would be round-off over round-off.
DRY = 1e-10
# Cells beyond the boundary: a flux needs one, and its slope two more.
HALO = (3, 3, 3, 3)
# A sample that needs more steps than this between two output times has blown up.
MAX_STEPS = 100_000


def velocities(q: Float[Tensor, "3 samples x y"]) -> Float[Tensor, "2 samples x y"]:
    """(u, v) = (hu, hv)/h, and 0 where it is dry."""
    return q[1:] * ((q[0] > DRY) / q[0].clamp_min(DRY))


def half_changes(f: Float[Tensor, "samples x y"], dim: int) -> Tensor:
    """What to add for a cell's upper face and to take off for its lower one, without two cells at either end.

    Half of Δx f_x, of fourth order: (8(f₊₁ − f₋₁) − (f₊₂ − f₋₂))/24, limited such that faces lie between the values of
    the two cells they part.
    """
    n = f.shape[dim] - 4
    far_below, below, _, above, far_above = (f.narrow(dim, i, n) for i in range(5))
    half = (above - below).sub_(far_above - far_below, alpha=1 / 8).div_(3)
    rise = f.diff(dim=dim)
    before, after = rise.narrow(dim, 1, n), rise.narrow(dim, 2, n)
    return half.clamp(torch.maximum(before, after).clamp_max_(0), torch.minimum(before, after).clamp_min_(0))


def predict(w: Fields, along_x: Fields, along_y: Fields, to_x: Tensor, to_y: Tensor, gravity: float) -> list[Tensor]:
    """Half a step forward: η_t = h_t = −u·∇h − h∇·u, u_t = −u·∇u − g∇η.

    along_x, along_y: half the change across the cell
    to_x, to_y: dt/Δx and dt/Δy
    """
    (η, h, u, v), (η_x, h_x, u_x, v_x), (η_y, h_y, u_y, v_y) = w, along_x, along_y
    by_u, by_v = to_x * u, to_y * v
    h_drop = by_u * h_x + by_v * h_y + h * (to_x * u_x + to_y * v_y)
    u_drop = by_u * u_x + by_v * u_y + gravity * to_x * η_x
    v_drop = by_u * v_x + by_v * v_y + gravity * to_y * η_y
    return [η - h_drop, h - h_drop, u - u_drop, v - v_drop]


def hllc_flux(left: tuple[Tensor, ...], right: tuple[Tensor, ...], gravity: float) -> tuple[Tensor, Tensor, Tensor]:
    """Fluxes of h, hu and hv through a face between two states (h, c, u, v), u being normal to the face.

    The contact wave carries v alone and moves with the mass flux, so the fluxes of h and hu are those of HLL between
    the outermost waves, F_L + β(F_R − F_L) − β·fast·(q_R − q_L) with β = slow/(slow − fast), and v comes from upstream.
    The celerity c may be that of the cell, √(gh) of its mean depth: one root for all its faces.
    """
    (h_L, c_L, u_L, v_L), (h_R, c_R, u_R, v_R) = left, right
    slow = torch.minimum(u_L - c_L, u_R - c_R).clamp_max(0)
    fast = torch.maximum(u_L + c_L, u_R + c_R).clamp_min(0)
    β = slow / (slow - fast).clamp_max(-DRY)  # where both sides are dry it does not matter, but must not be 0/0
    damping = β * fast
    m_L, m_R = h_L * u_L, h_R * u_R
    p_L, p_R = torch.addcmul(gravity / 2 * h_L**2, m_L, u_L), torch.addcmul(gravity / 2 * h_R**2, m_R, u_R)
    mass = torch.addcmul(torch.addcmul(m_L, β, m_R - m_L), damping, h_L - h_R)
    momentum = torch.addcmul(torch.addcmul(p_L, β, p_R - p_L), damping, m_L - m_R)
    return mass, momentum, torch.addcmul(mass.clamp_min(0) * v_L, mass.clamp_max(0), v_R)


def sweep(w: Fields, half: Fields, c: Tensor, dim: int, gravity: float) -> tuple[Tensor, Tensor, Tensor]:
    """−Δx times what the flow along one axis adds to ∂h/∂t and to those of normal and transverse momentum.

    w, half: values in the middle of cells and half their change across them, one cell beyond either end
    c: celerities of these cells
    dim: the axis, −2 or −1; w[dim] is the velocity along it
    """
    n = c.shape[dim] - 2
    η_L, h_L, *uv_L = ((f + d).narrow(dim, 0, n + 1) for f, d in zip(w, half, strict=True))
    η_R, h_R, *uv_R = ((f - d).narrow(dim, 1, n + 1) for f, d in zip(w, half, strict=True))
    # Depths over the higher of the two beds: h* = max(0, η − max(b_L, b_R)) with b = η − h.
    climb = η_R - η_L
    above_L = torch.minimum(h_L, h_R - climb).clamp_min(0)
    above_R = torch.minimum(h_R, h_L + climb).clamp_min(0)
    left = above_L, c.narrow(dim, 0, n + 1), uv_L[dim], uv_L[-3 - dim]
    right = above_R, c.narrow(dim, 1, n + 1), uv_R[dim], uv_R[-3 - dim]
    mass, momentum, transverse = hllc_flux(left, right, gravity)
    # The bed's push at the faces, ½g(h² − h*²), and inside, g h Δb, add up to −½g h*² at the faces and g h Δη inside.
    out = (momentum - gravity / 2 * above_L**2).narrow(dim, 1, n)
    into = (momentum - gravity / 2 * above_R**2).narrow(dim, 0, n)
    push = 2 * gravity * (w[1] * half[0]).narrow(dim, 1, n)
    return mass.diff(dim=dim), out - into + push, transverse.diff(dim=dim)


def step(
    q: Float[Tensor, "3 samples x y"],
    b: Float[Tensor, "samples x y"],
    dt: Float[Tensor, " samples"],
    spacing: tuple[float, float],
    gravity: float,
) -> Float[Tensor, "3 samples x y"]:
    """Advance each sample by its own dt; dt = 0 leaves it as it is, to the last bit."""
    to_x, to_y = (dt[:, None, None] / size for size in spacing)
    wide, bed = F.pad(q, HALO, mode="replicate"), F.pad(b, HALO, mode="replicate")
    fields = wide[0] + bed, wide[0], *velocities(wide)
    along_x = [half_changes(f, -2)[..., 2:-2] for f in fields]
    along_y = [half_changes(f, -1)[..., 2:-2, :] for f in fields]
    w = [f[..., 2:-2, 2:-2] for f in fields]
    c = (gravity * w[1]).sqrt()
    w = predict(w, along_x, along_y, to_x, to_y, gravity)
    rows, columns = (..., slice(1, -1), slice(None)), (..., slice(1, -1))  # no halo across the axis of a sweep
    h_x, hu_x, hv_x = sweep([f[columns] for f in w], [f[columns] for f in along_x], c[columns], -2, gravity)
    h_y, hv_y, hu_y = sweep([f[rows] for f in w], [f[rows] for f in along_y], c[rows], -1, gravity)
    return q - torch.stack((to_x * h_x + to_y * h_y, to_x * hu_x + to_y * hu_y, to_x * hv_x + to_y * hv_y))


@torch.no_grad()
def courant_rate(
    q: Float[Tensor, "3 samples x y"], spacing: tuple[float, float], gravity: float
) -> Float[Tensor, " samples"]:
    """max (|u|+c)/Δx + (|v|+c)/Δy of each sample: times dt it is the Courant number. NaN if a depth is negative."""
    u, v = velocities(q).abs()
    c = (gravity * q[0]).sqrt()
    return ((u + c) / spacing[0] + (v + c) / spacing[1]).amax(dim=(-2, -1))


def integrate_shallow_water(
    q: Float[Tensor, "3 samples x y"],
    b: Float[Tensor, "samples x y"],
    times: Float[Tensor, " times"],
    spacing: tuple[float, float],
    gravity: float = 1.0,
    cfl: float = 0.9,
) -> Iterator[Tensor]:
    """Yield the state at each of the times, the first of which is that of `q`.

    q: cell averages of depth h and momenta hu, hv
    b: height of the bed in each cell
    spacing: Δx and Δy
    cfl: largest Courant number (|u|+c)dt/Δx + (|v|+c)dt/Δy of a step

    Each sample takes steps of its own, so its result does not depend on the others of the batch.
    """
    yield q
    rate = courant_rate(q, spacing, gravity)
    for interval in times.diff().tolist():
        left = torch.full_like(rate, interval)
        while bool(left.any()):
            _check_steps(interval * rate / cfl)
            steps = (left * rate / cfl).ceil().clamp_min(1)
            dt = left / steps
            new = step(q, b, dt, spacing, gravity)
            new_rate = courant_rate(new, spacing, gravity)
            valid = new_rate.isfinite()
            q, rate = torch.where(valid[:, None, None], new, q), torch.where(valid, new_rate, 2 * cfl / dt)
            left = torch.where(valid, torch.where(steps > 1, left - dt, 0.0), left)
        yield q


def _check_steps(steps: Float[Tensor, " samples"]) -> None:
    """Stop at a flow that has blown up instead of following it in ever smaller steps."""
    lost = ~(steps <= MAX_STEPS)  # so if it is NaN
    if lost.any():
        raise InputError(
            f"Output times must be within {MAX_STEPS} steps of each other; {name_samples(lost)} need more. "
            "Use more times, and check that the start is finite."
        )
