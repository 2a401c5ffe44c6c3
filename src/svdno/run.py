"""One run: a recipe in, a folder of records out.

recipe.toml        what was asked for            history.csv      one row per epoch
environment.json   where it ran                  samples.npz      best, median and worst test sample
model.safetensors, surrogate.json                singular.npz     singular values and functions
                   the trained surrogate         metrics.json     the numbers; written last
"""

import csv
import json
import os
import platform
import subprocess
from collections.abc import Callable
from dataclasses import astuple, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from svdno import __version__
from svdno.data.dataset import Dataset, load_dataset
from svdno.data.generate import build_equation, find_or_generate
from svdno.evaluation.records import collect_samples, collect_singular, evaluate, measure_orthogonality
from svdno.lookup import construct
from svdno.models import MODELS
from svdno.recipe import Recipe
from svdno.training.checkpoint import save
from svdno.training.loop import train
from svdno.training.state import Epoch
from svdno.training.surrogate import Surrogate

Progress = Callable[[int, int], None]


def pick_device() -> torch.device:
    """The GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def check_recipe(recipe: Recipe) -> None:
    """Build the equation and the model once and drop them, so that a mistake shows before any work is done."""
    equation = build_equation(recipe.data.equation, recipe.data.parameters)
    channels = {"in_channels": len(equation.input_fields), "out_channels": len(equation.output_fields)}
    construct("model", MODELS, recipe.model["name"], {**_arguments(recipe), **channels, "dim": equation.grid.dim})


def prepare_data(recipe: Recipe, folder: Path, on_progress: Progress = lambda done, of: None) -> Dataset:
    """The recipe's data set, from its file in the folder, which is generated if it is missing."""
    return load_dataset(find_or_generate(recipe.data, folder, pick_device(), on_progress), recipe.data)


def run_recipe(
    recipe: Recipe, data: Dataset, folder: Path, on_epoch: Callable[[Epoch], None] = lambda row: None
) -> Surrogate:
    """Train on the data as the recipe says, evaluate on the test samples, and record all of it in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.json").unlink(missing_ok=True)
    (folder / "recipe.toml").write_text(recipe.to_toml(), encoding="utf-8")
    _write_json(folder / "environment.json", describe_environment())
    torch.manual_seed(recipe.training.seed)
    split = data.split(recipe.data.train, recipe.data.validation)
    surrogate = Surrogate.build(recipe.model["name"], split.train, **_arguments(recipe))
    surrogate.model.to(pick_device())

    history = train(surrogate, split.train, split.validation, recipe.training, on_epoch)
    _write_history(folder / "history.csv", history)
    save(surrogate, folder)

    prediction = surrogate.predict(split.test.inputs)
    _write_arrays(folder / "samples.npz", collect_samples(prediction, split.test))
    singular = collect_singular(surrogate, split.test)
    if singular is not None:
        _write_arrays(folder / "singular.npz", singular)
    _write_json(
        folder / "metrics.json",
        {
            **_describe(recipe, surrogate, history),
            "orthogonality": measure_orthogonality(surrogate, split.test),
            "split": split.policy,
            "test": evaluate(prediction, split.test),
        },
    )
    return surrogate


def describe_environment() -> dict[str, Any]:
    """Machine and versions, to stand beside every number."""
    device = pick_device()
    return {
        "svdno": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _find_commit(),
    }


def _arguments(recipe: Recipe) -> dict[str, Any]:
    return {key: value for key, value in recipe.model.items() if key != "name"}


def _describe(recipe: Recipe, surrogate: Surrogate, history: list[Epoch]) -> dict[str, Any]:
    best = min(history, key=lambda row: row.validation_error)
    return {
        "label": recipe.label,
        "model": surrogate.name,
        "equation": recipe.data.equation,
        "title": build_equation(recipe.data.equation, recipe.data.parameters).title,
        "seed": recipe.training.seed,
        "parameters": surrogate.parameters,
        "rank": recipe.model.get("rank"),
        "grid": " × ".join(map(str, surrogate.grid.shape)) + " points",
        "times": len(surrogate.times),
        "epochs": len(history),
        "best_epoch": best.epoch,
        "train_seconds": history[-1].seconds,
    }


def _find_commit() -> str | None:
    """The commit of the source, where it is a git checkout."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _write_history(path: Path, history: list[Epoch]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([f.name for f in fields(Epoch)])
        writer.writerows(astuple(row) for row in history)


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def _write_json(path: Path, record: dict[str, Any]) -> None:
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
