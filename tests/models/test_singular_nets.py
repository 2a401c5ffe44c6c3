"""Singular nets and the start of their heads."""

import pytest
import torch

from svdno import SVDNO
from svdno.equations import AllenCahn


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
