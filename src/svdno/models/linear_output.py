"""Models whose output is linear in their last weights: u(z) = Θᵀ f(z), so that least squares can find Θ."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class LinearOutput(nn.Module):
    """A model that ends in `project`, whose last layer is linear: f are what that layer sees, and 1.

    project: the last layers
    """

    project: nn.Sequential

    @property
    def last(self) -> nn.Linear:
        """The last layer."""
        layer = self.project[-1]
        assert isinstance(layer, nn.Linear)
        return layer

    @contextmanager
    def watch_last(self) -> Iterator[list[Float[Tensor, "batch n features"]]]:
        """A list of what the last layer sees at each point from now on, and 1."""
        seen: list[Tensor] = []

        def append(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            h = inputs[0]
            seen.append(F.pad(h.reshape(len(h), -1, h.shape[-1]), (0, 1), value=1.0))

        with self.last.register_forward_pre_hook(append):
            yield seen

    def output_features(
        self, a: Tensor, points: Tensor, weights: Tensor, at: Int[Tensor, " some"]
    ) -> tuple[Float[Tensor, "batch *space out_channels"], Float[Tensor, "batch some features"]]:
        """u, and f at some of the points, counted along the flattened grid."""
        with self.watch_last() as seen:
            u = self(a, points, weights)
        return u, seen[0][:, at]

    @torch.no_grad()
    def change_output(self, change: Float[Tensor, "features out_channels"]) -> None:
        """Add to Θ."""
        self.last.weight.add_(change[:-1].mT)
        self.last.bias.add_(change[-1])
