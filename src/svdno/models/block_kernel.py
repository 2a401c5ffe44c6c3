"""The block SVD kernel κ(z,z′) = Σ_k φ_k(z) R_k ψ_k(z′): scalar functions φ_k, ψ_k and a matrix for each pair.

With orthonormal φ and ψ and R_k = U_k S_k V_kᵀ, the vector functions φ_k U_k[:,c] and ψ_k V_k[:,c] are orthonormal, so
this is an SVD of rank H·d whose spectrum is the union of the S_k. The functions are linear in y(z) = (v(z), x), latent
field and waves of the position: φ = T_φ P_φ y and ψ = T_ψ P_ψ y, where T makes them orthonormal on each input, or is
1. Neither they nor y are ever formed, and their number H costs nothing at the points:

    moments        C_v = Σ_j w_j v(z_j) y(z_j)ᵀ                  two GEMMs over the points, for v and for x
    Gram matrices  P_φ C P_φᵀ and P_ψ C P_ψᵀ, hence T_φ and T_ψ  no n; C is C_v and Σ_j w_j x xᵀ; only where T is not 1
    blocks         M = ∫ v ψᵀ from C_v,  A[c,k] = Σ_e R_k[c,e] M[e,k]
    output         (K v)(z_i) = (A T_φ P_φ) y(z_i)               two GEMMs over the points, with matrices per input
"""

from math import sqrt
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from svdno.models.moments import cross_moment, expand, second_moment
from svdno.models.orthonormal import factor, inverse_factor
from svdno.models.svd_kernel import KernelSVD

# Share of the mean diagonal of a Gram matrix that keeps nearly dependent functions apart from noise.
RIDGE = 1e-3


class Positions(NamedTuple):
    """What all kernels of a model know of the points.

    x: waves
    w: quadrature weights
    moments: ∫ x xᵀ
    """

    x: Float[Tensor, "#batch n waves"]
    w: Float[Tensor, "#batch n"]
    moments: Float[Tensor, "#batch waves waves"]

    @classmethod
    def of(cls, x: Float[Tensor, "#batch n waves"], w: Float[Tensor, "#batch n"]) -> "Positions":
        """Sum over the points, of each sample where each has points or weights of its own."""
        return cls(x, w, second_moment(x.expand(max(len(x), len(w)), -1, -1), w))


class BlockBases(NamedTuple):
    """φ and ψ on one batch of inputs.

    v: latent field
    positions: what else y is made of
    coefficients: P_φ and P_ψ
    moments: C_v = ∫ v yᵀ
    maps: T_φ and T_ψ with φ = T_φ P_φ y and ψ = T_ψ P_ψ y, or None for 1
    """

    v: Float[Tensor, "batch n d"]
    positions: Positions
    coefficients: Float[Tensor, "2 features y"]
    moments: Float[Tensor, "batch d y"]
    maps: Float[Tensor, "2 batch features features"] | None = None

    @property
    def grams(self) -> Float[Tensor, "2 batch features features"]:
        """Those of P_φ y and P_ψ y."""
        of_v, d = self.moments, self.v.shape[-1]
        of_x = self.positions.moments.to(of_v.dtype).expand(len(of_v), -1, -1)
        C = torch.cat([of_v, torch.cat([of_v[..., d:].mT, of_x], dim=-1)], dim=-2)
        P = self.coefficients.unsqueeze(1)
        return P @ C @ P.mT

    def expand(self, A: Float[Tensor, "batch out y"]) -> Float[Tensor, "batch n out"]:
        """A y(z) at each point."""
        d = self.v.shape[-1]
        return expand(self.v, A[..., :d]) + expand(self.positions.x, A[..., d:])

    def functions(self, side: int) -> Float[Tensor, "batch n features"]:
        """φ (side 0) or ψ (side 1) at each point, in float64."""
        of_v, of_x = self.coefficients[side].double().split([self.v.shape[-1], self.positions.x.shape[-1]], dim=-1)
        f = self.v.double() @ of_v.mT + self.positions.x.double() @ of_x.mT
        return f if self.maps is None else f @ self.maps[side].double().mT

    def orthogonality(self) -> Float[Tensor, ""]:
        """L_ortho = ‖G_φ − I‖²_F + ‖G_ψ − I‖²_F of the functions in use, averaged over the batch."""
        with torch.autocast(self.v.device.type, enabled=False):
            G = self.grams if self.maps is None else self.maps @ self.grams @ self.maps.mT
        identity = torch.eye(G.shape[-1], dtype=G.dtype, device=G.device)
        return (G - identity).square().sum(dim=(0, -2, -1)).mean()


