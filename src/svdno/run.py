"""One run: a recipe in, a folder of records out.

recipe.toml        what was asked for            history.csv      one row per epoch
environment.json   where it ran                  samples.npz      best, median and worst test sample
model.safetensors, surrogate.json                singular.npz     singular values and functions
                   the trained surrogate         metrics.json     the numbers; written last
training.safetensors                             the state of a training that is not finished
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from svdno.data.dataset import Dataset, Split, load_dataset
from svdno.data.generate import Progress, build_equation, find_or_generate
from svdno.data.hdf5 import read_contents
from svdno.environment import describe_environment, is_orphan, pick_device
from svdno.errors import InputError
from svdno.evaluation.cost import measure_speed, peak_memory
from svdno.evaluation.records import (
    collect_samples,
    collect_singular,
    evaluate,
    measure_orthogonality,
    measure_variability,
)
from svdno.files import replace_file, replace_text
from svdno.models.fitted import Fitted
from svdno.recipe import DataSettings, Recipe, read_recipe
from svdno.training.checkpoint import load, save
from svdno.training.distributed import rank, wait_for_all
from svdno.training.fitting import fit
from svdno.training.loop import check_solves, train
from svdno.training.losses import Objective
from svdno.training.state import HISTORY, Epoch, write_history
from svdno.training.surrogate import Surrogate

STATE = "training.safetensors"


def find_run(
    recipe: str | None, changes: Mapping[str, Any], output: Path | None, resume: Path | None
) -> tuple[Path, Recipe]:
    """Folder and recipe of a new run, or of an unfinished one to resume; neither overwrites what is there."""
    if (recipe is None) == (resume is None):
        raise InputError("`svdno train` takes a recipe to start, or --resume RUN to continue a run: one of the two.")
    if resume is not None:
        if changes or output:
            raise InputError("a resumed run keeps its recipe and its folder. Start a new one to change them.")
        if not (resume / "recipe.toml").is_file():
            raise InputError(f"no run in {resume}: recipe.toml is missing.")
        if (resume / "metrics.json").exists():
            raise InputError(f"the run in {resume} is finished. See `svdno evaluate {resume}`.")
        return resume, read_recipe(resume / "recipe.toml")
    folder = output or Path("runs") / str(recipe).removesuffix(".toml").replace("/", "-")
    if (folder / "recipe.toml").exists():
        raise InputError(
            f"{folder} holds a run. Continue it with `svdno train --resume {folder}`, "
            "choose another folder with -o, or delete it."
        )
    return folder, read_recipe(str(recipe), changes)


def find_data_folder(run: Path) -> Path:
    """Where generated data files are kept: beside the run, or in the folder that SVDNO_DATA names."""
    return Path(os.environ.get("SVDNO_DATA") or run.parent / "data")


def check_recipe(recipe: Recipe) -> None:
    """Build all that the training needs for one sample and drop it, so that a mistake shows before any work is done."""
    samples = recipe.data.samples or read_contents(Path(recipe.data.file)).samples
    if recipe.training.batch_size > int(recipe.data.train * samples):
        raise InputError(
            f"`batch_size` must not exceed the {int(recipe.data.train * samples)} training samples, "
            f"got {recipe.training.batch_size}."
        )
    sample = _sketch_sample(recipe.data)
    surrogate = Surrogate.build(recipe.model["name"], sample, **_arguments(recipe))
    Objective(surrogate, recipe.training.penalty, recipe.training.terms, sample.equation)
    check_solves(surrogate, recipe.training)


def _sketch_sample(settings: DataSettings) -> Dataset:
    """One sample of the file, or a blank one of the equation, as the settings thin it out."""
    if settings.file:
        return load_dataset(Path(settings.file), replace(settings, samples=1))
    equation = build_equation(settings.equation, settings.parameters)
    grid, times = equation.grid.strided(settings.space_stride), equation.times[:: settings.time_stride]
    names = equation.input_fields, equation.output_fields
    a, u = torch.ones(1, *grid.shape, len(names[0])), torch.ones(1, len(times), *grid.shape, len(names[1]))
    return Dataset(a, u, grid, times, *names, equation)


def prepare_data(recipe: Recipe, folder: Path, on_progress: Progress = lambda done, of: None) -> Dataset:
    """The recipe's data set, from its file; one in the folder is generated if it is missing, by the first process."""
    if rank() == 0:
        find_or_generate(recipe.data, folder, pick_device(), on_progress)
    wait_for_all()
    return load_dataset(find_or_generate(recipe.data, folder, pick_device()), recipe.data)


