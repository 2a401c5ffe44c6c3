"""The dense ablation against its definition: one d×d matrix for every pair of points."""

import pytest
import torch

from svdno.models import dense_kernel
from svdno.models.dense_kernel import DenseKernel


def form_kernel(kernel: DenseKernel, z: torch.Tensor) -> torch.Tensor:
    """κ̃(z_i,z_j) = MLP(z_i,z_j), (batch, n, n, d, d), one pair at a time."""
    b, n, _ = z.shape
    first = kernel.from_output(z).unsqueeze(2) + kernel.from_input(z).unsqueeze(1)
    g = kernel.hidden(torch.sin(first).reshape(b, n * n, -1)).reshape(b, n, n, -1)
    return torch.einsum("bijk,kcd->bijcd", g, kernel.head[:-1]) + kernel.head[-1]


@pytest.mark.parametrize("layers", [1, 3])
def test_dense_kernel_equals_its_definition_in_values_and_all_gradients(layers, monkeypatch):
    monkeypatch.setattr(dense_kernel, "BLOCK_SIZE", 2 * 9 * 6 * 4)  # several blocks of rows, the last one shorter
    torch.manual_seed(0)
    kernel = DenseKernel(3, 5, layers=layers, features=6).double()
    z, v = (torch.randn(2, 9, c).double().requires_grad_() for c in (3, 5))
    w = 0.1 + torch.rand(2, 9).double()
    inputs = [z, v, *kernel.parameters()]

    ours = kernel(v, kernel.prepare(z, w))
    dense = torch.einsum("bj,bijcd,bjd->bic", w, form_kernel(kernel, z), v)

    torch.testing.assert_close(ours, dense, rtol=0, atol=1e-10)
    seed = torch.randn_like(ours)
    for a, b in zip(torch.autograd.grad(ours, inputs, seed), torch.autograd.grad(dense, inputs, seed), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
