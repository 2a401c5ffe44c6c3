"""Models that are fitted in closed form instead of trained.

They keep what they find as parameters, so that files, devices and counts treat them like any other model.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from svdno.errors import InputError
from svdno.models.inputs import check_counts, read_samples


class Fitted(nn.Module, ABC):
    """A map of whole fields that is fitted to pairs at once: what it keeps has the sizes of the data.

    in_channels, out_channels: components of a and u
    dim: space dimensions, 1 to 3
    keeps: names of the parameters, the first of which has the shape (*, *space, channels)
    """

    keeps: tuple[str, ...]

    def __init__(self, in_channels: int, out_channels: int, dim: int, **settings: Any) -> None:
        channels = {"in_channels": in_channels, "out_channels": out_channels}
        check_counts({**channels, "dim": dim}, *channels)
        super().__init__()
        self.arguments: dict[str, Any] = {**channels, "dim": dim, **settings}
        for name in self.keeps:
            self.keep(name, torch.empty(0))

    def keep(self, name: str, value: Tensor) -> None:
        """Make the value a parameter that no optimiser changes."""
        setattr(self, name, nn.Parameter(value, requires_grad=False))

    def load_state_dict(self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False) -> Any:
        """Load values of any size: how many there are, only the file knows."""
        for name in self.keeps:
            if name in state_dict:
                getattr(self, name).data = getattr(self, name).new_empty(state_dict[name].shape)
        return super().load_state_dict(state_dict, strict, assign)

    @abstractmethod
    def fit(self, inputs: Tensor, targets: Tensor, validate: Callable[[], float]) -> None:
        """Fit to normalised (samples, *space, channels) pairs.

        validate: error on held-out samples of the method as it is at the moment, for what has to be chosen
        """

    @abstractmethod
    def map_fields(self, a: Float[Tensor, "batch *space in_channels"]) -> Float[Tensor, "batch *space out_channels"]:
        """Evaluate on the grid of the fit."""

    def forward(
        self, a: Float[Tensor, "batch *space channels"], points: Tensor | None = None, weights: Tensor | None = None
    ) -> Float[Tensor, "batch *space out_channels"]:
        """Evaluate û = G(a) on the grid of the fit; `points` and `weights` make no difference."""
        first: Tensor = getattr(self, self.keeps[0])
        dim, in_channels = self.arguments["dim"], self.arguments["in_channels"]
        space = read_samples(a, points, weights, dim=dim, in_channels=in_channels, dtype=first.dtype).space
        if not first.numel():
            raise InputError("the method is not fitted yet: it has seen no samples. Call fit(inputs, targets) first.")
        fitted = tuple(first.shape[-1 - dim : -1])
        if space != fitted:
            raise InputError(
                f"the method is fitted to a grid of {_times(fitted)} points and knows no other, got {_times(space)}. "
                "Resample the input to that grid, or use SVDNO or FNO for any resolution."
            )
        return self.map_fields(a)


def _times(space: tuple[int, ...]) -> str:
    return " × ".join(map(str, space))
