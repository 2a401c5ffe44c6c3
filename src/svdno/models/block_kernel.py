"""The block SVD kernel κ(z,z′) = Σ_k φ_k(z) R_k ψ_k(z′): scalar functions φ_k, ψ_k and a matrix for each pair.

With orthonormal φ and ψ and R_k = U_k S_k V_kᵀ, the vector functions φ_k U_k[:,c] and ψ_k V_k[:,c] are orthonormal, so
this is an SVD of rank H·d whose spectrum is the union of the S_k. The functions are linear in y(z) = (v(z), x), latent
field and waves of the position: φ = T_φ P_φ y and ψ = T_ψ P_ψ y, where T makes them orthonormal on each input, or is
1. They are never formed, and their number H costs nothing at the points:

    moments        C = Σ_j w_j y(z_j) y(z_j)ᵀ                    one GEMM over the points
    Gram matrices  P_φ C P_φᵀ and P_ψ C P_ψᵀ, hence T_φ and T_ψ  no n; only where T is not 1
    blocks         M = ∫ v ψᵀ from C,  A[c,k] = Σ_e R_k[c,e] M[e,k]
    output         (K v)(z_i) = (A T_φ P_φ) y(z_i)               one GEMM over the points, with a matrix per input
"""

from math import sqrt
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from svdno.models.moments import second_moment
from svdno.models.orthonormal import factor, inverse_factor
from svdno.models.svd_kernel import KernelSVD

# Share of the mean diagonal of a Gram matrix that keeps nearly dependent functions apart from noise.
RIDGE = 1e-3


class BlockBases(NamedTuple):
    """φ and ψ on one batch of inputs.

    y: latent field and waves
    coefficients: P_φ and P_ψ
    moments: C
    maps: T_φ and T_ψ with φ = T_φ P_φ y and ψ = T_ψ P_ψ y, or None for 1
    """

    y: Float[Tensor, "batch n y"]
    coefficients: Float[Tensor, "2 features y"]
    moments: Float[Tensor, "batch y y"]
    maps: Float[Tensor, "2 batch features features"] | None = None

    @property
    def grams(self) -> Float[Tensor, "2 batch features features"]:
        """Those of P_φ y and P_ψ y."""
        P = self.coefficients.unsqueeze(1)
        return P @ self.moments @ P.mT

    def functions(self, side: int) -> Float[Tensor, "batch n features"]:
        """φ (side 0) or ψ (side 1) at each point, in float64."""
        f = self.y.double() @ self.coefficients[side].double().mT
        return f if self.maps is None else f @ self.maps[side].double().mT

    def orthogonality(self) -> Float[Tensor, ""]:
        """L_ortho = ‖G_φ − I‖²_F + ‖G_ψ − I‖²_F of the functions in use, averaged over the batch."""
        with torch.autocast(self.y.device.type, enabled=False):
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

    def forward(self, y: Float[Tensor, "batch n y"], w: Float[Tensor, "#batch n"]) -> BlockBases:
        """The bases on one batch of inputs; components of y beyond those that the functions are made of must be 0."""
        # One product: where it rounds v and x, it rounds them alike, and C stays the Gram matrix of something.
        P = self.coefficients
        C = second_moment(y, w.to(P.dtype))
        if C.is_cuda:  # TF32 would lose the weak functions, and float64 without n costs a GPU nothing
            C = C.double()
        P = F.pad(P, (0, y.shape[-1] - P.shape[-1])).to(C.dtype)
        with torch.autocast(y.device.type, enabled=False):
            bases = BlockBases(y, P, C)
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
        with torch.autocast(bases.y.device.type, enabled=False):
            M = self._project(bases)
            A = self._apply_blocks(M) if self.truncation is None else self._truncate(M, bases)
            if bases.maps is not None:
                A = A @ bases.maps[0]
            return (A @ bases.coefficients[0]).to(self.blocks.dtype)

    def features(self, bases: BlockBases, at: Int[Tensor, " some"]) -> Float[Tensor, "batch some products"]:
        """φ_k(z) ∫ψ_k v_e at some points, for each k and e: K v is linear in them, and the R_k are the weights."""
        functions = bases._replace(y=bases.y[:, at]).functions(0)
        return torch.einsum("bnk,bek->bnke", functions, self._project(bases).double()).flatten(2)

    def _project(self, bases: BlockBases) -> Float[Tensor, "batch channels features"]:
        """M = ∫ v ψᵀ."""
        M = bases.moments[:, : self.blocks.shape[-1]] @ bases.coefficients[1].mT
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
