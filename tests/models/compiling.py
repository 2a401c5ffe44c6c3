"""Whether a model compiles as one graph."""

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
u, *penalty = torch.compile(evaluate, fullgraph=True, backend="aot_eager")(a)
sum(penalty, u.sum()).backward()
torch.testing.assert_close(u, model(a))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
