"""U-Net (Ronneberger, Fischer and Brox 2015): convolutions on ever coarser grids and back, with skips between."""

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from svdno.errors import InputError
from svdno.models.aligned_linear import AlignedLinear
from svdno.models.grid_model import GridModel
from svdno.models.inputs import Samples, check_counts

CONVOLUTIONS: dict[int, type[nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED: dict[int, type[nn.Module]] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORMS: dict[int, type[nn.Module]] = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


class UNet(GridModel):
    """v_l = C(pool v_{l−1}) on the way down, w_l = C(T w_{l+1}, v_l) on the way up, w_L = v_L, u = W w_0.

    C is (3-wide convolution, batch norm, tanh) twice, T a transposed convolution to twice as many points. Reaches as
    far as its convolutions do, in points: train and predict at one resolution. The defaults are PDENNEval's.

    in_channels, out_channels: components of a and u
    dim: space dimensions, 1 to 3
    hidden_channels: channels on the finest grid; each coarser one has twice as many
    n_levels: L, how often the grid is halved
    """

    title = "U-Net"

    def __init__(
        self, in_channels: int, out_channels: int, dim: int, hidden_channels: int = 32, n_levels: int = 4
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        check_counts(arguments, *arguments)
        super().__init__()
        self.arguments: dict[str, Any] = arguments
        sizes = [hidden_channels * 2**level for level in range(n_levels + 1)]
        into = [dim + in_channels, *sizes]
        self.down = nn.ModuleList(_convolve_twice(c, d, dim) for c, d in zip(into, sizes, strict=False))
        self.widen = nn.ModuleList(TRANSPOSED[dim](2 * d, d, kernel_size=2, stride=2) for d in sizes[:-1])
        self.up = nn.ModuleList(_convolve_twice(2 * d, d, dim) for d in sizes[:-1])
        self.project = AlignedLinear(hidden_channels, out_channels)

    def map_grid(self, samples: Samples) -> Float[Tensor, "batch *space out_channels"]:
        """Evaluate u = G(a)."""
        z = samples.as_grid(samples.z)
        v = self._extend(z.movedim(-1, 1))
        self._check_statistics(v)
        skips = []
        for block in self.down[:-1]:
            skips.append(block(v))
            v = _pool(skips[-1])
        v = self.down[-1](v)
        for widen, block, skip in reversed(list(zip(self.widen, self.up, skips, strict=True))):
            v = block(torch.cat([widen(v), skip], dim=1))
        inside = (slice(None), *(slice(n) for n in z.shape[1:-1]))
        u: Tensor = self.project(v.movedim(1, -1)[inside])
        return u

    def _extend(self, v: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *extended"]:
        """Repeat the last values of each axis up to a number of points that can be halved n_levels times."""
        missing = [-n % 2 ** self.arguments["n_levels"] for n in v.shape[2:]]
        if not any(missing):
            return v
        return F.pad(v, [size for end in reversed(missing) for size in (0, end)], mode="replicate")

    def _check_statistics(self, v: Float[Tensor, "batch channels *extended"]) -> None:
        coarsest = [n // 2 ** self.arguments["n_levels"] for n in v.shape[2:]]
        if self.training and len(v) * prod(coarsest) == 1:
            raise InputError(
                f"batch norm needs more than one value per channel to train with, got a batch of 1 whose "
                f"{' × '.join(map(str, v.shape[2:]))} points end as a single one. "
                "Use larger batches, a finer grid or fewer n_levels."
            )


def _convolve_twice(in_channels: int, out_channels: int, dim: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (in_channels, out_channels):
        # Without bias: the norm takes out the mean of each channel.
        convolution = CONVOLUTIONS[dim](channels, out_channels, kernel_size=3, padding=1, bias=False)
        layers += [convolution, NORMS[dim](out_channels), nn.Tanh()]
    return nn.Sequential(*layers)


def _pool(v: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *half"]:
    """The largest of each two points along every axis."""
    # Not torch's own pooling: its gradient in 3-D differs from run to run on a GPU.
    for axis in range(2, v.ndim):
        v = v.unflatten(axis, (-1, 2)).amax(dim=axis + 1)
    return v
