"""Look a data file over before training on it: what it holds, and what is wrong with it."""

import json
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from svdno.data import audit_checks as checks
from svdno.data.audit_checks import Finding, Survey
from svdno.data.generate import name_fields
from svdno.data.hdf5 import Contents, read_contents, read_samples
from svdno.equations import Equation
from svdno.errors import InputError
from svdno.grid import PLACEMENTS

# Samples that are held against the equation, and how many of them are solved to know what its residual can be.
CHECKED, SOLVED = 32, 4


@dataclass(frozen=True)
class Axis:
    """Coordinates along one axis of space, or times; spacing is their mean distance."""

    name: str
    points: int
    first: float
    last: float
    spacing: float
    uniform: bool


@dataclass(frozen=True)
class Audit:
    """What a file holds and what is wrong with it.

    equation: its name, if the file or the caller says it
    placement: of the points on each axis, as in Grid; None where they are not evenly spaced
    placement_guessed: from the coordinates, because the equation could not be matched
    memory_bytes: of inputs and outputs in float32
    notes: what was not checked, and why
    """

    path: str
    layout: str
    equation: str | None
    parameters: dict[str, Any]
    samples: int
    axes: tuple[Axis, ...]
    times: Axis
    frames: int
    placement: str | None
    placement_guessed: bool
    input_fields: tuple[str, ...]
    output_fields: tuple[str, ...]
    dtype: str
    disk_bytes: int
    memory_bytes: int
    split: dict[str, int]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no errors; warnings are allowed."""
        return all(finding.severity != "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The same in plain types, for JSON."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self) | {"ok": self.ok}))
        return plain


def inspect_file(path: Path, *, equation: str | None = None, train: float = 0.8, validation: float = 0.1) -> Audit:
    """Look a file over, chunk by chunk; it is split in file order: training, validation, and the rest for the test."""
    contents = read_contents(path)
    if contents.samples == 0:
        raise InputError(f"{path} holds no samples.")
    sample = read_samples(path, 0, 1)[1]
    frames = sample.shape[1]
    name, parameters = _read_identity(contents, equation)
    matched, reason = _try_equation(name, parameters, contents, frames)
    inputs, outputs = (matched.input_fields, matched.output_fields) if matched else name_fields(contents)
    split = _split(contents.samples, train, validation)
    values = prod(contents.space) * (contents.input_fields + frames * contents.output_fields)
    survey = checks.survey_file(path, contents, values)
    findings = _check(survey, split, outputs)
    findings += checks.check_times(contents.stored_times, frames)
    if matched is not None:
        broken, reason = _try_solution(path, matched, survey)
        findings += broken
    notes = [f"equation not checked: {reason}"] if reason else []
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
        placement=matched.grid.placement if matched else _guess_placement(contents.axes),
        placement_guessed=matched is None,
        input_fields=inputs,
        output_fields=outputs,
        dtype=str(sample.dtype),
        disk_bytes=path.stat().st_size,
        memory_bytes=4 * contents.samples * values,
        split=split,
        findings=tuple(findings),
        notes=tuple(notes),
    )


def describe(audit: Audit) -> list[str]:
    """The audit as lines for a terminal."""
    parameters = ", ".join(f"{key}={value}" for key, value in audit.parameters.items())
    times = "steady" if audit.frames == 1 else _describe_axis(audit.times, f"times for {audit.frames} frames")
    guessed = ", guessed from the coordinates" if audit.placement_guessed else ""
    lines = [
        f"{audit.path}: {audit.samples} samples, layout {audit.layout}, {audit.dtype}",
        f"  equation   {audit.equation or 'not named'}{f' ({parameters})' if parameters else ''}",
        *(f"  axis {axis.name}     {_describe_axis(axis, 'points')}" for axis in audit.axes),
        f"  placement  {audit.placement or 'not even'}{guessed}",
        f"  times      {times}",
        f"  fields     {', '.join(audit.input_fields)} → {', '.join(audit.output_fields)}",
        f"  size       {_size(audit.disk_bytes)} on disk, {_size(audit.memory_bytes)} in memory",
        f"  split      {', '.join(f'{count} {part}' for part, count in audit.split.items())}, in file order",
    ]
    for finding in audit.findings:
        more = ", …" if finding.count > len(finding.samples) else ""
        which = f" (samples {', '.join(map(str, finding.samples))}{more})" if finding.samples else ""
        lines.append(f"  {finding.severity}: {finding.message}{which}")
    lines += [f"  note: {note}" for note in audit.notes]
    return lines if audit.findings else [*lines, "  no findings"]


def _read_identity(contents: Contents, equation: str | None) -> tuple[str | None, dict[str, Any]]:
    """Name and parameters of the equation; the caller's name counts more than the file's."""
    named = contents.attributes.get("equation")
    name = equation or (None if named is None else str(named))
    if name != named:
        return name, {}
    try:
        return name, dict(json.loads(contents.attributes.get("parameters", "{}")))
    except (TypeError, ValueError):
        raise InputError("The attribute `parameters` of the file must be a JSON object.") from None


def _try_equation(
    name: str | None, parameters: dict[str, Any], contents: Contents, frames: int
) -> tuple[Equation | None, str | None]:
    """The equation on the file's grid and times, or why there is none."""
    if name is None:
        return None, "neither the file nor the caller names it."
    if frames != len(contents.times):
        return None, "there are frames without a time."
    try:
        return checks.match_equation(name, parameters, contents), None
    except InputError as error:
        return None, str(error)


