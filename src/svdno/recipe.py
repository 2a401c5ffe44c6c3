"""Recipes: everything that decides a training run, as TOML on disk and frozen dataclasses in memory.

A recipe may start from another one: `extends = "demo"` takes that recipe and replaces what is written. A [model] table
replaces the whole model, since the arguments of one model mean nothing to another.
"""

import json
import tomllib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from svdno.errors import InputError, check_at_least, check_positive, check_type, choose

T = TypeVar("T")

BUNDLED = files("svdno") / "recipes"

SYMMETRIES = ("equation", "shift", "mirror", "swap")


@dataclass(frozen=True)
class DataSettings:
    """Which samples: the equation, how many, and how they are thinned out and split.

    equation, samples, seed, parameters: what is solved; parameters are keyword arguments of the equation
    file: a data file to take instead; then the equation may be left out, and 0 samples mean all of them
    space_stride, time_stride: keep every so many points along each axis, and times
    train, validation: fractions of the samples, in file order; the rest is the test set
    keep: solutions in "memory", in the "file" until they are needed, or "auto", by what fits
    """

    equation: str = ""
    samples: int = 0
    seed: int = 0
    file: str = ""
    space_stride: int = 1
    time_stride: int = 1
    train: float = 0.8
    validation: float = 0.1
    keep: str = "auto"
    parameters: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        choose("keep", self.keep, ("auto", "memory", "file"))
        check_at_least(self, samples=0 if self.file else 1, seed=0, space_stride=1, time_stride=1)
        if not (self.equation or self.file):
            raise InputError("[data] needs an `equation` to solve or a `file` to read, got neither.")
        if not (self.train > 0 and self.validation > 0 and self.train + self.validation < 1):
            raise InputError(
                f"`train` and `validation` must be positive and leave samples for the test, "
                f"got {self.train} and {self.validation}. Use 0.8 and 0.1."
            )


@dataclass(frozen=True)
class TrainingSettings:
    """How a model is trained.

    seconds: of training at most, over which the schedule then runs its course, or 0 for all `epochs` in any case; what
        comes of it depends on how fast the machine is
    accumulate: parts that a batch is computed in, to save memory; the step is the same
    optimizer: "adam", "adamw" or "muon" (matrices along orthogonal steps, the rest as adamw)
    weight_decay: λ of the decay W ← (1 − ηλ) W at each step, of all weights ("adam": added to the gradient instead)
    schedule: "one-cycle" (up over the first 30 %, down to nothing), "cosine" (down to nothing), "step" (halved every
        `step_epochs`) or "constant"
    clip: largest norm of the gradient, or 0 for no limit
    penalty: weight of the model's own penalty (L_ortho) in the loss
    terms: weights of further terms of the loss, such as {h1 = 0.1}
    symmetries: which move samples at random: "shift", "mirror", "swap", or "equation" for all that the equation has
    average: β of the moving average of the weights, which is then what is validated and kept; 0 for none
    refit: at the end, find the weights that the output is linear in by least squares, see `refit`
    tabulate: at the end, add a kernel with tabulated functions if that helps, see `tabulate`
    patience: stop after this many epochs without a better validation error, or 0 to go on
    precision: of products, "fp32", "tf32" (a GPU's faster float32) or "bf16"
    compile: on a GPU, fuse operations with torch.compile
    capture: on a GPU, record the step as a CUDA graph
    deterministic: on a GPU, the same bits on every run, at some cost
    """

    epochs: int
    seconds: float = 0.0
    batch_size: int = 50
    accumulate: int = 1
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: str = "step"
    step_epochs: int = 100
    clip: float = 0.0
    penalty: float = 1.0
    terms: dict[str, float] = field(default_factory=dict)
    symmetries: list[str] = field(default_factory=list)
    average: float = 0.0
    refit: bool = False
    tabulate: bool = False
    patience: int = 0
    precision: str = "tf32"
    compile: bool = False
    capture: bool = True
    deterministic: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        choose("optimizer", self.optimizer, ("adam", "adamw", "muon"))
        choose("schedule", self.schedule, ("one-cycle", "cosine", "step", "constant"))
        choose("precision", self.precision, ("fp32", "tf32", "bf16"))
        for name in self.symmetries:
            choose("symmetries", name, SYMMETRIES)
        check_at_least(self, epochs=1, batch_size=1, accumulate=1, step_epochs=1, patience=0, seed=0)
        check_at_least(self, seconds=0, weight_decay=0, clip=0, penalty=0)
        check_positive(self, "learning_rate")
        if not 0 <= self.average < 1:
            raise InputError(f"`average` must be at least 0 and below 1, got {self.average}. Use 0.999, or 0 for none.")

    @property
    def length(self) -> str:
        """How long the training is, in words: its epochs, or the time it has."""
        return f"those of {self.seconds:g} s" if self.seconds else str(self.epochs)

    def share_done(self, epoch: int, seconds: float) -> float:
        """How much of the training is over after so many epochs and seconds, from 0 to 1."""
        return min(max(epoch / self.epochs, seconds / self.seconds if self.seconds else 0.0), 1.0)


