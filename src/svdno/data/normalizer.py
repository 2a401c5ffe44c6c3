"""Fields with mean 0 and variance 1: what nets are made for."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Normalizer:
    """y = (u − mean) / std, one mean and one standard deviation per field (the last axis)."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def fit(cls, chunks: Iterable[Float[Tensor, "_ *rest fields"]]) -> "Normalizer":
        """Take the statistics of fields that come in chunks of samples; one that is constant is only shifted."""
        shift, count = torch.zeros(()), 0
        for i, chunk in enumerate(chunks):
            flat = chunk.flatten(0, -2).to(torch.float64)
            if i == 0:  # sums about a value near the mean lose no digits
                shift = flat.mean(dim=0)
                total, squares, largest = (torch.zeros_like(shift) for _ in range(3))
            total += (flat - shift).sum(dim=0)
            squares += (flat - shift).square().sum(dim=0)
            largest = torch.maximum(largest, flat.abs().amax(dim=0))
            count += len(flat)
        mean = total / count
        std = (squares / count - mean.square()).clamp_min(0).sqrt()
        std = torch.where(std > 1e-12 * largest, std, 1.0)
        return cls(tuple((shift + mean).tolist()), tuple(std.tolist()))

    def encode(self, u: Float[Tensor, "*axes fields"]) -> Float[Tensor, "*axes fields"]:
        """Physical units to normalised ones."""
        return (u - u.new_tensor(self.mean)) / u.new_tensor(self.std)

    def decode(self, y: Float[Tensor, "*axes fields"]) -> Float[Tensor, "*axes fields"]:
        """Normalised units to physical ones."""
        return y * y.new_tensor(self.std) + y.new_tensor(self.mean)
