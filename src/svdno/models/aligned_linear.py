"""A linear layer for counts of components that a GPU's matrix units do not like."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

# A count that is no multiple of 8 puts matrix products on a slower path of the GPU.
ALIGNMENT = 8


class AlignedLinear(nn.Linear):
    """W x + b; on a GPU with zeros appended to x and to the result until their components are multiples of 8."""

    def forward(self, x: Float[Tensor, "*points in_channels"]) -> Float[Tensor, "*points out_channels"]:
        """Apply it at each point."""
        return aligned_linear(x, self.weight, self.bias) if x.is_cuda else super().forward(x)


def aligned_linear(
    x: Float[Tensor, "*points in_channels"],
    weight: Float[Tensor, "out_channels in_channels"],
    bias: Float[Tensor, " out_channels"] | None,
) -> Float[Tensor, "*points out_channels"]:
    """W x + b by way of the larger matrix; compiled, a single component as a sum that takes in what comes before it."""
    if torch.compiler.is_compiling() and len(weight) == 1:
        y = (x * weight[0]).sum(dim=-1, keepdim=True)
        return y if bias is None else y + bias
    wider, higher = missing(x.shape[-1]), missing(len(weight))
    padded_bias = None if bias is None else F.pad(bias, (0, higher))
    y = F.linear(F.pad(x, (0, wider)) if wider else x, F.pad(weight, (0, wider, 0, higher)), padded_bias)
    return y[..., : len(weight)]


def missing(count: int) -> int:
    """How many components to append."""
    return -count % ALIGNMENT
