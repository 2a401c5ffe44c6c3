"""Samples of a data file by their numbers, and the parts they lie in; svdno.data.hdf5 describes the layouts."""

import os
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from svdno.errors import InputError


class SampleReader:
    """Samples of a file by their numbers, thinned out while they are read; the file stays open meanwhile."""

    def __init__(self, path: Path, *, space_stride: int = 1, time_stride: int = 1) -> None:
        self.file = open_file(path)
        self.layout = find_layout(self.file)
        self.names = group_names(self.file) if self.layout == "groups" else []
        array = "input" if self.layout == "pairs" else "tensor"
        first = find(self.file, f"{self.names[0]}/data" if self.names else array)
        self.first_shape = first.shape
        # Besides the axes of space each of them has two, out of samples, times and fields.
        self.space = (slice(None, None, space_stride),) * (first.ndim - 2)
        self.frames = slice(None, None, time_stride)

    def __enter__(self) -> "SampleReader":
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def inputs(self, rows: Sequence[int]) -> np.ndarray:
        """Input fields of these samples, (rows, *space, fields)."""
        if self.layout == "groups":
            return np.stack([self._group_input(self.names[row]) for row in rows])
        if self.layout == "pairs":
            return _rows(self.file["input"], rows, self.space)
        if self.layout == "coefficient":
            return _rows(self.file["nu"], rows, self.space)[..., None]
        return _rows(self.file["tensor"], rows, (0, *self.space))[..., None]

    def outputs(self, rows: Sequence[int]) -> np.ndarray:
        """Output fields of these samples, (rows, times, *space, fields)."""
        if self.layout == "groups":
            return np.stack([self._group_data(self.names[row])[(self.frames, *self.space)] for row in rows])
        if self.layout == "pairs":
            return _rows(find(self.file, "output"), rows, (self.frames, *self.space))
        return _rows(self.file["tensor"], rows, (self.frames, *self.space))[..., None]

    def _group_data(self, name: str) -> h5py.Dataset:
        """The fields of a group, which must be like the first one of the file."""
        return find(self.file, f"{name}/data", shape=self.first_shape)

    def _group_input(self, name: str) -> np.ndarray:
        start = self._group_data(name)[(0, *self.space)][..., :1]
        if f"{self.names[0]}/bathymetry" not in self.file:
            return start
        bed = find(self.file, f"{name}/bathymetry", shape=self.first_shape[1:-1])[self.space]
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


def open_file(path: Path) -> h5py.File:
    """The file, open for reading."""
    try:
        return h5py.File(path, "r")
    except OSError as error:
        reason = f"{os.strerror(error.errno)}." if error.errno else f"{error}. Is it a data file, and all of it?"
        raise InputError(f"{path} cannot be read as HDF5: {reason}") from None


def find_layout(file: h5py.File) -> str:
    """Which layout a file has, by the names in it."""
    if "input" in file:
        return "pairs"
    if "tensor" in file:
        return "coefficient" if "nu" in file else "tensor"
    if group_names(file):
        return "groups"
    raise InputError(
        f"{file.filename} holds {', '.join(list(file)[:5]) or 'nothing'}; expected a data set 'input' or 'tensor', "
        "or groups '0000', '0001', … with 'data' and 'grid'."
    )


def group_names(file: h5py.File) -> list[str]:
    """Groups in the order of their numbers: 10000 comes after 9999."""
    return sorted((name for name in file if name.isdecimal()), key=int)


def find(
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


def read_axis(file: h5py.File, name: str, points: int | None = None) -> np.ndarray:
    """Coordinates along an axis of the data, or times, of which there may be more or fewer than frames."""
    values: np.ndarray = find(file, name, axes=(1,), shape=None if points is None else (points,))[:].astype(np.float64)
    if not (len(values) and np.isfinite(values).all()):
        raise InputError(f"{file.filename}: '{name}' must hold finite numbers, got {values[:5]} …")
    return values
