"""FNO and UNO of the package neuraloperator (Kossaifi et al. 2024), to compare with: their code, our interface.

They see what our models see, (x, a(x)), in place of coordinates of their own. Whatever is not an argument here is as
the package sets it. Both compute in float32, since their spectral layers do.
"""

from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from svdno.errors import InputError
from svdno.models.grid_model import GridModel
from svdno.models.inputs import Samples, check_counts, check_flags
from svdno.models.uno import FACTORS, MODES, WIDTHS, check_settings


class SpectralWeight(nn.Module):
    """A complex weight as real numbers: optimisers, files and changes of precision know no others."""

    def __init__(self, weight: Complex[Tensor, "*shape"]) -> None:
        super().__init__()
        self.parts = nn.Parameter(torch.view_as_real(weight.detach()).clone())

    def __getitem__(self, index: Any) -> Complex[Tensor, "*part"]:
        """The part of the weight that a layer asks for, as the package's own holder gives it."""
        weight: Tensor = torch.view_as_complex(self.parts)[index]
        return weight


class Peer(GridModel):
    """A model of the package behind the interface of ours."""

    net: nn.Module

    def map_grid(self, samples: Samples) -> Float[Tensor, "batch *space out_channels"]:
        """Evaluate u = G(a) at any resolution."""
        z = samples.as_grid(samples.z)
        with torch.autocast(z.device.type, enabled=False):
            u: Tensor = self.net(z.float().movedim(-1, 1))
        return u.movedim(1, -1)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The weights alone: the package adds the arguments of its constructor, which `arguments` has."""
        state: dict[str, Any] = super().state_dict(*args, **kwargs)
        state.pop("_metadata", None)
        return state


class PeerFNO(Peer):
    """neuraloperator's FNO; width, layers and modes by default as in our FNO.

    in_channels, out_channels: components of a and u
    dim: space dimensions, 1 to 3
    hidden_channels: width
    n_layers: Fourier layers
    n_modes: m, frequencies −m ≤ k < m along each axis (0 ≤ k < m along the last)
    projection_channels: width of the hidden layer in the projection
    padding: zeros on both sides of each axis, as a fraction of its points
    channel_mlps: whether the lift and each layer have the package's MLP over the channels; without them the model is
        our FNO, from another draw of its weights and with GELU twice in a row between layers, as the package has it
    """

    title = "neuraloperator's FNO"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dim: int,
        hidden_channels: int = 20,
        n_layers: int = 4,
        n_modes: int = 12,
        projection_channels: int = 128,
        padding: float = 0.0,
        channel_mlps: bool = True,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        check_counts(arguments, *(name for name in arguments if name not in ("padding", "channel_mlps")))
        check_flags(arguments, "channel_mlps")
        super().__init__()
        self.arguments = arguments
        self.net = _build(
            "FNO",
            n_modes=_count_modes(n_modes, dim),
            in_channels=dim + in_channels,
            out_channels=out_channels,
            hidden_channels=hidden_channels,
            n_layers=n_layers,
            projection_channel_ratio=projection_channels / hidden_channels,
            domain_padding=padding or None,
            **({} if channel_mlps else {"use_channel_mlp": False, "lifting_channel_ratio": 0}),
        )


class PeerUNO(Peer):
    """neuraloperator's UNO with the grids, widths and modes of our U-NO: n → n/2 → n/4 → n/4 → n/2 → n points.

    in_channels, out_channels: components of a and u
    dim: space dimensions, 1 to 3
    hidden_channels: width d at full resolution; default: 20 in 1-D and 30 in 2-D
    n_modes: modes kept along each axis by each of the five blocks; default: those of our U-NO
    padding: zeros on both sides of each axis, as a fraction of its points
    """

    title = "neuraloperator's UNO"

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
        self.arguments = {**arguments, "n_modes": modes, "padding": padding}
        self.net = _build(
            "UNO",
            in_channels=dim + in_channels,
            out_channels=out_channels,
            hidden_channels=d,
            n_layers=5,
            uno_out_channels=[factor * d for factor in FACTORS[1:]],
            uno_n_modes=[_count_modes(m, dim) for m in modes],
            channel_mlp_skip="linear",  # the package's default cannot change the width
            uno_scalings=[[FACTORS[t] / FACTORS[t + 1]] * dim for t in range(5)],
            domain_padding=padding or None,
        )


def _build(name: str, **arguments: Any) -> nn.Module:
    """Make a model of the package, its complex weights as real numbers."""
    try:
        import neuralop.models
        from neuralop.layers.spectral_convolution import SpectralConv
    except ImportError as error:
        raise InputError(
            f"the peers need the package neuraloperator, which cannot be imported ({error}). "
            "Install it: pip install 'svdno[peers]'"
        ) from None
    with redirect_stdout(StringIO()):  # the package prints while it builds a UNO
        net: nn.Module = getattr(neuralop.models, name)(positional_embedding=None, **arguments)
    for layer in net.modules():
        if isinstance(layer, SpectralConv):
            layer.weight = SpectralWeight(layer.weight.to_tensor())
    return net


def _count_modes(m: int, dim: int) -> tuple[int, ...]:
    """The package counts frequencies of both signs, and keeps k // 2 + 1 along the last axis."""
    return (*[2 * m] * (dim - 1), 2 * m - 1)


# Name in a recipe → model.
PEERS: dict[str, type[Peer]] = {"neuralop-fno": PeerFNO, "neuralop-uno": PeerUNO}
