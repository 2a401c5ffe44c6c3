"""ETDRK4: fourth-order exponential time differencing for û_t = L û + N(û) with a diagonal linear part.

Cox and Matthews (2002), with the coefficients as contour integrals of Kassam and Trefethen (2005), which avoid the
cancellation in terms such as (eᶻ − 1 − z)/z². The stiff linear part is integrated exactly, so the step only has to
resolve N.
"""

from collections.abc import Callable
from math import ceil
from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

# Points on the upper half of the circle around each h·L; the mean over them is exact to round-off.
CONTOUR_POINTS = 32


class Coefficients(NamedTuple):
    """What one step of size h needs: e^{hL}, e^{hL/2}, and the weights of the stages."""

    whole: Tensor
    half: Tensor
    inner: Tensor
    first: Tensor
    middle: Tensor
    last: Tensor


def coefficients(linear: Float[Tensor, "..."], h: float) -> Coefficients:
    """Make the coefficients for a real diagonal linear part and a step h."""
    k = torch.arange(CONTOUR_POINTS, dtype=linear.dtype, device=linear.device)
    z = h * linear.unsqueeze(-1) + torch.exp(1j * torch.pi * (k + 0.5) / CONTOUR_POINTS)
    exp = torch.exp(z)

    def mean(values: Tensor) -> Tensor:
        return h * values.real.mean(dim=-1)

    return Coefficients(
        whole=torch.exp(h * linear),
        half=torch.exp(h * linear / 2),
        inner=mean((torch.exp(z / 2) - 1) / z),
        first=mean((-4 - z + exp * (4 - 3 * z + z**2)) / z**3),
        middle=mean((2 + z + exp * (-2 + z)) / z**3),
        last=mean((-4 - 3 * z - z**2 + exp * (4 - z)) / z**3),
    )


def step(u: Tensor, c: Coefficients, nonlinear: Callable[[Tensor], Tensor]) -> Tensor:
    """Advance the state by one step."""
    N_u = nonlinear(u)
    a = c.half * u + c.inner * N_u
    N_a = nonlinear(a)
    b = c.half * u + c.inner * N_a
    N_b = nonlinear(b)
    d = c.half * a + c.inner * (2 * N_b - N_u)
    return c.whole * u + c.first * N_u + 2 * c.middle * (N_a + N_b) + c.last * nonlinear(d)


def integrate_etdrk4(
    u: Shaped[Tensor, "..."],
    linear: Float[Tensor, "..."],
    nonlinear: Callable[[Tensor], Tensor],
    times: Float[Tensor, " times"],
    max_step: Callable[[float], float],
) -> list[Tensor]:
    """States at the given times, the first of which is that of `u`.

    u: state in the basis where the linear part is diagonal
    linear: L, broadcasts against the state
    nonlinear: N
    max_step: largest step as a function of time; each interval is divided evenly by its value at the beginning
    """
    states = [u]
    known: dict[float, Coefficients] = {}
    for start, interval in zip(times.tolist(), times.diff().tolist(), strict=False):
        steps = max(1, ceil(round(interval / max_step(start), 9)))
        h = round(interval / steps, 15)
        if h not in known:
            known[h] = coefficients(linear, h)
        for _ in range(steps):
            u = step(u, known[h], nonlinear)
        states.append(u)
    return states
