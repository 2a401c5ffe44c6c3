"""The weights that a model's output is linear in, found by least squares where its training leaves them.

Of a trained model u = Θᵀ f (see `LinearOutput`), with R_i the error of sample i, the change D of Θ with the smallest
Σ_i ‖R_i − f_i D‖/‖u_i‖ is that of Σ_i w_i ‖R_i − f_i D‖² with w_i = 1/(‖u_i‖ ‖R_i − f_i D‖). So the normal equations
are solved with the weights of the errors as they are, then with those that are left. What only weak features can tell
is out of reach for steps of the size of a learning rate; here it is a matter of digits, of which float64 has enough.

Features change with the grid, and weights that tell samples apart by the last of their digits would make much of that.
So each feature has a ridge of its own, a part of the squares of its change when every second point is left out.
"""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from svdno.errors import InputError
from svdno.models.linear_output import LinearOutput
from svdno.training.batches import Batch
from svdno.training.distributed import sum_over_processes
from svdno.training.losses import Objective
from svdno.training.surrogate import Surrogate

# Times that the normal equations are solved.
ROUNDS = 2

# Candidates for a ridge, as a share of the diagonal; that of the smallest validation error is taken.
RIDGES = (1e-12, 1e-9, 1e-6)

# Squares of a feature's error over those of its change when the spacing doubles: a rule of third order.
GRID_ERROR = 1 / 64


def check_refit(model: torch.nn.Module, setting: str = "refit") -> LinearOutput:
    """The model, if there is something to solve for, as the setting asks."""
    if not isinstance(model, LinearOutput):
        raise InputError(
            f"training.{setting} needs a model that ends in a linear layer, which least squares can find: svdno, "
            f"svdno-plus, fno or uno, got {type(model).__name__}."
        )
    return model


@torch.no_grad()
def refit(
    surrogate: Surrogate,
    objective: Objective,
    batches: Callable[[], Iterable[Batch]],
    validate: Callable[[], float],
) -> float:
    """Change the model in place as long as that lowers the validation error, which is returned.

    objective: of the surrogate
    batches: the training samples, this process's share of them, anew with each call
    validate: validation error of the model as it is at the moment
    """
    model, coarse = check_refit(surrogate.model), find_coarse(surrogate)
    best, weights = validate(), _copy(model)
    for _ in range(ROUNDS):
        gram, target = _normal_equations(model, objective, batches(), coarse)
        start = _copy(model)
        for change in solve(gram, target):
            model.load_state_dict(start)
            model.change_output(change.to(next(model.parameters()).dtype))
            error = validate()
            if error < best:
                best, weights = error, _copy(model)
        model.load_state_dict(weights)
    return best


def _copy(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def find_coarse(surrogate: Surrogate) -> tuple[Tensor, Tensor] | None:
    """Every second point of the grid and their weights, where there are such and the model takes so few."""
    try:
        grid = surrogate.grid.strided(2)
        points, weights = surrogate.locate(grid)
        surrogate.model(points.new_zeros(1, *grid.shape, len(surrogate.input_fields)), points, weights)
    except InputError:
        return None
    return points, weights


def _normal_equations(
    model: LinearOutput, objective: Objective, batches: Iterable[Batch], coarse: tuple[Tensor, Tensor] | None
) -> tuple[Float[Tensor, "features features"], Float[Tensor, "features out_channels"]]:
    """Σ_i w_i f_i f_iᵀ, the ridges of the features included, and Σ_i w_i f_i R_i, in float64.

    coarse: every second point and their weights, if they are known
    """
    x, w = objective.points, objective.weights
    every_second = (slice(None, None, 2),) * (x.ndim - 1)
    places = torch.arange(x[..., 0].numel(), device=x.device).reshape(x.shape[:-1])
    shared = places[every_second].flatten()  # where the coarse points are among all
    sums: list[Tensor] = []
    for a, truth, norms in batches:
        u, f = model.output_features(a, x, w)
        roots = weight_roots(objective, u, truth, norms).unsqueeze(-1)
        parts = f.sums(roots, (truth - u).flatten(1, -2))
        if coarse is not None:
            changes = f.at(shared).squared_changes(model.output_features(a[:, *every_second], *coarse)[1], roots)
            parts[0].diagonal().add_(GRID_ERROR * places.numel() / len(shared) * changes)
        sums = [total + part for total, part in zip(sums, parts, strict=True)] if sums else list(parts)
    gram, target = (sum_over_processes(total) for total in sums)
    return gram, target


def weight_roots(objective: Objective, u: Tensor, truth: Tensor, norms: Tensor) -> Float[Tensor, "batch 1"]:
    """√w_i for the predictions u of a batch, in float64."""
    errors = objective.errors(u, truth, norms).double().clamp_min(torch.finfo(torch.float64).tiny)
    return (norms.double().square() * errors).rsqrt().unsqueeze(-1)


def solve(gram: Tensor, target: Tensor) -> Iterable[Float[Tensor, "features out_channels"]]:
    """The solutions for all ridges."""
    basis, values = diagonalise(gram)
    projected = basis.mT @ target
    for ridge in RIDGES:
        yield basis @ (projected / (values + ridge).unsqueeze(-1))


def diagonalise(gram: Tensor) -> tuple[Float[Tensor, "features features"], Float[Tensor, " features"]]:
    """B and λ with Bᵀ G B = diag(λ): eigenvectors for features of one size; those that are nowhere have no part."""
    size = gram.diagonal().sqrt()
    scale = torch.where(size > 0, 1 / size, 0.0).unsqueeze(-1)
    values, vectors = torch.linalg.eigh(scale * gram * scale.mT)
    return scale * vectors, values.clamp_min(0)
