"""What a surrogate costs to use: time for one sample, samples per second, memory."""

import resource
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from svdno.training.capture import WARM_UP
from svdno.training.surrogate import Surrogate

# Samples predicted at once where throughput counts, and calls that are timed.
BATCH, CALLS = 32, 10


def measure_speed(surrogate: Surrogate, inputs: Tensor) -> dict[str, float]:
    """Latency of one sample in seconds, and samples per second in batches, from input fields to solutions.

    Medians over calls, without the first ones. The latency is that of `recorded`: on a GPU the host would decide it.
    """
    several = inputs.repeat(-(-BATCH // len(inputs)), *[1] * (inputs.ndim - 1))[:BATCH]
    return {
        "latency_seconds": _time(surrogate.recorded(inputs[:1]), inputs[:1]),
        "samples_per_second": BATCH / _time(partial(surrogate.predict, batch_size=BATCH), several),
    }


def peak_memory(device: torch.device) -> int:
    """Most bytes in use so far: on the GPU by PyTorch, elsewhere by the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.exists():  # on Linux ru_maxrss starts at what the process that started this one had used
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _time(predict: Callable[[Tensor], Tensor], inputs: Tensor) -> float:
    seconds = []
    for _ in range(1 + WARM_UP + CALLS):
        start = perf_counter()
        predict(inputs)  # ends with a copy to the host, so nothing is pending
        seconds.append(perf_counter() - start)
    return median(seconds[-CALLS:])
