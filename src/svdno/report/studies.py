"""Studies: runs of one protocol, by equation and method, each method with the runs of its seeds."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from svdno.recipe import Recipe
from svdno.report.published import ERRORS, METHODS, REFERENCE
from svdno.report.records import Array, Run
from svdno.report.statistics import Interval, estimate_mean
from svdno.report.tables import statistic

# Settings that change where and how fast numbers are computed, not which.
_IDLE = {"data": ("keep",), "training": ("seed", "accumulate", "compile", "capture")}


@dataclass(frozen=True)
class Found:
    """A finished run, and where it stands.

    label, name: of its method; home: the folder of its benchmark, or the one it lies in
    planned: whether it stands where a benchmark puts its runs
    """

    run: Run
    recipe: Recipe
    equation: str
    label: str
    name: str
    home: Path
    planned: bool

    def relabel(self) -> "Found":
        """The same with the name of the method in its label."""
        return replace(self, label=f"{self.label} ({self.name})")


@dataclass(frozen=True)
class Entry:
    """One method on one equation: the runs of its seeds, which differ in nothing else."""

    equation: str
    title: str
    label: str
    name: str
    recipe: Recipe
    runs: tuple[Run, ...]

    def estimate(self, metric: str, name: str = "mean") -> Interval | None:
        """Mean over seeds of one test statistic, with its interval; None where a run does not record it."""
        values = [statistic(run, metric, name) for run in self.runs]
        known = [value for value in values if value is not None]
        return estimate_mean(known) if len(known) == len(values) else None

    @property
    def error(self) -> float:
        """Mean relative L2 error, over test samples and seeds."""
        return float(np.mean([statistic(run, "relative_l2", "mean") for run in self.runs]))

    def average(self, key: str) -> float | None:
        """Mean over seeds of a recorded number; None where a run does not record it."""
        values = [run.metrics.get(key) for run in self.runs]
        return None if any(value is None for value in values) else float(np.mean(values))  # type: ignore[arg-type]

    def errors_by_sample(self) -> Array | None:
        """Errors (seeds, test samples); None where a run does not record them."""
        rows = [run.metrics["test"].get("per_sample") for run in self.runs]
        return None if any(row is None for row in rows) else np.array(rows, dtype=float)


@dataclass(frozen=True)
class Study:
    """Entries that may stand in one table, with the folders they come from."""

    homes: tuple[Path, ...]
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        """The names of the folders."""
        return ", ".join(home.name for home in self.homes)

    @property
    def equations(self) -> dict[str, str]:
        """Name → title of each equation, those of the paper first, in its order."""
        known = {entry.equation: entry.title for entry in self.entries}
        return {name: known[name] for name in sorted(known, key=lambda name: (_place(name, tuple(ERRORS)), name))}

    @property
    def labels(self) -> list[str]:
        """The methods, those of the paper first, in its order."""
        return sorted({entry.label for entry in self.entries}, key=lambda label: (_place(label, METHODS), label))

    def of(self, equation: str) -> list[Entry]:
        """The methods of one equation."""
        order = self.labels
        return sorted((e for e in self.entries if e.equation == equation), key=lambda e: order.index(e.label))

    def find(self, equation: str, label: str) -> Entry | None:
        """One method on one equation, where it was run."""
        return next((e for e in self.entries if (e.equation, e.label) == (equation, label)), None)

    def reference(self, equation: str) -> Entry:
        """The method that others are compared with: SVD-NO, or the best where it was not run."""
        return self.find(equation, REFERENCE) or min(self.of(equation), key=lambda entry: entry.error)


def put_together(found: list[Found]) -> tuple[list[Study], list[str]]:
    """Studies of the runs found, and the runs that repeat another one."""
    groups: list[list[Found]] = []
    repeated = []
    for one in sorted(found, key=lambda one: (str(one.home), one.equation, one.label, one.recipe.training.seed)):
        group = next((group for group in groups if _belongs(one, group)), None)
        if group is None:
            groups.append([one])
        elif twin := next((other for other in group if _key(other) == _key(one)), None):
            repeated.append(f"{one.run.folder}: the same recipe and seed as {twin.run.folder}, which is taken")
        else:
            group.append(one)
    return [_build(group) for group in groups], repeated


def _belongs(one: Found, group: list[Found]) -> bool:
    """Whether a run may stand beside others: the same data, no second recipe of a method, the same budget.

    A benchmark may give its methods different numbers of epochs. Any other run needs the epochs of one of the group's
    methods on its equation.
    """
    same_equation = [other for other in group if other.equation == one.equation]
    if any(describe_data(other.recipe) != describe_data(one.recipe) for other in same_equation):
        return False
    same_method = [other for other in same_equation if other.label == one.label]
    if same_method:
        return strip(same_method[0].recipe) == strip(one.recipe)
    if any(other.home == one.home for other in group) and (one.planned or not same_equation):
        return True
    return any(other.recipe.training.epochs == one.recipe.training.epochs for other in same_equation)


def strip(recipe: Recipe, *more: str) -> dict[str, Any]:
    """A recipe without its label, its seed and idle settings, and without the model's arguments named."""
    tree = asdict(recipe)
    del tree["label"]
    for table, keys in (*_IDLE.items(), ("model", more)):
        tree[table] = {key: value for key, value in tree[table].items() if key not in keys}
    return tree


def describe_data(recipe: Recipe) -> Any:
    """What decides the samples of a recipe."""
    return strip(recipe)["data"]


def _key(one: Found) -> tuple[str, str, int]:
    return one.equation, one.label, one.recipe.training.seed


def _build(group: list[Found]) -> Study:
    methods: dict[tuple[str, str], list[Found]] = {}
    for one in sorted(group, key=_key):
        methods.setdefault((one.equation, one.label), []).append(one)
    entries = [
        Entry(
            equation, str(some[0].run.metrics["title"]), label, some[0].name, some[0].recipe, tuple(o.run for o in some)
        )
        for (equation, label), some in methods.items()
    ]
    return Study(tuple(dict.fromkeys(one.home for one in group)), tuple(entries))


def _place(name: str, known: tuple[str, ...]) -> int:
    return known.index(name) if name in known else len(known)
