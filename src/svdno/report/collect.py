"""Finished runs, found in folders and put together into studies: runs that may stand in one table."""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from svdno.errors import InputError
from svdno.recipe import Recipe, read_recipe
from svdno.report.grouping import Found, put_together
from svdno.report.records import Run, read_run
from svdno.report.studies import Study
from svdno.report.tables import statistic

# Numbers that a run may record.
OPTIONAL = (
    "best_epoch", "orthogonality", "variability", "seconds_per_epoch", "peak_memory_bytes", "latency_seconds",
    "samples_per_second",
)  # fmt: skip


@dataclass
class Collection:
    """What folders hold: studies, and by name what takes no part in them.

    left_out: files that are no records, with what is wrong; failed: runs without a result
    """

    studies: list[Study] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def collect(folders: list[Path]) -> Collection:
    """Read all runs below the folders; without a single finished one there is nothing to report."""
    collection = Collection()
    found: list[Found] = []
    for folder in _find_runs(folders):
        try:
            run = read_run(folder)
            _check(run)
            recipe = read_recipe(folder / "recipe.toml")
        except InputError as error:
            collection.left_out.append(f"{folder}: {error}")
            continue
        if not math.isfinite(statistic(run, "relative_l2", "mean") or 0.0):
            collection.failed.append(f"{folder}: its test error is not finite")
        else:
            found.append(_locate(run, recipe))
    collection.failed += _find_failures(folders)
    if not found:
        names = ", ".join(map(str, folders))
        trouble = "; ".join(collection.left_out + collection.failed) or "nothing that a run leaves"
        raise InputError(
            f"a report needs at least one finished run (a folder with metrics.json, recipe.toml, history.csv and "
            f"environment.json), got {names} with {trouble}. Make some with `svdno benchmark` or `svdno train`."
        )
    collection.studies, repeated = put_together(_tell_apart(found))
    collection.left_out += repeated
    return collection


def _find_runs(folders: list[Path]) -> list[Path]:
    """Folders with metrics.json, in order, each once."""
    runs: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"no folder {folder}. Name the folder of a benchmark or of a run.")
        for path in sorted(folder.rglob("metrics.json")):
            runs.setdefault(path.parent.resolve(), path.parent)
    return list(runs.values())


def _find_failures(folders: list[Path]) -> list[str]:
    """Runs that have a recipe and no result, with what they said last."""
    lines: dict[Path, str] = {}
    for recipe in (path for folder in folders for path in sorted(folder.rglob("recipe.toml"))):
        run = recipe.parent
        if (run / "metrics.json").exists():
            continue
        failure = run / "failed.txt"
        reason = failure.read_text(encoding="utf-8", errors="replace").strip() if failure.exists() else "not finished"
        lines[run.resolve()] = f"{run}: {reason}"
    return list(lines.values())


def _check(run: Run) -> None:
    """Records of another version or another program are not ours to interpret."""
    metrics, test = run.metrics, run.metrics["test"] if isinstance(run.metrics["test"], dict) else {}
    lists = [test.get(key, []) for key in ("per_time", "per_sample")]
    summaries = [test.get(key, {}) for key in ("relative_l2", "relative_l2_without_start", "linf")]
    shaped = all(isinstance(one, list) for one in lists) and all(isinstance(one, dict) for one in summaries)
    needed = [metrics[key] for key in ("seed", "parameters", "train_seconds")]
    if shaped:
        optional = [metrics[key] for key in OPTIONAL if metrics.get(key) is not None]
        recorded = [*optional, *chain(*lists), *chain(*(summary.values() for summary in summaries))]
        needed += [summaries[0].get("mean"), *recorded]
    if not (shaped and lists[0] and all(isinstance(value, int | float) for value in needed)):
        raise InputError(
            f"Expected `{run.folder / 'metrics.json'}` to hold seed, parameters, seconds, the test error's mean and "
            "its values per time as numbers; it is of another program or version."
        )


def _locate(run: Run, recipe: Recipe) -> Found:
    """Where a run stands: DIR/equation/method/seed-N of a benchmark, or a folder of its own."""
    place = run.folder.resolve()
    equation, label = recipe.data.equation or str(run.metrics["title"]), str(run.metrics["label"])
    planned = place.name == f"seed-{recipe.training.seed}" and place.parent.parent.name == equation
    name = place.parent.name if planned else label.lower().replace(" ", "-")
    return Found(run, recipe, equation, label, name, place.parents[2 if planned else 0], planned)


def _tell_apart(found: list[Found]) -> list[Found]:
    """Add the name of the method to labels that several methods of a benchmark share."""
    names = defaultdict(set)
    for one in found:
        names[one.home, one.label].add(one.name)
    return [one.relabel() if len(names[one.home, one.label]) > 1 else one for one in found]
