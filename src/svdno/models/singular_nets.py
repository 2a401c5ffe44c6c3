"""Singular functions Φ(z) ∈ R^{d×L}: a small net (the trunk) gives features h(z) ∈ R^H, a linear head makes Φ of them.

Φ(z)[c,l] = Σ_k W[l,c,k] h(z)[k] + b[l,c]. The bias belongs to a constant feature: h̃ = (h, 1), W̃ = (W, b).
Kernels work with h̃ and W̃ and never form Φ.
"""

from collections.abc import Sequence
from math import pi, sqrt

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from svdno.errors import InputError, choose
from svdno.models.aligned_linear import missing
from svdno.models.input_linear import InputLinear, input_linear
from svdno.models.lstm_triton import is_supported, lstm_side_by_side
from svdno.models.moments import expand, gram

SINGULAR_NETS = ("mlp", "lstm", "bilstm")

# How much of a circle a recurrent net reads before it comes to the first point: one point in 16, at least 8 points.
APPROACH, SHORTEST_APPROACH = 16, 8

# Up to so many numbers a GPU spends its time between the products of two nets rather than in them; from there on,
# putting the nets together costs passes over memory.
SMALL = 2**22


class SineMLP(nn.Module):
    """h = sin(A_m … sin(A_1 z + c_1) … + c_m), a neural field evaluated point by point."""

    def __init__(self, in_channels: int, channels: int, layers: int) -> None:
        super().__init__()
        self.features = channels
        linears: list[nn.Linear] = [InputLinear(in_channels, channels)]
        linears += [nn.Linear(channels, channels) for _ in range(layers - 1)]
        for linear in linears:
            # Unit-variance arguments of the sine, at all phases: features of mean square ½ at any depth.
            nn.init.uniform_(linear.weight, -sqrt(6 / linear.in_features), sqrt(6 / linear.in_features))
            nn.init.uniform_(linear.bias, -pi, pi)
        self.linears = nn.ModuleList(linears)

    def forward(self, z: Float[Tensor, "batch n augmented"], extra: int = 0) -> Float[Tensor, "batch n features"]:
        """Evaluate the features at each point; `extra` adds one that is 1 and others that are 0."""
        for linear in self.linears:
            z = torch.sin(linear(z))
        return append_constant(z, extra) if extra else z


