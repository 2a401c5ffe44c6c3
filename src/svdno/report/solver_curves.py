"""Error–time curves of the classical solvers, as benchmarks/solver_curve.py records them."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from svdno.report.records import read_measured


@dataclass(frozen=True)
class Point:
    """A solver at one resolution (points along an axis): seconds and mean relative L2 error of a sample."""

    resolution: float
    seconds_per_sample: float
    relative_error: float


NAMES = [f.name for f in fields(Point)]


@dataclass(frozen=True)
class Curves:
    """Equation → points, and the device that they were measured on."""

    points: dict[str, list[Point]] = field(default_factory=dict)
    device: str = ""


def read_curves(path: Path | None) -> Curves:
    """Read a record of the solvers' errors and times; none, none."""
    if path is None:
        return Curves()
    shape = f"{{environment: {{device}}, curves: {{equation: [{{{', '.join(NAMES)}}}, …]}}}}"
    return read_measured(path, "solver_curve.py", shape, _parse)


def _parse(record: dict[str, Any]) -> Curves:
    points = {
        equation: sorted((Point(*(float(row[name]) for name in NAMES)) for row in rows), key=lambda p: p.resolution)
        for equation, rows in record["curves"].items()
    }
    return Curves({name: rows for name, rows in points.items() if rows}, str(record["environment"]["device"]))
