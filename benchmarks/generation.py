"""Time to make the five data sets at the paper's sizes: drawing the inputs, and solving in float64.

    python benchmarks/generation.py [--samples N] [-o results/generation.json]

Solutions stay on the device and are dropped batch by batch, so this is computing without files. Times include nothing
of the first, small solve that loads libraries and compiles kernels.
"""

import argparse
import json
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from svdno.environment import describe_environment, pick_device
from svdno.equations import EQUATIONS

# Samples of the paper's sets, and how many are solved at once on a GPU with 80 GB or more.
SIZES = {
    "allen-cahn": (10_000, 5000),
    "diffusion-reaction": (10_000, 5000),
    "diffusion-sorption": (10_000, 5000),
    "shallow-water": (1_000, 250),
    "darcy": (10_000, 2000),
}


def synchronise(device: torch.device) -> float:
    """Wait for the device and read the clock."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return perf_counter()


def measure(name: str, samples: int, batch: int, device: torch.device) -> dict[str, Any]:
    """Seconds to draw and to solve all samples of one equation."""
    equation = EQUATIONS[name]()
    equation.solve(equation.sample_inputs(2, seed=1).to(device))
    drawing = solving = 0.0
    for first in range(0, samples, batch):
        start = synchronise(device)
        a = equation.sample_inputs(min(batch, samples - first), seed=0, first=first).to(device)
        drawn = synchronise(device)
        equation.solve(a)
        drawing, solving = drawing + drawn - start, solving + synchronise(device) - drawn
    return {"equation": name, "samples": samples, "batch": batch, "drawing_s": drawing, "solving_s": solving}


def main() -> None:
    """Measure each equation, print a table, and write the record where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the record")
    parser.add_argument("--samples", type=int, help="fewer samples than the paper has, for a CPU")
    arguments = parser.parse_args()
    device = pick_device()
    rows = []
    for name, (samples, batch) in SIZES.items():
        if name in EQUATIONS:
            rows.append(measure(name, arguments.samples or samples, batch, device))
            print(rows[-1], flush=True)
    table = Table(title="float64, paper sizes")
    for column in ("equation", "samples", "drawing s", "solving s"):
        table.add_column(column, justify="left" if column == "equation" else "right")
    for row in rows:
        table.add_row(row["equation"], str(row["samples"]), f"{row['drawing_s']:.1f}", f"{row['solving_s']:.1f}")
    Console().print(table)
    record = {
        "command": "python benchmarks/generation.py",
        "environment": describe_environment(),
        "equations": rows,
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
