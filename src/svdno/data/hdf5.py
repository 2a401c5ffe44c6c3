"""The only module that knows how data files are laid out: the three layouts of the public benchmark files.

    tensor        tensor (samples, times, x), x-coordinate, t-coordinate      allen-cahn, diffusion-reaction, whose
                  t-coordinate goes on one step beyond the last frame
    groups        "0000", "0001" …: data (times, *space, fields), grid/x, grid/y, grid/t, and bathymetry (*space) where
                  the input has one                                           diffusion-sorption, shallow-water
    coefficient   nu (samples, x, y), tensor (samples, 1, x, y), x-coordinate, y-coordinate           darcy

Fields are float32. Attributes name the equation, its parameters (JSON), the seed and the version that wrote the file.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from svdno.errors import InputError

LAYOUTS = {
    "allen-cahn": "tensor",
    "diffusion-reaction": "tensor",
    "diffusion-sorption": "groups",
    "shallow-water": "groups",
    "darcy": "coefficient",
}
# Equations whose files list one more regular time than they have frames.
ONE_MORE_TIME = {"diffusion-reaction"}


@dataclass(frozen=True)
class Contents:
    """What a file holds, without the fields themselves.

    axes: coordinates along each space axis
    times: of the frames; a steady problem has one
    input_fields, output_fields: how many there are
    later_times: those that the file lists after the last frame
    """

    layout: str
    samples: int
    axes: tuple[np.ndarray, ...]
    times: np.ndarray
    input_fields: int
    output_fields: int
    attributes: dict[str, Any]
    later_times: tuple[float, ...] = ()

    @property
    def space(self) -> tuple[int, ...]:
        """Points along each axis."""
        return tuple(map(len, self.axes))


def create_file(path: Path, contents: Contents) -> None:
    """Make a file with room for all fields; writing them later changes nothing else in it."""
    with h5py.File(path, "w") as file:
        for key, value in contents.attributes.items():
            file.attrs[key] = json.dumps(value) if isinstance(value, dict) else value
        samples, times, space = contents.samples, len(contents.times), contents.space
        if contents.layout == "groups":
            for i in range(samples):
                group = file.create_group(f"{i:04d}")
                _reserve(group, "data", (times, *space, contents.output_fields))
                if contents.input_fields > 1:
                    _reserve(group, "bathymetry", space)
                _write_axes(group.create_group("grid"), contents, names=("x", "y"), time="t")
            return
        if contents.layout == "coefficient":
            _reserve(file, "nu", (samples, *space))
            _reserve(file, "tensor", (samples, 1, *space))
            _write_axes(file, contents, names=("x-coordinate", "y-coordinate"))
            return
        _reserve(file, "tensor", (samples, times, *space))
        _write_axes(file, contents, names=("x-coordinate",), time="t-coordinate")


def write_samples(file: h5py.File, layout: str, first: int, inputs: np.ndarray, outputs: np.ndarray) -> None:
    """Put inputs (n, *space, fields) and outputs (n, times, *space, fields) in their place, from sample `first` on."""
    rows = slice(first, first + len(outputs))
    if layout == "groups":
        for i, (a, u) in enumerate(zip(inputs, outputs, strict=True), start=first):
            file[f"{i:04d}/data"][...] = u
            if a.shape[-1] > 1:
                file[f"{i:04d}/bathymetry"][...] = a[..., 1]
        return
    file["tensor"][rows] = outputs[..., 0]
    if layout == "coefficient":
        file["nu"][rows] = inputs[..., 0]


def read_contents(path: Path) -> Contents:
    """Find out what a file holds."""
    with _open(path) as file:
        contents = _describe_tensor(file) if "tensor" in file else _describe_groups(file)
    if not (len(contents.times) and contents.output_fields):
        raise InputError(f"{path} must hold at least one frame of one field, got none.")
    return contents


def _describe_tensor(file: h5py.File) -> Contents:
    steady = "nu" in file
    shape = _find(file, "tensor", axes=(4,) if steady else (3, 4)).shape
    samples, frames, *space = shape
    if steady and (_find(file, "nu", axes=(3,)).shape, frames) != ((samples, *space), 1):
        raise InputError(
            f"{file.filename}: 'tensor' must be (samples, 1, x, y) and 'nu' (samples, x, y), "
            f"got {shape} and {file['nu'].shape}."
        )
    stored = np.zeros(1) if steady else _read_axis(file, "t-coordinate")
    names = ("x-coordinate", "y-coordinate")
    return Contents(
        layout="coefficient" if steady else "tensor",
        samples=samples,
        axes=tuple(_read_axis(file, name, points) for name, points in zip(names, space, strict=False)),
        times=stored[:frames],
        input_fields=1,
        output_fields=1,
        attributes=dict(file.attrs),
        later_times=tuple(stored[frames:].tolist()),
    )


def _describe_groups(file: h5py.File) -> Contents:
    names = _group_names(file)
    if not names:
        raise InputError(
            f"{file.filename} holds {', '.join(list(file)[:5]) or 'nothing'}; expected a data set named 'tensor', "
            "or groups '0000', '0001', … with 'data' and 'grid'."
        )
    first = names[0]
    frames, *space, fields = _find(file, f"{first}/data", axes=(3, 4)).shape
    stored = _read_axis(file, f"{first}/grid/t")
    return Contents(
        layout="groups",
        samples=len(names),
        axes=tuple(_read_axis(file, f"{first}/grid/{name}", points) for name, points in zip("xy", space, strict=False)),
        times=stored[:frames],
        input_fields=2 if f"{first}/bathymetry" in file else 1,
        output_fields=fields,
        attributes=dict(file.attrs),
        later_times=tuple(stored[frames:].tolist()),
    )


class SampleReader:
    """Samples of a file by their numbers, thinned out while they are read; the file stays open meanwhile."""

    def __init__(self, path: Path, *, space_stride: int = 1, time_stride: int = 1) -> None:
        self.file = _open(path)
        self.points, self.frames = slice(None, None, space_stride), slice(None, None, time_stride)
        self.names = [] if "tensor" in self.file else _group_names(self.file)
        first = self.file["tensor"] if not self.names else _find(self.file, f"{self.names[0]}/data", axes=(3, 4))
        self.sample_shape = first.shape if self.names else first.shape[1:]
        self.space = (self.points,) * (len(self.sample_shape) - (2 if self.names else 1))

    def __enter__(self) -> "SampleReader":
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def inputs(self, rows: Sequence[int]) -> np.ndarray:
        """Input fields of these samples, (rows, *space, fields)."""
        if self.names:
            return np.stack([self._group_input(self.names[row]) for row in rows])
        if "nu" in self.file:
            return _rows(self.file["nu"], rows, self.space)[..., None]
        return _rows(self.file["tensor"], rows, (0, *self.space))[..., None]

    def outputs(self, rows: Sequence[int]) -> np.ndarray:
        """Output fields of these samples, (rows, times, *space, fields)."""
        if self.names:
            return np.stack([self._group_data(self.names[row])[(self.frames, *self.space)] for row in rows])
        return _rows(self.file["tensor"], rows, (self.frames, *self.space))[..., None]

    def _group_data(self, name: str) -> h5py.Dataset:
        """The fields of a group, which must be like the first one of the file."""
        return _find(self.file, f"{name}/data", shape=self.sample_shape)

    def _group_input(self, name: str) -> np.ndarray:
        start = self._group_data(name)[(0, *self.space)][..., :1]
        if f"{self.names[0]}/bathymetry" not in self.file:
            return start
        bed = _find(self.file, f"{name}/bathymetry", shape=self.sample_shape[1:-1])[self.space]
        return np.concatenate([start, bed[..., None]], axis=-1)


def read_samples(
    path: Path, first: int, last: int, *, space_stride: int = 1, time_stride: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and outputs of samples first … last−1."""
    with SampleReader(path, space_stride=space_stride, time_stride=time_stride) as reader:
        rows = range(first, last)
        return reader.inputs(rows), reader.outputs(rows)


