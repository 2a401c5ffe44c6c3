"""What the numbers of a study rest on: samples, seeds, epochs, machine, versions."""

from collections.abc import Iterable
from typing import Any

from svdno.report.error_tables import shorten
from svdno.report.sheets import Sheet, word
from svdno.report.studies import Entry, Study


def tabulate_protocol(study: Study) -> Sheet:
    """One row per equation, all in words."""
    header = ["Equation", "Samples", "Grid", "Times", "Epochs", "Seeds", "Device", "PyTorch", "Commit"]
    rows = []
    for equation, title in study.equations.items():
        entries = study.all_of(equation)
        cells = (
            shorten(title),
            *(_join(_metrics(entries, key)) for key in ("split", "grid", "times")),
            _join(entry.recipe.training.length for entry in entries),
            _join(_metrics(entries, "seed")),
            *(_join(_environments(entries, key)) for key in ("device", "torch", "commit")),
        )
        rows.append([word(cell) for cell in cells])
    note = (
        f"Runs: {study.name}. Weights are those of the epoch with the smallest validation error; the test samples take "
        "no part in training or in this choice. All methods of an equation had the same samples and split."
    )
    return Sheet("protocol", "Samples, seeds and machine", header, rows, note, words=len(header))


def _metrics(entries: list[Entry], key: str) -> Iterable[Any]:
    return (run.metrics.get(key) for entry in entries for run in entry.runs)


def _environments(entries: list[Entry], key: str) -> Iterable[Any]:
    return (run.environment.get(key) for entry in entries for run in entry.runs)


def _join(values: Iterable[Any]) -> str | None:
    """Different values, each once; None where there is none."""
    known = {str(value) for value in values if value is not None}
    return ", ".join(sorted(known, key=lambda text: (len(text), text))) or None
