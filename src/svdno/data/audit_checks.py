"""What can be wrong with a data file: one pass over it, and checks that take what they need and yield findings."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import signature
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from svdno.data.generate import build_equation
from svdno.data.hdf5 import Contents, read_samples
from svdno.equations import EQUATIONS, Equation
from svdno.errors import InputError

# Inputs are near duplicates if they are closer than this, relative to their norm.
NEAR = 1e-6
# Part of the held-out samples that may have a twin: starts with a single number, as those of diffusion–sorption, come
# within NEAR of one of 8000 training samples by chance about once in 100.
TWINS_BY_CHANCE = 0.05
# A sample violates its equation if the mean of its relative residual over time exceeds this plus twice that of the
# equation's own solution (101 frames: 0.001 allen-cahn and diffusion-sorption, 0.02 diffusion-reaction, 0.07
# shallow-water, where the shock is). Second-order differences reach 0.07 for allen-cahn on 1024 points; a reaction or
# diffusion 20 % off mostly reaches 0.2, 1 % of noise 0.4, a frozen solution as much as the part of the time it is
# frozen, and boundary values at the centres of ghost cells 1.
RESIDUAL = 0.1
# Residuals are averaged over so many blocks along each axis. Without that, derivatives of float32 rounding alone leave
# 0.15 for diffusion-reaction on 1024 points.
BLOCKS = 32
# A rate that changes a solution by less than this over the whole time counts as rest.
AT_REST = 0.01
SHOWN = 10
PROJECTIONS = 16
# What is read at once, in bytes as float64.
CHUNK_BYTES = 2**27


@dataclass(frozen=True)
class Finding:
    """Something wrong with a file.

    samples: the first of them, at most 10, by index
    count: of all samples concerned, 0 where it is about the file as a whole
    """

    check: str
    severity: str
    message: str
    samples: tuple[int, ...] = ()
    count: int = 0


@dataclass(frozen=True)
class Survey:
    """What one pass over the file finds out of each sample; ranges are those of the fields."""

    nan: np.ndarray
    infinite: np.ndarray
    constant: np.ndarray
    start_differs: np.ndarray
    still: np.ndarray
    norms: np.ndarray
    sketches: np.ndarray
    input_digests: np.ndarray
    digests: np.ndarray
    input_ranges: np.ndarray
    output_ranges: np.ndarray


def check_finite(nan: np.ndarray, infinite: np.ndarray) -> Iterator[Finding]:
    """Samples with values that are not numbers, or not finite ones."""
    yield from _find("nan", "error", "NaN", nan)
    yield from _find("infinite", "error", "infinite values", infinite)


def check_constant(constant: np.ndarray, ranges: np.ndarray, fields: tuple[str, ...]) -> Iterator[Finding]:
    """Samples whose output never varies, and output fields whose range (lowest, highest) over the file is one value."""
    yield from _find("constant", "warning", "output varies neither in space nor in time", constant)
    for name, (low, high) in zip(fields, ranges, strict=True):
        if low == high:
            yield Finding("constant", "warning", f"the field {name} is {low:g} in all samples")


def check_duplicates(inputs: np.ndarray, wholes: np.ndarray, labels: np.ndarray) -> Iterator[Finding]:
    """Samples that repeat an earlier one, by digests of inputs and of whole samples, and labels of near equality."""
    copy, same, near = _repeats(wholes), _repeats(inputs), _repeats(labels)
    yield from _find("duplicates", "warning", "exact copies of earlier samples", copy)
    yield from _find("contradictions", "error", "input of an earlier sample with another output", same & ~copy)
    message = f"input within a relative {NEAR:g} of an earlier sample's"
    yield from _find("near-duplicates", "warning", message, near & ~same)


def check_twins(labels: np.ndarray, train: int, validation: int) -> Iterator[Finding]:
    """Held-out samples whose input equals a training sample's, or nearly: `train`, then `validation`, then test."""
    twin = np.isin(labels, labels[:train])
    twin[:train] = False
    parts = {"test": twin[train + validation :], "validation": twin[train : train + validation]}
    rare = all(part.sum() <= TWINS_BY_CHANCE * len(part) for part in parts.values())
    message = "twin in training for {test} of {tests} test and {validation} of {validations} validation samples"
    counts = {name: part.sum() for name, part in parts.items()} | {f"{name}s": len(p) for name, p in parts.items()}
    yield from _find("twins", "warning" if rare else "error", message.format(**counts), twin)


