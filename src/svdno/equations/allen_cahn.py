"""The Allen–Cahn equation, a model of phase separation."""

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
class AllenCahn:
    """u_t = ε u_xx + r (u − u³), periodic on (−1,1): the field falls into the phases u = ±1, apart by thin layers.

    Start: A₁ sin(k₁x + φ₁) + A₂ sin(k₂x + φ₂), k = 2πm with m ∈ {1 … max_mode}, A ~ U[0,1], φ ~ U(0,2π).
    Solved in Fourier space with ETDRK4. Layers are about √(2ε/r) wide; at ε = 1e-4, 1024 points
    resolve them to 1e-8 and 512 to 1e-4.

    diffusion: ε
    reaction: r
    points: grid points by default
    frames: output times, t = 0 included
    end: last output time
    max_mode: highest m of the start
    max_step: largest time step
    """

    diffusion: float = 1e-4
    reaction: float = 5.0
    points: int = 1024
    frames: int = 101
    end: float = 1.0
    max_mode: int = 8
    max_step: float = 5e-3

    title: ClassVar[str] = "Allen–Cahn equation"
    input_fields: ClassVar[tuple[str, ...]] = ("u(x, 0)",)
    output_fields: ClassVar[tuple[str, ...]] = ("u",)
    symmetries: ClassVar[tuple[str, ...]] = ("shift", "mirror")

    def __post_init__(self) -> None:
        check_positive(self, "diffusion", "end", "max_step")
        check_sizes(self, points=8, frames=2, max_mode=1)

    @property
    def grid(self) -> Grid:
        """Periodic nodes on (−1,1)."""
        return Grid((self.points,), (-1.0,), (1.0,), "periodic")

    @property
    def times(self) -> Float[Tensor, " times"]:
        """`frames` times from 0 to `end`."""
        return torch.linspace(0.0, self.end, self.frames, dtype=torch.float64)

    def sample_inputs(self, samples: int, seed: int, first: int = 0) -> Float[Tensor, "samples x 1"]:
        """Random starts; sample i depends on (seed, i) alone."""
        x = self.grid.axes[0].numpy()
        return torch.from_numpy(np.stack([self._draw_start(x, seed, first + i) for i in range(samples)]))

    def _draw_start(self, x: np.ndarray, seed: int, index: int) -> np.ndarray:
        rng = np.random.default_rng([seed, index])
        k = 2 * pi * rng.integers(1, self.max_mode, size=2, endpoint=True)
        amplitude, phase = rng.uniform(0, 1, size=2), rng.uniform(0, 2 * pi, size=2)
        start: np.ndarray = (amplitude * np.sin(np.multiply.outer(x, k) + phase)).sum(axis=-1, keepdims=True)
        return start

    def solve(self, a: Float[Tensor, "samples x 1"]) -> Float[Tensor, "samples times x 1"]:
        """u at all output times, from starts on any number of points."""
        return solve_semilinear(
            a[..., 0],
            length=2.0,
            linear=lambda k: self.reaction - self.diffusion * k**2,
            nonlinear=lambda u: -self.reaction * u**3,
            times=self.times,
            max_step=lambda t: self.max_step,
        ).unsqueeze(-1)

    def residual(
        self, u: Float[Tensor, "samples times x 1"], a: Float[Tensor, "samples x 1"]
    ) -> Float[Tensor, "samples intervals x 1"]:
        """u_t − ε u_xx − r (u − u³) of a trajectory at the output times, by the trapezoidal rule in time."""
        rate = self.diffusion * second_derivative(u[..., 0], 2.0).unsqueeze(-1) + self.reaction * (u - u**3)
        return trapezoidal_residual(u, rate, self.end / (self.frames - 1))
