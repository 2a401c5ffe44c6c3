"""The two sums over points against plain einsum, with first and second derivatives."""

import pytest
import torch

from svdno.models import moments
from svdno.models.moments import BLOCK, PRODUCTS, cross_moment, expand, gram, integrate, second_moment


@pytest.mark.parametrize(
    ("batch", "n"), [(2, 7), (2, BLOCK), (2, 6 * BLOCK), (2, 2 * BLOCK + 3), (PRODUCTS, 2 * BLOCK)]
)
def test_sums_equal_einsum_whatever_the_number_of_points(batch, n):
    f, g = torch.randn(batch, n, 3).double(), torch.randn(batch, n, 4).double()
    torch.testing.assert_close(integrate(f, g), torch.einsum("bnp,bnq->bpq", f, g))
    A = integrate(f, g)
    torch.testing.assert_close(expand(f, A.mT), torch.einsum("bnp,bpq->bnq", f, A))


def test_first_and_second_derivatives_pass_autograd_check(monkeypatch):
    monkeypatch.setattr(moments, "BLOCK", 2)
    f, g, A, shared = (torch.randn(*s).double().requires_grad_() for s in ((2, 4, 2), (2, 4, 3), (2, 3, 2), (1, 4, 2)))
    for operation, inputs in ((integrate, (f, g)), (expand, (f, A)), (integrate, (f, shared)), (expand, (shared, A))):
        assert torch.autograd.gradcheck(operation, inputs)
        assert torch.autograd.gradgradcheck(operation, inputs)


@pytest.mark.parametrize("n", [8, 2 * BLOCK])
def test_autocast_gives_gradients_in_the_precision_of_the_inputs(n):
    f, g = torch.randn(2, n, 3, requires_grad=True), torch.randn(2, n, 4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        M = integrate(f, g.bfloat16())
        out = expand(f, M.mT)
    assert (M.dtype, out.dtype) == (torch.float32, torch.bfloat16)
    out.float().sum().backward()
    assert f.grad.dtype == g.grad.dtype == torch.float32


@pytest.mark.parametrize("equal", [True, False])
def test_moments_of_two_fields_are_a_block_of_those_of_both(equal):
    f, g, w = torch.randn(2, 5, 3).double(), torch.randn(1, 5, 4).double(), torch.rand(1, 1 if equal else 5).double()
    w = w.expand(1, 5)
    both = second_moment(torch.cat([f, g.expand(2, -1, -1)], dim=-1), w)
    torch.testing.assert_close(cross_moment(f, g, w), both[:, :3, 3:])


@pytest.mark.parametrize("equal", [True, False])
def test_gram_has_the_gradients_of_features_heads_and_weights(equal):
    head, h = torch.randn(2, 3, 4).double().requires_grad_(), torch.randn(2, 5, 4).double().requires_grad_()
    w = (0.2 + torch.rand(1, 1 if equal else 5)).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda head, h, w: gram(head, h, w.expand(1, 5)), (head, h, w))
