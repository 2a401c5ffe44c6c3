"""Samples in memory: inputs, outputs, where and when they are, and how they are split."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from svdno.data.generate import build_equation
from svdno.data.hdf5 import read_contents, read_samples
from svdno.errors import InputError
from svdno.grid import Grid
from svdno.recipe import DataSettings


@dataclass(frozen=True)
class Dataset:
    """Pairs of input and output fields on one grid, in physical units.

    inputs: (samples, *space, input fields)
    outputs: (samples, times, *space, output fields)
    grid: where both are sampled
    times: of the outputs
    """

    inputs: Tensor
    outputs: Tensor
    grid: Grid
    times: Float[Tensor, " times"]
    input_fields: tuple[str, ...]
    output_fields: tuple[str, ...]

    def __post_init__(self) -> None:
        samples, space = self.inputs.shape[0], self.grid.shape
        expected_in = (samples, *space, len(self.input_fields))
        expected_out = (samples, len(self.times), *space, len(self.output_fields))
        for name, tensor, expected in (
            ("inputs", self.inputs, expected_in),
            ("outputs", self.outputs, expected_out),
        ):
            if tuple(tensor.shape) != expected:
                axes = "(samples, *space, fields)" if name == "inputs" else "(samples, times, *space, fields)"
                raise InputError(
                    f"`{name}` must be {axes} = {expected} for this grid, these times and fields, "
                    f"got {tuple(tensor.shape)}."
                )

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def subset(self, start: int, stop: int) -> "Dataset":
        """Samples start … stop−1."""
        return replace(self, inputs=self.inputs[start:stop], outputs=self.outputs[start:stop])

    def split(self, train: float = 0.8, validation: float = 0.1) -> "Split":
        """Divide the samples in their order: first training, then validation, the rest for the test."""
        first = int(train * len(self))
        second = first + int(validation * len(self))
        if not 0 < first < second < len(self):
            raise InputError(
                f"{len(self)} samples are too few to split into {train:g} training, {validation:g} validation and the "
                "rest for the test: each part needs at least one sample."
            )
        return Split(self.subset(0, first), self.subset(first, second), self.subset(second, len(self)))


class Split(NamedTuple):
    """The three parts of a data set: fit on the first, choose on the second, report on the third."""

    train: Dataset
    validation: Dataset
    test: Dataset

    @property
    def policy(self) -> str:
        """What goes where, in words, to stand beside every number."""
        train, validation, test = map(len, self)
        return f"{train} training, {validation} validation, {test} test samples; in file order"


def load_dataset(path: Path, settings: DataSettings) -> Dataset:
    """Read a file into memory, thinned out as the settings say."""
    equation = build_equation(settings.equation, settings.parameters)
    contents = read_contents(path)
    inputs, outputs = read_samples(
        path, 0, contents.samples, space_stride=settings.space_stride, time_stride=settings.time_stride
    )
    broken = ~np.array([np.isfinite(a).all() and np.isfinite(u).all() for a, u in zip(inputs, outputs, strict=True)])
    if broken.any():
        which = ", ".join(map(str, np.flatnonzero(broken)[:5]))
        raise InputError(
            f"{path} has values that are not finite in {broken.sum()} samples: {which}. See `svdno inspect`."
        )
    return Dataset(
        inputs=torch.from_numpy(inputs),
        outputs=torch.from_numpy(outputs),
        grid=equation.grid.strided(settings.space_stride),
        times=torch.from_numpy(contents.times[:: settings.time_stride]),
        input_fields=equation.input_fields,
        output_fields=equation.output_fields,
    )
