"""Muon against the singular value decomposition, and against AdamW where it is AdamW."""

import pytest
import torch

from svdno.training.muon import SIZE, Muon, orthogonalize, orthogonalize_all, pack


@pytest.mark.parametrize("shape", [(16, 16), (8, 40), (40, 8), (5, 16, 24)])
def test_orthogonalize_keeps_the_singular_vectors_and_brings_the_values_near_one(shape):
    torch.manual_seed(0)
    U, S, Vh = torch.linalg.svd(torch.randn(shape, dtype=torch.float64), full_matrices=False)
    M = U @ torch.diag_embed(torch.linspace(1, 0.05, S.shape[-1], dtype=S.dtype).expand_as(S)) @ Vh
    inner = U.mT @ orthogonalize(M) @ Vh.mT
    values = inner.diagonal(dim1=-2, dim2=-1)
    assert (inner - torch.diag_embed(values)).abs().max() < 1e-8
    assert 0.6 < values.min() < values.max() < 1.3


def test_orthogonalize_takes_a_matrix_of_zeros():
    assert orthogonalize(torch.zeros(8, 9)).abs().max() == 0


@pytest.mark.parametrize("grain", [1, 16])
def test_matrices_put_together_are_orthogonalized_one_by_one(grain):
    """Of several sizes, standing and lying, single and in stacks; zeros appended on the way leave them alone."""
    torch.manual_seed(0)
    shapes = [torch.Size(shape) for shape in [(16, 16), (8, 40), (40, 8), (5, 16, 24), (12, 12), (3, 24, 16)]]
    matrices = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    packing = pack(shapes, grain, torch.device("cpu"))
    assert len(packing.stacks) == (3 if grain == 16 else 4)
    for found, M in zip(orthogonalize_all(matrices, packing), matrices, strict=True):
        torch.testing.assert_close(found, orthogonalize(M), rtol=0, atol=1e-12)


def make_gradients(*parameters):
    for p in parameters:
        p.grad = torch.randn_like(p)


def test_the_first_step_of_a_matrix_is_orthogonal_and_of_the_size_it_says():
    torch.manual_seed(0)
    W = torch.nn.Parameter(torch.zeros(12, 30, dtype=torch.float64))
    optimizer = Muon([W], lr=0.1)
    make_gradients(W)
    expected = orthogonalize(W.grad)
    optimizer.step()
    torch.testing.assert_close(W.data, -0.1 * SIZE * 30**0.5 * expected)
    assert (W.data / 0.1).square().mean().sqrt().item() == pytest.approx(SIZE, rel=0.3)


def test_a_stack_moves_as_its_matrices_do_and_equal_shapes_move_apart():
    stack = torch.nn.Parameter(torch.randn(3, 10, 10, dtype=torch.float64))
    single = [torch.nn.Parameter(part.clone()) for part in stack.data]
    together, apart = Muon([stack], lr=0.1, weight_decay=0.2), Muon(single, lr=0.1, weight_decay=0.2)
    for _ in range(3):
        make_gradients(stack)
        for part, gradient in zip(single, stack.grad, strict=True):
            part.grad = gradient.clone()
        together.step()
        apart.step()
    torch.testing.assert_close(stack.data, torch.stack([part.data for part in single]))


@pytest.mark.parametrize(
    "make", [lambda: torch.randn(20), lambda: torch.randn(20, 3), lambda: torch.randn(9, 9, dtype=torch.complex64)]
)
def test_what_is_no_matrix_moves_as_with_adamw(make):
    p = torch.nn.Parameter(make())
    q = torch.nn.Parameter(p.data.clone())
    mine, theirs = Muon([p], lr=0.1, weight_decay=0.2), torch.optim.AdamW([q], lr=0.1, weight_decay=0.2)
    for _ in range(3):
        make_gradients(p)
        q.grad = p.grad.clone()
        mine.step()
        theirs.step()
    assert torch.equal(p.data, q.data)


def test_an_ill_conditioned_fit_ends_far_below_adam():
    torch.manual_seed(0)
    U, V = (torch.linalg.qr(torch.randn(16, 16))[0] for _ in range(2))
    A = U @ torch.diag(torch.logspace(0, -2, 16)) @ V
    target, losses = torch.randn(16, 16) @ A, {}
    for kind in (Muon, torch.optim.AdamW):
        W = torch.nn.Parameter(torch.zeros(16, 16))
        optimizer = kind([W], lr=0.02, weight_decay=0.0)
        for _ in range(300):
            optimizer.zero_grad()
            loss = (W @ A - target).square().mean()
            loss.backward()
            optimizer.step()
        losses[kind] = loss.item()
    assert losses[Muon] < 0.5 * losses[torch.optim.AdamW]