@dataclass(frozen=True)
class Recipe:
    """One training run: a label for tables, the data, the model (its name and constructor arguments), the training."""

    label: str
    data: DataSettings
    model: dict[str, Any]
    training: TrainingSettings

    def to_toml(self) -> str:
        """The recipe as a TOML document that `read_recipe` takes."""
        return _toml_table(asdict(self))


def read_recipe(name: str | Path, changes: Mapping[str, Any] | None = None) -> Recipe:
    """Read a recipe by its bundled name or from a TOML file, with single settings changed.

    changes: dotted key → value, such as {"model.rank": 16}
    """
    return build_recipe(_read_file(name), changes, name=str(name))


def build_recipe(tree: Mapping[str, Any], changes: Mapping[str, Any] | None = None, name: str = "table") -> Recipe:
    """Make a recipe of the contents of a TOML document, with single settings changed."""
    tree = _extend(deepcopy(dict(tree)))
    for key, value in (changes or {}).items():
        _set(tree, key, value)
    _check_keys(tree, [f.name for f in fields(Recipe)], "recipe")
    missing = {"label", "data", "model", "training"} - set(tree)
    if missing:
        raise InputError(f'the recipe {name} lacks {", ".join(sorted(missing))}. Start from: extends = "demo".')
    model = check_type("model", tree["model"], dict)
    if "name" not in model:
        raise InputError(f'[model] in {name} needs a `name`, such as name = "svdno".')
    check_type("model.name", model["name"], str)
    return Recipe(
        label=check_type("label", tree["label"], str),
        data=build_settings(DataSettings, tree["data"], "data"),
        model=model,
        training=build_settings(TrainingSettings, tree["training"], "training"),
    )


def bundled_recipes() -> list[str]:
    """Names of the recipes that come with the package."""
    root = Path(str(BUNDLED))
    return sorted(str(path.relative_to(root).with_suffix("")) for path in root.rglob("*.toml"))


def parse_changes(assignments: list[str]) -> dict[str, Any]:
    """Turn `key=value` arguments into changes; values are read as TOML, and as text where they are not TOML."""
    changes = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key:
            raise InputError(f"--set takes key=value, such as training.epochs=20; got {assignment!r}.")
        try:
            changes[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            changes[key.strip()] = text.strip()
    return changes


def read_toml(path: Path) -> dict[str, Any]:
    """The contents of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML document: {error}.") from None


def _read_file(name: str | Path) -> dict[str, Any]:
    path = Path(name)
    if str(name) in bundled_recipes():
        path = Path(str(BUNDLED / f"{name}.toml"))
    elif not path.is_file():
        raise InputError(
            f"no recipe {str(name)!r}: not a file, and not one of the bundled {', '.join(bundled_recipes())}."
        )
    return read_toml(path)


def _extend(tree: dict[str, Any], above: tuple[str, ...] = ()) -> dict[str, Any]:
    """The recipe that a tree extends, with what the tree says in its place."""
    if "extends" not in tree:
        return tree
    name = str(tree.pop("extends"))
    if name in above:
        raise InputError(f"the recipe {name} extends itself, by way of {', '.join(above)}.")
    merged = _extend(_read_file(name), (*above, name))
    for key, value in tree.items():
        base = merged.get(key, {})
        merge = isinstance(base, dict) and isinstance(value, dict) and key != "model"
        merged[key] = {**base, **value} if merge else value
    return merged


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise InputError(f"cannot set {key!r}: {part!r} is a single value.")
    tree[last] = value


def build_settings(kind: type[T], table: Any, name: str) -> T:
    """Make the dataclass `kind` of a TOML table; an unknown key or a wrong type is an error that says so."""
    if not isinstance(table, dict):
        raise InputError(f"[{name}] must be a table, got {table!r}.")
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    _check_keys(table, list(known), f"[{name}]")
    settings = {key: check_type(f"{name}.{key}", value, known[key].type) for key, value in table.items()}
    try:
        return kind(**settings)
    except TypeError as error:
        raise InputError(f"[{name}] is incomplete: {str(error).split(') ')[-1]}.") from None


def _check_keys(table: Mapping[str, Any], known: list[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise InputError(f"unknown setting {key!r} in {where}; it takes {', '.join(known)}.")


def _toml_table(tree: Mapping[str, Any], prefix: str = "") -> str:
    lines = [f"{key} = {json.dumps(v, ensure_ascii=False)}" for key, v in tree.items() if not isinstance(v, dict)]
    text = "\n".join(lines) + "\n" if lines else ""
    for key, value in tree.items():
        if isinstance(value, dict):
            text += f"\n[{prefix}{key}]\n" + _toml_table(value, f"{prefix}{key}.")
    return text
