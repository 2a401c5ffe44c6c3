"""The ablation without an SVD: κ̃(z,z′) = MLP(z,z′) ∈ R^{d×d}, integrated over all pairs of points.

The last layer of the MLP is linear, κ̃(z,z′) = Σ_k T_k g_k(z,z′) with g = (features, 1), so

    (K v)(z_i) = Σ_k T_k Y[i,k],    Y[i,k] = Σ_j w_j g_k(z_i,z_j) v(z_j),

which costs O(n² H d) and never holds a d×d matrix per pair. Rows i are done in blocks that are computed again in
the backward pass, so memory grows with n, not n².
"""

from math import pi, sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from svdno.models.singular_nets import SineMLP

# Numbers that the features of one block of rows may hold: 64 MiB in float32.
BLOCK_SIZE = 2**24


class DenseKernel(nn.Module):
    """κ̃(z,z′) by a sine MLP of both augmented coordinates.

    in_channels: numbers in one augmented coordinate z
    channels: d, width of the fields the kernel acts on
    layers, features: depth and width H of the MLP
    """

    def __init__(self, in_channels: int, channels: int, *, layers: int, features: int) -> None:
        super().__init__()
        # The first layer of MLP(z,z′) is a sum of two parts; only the second half, z′, carries a bias.
        self.from_output = nn.Linear(in_channels, features, bias=False)
        self.from_input = nn.Linear(in_channels, features)
        for linear in (self.from_output, self.from_input):
            nn.init.uniform_(linear.weight, -sqrt(3 / in_channels), sqrt(3 / in_channels))
        nn.init.uniform_(self.from_input.bias, -pi, pi)
        self.hidden = SineMLP(features, features, layers - 1)
        self.head = nn.Parameter(torch.randn(features + 1, channels, channels) / sqrt(features * channels))

    def prepare(self, z: Tensor, w: Tensor, *, with_grams: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Evaluate what depends on one point only; there are no Gram matrices."""
        return self.from_output(z), self.from_input(z), w.unsqueeze(-1)

    def forward(
        self,
        v: Float[Tensor, "batch n d"],
        prepared: tuple[Tensor, Tensor, Tensor],
        sigma: None = None,
        bias: Float[Tensor, " d"] | None = None,
    ) -> Float[Tensor, "batch n d"]:
        """(K v)(z_i) = Σ_j w_j κ̃(z_i,z_j) v(z_j) at every point, and `bias`."""
        batch, n, _ = v.shape
        rows = max(1, BLOCK_SIZE // (batch * n * (self.head.shape[0] - 1)))
        from_output, from_input, w = prepared
        weighted = w * v
        blocks = [
            checkpoint(self._rows, block, from_input, weighted, use_reentrant=False)
            for block in from_output.split(rows, dim=1)
        ]
        Kv = torch.cat(blocks, dim=1)
        return Kv if bias is None else Kv + bias

    def _rows(self, from_output: Tensor, from_input: Tensor, weighted: Tensor) -> Tensor:
        g = self.hidden(torch.sin(from_output.unsqueeze(2) + from_input.unsqueeze(1)).flatten(1, 2))
        g = g.unflatten(1, (from_output.shape[1], from_input.shape[1]))
        Y = torch.einsum("bijk,bjc->bikc", g, weighted)
        constant = torch.einsum("bjc,dc->bd", weighted, self.head[-1])
        return torch.einsum("bikc,kdc->bid", Y, self.head[:-1]) + constant.unsqueeze(1)
