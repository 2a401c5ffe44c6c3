"""Errors of predictions, (samples, times, *space, fields) against the truth of the same shape."""

import torch
from jaxtyping import Float
from torch import Tensor

from svdno.training.losses import relative_l2


def linf(
    prediction: Float[Tensor, "samples *axes"], truth: Float[Tensor, "samples *axes"]
) -> Float[Tensor, " samples"]:
    """max |û − u| for each sample, in physical units."""
    return (prediction - truth).abs().flatten(1).amax(dim=1)


def relative_l2_per_time(
    prediction: Float[Tensor, "samples times *axes"], truth: Float[Tensor, "samples times *axes"]
) -> Float[Tensor, " times"]:
    """Mean over the samples of ‖û(t) − u(t)‖₂ / ‖u(t)‖₂ at each time."""
    return torch.stack([relative_l2(prediction[:, t], truth[:, t]).mean() for t in range(truth.shape[1])])


def summarise(values: Float[Tensor, " samples"]) -> dict[str, float]:
    """Mean, median, 90th percentile and largest value."""
    values = values.double()
    return {
        "mean": values.mean().item(),
        "median": values.median().item(),
        "p90": values.quantile(0.9).item(),
        "max": values.max().item(),
    }
