"""Models whose output is linear in their last weights: u(z) = Θᵀ f(z), so that least squares can find Θ."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from svdno.models.inputs import Samples
from svdno.models.output_features import OutputFeatures
from svdno.models.svd_kernel import KernelSVD
from svdno.models.tabulated_kernel import TabulatedKernel


class LinearOutput(nn.Module):
    """A model that ends in `project`, whose last layer is linear: f are what that layer sees, and 1.

    project: the last layers
    table: a kernel of f beside the last layer, where training ends with one
    """

    project: nn.Sequential

    def __init__(self) -> None:
        super().__init__()
        self.table: TabulatedKernel | None = None

    @property
    def last(self) -> nn.Linear:
        """The last layer."""
        layer = self.project[-1]
        assert isinstance(layer, nn.Linear)
        return layer

    def finish(self, v: Float[Tensor, "batch *n d"], samples: Samples) -> Float[Tensor, "batch *n out_channels"]:
        """Θᵀ f of the last latent field, and what the table adds."""
        if self.table is None:
            u: Tensor = self.project(v)
            return u
        h = self.project[:-1](v)
        return self.last(h) + self.table(h.reshape(*samples.a.shape[:2], -1), samples.x, samples.w).reshape(
            *h.shape[:-1], -1
        )

    def table_svd(self, samples: Samples) -> list[KernelSVD]:
        """The SVD of the table on these inputs, if there is one and it knows their points."""
        if self.table is None or not self.table.knows(samples.x).all():
            return []
        return [self.table.svd(samples.w, len(samples.a))]

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
        self, a: Tensor, points: Tensor, weights: Tensor
    ) -> tuple[Float[Tensor, "batch *space out_channels"], OutputFeatures]:
        """u, and f at every point."""
        with self.watch_last() as seen:
            u = self(a, points, weights)
        return u, OutputFeatures.of(seen[0])

    @torch.no_grad()
    def change_output(self, change: Float[Tensor, "features out_channels"]) -> None:
        """Add to Θ."""
        self.last.weight.add_(change[:-1].mT)
        self.last.bias.add_(change[-1])

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Have a table, and one of this size, where the file has it."""
        start = f"{prefix}table."
        table = {key.removeprefix(start): value for key, value in state_dict.items() if key.startswith(start)}
        like = next(self.parameters())
        empty = {key: torch.empty_like(value, device=like.device, dtype=like.dtype) for key, value in table.items()}
        self.table = TabulatedKernel(**empty) if table else None
        super()._load_from_state_dict(state_dict, prefix, *rest)
