"""Which runs may stand in one table: those of one protocol, put together into studies."""

from dataclasses import dataclass, replace
from pathlib import Path

from svdno.recipe import Recipe
from svdno.report.records import Run
from svdno.report.studies import Entry, Study, strip


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
    if any(strip(other.recipe)["data"] != strip(one.recipe)["data"] for other in same_equation):
        return False
    same_method = [other for other in same_equation if other.label == one.label]
    if same_method:
        return strip(same_method[0].recipe) == strip(one.recipe)
    if any(other.home == one.home for other in group) and (one.planned or not same_equation):
        return True
    return any(other.recipe.training.length == one.recipe.training.length for other in same_equation)


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
