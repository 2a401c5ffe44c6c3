"""LSTMs side by side against nn.LSTM in float64: on a GPU, and in Triton's interpreter where there is none."""

import copy
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

from svdno.models.lstm_triton import is_supported, lstm_side_by_side


def draw_nets(H, layers, bidirectional, device="cpu"):
    torch.manual_seed(0)
    sizes = {"batch_first": True, "bidirectional": bidirectional, "device": device}
    return [nn.LSTM(3, H, layers, **sizes) for _ in range(2)]


def differentiate(outputs, nets, z):
    """Gradients of Σ f(output), f not symmetric in steps or features, with respect to z and to all parameters."""
    ramps = [torch.linspace(-1, 2, o.numel(), device=o.device, dtype=o.dtype).view_as(o) for o in outputs]
    loss = sum((ramp * o).square().sum() for ramp, o in zip(ramps, outputs, strict=True))
    return torch.autograd.grad(loss, [z, *(p for net in nets for p in net.parameters())])


def assert_equal_to_float64(H, layers, bidirectional, batch, n, device):
    nets = draw_nets(H, layers, bidirectional, device)
    z = torch.randn(batch, n, 3, device=device, requires_grad=True)
    outputs = lstm_side_by_side(nets, z)
    true_nets, true_z = [copy.deepcopy(net).cpu().double() for net in nets], z.detach().cpu().double().requires_grad_()
    truths = [net(true_z)[0] for net in true_nets]
    pairs = [*zip(outputs, truths, strict=True)]
    pairs += zip(differentiate(outputs, nets, z), differentiate(truths, true_nets, true_z), strict=True)
    for value, truth in pairs:
        torch.testing.assert_close(value.cpu().double(), truth, rtol=0, atol=1e-5 * truth.abs().max().item())
    with torch.no_grad():
        torch.testing.assert_close(lstm_side_by_side(nets, z), [o.detach() for o in outputs], rtol=0, atol=0)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(
    ("H", "layers", "batch", "n"), [(16, 1, 5, 7), (32, 4, 50, 64), (64, 2, 18, 33), (128, 3, 50, 64)]
)
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gpu_equals_float64(H, layers, bidirectional, batch, n):
    assert_equal_to_float64(H, layers, bidirectional, batch, n, "cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_captured_graph_replays_on_new_input():
    nets, z = draw_nets(32, 2, False, "cuda"), torch.randn(5, 16, 3, device="cuda", requires_grad=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        differentiate(lstm_side_by_side(nets, z), nets, z)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = differentiate(lstm_side_by_side(nets, z), nets, z)
    with torch.no_grad():
        z.copy_(torch.randn_like(z))
    graph.replay()
    for value, truth in zip(captured, differentiate(lstm_side_by_side(nets, z), nets, z), strict=True):
        torch.testing.assert_close(value, truth, rtol=0, atol=1e-6 * truth.abs().max().item())


@pytest.mark.skipif(find_spec("triton") is None, reason="no Triton")
def test_interpreted_kernels_equal_float64_and_compile_without_graph_breaks():
    cases = [(16, 3, True, 3, 7), (32, 1, False, 5, 7), (128, 1, True, 2, 3), (64, 1, False, 2, 1)]
    code = f"from tests.models.test_lstm_triton import *\nfor case in {cases}: assert_equal_to_float64(*case, 'cpu')"
    environment = os.environ | {"TRITON_INTERPRET": "1"}  # read when Triton is first imported, so in a new process
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], env=environment, check=True)
    code = """
import torch
from torch import nn
from svdno.models.lstm_triton import lstm_side_by_side
torch._dynamo.config.allow_rnn = True
nets = [nn.LSTM(3, 16, 2, batch_first=True) for _ in range(2)]
z = torch.randn(2, 5, 3, requires_grad=True)
compiled = torch.compile(lambda z: torch.cat(lstm_side_by_side(nets, z)), fullgraph=True, backend="aot_eager")
truth, value = torch.cat([net(z)[0] for net in nets]), compiled(z)
torch.testing.assert_close(value, truth)
weights = [z, *nets[1].parameters()]
torch.testing.assert_close(*(torch.autograd.grad(f.square().sum(), weights) for f in (value, truth)))
"""
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], env=environment, check=True)


def test_input_on_the_cpu_is_left_to_the_nets():
    assert not is_supported(draw_nets(32, 1, False)[0], torch.randn(2, 7, 3))
