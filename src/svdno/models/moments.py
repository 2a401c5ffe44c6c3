"""Sums over the points of an input: moments of features, and Gram matrices of the functions made of them."""

import torch
from jaxtyping import Float
from torch import Tensor

# Both products over the points run in blocks of this many points side by side: one long product per sample, and
# its gradient, would leave most of a GPU without work.
BLOCK = 1024


def integrate(f: Float[Tensor, "batch n p"], g: Float[Tensor, "batch n q"]) -> Float[Tensor, "batch p q"]:
    """∫ f gᵀ: Σ_j f(z_j) g(z_j)ᵀ over the points, weights included in f."""
    return (_blocks(f).mT @ _blocks(g)).sum(dim=1)


def expand(f: Float[Tensor, "batch n p"], A: Float[Tensor, "batch p q"]) -> Float[Tensor, "batch n q"]:
    """Σ_k f(z_i)[k] A[k,:] at every point."""
    return (_blocks(f) @ A.unsqueeze(1)).flatten(1, 2)


def _blocks(f: Tensor) -> Tensor:
    """(batch, n, p) as (batch, blocks, points, p); one block where the points do not divide evenly."""
    n = f.shape[1]
    return f.unflatten(1, (-1, BLOCK if n % BLOCK == 0 else n))


def gram(
    head: Float[Tensor, "rank features channels"],
    h: Float[Tensor, "batch n padded"],
    w: Float[Tensor, "#batch n"],
) -> Float[Tensor, "batch rank rank"]:
    """G[l,m] = ∫ Φ_l · Φ_m dx = Σ_c W̃[l,:,c]ᵀ C W̃[m,:,c] with the moments C = Σ_j w_j h̃(z_j) h̃(z_j)ᵀ."""
    L, K, d = head.shape
    h = h.to(head.dtype)
    C = integrate(h * w.to(head.dtype).unsqueeze(-1), h)[:, :K, :K]
    batch = C.shape[0]
    if L * (batch + d) < batch * d:  # few functions: all pairs of head rows first, O(L² K² (d + batch))
        pairs = torch.einsum("lkc,mjc->lmkj", head, head)
        return (C.flatten(1) @ pairs.flatten(2).flatten(0, 1).T).unflatten(1, (L, L))
    CW = C @ head.transpose(0, 1).reshape(K, L * d)  # many: the heads sample by sample, O(batch L K² d)
    CW = CW.unflatten(-1, (L, d)).transpose(1, 2).reshape(-1, L, K * d)
    return CW @ head.reshape(L, K * d).T
