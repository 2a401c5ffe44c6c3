"""Table of the time that one method takes to reach the errors that the others end with."""

import math

import numpy as np

from svdno.report.cost_tables import explain_times
from svdno.report.error_tables import shorten
from svdno.report.records import Run
from svdno.report.sheets import Cell, Sheet, quantity, word
from svdno.report.studies import Entry, Study


def tabulate_catching_up(study: Study) -> Sheet | None:
    """t(E)/T: seconds of the method compared with until the error E of each other one, over T of that one's training.

    None where nothing else was trained over epochs.
    """
    columns = {title: _compare(study, equation) for equation, title in study.equations.items()}
    labels = [label for label in study.contenders if any(label in column for column in columns.values())]
    if not labels:
        return None
    rows = [[word(label), *(column.get(label, word(None)) for column in columns.values())] for label in labels]
    note = (
        f"Seconds until {study.against} has the validation error that each method ends with, in parts of that method's "
        f"own training: below 1, {study.against} is there first. Means over seeds. A rate that falls to nothing at the "
        f"end of a training has its low errors late, however long the training is. {explain_times(study)}"
    )
    header = ["Method", *map(shorten, columns)]
    return Sheet("catching-up", f"Time of {study.against} to the errors of others", header, rows, note)


def seconds_to(run: Run, error: float) -> float:
    """Seconds of training until the validation error is this small; infinite where it never is."""
    small = np.flatnonzero(run.history["validation_error"] <= error)
    return float(run.history["seconds"][small[0]]) if len(small) else math.inf


def _compare(study: Study, equation: str) -> dict[str, Cell]:
    """t(E)/T by label, of the methods that were trained over epochs."""
    reference = study.find(equation, study.against)
    if reference is None or not _is_trained(reference):
        return {}
    others = [entry for entry in study.of(equation) if entry is not reference and _is_trained(entry)]
    return {entry.label: _divide(reference, entry) for entry in others}


def _divide(reference: Entry, entry: Entry) -> Cell:
    error = float(np.mean([np.nanmin(run.history["validation_error"]) for run in entry.runs]))
    whole = float(np.mean([run.history["seconds"][-1] for run in entry.runs]))
    share = float(np.mean([seconds_to(run, error) for run in reference.runs])) / whole
    if math.isnan(share):  # times that were to be measured apart, and were not
        return word(None)
    return Cell("never", math.inf) if math.isinf(share) else quantity(share)


def _is_trained(entry: Entry) -> bool:
    return all(len(run.history["epoch"]) > 1 for run in entry.runs)
