"""Search spaces: recipes with a table of what is tried.

A space is a recipe, usually one that extends another, with a table [search] from dotted settings to what they may be:

    extends = "allen-cahn/short"

    [training]
    epochs = 20

    [search]
    "model.hidden_channels" = [32, 64, 128]                               # one of these
    "model.rank" = {low = 4, high = 32, step = 4}                         # whole numbers, as both ends are
    "training.learning_rate" = {low = 3e-4, high = 1e-2, log = true}      # evenly over its logarithm
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from math import isclose, isfinite
from pathlib import Path
from typing import Any

from svdno.errors import InputError
from svdno.recipe import Recipe, build_recipe, build_settings, read_toml
from svdno.run import check_recipe

BUNDLED = files("svdno") / "spaces"

EXAMPLE = '"training.learning_rate" = {low = 1e-4, high = 1e-2, log = true}'


@dataclass(frozen=True)
class Choice:
    """One of these values, in no order."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(set(self.values)) < 2 or len(set(self.values)) < len(self.values):
            raise InputError(f"a list must hold two different values or more, each once, got {list(self.values)}.")

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values to check before a search."""
        return self.values


@dataclass(frozen=True)
class Range:
    """A number between two, ends included: a whole one where both ends are and the step is.

    step: distance of the values from each other; by default 1 for whole numbers and none for others
    log: draw evenly over the logarithm
    """

    low: int | float
    high: int | float
    step: int | float | None = None
    log: bool = False

    def __post_init__(self) -> None:
        numbers = [self.low, self.high, *([] if self.step is None else [self.step])]
        if not all(isfinite(number) for number in numbers):
            raise InputError(f"`low`, `high` and `step` must be finite, got {numbers}.")
        if not self.low < self.high:
            raise InputError(f"`low` must be below `high`, got {self.low} and {self.high}.")
        if self.log and not (self.low > 0 and self.step is None):
            raise InputError("a range with `log` needs `low` above 0, and takes no `step`.")
        if self.step is not None and not self._divides(self.step):
            raise InputError(f"`step` must lead from {self.low} to {self.high} in whole steps, got {self.step}.")

    def _divides(self, step: int | float) -> bool:
        steps = (self.high - self.low) / step if step > 0 else 0.0
        return round(steps) >= 1 and isclose(steps, round(steps), rel_tol=1e-9)

    @property
    def whole(self) -> bool:
        """Whether it holds whole numbers only."""
        return all(type(number) is int for number in (self.low, self.high, self.step or 1))

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values to check before a search."""
        return self.low, self.high


@dataclass(frozen=True)
class Space:
    """A recipe, and what its settings may be instead: dotted key → choice or range."""

    recipe: Recipe
    search: dict[str, Choice | Range]

    def build(self, values: Mapping[str, Any]) -> Recipe:
        """The recipe with these values of the searched settings."""
        return build_recipe(asdict(self.recipe), values)


def bundled_spaces() -> list[str]:
    """Names of the spaces that come with the package."""
    return sorted(path.stem for path in Path(str(BUNDLED)).glob("*.toml"))


def read_space(name: str, recipe: str | None = None, changes: Mapping[str, Any] | None = None) -> Space:
    """Read a space by its bundled name or from a TOML file, and check the recipes at its ends.

    recipe: what it extends instead of what it says
    changes: single settings of the recipe for all trials, dotted key → value
    """
    path = Path(str(BUNDLED / f"{name}.toml")) if name in bundled_spaces() else Path(name)
    if not path.is_file():
        raise InputError(
            f"no search space {name!r}: not a file, and not one of the bundled {', '.join(bundled_spaces())}. "
            f"A space is a recipe with a table [search], such as\n[search]\n{EXAMPLE}"
        )
    tree = read_toml(path)
    search = _read_search(tree.pop("search", None), name)
    if recipe is not None:
        tree["extends"] = recipe
    both = sorted(search.keys() & (changes or {}).keys())
    if both:
        raise InputError(f"{', '.join(both)} is searched, so that it cannot be set as well. Set another one.")
    space = Space(build_recipe(tree, changes, name), search)
    for values in _corners(search):
        _check_values(space, values)
    return space


def _read_search(table: Any, name: str) -> dict[str, Choice | Range]:
    if not isinstance(table, dict) or not table:
        raise InputError(f"{name} says nothing to search. Give it a table such as\n[search]\n{EXAMPLE}")
    return {key: _read_entry(key, entry) for key, entry in table.items()}


def _read_entry(key: str, entry: Any) -> Choice | Range:
    # Errors on other data are not to be compared, and a label changes nothing.
    if not key.startswith(("model.", "training.")):
        raise InputError(f"[search] takes settings of the model and of the training, in quotes: {EXAMPLE}; got {key}.")
    try:
        if isinstance(entry, list) and all(isinstance(value, str | int | float) for value in entry):
            return Choice(tuple(entry))
        if isinstance(entry, dict):
            _check_numbers({key: value for key, value in entry.items() if key in ("low", "high", "step")})
            return build_settings(Range, entry, "range")
    except InputError as error:
        raise InputError(f"{key} in [search]: {error}") from None
    raise InputError(
        f"{key} in [search] must be a list of numbers, texts or true and false, or a range with low and high; "
        f"got {entry!r}."
    )


def _check_numbers(entry: dict[str, Any]) -> None:
    for key, value in entry.items():
        if type(value) not in (int, float):
            raise InputError(f"`{key}` must be a number, got {value!r}.")


def _corners(search: dict[str, Choice | Range]) -> Iterator[dict[str, Any]]:
    """All settings at their first ends, all at their last, and each at each of its ends beside the others' first."""
    first = {key: entry.ends[0] for key, entry in search.items()}
    yield first
    yield {key: entry.ends[-1] for key, entry in search.items()}
    for key, entry in search.items():
        yield from ({**first, key: end} for end in entry.ends[1:])


def _check_values(space: Space, values: Mapping[str, Any]) -> None:
    try:
        check_recipe(space.build(values))
    except InputError as error:
        pairs = ", ".join(f"{key} = {value}" for key, value in values.items())
        raise InputError(f"[search] holds a recipe that cannot be trained: {error} It has {pairs}.") from None
