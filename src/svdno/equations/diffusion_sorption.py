"""The diffusion–sorption equation: a solute spreads in ground water while the soil binds part of it."""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from svdno.errors import InputError, check_positive, check_sizes
from svdno.grid import Grid
from svdno.solvers.implicit import Tridiagonal, integrate_rodas4

# Keeps R finite at u = 0.
OFFSET = 1e-6


@dataclass(frozen=True)
class DiffusionSorption:
    """u_t = D/R(u) u_xx on (0,1) with R = 1 + ((1−p)/p) ρ k n (u + 1e-6)ⁿ⁻¹: sorption slows diffusion.

    Boundaries: u = 1 on the left, u = −D u_x on the right (outflow).
    Start: one constant u₀ ~ U(0, max_start) per sample, so that layers grow from both ends.
    Second-order differences on cells, both conditions on the boundary faces; RODAS4 in time.
    Where u < 0, which only an approximation reaches, R is that of u = 0.

    diffusion: D
    porosity: p
    density: bulk density ρ
    freundlich_coefficient: k of the sorption isotherm k uⁿ
    freundlich_exponent: n
    points: cells by default
    frames: output times, t = 0 included
    end: last output time
    max_start: largest u₀
    tolerance: largest estimated error of one time step
    """

    diffusion: float = 5e-4
    porosity: float = 0.29
    density: float = 2880.0
    freundlich_coefficient: float = 3.5e-4
    freundlich_exponent: float = 0.874
    points: int = 1024
    frames: int = 101
    end: float = 500.0
    max_start: float = 0.2
    tolerance: float = 1e-6

    title: ClassVar[str] = "Diffusion–sorption equation"
    input_fields: ClassVar[tuple[str, ...]] = ("u(x, 0)",)
    output_fields: ClassVar[tuple[str, ...]] = ("u",)
    symmetries: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        check_positive(
            self, "diffusion", "density", "freundlich_coefficient", "freundlich_exponent", "end", "tolerance"
        )
        if not 0 < self.porosity < 1:
            raise InputError(f"`porosity` must be between 0 and 1, got {self.porosity}.")
        if not 0 <= self.max_start < inf:
            raise InputError(f"`max_start` must be finite and not negative, got {self.max_start}.")
        check_sizes(self, points=8, frames=2)

    @property
    def grid(self) -> Grid:
        """Cells on (0,1)."""
        return Grid.unit((self.points,), "cells")

    @property
    def times(self) -> Float[Tensor, " times"]:
        """`frames` times from 0 to `end`."""
        return torch.linspace(0.0, self.end, self.frames, dtype=torch.float64)

    def sample_inputs(self, samples: int, seed: int, first: int = 0) -> Float[Tensor, "samples x 1"]:
        """Random constant starts; sample i depends on (seed, i) alone."""
        starts = [np.random.default_rng([seed, first + i]).uniform(0, self.max_start) for i in range(samples)]
        return torch.tensor(starts, dtype=torch.float64).reshape(samples, 1, 1).repeat(1, self.points, 1)

    def solve(self, a: Float[Tensor, "samples x 1"]) -> Float[Tensor, "samples times x 1"]:
        """u at all output times, from starts on any number of cells."""
        if not (a >= 0).all():
            raise InputError(f"A start of diffusion–sorption must not be negative, got {a.min().item():g}.")
        u = a[..., 0].to(torch.float64)
        states = integrate_rodas4(u, self._slope, self._jacobian, self.times, self.tolerance)
        return torch.stack(states, dim=1).unsqueeze(-1)

    def residual(
        self, u: Float[Tensor, "samples times x 1"], a: Float[Tensor, "samples x 1"]
    ) -> Float[Tensor, "samples times-3 x 1"]:
        """u_t − D/R(u) u_xx on all cells at the output times from the third to the last but one.

        u_t = (1/t) ∂u/∂log t by central differences of second order: layers spread like √t, evenly in log t. The start
        takes no part, as it jumps at the boundaries; a is not used, as the equation holds from any start. The
        right-hand side is the solver's.
        """
        frames = u[:, 1:, :, 0]
        t = torch.linspace(0.0, self.end, u.shape[1], dtype=u.dtype, device=u.device)[1:, None]
        gap = t.log().diff(dim=0)
        before, after = gap[:-1], gap[1:]
        change = frames.diff(dim=1) / gap
        u_t = (change[:, :-1] * after + change[:, 1:] * before) / ((before + after) * t[1:-1])
        return (u_t - self._slope(frames[:, 1:-1])).unsqueeze(-1)

    def _retardation(self, u: Tensor) -> Tensor:
        """R(u); the power as exp ∘ log, which rounds alike at every place of a batch, unlike pow."""
        sorbed = (1 - self.porosity) / self.porosity * self.density * self.freundlich_coefficient
        power = torch.exp((self.freundlich_exponent - 1) * torch.log(u.clamp(min=0) + OFFSET))
        return 1 + sorbed * self.freundlich_exponent * power

    def _ghost(self, n: int) -> float:
        """g with u_{n+1} = g u_n beyond the right face, from (u_n + u_{n+1})/2 = −D (u_{n+1} − u_n)/Δx, Δx = 1/n."""
        return (2 * self.diffusion - 1 / n) / (2 * self.diffusion + 1 / n)

    def _diffusive(self, u: Float[Tensor, "... x"]) -> Float[Tensor, "... x"]:
        """D u_xx; the cells beyond the ends put u = 1 on the left face and u = −D u_x on the right one."""
        n = u.shape[-1]
        extended = torch.cat([2 - u[..., :1], u, self._ghost(n) * u[..., -1:]], dim=-1)
        return self.diffusion * n**2 * extended.diff(n=2)

    def _slope(self, u: Float[Tensor, "... x"]) -> Float[Tensor, "... x"]:
        """D/R(u) u_xx."""
        return self._diffusive(u) / self._retardation(u)

    def _jacobian(self, u: Float[Tensor, "... x"]) -> Tridiagonal:
        """∂/∂u of D/R(u) u_xx: the differences times D/R, and −D u_xx R'/R² on the diagonal."""
        n = u.shape[-1]
        R = self._retardation(u)
        R_prime = torch.where(u > 0, (self.freundlich_exponent - 1) * (R - 1) / (u + OFFSET), 0.0)
        centre = u.new_full((n,), -2.0)
        centre[0], centre[-1] = -3.0, self._ghost(n) - 2
        scale = self.diffusion * n**2 / R
        return Tridiagonal(scale[..., 1:], centre * scale - self._diffusive(u) * R_prime / R**2, scale[..., :-1])
