"""SVD-NO+: residual blocks around a block SVD kernel with latent-conditioned bases."""

from copy import deepcopy
from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from svdno.errors import InputError, choose
from svdno.grid import PLACEMENTS
from svdno.models.aligned_linear import AlignedLinear, missing
from svdno.models.block_kernel import BlockBases, BlockBasis, BlockKernel, Positions
from svdno.models.input_linear import InputLinear
from svdno.models.inputs import Samples, check_counts, check_flags, read_samples
from svdno.models.linear_output import LinearOutput
from svdno.models.local_stencil import LocalStencil
from svdno.models.output_features import OutputFeatures
from svdno.models.svd_kernel import KernelSVD
from svdno.models.waves import Waves

# Largest order of waves by dimension: 17, 61 and 63 of them.
FREQUENCIES = {1: 8, 2: 5, 3: 3}

# The branches of a block start at this share of their usual size, so that a deep model begins near P and Q alone.
BRANCH = 0.2


class Block(nn.Module):
    """v ← v + γ(W v + b + K v), then v ← v + MLP(v); K is a block SVD kernel.

    channels: d
    basis: of the singular functions
    features: H, pairs of them
    feed_forward: width of the MLP over d, 0 for none
    """

    def __init__(self, channels: int, basis: BlockBasis, features: int, feed_forward: int) -> None:
        super().__init__()
        self.basis = basis
        self.kernel = BlockKernel(channels, features)
        self.pointwise = nn.Linear(channels, channels)
        self.feed_forward = (
            nn.Sequential(
                nn.Linear(channels, feed_forward * channels),
                nn.GELU(),
                nn.Linear(feed_forward * channels, channels),
            )
            if feed_forward
            else None
        )
        self._shrink()

    @torch.no_grad()
    def _shrink(self) -> None:
        """Start the branches small."""
        self.kernel.blocks.mul_(BRANCH)
        self.pointwise.weight.mul_(BRANCH)
        if self.feed_forward is not None:
            self.feed_forward[-1].weight.mul_(BRANCH)  # type: ignore[operator]

    def forward(
        self, v: Float[Tensor, "batch n d"], positions: Positions
    ) -> tuple[Float[Tensor, "batch n d"], BlockBases]:
        """The next latent field, and the bases it came from."""
        bases = self.basis(v, positions)
        own = torch.cat([self.pointwise.weight, self.pointwise.bias.unsqueeze(-1)], dim=-1)
        v = v + F.gelu(bases.expand(self.kernel(bases) + F.pad(own, (0, positions.x.shape[-1] - 1))))
        return (v if self.feed_forward is None else v + self.feed_forward(v)), bases


