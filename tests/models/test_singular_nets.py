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


def test_features_are_padded_with_zeros_behind_the_constant():
    model = SVDNO(1, 5, 1, singular_channels=10)
    h = model.kernels[0].left.features(torch.randn(2, 7, 2))
    assert h.shape == (2, 7, 16)
    assert (h[..., 10] == 1).all()
    assert (h[..., 11:] == 0).all()
