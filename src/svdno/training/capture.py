"""Steps without waiting for the host: a function of tensors, recorded as a CUDA graph and replayed."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

# Calls that run as they are before one is recorded: libraries set themselves up on the first ones.
WARM_UP = 3

Key = tuple[torch.Size, ...]


class Recording(NamedTuple):
    """A recorded call: where it reads its inputs, and where it leaves its output."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    output: Tensor


class Replayed:
    """The same function with the same numbers, which a GPU runs as one recording for each set of input shapes.

    All it changes besides its output (weights, moments of the optimiser) must stay where it is in memory. Every call
    counts: those before the recording are ordinary ones. The output is overwritten by the next call.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function
        self.stream = torch.cuda.Stream()
        self.calls: Counter[Key] = Counter()
        self.recordings: dict[Key, Recording] = {}

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Call the function."""
        key = tuple(tensor.shape for tensor in inputs)
        if key not in self.recordings:
            self.calls[key] += 1
            if self.calls[key] <= WARM_UP:
                return self._run_aside(inputs)
            self.recordings[key] = self._record(inputs)
        graph, places, output = self.recordings[key]
        for place, tensor in zip(places, inputs, strict=True):
            place.copy_(tensor)
        graph.replay()
        return output

    def _run_aside(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """An ordinary call, on the stream that will be recorded."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            output = self.function(*inputs)
        torch.cuda.current_stream().wait_stream(self.stream)
        return output

    def _record(self, inputs: tuple[Tensor, ...]) -> Recording:
        places = tuple(tensor.clone() for tensor in inputs)
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            output = self.function(*places)
        return Recording(graph, places, output)
