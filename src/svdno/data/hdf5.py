"""How data files are laid out, which only this module and svdno.data.reader know.

Three layouts are those of the public benchmark files, the fourth is for anybody's own data:

    tensor        tensor (samples, times, x), x-coordinate, t-coordinate      allen-cahn, diffusion-reaction, whose
                  t-coordinate goes on one step beyond the last frame
    groups        "0000", "0001" …: data (times, *space, fields), grid/x, grid/y, grid/t, and bathymetry (*space) where
                  the input has one                                           diffusion-sorption, shallow-water
    coefficient   nu (samples, x, y), tensor (samples, 1, x, y), x-coordinate, y-coordinate           darcy
    pairs         input (samples, *space, fields), output (samples, times, *space, fields), x-coordinate, y-coordinate
                  and z-coordinate for as many axes as there are, t-coordinate; inputs alone are enough to predict from

Fields are float32. Attributes name the equation, its parameters (JSON), the seed and the version that wrote the file;
in `pairs` also the fields (input_fields, output_fields: JSON lists) and where their points sit (placement, as in Grid).
"""

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from svdno.data.reader import find, find_layout, group_names, open_file, read_axis
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
COORDINATES = ("x-coordinate", "y-coordinate", "z-coordinate")
# Attributes that say what the fields are of.
TEXTS = ("equation", "parameters", "placement")


@dataclass(frozen=True)
class Contents:
    """What a file holds, without the fields themselves.

    axes: coordinates along each space axis
    times: of the frames; a steady problem has one
    input_fields, output_fields: how many there are; a file of inputs alone has no output fields and no times
    later_times: those that the file lists after the last frame
    input_names, output_names: of the fields, where the file itself names them
    """

    layout: str
    samples: int
    axes: tuple[np.ndarray, ...]
    times: np.ndarray
    input_fields: int
    output_fields: int
    attributes: dict[str, Any]
    later_times: tuple[float, ...] = ()
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()

    @property
    def space(self) -> tuple[int, ...]:
        """Points along each axis."""
        return tuple(map(len, self.axes))

    @property
    def solution_bytes(self) -> int:
        """Of all output fields, which are most of a file."""
        return 4 * self.samples * len(self.times) * prod(self.space) * self.output_fields

    @property
    def equation(self) -> str | None:
        """The equation that the file names."""
        return self.attributes.get("equation")

    @property
    def parameters(self) -> dict[str, Any]:
        """Of that equation."""
        text = self.attributes.get("parameters", "{}")
        try:
            parameters = json.loads(text)
        except ValueError:
            parameters = None
        if not isinstance(parameters, dict):
            raise InputError(f"the attribute 'parameters' must be a JSON object, got {text!r}.")
        return parameters


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
        if contents.layout == "pairs":
            for key, names in (("input_fields", contents.input_names), ("output_fields", contents.output_names)):
                if names:
                    file.attrs[key] = json.dumps(names, ensure_ascii=False)
            _reserve(file, "input", (samples, *space, contents.input_fields))
            _reserve(file, "output", (samples, times, *space, contents.output_fields))
            _write_axes(file, contents, names=COORDINATES, time="t-coordinate")
            return
        if contents.layout == "coefficient":
            _reserve(file, "nu", (samples, *space))
            _reserve(file, "tensor", (samples, 1, *space))
            _write_axes(file, contents, names=COORDINATES)
            return
        _reserve(file, "tensor", (samples, times, *space))
        _write_axes(file, contents, names=COORDINATES, time="t-coordinate")


def write_samples(file: h5py.File, layout: str, first: int, inputs: np.ndarray, outputs: np.ndarray) -> None:
    """Put inputs (n, *space, fields) and outputs (n, times, *space, fields) in their place, from sample `first` on."""
    rows = slice(first, first + len(outputs))
    if layout == "groups":
        for i, (a, u) in enumerate(zip(inputs, outputs, strict=True), start=first):
            file[f"{i:04d}/data"][...] = u
            if a.shape[-1] > 1:
                file[f"{i:04d}/bathymetry"][...] = a[..., 1]
        return
    if layout == "pairs":
        file["input"][rows], file["output"][rows] = inputs, outputs
        return
    file["tensor"][rows] = outputs[..., 0]
    if layout == "coefficient":
        file["nu"][rows] = inputs[..., 0]


def read_contents(path: Path, *, outputs: bool = True) -> Contents:
    """Find out what a file holds; with outputs=False it may be inputs alone."""
    with open_file(path) as file:
        describe = {"groups": _describe_groups, "pairs": _describe_pairs}.get(find_layout(file), _describe_tensor)
        contents = describe(file)
    solved = len(contents.times) and contents.output_fields
    if not solved and (outputs or contents.layout != "pairs"):
        raise InputError(
            f"{path} must hold at least one frame of one field, got none. Inputs alone are for `svdno predict`."
        )
    return contents