def run_recipe(
    recipe: Recipe,
    data: Dataset,
    folder: Path,
    on_epoch: Callable[[Epoch], None] = lambda row: None,
    device: torch.device | None = None,
) -> None:
    """Train on the data as the recipe says, evaluate on the test samples, and record all of it in the folder.

    A folder with the state of an unfinished training of the same recipe is continued.
    """
    device = device or pick_device()
    first = rank() == 0
    if first:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.json").unlink(missing_ok=True)
        replace_text(folder / "recipe.toml", recipe.to_toml())
        _write_json(folder / "environment.json", describe_environment(device))
    if recipe.training.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.manual_seed(recipe.training.seed)
    split = data.split(recipe.data.train, recipe.data.validation)
    surrogate = Surrogate.build(recipe.model["name"], split.train, **_arguments(recipe))
    surrogate.model.to(device)
    history: list[Epoch] = []

    def follow(row: Epoch) -> None:
        history.append(row)
        on_epoch(row)
        if is_orphan():
            raise SystemExit("the benchmark that started this run is gone; the same command continues it")

    try:
        if isinstance(surrogate.model, Fitted):
            history = fit(surrogate, split.train, split.validation, on_epoch)
        else:
            history = train(
                surrogate,
                split.train,
                split.validation,
                recipe.training,
                follow,
                state_file=folder / STATE,
                identity=_flatten(asdict(recipe)),
            )
    except InputError:
        if first and history:  # what was best before the loss exploded
            save(surrogate, folder)
        raise
    if first:
        write_history(folder / HISTORY, history)
        save(surrogate, folder)
        memory = peak_memory(device)
        record = {**_describe(recipe, surrogate, history), "peak_memory_bytes": memory}
        _record_evaluation(folder, record, surrogate, split)
        (folder / STATE).unlink(missing_ok=True)
    wait_for_all()


def evaluate_run(
    folder: Path,
    data_folder: Path,
    device: torch.device,
    follow: Callable[[DataSettings], Progress],
    changes: Mapping[str, Any],
) -> dict[str, Any]:
    """Evaluate the surrogate of a run folder again, on the test samples of its recipe or of other data.

    changes: dotted key → value of its data settings, such as {"data.space_stride": 2}
    """
    for key in changes:
        if not key.startswith("data."):
            raise InputError(
                f"evaluate takes other data, such as data.space_stride=2, and no other {key.split('.')[0]}."
            )
    surrogate = load(folder, device)
    recipe = read_recipe(folder / "recipe.toml", changes)
    split = prepare_data(recipe, data_folder, follow(recipe.data)).split(recipe.data.train, recipe.data.validation)
    test = split.test.loaded()
    if tuple(test.times.tolist()) != surrogate.times:
        raise InputError(
            f"the model predicts {len(surrogate.times)} times up to {surrogate.times[-1]:g}, and these data have "
            f"{len(test.times)} up to {test.times[-1]:g}. Choose data.time_stride and data.parameters to match."
        )
    return {
        "label": recipe.label,
        "equation": recipe.data.equation,
        "split": split.policy,
        "orthogonality": measure_orthogonality(surrogate, test),
        "test": evaluate(surrogate.predict(test.inputs, grid=test.grid), test),
    }


def _record_evaluation(folder: Path, record: dict[str, Any], surrogate: Surrogate, split: Split) -> None:
    """Write what the test samples show; the numbers last."""
    test = split.test.loaded()
    prediction = surrogate.predict(test.inputs)
    _write_arrays(folder / "samples.npz", collect_samples(prediction, test))
    singular = collect_singular(surrogate, test)
    if singular is not None:
        _write_arrays(folder / "singular.npz", singular)
    _write_json(
        folder / "metrics.json",
        {
            **record,
            **measure_speed(surrogate, test.inputs),
            "orthogonality": measure_orthogonality(surrogate, test),
            "variability": measure_variability(test, surrogate.device),
            "split": split.policy,
            "test": evaluate(prediction, test),
        },
    )


def _arguments(recipe: Recipe) -> dict[str, Any]:
    return {key: value for key, value in recipe.model.items() if key != "name"}


def _flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key → value."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _describe(recipe: Recipe, surrogate: Surrogate, history: list[Epoch]) -> dict[str, Any]:
    best = min(history, key=lambda row: row.validation_error)
    seconds = [row.seconds for row in history]
    name = recipe.data.equation
    return {
        "label": recipe.label,
        "model": surrogate.name,
        "equation": name,
        "title": build_equation(name, recipe.data.parameters).title if name else Path(recipe.data.file).name,
        "seed": recipe.training.seed,
        "parameters": surrogate.parameters,
        "rank": recipe.model.get("rank"),
        "grid": str(surrogate.grid),
        "times": len(surrogate.times),
        "epochs": len(history),
        "best_epoch": best.epoch,
        "train_seconds": seconds[-1],
        "seconds_per_epoch": median(np.diff([0.0, *seconds]).tolist()),
    }


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    def write(part: Path) -> None:
        with part.open("wb") as file:  # numpy would append .npz to a name
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    replace_file(path, write)


def _write_json(path: Path, record: dict[str, Any]) -> None:
    replace_text(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
