"""A weighted sum of the values around each point of a uniform grid, which means the same at every resolution."""

from math import ceil, prod, sqrt

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from svdno.models.input_linear import split_digits

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class LocalStencil(nn.Module):
    """(S a)(x) = Σ_m θ_m a(x + mδ), where δ is the spacing of the trained grid, on whatever grid.

    On the trained grid this is a convolution with the taps θ. On any other a is interpolated linearly between the
    points, so that all grids approximate the same operator, and those that contain the trained one give the same.

    in_channels, out_channels: components of a and of the result
    taps: along each axis, an odd number
    sensors: points along each axis of the grid of spacing δ, or None to take each grid for it
    placement: of the grid, as in `Grid`; a "periodic" one goes on at the other end, others with the value at the edge
    groups: sets of components that do not mix, as many for a and the result
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dim: int,
        taps: int,
        sensors: tuple[int, ...] | None,
        placement: str,
        groups: int = 1,
    ) -> None:
        super().__init__()
        self.sensors, self.placement, self.groups = sensors, placement, groups
        self.shape = (out_channels, in_channels // groups, *[taps] * dim)
        read = prod(self.shape[1:])
        bound = 1 / sqrt(read)
        # As a matrix, which it is to an optimiser.
        self.taps = nn.Parameter(torch.empty(out_channels, read).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_channels).uniform_(-bound, bound))

    def forward(self, a: Float[Tensor, "batch *space in_channels"]) -> Float[Tensor, "batch *space out_channels"]:
        """Apply it at every point of a grid."""
        space = tuple(a.shape[1:-1])
        kernel = self.taps.reshape(self.shape)
        ends = int(self.placement == "nodes")
        for axis, (n, n0) in enumerate(zip(space, self.sensors or space, strict=True)):
            if n != n0:
                kernel = _interpolate(kernel, axis + 2, (n - ends) / (n0 - ends))
        if a.is_cuda and self.groups == 1:  # differences of neighbours need all digits
            a, kernel = split_digits(a), torch.cat([kernel, kernel], dim=1)
        padding = [side for size in reversed(kernel.shape[2:]) for side in (size // 2, size // 2)]
        padded = F.pad(a.movedim(-1, 1), padding, mode="circular" if self.placement == "periodic" else "replicate")
        return CONVOLUTIONS[len(space)](padded, kernel, self.bias, groups=self.groups).movedim(1, -1)


def _interpolate(kernel: Tensor, axis: int, ratio: float) -> Tensor:
    """Taps along one axis for a grid that is `ratio` times as fine: each shared by the points around its place."""
    half = kernel.shape[axis] // 2
    reach = ceil(half * ratio - 1e-9)
    points = torch.arange(-reach, reach + 1, dtype=kernel.dtype, device=kernel.device)
    places = ratio * torch.arange(-half, half + 1, dtype=kernel.dtype, device=kernel.device)
    hats = (1 - (places.unsqueeze(-1) - points).abs()).clamp(min=0)
    return (kernel.movedim(axis, -1) @ hats).movedim(-1, axis)
