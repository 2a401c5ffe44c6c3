"""Finite volumes for shallow water: (h, hu, hv) on uniform cells over a bed b, zero-gradient boundaries.

Monotone face values from five cells (the limiter of Suresh and Huynh 1997, without its extension at extrema), the
hydrostatic reconstruction of Audusse et al. (2004), HLLC fluxes (Toro 2001) with Einfeldt's speeds, and Heun's method:
second order in space and time. Water at rest stays at rest over any bed, dry land included, and depths stay
non-negative up to a Courant number of ¼.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

# Shallower water has no velocity of its own: hu/h would be round-off over round-off.
DRY = 1e-10


def velocities(q: Float[Tensor, "3 samples x y"]) -> Float[Tensor, "2 samples x y"]:
    """(u, v) = (hu, hv)/h, and 0 where it is dry."""
    wet = q[0] > DRY
    return torch.where(wet, q[1:] / torch.where(wet, q[0], 1.0), 0.0)


def minmod(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """The one nearest to 0, and 0 where their signs differ."""
    least = torch.minimum(torch.minimum(x, y), z)
    return least.clamp_min(0) + torch.maximum(torch.maximum(x, y), z).clamp_max(0)


def face_values(w: Float[Tensor, "4 samples x y"], dim: int) -> tuple[Tensor, Tensor]:
    """Values at the upper and the lower face of each cell, without the two outermost cells at either end.

    Between the two cells that share the face, of fifth order before the limiter: near jumps the value keeps within
    twice the difference to the cell on the far side.
    """
    n = w.shape[dim] - 4
    d_0, d_1, d_2, d_3 = (w.diff(dim=dim).narrow(dim, i, n) for i in range(4))
    rise = minmod((24 * d_2 + 11 * d_1 - 3 * d_3 - 2 * d_0) / 60, d_2, 2 * d_1)
    drop = minmod((24 * d_1 + 11 * d_2 - 3 * d_0 - 2 * d_3) / 60, d_1, 2 * d_2)
    centre = w.narrow(dim, 2, n)
    return centre + rise, centre - drop


def hllc_flux(left: tuple[Tensor, ...], right: tuple[Tensor, ...], gravity: float) -> tuple[Tensor, Tensor, Tensor]:
    """Fluxes of h, hu and hv through a face between two states (h, u, v), u being normal to the face.

    The contact wave carries v alone and moves with the mass flux, so the fluxes of h and hu are those of HLL, and v
    comes from upstream.
    """
    (h_L, u_L, v_L), (h_R, u_R, v_R) = left, right
    root_L, root_R = h_L.sqrt(), h_R.sqrt()
    # Roe's mean velocity; where both sides are dry it does not matter, but must not be 0/0.
    u_mean = (root_L * u_L + root_R * u_R) / (root_L + root_R).clamp_min(DRY)
    c_mean = (gravity / 2 * (h_L + h_R)).sqrt()
    c = gravity**0.5
    slow = torch.minimum(u_L - c * root_L, u_mean - c_mean).clamp_max(0)
    fast = torch.maximum(u_R + c * root_R, u_mean + c_mean).clamp_min(0)
    width = (fast - slow).clamp_min(DRY)
    m_L, m_R = h_L * u_L, h_R * u_R
    p_L, p_R = m_L * u_L + gravity / 2 * h_L**2, m_R * u_R + gravity / 2 * h_R**2
    mass = (fast * m_L - slow * m_R + slow * fast * (h_R - h_L)) / width
    momentum = (fast * p_L - slow * p_R + slow * fast * (m_R - m_L)) / width
    return mass, momentum, mass * torch.where(mass > 0, v_L, v_R)


def sweep(w: Float[Tensor, "4 samples x y"], dim: int, gravity: float) -> tuple[Tensor, Tensor, Tensor]:
    """−Δx times what the flow along one axis adds to ∂h/∂t and to those of normal and transverse momentum.

    w: depth h, surface η = h + b, normal and transverse velocity
    dim: the axis, −2 or −1
    """
    n = w.shape[dim]
    w = F.pad(w, (0, 0, 3, 3) if dim == -2 else (3, 3, 0, 0), mode="replicate")
    upper, lower = face_values(w, dim)
    h_L, η_L, u_L, v_L = upper.narrow(dim, 0, n + 1)
    h_R, η_R, u_R, v_R = lower.narrow(dim, 1, n + 1)
    # Depths over the higher of the two beds: h* = max(0, η − max(b_L, b_R)) with b = η − h.
    above_L = torch.minimum(h_L, h_R + (η_L - η_R)).clamp_min(0)
    above_R = torch.minimum(h_R, h_L + (η_R - η_L)).clamp_min(0)
    mass, momentum, transverse = hllc_flux((above_L, u_L, v_L), (above_R, u_R, v_R), gravity)
    # The bed's push at the faces, ½g(h² − h*²), and inside, g h̄ Δb, add up to −½g h*² at the faces and g h̄ Δη inside.
    out = (momentum - gravity / 2 * above_L**2).narrow(dim, 1, n)
    into = (momentum - gravity / 2 * above_R**2).narrow(dim, 0, n)
    push = gravity / 2 * (upper[0] + lower[0]) * (upper[1] - lower[1])
    return mass.diff(dim=dim), out - into + push.narrow(dim, 1, n), transverse.diff(dim=dim)


def tendency(
    q: Float[Tensor, "3 samples x y"],
    b: Float[Tensor, "samples x y"],
    spacing: tuple[float, float],
    gravity: float,
) -> Float[Tensor, "3 samples x y"]:
    """∂q/∂t of the cell averages."""
    u, v = velocities(q)
    surface = q[0] + b
    h_x, hu_x, hv_x = sweep(torch.stack((q[0], surface, u, v)), -2, gravity)
    h_y, hv_y, hu_y = sweep(torch.stack((q[0], surface, v, u)), -1, gravity)
    x, y = torch.stack((h_x, hu_x, hv_x)), torch.stack((h_y, hu_y, hv_y))
    return -(x / spacing[0] + y / spacing[1])


def step(
    q: Float[Tensor, "3 samples x y"],
    b: Float[Tensor, "samples x y"],
    dt: Float[Tensor, " samples"],
    spacing: tuple[float, float],
    gravity: float,
) -> Float[Tensor, "3 samples x y"]:
    """Advance each sample by its own dt with Heun's method; dt = 0 leaves it as it is, to the last bit."""
    dt = dt[:, None, None]
    predicted = q + dt * tendency(q, b, spacing, gravity)
    return (q + (predicted + dt * tendency(predicted, b, spacing, gravity))) / 2


