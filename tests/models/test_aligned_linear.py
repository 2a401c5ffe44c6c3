"""A linear layer by way of a larger matrix gives the numbers of the layer itself."""

import pytest
import torch

from svdno.models.aligned_linear import AlignedLinear


@pytest.mark.parametrize(("wide", "high", "bias"), [(3, 128, True), (64, 101, True), (65, 64, False), (16, 8, True)])
def test_appended_zeros_change_nothing(wide, high, bias):
    torch.manual_seed(0)
    layer = AlignedLinear(wide, high, bias=bias).double()
    x = torch.randn(2, 5, wide, dtype=torch.float64, requires_grad=True)
    variables = [x, *layer.parameters()]
    direct, aligned = layer(x), layer.apply_aligned(x)
    torch.testing.assert_close(aligned, direct, rtol=0, atol=1e-14)
    given = torch.randn_like(direct)
    for found, true in zip(
        torch.autograd.grad(aligned, variables, given), torch.autograd.grad(direct, variables, given), strict=True
    ):
        torch.testing.assert_close(found, true, rtol=0, atol=1e-14)
