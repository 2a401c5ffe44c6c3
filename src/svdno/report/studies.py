"""Studies: runs of one protocol, by equation and method, each method with the runs of its seeds."""

import re
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from svdno.recipe import Recipe
from svdno.report.published import ABLATIONS, ERRORS, METHODS, REFERENCE
from svdno.report.records import Array, Run
from svdno.report.statistics import Interval, estimate_mean
from svdno.report.tables import statistic

# Settings that change where and how fast numbers are computed, not which.
_IDLE = {"data": ("keep",), "training": ("seed", "accumulate", "compile", "capture")}


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
        rows = [run.metrics["test"].get("per_sample", []) for run in self.runs]
        return np.array(rows, dtype=float) if rows[0] and len({len(row) for row in rows}) == 1 else None


@dataclass(frozen=True)
class Study:
    """Entries that may stand in one table, with the folders they come from.

    against: label of the method that the others are tested against
    apart: device on which costs were measured apart from the runs, if they were
    """

    homes: tuple[Path, ...]
    entries: tuple[Entry, ...]
    against: str = REFERENCE
    apart: str = ""

    @property
    def name(self) -> str:
        """The names of the folders."""
        return ", ".join(home.name for home in self.homes)

    @cached_property
    def equations(self) -> dict[str, str]:
        """Name → title of each equation, those of the paper first, in its order."""
        known = {entry.equation: entry.title for entry in self.entries}
        places = {name: list(ERRORS).index(name) if name in ERRORS else len(ERRORS) for name in known}
        return {name: known[name] for name in sorted(known, key=lambda name: (places[name], name))}

    @cached_property
    def contenders(self) -> list[str]:
        """The methods of Table 1: neither ablations nor SVD-NO at other ranks, which have tables of their own."""
        ranked = {e.label for name in self.equations for e in self._family(name) if self.find(name, REFERENCE)}
        other = {entry.label for entry in self.entries if entry.name not in ABLATIONS}
        kept = {label for label in other if label == REFERENCE or label not in ranked}
        return sorted(kept or {entry.label for entry in self.entries}, key=_place_method)

    def all_of(self, equation: str) -> list[Entry]:
        """All methods of one equation."""
        return [entry for entry in self.entries if entry.equation == equation]

    def of(self, equation: str) -> list[Entry]:
        """The contenders of one equation, or all its methods where there are none."""
        return [e for label in self.contenders if (e := self.find(equation, label))] or self.all_of(equation)

    def with_ablations(self, equation: str) -> list[Entry]:
        """The contenders of one equation, then its ablations."""
        contenders = self.of(equation)
        return contenders + [entry for entry in self.ablations(equation) if entry not in contenders]

    def ablations(self, equation: str) -> list[Entry]:
        """The ablations of one equation, in the order they are shown in."""
        return [entry for name in ABLATIONS for entry in self.all_of(equation) if entry.name == name]

    def ranks(self, equation: str) -> list[Entry]:
        """Methods of one equation that differ in nothing but the rank L, by rank, one of each; none below two."""
        by_rank: dict[int, Entry] = {}
        for entry in self._family(equation):
            by_rank.setdefault(int(entry.recipe.model["rank"]), entry)
        return [by_rank[rank] for rank in sorted(by_rank)] if len(by_rank) > 1 else []

    def _family(self, equation: str) -> list[Entry]:
        """The most methods of one equation that differ in nothing but the rank."""
        ranked = [entry for entry in self.all_of(equation) if "rank" in entry.recipe.model]
        families = [[e for e in ranked if strip(e.recipe, "rank") == strip(one.recipe, "rank")] for one in ranked]
        return max(families, key=len, default=[])

    def find(self, equation: str, label: str) -> Entry | None:
        """One method on one equation, where it was run."""
        return next((e for e in self.entries if (e.equation, e.label) == (equation, label)), None)

    def reference(self, equation: str) -> Entry:
        """The method that others are tested against, or the best where it was not run."""
        return self.find(equation, self.against) or min(self.of(equation), key=lambda entry: entry.error)


def strip(recipe: Recipe, *more: str) -> dict[str, Any]:
    """A recipe without its label, its seed and idle settings, and without the model's arguments named."""
    tree = asdict(recipe)
    del tree["label"]
    for table, keys in (*_IDLE.items(), ("model", more)):
        tree[table] = {key: value for key, value in tree[table].items() if key not in keys}
    return tree


def _place_method(label: str) -> tuple[int, list[str]]:
    """Methods of the paper in its order, each with its variants ("FNO, tuned"), then the others; L = 3 before 10."""
    plain = label.replace("-", "")  # another package's UNO belongs beside U-NO
    place = next((place for place, name in enumerate(METHODS) if name.replace("-", "") in plain), len(METHODS))
    return place, [part.zfill(9) if part.isdigit() else part for part in re.split(r"(\d+)", label)]
