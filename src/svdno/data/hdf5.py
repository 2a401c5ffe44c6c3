"""The only module that knows how data files are laid out.

One-dimensional scalar equations (the layout of the public Allen–Cahn file):
    tensor        (samples, times, x) float32      x-coordinate (x,)      t-coordinate (times,)
Attributes name the equation, its parameters (JSON), the seed and the version that wrote the file.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from svdno.errors import InputError


class Contents(NamedTuple):
    """What a file holds: solutions (samples, times, *space, fields), the axes, the times, and the attributes."""

    solutions: np.ndarray
    axes: tuple[np.ndarray, ...]
    times: np.ndarray
    attributes: dict[str, Any]


def write_file(
    path: Path,
    chunks: Iterable[np.ndarray],
    *,
    samples: int,
    axis: np.ndarray,
    times: np.ndarray,
    attributes: dict[str, Any],
) -> None:
    """Write solutions (chunk, times, x, 1) chunk by chunk; the file appears under its name only when complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".unfinished")
    with h5py.File(unfinished, "w") as file:
        tensor = file.create_dataset("tensor", (samples, len(times), len(axis)), dtype="float32")
        file["x-coordinate"], file["t-coordinate"] = axis, times
        for key, value in attributes.items():
            file.attrs[key] = json.dumps(value) if isinstance(value, dict) else value
        written = 0
        for chunk in chunks:
            tensor[written : written + len(chunk)] = chunk[..., 0]
            written += len(chunk)
    if written != samples:
        raise ValueError(f"expected {samples} samples for {path}, got {written}")
    os.replace(unfinished, path)


def read_file(path: Path, *, space_stride: int = 1, time_stride: int = 1) -> Contents:
    """Read a file, keeping every `space_stride`-th point and every `time_stride`-th time."""
    try:
        with h5py.File(path, "r") as file:
            if "tensor" not in file:
                raise InputError(f"{path} holds {', '.join(file) or 'nothing'}; expected a data set named 'tensor'.")
            solutions = file["tensor"][:, ::time_stride, ::space_stride][..., None]
            frames = file["tensor"].shape[1]
            return Contents(
                solutions=solutions,
                axes=(file["x-coordinate"][::space_stride],),
                times=file["t-coordinate"][:frames:time_stride],
                attributes=dict(file.attrs),
            )
    except OSError as error:
        raise InputError(f"{path} cannot be read as HDF5: {error}.") from None
