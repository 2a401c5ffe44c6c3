"""Runs as read from their record files, and the tables that compare them."""

import csv
import json
import math
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from svdno.errors import InputError

Array = NDArray[Any]
Table = tuple[list[str], list[list[str]]]
T = TypeVar("T")

HISTORY = ("epoch", "learning_rate", "loss", "penalty", "train_error", "validation_error", "seconds")
METRICS = ("label", "equation", "title", "seed", "parameters", "train_seconds", "best_epoch", "split", "test")
SAMPLES = ("axis_0", "times", "index", "rank_of", "error", "truth", "prediction", "input", "field_names")
SINGULAR = ("axis_0", "values_all", "left_main", "right_main")

_DETAILS = (  # row title, record, key
    ("Seed", "metrics", "seed"),
    ("Epochs", "metrics", "epochs"),
    ("Selected epoch", "metrics", "best_epoch"),
    ("Rank L", "metrics", "rank"),
    ("L_ortho", "metrics", "orthogonality"),
    ("Grid", "metrics", "grid"),
    ("Times", "metrics", "times"),
    ("Device", "environment", "device"),
    ("Cores", "environment", "cores"),
    ("Machine", "environment", "machine"),
    ("Python", "environment", "python"),
    ("PyTorch", "environment", "torch"),
    ("svdno", "environment", "svdno"),
    ("Commit", "environment", "commit"),
    ("Date", "environment", "date"),
)


@dataclass(frozen=True)
class Run:
    """The records of one trained model; the large arrays stay on disk until they are asked for."""

    folder: Path
    metrics: dict[str, Any]
    environment: dict[str, Any]
    history: dict[str, Array]
    recipe: str

    def samples(self) -> dict[str, Array]:
        """Read the recorded test samples: truth, prediction, input and where they live."""
        return _read(self.folder / "samples.npz", lambda path: _parse_arrays(path, SAMPLES))

    def singular(self) -> dict[str, Array] | None:
        """Read the singular values and functions, or None for a model that records none."""
        path = self.folder / "singular.npz"
        return _read(path, lambda path: _parse_arrays(path, SINGULAR)) if path.exists() else None


def read_run(folder: Path) -> Run:
    """Read the records of one run folder, as `svdno train` writes them."""
    return Run(
        folder=folder,
        metrics=_read(folder / "metrics.json", lambda path: _parse_object(path, METRICS)),
        environment=_read(folder / "environment.json", lambda path: _parse_object(path, ())),
        history=_read(folder / "history.csv", _parse_history),
        recipe=_read(folder / "recipe.toml", lambda path: path.read_text(encoding="utf-8")),
    )


def labels(runs: list[Run]) -> list[str]:
    """Name each run by its label, with the seed or the folder added where the label alone is ambiguous."""
    names = [str(run.metrics["label"]) for run in runs]
    for extra in ([f"seed {run.metrics['seed']}" for run in runs], [run.folder.name for run in runs]):
        count = Counter(names)
        names = [f"{name} ({add})" if count[name] > 1 else name for name, add in zip(names, extra, strict=True)]
    return names


def comparison(runs: list[Run]) -> Table:
    """Tabulate the test errors, the training time and the size of each run: header and formatted rows."""
    header = ["Model", "Rel. L2", "Median", "Max", "No start", "L∞", "Seconds", "Parameters"]
    return header, [[name, *_figures(run)] for name, run in zip(labels(runs), runs, strict=True)]


def best_row(runs: list[Run]) -> int:
    """Find the run of smallest mean relative L2 error on the test samples."""
    return order_by_error(runs)[0]


def order_by_error(runs: list[Run]) -> list[int]:
    """Order the runs by mean relative L2 error on the test samples, diverged ones last."""
    means = [statistic(run, "relative_l2", "mean") for run in runs]
    keys = [math.inf if mean is None or math.isnan(mean) else mean for mean in means]
    return sorted(range(len(runs)), key=keys.__getitem__)


def details(runs: list[Run]) -> Table:
    """Tabulate settings and environment, one column per run; rows that no run records are left out."""
    cells = [
        [title, *("–" if (value := getattr(run, record).get(key)) is None else str(value) for run in runs)]
        for title, record, key in _DETAILS
    ]
    return ["", *labels(runs)], [row for row in cells if set(row[1:]) != {"–"}]


def statistic(run: Run, metric: str, name: str) -> float | None:
    """Look up one test statistic, such as the "mean" of "relative_l2"; None where it is not recorded."""
    value = (run.metrics["test"].get(metric) or {}).get(name)
    return None if value is None else float(value)


def percent(fraction: float | None) -> str:
    """Format a fraction as a percentage of two or three significant digits."""
    return number(fraction, 100.0, " %")


def number(value: float | None, factor: float = 1.0, unit: str = "") -> str:
    """Format a number with two (below one) or three significant digits."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "not finite"
    scaled = factor * value
    if scaled == 0:
        return f"0{unit}"
    spec = ",.0f" if abs(scaled) >= 99.95 else "#.3g" if abs(scaled) >= 1 else "#.2g"
    return f"{scaled:{spec}}{unit}"


def _figures(run: Run) -> list[str]:
    errors = [percent(statistic(run, "relative_l2", name)) for name in ("mean", "median", "max")]
    errors.append(percent(statistic(run, "relative_l2_without_start", "mean")))
    cost = [number(run.metrics["train_seconds"]), f"{run.metrics['parameters']:,}"]
    return [*errors, number(statistic(run, "linf", "mean")), *cost]


def _read(path: Path, parse: Callable[[Path], T]) -> T:
    remedy = f"make it with `svdno train RECIPE -o {path.parent}`."
    try:
        return parse(path)
    except FileNotFoundError:
        raise InputError(f"Expected the record `{path}`, found no such file; {remedy}") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"Expected a readable record `{path}`, got: {error}; {remedy}") from error


def _parse_object(path: Path, required: tuple[str, ...]) -> dict[str, Any]:
    record = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(record, dict):
        raise ValueError(f"a JSON {type(record).__name__} instead of an object")
    _require(required, record)
    return record


def _parse_history(path: Path) -> dict[str, Array]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise ValueError("no epochs")
    _require(HISTORY, rows[0])
    return {name: np.array([float(row[name] or "nan") for row in rows]) for name in HISTORY}


def _parse_arrays(path: Path, required: tuple[str, ...]) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    _require(required, arrays)
    return arrays


def _require(names: tuple[str, ...], record: dict[str, Any]) -> None:
    missing = [name for name in names if name not in record]
    if missing:
        raise ValueError(f"no {', '.join(map(repr, missing))}")
