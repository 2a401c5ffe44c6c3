"""Weights averaged over the last steps: they do not jitter with the learning rate as the weights themselves do."""

from copy import deepcopy

import torch
from torch import Tensor, nn

# At first the average is that of about a tenth of the steps taken so far, so that the start is soon forgotten.
YOUNG = 10


class AveragedModel:
    """θ̄ ← (1 − w) θ̄ + w θ after step k, w = max(1 − β, 10/(10 + k)), in a copy of the model; β = 0: the model itself.

    model: the one whose predictions count
    """

    def __init__(self, trained: nn.Module, decay: float) -> None:
        self.trained, self.decay = trained, decay
        self.model = deepcopy(trained) if decay else trained
        self.steps = torch.zeros((), device=next(trained.parameters()).device)

    @torch.no_grad()
    def update(self) -> None:
        """Take in the present weights; what is not trained, such as running statistics, is copied."""
        if not self.decay:
            return
        weight = (YOUNG / (YOUNG + self.steps)).clamp_min(1 - self.decay)
        averaged: list[Tensor] = list(self.model.parameters())
        present: list[Tensor] = list(self.trained.parameters())
        torch._foreach_mul_(averaged, 1 - weight)
        torch._foreach_add_(averaged, list(torch._foreach_mul(present, weight)))
        self.steps += 1
        for ours, theirs in zip(self.model.buffers(), self.trained.buffers(), strict=True):
            ours.copy_(theirs)