def _describe_tensor(file: h5py.File) -> Contents:
    steady = "nu" in file
    shape = find(file, "tensor", axes=(4,) if steady else (3, 4)).shape
    samples, frames, *space = shape
    if steady and (find(file, "nu", axes=(3,)).shape, frames) != ((samples, *space), 1):
        raise InputError(
            f"{file.filename}: 'tensor' must be (samples, 1, x, y) and 'nu' (samples, x, y), "
            f"got {shape} and {file['nu'].shape}."
        )
    stored = np.zeros(1) if steady else read_axis(file, "t-coordinate")
    return Contents(
        layout="coefficient" if steady else "tensor",
        samples=samples,
        axes=tuple(read_axis(file, name, points) for name, points in zip(COORDINATES, space, strict=False)),
        times=stored[:frames],
        input_fields=1,
        output_fields=1,
        attributes=_read_attributes(file),
        later_times=tuple(stored[frames:].tolist()),
    )


def _describe_groups(file: h5py.File) -> Contents:
    names = group_names(file)
    first = names[0]
    frames, *space, fields = find(file, f"{first}/data", axes=(3, 4)).shape
    stored = read_axis(file, f"{first}/grid/t")
    return Contents(
        layout="groups",
        samples=len(names),
        axes=tuple(read_axis(file, f"{first}/grid/{name}", points) for name, points in zip("xy", space, strict=False)),
        times=stored[:frames],
        input_fields=2 if f"{first}/bathymetry" in file else 1,
        output_fields=fields,
        attributes=_read_attributes(file),
        later_times=tuple(stored[frames:].tolist()),
    )


def _describe_pairs(file: h5py.File) -> Contents:
    # The coordinates tell the axes of space from that of the fields.
    dim = max(1, sum(name in file for name in COORDINATES))
    axes = tuple(read_axis(file, name) for name in COORDINATES[:dim])
    samples = _match(file, "input", "samples", axes).shape[0]
    solved = "output" in file
    if solved and _match(file, "output", "samples, times", axes).shape[0] != samples:
        raise InputError(
            f"{file.filename}: 'input' and 'output' must have as many samples, "
            f"got {samples} and {file['output'].shape[0]}."
        )
    input_fields, output_fields = file["input"].shape[-1], file["output"].shape[-1] if solved else 0
    return Contents(
        layout="pairs",
        samples=samples,
        axes=axes,
        times=read_axis(file, "t-coordinate", file["output"].shape[1]) if solved else np.zeros(0),
        input_fields=input_fields,
        output_fields=output_fields,
        attributes=_read_attributes(file),
        input_names=_read_names(file, "input_fields", input_fields),
        output_names=_read_names(file, "output_fields", output_fields) if solved else (),
    )


def _read_attributes(file: h5py.File) -> dict[str, Any]:
    """What stands at the file, text as text even where another program left bytes."""
    attributes = dict(file.attrs)
    for key in attributes.keys() & set(TEXTS):
        value = attributes[key]
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        if not isinstance(text, str):
            raise InputError(f"{file.filename}: the attribute '{key}' must be text, got {text!r}.")
        attributes[key] = text
    return attributes


def _match(file: h5py.File, name: str, before: str, axes: tuple[np.ndarray, ...]) -> h5py.Dataset:
    """The fields of this name, which must be on the points of the axes, between what is `before` and the fields."""
    found, space = find(file, name), tuple(map(len, axes))
    first = before.count(",") + 1
    if found.shape[first:-1] != space or not found.shape[-1]:
        wanted = ", ".join((before, *map("{} = {}".format, "xyz", space), "fields"))
        raise InputError(f"{file.filename}: '{name}' must be ({wanted}) on its coordinates, got shape {found.shape}.")
    return found


def _read_names(file: h5py.File, key: str, count: int) -> tuple[str, ...]:
    """Names of the fields from an attribute, none if it is not there."""
    if key not in file.attrs:
        return ()
    try:
        names = json.loads(file.attrs[key])
    except (TypeError, ValueError):
        names = None
    if not (isinstance(names, list) and len(names) == count and all(isinstance(name, str) for name in names)):
        raise InputError(
            f"{file.filename}: the attribute '{key}' must be a JSON list of {count} names, got {file.attrs[key]!r}. "
            'Write it as text, such as \'["u", "v"]\'.'
        )
    return tuple(names)


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
