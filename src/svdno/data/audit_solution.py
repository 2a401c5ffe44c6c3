"""Whether the labels solve their equation: some samples are solved again from the file's own inputs."""

from collections.abc import Iterator
from inspect import signature
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from svdno.data.audit_record import Finding, name_samples
from svdno.data.audit_survey import Survey
from svdno.data.generate import build_equation
from svdno.data.hdf5 import Contents
from svdno.data.reader import read_samples
from svdno.equations import EQUATIONS, Equation
from svdno.errors import InputError
from svdno.grid import Grid

# How far labels may be from the solution, relative, at their worst time. Rounding to float32 leaves 5e-8, second-order
# differences for allen-cahn on 1024 points 0.2 %. A coefficient 10 % off moves the worst samples by 1.4 % or more, and
# boundary values at the centres of ghost cells those of Darcy by 3 %.
LIMIT = 0.01
# At most so many samples are solved again, fewer where they hold many values: seconds for any of the equations.
SOLVED, VALUES = 32, 2**21
# A field is measured by its own norm, or by this part of all fields' where it is almost nothing.
FAINT = 0.01
# Periodic starts are also solved on a grid so much finer.
FINER = 4


def match_equation(name: str, parameters: dict[str, Any], contents: Contents) -> Equation:
    """The equation on the file's own grid and times, or an error that says why there is none."""
    takes = signature(EQUATIONS[name]).parameters if name in EQUATIONS else {}
    fitting = {"points": contents.space[0], "frames": len(contents.times), "end": float(contents.times[-1])}
    equation = build_equation(name, parameters | {key: fitting[key] for key in fitting if key in takes})
    fields = (len(equation.input_fields), len(equation.output_fields))
    if fields != (contents.input_fields, contents.output_fields):
        raise InputError(f"{name} has {fields[0]} input and {fields[1]} output fields, the file has others.")
    if equation.grid.shape != contents.space:
        raise InputError(f"{name} would be on {equation.grid.shape} points, the file is on {contents.space}.")
    for axis, there in zip(equation.grid.axes, contents.axes, strict=True):
        here = axis.numpy()
        if abs(np.ptp(there) / np.ptp(here) - 1) > 0.01:
            raise InputError(f"{name} has axes of length {np.ptp(here):g}, the file of {np.ptp(there):g}.")
        # Where a period starts does not matter; between walls a point that is not in the middle of its cell does.
        if equation.grid.placement != "periodic" and np.abs(there - here).max() > 0.2 * (here[1] - here[0]):
            raise InputError(f"{name} has points {here[0]:g} … {here[-1]:g}, the file {there[0]:g} … {there[-1]:g}.")
    step = equation.times.diff().min().item() if len(equation.times) > 1 else 1.0
    if not np.allclose(equation.times.numpy(), contents.times, rtol=0, atol=0.01 * step):
        raise InputError(f"{name} has evenly spaced times from 0 to {equation.times[-1]:g}, the file has others.")
    return equation


def check_solution(path: Path, contents: Contents, equation: Equation, survey: Survey) -> Iterator[Finding]:
    """Samples whose labels are not the solution, and those that have stopped although it moves on."""
    chosen = _choose_samples(survey, len(equation.times) * prod(equation.grid.shape) * len(equation.output_fields))
    if not len(chosen):
        raise InputError("no sample is finite.")
    pairs = [read_samples(path, i, i + 1) for i in chosen.tolist()]
    a, u = (torch.from_numpy(np.concatenate(fields)).double() for fields in zip(*pairs, strict=True))
    if _is_closed(equation.grid, contents.axes[0]):
        a, u = a[:, :-1], u[:, :, :-1]
    solution = equation.solve(a)
    off = relative_distance(u, solution).amax(dim=1)
    far = off > LIMIT
    if far.any() and equation.grid.placement == "periodic":
        # Labels on every n-th point of a grid that resolves them are right where this grid is too coarse for a solver.
        finer = equation.solve(refine(a[far]))[:, :, ::FINER]
        off[far] = torch.minimum(off[far], relative_distance(u[far], finer).amax(dim=1))
    still = torch.from_numpy(survey.still[chosen])
    stopped = solution[torch.arange(len(chosen)), -1 - still].unsqueeze(1).expand_as(solution)
    missed = relative_distance(stopped, solution)[:, -1]
    message = f"labels stop moving before the last frame, where the solution moves on by up to {_percent(missed.max())}"
    yield from name_samples("frozen", "error", message, (missed > LIMIT).numpy(), chosen)
    message = (
        f"labels are up to {_percent(off.max())} from the solution at their worst time, {_percent(off.median())} in "
        f"the median sample, where {_percent(LIMIT)} is allowed"
    )
    yield from name_samples("solution", "error", message, (off > LIMIT).numpy(), chosen)


def relative_distance(u: Tensor, solution: Tensor) -> Tensor:
    """‖u − s‖ at each time (samples, times), relative to the largest ‖s‖ of all times; of the worst field."""
    norm = solution.flatten(2, -2).norm(dim=2).amax(dim=1, keepdim=True)
    scale = torch.maximum(norm, FAINT * norm.norm(dim=2, keepdim=True)).clamp(min=torch.finfo(u.dtype).tiny)
    return ((u - solution).flatten(2, -2).norm(dim=2) / scale).amax(dim=2)


def _choose_samples(survey: Survey, values: int) -> np.ndarray:
    """Finite samples: half of them ones that stop moving, if there are, the rest spread over the file."""
    count = min(SOLVED, max(2, VALUES // values))
    finite = np.flatnonzero(np.isfinite(survey.norms))
    stopped = finite[survey.still[finite] > 1][: count // 2]
    others = np.setdiff1d(finite, stopped)
    spread = np.linspace(0, len(others) - 1, min(count - len(stopped), len(others))).astype(int)
    return np.union1d(stopped, others[spread])


def _is_closed(grid: Grid, there: np.ndarray) -> bool:
    """Whether the last point of a period is its first again, as on nodes from end to end."""
    length = grid.upper[0] - grid.lower[0]
    return grid.placement == "periodic" and bool(np.ptp(there) > length * (1 - 0.5 / grid.shape[0]))


def refine(a: Tensor) -> Tensor:
    """The trigonometric polynomial through inputs (samples, x, fields), on FINER times as many points."""
    modes, points = torch.fft.rfft(a, dim=1), a.shape[1]
    if points % 2 == 0:
        modes[:, -1] /= 2  # stood for both signs of the highest wave number
    return torch.fft.irfft(modes, n=FINER * points, dim=1) * FINER


def _percent(part: Tensor | float) -> str:
    return f"{100 * float(part):.2g} %"
