"""Waves of the position: products over the axes of 1, sin k·x_i and cos k·x_i."""

from itertools import product
from math import pi

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Waves(nn.Module):
    """Π_i f_i(x_i) for all f_i ∈ {1, sin ωk·, cos ωk·} whose orders k add up to at most `frequencies`; 1 comes first.

    On circles ω = 2π; elsewhere ω = π, and x itself comes last.

    dim: components of x, in [0,1]
    frequencies: largest sum of orders, 0 for 1 and x alone
    periodic: whether the axes are circles
    """

    selection: Tensor

    def __init__(self, dim: int, frequencies: int, periodic: bool) -> None:
        super().__init__()
        self.frequencies = frequencies
        self.rate = 2 * pi if periodic else pi
        self.with_x = not (periodic and frequencies)
        orders = [0, *range(1, frequencies + 1), *range(1, frequencies + 1)]
        chosen = [
            which for which in product(range(len(orders)), repeat=dim) if sum(orders[i] for i in which) <= frequencies
        ]
        self.register_buffer("selection", torch.tensor(chosen), persistent=False)
        self.count = len(chosen) + (dim if self.with_x else 0)

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch waves"]:
        """Evaluate them at each point."""
        k = torch.arange(1, self.frequencies + 1, dtype=x.dtype, device=x.device)
        phase = self.rate * x.unsqueeze(-1) * k
        axes = torch.cat([torch.ones_like(x).unsqueeze(-1), torch.sin(phase), torch.cos(phase)], dim=-1)
        waves = torch.stack([axes[..., i, :][..., which] for i, which in enumerate(self.selection.T)]).prod(dim=0)
        return torch.cat([waves, x], dim=-1) if self.with_x else waves
