"""The diffusion–reaction equation with logistic growth (Fisher's equation)."""

from dataclasses import dataclass
from math import pi
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from svdno.errors import check_positive, check_sizes
from svdno.grid import Grid
from svdno.solvers.spectral import second_derivative, solve_semilinear, trapezoidal_residual


@dataclass(frozen=True)
class DiffusionReaction:
    """u_t = ν u_xx + ρ u (1 − u), periodic on (0,1): diffusion evens the field out while it grows towards 1.

    Start: Σ_j A_j sin(k_j x + φ_j) over the modes j = 1 … 4, k_j = 2π j m_j / (x_last − x_first), where two modes are
    drawn with replacement and m_j ∈ {0, 1, 2} counts how often; A ~ U(0,1), φ ~ U(0,2π). Then |u| with probability
    0.1, a random sign, a window ½[tanh((x − x_L)/0.01) − tanh((x − x_R)/0.01)] with probability 0.1, x_L ~ U(0.1,0.45),
    x_R ~ U(0.55,0.9), and scaling to [0,1]. Solved in Fourier space with ETDRK4.

    diffusion: ν
    reaction: ρ
    points: cells by default
    frames: output times, t = 0 included
    end: last output time
    first_step, max_step: time steps grow from the first, which resolves how sharp starts even out, to the largest
    """

    diffusion: float = 0.5
    reaction: float = 1.0
    points: int = 1024
    frames: int = 101
    end: float = 1.0
    first_step: float = 5e-4
    max_step: float = 5e-3

    title: ClassVar[str] = "Diffusion–reaction equation"
    input_fields: ClassVar[tuple[str, ...]] = ("u(x, 0)",)
    output_fields: ClassVar[tuple[str, ...]] = ("u",)
    symmetries: ClassVar[tuple[str, ...]] = ("shift", "mirror")

    def __post_init__(self) -> None:
        check_positive(self, "diffusion", "reaction", "end", "first_step", "max_step")
        check_sizes(self, points=8, frames=2)

    @property
    def grid(self) -> Grid:
        """Centres of the cells of (0,1), which are the nodes of a period that starts half a cell later."""
        shift = 0.5 / self.points
        return Grid((self.points,), (shift,), (1.0 + shift,), "periodic")

    @property
    def times(self) -> Float[Tensor, " times"]:
        """`frames` times from 0 to `end`."""
        return torch.linspace(0.0, self.end, self.frames, dtype=torch.float64)

    def sample_inputs(self, samples: int, seed: int, first: int = 0) -> Float[Tensor, "samples x 1"]:
        """Random starts; sample i depends on (seed, i) alone."""
        x = self.grid.axes[0].numpy()
        starts = [_draw_start(x, np.random.default_rng([seed, first + i])) for i in range(samples)]
        return torch.from_numpy(np.stack(starts)).unsqueeze(-1)

    def solve(self, a: Float[Tensor, "samples x 1"]) -> Float[Tensor, "samples times x 1"]:
        """u at all output times, from starts on any number of points."""
        return solve_semilinear(
            a[..., 0],
            length=1.0,
            linear=lambda k: self.reaction - self.diffusion * k**2,
            nonlinear=lambda u: -self.reaction * u**2,
            times=self.times,
            max_step=lambda t: min(self.max_step, self.first_step + 0.05 * t),
        ).unsqueeze(-1)

    def residual(
        self, u: Float[Tensor, "samples times x 1"], a: Float[Tensor, "samples x 1"]
    ) -> Float[Tensor, "samples intervals x 1"]:
        """u_t − ν u_xx − ρ u (1 − u) of a trajectory at the output times, by the trapezoidal rule in time."""
        rate = self.diffusion * second_derivative(u[..., 0], 1.0).unsqueeze(-1) + self.reaction * u * (1 - u)
        return trapezoidal_residual(u, rate, self.end / (self.frames - 1))


def _draw_start(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    modes = np.arange(1, 5)
    times_drawn = np.bincount(rng.integers(1, 4, size=2, endpoint=True), minlength=5)[1:]
    k = 2 * pi * modes * times_drawn / (x[-1] - x[0])
    amplitude, phase = rng.uniform(0, 1, size=4), rng.uniform(0, 2 * pi, size=4)
    u: np.ndarray = (amplitude * np.sin(np.multiply.outer(x, k) + phase)).sum(axis=-1)
    folded, negative, windowed = rng.uniform(size=3) < (0.1, 0.5, 0.1)
    left, right = rng.uniform(0.1, 0.45), rng.uniform(0.55, 0.9)
    if folded:
        u = np.abs(u)
    if negative:
        u = -u
    if windowed:
        u = u * 0.5 * (np.tanh((x - left) / 0.01) - np.tanh((x - right) / 0.01))
    low, high = u.min(), u.max()
    return (u - low) / (high - low)
