"""The radial dam break, r = ½, against Clawpack: relative L2 over all stored times, on h and on h − 1.

    pip install clawpack            # needs gfortran
    python benchmarks/shallow_water_reference.py [--fine 512] [-o results/shallow-water-clawpack.json]

Clawpack runs as it did for the public data: Roe with entropy fix, MC limiter, second order, start thresholded at cell
centres. Its result on the fine grid, averaged to 128² cells, stands for the truth.
"""

import argparse
import json
from math import inf
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from clawpack import pyclaw, riemann  # type: ignore[import-not-found, import-untyped, unused-ignore]
from rich.console import Console
from rich.table import Table

from svdno.environment import describe_environment
from svdno.equations.shallow_water import HALF_WIDTH, ShallowWater, cover_fraction

RADIUS = 0.5


def run_clawpack(n: int) -> np.ndarray:
    """h at 101 times, averaged to 128² cells."""
    solver = pyclaw.ClawSolver2D(riemann.shallow_roe_with_efix_2D)
    solver.limiters, solver.order = pyclaw.limiters.tvd.MC, 2
    for axis in range(2):
        solver.bc_lower[axis] = solver.bc_upper[axis] = pyclaw.BC.extrap
    domain = pyclaw.Domain([pyclaw.Dimension(-HALF_WIDTH, HALF_WIDTH, n, name=name) for name in "xy"])
    state = pyclaw.State(domain, 3)
    state.problem_data["grav"] = 1.0
    x, y = state.p_centers
    state.q[0], state.q[1:] = 1 + (x**2 + y**2 <= RADIUS**2), 0
    control = pyclaw.Controller()
    control.solution, control.solver = pyclaw.Solution(state, domain), solver
    control.tfinal, control.num_output_times = 1.0, 100
    control.output_format, control.keep_copy, control.verbosity = None, True, 0
    control.run()
    h = np.stack([frame.q[0] for frame in control.frames])
    averaged: np.ndarray = h.reshape(101, 128, n // 128, 128, n // 128).mean(axis=(2, 4))
    return averaged


def run_ours(start: str) -> np.ndarray:
    """h at 101 times on 128² cells."""
    equation = ShallowWater()
    if start == "thresholded":
        inside = (equation.grid.points.norm(dim=-1) <= RADIUS).double()
    else:
        edges = np.linspace(-HALF_WIDTH, HALF_WIDTH, 129)
        inside = torch.from_numpy(cover_fraction(edges, edges, RADIUS))
    h: np.ndarray = equation.solve(torch.stack((1 + inside, 0 * inside), dim=-1)[None])[0, ..., 0].numpy()
    return h


def time_both(samples: int, repeats: int) -> dict[str, float]:
    """Seconds per sample at 128², the best of some repeats in turn: ours of a batch, Clawpack's of one."""
    equation = ShallowWater()
    a = equation.sample_inputs(samples, seed=0)
    best = {"clawpack": inf, "ours": inf}
    for _ in range(repeats):
        start = perf_counter()
        run_clawpack(128)
        middle = perf_counter()
        equation.solve(a)
        best["clawpack"] = min(best["clawpack"], middle - start)
        best["ours"] = min(best["ours"], (perf_counter() - middle) / samples)
    return best


def main() -> None:
    """Run all, print the table, and write the record where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fine", type=int, default=512)
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the record")
    arguments = parser.parse_args()
    seconds = time_both(samples=8, repeats=5)
    clawpack, truth = run_clawpack(128), run_clawpack(arguments.fine)
    rows = {"Clawpack 128²": clawpack}
    rows |= {f"ours 128², {start}": run_ours(start) for start in ("thresholded", "cover-fraction")}
    columns = ["to Clawpack 128²", "on h − 1", f"to Clawpack {arguments.fine}²", "on h − 1"]
    table, errors = Table("h at 128²", *columns), {}
    for name, h in rows.items():
        found = [np.linalg.norm(h - r) / np.linalg.norm(r - s) for r in (clawpack, truth) for s in (0, 1)]
        errors[name] = [float(error) for error in found]
        table.add_row(name, *(f"{error:.4f}" for error in found))
    Console().print(table, f"seconds per sample at 128²: {seconds}")
    if arguments.output:
        record = {
            "command": "python benchmarks/shallow_water_reference.py",
            "environment": describe_environment(),
            "columns": columns,
            "errors": errors,
            "seconds": seconds,
        }
        arguments.output.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
