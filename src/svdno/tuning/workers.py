"""Processes that train the trials of a study side by side, on one device and one file of data."""

import gc
import os
import signal
from collections.abc import Callable
from math import isfinite
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import torch
from filelock import FileLock

from svdno.data.dataset import Split
from svdno.environment import pick_device
from svdno.errors import InputError
from svdno.models.fitted import Fitted
from svdno.recipe import Recipe
from svdno.run import prepare_data
from svdno.training.fitting import fit
from svdno.training.loop import train
from svdno.training.state import Epoch
from svdno.training.surrogate import Surrogate
from svdno.tuning.results import write_results
from svdno.tuning.space import Space
from svdno.tuning.study import SharedStudy, report, worker_lock

if TYPE_CHECKING:
    from optuna.trial import Trial

# Between two looks at the study.
POLL_SECONDS = 0.5


def run_workers(
    study: SharedStudy,
    trials: int,
    workers: int,
    device: str,
    data_folder: Path,
    on_change: Callable[[SharedStudy], None] = lambda study: None,
) -> list[str]:
    """Let so many processes train until so many trials are made, and write the results; says why some broke."""
    context = get_context("spawn")  # a process with CUDA cannot be forked
    processes: dict[str, BaseProcess] = {}
    try:
        for _ in range(workers):
            name = uuid4().hex[:8]
            arguments = (study.space, study.folder, name, trials, workers, device, data_folder)
            processes[name] = context.Process(target=work, args=arguments)
            processes[name].start()
        while running := [process.sentinel for process in processes.values() if process.is_alive()]:
            wait(running, timeout=POLL_SECONDS)
            on_change(study)
    finally:
        for process in processes.values():
            process.terminate()
            process.join()
        write_results(study.space, study.attempts(), study.folder)
    return [_explain(study.folder, name, p.exitcode) for name, p in processes.items() if p.exitcode != 0]


def work(space: Space, folder: Path, name: str, trials: int, workers: int, device: str, data_folder: Path) -> None:
    """Train one trial after another, until so many have been made by all workers together."""
    with FileLock(worker_lock(folder, name)):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it ends it
        _write_to(_log(folder, name))
        torch.set_num_threads(max(1, torch.get_num_threads() // workers))
        study, place = SharedStudy(space, folder), pick_device(device)
        recipe = space.recipe
        split = prepare_data(recipe, data_folder).split(recipe.data.train, recipe.data.validation)
        while (trial := study.claim(trials, name)) is not None:
            _work_on(study, trial, split, place)


def _work_on(study: SharedStudy, trial: "Trial", split: Split, device: torch.device) -> None:
    recipe = study.space.build(trial.params)
    study.conclude(trial, lambda: train_trial(recipe, split, device, follow_trial(trial)))
    gc.collect()  # a model and its recorded steps hold each other
    if recipe.training.compile:
        torch.compiler.reset()  # which would refuse to compile yet another model
    torch.cuda.empty_cache()


def train_trial(recipe: Recipe, split: Split, device: torch.device, on_epoch: Callable[[Epoch], None]) -> float:
    """Train as the recipe says; the smallest validation error, whose weights a run would keep."""
    if recipe.training.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.manual_seed(recipe.training.seed)
    arguments = {key: value for key, value in recipe.model.items() if key != "name"}
    surrogate = Surrogate.build(recipe.model["name"], split.train, **arguments)
    surrogate.model.to(device)
    if isinstance(surrogate.model, Fitted):
        history = fit(surrogate, split.train, split.validation, on_epoch)
    else:
        history = train(surrogate, split.train, split.validation, recipe.training, on_epoch)
    error = min(row.validation_error for row in history)
    if not isfinite(error):
        raise InputError(f"the validation error became {error}. Lower training.learning_rate.")
    return error


def follow_trial(trial: "Trial") -> Callable[[Epoch], None]:
    """Note each epoch's error, and stop where nobody waits for the result any more."""

    def advance(row: Epoch) -> None:
        report(trial, row.epoch, row.validation_error)
        parent = parent_process()
        if parent is not None and not parent.is_alive():
            raise SystemExit("the process that started this one is gone")

    return advance


def _log(folder: Path, name: str) -> Path:
    return folder / "workers" / f"{name}.txt"


def _write_to(path: Path) -> None:
    """Send all output to a file, warnings of libraries included, so that it does not run through the table."""
    with path.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)


def _explain(folder: Path, name: str, status: int | None) -> str:
    path = _log(folder, name)
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines() if path.exists() else []
    return f"a worker ended with status {status}: {lines[-1] if lines else 'killed'} ({path})"