class GridLSTM(nn.Module):
    """Features from LSTM layers that run along the points of a one-dimensional grid, in one or both directions.

    periodic: the line is a circle of length 1, and the net enters it with what it has read of the other end
    """

    def __init__(
        self, in_channels: int, channels: int, layers: int, *, bidirectional: bool, periodic: bool = False
    ) -> None:
        super().__init__()
        self.features = channels * (2 if bidirectional else 1)
        self.periodic = periodic
        self.lstm = nn.LSTM(in_channels, channels, layers, batch_first=True, bidirectional=bidirectional)

    def forward(self, z: Float[Tensor, "batch n augmented"], extra: int = 0) -> Float[Tensor, "batch n features"]:
        """Evaluate the features at each point, in the order of the points; `extra` adds a 1 and zeros."""
        h = self.drop_approach(_run(self.lstm, self.add_approach(z)), z.shape[1])
        return append_constant(h, extra) if extra else h

    def add_approach(self, z: Float[Tensor, "batch n augmented"]) -> Float[Tensor, "batch longer augmented"]:
        """The points with those that lie before and after them on the circle, x continued beyond 0 and 1."""
        if not self.periodic:
            return z
        before, after = self._approach(z.shape[1])
        turn = F.pad(z.new_ones(1), (0, z.shape[-1] - 1))
        return torch.cat([z[:, z.shape[1] - before :] - turn, z, z[:, :after] + turn], dim=1)

    def drop_approach(self, h: Float[Tensor, "batch longer features"], n: int) -> Float[Tensor, "batch n features"]:
        """The features of the n points themselves."""
        before, _ = self._approach(n)
        return h[:, before : before + n]

    def _approach(self, n: int) -> tuple[int, int]:
        """Points read before the first, and after the last by a net that also runs backwards."""
        points = min(n, max(n // APPROACH, SHORTEST_APPROACH)) if self.periodic else 0
        return points, points if self.lstm.bidirectional else 0


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _run(lstm: nn.LSTM, z: Tensor) -> Tensor:
    """The net as it is; torch.compile would unroll its steps."""
    h: Tensor = lstm(z)[0]
    return h


def append_constant(h: Float[Tensor, "*nets batch n features"], extra: int) -> Float[Tensor, "*nets batch n more"]:
    """`extra` further features: one that is 1 and others that are 0."""
    constant = F.pad(h.new_ones(1), (0, extra - 1))
    return torch.cat([h, constant.expand(*h.shape[:-1], -1)], dim=-1)


def evaluate_trunks(
    trunks: Sequence[SineMLP | GridLSTM], z: Float[Tensor, "batch n augmented"], extra: int
) -> list[Float[Tensor, "batch n padded"]]:
    """Features of nets of one kind and size, with `extra` ones; on a GPU recurrent nets and small ones side by side."""
    first, lstms = trunks[0], [trunk.lstm for trunk in trunks if isinstance(trunk, GridLSTM)]
    if isinstance(first, GridLSTM) and is_supported(first.lstm, z):
        walked = lstm_side_by_side(lstms, first.add_approach(z))
        return [append_constant(first.drop_approach(h, z.shape[1]), extra) for h in walked]
    sines = [trunk.linears for trunk in trunks if isinstance(trunk, SineMLP)]
    if len(sines) > 1 and z.is_cuda and z.shape[0] * z.shape[1] * first.features <= SMALL:
        return list(append_constant(sines_side_by_side(sines, z), extra))
    return [trunk(z, extra) for trunk in trunks]


def sines_side_by_side(
    nets: Sequence[nn.ModuleList], z: Float[Tensor, "batch n augmented"]
) -> Float[Tensor, "nets batch n features"]:
    """Features of sine MLPs of one size, each layer of all of them as products side by side.

    One product for each sample: the gradient of a matrix that all points share is one long sum, which on a GPU takes
    ten times as long as the sums of the samples and the sum of those.
    """
    layers = list(zip(*nets, strict=True))
    weights, biases = ([[getattr(linear, name) for linear in layer] for layer in layers] for name in ("weight", "bias"))
    y = input_linear(z, torch.cat(weights[0]), torch.cat(biases[0]), z.shape[-1])
    h = torch.sin(y.unflatten(-1, (len(nets), -1)).movedim(-2, 0))
    for W, b in zip(weights[1:], biases[1:], strict=True):
        for_each = torch.stack(W).unsqueeze(1).expand(-1, len(z), -1, -1).flatten(0, 1)
        y = expand(h.flatten(0, 1), for_each).unflatten(0, h.shape[:2])
        h = torch.sin(y + torch.stack(b)[:, None, None].to(y.dtype))
    return h


def build_trunk(
    net: str, *, dim: int, in_channels: int, channels: int, layers: int, periodic: bool = False
) -> SineMLP | GridLSTM:
    """Make the trunk called `net` for augmented coordinates of dim + in_channels numbers."""
    choose("singular_net", net, SINGULAR_NETS)
    if net == "mlp":
        return SineMLP(dim + in_channels, channels, layers)
    if dim != 1:
        raise InputError(
            f"singular_net={net!r} runs along a line of points and needs dim=1, got dim={dim}. Use singular_net='mlp'."
        )
    return GridLSTM(1 + in_channels, channels, layers, bidirectional=net == "bilstm", periodic=periodic)


class SingularFunctions(nn.Module):
    """L vector-valued functions of z, kept as trunk features and a head.

    trunk: net for h(z) ∈ R^H
    rank: number of functions L
    channels: components of each function, d
    dim: how many of the augmented coordinates are x
    """

    def __init__(self, trunk: SineMLP | GridLSTM, rank: int, channels: int, dim: int, in_channels: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = nn.Parameter(torch.zeros(rank, channels, trunk.features + 1))
        self._initialise(dim, in_channels)

    def features(self, z: Float[Tensor, "batch n augmented"]) -> Float[Tensor, "batch n padded"]:
        """h̃ = (h, 1, 0 … 0), as many zeros as the alignment wants."""
        return evaluate_trunks([self.trunk], z, self.padded - self.trunk.features)[0]

    def padded_head(self) -> Float[Tensor, "rank columns"]:
        """W̃ for the padded features, one row of d × padded numbers for each function."""
        return F.pad(self.head, (0, self.padded - self.head.shape[-1])).flatten(1)

    def as_constant(self, bias: Float[Tensor, " channels"]) -> Float[Tensor, "channels padded"]:
        """Coefficients of the padded features that give this vector at every point."""
        before = self.trunk.features
        return F.pad(bias.unsqueeze(-1), (before, self.padded - before - 1))

    @property
    def padded(self) -> int:
        """Features with the constant one and the zeros."""
        return self.head.shape[-1] + missing(self.head.shape[-1])

    @torch.no_grad()
    def _initialise(self, dim: int, in_channels: int) -> None:
        """Draw heads whose functions are orthonormal on reference fields, so that L_ortho starts small."""
        x = torch.rand(8, 256, dim).sort(dim=1).values if dim == 1 else torch.rand(8, 256, dim)
        waves = x @ torch.randint(-4, 5, (8, dim, in_channels)).to(x.dtype) + torch.rand(8, 1, in_channels)
        h = self.features(torch.cat([x, sqrt(2) * torch.sin(2 * pi * waves)], dim=-1))
        nn.init.normal_(self.head[..., :-1])
        G = gram(self.head, h, h.new_full((1, h.shape[1]), 1 / h.shape[1])).mean(dim=0)
        factor = torch.linalg.cholesky(G.double())
        orthonormal = torch.linalg.solve_triangular(factor, self.head.flatten(1).double(), upper=False)
        self.head.copy_(orthonormal.view_as(self.head))
