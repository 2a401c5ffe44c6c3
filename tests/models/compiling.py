"""Whether a model compiles as one graph, with the gradients that it has as it is."""

import subprocess
import sys


def assert_compiles(model: str, *space: int) -> None:
    """Compile the model that this expression makes, in a process of its own: the shape checks of this suite are not
    part of the program.
    """
    program = f"""
import torch
from svdno.models import *
model = {model}
a = torch.randn(2, *{space}, 1)
def evaluate(a):
    return model.forward_with_penalty(a) if hasattr(model, "forward_with_penalty") else (model(a),)
found = []
for f in (evaluate, torch.compile(evaluate, fullgraph=True, backend="aot_eager")):
    model.zero_grad()
    u, *penalty = f(a)
    sum(penalty, u.square().sum()).backward()
    found.append([u.detach(), *(p.grad for p in model.parameters())])
for plain, compiled in zip(*found):
    torch.testing.assert_close(compiled, plain, rtol=1e-3, atol=1e-4 * plain.abs().max().item())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