def courant_rate(
    q: Float[Tensor, "3 samples x y"], spacing: tuple[float, float], gravity: float
) -> Float[Tensor, " samples"]:
    """max (|u|+c)/Δx + (|v|+c)/Δy of each sample: times dt it is the Courant number."""
    u, v = velocities(q).abs()
    c = (gravity * q[0].clamp_min(0)).sqrt()
    return ((u + c) / spacing[0] + (v + c) / spacing[1]).amax(dim=(-2, -1))


def integrate_shallow_water(
    q: Float[Tensor, "3 samples x y"],
    b: Float[Tensor, "samples x y"],
    times: Float[Tensor, " times"],
    spacing: tuple[float, float],
    gravity: float = 1.0,
    cfl: float = 0.25,
) -> Iterator[Tensor]:
    """Yield the state at each of the times, the first of which is that of `q`.

    q: cell averages of depth h and momenta hu, hv
    b: height of the bed in each cell
    spacing: Δx and Δy
    cfl: largest Courant number (|u|+c)dt/Δx + (|v|+c)dt/Δy of a step

    Each sample takes steps of its own, so its result does not depend on the others of the batch.
    """
    yield q
    for interval in times.diff().tolist():
        left = torch.full_like(q[0, :, 0, 0], interval)
        while bool((left > 0).any()):
            steps = (left * courant_rate(q, spacing, gravity) / cfl).ceil().clamp_min(1)
            dt = left / steps
            q = step(q, b, dt, spacing, gravity)
            left = torch.where(steps > 1, left - dt, 0.0)
        yield q
