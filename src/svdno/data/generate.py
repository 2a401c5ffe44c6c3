"""Solve an equation for random inputs and keep the result as a data file."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import h5py
import torch
from filelock import FileLock
from torch import Tensor

from svdno import __version__
from svdno.data.hdf5 import LAYOUTS, ONE_MORE_TIME, Contents, create_file, write_samples
from svdno.equations import EQUATIONS, Equation
from svdno.errors import InputError
from svdno.files import replace_text
from svdno.lookup import construct
from svdno.recipe import DataSettings

# Solutions solved and written at once, in bytes of float64. Runs stop and continue between such chunks.
CHUNK_BYTES = 2**29

Progress = Callable[[int, int], None]


def build_equation(name: str, parameters: dict[str, Any]) -> Equation:
    """Make the equation called `name` with the given parameters."""
    return construct("equation", EQUATIONS, name, parameters)


def read_equation(contents: Contents, settings: DataSettings | None = None) -> Equation | None:
    """The equation that a file names or, where it names none, that the settings do."""
    if contents.equation in EQUATIONS:
        return build_equation(contents.equation, contents.parameters)
    return build_equation(settings.equation, settings.parameters) if settings and settings.equation else None


def name_fields(contents: Contents, settings: DataSettings | None = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of a file's input and output fields: its own, those of its equation if they fit, or numbers."""
    equation = read_equation(contents, settings)
    inputs = tuple(f"input {i + 1}" for i in range(contents.input_fields))
    outputs = tuple(f"output {i + 1}" for i in range(contents.output_fields))
    if equation is not None:
        names = equation.input_fields, equation.output_fields
        if tuple(map(len, names)) == (contents.input_fields, contents.output_fields):
            inputs, outputs = names
    return contents.input_names or inputs, contents.output_names or outputs


def find_or_generate(
    settings: DataSettings,
    folder: Path,
    device: torch.device,
    on_progress: Progress = lambda done, of: None,
) -> Path:
    """The data file for these settings: the one they name, or one in the folder, which is made if it is missing.

    Names in the folder are given by what decides the samples.
    """
    if settings.file:
        return Path(settings.file)
    digest = hashlib.sha256(json.dumps(_identity(settings), sort_keys=True).encode()).hexdigest()[:12]
    path = folder / f"{settings.equation}-{digest}.h5"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):  # runs that start at the same time wait for the one that generates
        if path.exists():
            on_progress(settings.samples, settings.samples)
        else:
            generate(settings, path, device, on_progress)
    return path


def generate(
    settings: DataSettings, path: Path, device: torch.device, on_progress: Progress = lambda done, of: None
) -> None:
    """Write the file chunk by chunk; one that was interrupted continues where it was and ends with the same bytes.

    Until it is complete the file is called PATH.unfinished, with a note beside it of how far it is.
    """
    equation = build_equation(settings.equation, settings.parameters)
    unfinished, note = (path.with_name(path.name + end) for end in (".unfinished", ".unfinished.json"))
    done = _find_progress(settings, unfinished, note)
    if done == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        contents = _describe(settings, equation)
        _check_room(contents, path)
        create_file(unfinished, contents)
    chunk = max(1, CHUNK_BYTES // (8 * len(equation.times) * prod(equation.grid.shape) * len(equation.output_fields)))
    on_progress(done, settings.samples)
    for first in range(done, settings.samples, chunk):
        a = equation.sample_inputs(min(chunk, settings.samples - first), settings.seed, first=first)
        u = equation.solve(a.to(device)).float().cpu()
        _check_finite(u, first, settings)
        with h5py.File(unfinished, "r+") as file:
            write_samples(file, LAYOUTS[settings.equation], first, a.numpy(), u.numpy())
        _note_progress(settings, note, first + len(a))
        on_progress(first + len(a), settings.samples)
    os.replace(unfinished, path)
    note.unlink(missing_ok=True)


def _check_room(contents: Contents, path: Path) -> None:
    """Refuse at once what the disk cannot hold."""
    free = shutil.disk_usage(path.parent).free
    if contents.solution_bytes > free:
        raise InputError(
            f"{path} would take {contents.solution_bytes / 1e9:,.1f} GB, and {path.parent} has room for "
            f"{free / 1e9:,.1f}. Take fewer samples, points or frames, or another folder."
        )


def _check_finite(u: Tensor, first: int, settings: DataSettings) -> None:
    broken = (~u.flatten(1).isfinite().all(dim=1)).nonzero().flatten()
    if len(broken):
        raise InputError(
            f"the solution of {settings.equation} is beyond what float32 holds, or undefined, first for sample "
            f"{first + broken[0]}. Choose other values for its parameters, got {settings.parameters}."
        )


def _identity(settings: DataSettings) -> dict[str, Any]:
    """What decides the samples."""
    return {
        "equation": settings.equation,
        "parameters": settings.parameters,
        "samples": settings.samples,
        "seed": settings.seed,
        "version": __version__,
    }


def _describe(settings: DataSettings, equation: Equation) -> Contents:
    times = equation.times.numpy()
    later = (float(2 * times[-1] - times[-2]),) if settings.equation in ONE_MORE_TIME else ()
    return Contents(
        layout=LAYOUTS[settings.equation],
        samples=settings.samples,
        axes=tuple(axis.numpy() for axis in equation.grid.axes),
        times=times,
        input_fields=len(equation.input_fields),
        output_fields=len(equation.output_fields),
        attributes=_identity(settings),
        later_times=later,
    )


def _find_progress(settings: DataSettings, unfinished: Path, note: Path) -> int:
    """Samples that an earlier, interrupted run has written, 0 where there was none."""
    if not (unfinished.exists() and note.exists()):
        return 0
    found = json.loads(note.read_text(encoding="utf-8"))
    if found["identity"] != _identity(settings):
        raise InputError(
            f"{unfinished} belongs to other settings: {found['identity']}. "
            "Finish it with those, delete it, or choose another name."
        )
    return int(found["done"])


def _note_progress(settings: DataSettings, note: Path, done: int) -> None:
    replace_text(note, json.dumps({"identity": _identity(settings), "done": done}))
