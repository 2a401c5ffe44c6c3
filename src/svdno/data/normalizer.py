"""Fields with mean 0 and variance 1: what nets are made for."""

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
    def fit(cls, fields: Float[Tensor, "samples *rest fields"]) -> "Normalizer":
        """Take the statistics of the fields; one that is constant is only shifted."""
        flat = fields.flatten(0, -2).to(torch.float64)
        std = flat.std(dim=0, correction=0)
        std = torch.where(std > 1e-12 * flat.abs().amax(dim=0), std, 1.0)
        return cls(tuple(flat.mean(dim=0).tolist()), tuple(std.tolist()))

    def encode(self, u: Float[Tensor, "*axes fields"]) -> Float[Tensor, "*axes fields"]:
        """Physical units to normalised ones."""
        return (u - u.new_tensor(self.mean)) / u.new_tensor(self.std)

    def decode(self, y: Float[Tensor, "*axes fields"]) -> Float[Tensor, "*axes fields"]:
        """Normalised units to physical ones."""
        return y * y.new_tensor(self.std) + y.new_tensor(self.mean)