class BlockBasis(nn.Module):
    """The coefficients P_φ and P_ψ of H functions each, some of the position alone and others of v and the position.

    Those of the position come first: made orthonormal one after the other, they are the same on every input.

    channels: components of v, d
    waves: of the position
    features: H
    positional: functions of the position alone, at most `waves`
    exact: make them orthonormal on each input (Cholesky)
    """

    def __init__(self, channels: int, waves: int, features: int, positional: int, *, exact: bool) -> None:
        super().__init__()
        self.channels, self.exact = channels, exact
        self.of_position = _draw(2, positional, waves) if positional else None
        self.of_field = _draw(2, features - positional, channels + waves) if positional < features else None

    @property
    def coefficients(self) -> Float[Tensor, "2 features y"]:
        """P_φ and P_ψ."""
        positional = None if self.of_position is None else F.pad(self.of_position, (self.channels, 0))
        return torch.cat([P for P in (positional, self.of_field) if P is not None], dim=1)

    def forward(self, v: Float[Tensor, "batch n d"], positions: Positions) -> BlockBases:
        """The bases on one batch of inputs; waves beyond those that the functions are made of must be 0."""
        x, w = positions.x, positions.w
        of_v = torch.cat([second_moment(v, w), cross_moment(v, x, w)], dim=-1)
        if of_v.is_cuda:  # TF32 would lose the weak functions, and float64 without n costs a GPU nothing
            of_v = of_v.double()
        P = self.coefficients
        P = F.pad(P, (0, of_v.shape[-1] - P.shape[-1])).to(of_v.dtype)
        with torch.autocast(v.device.type, enabled=False):
            bases = BlockBases(v, positions, P, of_v)
            return bases._replace(maps=inverse_factor(bases.grams, RIDGE)) if self.exact else bases


class BlockKernel(nn.Module):
    """The matrices R_k, and the kernel they make with a pair of bases.

    channels: components of v, d
    features: H
    out_channels: components of K v; by default d
    truncation: keep only this many leading triplets of the SVD on each input
    """

    def __init__(
        self, channels: int, features: int, out_channels: int | None = None, truncation: int | None = None
    ) -> None:
        super().__init__()
        self.truncation = truncation
        self.blocks = nn.Parameter(torch.randn(features, out_channels or channels, channels) / sqrt(channels))

    @property
    def rank(self) -> int:
        """Triplets of the whole kernel."""
        features, *sizes = self.blocks.shape
        return features * min(sizes)

    def forward(self, bases: BlockBases) -> Float[Tensor, "batch out_channels y"]:
        """The matrices A of each input with (K v)(z) = Σ_k φ_k(z) R_k ∫ψ_k v = A y(z)."""
        with torch.autocast(bases.v.device.type, enabled=False):
            M = self._project(bases)
            A = self._apply_blocks(M) if self.truncation is None else self._truncate(M, bases)
            if bases.maps is not None:
                A = A @ bases.maps[0]
            return (A @ bases.coefficients[0]).to(self.blocks.dtype)

    def features(
        self, bases: BlockBases
    ) -> tuple[Float[Tensor, "batch n features"], Float[Tensor, "batch features channels"]]:
        """φ_k(z) at each point, and ∫ψ_k v_e: K v is linear in their products, and the R_k are the weights."""
        return bases.functions(0), self._project(bases).mT

    def _project(self, bases: BlockBases) -> Float[Tensor, "batch channels features"]:
        """M = ∫ v ψᵀ."""
        M = bases.moments @ bases.coefficients[1].mT
        return M if bases.maps is None else M @ bases.maps[1].mT

    def _apply_blocks(self, M: Tensor) -> Tensor:
        return torch.einsum("kce,bek->bck", self.blocks, M.to(self.blocks.dtype)).to(M.dtype)

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
        U, S, Vh = torch.linalg.svd(core.flatten(3, 4).flatten(1, 2), full_matrices=False)
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
        orthonormal = torch.linalg.solve_triangular(F, bases.functions(side).mT, upper=False)
        return torch.einsum("bkn,bkcl->bncl", orthonormal, mixing.unflatten(1, (F.shape[-1], -1)))


def _draw(*shape: int) -> nn.Parameter:
    bound = 1 / sqrt(shape[-1])
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
