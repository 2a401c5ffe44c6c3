"""One more kernel at the end of a training: tables of what the errors of a model have in common.

With c_i = ∫ (h_i − h̄, 1) the mean of the last hidden layer of sample i and R_i its error, W with the smallest
Σ_i w_i ‖R_i − Wᵀ c_i‖² is a field for each feature, found as in `refit` and with the same weights w_i and ridges. On
families of few parameters it is as good as an interpolation between the training samples; where errors have nothing
in common, it is not kept. Of Wᵀ c only the leading principal components stay, W = Σ_k r_k φ_kᵀ.
"""

from collections.abc import Callable, Iterable
from math import prod
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from svdno.data.memory import free_memory
from svdno.errors import InputError
from svdno.models.linear_output import LinearOutput
from svdno.models.tabulated_kernel import TabulatedKernel, pool
from svdno.training.batches import Batch
from svdno.training.distributed import processes, sum_over_processes
from svdno.training.losses import Objective
from svdno.training.refit import check_refit, solve, weight_roots
from svdno.training.surrogate import Surrogate

# A table is kept if it leaves at most this part of the validation error: less is a matter of luck.
WORTH = 0.9

# Squares of what the leading components leave out over those of the errors that remain.
LEFT_OUT = 0.03


class Sums(NamedTuple):
    """(h̄, 0), Σ_i w_i c_i c_iᵀ, Σ_i w_i c_i R_iᵀ and Σ_i w_i ‖R_i‖², in float64.

    For h̄ the mean of a few samples will do: a shift of c is a constant, which is among the features.
    """

    centre: Float[Tensor, " features"]
    gram: Float[Tensor, "features features"]
    target: Float[Tensor, "features values"]
    squares: Float[Tensor, ""]


def check_tabulate(surrogate: Surrogate) -> None:
    """See that the model ends as it must, and that there is memory for the tables of all features."""
    features = check_refit(surrogate.model, "tabulate").last.in_features + 1
    values = prod(surrogate.grid.shape) * len(surrogate.times) * len(surrogate.output_fields)
    needed, free = 3 * 8 * features * values, free_memory(surrogate.device)  # three times, in float64
    if needed > free:
        raise InputError(
            f"training.tabulate needs {needed / 1e9:.1f} GB for the tables of {features} features; "
            f"{free / 1e9:.1f} GB are free. Set training.tabulate = false, data.time_stride or data.space_stride."
        )


@torch.no_grad()
def tabulate(
    surrogate: Surrogate,
    objective: Objective,
    batches: Callable[[], Iterable[Batch]],
    validate: Callable[[], float],
) -> float:
    """Give the model a table if that lowers the validation error, which is returned; arguments as of `refit`."""
    model = check_refit(surrogate.model, "tabulate")
    sums = _add_up(model, objective, batches())
    best, kept = WORTH * (before := validate()), None
    for W in solve(sums.gram, sums.target):
        model.table = _build_table(W, sums, objective.points.flatten(0, -2))
        error = validate()
        if error < best:
            best, kept = error, model.table
    model.table = kept
    return before if kept is None else best


def _add_up(model: LinearOutput, objective: Objective, batches: Iterable[Batch]) -> Sums:
    """All of it for the model as it is."""
    parts: list[Tensor] = []
    centre = None
    for a, truth, norms in batches:
        u, c = _look(model, a, objective.points, objective.weights)
        if centre is None:
            centre = sum_over_processes(c.mean(dim=0)) / processes()
            centre[-1] = 0
        roots = weight_roots(objective, u, truth, norms)
        rows, R = roots * (c - centre), roots * (truth - u).flatten(1).double()
        more = [rows.mT @ rows, rows.mT @ R, R.square().sum()]
        parts = [total.add_(part) for total, part in zip(parts, more, strict=True)] if parts else more
    assert centre is not None
    return Sums(centre, *(sum_over_processes(part) for part in parts))


def _look(model: LinearOutput, a: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Float[Tensor, "batch features"]]:
    """u, and ∫ (h, 1) in float64."""
    with model.watch_last() as seen:
        u = model(a, x, w)
    return u, pool(seen[0][..., :-1], w.reshape(1, -1)).double()


def _build_table(W: Float[Tensor, "features values"], sums: Sums, points: Float[Tensor, "n dim"]) -> TabulatedKernel:
    """The leading principal components of Wᵀ c under the weights w_i.

    With the sums C of c cᵀ and C^½ W = Σ_k U_k s_k φ_kᵀ, what they keep of W is Σ_k r_k φ_kᵀ, r_k = W φ_k.
    """
    values, vectors = torch.linalg.eigh(sums.gram)
    root = vectors * values.clamp_min(0).sqrt()
    products = W @ W.mT
    squares, U = (t.flip(-1) for t in torch.linalg.eigh(root.mT @ products @ root))
    squares = squares.clamp_min(torch.finfo(torch.float64).tiny)
    remaining = sums.squares - 2 * (W * sums.target).sum() + (sums.gram * products).sum()
    left_out = squares.flip(0).cumsum(0).flip(0)
    rank = max(1, int((left_out > LEFT_OUT * remaining).sum()))
    mixing = root @ (U / squares.sqrt())[:, :rank]
    functions = (mixing.mT @ W).reshape(rank, len(points), -1)
    parts = points, sums.centre, (products @ mixing).mT, functions
    return TabulatedKernel(*(part.to(points.dtype) for part in parts))
