"""Models that live on uniform grids: what they all do with an input before their own map."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from svdno.errors import InputError
from svdno.models.inputs import Samples, read_samples


class GridModel(nn.Module, ABC):
    """Checks the input, and hands it to `map_grid`.

    title: what messages call the model
    arguments: of the constructor, `dim` and `in_channels` among them
    """

    title: ClassVar[str]
    arguments: dict[str, Any]

    def forward(
        self,
        a: Float[Tensor, "batch *space in_channels"],
        points: Float[Tensor, "..."] | None = None,
        weights: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch *space out_channels"]:
        """Evaluate u = G(a) on a uniform grid; `weights` make no difference.

        a: (batch, *space, channels)
        points: coordinates of the grid; default: [0,1]^dim
        """
        dim, in_channels = self.arguments["dim"], self.arguments["in_channels"]
        dtype = next(self.parameters()).dtype
        samples = read_samples(a, points, weights, dim=dim, in_channels=in_channels, dtype=dtype)
        if len(samples.space) != dim:
            raise InputError(
                f"{self.title} needs a uniform grid of {dim} axes, got a cloud of {samples.space[0]} points. "
                "Use SVDNO for point clouds."
            )
        return self.map_grid(samples)

    @abstractmethod
    def map_grid(self, samples: Samples) -> Float[Tensor, "batch *space out_channels"]:
        """The model's own map of a field that is on a grid of `dim` axes."""
