"""Runs as read from their record files; the large arrays stay on disk until they are asked for."""

import csv
import json
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from svdno.errors import InputError

Array = NDArray[Any]
T = TypeVar("T")

HISTORY = ("epoch", "learning_rate", "loss", "penalty", "train_error", "validation_error", "seconds")
METRICS = ("label", "equation", "title", "seed", "parameters", "train_seconds", "best_epoch", "split", "test")
SAMPLES = ("axis_0", "times", "index", "rank_of", "error", "truth", "prediction", "input", "field_names")
SINGULAR = ("axis_0", "values_all", "left_main", "right_main")


@dataclass(frozen=True)
class Run:
    """The records of one trained model; the large arrays stay on disk until they are asked for."""

    folder: Path
    metrics: dict[str, Any]
    environment: dict[str, Any]
    history: dict[str, Array]
    recipe: str

    @property
    def has_samples(self) -> bool:
        """Whether test samples were kept with the records."""
        return (self.folder / "samples.npz").exists()

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


def read_measured(path: Path, script: str, shape: str, parse: Callable[[dict[str, Any]], T]) -> T:
    """What a script of benchmarks/ has measured: its record of this shape, as `parse` makes sense of it."""
    remedy = f"Make it with `python benchmarks/{script} -o {path}`."
    try:
        return parse(_parse_object(path, ()))
    except FileNotFoundError:
        raise InputError(f"no file {path}. {remedy}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} must hold {shape}, got {type(error).__name__}: {error}. {remedy}") from None


def read_error(folder: Path) -> float:
    """Mean relative L2 error on the test samples of a finished run."""
    return float(
        _read(folder / "metrics.json", lambda path: _parse_object(path, ("test",)))["test"]["relative_l2"]["mean"]
    )


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