def _split(samples: int, train: float, validation: float) -> dict[str, int]:
    first, second = int(train * samples), int(validation * samples)
    return {"training": first, "validation": second, "test": samples - first - second}


def _note_constants(fields: tuple[str, ...], survey: Survey) -> list[str]:
    ranges = zip(fields, survey.input_ranges, strict=True)
    return [f"the input field {name} is {low:g} in all samples" for name, (low, high) in ranges if low == high]


def _check(survey: Survey, split: dict[str, int], fields: tuple[str, ...]) -> list[Finding]:
    """What needs no equation."""
    labels = checks.label_near_equals(survey.sketches, survey.norms, survey.input_digests)
    return [
        *checks.check_finite(survey.nan, survey.infinite),
        *checks.check_constant(survey.constant, survey.output_ranges, fields),
        *checks.check_duplicates(survey.input_digests, survey.digests, labels),
        *checks.check_twins(labels, split["training"], split["validation"]),
        *checks.check_start(survey.start_differs),
    ]


def _try_solution(path: Path, equation: Equation, survey: Survey) -> tuple[list[Finding], str | None]:
    """What the equation finds, or why it cannot be asked."""
    try:
        return _check_solution(path, equation, survey), None
    except InputError as error:
        return [], str(error)


def _check_solution(path: Path, equation: Equation, survey: Survey) -> list[Finding]:
    """Hold some samples against the equation; each is read, and some are solved, one at a time."""
    chosen = _choose_samples(survey)
    if not len(chosen):
        raise InputError("no sample is finite.")
    own = 0.0
    for i in chosen[:: -(-len(chosen) // SOLVED)].tolist():
        a = torch.from_numpy(read_samples(path, i, i + 1)[0]).double()
        solution = equation.solve(a).float().double()  # rounded as in a file
        own = max(own, float(checks.relative_residuals(equation, solution, a).mean()))
    if checks.RESIDUAL + 2 * own >= 1:
        raise InputError("its own solution leaves too large a residual on so few points and times.")
    stored = []
    for i in chosen.tolist():
        a, u = (torch.from_numpy(fields).double() for fields in read_samples(path, i, i + 1))
        stored.append(checks.relative_residuals(equation, u, a))
    return list(checks.check_solution(np.concatenate(stored), own, survey.still[chosen], chosen))


def _choose_samples(survey: Survey) -> np.ndarray:
    """Finite samples: half of them ones that stop moving, if there are, the rest spread over the file."""
    finite = np.flatnonzero(np.isfinite(survey.norms))
    stopped = finite[survey.still[finite] > 1][: CHECKED // 2]
    others = np.setdiff1d(finite, stopped)
    spread = np.linspace(0, len(others) - 1, min(CHECKED - len(stopped), len(others))).astype(int)
    return np.union1d(stopped, others[spread])


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
    outside = {"nodes": (0.0, 0.0), "cells": (0.5, 0.5), "periodic": (0.0, 1.0)}

    def decimals(placement: str) -> int:
        before, after = outside[placement]
        ends = [(axis.first - before * axis.spacing, axis.last + after * axis.spacing, axis) for axis in found]
        return max(_decimals(end, 0.01 * abs(axis.spacing)) for low, high, axis in ends for end in (low, high))

    return min(PLACEMENTS, key=decimals)


def _decimals(value: float, tolerance: float) -> int:
    """How many decimals it takes to write a number."""
    return next((n for n in range(15) if abs(round(value, n) - value) <= tolerance), 15)


def _describe_axis(axis: Axis, unit: str) -> str:
    spacing = f"spacing {axis.spacing:.4g}" if axis.uniform else "not evenly spaced"
    return f"{axis.points} {unit}, {axis.first:.6g} … {axis.last:.6g}, {spacing}"


def _size(count: int) -> str:
    power = min(len(str(count)) - 1, 14) // 3
    return f"{count / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"
