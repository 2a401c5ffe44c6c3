"""SVD-NO: lift, layers v ← γ(W v + K v) with an SVD kernel, project (AAAI 2026)."""

from copy import deepcopy
from math import e, log
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from svdno.errors import InputError, choose
from svdno.grid import PLACEMENTS
from svdno.models.aligned_linear import AlignedLinear
from svdno.models.dense_kernel import DenseKernel
from svdno.models.input_linear import InputLinear
from svdno.models.inputs import Samples, check_counts, read_samples
from svdno.models.linear_output import LinearOutput
from svdno.models.singular_nets import SingularFunctions, build_trunk
from svdno.models.svd_kernel import KernelSVD, SVDKernel


class SVDNO(LinearOutput):
    """Neural operator a ↦ u whose integral kernels are κ(z,z′) = Φ(z) Σ Ψ(z′)ᵀ with z = (x, a(x)).

    v⁰ = P(z);  v^{t+1} = γ(W^t v^t + Φ(z) Σ^t ∫ Ψ(z′)ᵀ v^t(z′) dx′), t = 0 … T−1;  u = Q(v^T)       (Eqs. 1–7)

    in_channels: components of a
    out_channels: components of u; all output times are channels
    dim: space dimensions, 1 to 3
    hidden_channels: width d of the latent fields
    n_layers: T
    rank: L, number of singular triplets; any rank costs nearly the same
    singular_net: "mlp" (sine MLP), "lstm" or "bilstm" (one-dimensional grids only)
    singular_layers, singular_channels: depth and width H of the singular nets
    kernel: "svd"; ablations "mercer" (Ψ = Φ, λ ≥ 0) and "dense" (κ̃ = MLP(z,z′), no rank)
    orthogonality: "penalty" (L_ortho joins the loss), "exact" (orthonormal on every input), "none"
    bases: "global" (Φ and Ψ shared by the layers, as in the paper) or "per-layer"
    placement: of the grid; on a "periodic" one a recurrent singular net starts with what lies at the other end
    truncation: keep only this many leading triplets on each input; set by `truncated`
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dim: int,
        hidden_channels: int = 128,
        n_layers: int = 4,
        rank: int = 8,
        singular_net: str = "mlp",
        singular_layers: int = 3,
        singular_channels: int = 64,
        kernel: str = "svd",
        orthogonality: str = "penalty",
        bases: str = "global",
        placement: str = "nodes",
        truncation: int | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        _check_arguments(arguments)
        super().__init__()
        self.arguments: dict[str, Any] = arguments
        z_channels = dim + in_channels
        self.lift = nn.Sequential(
            InputLinear(z_channels, hidden_channels), nn.GELU(), nn.Linear(hidden_channels, hidden_channels)
        )
        self.kernels = nn.ModuleList(self._build_kernel() for _ in range(n_layers if bases == "per-layer" else 1))
        self.pointwise = nn.ModuleList(nn.Linear(hidden_channels, hidden_channels) for _ in range(n_layers))
        if kernel != "dense":
            start = 1.0 if kernel == "svd" else log(e - 1)  # softplus(log(e − 1)) = 1
            self.sigma = nn.Parameter(torch.full((n_layers, rank), start))
        self.project = nn.Sequential(
            nn.Linear(hidden_channels, hidden_channels), nn.GELU(), AlignedLinear(hidden_channels, out_channels)
        )

    def forward(
        self,
        a: Float[Tensor, "batch *space in_channels"],
        points: Float[Tensor, "..."] | None = None,
        weights: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch *space out_channels"]:
        """Evaluate u = G(a).

        a: (batch, *space, channels) on a grid, (batch, n, channels) on a point cloud; any resolution
        points: coordinates, with or without a batch axis; default: the uniform grid on [0,1]^dim
        weights: quadrature weights, with or without a batch axis
        """
        return self._evaluate(self._read(a, points, weights), with_penalty=False)[0]

    def forward_with_penalty(
        self, a: Tensor, points: Tensor | None = None, weights: Tensor | None = None
    ) -> tuple[Tensor, Float[Tensor, ""]]:
        """Evaluate u and, from the same pass, the penalty that training adds: L_ortho, or 0 where there is none."""
        penalised = self.arguments["orthogonality"] == "penalty" and self.arguments["kernel"] != "dense"
        return self._evaluate(self._read(a, points, weights), with_penalty=penalised)

    def orthogonality(
        self, a: Tensor, points: Tensor | None = None, weights: Tensor | None = None
    ) -> Float[Tensor, ""]:
        """L_ortho = ‖G_Φ − I‖²_F + ‖G_Ψ − I‖²_F on these inputs, whatever the training does about it (Eq. 12)."""
        samples = self._read(a, points, weights)
        kernels = self._svd_kernels("orthogonality")
        return _mean([k.orthogonality(k.prepare(samples.z, samples.w, with_grams=True)) for k in kernels])

    def svd(self, a: Tensor, points: Tensor | None = None, weights: Tensor | None = None) -> list[KernelSVD]:
        """The true SVD of each layer's kernel on these inputs, in float64.

        Singular values (batch, L), sorted; left and right singular functions (batch, *space, d, L), orthonormal
        under the quadrature weights of the points. A table, if there is one, comes last.
        """
        samples = self._read(a, points, weights)
        kernels = self._svd_kernels("svd")
        parts = [kernels[t % len(kernels)].svd(samples.z, samples.w, sigma) for t, sigma in enumerate(self._sigma())]
        return [part.on_grid(samples.space) for part in parts + self.table_svd(samples)]

    def truncated(self, rank: int) -> "SVDNO":
        """A copy that keeps the `rank` leading singular triplets of each layer's kernel, chosen on each input."""
        self._svd_kernels("truncated")
        if not 1 <= rank <= self.arguments["rank"]:
            raise InputError(f"`rank` must be between 1 and the model's rank {self.arguments['rank']}, got {rank}.")
        model = deepcopy(self)
        model.arguments["truncation"] = rank
        for kernel in model._svd_kernels("truncated"):
            kernel.truncation = rank
        return model

    def _sigma(self) -> list[Tensor]:
        """Σ of each layer; λ ≥ 0 in Mercer's kernel."""
        return list(F.softplus(self.sigma) if self.arguments["kernel"] == "mercer" else self.sigma)

    def _read(self, a: Tensor, points: Tensor | None, weights: Tensor | None) -> Samples:
        dim, in_channels = self.arguments["dim"], self.arguments["in_channels"]
        dtype = next(self.parameters()).dtype
        return read_samples(a, points, weights, dim=dim, in_channels=in_channels, dtype=dtype)

    def _evaluate(self, samples: Samples, *, with_penalty: bool) -> tuple[Tensor, Tensor]:
        z, w = samples.z, samples.w
        kernels: list[Any] = list(self.kernels)
        pointwise: list[Any] = list(self.pointwise)
        bases = [kernel.prepare(z, w, with_grams=with_penalty) for kernel in kernels]
        v = self.lift(z)
        sigma = [None] * len(pointwise) if self.arguments["kernel"] == "dense" else self._sigma()
        for t, linear in enumerate(pointwise):
            i = t % len(kernels)
            v = F.gelu(F.linear(v, linear.weight) + kernels[i](v, bases[i], sigma[t], linear.bias))
        u = samples.as_grid(self.finish(v, samples))
        if not with_penalty:
            return u, z.new_zeros(())
        return u, _mean([kernel.orthogonality(b) for kernel, b in zip(kernels, bases, strict=True)])

    def _build_kernel(self) -> SVDKernel | DenseKernel:
        s = self.arguments
        d, layers, features = s["hidden_channels"], s["singular_layers"], s["singular_channels"]
        if s["kernel"] == "dense":
            return DenseKernel(s["dim"] + s["in_channels"], d, layers=layers, features=features)

        def functions() -> SingularFunctions:
            trunk = build_trunk(
                s["singular_net"],
                dim=s["dim"],
                in_channels=s["in_channels"],
                channels=features,
                layers=layers,
                periodic=s["placement"] == "periodic",
            )
            return SingularFunctions(trunk, s["rank"], d, s["dim"], s["in_channels"])

        return SVDKernel(
            functions(),
            None if s["kernel"] == "mercer" else functions(),
            exact=s["orthogonality"] == "exact",
            truncation=s["truncation"],
        )

    def _svd_kernels(self, method: str) -> list[SVDKernel]:
        kernels = [kernel for kernel in self.kernels if isinstance(kernel, SVDKernel)]
        if not kernels:
            raise InputError(f"`{method}` needs singular functions, and kernel='dense' has none. Use kernel='svd'.")
        return kernels


def _mean(values: list[Tensor]) -> Tensor:
    return torch.stack(values).mean()


def _check_arguments(arguments: dict[str, Any]) -> None:
    choose("kernel", arguments["kernel"], ("svd", "mercer", "dense"))
    choose("orthogonality", arguments["orthogonality"], ("penalty", "exact", "none"))
    choose("bases", arguments["bases"], ("global", "per-layer"))
    choose("placement", arguments["placement"], PLACEMENTS)
    sizes = (
        "in_channels",
        "out_channels",
        "hidden_channels",
        "n_layers",
        "rank",
        "singular_layers",
        "singular_channels",
    )
    check_counts(arguments, *sizes)
    most = arguments["hidden_channels"] * arguments["singular_channels"]
    if arguments["rank"] > most:
        raise InputError(
            f"`rank` must not exceed hidden_channels × singular_channels = {most}, the number of independent "
            f"singular functions, got {arguments['rank']}. Use a smaller rank or wider singular nets."
        )
    if arguments["truncation"] is not None and not 1 <= arguments["truncation"] <= arguments["rank"]:
        raise InputError(f"`truncation` must be between 1 and rank={arguments['rank']}, got {arguments['truncation']}.")
