"""Orthonormal functions from any: with the Gram matrix G = F Fᵀ of functions f, F⁻¹ f are orthonormal (Cholesky)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from svdno.models.moments import convert


def factor(G: Float[Tensor, "*batch k k"]) -> Float[Tensor, "*batch k k"]:
    """The lower factor F of G = F Fᵀ, in float64; `rounding` keeps it from failing."""
    return torch.linalg.cholesky_ex(_add_ridge(G.double(), rounding(G.dtype))).L


def inverse_factor(G: Float[Tensor, "*batch k k"], ridge: float) -> Float[Tensor, "*batch k k"]:
    """T = F⁻¹ with T G Tᵀ = I up to the ridge; computed in float64, and in few steps both ways.

    ridge: share of the mean diagonal that is added to it
    """
    T: Tensor = _InverseFactor.apply(_add_ridge(G, ridge))
    return T


def rounding(dtype: torch.dtype) -> float:
    """The least ridge for Gram matrices computed in this precision."""
    return 4 * torch.finfo(dtype).eps


def _add_ridge(G: Tensor, ridge: float) -> Tensor:
    mean = G.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[..., None, None]
    return G + ridge * mean * torch.eye(G.shape[-1], dtype=G.dtype, device=G.device)


class _InverseFactor(torch.autograd.Function):
    """T = F⁻¹ for G = F Fᵀ. From dT = −Φ(T dG Tᵀ) T, Φ the lower half with half the diagonal, follows the gradient
    dG = −½ (X + Xᵀ), X = Tᵀ Φ(dT Tᵀ) T.
    """

    @staticmethod
    def forward(ctx: Any, G: Tensor) -> Tensor:
        F = torch.linalg.cholesky_ex(G.double()).L
        identity = torch.eye(G.shape[-1], dtype=F.dtype, device=F.device).expand_as(F)
        T = convert(torch.linalg.solve_triangular(F, identity, upper=False), G.dtype)
        ctx.save_for_backward(T)
        return T

    @staticmethod
    def backward(ctx: Any, dT: Tensor) -> Tensor:
        (T,) = ctx.saved_tensors
        S = (dT @ T.mT).tril()
        X = T.mT @ (S - 0.5 * torch.diag_embed(S.diagonal(dim1=-2, dim2=-1))) @ T
        return -0.5 * (X + X.mT)
