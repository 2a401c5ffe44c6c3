"""The trials of a search in one file, FOLDER/study.log, which processes share and which outlives them.

A trial belongs to a worker, and a worker holds a lock for as long as it lives. A trial that is running while nobody
holds its worker's lock was cut off: it is done again with the same values.
"""

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from math import isfinite
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from svdno.errors import InputError
from svdno.tuning.results import Attempt
from svdno.tuning.space import Choice, Range, Space

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage
    from optuna.trial import FrozenTrial, Trial, TrialState
except ImportError as missing:
    raise InputError(
        f"tuning needs the package optuna, which cannot be imported ({missing}). Install it: pip install 'svdno[tune]'"
    ) from None

# What may go wrong with one trial and leaves the others to go on.
FAILURES = (InputError, torch.OutOfMemoryError)

# How often the same values are tried, where processes end before their training does.
ATTEMPTS = 3

# Share of the epochs in which no trial is stopped: the rate is on its way up and errors say little.
SPARED = 1 / 3


class SystemLock(JournalFileOpenLock):
    """Optuna's lock of its file, by one that the system frees when its holder dies, however it dies."""

    def __init__(self, lock: FileLock) -> None:
        self.lock = lock

    def acquire(self) -> bool:
        """Wait for the lock."""
        self.lock.acquire()
        return True

    def release(self) -> None:
        """Give it back."""
        self.lock.release()


class SharedStudy:
    """The study of a space in a folder, one object in each process."""

    def __init__(self, space: Space, folder: Path) -> None:
        self.space, self.folder = space, folder
        folder.mkdir(parents=True, exist_ok=True)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.lock = FileLock(folder / "study.lock")
        with self.lock:
            _drop_torn_line(folder / "study.log")
            storage = JournalStorage(JournalFileBackend(str(folder / "study.log"), SystemLock(self.lock)))
            self.study = optuna.create_study(
                storage=storage, study_name="svdno", pruner=_build_pruner(space), load_if_exists=True
            )
            self._check_space()

    def claim(self, trials: int, worker: str) -> Trial | None:
        """The next trial for a worker, with its values drawn, or None where so many trials have begun."""
        with self.lock:
            self._repeat_what_was_cut_off()
            again = self._repeated()
            begun = [t for t in self._trials() if t.state != TrialState.WAITING and t.number not in again]
            if len(begun) >= trials:
                return None
            # The seed of each trial is its place, so that a search that was cut off continues as it would have.
            self.study.sampler = optuna.samplers.TPESampler(seed=len(begun))
            trial = self.study.ask({key: _distribution(entry) for key, entry in self.space.search.items()})
            trial.set_user_attr("worker", worker)
            return trial

    def conclude(self, trial: Trial, train: Callable[[], float]) -> None:
        """Train and note how it went: its validation error, stopped early, or what went wrong."""
        try:
            error = train()
        except optuna.TrialPruned:
            self.study.tell(trial, state=TrialState.PRUNED)
        except FAILURES as failure:
            trial.set_user_attr("failure", str(failure).partition("\n")[0])
            self.study.tell(trial, state=TrialState.FAIL)
        else:
            self.study.tell(trial, error)

    def attempts(self) -> list[Attempt]:
        """All trials so far."""
        again = self._repeated()
        return [_describe(trial, again.get(trial.number)) for trial in self._trials()]

    def importances(self) -> dict[str, float]:
        """Share of each setting in what makes a trial one of the best, by PED-ANOVA; none of fewer than ten trials."""
        if len(self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))) < 10:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # which it was in Optuna 4
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        return optuna.importance.get_param_importances(self.study, evaluator=evaluator)

    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _repeated(self) -> dict[int, int]:
        """Trials that were cut off → those that do them again."""
        return {t.user_attrs["repeats"]: t.number for t in self._trials() if "repeats" in t.user_attrs}

    def _repeat_what_was_cut_off(self) -> None:
        again = self._repeated()
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if self._works(trial.user_attrs.get("worker")):
                continue
            attempt = trial.user_attrs.get("attempt", 1)
            if attempt < ATTEMPTS and trial.number not in again:
                self.study.enqueue_trial(trial.params, {"repeats": trial.number, "attempt": attempt + 1})
            self.study.tell(trial.number, state=TrialState.FAIL)

    def _works(self, worker: str | None) -> bool:
        try:
            with FileLock(worker_lock(self.folder, worker or "none"), timeout=0):
                return False
        except Timeout:
            return True

    def _check_space(self) -> None:
        """A folder keeps the space it was started with."""
        wanted = json.loads(json.dumps({**asdict(self.space.recipe), "search": asdict(self.space)["search"]}))
        found = self.study.user_attrs.get("space")
        if found is None:
            self.study.set_user_attr("space", wanted)
            return
        differing = [key for key in wanted if found.get(key) != wanted[key]]
        if differing:
            raise InputError(
                f"{self.folder} holds a study of another space, with other {', '.join(differing)}. "
                "Restore that to continue it, or choose another folder with -o."
            )


def report(trial: Trial, epoch: int, error: float) -> None:
    """Note a validation error; a trial whose best is worse than the median of the finished ones' then ends here."""
    trial.report(error, epoch)
    if trial.should_prune():
        raise optuna.TrialPruned


def worker_lock(folder: Path, worker: str) -> Path:
    """The file that a worker locks for as long as it lives."""
    path = folder / "workers" / f"{worker}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _build_pruner(space: Space) -> optuna.pruners.BasePruner:
    spared = int(SPARED * space.recipe.training.epochs)
    return optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=spared + 1)  # Optuna counts from 0


def _distribution(entry: Choice | Range) -> BaseDistribution:
    if isinstance(entry, Choice):
        return CategoricalDistribution(entry.values)
    if entry.whole:
        return IntDistribution(int(entry.low), int(entry.high), entry.log, int(entry.step or 1))
    return FloatDistribution(entry.low, entry.high, entry.log, entry.step)


def _describe(trial: FrozenTrial, repeated_by: int | None) -> Attempt:
    states = {TrialState.COMPLETE: "finished", TrialState.FAIL: "failed"}
    state = "cut off" if repeated_by is not None else states.get(trial.state, trial.state.name.lower())
    message = trial.user_attrs.get("failure", "")
    if state == "cut off":
        message = f"done again as trial {repeated_by}"
    elif state == "failed" and not message:
        message = f"its process ended before its training did, {ATTEMPTS} times"
    end = trial.datetime_complete or datetime.now()
    seconds = (end - trial.datetime_start).total_seconds() if trial.datetime_start else 0.0
    errors = list(trial.intermediate_values.values())
    best = min(filter(isfinite, errors), default=None)
    return Attempt(trial.number, state, trial.params, len(errors), best, seconds, message)


def _drop_torn_line(path: Path) -> None:
    """Drop what was being written when the machine stopped: Optuna would append to it."""
    if path.exists() and (text := path.read_bytes()) and not text.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(text.rfind(b"\n") + 1)