def check_times(times: int, frames: int) -> Iterator[Finding]:
    """A time axis of another length than the frames."""
    if times > frames:
        yield Finding("times", "warning", f"{times} times for {frames} frames: the last times belong to no frame")
    if times < frames:
        yield Finding("times", "error", f"{times} times for {frames} frames: the last frames have no time")


def check_start(differs: np.ndarray) -> Iterator[Finding]:
    """Samples whose first frame is not the input."""
    yield from _find("start", "error", "first frame differs from the input", differs)


def check_solution(residuals: np.ndarray, own: float, still: np.ndarray, chosen: np.ndarray) -> Iterator[Finding]:
    """Samples that violate their equation, and those that have stopped although it moves them on.

    residuals: relative ones of the stored solutions (samples, times), between 0 and 1
    own: the mean relative residual of the equation's own solutions
    still: the number of last intervals without motion
    chosen: which samples of the file these are
    """
    mean, limit = residuals.mean(axis=1), RESIDUAL + 2 * own
    frozen = np.array([n > 0 and row[-n:].mean() > 0.5 for n, row in zip(still, residuals, strict=True)])
    message = "solution stops moving before the last frame although the equation moves it on"
    yield from _find("frozen", "error", message, frozen, chosen)
    message = f"solution violates its equation, relative residual up to {mean.max():.2g} where {limit:.2g} is allowed"
    yield from _find("residual", "error", message, mean > limit, chosen)


def relative_residuals(equation: Equation, u: Tensor, a: Tensor) -> np.ndarray:
    """‖r‖ / max(‖r‖, ‖u_t‖, ‖u‖/100T) at each time, of means over blocks; steady: ‖r(u)‖ / max(‖r(u)‖, ‖r(0)‖)."""
    residual = _block_norm(equation.residual(u, a), u.ndim)
    if len(equation.times) == 1:
        scale = _block_norm(equation.residual(torch.zeros_like(u), a), u.ndim)
    else:
        step = equation.times.diff().reshape(-1, *[1] * (u.ndim - 2))
        rest = AT_REST * _block_norm(u, u.ndim) / (equation.times[-1] - equation.times[0])
        scale = torch.maximum(_block_norm(u.diff(dim=1) / step, u.ndim), rest[:, 1:])[:, : residual.shape[1]]
    relative: np.ndarray = (residual / torch.maximum(residual, scale).clamp(min=torch.finfo(u.dtype).tiny)).numpy()
    return relative


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
    for here, there in zip(equation.grid.axes, contents.axes, strict=True):
        if abs(np.ptp(there) / np.ptp(here.numpy()) - 1) > 0.01:
            raise InputError(f"{name} has axes of length {np.ptp(here.numpy()):g}, the file of {np.ptp(there):g}.")
    step = equation.times.diff().min().item() if len(equation.times) > 1 else 1.0
    if not np.allclose(equation.times.numpy(), contents.times, rtol=0, atol=0.01 * step):
        raise InputError(f"{name} has evenly spaced times from 0 to {equation.times[-1]:g}, the file has others.")
    return equation


def survey_file(path: Path, contents: Contents, values: int) -> Survey:
    """Read the file once, in chunks; a sample has so many values."""
    chunk = max(1, CHUNK_BYTES // (8 * values))
    size = prod(contents.space) * contents.input_fields
    projection = np.random.default_rng(0).standard_normal((size, PROJECTIONS)) / np.sqrt(PROJECTIONS)
    parts = [
        _survey_chunk(*read_samples(path, first, min(first + chunk, contents.samples)), projection)
        for first in range(0, contents.samples, chunk)
    ]
    joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0] if not key.endswith("ranges")}
    for key in ("input_ranges", "output_ranges"):
        lows, highs = np.moveaxis(np.stack([part[key] for part in parts]), -1, 0)
        joined[key] = np.stack([lows.min(axis=0), highs.max(axis=0)], axis=-1)
    return Survey(**joined)


