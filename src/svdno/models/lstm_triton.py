"""LSTMs of one size evaluated side by side on one input, for GPUs: each layer is one product and one Triton kernel.

A recurrent layer takes its steps one after the other, and each is too small a product to keep a GPU busy. Here all
nets, directions and samples walk at the same time, one program each, and a step does only what must wait for it:

    x_t = W_ih z_t + b_ih + b_hh   for all steps at once,   h_t from x_t + W_hh h_{t−1}   step by step (lstm_kernels)
"""

import os
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from svdno.models.input_linear import split_digits

# Warps of a program for each number of units H: few, as they wait for each other at every step, but enough for their
# registers, 255 numbers for each of 32 threads, to hold the 4H² numbers of W_hh or, of the largest, three quarters.
WARPS = {16: 1, 32: 1, 64: 4, 128: 8}
HELD_UNITS = 64  # with more units W_hh exceeds the registers of a multiprocessor

# Triton needs a C compiler for the code that starts kernels. Tuples in loops need Triton 3.3, which comes with
# PyTorch 2.7; warps and registers are those of CUDA devices.
COMPILES = (
    torch.__version__ >= "2.7"
    and torch.version.cuda is not None
    and find_spec("triton") is not None
    and bool(os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang"))
)


def is_supported(lstm: nn.LSTM, z: Tensor) -> bool:
    """Whether `lstm_side_by_side` takes such nets and this input; where not, each net does by itself."""
    is_plain = lstm.batch_first and lstm.bias and lstm.proj_size == 0 and lstm.dropout == 0
    is_float = z.is_cuda and z.dtype == lstm.weight_hh_l0.dtype == torch.float32
    return is_plain and is_float and lstm.hidden_size in WARPS and not torch.is_autocast_enabled("cuda") and COMPILES


def lstm_side_by_side(
    nets: Sequence[nn.LSTM], z: Float[Tensor, "batch n augmented"]
) -> list[Float[Tensor, "batch n features"]]:
    """net(z)[0] of nets that have the same sizes and their own weights."""
    h = split_digits(z).expand(len(nets), -1, -1, -1)
    for layer in range(nets[0].num_layers):
        W_ih, W_hh, b_ih, b_hh = (
            _stack(nets, f"{kind}_l{layer}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        if layer == 0:
            W_ih = torch.cat([W_ih, W_ih], dim=-1)  # for both parts of z
        h = _Layer.apply(h, W_ih, W_hh, b_ih + b_hh, torch.is_grad_enabled())
    return list(h.unbind())


class _Layer(torch.autograd.Function):
    """One layer of all nets and directions: (nets, batch, n, inputs) → (nets, batch, n, directions · H)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, W_ih: Tensor, W_hh: Tensor, b: Tensor, save: bool) -> Tensor:
        """h at all steps; `save` keeps what the way back needs."""
        (nets, batch, n, _), (directions, _, H) = x.shape, W_hh.shape[1:]
        a = torch.baddbmm(b.view(nets, 1, -1), x.reshape(nets, batch * n, -1), W_ih.flatten(1, 2).mT)
        W = W_hh.view(nets, directions, 4, H, H).permute(0, 1, 4, 3, 2).contiguous()
        h, c, gates = _walk(a.view(nets, batch, n, -1), W, save)
        ctx.save_for_backward(x, W_ih, W_hh, h, c, gates)
        return h

    @staticmethod
    def backward(ctx: Any, dh: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients from ∂L/∂a at all steps: ∂L/∂x = W_ihᵀ ∂L/∂a, and those of the weights as sums over steps."""
        x, W_ih, W_hh, h, c, gates = ctx.saved_tensors
        nets, directions, _, H = W_hh.shape
        W = W_hh.view(nets, directions, 4, H, H).permute(0, 1, 3, 4, 2).contiguous()
        da = _walk_back(dh.contiguous(), W, c, gates)
        dx = (da.flatten(1, 2) @ W_ih.flatten(1, 2)).view(x.shape) if ctx.needs_input_grad[0] else None
        dW_ih, db = _correlate(da, x).view(W_ih.shape), da.sum((1, 2)).view(W_hh.shape[:3])
        return dx, dW_ih, _correlate_with_previous(da, h, directions), db, None


# Operators as PyTorch's own are, so that torch.compile takes them as they stand.
@torch.library.custom_op("svdno::lstm_walk", mutates_args=())
def _walk(a: Tensor, W: Tensor, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """h of all steps from a = W_ih z + b, and with `save` c and the gates."""
    h, c, gates = _reserve_walk(a, W, save)
    _launch("run_forward", a, W, h, c, gates, SAVE=save)
    return h, c, gates


@_walk.register_fake
def _reserve_walk(a: Tensor, W: Tensor, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    h = a.new_empty(*a.shape[:3], W.shape[1] * W.shape[2])
    return (h, torch.empty_like(h), torch.empty_like(a)) if save else (h, a.new_empty(0), a.new_empty(0))


@torch.library.custom_op("svdno::lstm_walk_back", mutates_args=())
def _walk_back(dh: Tensor, W: Tensor, c: Tensor, gates: Tensor) -> Tensor:
    """∂L/∂a of all steps from ∂L/∂h."""
    da = _reserve_walk_back(dh, W, c, gates)
    _launch("run_backward", da, W, dh, c, gates)
    return da


@_walk_back.register_fake
def _reserve_walk_back(dh: Tensor, W: Tensor, c: Tensor, gates: Tensor) -> Tensor:
    return torch.empty_like(gates)


def _launch(kernel: str, rows: Tensor, W: Tensor, *others: Tensor, **settings: bool) -> None:
    """Start a kernel on the GPU of its tensors, one program for each sample, direction and net."""
    from svdno.models import lstm_kernels  # not every machine has Triton

    (nets, batch, n, _), (directions, H) = rows.shape, W.shape[1:3]
    with torch.cuda.device_of(rows):
        launch = getattr(lstm_kernels, kernel)[batch, directions, nets]
        launch(rows, W, *others, n, H=H, D=directions, STREAM=H > HELD_UNITS, num_warps=WARPS[H], **settings)


def _correlate(da: Tensor, x: Tensor) -> Tensor:
    """Σ da_t x_tᵀ over samples and steps; by samples first, as one long sum would keep few multiprocessors busy."""
    return (da.mT @ x).sum(1)


def _correlate_with_previous(da: Tensor, h: Tensor, directions: int) -> Tensor:
    """∂L/∂W_hh = Σ da_t h_{t−1}ᵀ for each direction, where t − 1 is the step that its walk takes before t."""
    later, earlier = slice(1, None), slice(None, -1)
    ways = zip(da.chunk(directions, -1), h.chunk(directions, -1), ((later, earlier), (earlier, later)), strict=False)
    return torch.stack([_correlate(a[:, :, now], b[:, :, before]) for a, b, (now, before) in ways], dim=1)


def _stack(nets: Sequence[nn.LSTM], name: str) -> Tensor:
    """A parameter of all nets and directions: (nets, directions, …)."""
    ways = ("", "_reverse") if nets[0].bidirectional else ("",)
    return torch.stack([getattr(net, name + way) for net in nets for way in ways]).unflatten(0, (len(nets), -1))
