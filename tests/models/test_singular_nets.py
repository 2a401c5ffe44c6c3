"""Singular nets and the start of their heads."""

import pytest
import torch

from svdno import SVDNO
from svdno.equations import AllenCahn
from svdno.models.singular_nets import SineMLP, build_trunk, sines_side_by_side


@pytest.mark.parametrize("rank", [1, 8, 32])
@pytest.mark.parametrize("net", ["mlp", "lstm", "bilstm"])
def test_penalty_starts_small_on_real_fields(net, rank):
    torch.manual_seed(0)
    a = AllenCahn(points=64).sample_inputs(8, seed=0).float()
    a = (a - a.mean()) / a.std()
    model = SVDNO(1, 5, 1, hidden_channels=64, rank=rank, singular_net=net, singular_channels=32)
    # ‖I‖² = L is what functions that vanish would cost, twice: small means a fraction of that
    assert model.orthogonality(a) < 0.1 * 2 * rank


@pytest.mark.parametrize("net", ["mlp", "lstm"])
def test_features_are_padded_with_zeros_behind_the_constant(net):
    functions = SVDNO(1, 5, 1, singular_channels=10, singular_net=net).kernels[0].left
    z = torch.randn(2, 7, 2)
    h = functions.features(z)
    assert h.shape == (2, 7, 16)
    torch.testing.assert_close(h[..., :10], functions.trunk(z))
    assert (h[..., 10] == 1).all()
    assert (h[..., 11:] == 0).all()


@pytest.mark.parametrize("net", ["lstm", "bilstm"])
def test_on_a_circle_the_ends_of_the_line_see_each_other(net):
    """The middle of a walk along three turns of the circle; one turn before it and one after are more than enough."""
    torch.manual_seed(0)
    trunk = build_trunk(net, dim=1, in_channels=1, channels=6, layers=2, periodic=True).double()
    x = torch.arange(256, dtype=torch.float64)[None, :, None] / 256
    a = torch.sin(2 * torch.pi * x) + 0.3 * torch.cos(6 * torch.pi * x)
    turns = torch.cat([torch.cat([x + turn, a], dim=-1) for turn in (-1, 0, 1)], dim=1)
    expected = trunk.lstm(turns)[0][:, 256:512]
    found = trunk(torch.cat([x, a], dim=-1))
    line = trunk.lstm(torch.cat([x, a], dim=-1))[0]
    assert (found - expected).abs().max() < 0.05 * (line - expected).abs().max()


def test_the_approach_to_a_circle_is_a_sixteenth_of_it_and_at_least_eight_points():
    trunk = build_trunk("lstm", dim=1, in_channels=1, channels=4, layers=1, periodic=True)
    for n, points in ((6, 6), (64, 8), (256, 16)):
        z = torch.randn(1, n, 2, requires_grad=True)
        trunk(z)[0, 0].sum().backward()
        assert z.grad[0].abs().sum(dim=1).nonzero().flatten().tolist() == sorted({0, *range(n - points, n)})


@pytest.mark.parametrize("layers", [1, 3])
def test_sine_nets_side_by_side_are_the_nets_one_by_one(layers):
    torch.manual_seed(0)
    nets = [SineMLP(3, 5, layers).double() for _ in range(2)]
    z = torch.randn(2, 7, 3, dtype=torch.float64, requires_grad=True)
    together = sines_side_by_side([net.linears for net in nets], z)
    apart = torch.stack([net(z) for net in nets])
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-12)
    inputs = [z, *(p for net in nets for p in net.parameters())]
    given = torch.randn_like(apart)
    for found, true in zip(*(torch.autograd.grad(h, inputs, given) for h in (together, apart)), strict=True):
        torch.testing.assert_close(found, true, rtol=0, atol=1e-12)