def _survey_chunk(a: np.ndarray, u: np.ndarray, projection: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of a Survey for some samples."""
    flat_a, flat_u = a.reshape(len(a), -1), u.reshape(len(u), -1)
    broken = ~(np.isfinite(flat_a).all(axis=1) & np.isfinite(flat_u).all(axis=1))
    wide = np.where(broken[:, None], np.nan, flat_a.astype(np.float64))
    steady = u.shape[1] == 1
    return {
        "nan": np.isnan(flat_a).any(axis=1) | np.isnan(flat_u).any(axis=1),
        "infinite": np.isinf(flat_a).any(axis=1) | np.isinf(flat_u).any(axis=1),
        "constant": flat_u.min(axis=1) == flat_u.max(axis=1),
        "start_differs": np.full(len(a), False) if steady else _differs(a[..., 0], u[:, 0, ..., 0]),
        "still": _count_still(u),
        "norms": np.linalg.norm(wide, axis=1),
        "sketches": wide @ projection,
        "input_digests": _digests(a),
        "digests": np.array([x + y for x, y in zip(_digests(a), _digests(u), strict=True)]),
        "input_ranges": _ranges(a),
        "output_ranges": _ranges(u),
    }


def _differs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Which samples differ; NaN equals NaN."""
    return ~((a == b) | (np.isnan(a) & np.isnan(b))).reshape(len(a), -1).all(axis=1)


def _count_still(u: np.ndarray) -> np.ndarray:
    """Intervals at the end in which no value changes by more than the rounding of float32."""
    with np.errstate(invalid="ignore"):
        change = np.abs(np.diff(u, axis=1)).max(axis=tuple(range(2, u.ndim)))
        rounding = np.finfo(np.float32).eps * np.abs(u).reshape(len(u), -1).max(axis=1)
        still = change <= rounding[:, None]
    return np.cumprod(still[:, ::-1], axis=1).sum(axis=1)


def _digests(fields: np.ndarray) -> np.ndarray:
    return np.array([hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest() for row in fields])


def _ranges(fields: np.ndarray) -> np.ndarray:
    """Lowest and highest value of each field."""
    rows = fields.reshape(-1, fields.shape[-1])
    return np.stack([rows.min(axis=0), rows.max(axis=0)], axis=-1)


def label_near_equals(sketches: np.ndarray, norms: np.ndarray, digests: np.ndarray) -> np.ndarray:
    """One label for inputs that are equal or within a relative 1e-6 of each other.

    The distance is that of the sketches (samples, k): k random projections divided by √k keep it within a factor two.
    Sorted along the first projection, a sample is compared with those in a narrow window only; memory is O(samples).
    """
    unique, members = np.unique(digests, return_index=True, return_inverse=True)[1:]
    order = unique[np.argsort(sketches[unique, 0])]
    sorted_sketches, leaders = sketches[order], np.full(len(order), -1)
    for i in np.flatnonzero(np.isfinite(norms[order])):
        if leaders[i] < 0:
            # A projection exceeds six standard deviations, 6/√k of the distance, for one pair in 10⁹.
            reach = 6 * NEAR * norms[order[i]] / np.sqrt(sketches.shape[1])
            last = np.searchsorted(sorted_sketches[:, 0], sorted_sketches[i, 0] + reach, side="right")
            distance = np.linalg.norm(sorted_sketches[i:last] - sorted_sketches[i], axis=1)
            leaders[i:last][(distance <= NEAR * norms[order[i]]) & (leaders[i:last] < 0)] = order[i]
    labels = np.empty(len(digests), dtype=int)
    labels[order] = np.where(leaders < 0, order, leaders)
    return labels[unique][members]


def _find(check: str, severity: str, message: str, bad: np.ndarray, of: np.ndarray | None = None) -> Iterator[Finding]:
    """A finding about the samples marked as bad, if any; `of` are their indices where not all were looked at."""
    if bad.any():
        samples = np.flatnonzero(bad) if of is None else np.sort(of[bad])
        looked_at = "samples" if of is None else "checked samples"
        shown = tuple(map(int, samples[:SHOWN]))
        yield Finding(check, severity, f"{message}: {len(samples)} of {len(bad)} {looked_at}", shown, len(samples))


def _repeats(keys: np.ndarray) -> np.ndarray:
    repeats = np.ones(len(keys), dtype=bool)
    repeats[np.unique(keys, return_index=True)[1]] = False
    return repeats


def _block_norm(r: Tensor, ndim: int) -> Tensor:
    """Root mean square over space and fields, (samples, times), of means over blocks; a steady r may have no times."""
    r = r if r.ndim == ndim else r.unsqueeze(1)
    for dim in range(2, ndim - 1):
        r = torch.stack([block.mean(dim) for block in r.tensor_split(min(BLOCKS, r.shape[dim]), dim)], dim)
    return r.flatten(2).square().mean(dim=2).sqrt()
