"""Many runs: every method on every equation with every seed, as a table says; what is finished is not done again.

A table is TOML. A method starts from the recipe `{equation}/{budget}` and changes some of it:

    budget = "laptop"
    equations = ["allen-cahn", "darcy"]
    seeds = [0, 1, 2]

    [methods.svdno]
    label = "SVD-NO"

    [methods.fno]
    label = "FNO"
    model = {name = "fno"}                    # another model
    training = {weight_decay = 1e-4}          # other settings of the training

    [methods.mercer]
    label = "Mercer"
    set = {"model.kernel" = "mercer"}         # single settings of the budget's own model

    [methods.fno.equations.darcy]             # the same keys for one equation
    training = {epochs = 20}

    [set.darcy]                               # single settings of all methods for one equation, or [set.all]
    "data.parameters.low" = 0.01

A table may start from another one (`extends = "short"`): what it says comes on top, method by method, and `rows` names
the methods it keeps.

Each cell is a run folder DIR/equation/method/seed-N of its own, trained by a process of its own.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from svdno.data.generate import Progress, find_or_generate
from svdno.environment import PARENT, count_cores, pick_device
from svdno.equations import EQUATIONS
from svdno.errors import InputError, choose
from svdno.files import replace_text
from svdno.recipe import DataSettings, Recipe, build_recipe, build_settings, read_recipe, read_toml
from svdno.run import check_recipe

BUNDLED = files("svdno") / "tables"

# What a failed cell leaves in its folder beside its log.
FAILURE = "failed.txt"


@dataclass(frozen=True)
class Method:
    """One row of a table: what it changes in the budget's recipe, for all equations or for some."""

    label: str = ""
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    set: dict[str, Any] = field(default_factory=dict)
    equations: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Equations × methods × seeds under one budget."""

    budget: str
    equations: list[str]
    seeds: list[int]
    methods: dict[str, Method]
    set: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One run of a table."""

    equation: str
    method: str
    seed: int
    recipe: Recipe
    folder: Path

    @property
    def state(self) -> str:
        """finished, failed or open."""
        if (self.folder / "metrics.json").exists():
            return "finished"
        return "failed" if (self.folder / FAILURE).exists() else "open"


def bundled_tables() -> list[str]:
    """Names of the tables that come with the package."""
    return sorted(path.stem for path in Path(str(BUNDLED)).glob("*.toml"))


def read_table(name: str) -> Table:
    """Read a table by its bundled name or from a TOML file."""
    tree = _read_tree(name)
    for equation in _take(tree, "equations", list):
        choose("equations", equation, tuple(EQUATIONS))
    for equation in (settings := _take(tree, "set", dict)):
        choose("set", equation, (*EQUATIONS, "all"))
        _take(settings, equation, dict)
    if not isinstance(tree.get("methods"), dict) or not tree["methods"]:
        raise InputError(f"{name} needs a table [methods.NAME] for each of its rows.")
    methods, rows = tree["methods"], _take(tree, "rows", list) or list(tree["methods"])
    tree.pop("rows", None)
    for row in rows:
        choose("rows", row, tuple(methods))
    tree["methods"] = {row: build_settings(Method, methods[row], f"methods.{row}") for row in rows}
    return build_settings(Table, tree, name)


def _take(tree: dict[str, Any], key: str, kind: type) -> Any:
    """The list or table of this name, empty where there is none."""
    value = tree.get(key, kind())
    if not isinstance(value, kind):
        raise InputError(f"`{key}` must be {'a list' if kind is list else 'a table'}, got {value!r}.")
    return value


