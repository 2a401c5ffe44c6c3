"""Run folders written by hand, as `svdno train` leaves them, with errors that a test chooses."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from svdno.recipe import build_recipe
from svdno.report.records import HISTORY

TITLES = {"allen-cahn": "Allen–Cahn equation", "darcy": "Darcy flow", "shallow-water": "Shallow-water equations"}
MODELS = {
    "svdno": {"name": "svdno", "rank": 8},
    "fno": {"name": "fno"},
    "mercer": {"name": "svdno", "kernel": "mercer"},
}


def write_cell(
    root: Path,
    equation: str,
    method: str,
    seed: int,
    errors: Any,
    label: str = "",
    model: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    **metrics: Any,
) -> Path:
    """Write the run of one cell of a benchmark to root/equation/method/seed-N."""
    return write_run(
        root / equation / method / f"seed-{seed}", equation, label or method, seed, errors,
        model or MODELS.get(method, {"name": "fno"}), settings, **metrics,
    )  # fmt: skip


def write_run(
    folder: Path,
    equation: str,
    label: str,
    seed: int,
    errors: Any,
    model: dict[str, Any],
    settings: dict[str, Any] | None = None,
    **metrics: Any,
) -> Path:
    """Write one run whose test samples have the given errors; settings change its recipe, metrics its record."""
    folder.mkdir(parents=True)
    tree = {
        "label": label,
        "data": {"equation": equation, "samples": 100},
        "model": dict(model),
        "training": {"epochs": 3, "seed": seed},
    }
    (folder / "recipe.toml").write_text(build_recipe(tree, settings).to_toml(), encoding="utf-8")
    (folder / "environment.json").write_text(json.dumps({"device": "cpu", "torch": "2.6", "commit": "abc1234"}))
    (folder / "metrics.json").write_text(json.dumps(make_metrics(equation, label, seed, errors) | metrics))
    with (folder / "history.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HISTORY)
        writer.writerows([epoch, 1e-3, 0.1, "", 0.2 / epoch, 0.3 / epoch, 2.0 * epoch] for epoch in (1, 2, 3))
    return folder


def make_metrics(equation: str, label: str, seed: int, errors: Any) -> dict[str, Any]:
    values = np.asarray(errors, dtype=float)
    summary = {
        "mean": values.mean(), "median": float(np.median(values)), "p90": np.quantile(values, 0.9), "max": values.max()
    }  # fmt: skip
    return {
        "label": label, "model": "svdno", "equation": equation, "title": TITLES[equation], "seed": seed,
        "parameters": 1000, "rank": 8, "grid": "64 points", "times": 3, "epochs": 3, "best_epoch": 3,
        "train_seconds": 6.0, "seconds_per_epoch": 2.0, "peak_memory_bytes": 5_000_000, "latency_seconds": 0.004,
        "samples_per_second": 1000.0, "orthogonality": 1e-5, "variability": 0.05,
        "split": f"80 training, 10 validation, {len(values)} test samples; in file order",
        "test": {
            "relative_l2": summary,
            "relative_l2_without_start": {name: 1.1 * value for name, value in summary.items()},
            "linf": {name: 5 * value for name, value in summary.items()},
            "per_time": [0.5 * values.mean(), values.mean(), 1.5 * values.mean()],
            "per_sample": values.tolist(),
        },
    }  # fmt: skip


def write_comparison(root: Path, samples: int = 10) -> dict[str, np.ndarray]:
    """Two equations, four methods, three seeds; returns the errors (seeds, samples) of Allen–Cahn by label."""
    rng = np.random.default_rng(0)
    names = {"svdno": "SVD-NO", "fno": "FNO", "mercer": "Mercer", "unet": "U-Net"}
    errors = {}
    for equation, scales in (("allen-cahn", (1.0, 1.3, 2.0, 6.0)), ("darcy", (3.0, 2.0, 4.0, 6.0))):
        for (method, label), scale in zip(names.items(), scales, strict=True):
            drawn = 0.01 * scale * rng.lognormal(0.0, 0.3, (3, samples))
            for seed in range(3):
                write_cell(root, equation, method, seed, drawn[seed], label)
            if equation == "allen-cahn":
                errors[label] = drawn
    return errors
