"""How much a solution varies in space: the paper's β, a variogram over short distances."""

from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

# Offsets in grid points along each axis.
OFFSETS = range(1, 6)


def spatial_variability(u: Float[Tensor, "samples times *space fields"]) -> float:
    """β = mean over offsets h ∈ {1 … 5}^dim, times, samples and fields of mean_x (u(x+h) − u(x))² / Var(u).

    Frames that do not vary at all have no β and are left out.
    """
    dim = u.ndim - 3
    axes = tuple(range(2, 2 + dim))
    variance = u.double().var(dim=axes, correction=0)
    varies = variance > 1e-12 * u.double().square().mean(dim=axes)
    totals = [
        _squared_differences(u.double(), offset, axes)[varies] / variance[varies]
        for offset in product(OFFSETS, repeat=dim)
    ]
    return torch.stack(totals).mean().item()


def _squared_differences(u: Tensor, offset: tuple[int, ...], axes: tuple[int, ...]) -> Tensor:
    ahead, behind = u, u
    for axis, h in zip(axes, offset, strict=True):
        ahead = ahead.narrow(axis, h, ahead.shape[axis] - h)
        behind = behind.narrow(axis, 0, behind.shape[axis] - h)
    return (ahead - behind).square().mean(dim=axes)
