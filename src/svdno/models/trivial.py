"""Methods without training that every comparison shows: training mean, nearest neighbour, POD + linear regression."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from svdno.errors import InputError
from svdno.models.fitted import Fitted
from svdno.models.pod_regression import PODRegression

# Bytes of a training set that the nearest neighbour may keep: beyond, its file is no longer one to store for each run.
LARGEST = 8_000_000_000


class TrainingMean(Fitted):
    """The mean of all training outputs, whatever the input: û(x) = 1/n Σᵢ uᵢ(x)."""

    keeps = ("mean",)
    mean: Tensor

    def __init__(self, in_channels: int, out_channels: int, dim: int) -> None:
        super().__init__(in_channels, out_channels, dim)

    def fit(self, inputs: Tensor, targets: Tensor, validate: Callable[[], float]) -> None:
        """Take the mean."""
        self.keep("mean", targets.mean(dim=0))

    def map_fields(self, a: Float[Tensor, "batch *space in_channels"]) -> Float[Tensor, "batch *space out_channels"]:
        """The mean, once for each input."""
        return self.mean.expand(len(a), *self.mean.shape)


class NearestNeighbour(Fitted):
    """The output of the training sample with the nearest input: û = u_j with j = argminᵢ ‖a − aᵢ‖₂.

    It keeps the training set.
    """

    keeps = ("inputs", "outputs")
    inputs: Tensor
    outputs: Tensor

    def __init__(self, in_channels: int, out_channels: int, dim: int) -> None:
        super().__init__(in_channels, out_channels, dim)

    def fit(self, inputs: Tensor, targets: Tensor, validate: Callable[[], float]) -> None:
        """Keep all pairs."""
        size = inputs.nbytes + targets.nbytes
        if size > LARGEST:
            raise InputError(
                f"the nearest neighbour keeps the training set, which may have {LARGEST / 1e9:.1f} GB, "
                f"got {size / 1e9:.1f} GB. Use fewer samples, or set data.time_stride or data.space_stride."
            )
        self.keep("inputs", inputs)
        self.keep("outputs", targets)

    def map_fields(self, a: Float[Tensor, "batch *space in_channels"]) -> Float[Tensor, "batch *space out_channels"]:
        """Look up the nearest sample."""
        # Distances from differences: those from products cannot tell close neighbours apart in float32.
        exact = "donot_use_mm_for_euclid_dist"
        distances = torch.cdist(a.flatten(1), self.inputs.flatten(1), compute_mode=exact)
        return self.outputs[distances.argmin(dim=1)]


# Name in a recipe → method.
TRIVIAL: dict[str, type[Fitted]] = {
    "training-mean": TrainingMean,
    "nearest-neighbour": NearestNeighbour,
    "pod-regression": PODRegression,
}
