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
from svdno.training.refit import RIDGES, check_refit, diagonalise, weight_roots
from svdno.training.surrogate import Surrogate

# A table is kept if it leaves at most this part of the validation error: less is a matter of luck.
WORTH = 0.9

# Squares of what the leading components leave out over those of the errors that remain.
LEFT_OUT = 0.03

# Components whose squares are below this part of the largest are errors of rounding.
ROUNDING = 1e-14


class Sums(NamedTuple):
    """The normal equations in coordinates b = Bᵀ c with Σ_i w_i b_i b_iᵀ = diag(λ), in float64.

    Their solution for a ridge ρ is W = B diag(1/(λ + ρ)) Y. For h̄ the mean of a few samples will do: a shift of c is a
    constant, which is among the features.

    centre: (h̄, 0)
    basis, values: B and λ
    projections: Y = Σ_i w_i b_i R_iᵀ
    products: Y Yᵀ
    squares: Σ_i w_i ‖R_i‖²
    """

    centre: Float[Tensor, " features"]
    basis: Float[Tensor, "features features"]
    values: Float[Tensor, " features"]
    projections: Float[Tensor, "features values"]
    products: Float[Tensor, "features features"]
    squares: Float[Tensor, ""]


def check_tabulate(surrogate: Surrogate) -> None:
    """See that the model ends as it must, and that there is memory for the tables of all features."""
    features = check_refit(surrogate.model, "tabulate").last.in_features + 1
    values = prod(surrogate.grid.shape) * len(surrogate.times) * len(surrogate.output_fields)
    needed, free = 2 * 8 * features * values, free_memory(surrogate.device)  # T and Y, in float64
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
    sums = _add_up(model, objective, batches)
    best, kept = WORTH * (before := validate()), None
    for ridge in RIDGES:
        model.table = _build_table(sums, ridge, objective.points.flatten(0, -2))
        error = validate()
        if error < best:
            best, kept = error, model.table
    model.table = kept
    return before if kept is None else best


def _add_up(model: LinearOutput, objective: Objective, batches: Callable[[], Iterable[Batch]]) -> Sums:
    """All of it for the model as it is."""
    centre = sum_over_processes(_look(model, objective, next(iter(batches())))[1].mean(dim=0)) / processes()
    centre[-1] = 0
    values = objective.points[..., 0].numel() * len(objective.scale)
    gram, target, squares = (centre.new_zeros(size) for size in (2 * centre.shape, (len(centre), values), ()))
    for batch in batches():
        u, c = _look(model, objective, batch)
        roots = weight_roots(objective, u, batch.targets, batch.norms)
        rows, R = roots * (c - centre), roots * (batch.targets - u).flatten(1).double()
        gram.addmm_(rows.mT, rows)
        target.addmm_(rows.mT, R)
        squares += R.square().sum()
    basis, eigenvalues = diagonalise(sum_over_processes(gram))
    projections = basis.mT @ sum_over_processes(target)
    return Sums(centre, basis, eigenvalues, projections, projections @ projections.mT, sum_over_processes(squares))


def _look(
    model: LinearOutput, objective: Objective, batch: Batch
) -> tuple[Float[Tensor, "batch *space out_channels"], Float[Tensor, "batch features"]]:
    """u, and ∫ (h, 1) in float64."""
    with model.watch_last() as seen:
        u = model(batch.inputs, objective.points, objective.weights)
    return u, pool(seen[0][..., :-1], objective.weights.reshape(1, -1)).double()


def _build_table(sums: Sums, ridge: float, points: Float[Tensor, "n dim"]) -> TabulatedKernel:
    """The leading principal components of Wᵀ c under the weights w_i.

    With diag(√λ/(λ + ρ)) Y = Σ_k U_k s_k φ_kᵀ, what they keep of W is Σ_k r_k φ_kᵀ, r_k = W φ_k.
    """
    damped = 1 / (sums.values + ridge)
    stretch = (sums.values.sqrt() * damped).unsqueeze(-1)
    squares, U = (t.flip(-1) for t in torch.linalg.eigh(stretch * sums.products * stretch.mT))
    remaining = sums.squares - ((2 - sums.values * damped) * damped * sums.products.diagonal()).sum()
    left_out = squares.flip(0).cumsum(0).flip(0)
    real = squares > ROUNDING * squares[0]
    rank = max(1, int((real & (left_out > LEFT_OUT * remaining)).sum()))
    mixing = stretch * U[:, :rank] / squares[:rank].clamp_min(torch.finfo(torch.float64).tiny).sqrt()  # φ = mixingᵀ Y
    rows = (sums.basis @ (damped.unsqueeze(-1) * (sums.products @ mixing))).mT
    functions = (mixing.mT @ sums.projections).reshape(rank, len(points), -1)
    return TabulatedKernel(*(part.to(points.dtype) for part in (points, sums.centre, rows, functions)))
