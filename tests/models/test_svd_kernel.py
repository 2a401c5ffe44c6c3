"""The factorised kernel against the dense quadrature with Φ and Ψ formed, in float64."""

import pytest
import torch
from torch import Tensor

from svdno.grid import Grid
from svdno.models.moments import BLOCK
from svdno.models.singular_nets import SingularFunctions, build_trunk
from svdno.models.svd_kernel import SVDKernel
from tests.models.dense_reference import apply_densely, dense_gram, form_pair

d, H, BATCH = 5, 6, 3


def make_kernel(net: str = "mlp", kind: str = "svd", *, exact: bool = False, rank: int = 4, dim: int = 1) -> SVDKernel:
    torch.manual_seed(0)

    def functions() -> SingularFunctions:
        trunk = build_trunk(net, dim=dim, in_channels=2, channels=H, layers=2)
        return SingularFunctions(trunk, rank, d, dim, 2)

    kernel = SVDKernel(functions(), None if kind == "mercer" else functions(), exact=exact).double()
    for parameter in kernel.parameters():  # away from the orthonormal start, biases not zero
        parameter.data += 0.1 * torch.randn_like(parameter)
    return kernel


def make_inputs(where: str, dim: int = 1, n: int = 24) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Augmented coordinates, weights, fields and singular values, the tensors that take gradients ready for it."""
    torch.manual_seed(1)
    if where != "cloud":
        grid = Grid.unit((n,) if dim == 1 else (n // 4, 4), placement=where)
        points, weights = grid.points_and_weights(torch.empty(0, dtype=torch.float64))
        x, w = points.reshape(1, n, dim).expand(BATCH, n, dim), weights.reshape(1, n)
    else:
        x, w = torch.rand(BATCH, n, dim).double(), 0.1 + torch.rand(BATCH, n).double()
    z = torch.cat([x, torch.randn(BATCH, n, 2).double()], dim=-1).requires_grad_()
    v = torch.randn(BATCH, n, d).double().requires_grad_()
    return z, w, v, (0.5 + torch.rand(4).double()).requires_grad_()


def gradients(output: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(2)
    return list(torch.autograd.grad(output, inputs, torch.randn_like(output)))


@pytest.mark.parametrize("where", ["nodes", "periodic", "cloud"])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", ["svd", "mercer"])
@pytest.mark.parametrize("net", ["mlp", "lstm", "bilstm"])
def test_kernel_equals_dense_quadrature_in_values_and_all_gradients(net, kind, exact, where):
    kernel = make_kernel(net, kind, exact=exact)
    z, w, v, sigma = make_inputs(where)
    inputs = [z, v, sigma, *kernel.parameters()]

    factored = kernel(v, kernel.prepare(z, w), sigma)
    dense = apply_densely(*form_pair(kernel, z, w), sigma, w, v)

    torch.testing.assert_close(factored, dense, rtol=0, atol=1e-10)
    for ours, theirs in zip(gradients(factored, inputs), gradients(dense, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_a_bias_joins_the_constant_feature():
    kernel = make_kernel()
    z, w, v, sigma = make_inputs("cloud")
    bias = torch.randn(d, dtype=torch.float64)
    bases = kernel.prepare(z, w)
    torch.testing.assert_close(kernel(v, bases, sigma, bias), kernel(v, bases, sigma) + bias, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [BLOCK, 2 * BLOCK, 2 * BLOCK + 1])
def test_blocks_of_points_change_nothing(n):
    kernel = make_kernel()
    z, w, v, sigma = make_inputs("cloud", n=n)
    factored = kernel(v, kernel.prepare(z, w), sigma)
    dense = apply_densely(*form_pair(kernel, z, w), sigma, w, v)
    torch.testing.assert_close(factored, dense, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rank", [1, 4, 17])  # few and many functions: both orders of the product
@pytest.mark.parametrize("where", ["nodes", "periodic", "cloud"])
def test_gram_matrices_equal_dense_ones(where, rank):
    kernel = make_kernel(rank=rank, dim=2)
    z, w, _, _ = make_inputs(where, dim=2)
    grams = kernel.prepare(z, w, with_grams=True).grams
    for gram, functions in zip(grams, form_pair(kernel, z, w), strict=True):
        torch.testing.assert_close(gram, dense_gram(functions, w), rtol=0, atol=1e-10)


def test_penalty_is_the_distance_of_the_gram_matrices_to_the_identity():
    kernel = make_kernel()
    z, w, _, _ = make_inputs("cloud")
    expected = sum(
        (dense_gram(functions, w) - torch.eye(4).double()).square().sum(dim=(1, 2)).mean()
        for functions in form_pair(kernel, z, w)
    )
    torch.testing.assert_close(kernel.orthogonality(kernel.prepare(z, w, with_grams=True)), expected)


def test_exact_functions_are_orthonormal():
    kernel = make_kernel(exact=True)
    z, w, _, _ = make_inputs("cloud")
    assert kernel.orthogonality(kernel.prepare(z, w, with_grams=True)) < 1e-20


@pytest.mark.parametrize("rank", [1, 3, 7])
def test_jacobian_has_exactly_the_rank_of_the_kernel(rank):
    kernel = make_kernel(rank=rank)
    z, w, v, _ = make_inputs("cloud")
    bases, sigma = kernel.prepare(z[:1], w[:1]), torch.ones(rank).double()
    jacobian = torch.autograd.functional.jacobian(lambda v: kernel(v, bases, sigma), v[:1])
    values = torch.linalg.svdvals(jacobian.reshape(v[0].numel(), v[0].numel()))
    assert (values > 1e-10 * values[0]).sum() == rank


def test_output_at_one_point_depends_on_the_input_at_every_other():
    kernel = make_kernel()
    z, w, v, sigma = make_inputs("cloud")
    output = kernel(v, kernel.prepare(z, w), sigma)
    (influence,) = torch.autograd.grad(output[0, 0].sum(), v)
    assert (influence[0].abs().amax(dim=-1) > 1e-8).all()
    assert (influence[1:] == 0).all(), "samples of a batch must not mix"


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", ["svd", "mercer"])
def test_svd_is_orthonormal_sorted_and_rebuilds_the_kernel(kind, exact):
    kernel = make_kernel(kind=kind, exact=exact)
    z, w, _, sigma = make_inputs("cloud")
    sigma = sigma.detach() * torch.tensor([1.0, -1.0, 1.0, 0.3]) if kind == "svd" else sigma.detach()
    values, left, right = kernel.svd(z, w, sigma)

    for functions in (left, right):
        identity = torch.eye(4).double().expand(BATCH, 4, 4)
        torch.testing.assert_close(dense_gram(functions, w), identity, rtol=0, atol=1e-8)
    assert (values >= 0).all()
    assert (values.diff(dim=1) <= 0).all()
    Phi, Psi = form_pair(kernel, z, w)
    kappa = torch.einsum("bicl,l,bjel->bicje", Phi, sigma, Psi)
    rebuilt = torch.einsum("bicl,bl,bjel->bicje", left, values, right)
    torch.testing.assert_close(rebuilt, kappa, rtol=0, atol=1e-8)


def test_truncation_keeps_the_best_approximation_on_each_input():
    kernel = make_kernel()
    z, w, v, sigma = make_inputs("cloud")
    kernel.truncation = 2
    values, left, right = kernel.svd(z, w, sigma)
    assert values.shape == (BATCH, 2)
    expected = torch.einsum("bicl,bl,bjel,bj,bje->bic", left, values, right, w, v)
    torch.testing.assert_close(kernel(v, kernel.prepare(z, w), sigma), expected, rtol=0, atol=1e-10)


def test_gradients_pass_autograd_check():
    kernel = make_kernel(exact=True)
    z, w, v, sigma = make_inputs("cloud", n=6)
    assert torch.autograd.gradcheck(lambda z, v, s: kernel(v, kernel.prepare(z, w), s), (z, v, sigma))
