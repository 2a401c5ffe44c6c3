"""The shallow-water equations: a radial dam break, over a flat bed or a random one."""

from dataclasses import dataclass
from math import pi, prod
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from svdno.errors import InputError, check_positive, check_sizes, choose
from svdno.grid import Grid
from svdno.solvers.finite_volume import integrate_shallow_water, velocities

HALF_WIDTH = 2.5
RADII = (0.3, 0.7)
# Modes of the random bed: how many, the highest wave number per axis, and the range of its height.
BED_MODES, BED_MAX_MODE, BED_HEIGHTS = 6, 3, (0.1, 0.5)
# Cells that a CPU solves at once, so that their fields stay in its caches.
CPU_CELLS = 2**16


@dataclass(frozen=True)
class ShallowWater:
    """h_t + (hu)_x + (hv)_y = 0, (hu)_t + (hu² + ½gh²)_x + (huv)_y = −g h b_x, likewise hv, on [−2.5,2.5]².

    Start, at rest: the surface h + b is 2 inside radius r ~ U(0.3,0.7) around the centre and 1 outside. The bed is
    b = 0 or random, b = ½B(1 + Σ_m c_m cos(k_m·x + φ_m)/Σ_m c_m) with 6 modes, k_m = 2π(i, j)/5, i, j ∈ {−3 … 3},
    c ~ U(0,1), φ ~ U(0,2π), B ~ U(0.1,0.5), so 0 ≤ b ≤ B. Boundaries have zero gradient; nothing reaches them by t = 1.
    Solved with second-order finite volumes; h at 128² cells is within 0.7 % of h at 512², mostly at the shock.

    gravity: g
    points: cells along each axis by default
    frames: output times, t = 0 included
    end: last output time
    bathymetry: "flat" or "random"
    start: cells the circle cuts hold the "cover-fraction" of the disc, or are "thresholded" at their centre, so that
        radii share starts, as in the public data
    outputs: "h, u, v", or "h" alone; over a flat bed h is then the only input too, as in the public data
    cfl: largest Courant number (|u|+c)dt/Δx + (|v|+c)dt/Δy of a step, at most 1
    """

    gravity: float = 1.0
    points: int = 128
    frames: int = 101
    end: float = 1.0
    bathymetry: str = "flat"
    start: str = "cover-fraction"
    outputs: str = "h, u, v"
    cfl: float = 0.9

    title: ClassVar[str] = "Shallow-water equations"

    def __post_init__(self) -> None:
        choose("bathymetry", self.bathymetry, ("flat", "random"))
        choose("start", self.start, ("cover-fraction", "thresholded"))
        choose("outputs", self.outputs, ("h, u, v", "h"))
        check_positive(self, "gravity", "end", "cfl")
        check_sizes(self, points=8, frames=2)
        if self.cfl > 1:
            raise InputError(f"`cfl` must be at most 1 for a stable step, got {self.cfl}.")

    @property
    def input_fields(self) -> tuple[str, ...]:
        """Depth and bed, or the depth alone where the bed is flat and only depths are asked for."""
        public = self.outputs == "h" and self.bathymetry == "flat"
        return ("h(x, y, 0)",) if public else ("h(x, y, 0)", "b(x, y)")

    @property
    def output_fields(self) -> tuple[str, ...]:
        """Depth and velocities, or the depth alone."""
        return tuple(self.outputs.split(", "))

    @property
    def symmetries(self) -> tuple[str, ...]:
        """Those of the square, for the depth alone: velocities turn with the points."""
        return ("mirror", "swap") if len(self.output_fields) == 1 else ()

    @property
    def grid(self) -> Grid:
        """Cells on [−2.5,2.5]²."""
        return Grid((self.points,) * 2, (-HALF_WIDTH,) * 2, (HALF_WIDTH,) * 2, "cells")

    @property
    def times(self) -> Float[Tensor, " times"]:
        """`frames` times from 0 to `end`."""
        return torch.linspace(0.0, self.end, self.frames, dtype=torch.float64)

    def sample_inputs(self, samples: int, seed: int, first: int = 0) -> Float[Tensor, "samples x y inputs"]:
        """Random depths at t = 0 and their beds; sample i depends on (seed, i) alone."""
        a = np.stack([self._draw_input(seed, first + i) for i in range(samples)])
        return torch.from_numpy(a[..., : len(self.input_fields)].copy())

    def solve(self, a: Float[Tensor, "samples x y inputs"]) -> Float[Tensor, "samples times x y fields"]:
        """h, u and v, or h alone, at all output times, from depths and beds on any number of cells."""
        h = a[..., 0].to(torch.float64)
        b = torch.zeros_like(h) if len(self.input_fields) == 1 else a[..., 1].to(torch.float64)
        if not bool(torch.isfinite(a).all() & (h >= 0).all()):
            raise InputError("The depth h(x, y, 0) and the bed b(x, y) must be finite, and the depth not negative.")
        q = torch.stack((h, torch.zeros_like(h), torch.zeros_like(h)))
        u = q.new_empty(len(h), self.frames, *h.shape[1:], len(self.output_fields))
        size = max(1, CPU_CELLS // prod(h.shape[1:]) if h.device.type == "cpu" else len(h))
        for first in range(0, len(h), size):
            self._solve_part(q[:, first : first + size], b[first : first + size], u[first : first + size])
        return u

    def _solve_part(self, q: Tensor, b: Tensor, u: Tensor) -> None:
        """Fill u with the fields of the flow that starts from q."""
        states = integrate_shallow_water(q, b, self.times, cell_sizes(q[0]), self.gravity, self.cfl)
        for frame, state in enumerate(states):
            u[:, frame, ..., 0] = state[0]
            if u.shape[-1] > 1:
                u[:, frame, ..., 1:] = velocities(state).movedim(0, -1)

    def residual(
        self, u: Float[Tensor, "samples times x y fields"], a: Float[Tensor, "samples x y 2"]
    ) -> Float[Tensor, "samples times-2 x-2 y-2 3"]:
        """What is left of the equations for h, hu and hv, by central differences at inner times and cells.

        Of second order where the solution is smooth; water at rest leaves nothing, whatever its bed.
        """
        if u.shape[-1] != 3:
            raise InputError("the residual needs the velocities. Use outputs='h, u, v'.")
        if u.shape[1] != self.frames:
            raise InputError(f"`u` must hold the {self.frames} output times, got {u.shape[1]}.")
        T, X, Y = 1, 2, 3
        step = {T: self.end / (self.frames - 1), X: cell_sizes(a)[0], Y: cell_sizes(a)[1]}
        h, u_x, u_y = u.unbind(dim=-1)
        b = a[:, None, ..., 1].expand_as(h)
        hu, hv, pressure = h * u_x, h * u_y, self.gravity / 2 * h**2

        def change(f: Tensor, dim: int) -> Tensor:
            before, after = neighbours(f, dim)
            return (after - before) / (2 * step[dim])

        def push(dim: int) -> Tensor:
            before, after = neighbours(h, dim)
            return self.gravity * (before + after) / 2 * change(b, dim)

        mass = change(h, T) + change(hu, X) + change(hv, Y)
        along_x = change(hu, T) + change(hu * u_x + pressure, X) + change(hu * u_y, Y) + push(X)
        along_y = change(hv, T) + change(hv * u_x, X) + change(hv * u_y + pressure, Y) + push(Y)
        return torch.stack((mass, along_x, along_y), dim=-1)

    def _draw_input(self, seed: int, index: int) -> np.ndarray:
        rng = np.random.default_rng([seed, index])
        x, y = (axis.numpy() for axis in self.grid.axes)
        radius = rng.uniform(*RADII)
        if self.start == "thresholded":
            inside = (np.add.outer(x**2, y**2) < radius**2).astype(float)
        else:
            edges = np.linspace(-HALF_WIDTH, HALF_WIDTH, self.points + 1)
            inside = cover_fraction(edges, edges, radius)
        bed = draw_bed(rng, x, y) if self.bathymetry == "random" else np.zeros_like(inside)
        return np.stack((1 + inside - bed, bed), axis=-1)


def cell_sizes(a: Float[Tensor, "samples x y *fields"]) -> tuple[float, float]:
    """Δx and Δy of the grid a field came on."""
    return 2 * HALF_WIDTH / a.shape[1], 2 * HALF_WIDTH / a.shape[2]


def neighbours(f: Float[Tensor, "samples times x y"], dim: int) -> tuple[Tensor, Tensor]:
    """The values before and after each inner point along an axis."""
    inner = (slice(None), *(slice(1, -1),) * 3)
    return f.roll(1, dim)[inner], f.roll(-1, dim)[inner]


def draw_bed(rng: np.random.Generator, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """b = ½B(1 + Σ_m c_m cos(k_m·x + φ_m)/Σ_m c_m) on the product of two axes."""
    height = rng.uniform(*BED_HEIGHTS)
    k_x, k_y = 2 * pi / (2 * HALF_WIDTH) * rng.integers(-BED_MAX_MODE, BED_MAX_MODE, size=(2, BED_MODES), endpoint=True)
    c, phase = rng.uniform(0, 1, size=BED_MODES), rng.uniform(0, 2 * pi, size=BED_MODES)
    waves = np.cos(x[:, None, None] * k_x + y[None, :, None] * k_y + phase)
    bed: np.ndarray = height / 2 * (1 + (waves * (c / c.sum())).sum(axis=-1))
    return bed


def cover_fraction(x: np.ndarray, y: np.ndarray, radius: float) -> np.ndarray:
    """The part of each cell between the edges x and y that a disc around the origin covers, exact to 1e-10."""
    area = np.diff(np.diff(disc_area(x[:, None], y[None, :], radius), axis=0), axis=1)
    # Rounding leaves exactly 0 or 1 in cells that the circle does not cut.
    fraction: np.ndarray = np.round(area / np.multiply.outer(np.diff(x), np.diff(y)), 10) + 0.0
    return fraction


def disc_area(x: np.ndarray, y: np.ndarray, radius: float) -> np.ndarray:
    """Area of the disc in [0,x]×[0,y], with the sign of xy: ∫₀ˣ min(y, √(r²−t²)) dt."""

    def chord(t: np.ndarray) -> np.ndarray:
        return np.sqrt((radius - t) * (radius + t))

    def segment(t: np.ndarray) -> np.ndarray:
        return (t * chord(t) + radius**2 * np.arcsin(t / radius)) / 2

    width, height = np.minimum(np.abs(x), radius), np.minimum(np.abs(y), radius)
    straight = np.minimum(width, chord(height))
    area: np.ndarray = straight * height + segment(width) - segment(straight)
    return np.sign(x) * np.sign(y) * area
