"""Predictions for the inputs of a data file, written to another one; neither is ever in memory as a whole."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from svdno import __version__
from svdno.data.generate import Progress
from svdno.data.hdf5 import Contents, create_file, read_contents, write_samples
from svdno.data.reader import SampleReader
from svdno.errors import InputError
from svdno.grid import Grid
from svdno.training.checkpoint import load
from svdno.training.losses import relative_l2
from svdno.training.surrogate import Surrogate


def predict_file(
    run: Path,
    source: Path,
    target: Path,
    *,
    batch_size: int = 16,
    device: str | torch.device = "cpu",
    on_progress: Progress = lambda done, of: None,
) -> float | None:
    """Predict all samples of a file; the mean of ‖û − u‖₂ / ‖u‖₂ where it also holds solutions u at the same times.

    run: folder with a trained surrogate
    source: data file of any layout, its inputs on the trained box at any resolution
    target: new file of the layout `pairs`; until it is complete it is called TARGET.unfinished
    batch_size: samples that are read, predicted and written at once
    """
    unfinished = target.with_name(target.name + ".unfinished")
    _check_target(source, target, unfinished)
    if batch_size < 1:
        raise InputError(f"`batch_size` must be at least 1, got {batch_size}.")
    surrogate = load(run, device)
    contents = read_contents(source, outputs=False)
    grid = _place(source, contents, surrogate)
    chunks = [range(i, min(i + batch_size, contents.samples)) for i in range(0, contents.samples, batch_size)]
    with SampleReader(source) as reader:
        _check_finite(source, reader, chunks)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            create_file(unfinished, _describe(run, contents, surrogate))
            error = _fill(unfinished, surrogate, grid, reader, chunks, _match_frames(contents, surrogate), on_progress)
            os.replace(unfinished, target)
        finally:
            unfinished.unlink(missing_ok=True)
    return error


def _fill(
    path: Path,
    surrogate: Surrogate,
    grid: Grid,
    reader: SampleReader,
    chunks: list[range],
    frames: list[int] | None,
    on_progress: Progress,
) -> float | None:
    """Write inputs and predictions chunk by chunk; their mean error against those frames of the source, if any."""
    errors, samples = [], chunks[-1].stop
    on_progress(0, samples)
    with h5py.File(path, "r+") as file:
        for rows in chunks:
            a = _as_float32(reader.inputs(rows))
            u = surrogate.predict(a, batch_size=len(rows), grid=grid)
            write_samples(file, "pairs", rows.start, a, u)
            if frames is not None:
                truth = torch.from_numpy(_as_float32(reader.outputs(rows)[:, frames]))
                errors.append(relative_l2(torch.from_numpy(u), truth))
            on_progress(rows.stop, samples)
    return torch.cat(errors).mean().item() if errors else None


def _describe(run: Path, contents: Contents, surrogate: Surrogate) -> Contents:
    """What the target will hold."""
    known = {key: value for key, value in contents.attributes.items() if key in ("equation", "parameters")}
    made_by = {"model": surrogate.name, "run": str(run), "version": __version__}
    return Contents(
        layout="pairs",
        samples=contents.samples,
        axes=contents.axes,
        times=np.array(surrogate.times),
        input_fields=len(surrogate.input_fields),
        output_fields=len(surrogate.output_fields),
        attributes={**known, **made_by, "placement": surrogate.grid.placement},
        input_names=surrogate.input_fields,
        output_names=surrogate.output_fields,
    )


def _match_frames(contents: Contents, surrogate: Surrogate) -> list[int] | None:
    """The frames of a file at the times of the predictions, or None if it does not hold all of them."""
    if contents.output_fields != len(surrogate.output_fields):
        return None
    times = np.array(surrogate.times)
    distance = np.abs(contents.times[:, None] - times)
    near = distance.min(axis=0) <= 1e-5 * np.abs(times).max()
    return distance.argmin(axis=0).tolist() if near.all() else None


def _as_float32(fields: np.ndarray) -> np.ndarray:
    """Fields as files of this package hold them."""
    return fields.astype(np.float32, copy=False)


def _check_target(source: Path, target: Path, unfinished: Path) -> None:
    if source.resolve() in (target.resolve(), unfinished.resolve()):
        raise InputError(f"predictions must go to another file than the inputs, got {source} for both.")
    if target.exists():
        raise InputError(f"{target} exists. Delete it or choose another name.")


def _place(source: Path, contents: Contents, surrogate: Surrogate) -> Grid:
    """The grid of a file, which must hold inputs of the kind that the surrogate was trained on."""
    grid, fields = surrogate.grid, surrogate.input_fields
    if contents.samples == 0:
        raise InputError(f"{source} holds no samples.")
    if len(contents.axes) != grid.dim:
        raise InputError(
            f"{source} must have as many space axes as the model was trained on, {grid.dim}, got {len(contents.axes)}."
        )
    if contents.input_fields != len(fields):
        raise InputError(
            f"{source} must hold the {len(fields)} input fields that the model was trained on ({', '.join(fields)}), "
            f"got {contents.input_fields}."
        )
    box = grid.resized(contents.space)
    for there, here, trained in zip(contents.axes, box.axes, grid.axes, strict=True):
        # Every n-th cell centre lies up to half a cell from the middle of n cells.
        cell = max(float(here[1] - here[0]), float(trained[1] - trained[0]))
        if np.abs(there - here.numpy()).max() > 0.5001 * cell:
            raise InputError(
                f"{source} has points from {_corners(contents.axes)}, the model was trained on the box from "
                f"{_corners(list(zip(grid.lower, grid.upper, strict=True)))}, where as many points go from "
                f"{_corners(box.axes)}. Inputs must be sampled there, to within half a cell."
            )
    shift = [float(there[0] - here[0]) for there, here in zip(contents.axes, box.axes, strict=True)]
    rounding = 1e-6 * max(map(abs, (*grid.lower, *grid.upper)))
    return box if max(map(abs, shift)) <= rounding else box.moved(shift)


def _corners(axes: Sequence[Any]) -> str:
    first, last = (", ".join(f"{axis[end]:.6g}" for axis in axes) for end in (0, -1))
    return f"({first}) to ({last})"


def _check_finite(source: Path, reader: SampleReader, chunks: list[range]) -> None:
    broken = [
        row for rows in chunks for row, a in zip(rows, reader.inputs(rows), strict=True) if not np.isfinite(a).all()
    ]
    if broken:
        which = ", ".join(map(str, broken[:5])) + (", …" if len(broken) > 5 else "")
        raise InputError(
            f"the inputs of {source} must be finite, got other values in {len(broken)} samples: {which}. "
            "See `svdno inspect`."
        )
