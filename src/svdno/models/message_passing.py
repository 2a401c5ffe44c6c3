"""Layers of the message-passing solver, on torch_geometric; imported only where one is built (extra `baselines`)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing


class MessageLayer(MessagePassing):  # type: ignore[misc]
    """f_i ← norm(f_i + ψ(f_i, mean_j m_ij)) with messages m_ij = φ(f_i, f_j, a_i − a_j, x_i − x_j) from neighbours j.

    φ and ψ have two layers with swish, and the instance norm is over the points of a sample.

    hidden_channels: d, components of f
    z_channels: components of (x, a)
    """

    def __init__(self, hidden_channels: int, z_channels: int) -> None:
        super().__init__(aggr="mean", node_dim=-2)
        self.widths = [hidden_channels, hidden_channels, z_channels]
        self.phi_in = nn.Linear(sum(self.widths), hidden_channels)
        self.phi_out = nn.Linear(hidden_channels, hidden_channels)
        self.psi = nn.Sequential(
            nn.Linear(2 * hidden_channels, hidden_channels),
            nn.SiLU(),
            nn.Linear(hidden_channels, hidden_channels),
            nn.SiLU(),
        )

    def forward(
        self, f: Float[Tensor, "batch n hidden"], z: Float[Tensor, "batch n augmented"], edges: Int[Tensor, "2 edges"]
    ) -> Float[Tensor, "batch n hidden"]:
        """Pass messages along the edges j → i, rows (j, i)."""
        received, sent = self._split(f, z)
        mean = self.propagate(edges, received=received, sent=sent)
        f = f + self.psi(torch.cat([f, mean], dim=-1))
        return F.instance_norm(f.mT).mT

    def message(self, received_i: Tensor, sent_j: Tensor) -> Tensor:
        """m_ij for each edge."""
        return F.silu(self.phi_out(F.silu(received_i + sent_j)))

    def _split(self, f: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """The first layer of φ as a part of the receiver and one of the sender.

        It is linear: W (f_i, f_j, z_i − z_j) + b = (W₁f_i + W₃z_i + b) + (W₂f_j − W₃z_j). So it costs one product per
        point instead of one per edge, and no edge carries its inputs.
        """
        # z_i − z_j is a small difference of neighbours, which bf16 would round away.
        with torch.autocast(f.device.type, enabled=False):
            dtype = self.phi_in.weight.dtype
            f, z = f.to(dtype), z.to(dtype)
            of_receiver, of_sender, of_difference = self.phi_in.weight.split(self.widths, dim=1)
            difference = F.linear(z, of_difference)
            return F.linear(f, of_receiver, self.phi_in.bias) + difference, F.linear(f, of_sender) - difference
