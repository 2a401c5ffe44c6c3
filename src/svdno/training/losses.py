"""What training minimises."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from svdno.data.normalizer import Normalizer
from svdno.training.surrogate import Surrogate
from svdno.training.terms import Fields, Setting, build_terms


def relative_l2(
    prediction: Float[Tensor, "batch *axes"], truth: Float[Tensor, "batch *axes"]
) -> Float[Tensor, " batch"]:
    """‖û_i − u_i‖₂ / ‖u_i‖₂ for each sample, over all its times, points and fields."""
    return torch.linalg.vector_norm((prediction - truth).flatten(1), dim=1) / torch.linalg.vector_norm(
        truth.flatten(1), dim=1
    )


@runtime_checkable
class Penalised(Protocol):
    """A model with a penalty of its own, which it gets from the same pass as its prediction."""

    def forward_with_penalty(self, a: Tensor, points: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Prediction and penalty."""


class Objective(nn.Module):
    """Loss = mean relative L2 error in physical units + weight × the model's own penalty (L_ortho) + further terms.

    A module of its own, so that a wrapper around it (DDP, torch.compile) sees one forward pass for all terms.

    surrogate: whose model is trained
    penalty: weight of the model's penalty
    terms: name in TERMS → weight
    equation: that the data solve, for the terms that ask
    """

    def __init__(
        self, surrogate: Surrogate, penalty: float, terms: Mapping[str, float], equation: Any | None = None
    ) -> None:
        super().__init__()
        self.model = surrogate.model
        self.penalty = penalty
        self.points, self.weights = surrogate.locate(surrogate.grid)
        self.input_scale = _place(surrogate.input_normalizer, self.points)
        self.output_scale = _place(surrogate.output_normalizer, self.points)
        self.times = len(surrogate.times)
        self.scale = self.output_scale[1].repeat(self.times)
        s = surrogate
        setting = Setting(s.grid, s.times, s.input_normalizer, s.output_normalizer, equation)
        self.terms = build_terms(terms, setting)

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
        if self.terms:
            batch = Fields(self._as_frames(y), self._as_frames(truth), _decode(a, *self.input_scale), norms)
            for weight, term in self.terms:
                loss = loss + weight * term(batch).mean()
        return torch.stack([loss, error.detach(), penalty.detach()])

    def _as_frames(self, y: Float[Tensor, "batch *space channels"]) -> Float[Tensor, "batch times *space fields"]:
        """The model's output in physical units, times first."""
        return _decode(y.unflatten(-1, (self.times, -1)).movedim(-2, 1), *self.output_scale)


def _place(normalizer: Normalizer, like: Tensor) -> tuple[Tensor, Tensor]:
    """Means and standard deviations where the fields are: a recorded step must not wait for the host."""
    return like.new_tensor(normalizer.mean), like.new_tensor(normalizer.std)


def _decode(y: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return y * std + mean
