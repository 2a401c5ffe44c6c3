"""The recurrence of an LSTM layer as Triton kernels: one program walks one sample along the points, in float32.

    a_t = x_t + W h_{t−1},  (i, f, g, o) = (σ, σ, tanh, σ)(a_t),  c_t = f∘c_{t−1} + i∘g,  h_t = o∘tanh(c_t)

W stays in registers from the first step to the last, so that a step waits for arithmetic and not for memory. Where it
is larger than all registers of a multiprocessor (STREAM), its last quarter comes from the first-level cache instead.
Tensors with a row for each step have rows (nets, samples, steps, directions); the second direction walks backwards.
The matrices have the four gates of a unit as neighbours, so that each thread sums up all of a unit and no thread waits
for another. What a step reads from memory it asks for two steps ahead.
"""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def _tanh(x):
    """tanh(x) = 2σ(2x) − 1."""
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
@no_type_check
def _locate(n, D: tl.constexpr):
    """This program's first row, the hop to its next row, and the number of its matrix."""
    sample, d, net = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    row = (net * tl.num_programs(0) + sample) * n * D + d
    return row + tl.where(d == 0, 0, (n - 1) * D), tl.where(d == 0, D, -D), net * D + d


@triton.jit
@no_type_check
def _load_gates(ptr, row, H: tl.constexpr):
    """Four vectors from one row (4, units)."""
    at = ptr + row * 4 * H + tl.arange(0, H)
    return tl.load(at), tl.load(at + H), tl.load(at + 2 * H), tl.load(at + 3 * H)


@triton.jit
@no_type_check
def _store_gates(ptr, row, i, f, g, o, H: tl.constexpr):
    """Four vectors to one row (4, units)."""
    at = ptr + row * 4 * H + tl.arange(0, H)
    tl.store(at, i)
    tl.store(at + H, f)
    tl.store(at + 2 * H, g)
    tl.store(at + 3 * H, o)


@triton.jit
@no_type_check
def _address_matrix(ptr, matrix, H: tl.constexpr, STREAM: tl.constexpr):
    """Where the rows (units, 4) of a matrix are, or those of its first quarter."""
    rows: tl.constexpr = H // 4 if STREAM else H
    return ptr + matrix * 4 * H * H + tl.arange(0, rows)[:, None] * 4 * H + tl.arange(0, 4 * H)[None, :]


@triton.jit
@no_type_check
def _load_matrix(w_at, quarter, H: tl.constexpr):
    """A quarter of a matrix, or all of it."""
    return tl.load(w_at + quarter * H * H).reshape(w_at.shape[0], H, 4)


