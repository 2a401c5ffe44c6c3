"""The only module that knows how data files are laid out: the three layouts of the public benchmark files.

    tensor        tensor (samples, times, x), x-coordinate, t-coordinate      allen-cahn, diffusion-reaction
    groups        "0000", "0001" …: data (times, *space, fields), grid/x, grid/y, grid/t, and bathymetry (*space) where
                  the input has one                                           diffusion-sorption, shallow-water
    coefficient   nu (samples, x, y), tensor (samples, 1, x, y), x-coordinate, y-coordinate           darcy

Fields are float32. Attributes name the equation, its parameters (JSON), the seed and the version that wrote the file.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
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


@dataclass(frozen=True)
class Contents:
    """What a file holds, without the fields themselves.

    axes: coordinates along each space axis
    times: of the frames; a steady problem has one
    stored_times: how many times the file lists, which in public files is not always the number of frames
    input_fields, output_fields: how many there are
    """

    layout: str
    samples: int
    axes: tuple[np.ndarray, ...]
    times: np.ndarray
    input_fields: int
    output_fields: int
    attributes: dict[str, Any]
    stored_times: int = 1

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
        try:
            return _describe_tensor(file) if "tensor" in file else _describe_groups(file)
        except KeyError as error:
            raise InputError(f"{path} lacks a part of its layout: {error.args[0]}.") from None


def _describe_tensor(file: h5py.File) -> Contents:
    steady = "nu" in file
    samples, frames = file["tensor"].shape[:2]
    stored = np.zeros(1) if steady else file["t-coordinate"][:]
    axes = [file[name][:] for name in ("x-coordinate", "y-coordinate")[: file["tensor"].ndim - 2]]
    return Contents(
        layout="coefficient" if steady else "tensor",
        samples=samples,
        axes=tuple(axes),
        times=stored[:frames],
        input_fields=1,
        output_fields=1,
        attributes=dict(file.attrs),
        stored_times=len(stored),
    )


def _describe_groups(file: h5py.File) -> Contents:
    names = _group_names(file)
    if not names:
        raise InputError(
            f"{file.filename} holds {', '.join(list(file)[:5]) or 'nothing'}; expected a data set named 'tensor', "
            "or groups '0000', '0001', … with 'data' and 'grid'."
        )
    group = file[names[0]]
    frames, fields = group["data"].shape[0], group["data"].shape[-1]
    stored = group["grid/t"][:]
    return Contents(
        layout="groups",
        samples=len(names),
        axes=tuple(group["grid"][name][:] for name in ("x", "y")[: group["data"].ndim - 2]),
        times=stored[:frames],
        input_fields=2 if "bathymetry" in group else 1,
        output_fields=fields,
        attributes=dict(file.attrs),
        stored_times=len(stored),
    )


def read_samples(
    path: Path, first: int, last: int, *, space_stride: int = 1, time_stride: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and outputs of samples first … last−1, thinned out while they are read."""
    with _open(path) as file:
        points, frames = slice(None, None, space_stride), slice(None, None, time_stride)
        if "tensor" not in file:
            return _read_groups(file, first, last, points, frames)
        space = (points,) * (file["tensor"].ndim - 2)
        outputs = file["tensor"][(slice(first, last), frames, *space)][..., None]
        inputs = file["nu"][(slice(first, last), *space)][..., None] if "nu" in file else outputs[:, 0]
        return inputs, outputs


def _read_groups(file: h5py.File, first: int, last: int, points: slice, frames: slice) -> tuple[np.ndarray, np.ndarray]:
    inputs, outputs = [], []
    for name in _group_names(file)[first:last]:
        group = file[name]
        space = (points,) * (group["data"].ndim - 2)
        outputs.append(group["data"][(frames, *space)])
        start = outputs[-1][0, ..., :1]
        if "bathymetry" in group:
            start = np.concatenate([start, group["bathymetry"][space][..., None]], axis=-1)
        inputs.append(start)
    return np.stack(inputs), np.stack(outputs)


def _group_names(file: h5py.File) -> list[str]:
    return sorted(name for name in file if name.isdigit())


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
        parent[time] = contents.times


@contextmanager
def _open(path: Path) -> Iterator[h5py.File]:
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InputError(f"{path} cannot be read as HDF5: {error}.") from None
    with file:
        yield file
