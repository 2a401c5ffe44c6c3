"""What a search leaves: the best recipe, and a table of all trials."""

import csv
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from svdno.tuning.space import Space


@dataclass(frozen=True)
class Attempt:
    """What is known of one trial.

    state: "waiting", "running", "finished", "pruned" (stopped early), "failed" or "cut off" (done again as another one)
    error: smallest validation error so far
    """

    number: int
    state: str
    values: dict[str, Any]
    epochs: int
    error: float | None
    seconds: float
    message: str


def find_best(attempts: list[Attempt]) -> Attempt | None:
    """The finished trial with the smallest validation error."""
    finished = [attempt for attempt in attempts if attempt.state == "finished"]
    return min(finished, key=lambda a: inf if a.error is None else a.error, default=None)


def write_results(space: Space, attempts: list[Attempt], folder: Path) -> None:
    """Write trials.csv and, once a trial is finished, best.toml: the recipe of the best one."""
    keys = list(space.search)
    with (folder / "trials.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["trial", "state", "validation_error", "epochs", "seconds", *keys, "message"])
        for a in attempts:
            values = [a.values.get(key) for key in keys]
            writer.writerow([a.number, a.state, a.error, a.epochs, f"{a.seconds:.1f}", *values, a.message])
    best = find_best(attempts)
    if best is not None:
        (folder / "best.toml").write_text(space.build(best.values).to_toml(), encoding="utf-8")