@triton.jit
@no_type_check
def _halve(v):
    """The first and the second half of the rows of v."""
    return tl.split(v.reshape(2, v.shape[0] // 2, v.shape[1]).trans(1, 2, 0))


@triton.jit
@no_type_check
def _contract(v, w_at, W0, W1, W2, H: tl.constexpr, STREAM: tl.constexpr):
    """Σ_r W[r, units, 4] v[r, 1 or 4] over the rows r."""
    if STREAM:
        first, second = _halve(v)
        v0, v1 = _halve(first)
        v2, v3 = _halve(second)
        # One after the other, the streamed quarter first: any other order needs more registers than there are.
        terms = _load_matrix(w_at, 3, H) * v3[:, None, :]
        terms = terms + W0 * v0[:, None, :] + W1 * v1[:, None, :] + W2 * v2[:, None, :]
    else:
        terms = W0 * v[:, None, :]
    return tl.sum(terms, axis=0)


@triton.jit(do_not_specialize=["n"])
@no_type_check
def run_forward(
    x_ptr, w_ptr, h_ptr, c_ptr, gates_ptr, n, H: tl.constexpr, D: tl.constexpr, STREAM: tl.constexpr, SAVE: tl.constexpr
):
    """h at all steps from x; with SAVE also c and the gates, which the way back needs.

    w: (nets, directions, k, units, 4), W h = Σ_k w[k] h[k]
    """
    unit = tl.arange(0, H)
    start, hop, matrix = _locate(n, D)
    w_at = _address_matrix(w_ptr, matrix, H, STREAM)
    W0 = _load_matrix(w_at, 0, H)
    W1 = _load_matrix(w_at, 1, H) if STREAM else W0
    W2 = _load_matrix(w_at, 2, H) if STREAM else W0
    h = tl.zeros([H], tl.float32)
    c = tl.zeros([H], tl.float32)
    x, x_next = _load_gates(x_ptr, start, H), _load_gates(x_ptr, start + tl.minimum(1, n - 1) * hop, H)
    step = 0
    while step < n:  # not `for`: NumPy ≥ 2.4 breaks that in the interpreter of the tests
        x_after = _load_gates(x_ptr, start + tl.minimum(step + 2, n - 1) * hop, H)
        ig, fo = tl.split(_contract(h[:, None], w_at, W0, W1, W2, H, STREAM).reshape(H, 2, 2))
        a_i, a_g = tl.split(ig)
        a_f, a_o = tl.split(fo)
        i, f, g, o = tl.sigmoid(x[0] + a_i), tl.sigmoid(x[1] + a_f), _tanh(x[2] + a_g), tl.sigmoid(x[3] + a_o)
        c = f * c + i * g
        h = o * _tanh(c)
        row = start + step * hop
        tl.store(h_ptr + row * H + unit, h)
        if SAVE:
            tl.store(c_ptr + row * H + unit, c)
            _store_gates(gates_ptr, row, i, f, g, o, H)
        x, x_next = x_next, x_after
        step += 1


@triton.jit(do_not_specialize=["n"])
@no_type_check
def run_backward(da_ptr, w_ptr, dh_ptr, c_ptr, gates_ptr, n, H: tl.constexpr, D: tl.constexpr, STREAM: tl.constexpr):
    """∂L/∂a at all steps, last step first, from the ∂L/∂h that the layers above have found.

    w: (nets, directions, units, k, 4), (Wᵀ ∂L/∂a)[k] = Σ w[unit, k, gate] ∂L/∂a[unit, gate]
    """
    unit = tl.arange(0, H)
    start, hop, matrix = _locate(n, D)
    start, hop = start + (n - 1) * hop, -hop
    w_at = _address_matrix(w_ptr, matrix, H, STREAM)
    W0 = _load_matrix(w_at, 0, H)
    W1 = _load_matrix(w_at, 1, H) if STREAM else W0
    W2 = _load_matrix(w_at, 2, H) if STREAM else W0
    dh = tl.zeros([H], tl.float32)
    dc = tl.zeros([H], tl.float32)
    row = start + tl.minimum(1, n - 1) * hop
    gates, gates_next = _load_gates(gates_ptr, start, H), _load_gates(gates_ptr, row, H)
    c, c_next = tl.load(c_ptr + start * H + unit), tl.load(c_ptr + row * H + unit)
    above, above_next = tl.load(dh_ptr + start * H + unit), tl.load(dh_ptr + row * H + unit)
    step = 0
    while step < n:  # not `for`: NumPy ≥ 2.4 breaks that in the interpreter of the tests
        row = start + tl.minimum(step + 2, n - 1) * hop
        gates_after = _load_gates(gates_ptr, row, H)
        c_after = tl.load(c_ptr + row * H + unit)
        above_after = tl.load(dh_ptr + row * H + unit)
        i, f, g, o = gates
        dh += above
        s = _tanh(c)
        dc += dh * o * (1 - s * s)
        c = tl.where(step + 1 < n, c_next, 0.0)  # the state before this step, which is zero before the first
        di, df, dg, do = dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * s * o * (1 - o)
        _store_gates(da_ptr, start + step * hop, di, df, dg, do, H)
        da = tl.join(tl.join(di, dg), tl.join(df, do)).reshape(H, 4)
        dh = tl.sum(_contract(da, w_at, W0, W1, W2, H, STREAM), axis=1)
        dc = dc * f
        gates, gates_next = gates_next, gates_after
        c_next = c_after
        above, above_next = above_next, above_after
        step += 1
