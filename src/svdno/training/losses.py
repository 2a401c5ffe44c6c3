"""What training minimises."""

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from svdno.errors import InputError


def relative_l2(
    prediction: Float[Tensor, "batch *axes"], truth: Float[Tensor, "batch *axes"]
) -> Float[Tensor, " batch"]:
    """‖û_i − u_i‖₂ / ‖u_i‖₂ for each sample, over all its times, points and fields."""
    return torch.linalg.vector_norm((prediction - truth).flatten(1), dim=1) / torch.linalg.vector_norm(
        truth.flatten(1), dim=1
    )


def relative_h1(
    prediction: Float[Tensor, "batch *space channels"], truth: Float[Tensor, "batch *space channels"]
) -> Float[Tensor, ""]:
    """Mean of ‖∇û_i − ∇u_i‖₂ / ‖∇u_i‖₂ with differences between neighbouring points for ∇."""
    wrong, whole = (
        sum(torch.diff(f, dim=axis).square().flatten(1).sum(dim=1) for axis in range(1, f.ndim - 1))
        for f in (prediction - truth, truth)
    )
    return (wrong / whole).sqrt().mean()  # type: ignore[union-attr]


# Further terms of the loss, of prediction and truth in normalised units; a new one is one function and one line.
TERMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"h1": relative_h1}


@runtime_checkable
class Penalised(Protocol):
    """A model with a penalty of its own, which it gets from the same pass as its prediction."""

    def forward_with_penalty(self, a: Tensor, points: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Prediction and penalty."""


class Objective(nn.Module):
    """Loss = mean relative L2 error in physical units + weight × the model's own penalty (L_ortho) + further terms.

    A module of its own, so that a wrapper around it (DDP, torch.compile) sees one forward pass for all terms.

    points, weights: where the fields are sampled, as the model sees it
    scale: standard deviation of each output channel, which turns errors of normalised fields into physical ones
    penalty: weight of the model's penalty
    terms: name in TERMS → weight
    """

    points: Tensor
    weights: Tensor
    scale: Tensor

    def __init__(
        self,
        model: nn.Module,
        points: Tensor,
        weights: Tensor,
        scale: Float[Tensor, " channels"],
        penalty: float,
        terms: Mapping[str, float],
    ) -> None:
        super().__init__()
        for name in terms:
            if name not in TERMS:
                raise InputError(f"unknown term {name!r} in training.terms; there is {', '.join(TERMS)}.")
        self.model = model
        self.penalty = penalty
        self.terms = dict(terms)
        self.points, self.weights, self.scale = points, weights, scale

    def errors(
        self,
        y: Float[Tensor, "batch *space channels"],
        truth: Float[Tensor, "batch *space channels"],
        norms: Float[Tensor, " batch"],
    ) -> Float[Tensor, " batch"]:
        """Relative L2 error of each sample, from normalised fields and ‖u_i‖₂ in physical units."""
        return torch.linalg.vector_norm(((y - truth) * self.scale).flatten(1), dim=1) / norms

    def forward(self, a: Tensor, truth: Tensor, norms: Tensor) -> Float[Tensor, " 3"]:
        """Loss, error and penalty on one batch."""
        if isinstance(self.model, Penalised):
            y, penalty = self.model.forward_with_penalty(a, self.points, self.weights)
        else:
            y = self.model(a, self.points, self.weights)
            penalty = norms.new_zeros(())
        y = y.to(truth.dtype)
        error = self.errors(y, truth, norms).mean()
        loss = error + self.penalty * penalty
        for name, weight in self.terms.items():
            loss = loss + weight * TERMS[name](y, truth)
        return torch.stack([loss, error.detach(), penalty.detach()])
