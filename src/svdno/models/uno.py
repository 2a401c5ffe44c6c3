"""U-NO, the U-shaped neural operator (Rahman, Ross and Azizzadenesheli 2023): Fourier layers that change the grid."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from svdno.errors import InputError
from svdno.models.aligned_linear import AlignedLinear
from svdno.models.fno import SpectralConvolution
from svdno.models.grid_model import GridModel
from svdno.models.input_linear import InputLinear
from svdno.models.inputs import Samples, check_counts
from svdno.models.linear_output import LinearOutput

# After the lift and after each block: n / f points along each axis, f × d channels.
FACTORS = (1, 2, 4, 4, 2, 1)

# PDENNEval's width d and modes of the five blocks; in 3-D those of 1-D.
WIDTHS = {1: 20, 2: 30, 3: 20}
MODES = {1: (11, 5, 5, 5, 11), 2: (17, 7, 7, 7, 17), 3: (11, 5, 5, 5, 11)}


class FourierBlock(nn.Module):
    """γ(N(F⁻¹(R · F v) + P W v)): one Fourier layer from any grid to any other.

    The spectrum is padded or cut to the new grid, P interpolates linearly, N is the instance norm or nothing.
    """

    def __init__(self, in_channels: int, out_channels: int, modes: int, dim: int, normalize: bool) -> None:
        super().__init__()
        self.spectral = SpectralConvolution(in_channels, modes, dim, out_channels)
        # The norm takes out the mean of each channel, and with it a bias.
        self.pointwise = nn.Linear(in_channels, out_channels, bias=not normalize)
        # With one group per channel this is the instance norm, in any number of dimensions.
        self.norm = nn.GroupNorm(out_channels, out_channels) if normalize else nn.Identity()

    def forward(
        self, v: Float[Tensor, "batch *space in_channels"], space: tuple[int, ...]
    ) -> Float[Tensor, "batch *new_space out_channels"]:
        """Evaluate the layer on a grid of shape `space`."""
        v = self.spectral(v, space) + interpolate(self.pointwise(v), space)
        return F.gelu(self.norm(v.movedim(-1, 1)).movedim(1, -1))


def interpolate(
    v: Float[Tensor, "batch *space channels"], space: tuple[int, ...]
) -> Float[Tensor, "batch *new_space channels"]:
    """P v: tents around the points of the new grid, one axis after the other; periodic, as the spectrum is."""
    for axis, m in enumerate(space, start=1):
        before, n, after = v.shape[:axis], v.shape[axis], v.shape[axis + 1 :]
        if m != n:
            # A product with a matrix, since the gradient of torch's own interpolation differs from run to run on a GPU.
            rows = _weigh_neighbours(n, m, v) @ v.reshape(prod(before), n, prod(after))
            v = rows.reshape(*before, m, *after)
    return v


def _weigh_neighbours(n: int, m: int, like: Tensor) -> Float[Tensor, "m n"]:
    """p_ij ∝ max(0, 1 − |i n/m − j| / max(1, n/m)), rows that sum to 1; wide enough that a coarser grid averages."""
    exact = torch.promote_types(like.dtype, torch.float32)  # bfloat16 cannot count beyond 256
    i, j = (torch.arange(k, device=like.device, dtype=exact) for k in (m, n))
    distance = (i.unsqueeze(1) * (n / m) - j).abs()
    tents = (1 - torch.minimum(distance, n - distance) / max(1.0, n / m)).clamp(min=0)
    return (tents / tents.sum(dim=1, keepdim=True)).to(like.dtype)


class UNO(LinearOutput, GridModel):
    """U-shaped neural operator: grids of n → n/2 → n/4 → n/4 → n/2 → n points, with skips between equal grids.

    in_channels, out_channels: components of a and u
    dim: space dimensions, 1 to 3
    hidden_channels: width d at full resolution; default: PDENNEval's, 20 in 1-D and 30 in 2-D
    n_modes: modes kept along each axis by each of the five blocks; default: PDENNEval's
    padding: zeros appended to each axis, as a fraction of its points, for fields that are not periodic
    """

    title = "U-NO"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dim: int,
        hidden_channels: int | None = None,
        n_modes: Sequence[int] | None = None,
        padding: float = 0.0,
    ) -> None:
        check_counts({"dim": dim})
        d = WIDTHS[dim] if hidden_channels is None else hidden_channels
        modes = list(MODES[dim] if n_modes is None else n_modes)
        arguments = {"in_channels": in_channels, "out_channels": out_channels, "dim": dim, "hidden_channels": d}
        check_counts(arguments, *arguments)
        check_settings(modes, padding)
        super().__init__()
        self.arguments: dict[str, Any] = {**arguments, "n_modes": modes, "padding": padding}
        self.lift = nn.Sequential(InputLinear(dim + in_channels, d), nn.GELU(), nn.Linear(d, d))
        into = [f * d for f in FACTORS[:-1]]
        into[-1] *= 2  # the skip from the first block
        self.blocks = nn.ModuleList(
            FourierBlock(into[t], FACTORS[t + 1] * d, modes[t], dim, normalize=0 < t < 4) for t in range(5)
        )
        self.project = nn.Sequential(nn.Linear(2 * d, 4 * d), nn.GELU(), AlignedLinear(4 * d, out_channels))

    def map_grid(self, samples: Samples) -> Float[Tensor, "batch *space out_channels"]:
        """Evaluate u = G(a) at any resolution."""
        z = samples.as_grid(samples.z)
        lifted = self._pad(self.lift(z))
        spaces = [tuple(n // f for n in lifted.shape[1:-1]) for f in FACTORS[1:]]
        _check_points(self.arguments["n_modes"], min(lifted.shape[1:-1]))
        v = half = self.blocks[0](lifted, spaces[0])
        for t in (1, 2, 3):
            v = self.blocks[t](v, spaces[t])
        v = self.blocks[4](torch.cat([v, half], dim=-1), spaces[4])
        inside = (slice(None), *(slice(n) for n in z.shape[1:-1]))
        return self.finish(torch.cat([v, lifted], dim=-1)[inside], samples)

    def _pad(self, v: Float[Tensor, "batch *space channels"]) -> Float[Tensor, "batch *padded channels"]:
        ends = [round(self.arguments["padding"] * n) for n in v.shape[1:-1]]
        return F.pad(v, (0, 0, *(size for end in reversed(ends) for size in (0, end))))


def check_settings(modes: list[int], padding: float) -> None:
    """Check the modes of the five blocks and the padding."""
    if len(modes) != 5 or not all(type(m) is int and m >= 1 for m in modes):
        raise InputError(f"`n_modes` must be five whole numbers of at least 1, one per block, got {modes}.")
    if not 0 <= padding < float("inf"):
        raise InputError(f"`padding` must be a fraction of at least 0 of the points of an axis, got {padding}.")


def _check_points(modes: list[int], points: int) -> None:
    """The coarser grid of each block must hold its modes."""
    blocks = zip(modes, FACTORS[:-1], FACTORS[1:], strict=True)
    needed = max(2 * m * max(before, after) for m, before, after in blocks)
    if points < needed:
        raise InputError(
            f"U-NO with n_modes={modes} needs at least {needed} points along each axis, padding included, "
            f"got {points}. Use smaller n_modes or a finer grid."
        )
