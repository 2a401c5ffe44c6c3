"""FNO, the Fourier neural operator (Li et al. 2021): layers v ← γ(W v + F⁻¹(R · F v)) on a uniform grid."""

from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Complex, Float
from torch import Tensor, nn

from svdno.errors import InputError
from svdno.models.aligned_linear import AlignedLinear
from svdno.models.grid_model import GridModel
from svdno.models.input_linear import InputLinear
from svdno.models.inputs import Samples, check_counts
from svdno.models.linear_output import LinearOutput


class SpectralConvolution(nn.Module):
    """F⁻¹(R · F v): a periodic convolution whose kernel has only the lowest Fourier modes.

    channels: d
    modes: m, frequencies −m < k < m along each axis (0 ≤ k < m along the last)
    dim: space dimensions
    out_channels: default: d
    """

    def __init__(self, channels: int, modes: int, dim: int, out_channels: int | None = None) -> None:
        super().__init__()
        out_channels = out_channels or channels
        self.modes = modes
        self.dim = dim
        # Real and imaginary parts on the last axis: optimisers, autocast and files know only real numbers.
        # One block of modes per sign pattern of the frequencies: 2^{dim−1} corners of the spectrum.
        shape = (2 ** (dim - 1), *[modes] * dim, channels, out_channels, 2)
        self.weight = nn.Parameter(torch.rand(shape) / (channels * out_channels))

    def forward(
        self, v: Float[Tensor, "batch *space channels"], space: tuple[int, ...] | None = None
    ) -> Float[Tensor, "batch *new_space out_channels"]:
        """Convolve along all space axes.

        space: shape of the grid of the result, by default that of v; no axis of either has fewer than 2m points
        """
        space = space or tuple(v.shape[1:-1])
        axes = tuple(range(1, 1 + self.dim))
        with torch.autocast(v.device.type, enabled=False):
            # norm="forward": amplitudes of waves, which are the same numbers on grids of all sizes.
            spectrum = torch.fft.rfftn(v.to(self.weight.dtype), dim=axes, norm="forward")
            weight = torch.view_as_complex(self.weight)
            product_ = spectrum.new_zeros(len(v), *space[:-1], space[-1] // 2 + 1, weight.shape[-1])
            for corner, block in zip(self._corners(), weight, strict=True):
                product_[corner] = _mix_channels(spectrum[corner], block)
            return torch.fft.irfftn(product_, s=space, dim=axes, norm="forward")

    def _corners(self) -> list[tuple[slice, ...]]:
        low, high = slice(0, self.modes), slice(-self.modes, None)
        return [(slice(None), *signs, low) for signs in product((low, high), repeat=self.dim - 1)]


def _mix_channels(
    spectrum: Complex[Tensor, "batch *modes channels"], block: Complex[Tensor, "*modes channels out_channels"]
) -> Complex[Tensor, "batch *modes out_channels"]:
    """One matrix of channels per mode: Σ_c v̂[b,k,c] R[k,c,c′]."""
    return torch.einsum("b...c,...cd->b...d", spectrum, block)


class FNO(LinearOutput, GridModel):
    """Fourier neural operator; the defaults are PDENNEval's.

    in_channels, out_channels: components of a and u
    dim: space dimensions, 1 to 3
    hidden_channels: width
    n_layers: Fourier layers
    n_modes: modes kept along each axis
    projection_channels: width of the hidden layer in the projection
    """

    title = "FNO"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dim: int,
        hidden_channels: int = 20,
        n_layers: int = 4,
        n_modes: int = 12,
        projection_channels: int = 128,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        check_counts(arguments, *arguments)
        super().__init__()
        self.arguments: dict[str, Any] = arguments
        self.lift = InputLinear(dim + in_channels, hidden_channels)
        self.spectral = nn.ModuleList(SpectralConvolution(hidden_channels, n_modes, dim) for _ in range(n_layers))
        self.pointwise = nn.ModuleList(nn.Linear(hidden_channels, hidden_channels) for _ in range(n_layers))
        self.project = nn.Sequential(
            nn.Linear(hidden_channels, projection_channels),
            nn.GELU(),
            AlignedLinear(projection_channels, out_channels),
        )

    def map_grid(self, samples: Samples) -> Float[Tensor, "batch *space out_channels"]:
        """Evaluate u = G(a) at any resolution."""
        z = samples.as_grid(samples.z)
        _check_modes(self.arguments["n_modes"], min(z.shape[1:-1]))
        v = self.lift(z)
        for t, (spectral, linear) in enumerate(zip(self.spectral, self.pointwise, strict=True)):
            v = spectral(v) + linear(v)
            if t + 1 < len(self.spectral):
                v = F.gelu(v)
        return self.finish(v, samples)


def _check_modes(modes: int, points: int) -> None:
    if 2 * modes > points:
        raise InputError(
            f"`n_modes` must not exceed half the grid, got n_modes={modes} for {points} points. "
            f"Use n_modes <= {points // 2} or a finer grid."
        )
