"""A linear layer for what the data say, which keeps their digits where the products of a GPU round."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from svdno.models.aligned_linear import aligned_linear

# Sign, exponent and the first 7 digits of a float32: a number that bfloat16 and TF32 hold exactly.
LEADING = -(1 << 16)

# Components up to which a sum of products costs less than a pass over the result.
FEW = 4


class InputLinear(nn.Linear):
    """W x + b; on a GPU as W hi + W lo + b with x = hi + lo.

    TF32 rounds each factor of a product to 11 digits and bfloat16 to 8, which to the data is noise of up to 0.05 and
    0.4 %, and more in their differences. Of hi and lo, neither has more digits than that.

    data: how many of the components are data, the first ones; default: all
    """

    def __init__(self, in_channels: int, out_channels: int, bias: bool = True, data: int | None = None) -> None:
        super().__init__(in_channels, out_channels, bias)
        self.data = in_channels if data is None else data

    def forward(self, x: Float[Tensor, "*points in_channels"]) -> Float[Tensor, "*points out_channels"]:
        """Apply it at each point."""
        return input_linear(x, self.weight, self.bias, self.data) if x.is_cuda else super().forward(x)


def input_linear(
    x: Float[Tensor, "*points in_channels"],
    weight: Float[Tensor, "out_channels in_channels"],
    bias: Float[Tensor, " out_channels"] | None,
    data: int,
) -> Float[Tensor, "*points out_channels"]:
    """W x + b; compiled, for few components, as the sum of their products in float32, which what follows takes in.

    Else the layer for hi, lo and what is no data, which has the columns of the data twice.
    """
    if torch.compiler.is_compiling() and x.shape[-1] <= FEW:
        y = torch.zeros_like(weight[:, 0]) if bias is None else bias
        for k in range(x.shape[-1]):
            y = y + x[..., k, None] * weight[:, k]
        device = x.device.type
        return y.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else y
    parts = torch.cat([split_digits(x[..., :data]), x[..., data:]], dim=-1)
    return aligned_linear(parts, torch.cat([weight[:, :data], weight], dim=-1), bias)


def split_digits(x: Float[Tensor, "*points channels"]) -> Float[Tensor, "*points twice"]:
    """(hi, lo) with x = hi + lo, hi the leading digits of each float32 number; of others, all digits."""
    if x.dtype != torch.float32:
        return torch.cat([x, torch.zeros_like(x)], dim=-1)
    hi = (x.detach().contiguous().view(torch.int32) & LEADING).view(torch.float32)
    return torch.cat([hi, x - hi], dim=-1)
