"""A linear layer for counts of components that a GPU's matrix units do not like."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

# A count that is no multiple of 8 puts matrix products on a slower path of the GPU.
ALIGNMENT = 8


class AlignedLinear(nn.Linear):
    """W x + b; on a GPU with zeros appended to x and to the result until their components are multiples of 8."""

    def forward(self, x: Float[Tensor, "*points in_channels"]) -> Float[Tensor, "*points out_channels"]:
        """Apply it at each point."""
        return self.apply_aligned(x) if x.is_cuda else super().forward(x)

    def apply_aligned(self, x: Float[Tensor, "*points in_channels"]) -> Float[Tensor, "*points out_channels"]:
        """The same numbers by way of the larger matrix."""
        return self._multiply(self.weight, x)

    def _multiply(self, weight: Tensor, x: Tensor) -> Tensor:
        wider, higher = missing(x.shape[-1]), missing(self.out_features)
        weight = F.pad(weight, (0, wider, 0, higher))
        bias = None if self.bias is None else F.pad(self.bias, (0, higher))
        return F.linear(F.pad(x, (0, wider)) if wider else x, weight, bias)[..., : self.out_features]


def missing(count: int) -> int:
    """How many components to append."""
    return -count % ALIGNMENT
