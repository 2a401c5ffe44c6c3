"""The block SVD kernel κ(z,z′) = Σ_k φ_k(z) R_k ψ_k(z′): scalar functions φ_k, ψ_k and a d×d matrix for each pair.

With orthonormal φ and ψ and R_k = U_k S_k V_kᵀ, the vector functions φ_k U_k[:,c] and ψ_k V_k[:,c] are orthonormal, so
this is an SVD of rank H·d whose spectrum is the union of the S_k. It is applied in factorised form:

    moments        M[c,k] = Σ_j w_j v(z_j)[c] ψ_k(z_j)           one GEMM over the points, O(n H d)
    blocks         A[c,k] = Σ_e R_k[c,e] M[e,k]                  no n
    output         (K v)(z_i)[c] = Σ_k A[c,k] φ_k(z_i)           one GEMM over the points, O(n H d)
"""

from math import sqrt
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from svdno.models.moments import are_equal, expand, integrate, second_moment
from svdno.models.orthonormal import factor, inverse_factor
from svdno.models.split_linear import SplitLinear
from svdno.models.svd_kernel import KernelSVD

# Share of the mean diagonal of a Gram matrix that keeps nearly dependent functions apart from noise.
RIDGE = 1e-3


class BlockBases(NamedTuple):
    """φ and ψ on one batch of inputs, before they are made orthonormal.

    left, right: features p and q
    w: quadrature weights
    grams: ∫ p pᵀ and ∫ q qᵀ
    maps: T_φ and T_ψ with φ = T_φ p and ψ = T_ψ q, or None where φ = p and ψ = q
    """

    left: Float[Tensor, "batch n features"]
    right: Float[Tensor, "batch n features"]
    w: Float[Tensor, "#batch n"]
    grams: Float[Tensor, "2 batch features features"]
    maps: Float[Tensor, "2 batch features features"] | None

    def orthogonality(self) -> Float[Tensor, ""]:
        """L_ortho = ‖G_φ − I‖²_F + ‖G_ψ − I‖²_F of the functions in use, averaged over the batch."""
        G = self.grams if self.maps is None else self.maps @ self.grams @ self.maps.mT
        identity = torch.eye(G.shape[-1], dtype=G.dtype, device=G.device)
        return (G - identity).square().sum(dim=(0, -2, -1)).mean()


class BlockBasis(nn.Module):
    """A net B y + C γ(D y) that reads y = (x, v) at each point and gives H functions φ and H functions ψ.

    located, channels: components of x and of v
    features: H
    exact: make them orthonormal on each input (Cholesky)
    """

    def __init__(self, located: int, channels: int, features: int, *, exact: bool) -> None:
        super().__init__()
        self.exact = exact
        self.read = SplitLinear(located, channels, 4 * features)
        self.mix = nn.Linear(2 * features, 2 * features)

    def forward(
        self,
        x: Float[Tensor, "#batch n located"],
        v: Float[Tensor, "batch n channels"],
        w: Float[Tensor, "#batch n"],
    ) -> BlockBases:
        """Evaluate both on one batch of inputs."""
        linear, hidden = self.read(x, v).chunk(2, dim=-1)
        features = linear + self.mix(nn.functional.gelu(hidden))
        H = features.shape[-1] // 2
        with torch.autocast(v.device.type, enabled=False):
            C = second_moment(features, w)
            grams = torch.stack([C[:, :H, :H], C[:, H:, H:]])
            maps = inverse_factor(grams, RIDGE) if self.exact else None
        return BlockBases(features[..., :H], features[..., H:], w, grams, maps)


class BlockKernel(nn.Module):
    """The matrices R_k, and the kernel they make with a pair of bases.

    channels: d
    features: H
    truncation: keep only this many leading triplets of the SVD on each input
    """

    def __init__(self, channels: int, features: int, truncation: int | None = None) -> None:
        super().__init__()
        self.truncation = truncation
        self.blocks = nn.Parameter(torch.randn(features, channels, channels) / sqrt(channels))

    def forward(self, v: Float[Tensor, "batch n d"], bases: BlockBases) -> Float[Tensor, "batch n d"]:
        """(K v)(z_i) = Σ_k φ_k(z_i) R_k Σ_j w_j ψ_k(z_j) v(z_j) at every point."""
        equal = are_equal(bases.w)  # then one number, which need not pass over the points
        M = integrate(v, bases.right if equal else bases.right * bases.w.unsqueeze(-1).to(bases.right.dtype))
        with torch.autocast(v.device.type, enabled=False):
            if equal:
                M = bases.w[:, :1, None] * M
            if bases.maps is not None:
                M = M @ bases.maps[1].mT
            A = torch.einsum("kce,bek->bck", self.blocks, M) if self.truncation is None else self._truncate(M, bases)
            if bases.maps is not None:
                A = A @ bases.maps[0]
        return expand(bases.left, A.to(bases.left.dtype))

    @torch.no_grad()
    def svd(self, bases: BlockBases) -> KernelSVD:
        """The SVD on each input, in float64, whether or not the bases are orthonormal."""
        F_left, F_right, U, S, Vh = self._decompose(bases)
        left = self._functions(bases, 0, F_left, U)
        return KernelSVD(S, left, self._functions(bases, 1, F_right, Vh.mT))

    def _decompose(self, bases: BlockBases) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Factors of both Gram matrices and the SVD of the core (F_φᵀ ⊗ I) diag(R) (F_ψ ⊗ I), the kernel in
        orthonormal coordinates, rows and columns (function, channel).
        """
        grams = bases.grams.double()
        if bases.maps is not None:
            grams = bases.maps.double() @ grams @ bases.maps.double().mT
        F_left, F_right = factor(grams)
        core = torch.einsum("bki,kce,bkj->bicje", F_left, self.blocks.double(), F_right)
        U, S, Vh = torch.linalg.svd(core.flatten(3, 4).flatten(1, 2))
        keep = self.truncation or S.shape[-1]
        return F_left, F_right, U[..., :keep], S[..., :keep], Vh[..., :keep, :]

    def _truncate(self, M: Tensor, bases: BlockBases) -> Tensor:
        """The blocks of the truncated kernel applied to the moments."""
        F_left, F_right, U, S, Vh = self._decompose(bases)
        q = torch.linalg.solve_triangular(F_right, M.double().mT, upper=False).flatten(1)
        r = (U @ (S.unsqueeze(-1) * (Vh @ q.unsqueeze(-1)))).unflatten(1, (F_left.shape[-1], -1)).squeeze(-1)
        return torch.linalg.solve_triangular(F_left.mT, r, upper=True).mT.to(M.dtype)

    def _functions(self, bases: BlockBases, side: int, F: Tensor, mixing: Tensor) -> Tensor:
        """The vector functions at each point, (batch, n, d, rank)."""
        f = (bases.left, bases.right)[side].double()
        if bases.maps is not None:
            f = f @ bases.maps[side].double().mT
        orthonormal = torch.linalg.solve_triangular(F, f.mT, upper=False)
        return torch.einsum("bkn,bkcl->bncl", orthonormal, mixing.unflatten(1, (F.shape[-1], -1)))
