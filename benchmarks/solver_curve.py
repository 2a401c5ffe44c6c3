"""Error and time of the classical solvers over resolutions, in batches, for `svdno report --solvers FILE`.

    python benchmarks/solver_curve.py -o solvers.json               # all equations, on the GPU where there is one
    python benchmarks/solver_curve.py darcy --samples 8 --resolutions 16 32 --finest 64 -o solvers.json

The truth is the same solver at the finest resolution. On periodic grids every so many of its points are compared; on
grids of cells its values are averaged over each coarse cell, as finite volumes mean them.
"""

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from svdno.data.generate import build_equation
from svdno.environment import describe_environment, pick_device
from svdno.equations import EQUATIONS, Equation
from svdno.errors import InputError
from svdno.recipe import read_recipe

# Resolutions along an axis by default, and the finest.
IN_ONE_DIMENSION = ([64, 128, 256, 512, 1024], 4096)
IN_TWO_DIMENSIONS = ([16, 32, 64, 128], 512)

# Timed calls, of which the fastest counts: what else the machine does only ever adds.
CALLS = 3

Point = dict[str, float]


def build(name: str, points: int) -> Equation:
    """The equation of the paper's data set at another resolution."""
    return build_equation(name, {**read_recipe(f"{name}/paper").data.parameters, "points": points})


def coarsen(fields: Tensor, factor: int, dim: int, periodic: bool) -> Tensor:
    """Fields (..., *space, fields) on a grid that is coarser by the factor along each axis."""
    for axis in range(-1 - dim, -1):
        blocks = fields.unflatten(axis, (-1, factor))
        fields = blocks.select(axis, 0) if periodic else blocks.mean(dim=axis)
    return fields


def mean_error(u: Tensor, truth: Tensor) -> float:
    """Mean over samples of ‖u − truth‖₂ / ‖truth‖₂."""
    difference = torch.linalg.vector_norm((u - truth).flatten(1), dim=1)
    return (difference / torch.linalg.vector_norm(truth.flatten(1), dim=1)).mean().item()


def time_solve(equation: Equation, a: Tensor) -> tuple[Tensor, float]:
    """Solutions on the host and seconds per sample, inputs and solutions on the host as for a surrogate."""
    device = pick_device()
    seconds = []
    for _ in range(1 + CALLS):
        start = perf_counter()
        u = equation.solve(a.to(device)).cpu()  # ends with a copy, so nothing is pending
        seconds.append(perf_counter() - start)
    return u, min(seconds[1:]) / len(a)


def trace(name: str, samples: int, resolutions: list[int], finest: int) -> list[Point]:
    """The points of one equation's curve."""
    fine = build(name, finest)
    periodic, dim = fine.grid.placement == "periodic", fine.grid.dim
    inputs = fine.sample_inputs(samples, seed=0)
    truth = fine.solve(inputs.to(pick_device())).cpu()
    curve = []
    for points in resolutions:
        equation = build(name, points)
        # Cells are filled as the data set does it; points of a periodic grid are points of the finest one.
        a = coarsen(inputs, finest // points, dim, True) if periodic else equation.sample_inputs(samples, seed=0)
        u, seconds = time_solve(equation, a)
        error = mean_error(u, coarsen(truth, finest // points, dim, periodic))
        curve.append({"resolution": points, "seconds_per_sample": seconds, "relative_error": error})
    return curve


def choose_resolutions(name: str, resolutions: list[int] | None, finest: int | None) -> tuple[list[int], int]:
    """The resolutions asked for, or those by default of the equation's dimension."""
    defaults = IN_ONE_DIMENSION if EQUATIONS[name]().grid.dim == 1 else IN_TWO_DIMENSIONS
    chosen, limit = resolutions or defaults[0], finest or defaults[1]
    if any(points < 1 or limit % points or points == limit for points in chosen):
        raise InputError(f"resolutions must divide the finest one and be coarser, got {chosen} and {limit}.")
    return chosen, limit


def main() -> None:
    """Measure, print, and write the record where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("equations", nargs="*", help="names; by default all")
    parser.add_argument("--samples", type=int, default=16, help="solved at once")
    parser.add_argument("--resolutions", type=int, nargs="+", help="points along an axis")
    parser.add_argument("--finest", type=int, help="points along an axis of the truth")
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the record")
    options = parser.parse_args()
    curves: dict[str, Any] = {}
    for name in options.equations or EQUATIONS:
        if name not in EQUATIONS:
            parser.error(f"unknown equation {name!r}; it is one of {', '.join(EQUATIONS)}")
        try:
            resolutions, finest = choose_resolutions(name, options.resolutions, options.finest)
        except InputError as error:
            parser.error(str(error))
        curves[name] = trace(name, options.samples, resolutions, finest)
        for point in curves[name]:
            line = f"{point['resolution']:6} points  error {100 * point['relative_error']:9.2e} %"
            print(f"{name:20} {line}  {1e3 * point['seconds_per_sample']:8.2f} ms per sample", flush=True)
    command = " ".join(["python benchmarks/solver_curve.py", *sys.argv[1:]])
    record = {"command": command, "samples": options.samples, "environment": describe_environment(), "curves": curves}
    if options.output:
        options.output.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
