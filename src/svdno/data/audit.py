"""Look a data file over before training on it: what it holds, and what is wrong with it."""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from svdno.data import audit_checks as checks
from svdno.data.audit_record import Audit, Axis, Finding, describe
from svdno.data.audit_solution import check_solution, match_equation
from svdno.data.audit_survey import Survey, survey_file
from svdno.data.audit_twins import check_twins
from svdno.data.dataset import BEYOND
from svdno.data.generate import name_fields
from svdno.data.hdf5 import Contents, read_contents
from svdno.data.reader import read_samples
from svdno.equations import Equation
from svdno.errors import InputError
from svdno.grid import PLACEMENTS

__all__ = ["Audit", "Axis", "Finding", "describe", "inspect_file"]


def inspect_file(path: Path, *, equation: str | None = None, train: float = 0.8, validation: float = 0.1) -> Audit:
    """Look a file over, chunk by chunk; it is split in file order: training, validation, and the rest for the test."""
    contents = read_contents(path)
    if contents.samples == 0:
        raise InputError(f"{path} holds no samples.")
    sample = read_samples(path, 0, 1)[1]
    frames, placement = sample.shape[1], contents.attributes.get("placement")
    name, parameters = _read_identity(contents, equation)
    matched, reason = _try_equation(name, parameters, contents, frames)
    inputs, outputs = (matched.input_fields, matched.output_fields) if matched else name_fields(contents)
    split = _split(contents.samples, train, validation)
    survey = survey_file(path, contents, frames)
    twins, notes = check_twins(survey, split["training"], split["validation"])
    findings = [
        *checks.check_finite(survey.nan, survey.infinite),
        *checks.check_constant(survey.constant, survey.output_ranges, outputs),
        *twins,
        # Only an equation says that the input is a start.
        *(checks.check_start(survey.start_differs) if matched else ()),
        *checks.check_times(contents, frames),
    ]
    if matched is not None:
        wrong, reason = _try_solution(path, contents, matched, survey)
        findings += wrong
    notes += [f"equation not checked: {reason}"] if reason else []
    notes += _note_constants(inputs, survey)
    return Audit(
        path=str(path),
        layout=contents.layout,
        equation=name,
        parameters=parameters,
        samples=contents.samples,
        axes=tuple(_axis(name, points) for name, points in zip("xyz", contents.axes, strict=False)),
        times=_axis("t", contents.times),
        frames=frames,
        placement=matched.grid.placement if matched else placement or _guess_placement(contents.axes),
        placement_guessed=not (matched or placement),
        input_fields=inputs,
        output_fields=outputs,
        dtype=str(sample.dtype),
        disk_bytes=path.stat().st_size,
        memory_bytes=4 * contents.samples * prod(contents.space) * (len(inputs) + frames * len(outputs)),
        split=split,
        findings=tuple(findings),
        notes=tuple(notes),
    )


def _read_identity(contents: Contents, equation: str | None) -> tuple[str | None, dict[str, Any]]:
    """Name and parameters of the equation; the caller's name counts more than the file's."""
    name = equation or contents.equation
    return name, contents.parameters if name == contents.equation else {}


def _try_equation(
    name: str | None, parameters: dict[str, Any], contents: Contents, frames: int
) -> tuple[Equation | None, str | None]:
    """The equation on the file's grid and times, or why there is none."""
    if name is None:
        return None, "neither the file nor the caller names it."
    if frames != len(contents.times):
        return None, "there are frames without a time."
    try:
        return match_equation(name, parameters, contents), None
    except InputError as error:
        return None, str(error)


def _split(samples: int, train: float, validation: float) -> dict[str, int]:
    first, second = int(train * samples), int(validation * samples)
    return {"training": first, "validation": second, "test": samples - first - second}


def _note_constants(fields: tuple[str, ...], survey: Survey) -> list[str]:
    ranges = zip(fields, survey.input_ranges, strict=True)
    return [f"the input field {name} is {low:g} in all samples" for name, (low, high) in ranges if low == high]


def _try_solution(
    path: Path, contents: Contents, equation: Equation, survey: Survey
) -> tuple[list[Finding], str | None]:
    """What the equation finds, or why it cannot be asked."""
    try:
        return list(check_solution(path, contents, equation, survey)), None
    except InputError as error:
        return [], str(error)


def _axis(name: str, values: np.ndarray) -> Axis:
    steps = np.diff(values.astype(np.float64))
    spacing = float(steps.mean()) if len(steps) else 0.0
    uniform = bool(np.allclose(steps, spacing, rtol=0, atol=1e-3 * abs(spacing)))
    return Axis(name, len(values), float(values[0]), float(values[-1]), spacing, uniform)


def _guess_placement(axes: tuple[np.ndarray, ...]) -> str | None:
    """The placement whose box has the roundest corners: points on (0,1) rather than on (0.0005,0.9995)."""
    found = [_axis("x", values) for values in axes]
    if not found or not all(axis.uniform and axis.points > 1 for axis in found):
        return None

    def decimals(placement: str) -> int:
        before, after = BEYOND[placement]
        ends = [(axis.first - before * axis.spacing, axis.last + after * axis.spacing, axis) for axis in found]
        return max(_decimals(end, 0.01 * abs(axis.spacing)) for low, high, axis in ends for end in (low, high))

    return min(PLACEMENTS, key=decimals)


def _decimals(value: float, tolerance: float) -> int:
    """How many decimals it takes to write a number."""
    return next((n for n in range(15) if abs(round(value, n) - value) <= tolerance), 15)
