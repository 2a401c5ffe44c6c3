"""A linear layer of two inputs, one of which all samples of a batch may share."""

from math import sqrt

from jaxtyping import Float
from torch import Tensor, nn

from svdno.models.aligned_linear import AlignedLinear


class SplitLinear(nn.Module):
    """W (x, h) = W_x x + W_h h, where a position x that is the same for all samples is multiplied only once.

    located: components of x
    channels: components of h
    out_channels: of the result
    """

    def __init__(self, located: int, channels: int, out_channels: int) -> None:
        super().__init__()
        self.located = nn.Linear(located, out_channels, bias=False)
        self.own = AlignedLinear(channels, out_channels, bias=False)
        bound = 1 / sqrt(located + channels)  # as in one layer
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self, x: Float[Tensor, "#batch n located"], h: Float[Tensor, "batch n channels"]
    ) -> Float[Tensor, "batch n out_channels"]:
        """Apply it at each point."""
        y: Tensor = self.own(h) + self.located(x)
        return y
