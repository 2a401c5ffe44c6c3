"""Batches as the model sees them: kept on the device where they fit, otherwise fetched while the last one is in use."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from svdno.data.dataset import Dataset
from svdno.data.memory import free_memory
from svdno.training.surrogate import Surrogate

# Samples encoded at once while a data set moves to the device.
CHUNK = 64


class Batch(NamedTuple):
    """Normalised inputs, normalised outputs with all times and fields as channels, and ‖u_i‖₂ in physical units."""

    inputs: Float[Tensor, "batch *space in_channels"]
    targets: Float[Tensor, "batch *space channels"]
    norms: Float[Tensor, " batch"]


class Batches:
    """The samples of a data set, by their numbers."""

    def __init__(self, surrogate: Surrogate, data: Dataset) -> None:
        self.surrogate, self.data = surrogate, data
        fits = 2 * data.nbytes < free_memory(surrogate.device)
        self.resident = self._encode_all() if isinstance(data.outputs, Tensor) and fits else None

    def fetch(self, order: Iterable[Tensor]) -> Iterator[Batch]:
        """One batch for each tensor of sample numbers."""
        if self.resident is not None:
            batches = [torch.empty(0, dtype=torch.int64), *order]
            # One copy for all of them: the host would wait for the GPU at each.
            on_device = torch.cat(batches).to(self.surrogate.device).split([len(rows) for rows in batches])
            for rows in on_device[1:]:
                yield Batch(*(part[rows] for part in self.resident))
            return
        with ThreadPoolExecutor(max_workers=1) as reader:
            # While one batch is in use the next is read.
            waiting = None
            for rows in order:
                upcoming = reader.submit(self._read, rows)
                if waiting is not None:
                    yield self._encode(*waiting.result())
                waiting = upcoming
            if waiting is not None:
                yield self._encode(*waiting.result())

    def in_order(self, size: int) -> Iterator[Batch]:
        """All samples, in batches of at most this size."""
        return self.fetch(torch.arange(len(self.data)).split(size))

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        pair = self.data.inputs[rows], self.data.outputs[rows]
        return pair if self.surrogate.device.type == "cpu" else (pair[0].pin_memory(), pair[1].pin_memory())

    def _encode(self, inputs: Tensor, outputs: Tensor) -> Batch:
        s = self.surrogate
        a = s.input_normalizer.encode(inputs.to(s.device, s.dtype, non_blocking=True))
        u = outputs.to(s.device, s.dtype, non_blocking=True)
        targets = s.output_normalizer.encode(u).movedim(1, -2).flatten(-2)
        return Batch(a, targets, torch.linalg.vector_norm(u.flatten(1), dim=1))

    def _encode_all(self) -> Batch:
        """All samples, written to their place chunk by chunk: never a second copy of them."""
        first = self._encode(self.data.inputs[:1], self.data.outputs[:1])
        whole = Batch(*(part.new_empty(len(self.data), *part.shape[1:]) for part in first))
        for i in range(0, len(self.data), CHUNK):
            rows = slice(i, i + CHUNK)
            for place, part in zip(whole, self._encode(self.data.inputs[rows], self.data.outputs[rows]), strict=True):
                place[rows] = part
        return whole
