"""Sums over the points of an input: moments of features, and Gram matrices of the functions made of them."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

# One long product per sample would keep only a few multiprocessors of a GPU busy. The points are summed in blocks side
# by side: of at least BLOCK points, and as many as it takes for PRODUCTS products.
BLOCK, PRODUCTS = 1024, 160


def integrate(f: Float[Tensor, "batch n p"], g: Float[Tensor, "#batch n q"]) -> Float[Tensor, "batch p q"]:
    """∫ f gᵀ: Σ_j f(z_j) g(z_j)ᵀ over the points, weights included in one of them; in float32 or better."""
    M: Tensor = _Integrate.apply(*_for_autocast(f, g))
    return M


def expand(f: Float[Tensor, "#batch n p"], A: Float[Tensor, "batch q p"]) -> Float[Tensor, "batch n q"]:
    """A f(z_i) at every point."""
    out: Tensor = _Expand.apply(*_for_autocast(f, A))
    return out


def cross_moment(
    f: Float[Tensor, "batch n p"], g: Float[Tensor, "#batch n q"], w: Float[Tensor, "#batch n"]
) -> Float[Tensor, "batch p q"]:
    """∫ f gᵀ dx = Σ_j w_j f(z_j) g(z_j)ᵀ, rounded as `second_moment` rounds those of (f, g)."""
    if are_equal(w):
        return w[:, :1, None] * integrate(f, g)
    root = w.sqrt().unsqueeze(-1)
    return integrate(f * root, g * root)


def second_moment(h: Float[Tensor, "batch n k"], w: Float[Tensor, "#batch n"]) -> Float[Tensor, "batch k k"]:
    """C = ∫ h hᵀ dx = Σ_j w_j h(z_j) h(z_j)ᵀ, the Gram matrix of the features."""
    C: Tensor = _SecondMoment.apply(*_for_autocast(h), w)
    return C


class _Integrate(torch.autograd.Function):
    """M = Σ_j f_j g_jᵀ, whose gradients are expansions: df_j = dM g_j, dg_j = dMᵀ f_j."""

    @staticmethod
    def forward(ctx: Any, f: Tensor, g: Tensor) -> Tensor:
        ctx.save_for_backward(f, g)
        dtype = torch.promote_types(f.dtype, torch.float32)
        blocks = _count_blocks(*f.shape[:2])
        if blocks == 1:
            return convert(f.mT @ g, dtype)
        return (f.unflatten(1, (blocks, -1)).mT @ g.unflatten(1, (blocks, -1))).sum(dim=1, dtype=dtype)

    @staticmethod
    def backward(ctx: Any, dM: Tensor) -> tuple[Tensor | None, Tensor | None]:
        f, g = ctx.saved_tensors
        dM = dM.to(f.dtype)
        needs_f, needs_g = ctx.needs_input_grad
        dg = expand(f, dM.mT).sum_to_size(g.shape) if needs_g else None
        return expand(g, dM) if needs_f else None, dg


class _Expand(torch.autograd.Function):
    """out_i = A f_i, whose gradients are an expansion and an integral: df_i = Aᵀ dout_i, dA = Σ_i dout_i f_iᵀ."""

    @staticmethod
    def forward(ctx: Any, f: Tensor, A: Tensor) -> Tensor:
        ctx.save_for_backward(f, A)
        return f @ A.mT

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, Tensor | None]:
        f, A = ctx.saved_tensors
        needs_f, needs_A = ctx.needs_input_grad
        df = expand(dout, A.mT).sum_to_size(f.shape) if needs_f else None
        return df, integrate(dout, f) if needs_A else None


class _SecondMoment(torch.autograd.Function):
    """C = Σ_j w_j h_j h_jᵀ, with gradients dh_j = w_j (dC + dCᵀ) h_j, one expansion, and dw_j = h_jᵀ dC h_j."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(h, w)
        if are_equal(w):
            return w[:, :1, None] * integrate(h, h)
        g = h * w.sqrt().unsqueeze(-1).to(h.dtype)  # both factors rounded alike: C has no negative eigenvalues
        return integrate(g, g)

    @staticmethod
    def backward(ctx: Any, dC: Tensor) -> tuple[Tensor, Tensor | None]:
        h, w = ctx.saved_tensors
        equal = are_equal(w)
        both = (dC + dC.mT) * w[:, :1, None] if equal else dC + dC.mT
        dh = expand(h, both.to(h.dtype))
        dw = (expand(h, dC.to(h.dtype)) * h).sum(dim=-1).sum_to_size(w.shape) if ctx.needs_input_grad[1] else None
        return dh if equal else dh * w.unsqueeze(-1).to(h.dtype), dw


def _count_blocks(batch: int, n: int) -> int:
    """In how many blocks of one size the n points of each sample are summed: a power of two, or 1."""
    blocks = 1
    while batch * blocks < PRODUCTS and n % (2 * blocks * BLOCK) == 0:
        blocks *= 2
    return blocks


def convert(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The result of a function with a gradient of its own, in this precision.

    Not x.to(dtype) in any case: where that changes nothing, PyTorch 2.11 compiles a gradient of zero for the function.
    """
    return x if x.dtype == dtype else x.to(dtype)


def are_equal(w: Tensor) -> bool:
    """Whether the weights are one number, expanded, which need not pass over the points."""
    return w.stride(-1) == 0


def _for_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All in the precision of autocast where it is on, so that the backward pass finds them in one precision."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)


def gram(
    head: Float[Tensor, "rank channels features"],
    h: Float[Tensor, "batch n padded"],
    w: Float[Tensor, "#batch n"],
) -> Float[Tensor, "batch rank rank"]:
    """G[l,m] = ∫ Φ_l · Φ_m dx = Σ_c W̃[l,c] C W̃[m,c]ᵀ with the moments C = Σ_j w_j h̃(z_j) h̃(z_j)ᵀ."""
    L, d, K = head.shape
    C = second_moment(h, w.to(head.dtype))[:, :K, :K]
    batch = C.shape[0]
    if L * (batch + d) < batch * d:  # few functions: all pairs of head rows first, O(L² K² (d + batch))
        pairs = torch.einsum("lck,mcj->lmkj", head, head)
        return (C.flatten(1) @ pairs.flatten(2).flatten(0, 1).T).unflatten(1, (L, L))
    CW = head.reshape(L * d, K) @ C  # many: the heads sample by sample, O(batch L K² d)
    return CW.reshape(batch, L, d * K) @ head.reshape(L, d * K).T
