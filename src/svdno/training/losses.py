"""What training minimises."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from svdno.models import SVDNO
from svdno.training.surrogate import Surrogate


def relative_l2(
    prediction: Float[Tensor, "batch *axes"], truth: Float[Tensor, "batch *axes"]
) -> Float[Tensor, " batch"]:
    """‖û_i − u_i‖₂ / ‖u_i‖₂ for each sample, over all its times, points and fields."""
    return torch.linalg.vector_norm((prediction - truth).flatten(1), dim=1) / torch.linalg.vector_norm(
        truth.flatten(1), dim=1
    )


class Objective(nn.Module):
    """Loss = mean relative L2 error in physical units + weight × the model's own penalty (L_ortho).

    A module of its own, so that a wrapper around it sees one forward pass for both terms.
    """

    def __init__(self, surrogate: Surrogate, penalty: float) -> None:
        super().__init__()
        self.model = surrogate.model
        self.surrogate = surrogate
        self.penalty = penalty

    def forward(self, a: Tensor, u: Tensor, points: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, error and penalty on one batch of normalised inputs and raw outputs."""
        if isinstance(self.model, SVDNO):
            y, penalty = self.model.forward_with_penalty(a, points, weights)
        else:
            y = self.model(a, points, weights)
            penalty = y.new_zeros(())
        error = relative_l2(self.surrogate.as_frames(y), u).mean()
        return error + self.penalty * penalty, error, penalty
