"""Orthonormal functions from any: with the Gram matrix G = F Fᵀ of functions f, F⁻¹ f are orthonormal (Cholesky)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def factor(G: Float[Tensor, "*batch k k"], ridge: float | None = None) -> Float[Tensor, "*batch k k"]:
    """The lower factor F of G = F Fᵀ, in float64.

    ridge: share of the mean diagonal that is added to it, by default the rounding error of G
    """
    share = 4 * torch.finfo(G.dtype).eps if ridge is None else ridge
    diagonal = share * G.diagonal(dim1=-2, dim2=-1).mean(dim=-1).double()
    return torch.linalg.cholesky_ex(G.double() + torch.diag_embed(diagonal.unsqueeze(-1).expand(G.shape[:-1]))).L


def inverse_factor(G: Float[Tensor, "*batch k k"], ridge: float) -> Float[Tensor, "*batch k k"]:
    """T = F⁻¹ with T G Tᵀ = I up to the ridge; computed in float64, and in few steps both ways."""
    k = G.shape[-1]
    mean = G.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[..., None, None]
    T: Tensor = _InverseFactor.apply(G + ridge * mean * torch.eye(k, dtype=G.dtype, device=G.device))
    return T


class _InverseFactor(torch.autograd.Function):
    """T = F⁻¹ for G = F Fᵀ. From dT = −Φ(T dG Tᵀ) T, Φ the lower half with half the diagonal, follows the gradient
    dG = −½ (X + Xᵀ), X = Tᵀ Φ(dT Tᵀ) T.
    """

    @staticmethod
    def forward(ctx: Any, G: Tensor) -> Tensor:
        F = torch.linalg.cholesky_ex(G.double()).L
        identity = torch.eye(G.shape[-1], dtype=F.dtype, device=F.device).expand_as(F)
        T = torch.linalg.solve_triangular(F, identity, upper=False).to(G.dtype)
        ctx.save_for_backward(T)
        return T

    @staticmethod
    def backward(ctx: Any, dT: Tensor) -> Tensor:
        (T,) = ctx.saved_tensors
        S = (dT @ T.mT).tril()
        X = T.mT @ (S - 0.5 * torch.diag_embed(S.diagonal(dim1=-2, dim2=-1))) @ T
        return -0.5 * (X + X.mT)
