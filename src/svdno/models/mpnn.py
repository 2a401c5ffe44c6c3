"""MPNN, the message-passing PDE solver (Brandstetter et al. 2022), on the graph of a uniform grid."""

from itertools import product
from math import prod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from svdno.errors import InputError
from svdno.models.grid_model import GridModel
from svdno.models.input_linear import InputLinear
from svdno.models.inputs import Samples, check_counts, count_fields

# The decoder is the paper's for bundles of 20 to 50 times: 8 channels, and a second kernel about this wide.
DECODER_CHANNELS, DECODER_KERNEL = 8, 10


class MPNN(GridModel):
    """Message-passing neural PDE solver; the defaults are PDENNEval's.

    f⁰ = ε(x, a);  fˡ by messages between neighbours, see `MessageLayer`;  u(t_k) = S a + t_k d_k(f), t_k = k/times

    A small convolution along the components of f gives the increments d of all times (temporal bundling). They are
    added to an affine map S of the input, which stands for the paper's u⁰ where a and u have other units or fields.
    Memory is batch × edges × d numbers, three times per layer; `accumulate` of the training divides the batch.

    in_channels: components of a
    out_channels: times × fields, the fields of one time side by side
    dim: space dimensions, 1 to 3
    times: number of output times
    hidden_channels: d, components of f; at least the output times
    n_layers: layers of messages
    neighbors: points each side, along every axis and the diagonals; None means 3 in one dimension, else 1
    """

    title = "MPNN"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dim: int,
        times: int = 1,
        hidden_channels: int = 128,
        n_layers: int = 6,
        neighbors: int | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        arguments["neighbors"] = (3 if dim == 1 else 1) if neighbors is None else neighbors
        check_counts(arguments, *arguments)
        layer = _load_layer()
        super().__init__()
        self.arguments: dict[str, Any] = arguments
        fields, z_channels = count_fields(out_channels, times), dim + in_channels
        self.embed = nn.Sequential(
            InputLinear(z_channels, hidden_channels), nn.SiLU(), nn.Linear(hidden_channels, hidden_channels), nn.SiLU()
        )
        self.layers = nn.ModuleList(layer(hidden_channels, z_channels) for _ in range(n_layers))
        self.decode = _build_decoder(hidden_channels, times, fields)
        self.start = InputLinear(in_channels, fields)

    def map_grid(self, samples: Samples) -> Float[Tensor, "batch *space out_channels"]:
        """Evaluate u = G(a) at any resolution."""
        z, a = samples.z, samples.as_grid(samples.a)
        edges = connect(samples.space, self.arguments["neighbors"], z.device)
        f = self.embed(z)
        for layer in self.layers:
            f = layer(f, z, edges)
        increments = self.decode(f.flatten(0, 1).unsqueeze(1)).mT.reshape(*a.shape[:-1], self.arguments["times"], -1)
        u = self.start(a).unsqueeze(-2) + self._count_times(a) * increments
        return u.flatten(-2)

    def _count_times(self, like: Tensor) -> Float[Tensor, "times 1"]:
        """t_k = k/times for k = 1 … times: none is 0, where an increment would not count."""
        times = self.arguments["times"]
        return torch.arange(1, times + 1, dtype=like.dtype, device=like.device).unsqueeze(-1) / times


def connect(space: tuple[int, ...], neighbors: int, device: torch.device) -> Int[Tensor, "2 edges"]:
    """Rows j and i of the edges j → i between points of a grid at most `neighbors` steps apart along each axis."""
    # From the device's own arange: a recorded step must not wait for the host.
    numbers = torch.arange(prod(space), device=device).reshape(space)
    edges = []
    for offset in product(range(-neighbors, neighbors + 1), repeat=len(space)):
        if any(offset):
            edges.append(torch.stack([_shift(numbers, offset), _shift(numbers, [-o for o in offset])]))
    return torch.cat(edges, dim=1)


def _shift(numbers: Tensor, offset: Any) -> Tensor:
    """The points i + offset, for all i of the grid where that is in the grid."""
    inside = [slice(max(0, o), max(0, n + min(0, o))) for o, n in zip(offset, numbers.shape, strict=True)]
    return numbers[tuple(inside)].flatten()


def _build_decoder(hidden_channels: int, times: int, fields: int) -> nn.Sequential:
    """Two convolutions that turn d numbers into `times` numbers per field, strided where there are far fewer times.

    The first goes from d to times + k₂ − 1 with kernel k₁ and stride s, the second with k₂ to times.
    """
    if times > hidden_channels:
        raise InputError(
            f"`hidden_channels` must be at least the {times} output times, got {hidden_channels}. "
            "Use a wider model or fewer times."
        )
    second = min(DECODER_KERNEL, hidden_channels - times + 1)
    stride = max(1, hidden_channels // (times + second))
    first = hidden_channels - stride * (times + second - 2)
    return nn.Sequential(
        nn.Conv1d(1, DECODER_CHANNELS, first, stride=stride), nn.SiLU(), nn.Conv1d(DECODER_CHANNELS, fields, second)
    )


def _load_layer() -> type[nn.Module]:
    try:
        from svdno.models.message_passing import MessageLayer
    except ImportError as error:
        raise InputError(
            f"MPNN needs the package torch_geometric, which cannot be imported ({error}). "
            "Install it: pip install 'svdno[baselines]'"
        ) from None
    return MessageLayer
