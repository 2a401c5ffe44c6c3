"""What an audit finds, as plain data, as JSON and as lines for a terminal."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

SHOWN = 10


@dataclass(frozen=True)
class Finding:
    """Something wrong with a file.

    samples: the first of them, at most 10, by index
    count: of all samples concerned, 0 where it is about the file as a whole
    """

    check: str
    severity: str
    message: str
    samples: tuple[int, ...] = ()
    count: int = 0


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
    notes: what was not checked, and why, and what is worth knowing but not wrong
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


def name_samples(
    check: str, severity: str, message: str, bad: np.ndarray, of: np.ndarray | None = None
) -> Iterator[Finding]:
    """A finding about the samples marked as bad, if any; `of` are their indices where not all were looked at."""
    if bad.any():
        samples = np.flatnonzero(bad) if of is None else np.sort(of[bad])
        looked_at = "samples" if of is None else "checked samples"
        shown = tuple(map(int, samples[:SHOWN]))
        yield Finding(check, severity, f"{message}: {len(samples)} of {len(bad)} {looked_at}", shown, len(samples))


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


def _describe_axis(axis: Axis, unit: str) -> str:
    spacing = f"spacing {axis.spacing:.4g}" if axis.uniform else "not evenly spaced"
    return f"{axis.points} {unit}, {axis.first:.6g} … {axis.last:.6g}, {spacing}"


def _size(count: int) -> str:
    power = min(len(str(count)) - 1, 14) // 3
    return f"{count / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"
