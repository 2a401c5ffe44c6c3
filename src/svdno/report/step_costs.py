"""What methods cost with the machine to themselves, as benchmarks/steps.py records it, for runs that shared one."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from svdno.report.records import Run, read_measured
from svdno.report.studies import Entry, Study

# What is measured apart. Runs of methods that were not measured lose these numbers: theirs compare with nothing.
APART = ("seconds_per_epoch", "peak_memory_bytes", "latency_seconds", "samples_per_second")


@dataclass(frozen=True)
class StepCosts:
    """equation:method → its grid and its numbers, those of APART; and the device that they were measured on."""

    methods: dict[str, dict[str, Any]]
    device: str


def read_costs(path: Path) -> StepCosts:
    """Read a record of what methods cost."""
    shape = f"{{environment: {{device}}, methods: {{equation:method: {{grid, {', '.join(APART)}}}}}}}"
    return read_measured(path, "steps.py", shape, _parse)


def _parse(record: dict[str, Any]) -> StepCosts:
    measured = {name: row for name, row in record["methods"].items() if "failed" not in row}
    numbers = {name: {"grid": row["grid"]} | {key: float(row[key]) for key in APART} for name, row in measured.items()}
    return StepCosts(numbers, str(record["environment"]["device"]))


def take_costs(study: Study, costs: StepCosts) -> Study:
    """The study with the costs measured apart; seconds of a training shrink as those of its epochs do."""
    return replace(study, entries=tuple(_take(entry, costs) for entry in study.entries), apart=costs.device)


def _take(entry: Entry, costs: StepCosts) -> Entry:
    measured = costs.methods.get(f"{entry.equation}:{entry.name}", {})
    return replace(entry, runs=tuple(_scale(run, measured) for run in entry.runs))


def _scale(run: Run, measured: dict[str, Any]) -> Run:
    if measured.get("grid") != run.metrics.get("grid"):
        measured = {}  # the same method at another size
    shared, alone = (numbers.get("seconds_per_epoch") for numbers in (run.metrics, measured))
    factor = alone / shared if alone and shared else None
    numbers = {key: measured.get(key) for key in APART}
    numbers["train_seconds"] = factor and factor * run.metrics["train_seconds"]
    seconds = run.history["seconds"] * (factor or float("nan"))
    return replace(run, metrics={**run.metrics, **numbers}, history={**run.history, "seconds": seconds})