def _rows(data: h5py.Dataset, rows: Sequence[int], rest: tuple[int | slice, ...]) -> np.ndarray:
    """Some rows of a data set, neighbours in one piece."""
    if isinstance(rows, range) and rows.step == 1:
        block: np.ndarray = data[(slice(rows.start, rows.stop), *rest)]
        return block
    return np.stack([data[(row, *rest)] for row in rows])


def _find(
    file: h5py.File, name: str, *, axes: tuple[int, ...] | None = None, shape: tuple[int, ...] | None = None
) -> h5py.Dataset:
    """The data set of this name, which must hold numbers and have so many axes, or this shape."""
    where = f"{file.filename}: '{name}'"
    if name not in file:
        raise InputError(f"{where} is missing; files of this layout have it.")
    found = file[name]
    if not isinstance(found, h5py.Dataset) or found.dtype.kind not in "fiu":
        raise InputError(f"{where} must be a data set of numbers, got {found}.")
    if axes is not None and found.ndim not in axes:
        raise InputError(f"{where} must have {' or '.join(map(str, axes))} axes, got shape {found.shape}.")
    if shape is not None and found.shape != shape:
        raise InputError(f"{where} must have the shape {shape}, got {found.shape}.")
    return found


def _read_axis(file: h5py.File, name: str, points: int | None = None) -> np.ndarray:
    """Coordinates along an axis of the data, or times, of which there may be more or fewer than frames."""
    values: np.ndarray = _find(file, name, axes=(1,), shape=None if points is None else (points,))[:]
    if not (len(values) and np.isfinite(values).all()):
        raise InputError(f"{file.filename}: '{name}' must hold finite numbers, got {values[:5]} …")
    return values


def _group_names(file: h5py.File) -> list[str]:
    """Groups in the order of their numbers: 10000 comes after 9999."""
    return sorted((name for name in file if name.isdecimal()), key=int)


def _reserve(parent: h5py.Group, name: str, shape: tuple[int, ...]) -> None:
    """Allocate a data set now, in one piece: a process that dies while filling it leaves a file that opens."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    parent.create_dataset(name, shape, dtype="float32", dcpl=properties)


def _write_axes(parent: h5py.Group, contents: Contents, *, names: tuple[str, ...], time: str | None = None) -> None:
    for name, axis in zip(names, contents.axes, strict=False):
        parent[name] = axis
    if time is not None:
        parent[time] = np.append(contents.times, contents.later_times)


def _open(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        reason = f"{os.strerror(error.errno)}." if error.errno else f"{error}. Is it a data file, and all of it?"
        raise InputError(f"{path} cannot be read as HDF5: {reason}") from None
