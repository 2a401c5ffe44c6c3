"""The kernels as the paper writes them, Φ and Ψ formed at every point: the truth for the factorised code."""

import torch
from torch import Tensor

from svdno.models.singular_nets import SingularFunctions
from svdno.models.svd_kernel import SVDKernel


def form_functions(functions: SingularFunctions, z: Tensor) -> Tensor:
    """Φ(z) of shape (batch, n, d, L)."""
    h = functions.trunk(z)
    W, b = functions.head[..., :-1], functions.head[..., -1]
    return torch.einsum("bnk,lck->bncl", h, W) + b.T


def form_pair(kernel: SVDKernel, z: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Φ and Ψ as the layer uses them: orthonormalised by a QR decomposition where the kernel is exact."""
    left = form_functions(kernel.left, z)
    right = left if kernel.right is None else form_functions(kernel.right, z)
    if kernel.exact:
        left, right = orthonormalise(left, w), orthonormalise(right, w)
    return left, right


def orthonormalise(functions: Tensor, w: Tensor) -> Tensor:
    """Gram–Schmidt in L²(w) by QR of √w Φ, with the signs of a Cholesky factor."""
    b, n, d, L = functions.shape
    root = w.expand(b, n).sqrt()[:, :, None, None]
    Q, R = torch.linalg.qr((root * functions).reshape(b, n * d, L))
    Q = Q * R.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(1)
    return Q.reshape(b, n, d, L) / root


def dense_gram(functions: Tensor, w: Tensor) -> Tensor:
    """∫ ΦᵀΦ dx, (batch, L, L)."""
    return torch.einsum("bncl,bncm,bn->blm", functions, functions, w.expand(functions.shape[:2]))


def apply_densely(left: Tensor, right: Tensor, sigma: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """Φ(z_i) Σ Σ_j w_j Ψ(z_j)ᵀ v(z_j)."""
    q = torch.einsum("bn,bncl,bnc->bl", w.expand(v.shape[:2]), right, v)
    return torch.einsum("bncl,bl->bnc", left, sigma * q)
