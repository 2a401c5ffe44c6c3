"""A linear layer by way of a larger matrix gives the numbers of the layer itself."""

import subprocess
import sys

import pytest
import torch

from svdno.models.aligned_linear import AlignedLinear, aligned_linear
from svdno.models.input_linear import InputLinear, input_linear, split_digits


@pytest.mark.parametrize(("wide", "high", "bias"), [(3, 128, True), (64, 101, True), (65, 64, False), (16, 8, True)])
def test_appended_zeros_change_nothing(wide, high, bias):
    torch.manual_seed(0)
    layer = AlignedLinear(wide, high, bias=bias).double()
    x = torch.randn(2, 5, wide, dtype=torch.float64, requires_grad=True)
    variables = [x, *layer.parameters()]
    direct, aligned = layer(x), aligned_linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(aligned, direct, rtol=0, atol=1e-14)
    given = torch.randn_like(direct)
    for found, true in zip(
        torch.autograd.grad(aligned, variables, given), torch.autograd.grad(direct, variables, given), strict=True
    ):
        torch.testing.assert_close(found, true, rtol=0, atol=1e-14)


def test_data_keep_their_digits_where_factors_are_rounded():
    """In bfloat16, as in TF32, W x has the error of W alone, where x itself would lose all but 8 digits."""
    torch.manual_seed(0)
    layer = InputLinear(3, 16)
    layer.weight.data = layer.weight.data.bfloat16().float()
    x = torch.rand(1000, 3) + 1
    exact = layer(x)
    parts = split_digits(x)
    torch.testing.assert_close(parts[:, :3] + parts[:, 3:], x, rtol=0, atol=0)
    assert torch.equal(parts[:, :3].bfloat16().float(), parts[:, :3])
    twice = torch.cat([layer.weight, layer.weight], dim=-1)
    rounded = parts.bfloat16().float() @ twice.T + layer.bias
    plain = x.bfloat16().float() @ layer.weight.T + layer.bias
    assert (rounded - exact).abs().max() < 1e-4 < 1e-3 < (plain - exact).abs().max()


@pytest.mark.parametrize("data", [1, 3])
def test_the_gradient_of_split_data_is_that_of_the_data(data):
    torch.manual_seed(0)
    layer = InputLinear(3, 16, data=data)
    x = torch.rand(10, 3, requires_grad=True)
    given = torch.randn(10, 16)
    outputs = input_linear(x, layer.weight, layer.bias, data), layer(x)
    for a, b in zip(*(torch.autograd.grad(u, [x, *layer.parameters()], given) for u in outputs), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("bias", [True, False])
def test_few_components_compiled_are_a_sum_of_products(bias):
    """In a process of its own: the shape checks of this suite are not part of the program."""
    program = f"""
import torch
from svdno.models.input_linear import InputLinear, input_linear
torch.manual_seed(0)
layer = InputLinear(3, 16, bias={bias})
x, given = torch.rand(2, 10, 3, requires_grad=True), torch.randn(2, 10, 16)
compiled = torch.compile(lambda x: input_linear(x, layer.weight, layer.bias, 3), fullgraph=True, backend="aot_eager")
outputs = compiled(x), layer(x)
torch.testing.assert_close(*outputs)
for a, b in zip(*(torch.autograd.grad(u, [x, *layer.parameters()], given) for u in outputs), strict=True):
    torch.testing.assert_close(a, b)
with torch.autocast("cpu", torch.bfloat16):
    assert compiled(x).dtype == torch.bfloat16
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_single_component_compiled_is_a_sum():
    """In a process of its own, as above; bfloat16 numbers are summed in float32."""
    program = """
import torch
from svdno.models.aligned_linear import AlignedLinear, aligned_linear
torch.manual_seed(0)
layer = AlignedLinear(16, 1)
x, given = torch.rand(2, 10, 16, requires_grad=True), torch.randn(2, 10, 1)
compiled = torch.compile(lambda x: aligned_linear(x, layer.weight, layer.bias), fullgraph=True, backend="aot_eager")
outputs = compiled(x), layer(x)
torch.testing.assert_close(*outputs)
for a, b in zip(*(torch.autograd.grad(u, [x, *layer.parameters()], given) for u in outputs), strict=True):
    torch.testing.assert_close(a, b)
with torch.autocast("cpu", torch.bfloat16):
    torch.testing.assert_close(compiled(x.bfloat16()), outputs[1], rtol=1e-2, atol=1e-2)
    assert compiled(x.bfloat16()).dtype == torch.float32
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_data_keep_their_digits_in_tf32():
    torch.manual_seed(0)
    layer = InputLinear(3, 16).cuda()
    layer.weight.data = layer.weight.data.bfloat16().float()
    x = torch.rand(1000, 3, device="cuda") + 1
    exact = (x.double() @ layer.weight.double().T + layer.bias.double()).float()
    torch.set_float32_matmul_precision("high")
    try:
        found = layer(x)
    finally:
        torch.set_float32_matmul_precision("highest")
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-5)
