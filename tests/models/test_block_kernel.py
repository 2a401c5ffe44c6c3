"""The block SVD kernel against the dense one, and its SVD."""

import pytest
import torch

from svdno.models import block_kernel
from svdno.models.block_kernel import RIDGE, BlockBasis, BlockKernel, Positions
from svdno.models.orthonormal import inverse_factor

D, H, N = 3, 4, 40
X = torch.linspace(-1, 1, N, dtype=torch.float64)[None, :, None] ** torch.arange(2)  # 1 and x


def make(exact: bool = True, equal: bool = False, out_channels: int = D):
    torch.manual_seed(0)
    basis, kernel = BlockBasis(D, 2, H, 2, exact=exact).double(), BlockKernel(D, H, out_channels).double()
    for P in (*basis.of_position.data, *basis.of_field.data):
        torch.nn.init.orthogonal_(P)  # functions that the ridge leaves nearly as they are
    v = torch.randn(2, N, D, dtype=torch.float64)
    w = torch.rand(1, N, dtype=torch.float64) / N
    return basis, kernel, v, w[:, :1].expand(1, N) if equal else w


def latent_and_waves(v):
    return torch.cat([v, X.expand(2, -1, -1)], dim=-1)


def evaluate(basis, v, w):
    return basis(v, Positions.of(X, w))


def form(basis, kernel, v, w):
    """κ(z_i,z_j) as a matrix of d×d blocks, from functions formed at each point."""
    bases = evaluate(basis, v, w)
    phi, psi = (latent_and_waves(v) @ P.mT for P in basis.coefficients)
    if basis.exact:
        phi, psi = (
            f @ inverse_factor(torch.einsum("bnk,bnl,bn->bkl", f, f, w.expand(2, -1)), RIDGE).mT for f in (phi, psi)
        )
    return torch.einsum("bik,kce,bjk->bijce", phi, kernel.blocks, psi), bases


def apply(kernel, bases):
    return bases.expand(kernel(bases))


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("exact", [True, False])
def test_the_kernel_equals_dense_quadrature_in_values_and_gradients(exact, equal):
    basis, kernel, v, w = make(exact, equal)
    dense, bases = form(basis, kernel, v, w)
    parameters = [*basis.parameters(), *kernel.parameters()]
    results = []
    for out in (torch.einsum("bijce,bje,bj->bic", dense, v, w.expand(2, -1)), apply(kernel, bases)):
        results.append([out, *torch.autograd.grad(out.sin().sum(), parameters, retain_graph=True)])
    for found, truth in zip(*results, strict=True):
        torch.testing.assert_close(found, truth, rtol=1e-10, atol=1e-12)


def test_exact_bases_are_orthonormal_up_to_the_ridge():
    """With eigenvalues λ of a Gram matrix and the ridge ε, ‖T G Tᵀ − I‖² = Σ (ε / (λ + ε))²."""
    basis, _, v, w = make()
    bases = evaluate(basis, v, w)
    ridge = RIDGE * bases.grams.diagonal(dim1=-2, dim2=-1).mean(dim=-1, keepdim=True)
    left_over = ridge / (torch.linalg.eigvalsh(bases.grams) + ridge)
    torch.testing.assert_close(bases.orthogonality(), left_over.square().sum(dim=(0, -1)).mean())
    assert bases.orthogonality() < 0.1 < evaluate(make(exact=False)[0], v, w).orthogonality()


def test_functions_of_the_position_are_the_same_on_every_input(monkeypatch):
    """Up to the ridge, which is a share of all functions."""
    monkeypatch.setattr(block_kernel, "RIDGE", 0.0)
    basis, _, v, w = make()
    bases = evaluate(basis, v, w)
    for side in (0, 1):
        first, second = bases.functions(side)
        torch.testing.assert_close(first[:, :2], second[:, :2])
        assert (first[:, 2:] - second[:, 2:]).abs().max() > 0.1


@pytest.mark.parametrize("out_channels", [D, 2, 5])
@pytest.mark.parametrize("exact", [True, False])
def test_svd_is_orthonormal_sorted_and_gives_the_kernel_back(exact, out_channels):
    basis, kernel, v, w = make(exact, out_channels=out_channels)
    dense, bases = form(basis, kernel, v, w)
    S, left, right = kernel.svd(bases)
    for functions in (left, right):
        G = torch.einsum("bncl,bncm,bn->blm", functions, functions, w.expand(2, -1))
        torch.testing.assert_close(G, torch.eye(kernel.rank, dtype=G.dtype).expand_as(G), rtol=0, atol=1e-8)
    assert (S.diff(dim=-1) <= 0).all()
    torch.testing.assert_close(torch.einsum("bicl,bl,bjel->bijce", left, S, right), dense.detach())


def test_the_spectrum_of_orthonormal_bases_is_the_union_of_the_blocks_spectra():
    basis, kernel, v, w = make()
    S = kernel.svd(evaluate(basis, v, w)).values[0]
    blocks = torch.linalg.svdvals(kernel.blocks.detach()).flatten().sort(descending=True).values
    torch.testing.assert_close(S, blocks, rtol=5e-2, atol=1e-2)  # up to the ridge


@pytest.mark.parametrize("out_channels", [D, 2, 5])
@pytest.mark.parametrize("exact", [True, False])
def test_truncation_keeps_the_leading_triplets(exact, out_channels):
    basis, kernel, v, w = make(exact, out_channels=out_channels)
    bases = evaluate(basis, v, w)
    whole = apply(kernel, bases)
    S, left, right = kernel.svd(bases)
    kernel.truncation = kernel.rank
    torch.testing.assert_close(apply(kernel, bases), whole)
    kernel.truncation = 5
    coefficients = torch.einsum("bncl,bnc,bn->bl", right, v, w.expand(2, -1))[:, :5]
    expected = torch.einsum("bncl,bl->bnc", left[..., :5], S[:, :5] * coefficients)
    torch.testing.assert_close(apply(kernel, bases), expected)


def test_the_inverse_factor_and_its_gradient():
    torch.manual_seed(0)
    f = torch.randn(2, 9, 4, dtype=torch.float64, requires_grad=True)

    def whiten(f):
        return inverse_factor(f.mT @ f, 1e-3)

    T = whiten(f)
    torch.testing.assert_close(T @ (f.mT @ f) @ T.mT, torch.eye(4).double().expand(2, -1, -1), rtol=0, atol=1e-2)
    assert torch.autograd.gradcheck(whiten, (f,))
