"""Weights averaged over the last steps: they do not jitter with the learning rate as the weights themselves do."""

from copy import deepcopy

import torch
from torch import nn


class AveragedModel:
    """θ̄ ← β θ̄ + (1 − β) θ after every step, in a copy of the model; with β = 0 the model itself.

    model: the one whose predictions count
    """

    def __init__(self, trained: nn.Module, decay: float) -> None:
        self.trained, self.decay = trained, decay
        self.model = deepcopy(trained) if decay else trained

    @torch.no_grad()
    def update(self) -> None:
        """Take in the present weights; what is not trained, such as running statistics, is copied."""
        if not self.decay:
            return
        torch._foreach_lerp_(list(self.model.parameters()), list(self.trained.parameters()), 1 - self.decay)
        for ours, theirs in zip(self.model.buffers(), self.trained.buffers(), strict=True):
            ours.copy_(theirs)
