"""Samples with where and when they are, and how they are split; fields that do not fit in memory stay in their file."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from svdno.data.generate import name_fields, read_equation
from svdno.data.hdf5 import Contents, read_contents
from svdno.data.memory import free_memory
from svdno.data.reader import SampleReader
from svdno.equations import Equation
from svdno.errors import InputError, choose
from svdno.grid import PLACEMENTS, Grid
from svdno.recipe import DataSettings

# Samples read at once where a whole file is passed over.
CHUNK = 64
# Parts of a step by which the box of a grid goes beyond the first and the last point, by their placement.
BEYOND = {"nodes": (0.0, 0.0), "cells": (0.5, 0.5), "periodic": (0.0, 1.0)}


@dataclass(frozen=True)
class FileOutputs:
    """Output fields that stay in their file: samples first … last−1, read when they are asked for."""

    reader: SampleReader
    first: int
    last: int
    sample_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """(samples, times, *space, fields)."""
        return (self.last - self.first, *self.sample_shape)

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        numbers = range(len(self))[rows] if isinstance(rows, slice) else rows.tolist()
        if isinstance(numbers, range):
            return _to_tensor(self.reader.outputs(range(self.first + numbers.start, self.first + numbers.stop)))
        return _to_tensor(self.reader.outputs([self.first + row for row in numbers]))


@dataclass(frozen=True)
class Dataset:
    """Pairs of input and output fields on one grid, in physical units.

    inputs: (samples, *space, input fields)
    outputs: (samples, times, *space, output fields), in memory or in a file
    grid: where both are sampled
    times: of the outputs
    equation: that they solve, where it is known
    """

    inputs: Tensor
    outputs: Tensor | FileOutputs
    grid: Grid
    times: Float[Tensor, " times"]
    input_fields: tuple[str, ...]
    output_fields: tuple[str, ...]
    equation: Equation | None = None

    def __post_init__(self) -> None:
        samples, space = self.inputs.shape[0], self.grid.shape
        expected_in = (samples, *space, len(self.input_fields))
        expected_out = (samples, len(self.times), *space, len(self.output_fields))
        for name, shape, expected in (
            ("inputs", tuple(self.inputs.shape), expected_in),
            ("outputs", tuple(self.outputs.shape), expected_out),
        ):
            if shape != expected:
                axes = "(samples, *space, fields)" if name == "inputs" else "(samples, times, *space, fields)"
                raise InputError(
                    f"`{name}` must be {axes} = {expected} for this grid, these times and fields, got {shape}."
                )

    def __len__(self) -> int:
        return self.inputs.shape[0]

    @property
    def nbytes(self) -> int:
        """Size of all fields in float32."""
        return 4 * (prod(self.inputs.shape) + prod(self.outputs.shape))

    def subset(self, start: int, stop: int) -> "Dataset":
        """Samples start … stop−1."""
        u = self.outputs
        part = u[start:stop] if isinstance(u, Tensor) else replace(u, first=u.first + start, last=u.first + stop)
        return replace(self, inputs=self.inputs[start:stop], outputs=part)

    def loaded(self) -> "Dataset":
        """The same samples, all in memory."""
        return replace(self, outputs=self.outputs[:])

    def chunks(self) -> Iterator[Tensor]:
        """The outputs, some samples at a time."""
        for start in range(0, len(self), CHUNK):
            yield self.outputs[start : start + CHUNK]

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
    """The samples of a file, thinned out as the settings say; outputs that do not fit in memory stay in the file."""
    contents = read_contents(path)
    samples = settings.samples or contents.samples
    if not 0 < samples <= contents.samples:
        raise InputError(f"{path} holds {contents.samples} samples, the recipe asks for {settings.samples or 'all'}.")
    strides = {"space_stride": settings.space_stride, "time_stride": settings.time_stride}
    reader = SampleReader(path, **strides)
    grid = _find_grid(path, contents, settings).strided(settings.space_stride)
    times = torch.from_numpy(contents.times[:: settings.time_stride]).double()
    input_fields, output_fields = name_fields(contents, settings)
    data = Dataset(
        inputs=_to_tensor(reader.inputs(range(samples))),
        outputs=FileOutputs(reader, 0, samples, (len(times), *grid.shape, len(output_fields))),
        grid=grid,
        times=times,
        input_fields=input_fields,
        output_fields=output_fields,
        equation=read_equation(contents, settings),
    )
    # Training on a CPU keeps a second, normalised copy.
    fits = 3 * data.nbytes < free_memory(torch.device("cpu"))
    if settings.keep == "memory" or (settings.keep == "auto" and fits):
        data = data.loaded()
    _check_finite(path, data)
    return data


def _to_tensor(fields: np.ndarray) -> Tensor:
    """Fields in float32, whatever kind of number their file holds."""
    return torch.from_numpy(fields.astype(np.float32, copy=False))


def _find_grid(path: Path, contents: Contents, settings: DataSettings) -> Grid:
    """The equation's grid at the file's resolution; without an equation, the one through the file's coordinates."""
    equation = read_equation(contents, settings)
    if equation is None:
        placement = contents.attributes.get("placement", "nodes")
        return _grid_through(path, contents.axes, choose("placement", placement, PLACEMENTS))
    if equation.grid.dim != len(contents.space):
        raise InputError(
            f"{path} has {len(contents.space)} space axes, {settings.equation} has {equation.grid.dim}. "
            "Name the equation that the file is of."
        )
    return equation.grid.resized(contents.space)


def _grid_through(path: Path, axes: tuple[np.ndarray, ...], placement: str) -> Grid:
    """The uniform grid whose points are these coordinates."""
    for axis in axes:
        steps = np.diff(axis)
        if len(axis) < 2 or not np.allclose(steps, steps[0], rtol=1e-3, atol=0):
            raise InputError(
                f"{path} must be on a uniform grid of at least two points along each axis, "
                f"got {len(axis)} at {', '.join(f'{x:g}' for x in axis[:4])} …"
            )
    before, after = BEYOND[placement]
    ends = [(axis[0], axis[-1], (axis[-1] - axis[0]) / (len(axis) - 1)) for axis in axes]
    lower = tuple(float(first - before * step) for first, _, step in ends)
    upper = tuple(float(last + after * step) for _, last, step in ends)
    return Grid(tuple(map(len, axes)), lower, upper, placement)


def _check_finite(path: Path, data: Dataset) -> None:
    finite = torch.cat([u.flatten(1).isfinite().all(dim=1) for u in data.chunks()])
    broken = (~(finite & data.inputs.flatten(1).isfinite().all(dim=1))).nonzero().flatten().tolist()
    if broken:
        which = ", ".join(map(str, broken[:5]))
        raise InputError(
            f"{path} has values that are not finite in {len(broken)} samples: {which}. See `svdno inspect`."
        )
