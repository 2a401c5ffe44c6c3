"""Tables that compare runs: headers and formatted rows, for a terminal or a page."""

import math
from collections import Counter
from typing import Any

from svdno.report.records import Run

Table = tuple[list[str], list[list[str]]]

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
    cells = [[title, *(_cell(getattr(run, record).get(key)) for run in runs)] for title, record, key in _DETAILS]
    return ["", *labels(runs)], [row for row in cells if set(row[1:]) != {"–"}]


def _cell(value: Any) -> str:
    return "–" if value is None else number(value) if isinstance(value, float) else str(value)


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
