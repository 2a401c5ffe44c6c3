"""A linear layer for what the data say, which keeps their digits where the products of a GPU round."""

import torch
from jaxtyping import Float
from torch import Tensor

from svdno.models.aligned_linear import AlignedLinear

# Sign, exponent and the first 7 digits of a float32: a number that bfloat16 and TF32 hold exactly.
LEADING = -(1 << 16)


class InputLinear(AlignedLinear):
    """W x + b of few components x; on a GPU as W hi + W lo + b with x = hi + lo.

    TF32 rounds each factor of a product to 11 digits and bfloat16 to 8, which to the data is noise of 0.03 and 0.2 %,
    and more in their differences. Of hi and lo, neither has more digits than that.
    """

    def apply_aligned(self, x: Float[Tensor, "*points in_channels"]) -> Float[Tensor, "*points out_channels"]:
        """The layer for twice the components, which has each column of W twice."""
        return self._multiply(torch.cat([self.weight, self.weight], dim=-1), split_digits(x))


def split_digits(x: Float[Tensor, "*points channels"]) -> Float[Tensor, "*points twice"]:
    """(hi, lo) with x = hi + lo, hi the leading digits of each float32 number; of others, all digits."""
    if x.dtype != torch.float32:
        return torch.cat([x, torch.zeros_like(x)], dim=-1)
    hi = (x.detach().contiguous().view(torch.int32) & LEADING).view(torch.float32)
    return torch.cat([hi, x - hi], dim=-1)