class SVDNOPlus(LinearOutput):
    """Neural operator a ↦ u with kernels κ_t(z,z′) = Σ_k φ_k(z) R_k^t ψ_k(z′) of learned functions.

    v⁰ = P(γ(x), a, stem(a));  T blocks, see `Block`;  u = S a + Q(v^T) + K v^T with one more kernel K

    in_channels, out_channels: components of a and u; all output times are channels
    dim: space dimensions, 1 to 3
    hidden_channels: d
    n_layers: T
    singular_channels: H, pairs of singular functions; the kernel has rank H·d
    frequencies: largest order of the waves of x that the lift and the singular functions see, see `Waves`; by default 8
        in 1-D, 5 in 2-D and 3 in 3-D
    positional: of the H functions, those of x alone; by default half of them, or as many as there are waves
    output_kernel: whether the output has a kernel
    stem_taps: along each axis, of the two stencils over a that the lift sees; 0 for none, as clouds need it
    stem_channels: of those; by default d
    feed_forward: width of the MLP in a block over d, 0 for none
    orthogonality: of the functions while the model is trained: "exact" (orthonormal on every input, up to a ridge),
        "penalty" (L_ortho joins the loss) or "none"; `svd` finds the orthonormal ones of any kernel
    placement: of the grid; "periodic" ones are treated as circles
    sensors: points of the trained grid along each axis, whose spacing is that of the stem's taps
    truncation: keep only this many leading triplets on each input; set by `truncated`
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dim: int,
        hidden_channels: int = 64,
        n_layers: int = 4,
        singular_channels: int = 32,
        frequencies: int | None = None,
        positional: int | None = None,
        output_kernel: bool = True,
        stem_taps: int = 5,
        stem_channels: int | None = None,
        feed_forward: int = 2,
        orthogonality: str = "none",
        placement: str = "nodes",
        sensors: tuple[int, ...] | list[int] | None = None,
        truncation: int | None = None,
    ) -> None:
        frequencies = FREQUENCIES.get(dim, 0) if frequencies is None else frequencies
        stem_channels = hidden_channels if stem_channels is None else stem_channels
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        _check_arguments(arguments)
        super().__init__()
        self.arguments: dict[str, Any] = arguments
        d, H = hidden_channels, singular_channels
        self.stem = self._build_stem() if stem_taps else None
        self.waves = Waves(dim, frequencies, placement == "periodic")
        if self.waves.count + d < H:
            raise InputError(
                f"`singular_channels` must be at most {self.waves.count + d}, the {self.waves.count} waves and "
                f"{d} channels that the functions are made of, got {H}."
            )
        if positional is not None and positional > min(H, self.waves.count):
            raise InputError(
                f"`positional` must be at most {min(H, self.waves.count)}: there are {H} functions and "
                f"{self.waves.count} waves, got {positional}."
            )
        seen = in_channels + (stem_channels if stem_taps else 0)
        self.locate = nn.Linear(self.waves.count, d, bias=False)
        self.read = InputLinear(seen, d, bias=False, data=in_channels)
        bound = 1 / sqrt(self.waves.count + seen)  # as in one layer
        for layer in (self.locate, self.read):
            nn.init.uniform_(layer.weight, -bound, bound)
        self.lift = nn.Sequential(nn.GELU(), nn.Linear(d, d))
        self.blocks = nn.ModuleList(Block(d, self._build_basis(), H, feed_forward) for _ in range(n_layers))
        self.project = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), AlignedLinear(2 * d, out_channels))
        self.output_basis = self._build_basis() if output_kernel else None
        self.output_kernel = BlockKernel(d, H, out_channels) if output_kernel else None
        if self.output_kernel is not None:
            self.output_kernel.blocks.data.div_(sqrt(H))  # a sum of H of them the size of one
        # Drawn at random, each output time would begin with a share of a of its own, and never quite lose it.
        self.skip = InputLinear(in_channels, out_channels)
        nn.init.zeros_(self.skip.weight)
        nn.init.zeros_(self.skip.bias)
        self._truncate(truncation)

    def forward(
        self,
        a: Float[Tensor, "batch *space in_channels"],
        points: Float[Tensor, "..."] | None = None,
        weights: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch *space out_channels"]:
        """Evaluate u = G(a); arguments as in `SVDNO`."""
        return self._evaluate(self._read(a, points, weights))[0]

    def forward_with_penalty(
        self, a: Tensor, points: Tensor | None = None, weights: Tensor | None = None
    ) -> tuple[Tensor, Float[Tensor, ""]]:
        """Evaluate u and, from the same pass, the penalty that training adds: L_ortho, or 0 where there is none."""
        u, bases = self._evaluate(self._read(a, points, weights))
        return u, _orthogonality(bases) if self.arguments["orthogonality"] == "penalty" else u.new_zeros(())

    def output_features(self, a: Tensor, points: Tensor, weights: Tensor) -> tuple[Tensor, OutputFeatures]:
        """u, and all that it is linear in: last hidden layer, 1, a, and the products that the last kernel sees."""
        samples = self._read(a, points, weights)
        with self.watch_last() as seen:
            u, bases = self._evaluate(samples)
        g = torch.cat([seen[0], samples.a], dim=-1)
        if self.output_kernel is None:
            return u, OutputFeatures.of(g)
        return u, OutputFeatures(g, *self.output_kernel.features(bases[-1]))

    @torch.no_grad()
    def change_output(self, change: Float[Tensor, "features out_channels"]) -> None:
        """Add to the weights of `output_features`."""
        hidden, in_channels = self.last.in_features + 1, self.arguments["in_channels"]
        of_hidden, of_input, of_kernel = change.tensor_split([hidden, hidden + in_channels])
        super().change_output(of_hidden)
        self.skip.weight.add_(of_input.mT)
        if self.output_kernel is not None:
            blocks = self.output_kernel.blocks
            blocks.add_(of_kernel.unflatten(0, (len(blocks), -1)).mT)

    def orthogonality(
        self, a: Tensor, points: Tensor | None = None, weights: Tensor | None = None
    ) -> Float[Tensor, ""]:
        """L_ortho = ‖G_φ − I‖²_F + ‖G_ψ − I‖²_F on these inputs, mean over the blocks."""
        return _orthogonality(self._evaluate(self._read(a, points, weights))[1])

    @torch.no_grad()
    def svd(self, a: Tensor, points: Tensor | None = None, weights: Tensor | None = None) -> list[KernelSVD]:
        """The true SVD of each block's kernel and of the last one on these inputs, in float64; see `SVDNO.svd`.

        The rank is H·d, that of the last one H·d or H times the components of u, whichever is less. A table, if there
        is one, comes after it.
        """
        samples = self._read(a, points, weights)
        of_blocks = zip(self._kernels(), self._evaluate(samples)[1], strict=True)
        parts = [kernel.svd(bases) for kernel, bases in of_blocks]
        return [part.on_grid(samples.space) for part in parts + self.table_svd(samples)]

    def truncated(self, rank: int) -> "SVDNOPlus":
        """A copy that keeps the `rank` leading singular triplets of each kernel but a table, chosen on each input."""
        model = deepcopy(self)
        model._truncate(rank)
        model.arguments["truncation"] = rank
        return model

    def _truncate(self, rank: int | None) -> None:
        most = self.arguments["singular_channels"] * self.arguments["hidden_channels"]
        if rank is not None and not 1 <= rank <= most:
            raise InputError(f"`rank` must be between 1 and the model's rank H·d = {most}, got {rank}.")
        for kernel in self._kernels():
            kernel.truncation = None if rank is None else min(rank, kernel.rank)

    def _kernels(self) -> list[BlockKernel]:
        kernels = [block.kernel for block in self.blocks if isinstance(block, Block)]
        return kernels if self.output_kernel is None else [*kernels, self.output_kernel]

    def _build_basis(self) -> BlockBasis:
        s, waves = self.arguments, self.waves.count
        H = s["singular_channels"]
        positional = min(H // 2, waves) if s["positional"] is None else s["positional"]
        return BlockBasis(s["hidden_channels"], waves, H, positional, exact=s["orthogonality"] == "exact")

    def _build_stem(self) -> nn.Sequential:
        """Two stencils; the second keeps components apart, which the lift mixes."""
        s, channels = self.arguments, self.arguments["stem_channels"]
        sensors = None if s["sensors"] is None else tuple(s["sensors"])
        first = LocalStencil(s["in_channels"], channels, s["dim"], s["stem_taps"], sensors, s["placement"])
        second = LocalStencil(channels, channels, s["dim"], s["stem_taps"], sensors, s["placement"], groups=channels)
        return nn.Sequential(first, nn.GELU(), second)

    def _read(self, a: Tensor, points: Tensor | None, weights: Tensor | None) -> Samples:
        dim, in_channels = self.arguments["dim"], self.arguments["in_channels"]
        dtype = next(self.parameters()).dtype
        samples = read_samples(a, points, weights, dim=dim, in_channels=in_channels, dtype=dtype)
        if self.stem is not None and len(samples.space) != dim:
            raise InputError(
                f"the stencils of SVD-NO+ need a uniform grid of {dim} axes, got a cloud of {samples.space[0]} "
                "points. Build the model with stem_taps=0."
            )
        return samples

    def _evaluate(self, samples: Samples) -> tuple[Tensor, list[BlockBases]]:
        x = self.waves(samples.x)
        seen = samples.a
        if self.stem is not None:
            seen = torch.cat([seen, self.stem(samples.as_grid(seen)).flatten(1, -2)], dim=-1)
        v = self.lift(self.read(seen) + self.locate(x))  # waves that all samples share are multiplied once
        positions = Positions.of(F.pad(x, (0, missing(x.shape[-1]))), samples.w)
        bases: list[BlockBases] = []
        for block in self.blocks:
            v, used = block(v, positions)
            bases.append(used)
        u = self.skip(samples.a) + self.finish(v, samples)
        if self.output_basis is not None and self.output_kernel is not None:
            bases.append(self.output_basis(v, positions))
            u = u + _expand_aligned(bases[-1], self.output_kernel(bases[-1]))
        return samples.as_grid(u), bases


def _expand_aligned(bases: BlockBases, A: Float[Tensor, "batch out y"]) -> Float[Tensor, "batch n out"]:
    """A y(z) at every point, on a GPU with zeros appended as in `AlignedLinear`."""
    return bases.expand(F.pad(A, (0, 0, 0, missing(A.shape[1]))) if A.is_cuda else A)[..., : A.shape[1]]


def _orthogonality(bases: list[BlockBases]) -> Tensor:
    penalty = torch.stack([b.orthogonality() for b in bases]).mean()
    return penalty.to(torch.promote_types(bases[0].v.dtype, torch.float32))


def _check_arguments(arguments: dict[str, Any]) -> None:
    choose("orthogonality", arguments["orthogonality"], ("exact", "penalty", "none"))
    choose("placement", arguments["placement"], PLACEMENTS)
    counts = ("in_channels", "out_channels", "hidden_channels", "n_layers", "singular_channels", "stem_channels")
    check_counts(arguments, *counts)
    check_flags(arguments, "output_kernel")
    for name in ("frequencies", "positional", "stem_taps", "feed_forward"):
        left_open = name == "positional" and arguments[name] is None
        if not left_open and (type(arguments[name]) is not int or arguments[name] < 0):
            raise InputError(f"`{name}` must be a whole number of at least 0, got {arguments[name]!r}.")
    if arguments["stem_taps"] and arguments["stem_taps"] % 2 == 0:
        raise InputError(f"`stem_taps` must be odd, or 0 for no stem, got {arguments['stem_taps']}.")