def _read_tree(name: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the file says, on top of the table it extends."""
    if name in above:
        raise InputError(f"the table {name} extends itself, by way of {', '.join(above)}.")
    path = Path(str(BUNDLED / f"{name}.toml")) if name in bundled_tables() else Path(name)
    if not path.is_file():
        raise InputError(f"no table {name!r}: not a file, and not one of the bundled {', '.join(bundled_tables())}.")
    tree = read_toml(path)
    if "extends" not in tree:
        return tree
    return _merge(_read_tree(str(tree.pop("extends")), (*above, name)), tree)


def _merge(base: dict[str, Any], tree: dict[str, Any]) -> dict[str, Any]:
    """Both, where they differ the second; a model is taken as a whole."""
    merged = dict(base)
    for key, value in tree.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict) and key != "model"
        merged[key] = _merge(base[key], value) if both else value
    return merged


def narrow(table: Table, equations: list[str], methods: list[str], seeds: list[int], budget: str | None) -> Table:
    """A part of a table: the equations, methods and seeds that are named, all where none is; under another budget."""
    for name in equations:
        choose("equation", name, tuple(table.equations))
    for name in methods:
        choose("method", name, tuple(table.methods))
    return Table(
        budget=budget or table.budget,
        equations=equations or table.equations,
        seeds=seeds or table.seeds,
        methods={name: method for name, method in table.methods.items() if not methods or name in methods},
        set=table.set,
    )


def plan(table: Table, folder: Path, changes: Mapping[str, Any] | None = None) -> list[Cell]:
    """All cells of a table, each recipe checked, seed by seed so that a full column is there early.

    changes: single settings of every cell, on top of what the table says
    """
    return [
        _build_cell(table, equation, name, seed, folder, changes or {})
        for seed in table.seeds
        for equation in table.equations
        for name in table.methods
    ]


def prepare_files(cells: list[Cell], data_folder: Path, follow: Callable[[DataSettings], Progress]) -> None:
    """Generate the data files that the cells need and are not there, before processes ask for them at the same time."""
    needed: list[DataSettings] = []
    for cell in cells:
        if cell.state != "finished" and cell.recipe.data not in needed:
            needed.append(cell.recipe.data)
    for data in needed:
        find_or_generate(data, data_folder, pick_device(), follow(data))


def run_cells(
    cells: list[Cell],
    data_folder: Path,
    workers: int,
    device: str,
    on_change: Callable[[Cell], None] = lambda cell: None,
    seconds: float | None = None,
) -> None:
    """Train the cells that are not finished, so many at a time; one that fails is marked and the rest go on.

    seconds: after which runs are stopped, to be continued by the next call
    """
    stop = Event()
    end = None if seconds is None else monotonic() + seconds
    threads = max(1, count_cores() // workers)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "SVDNO_DATA": str(data_folder.resolve()),
        PARENT: str(os.getpid()),
    }
    waiting: set[Future[Cell]] = set()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for cell in cells:
                if cell.state != "finished":
                    waiting.add(pool.submit(_run_cell, cell, device, environment, stop))
            while waiting:
                left = None if end is None else max(0.0, end - monotonic())
                done, waiting = wait(waiting, left, FIRST_COMPLETED)
                for future in done:
                    on_change(future.result())
                if left == 0:
                    break
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _build_cell(table: Table, equation: str, name: str, seed: int, folder: Path, changes: Mapping[str, Any]) -> Cell:
    method = table.methods[name]
    single: dict[str, Any] = {"training.seed": seed, **table.set.get("all", {}), **table.set.get(equation, {})}
    tree: dict[str, Any] = {"extends": f"{equation}/{table.budget}", "label": method.label or name}
    for part in _parts(method, equation, name):
        if part.model:
            tree["model"] = part.model
        tree["training"] = {**tree.get("training", {}), **part.training}
        single |= part.set
    recipe = build_recipe(tree, {**single, **changes}, name=f"{name} on {equation}")
    check_recipe(recipe)
    cell = Cell(equation, name, seed, recipe, folder / equation / name / f"seed-{seed}")
    _check_folder(cell)
    return cell


def _parts(method: Method, equation: str, name: str) -> Iterator[Method]:
    """What a method changes everywhere, then what it changes for one equation."""
    yield method
    if equation in method.equations:
        yield build_settings(Method, method.equations[equation], f"methods.{name}.equations.{equation}")


def _check_folder(cell: Cell) -> None:
    """A folder that holds another run is not touched."""
    written = cell.folder / "recipe.toml"
    if written.exists() and read_recipe(written) != cell.recipe:
        raise InputError(
            f"{cell.folder} holds a run of another recipe than the table's. Use another -o, or delete that folder."
        )


def _run_cell(cell: Cell, device: str, environment: dict[str, str], stop: Event) -> Cell:
    """Train one cell in a process of its own, continuing where an earlier one was cut off."""
    cell.folder.mkdir(parents=True, exist_ok=True)
    (cell.folder / FAILURE).unlink(missing_ok=True)
    replace_text(cell.folder / "recipe.toml", cell.recipe.to_toml())
    command = [sys.executable, "-m", "svdno", "train", "--resume", str(cell.folder), "--device", device]
    with (cell.folder / "log.txt").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        while process.poll() is None:
            if stop.wait(0.1):
                process.terminate()
                process.wait()
                return cell
    if process.returncode != 0:
        lines = (cell.folder / "log.txt").read_text(encoding="utf-8").strip().splitlines()
        replace_text(cell.folder / FAILURE, lines[-1] if lines else f"status {process.returncode}")
    return cell
