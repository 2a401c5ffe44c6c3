"""How solvers name the samples that they cannot solve."""

from jaxtyping import Bool
from torch import Tensor


def name_samples(failed: Bool[Tensor, "samples *ones"]) -> str:
    """How many samples of a batch failed, and the first five of them."""
    numbers = failed.flatten().nonzero().flatten().tolist()
    which = ", ".join(map(str, numbers[:5]))
    return f"{len(numbers)} of {len(failed)} samples solved together (number {which})"
