"""Error–time curves of the classical solvers, as benchmarks/solver_curve.py records them."""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path

from svdno.errors import InputError


@dataclass(frozen=True)
class Point:
    """A solver at one resolution (points along an axis): seconds and mean relative L2 error of a sample."""

    resolution: float
    seconds_per_sample: float
    relative_error: float


@dataclass(frozen=True)
class Curves:
    """Equation → points, and the device that they were measured on."""

    points: dict[str, list[Point]] = field(default_factory=dict)
    device: str = ""


def read_curves(path: Path | None) -> Curves:
    """Read a record {"environment": {"device": …}, "curves": {equation: [{resolution, …}, …]}}; none, none."""
    if path is None:
        return Curves()
    names = [f.name for f in fields(Point)]
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        points = {
            equation: sorted((Point(*(float(row[name]) for name in names)) for row in rows), key=lambda p: p.resolution)
            for equation, rows in record["curves"].items()
        }
        return Curves({name: rows for name, rows in points.items() if rows}, str(record["environment"]["device"]))
    except FileNotFoundError:
        raise InputError(f"no file {path}. Make it with `python benchmarks/solver_curve.py -o {path}`.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} must hold {{environment: {{device}}, curves: {{equation: [{{{', '.join(names)}}}, …]}}}}, "
            f"got {type(error).__name__}: {error}. Make it with `python benchmarks/solver_curve.py -o {path}`."
        ) from None
