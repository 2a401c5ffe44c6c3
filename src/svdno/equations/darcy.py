"""Darcy flow through a medium of two phases."""

from dataclasses import dataclass
from math import pi
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from svdno.errors import check_positive, check_sizes
from svdno.grid import Grid
from svdno.solvers.elliptic import apply_elliptic, solve_elliptic

# Samples whose bumps share one mean, as in the public data.
BLOCK = 200


@dataclass(frozen=True)
class Darcy:
    """−∇·(a∇u) = f on (0,1)², u = 0 on the boundary: pressure u in a medium of permeability a, steady.

    Medium: a = `high` where b(x,y) = Σₘ exp(−((x−xₘ)² + (y−yₘ)²)/sₘ) exceeds its mean, else `low`, with centres
    xₘ, yₘ ~ U(0,1) and sₘ ~ ½U(0,1). The mean is taken over the box and over the block of 200 samples
    [200k, 200k+200) that the sample is in, drawn or not, so that sample i depends on (seed, i) alone.
    It is the exact integral, so that a sample is the same medium on any grid.
    Solved with finite volumes on cells; on 128² they are 0.2 to 0.4 % from the same medium on 512².

    low, high: permeabilities of the two phases; high/low is the contrast
    force: f, the same everywhere
    points: cells along each axis by default
    bumps: number of terms of b
    tolerance: relative residual of the linear solve
    """

    low: float = 0.1
    high: float = 1.0
    force: float = 1.0
    points: int = 128
    bumps: int = 5
    tolerance: float = 1e-10

    title: ClassVar[str] = "Darcy flow"
    input_fields: ClassVar[tuple[str, ...]] = ("a(x, y)",)
    output_fields: ClassVar[tuple[str, ...]] = ("u",)
    symmetries: ClassVar[tuple[str, ...]] = ("mirror", "swap")

    def __post_init__(self) -> None:
        check_positive(self, "low", "high", "tolerance")
        check_sizes(self, points=2, bumps=1)

    @property
    def grid(self) -> Grid:
        """Cells of the unit square."""
        return Grid.unit((self.points, self.points), "cells")

    @property
    def times(self) -> Float[Tensor, " times"]:
        """One time, 0: the flow is steady."""
        return torch.zeros(1, dtype=torch.float64)

    def sample_inputs(self, samples: int, seed: int, first: int = 0) -> Float[Tensor, "samples x y 1"]:
        """Random media; sample i depends on (seed, i) alone."""
        indices = range(first, first + samples)
        means = {block: self._mean_over_block(seed, block) for block in {i // BLOCK for i in indices}}
        media = [np.where(self._draw_field(seed, i) > means[i // BLOCK], self.high, self.low) for i in indices]
        return torch.from_numpy(np.stack(media)).unsqueeze(-1)

    def _draw_bumps(self, seed: int, index: int) -> np.ndarray:
        """Rows xₘ, yₘ, sₘ."""
        bumps: np.ndarray = np.random.default_rng([seed, index]).uniform(size=(3, self.bumps))
        bumps[2] *= 0.5
        return bumps

    def _draw_field(self, seed: int, index: int) -> np.ndarray:
        """b(x,y) on the cells."""
        x_m, y_m, s = self._draw_bumps(seed, index)[..., None]
        x, y = (axis.numpy() for axis in self.grid.axes)
        field: np.ndarray = np.einsum("mx,my->xy", np.exp(-((x - x_m) ** 2) / s), np.exp(-((y - y_m) ** 2) / s))
        return field

    def _mean_over_block(self, seed: int, block: int) -> float:
        """Mean of b over the unit square and the samples of a block, from ∫₀¹ exp(−(x−c)²/s) dx in closed form."""
        drawn = [self._draw_bumps(seed, index) for index in range(BLOCK * block, BLOCK * (block + 1))]
        x_m, y_m, s = torch.from_numpy(np.stack(drawn, axis=1))
        root = s.sqrt()

        def integral(c: Tensor) -> Tensor:
            return pi**0.5 / 2 * root * (torch.erf((1 - c) / root) + torch.erf(c / root))

        return (integral(x_m) * integral(y_m)).sum(dim=-1).mean().item()

    def solve(self, a: Float[Tensor, "samples x y 1"]) -> Float[Tensor, "samples 1 x y 1"]:
        """u for media on any number of cells."""
        medium = a[..., 0].to(torch.float64)
        f = torch.full_like(medium[:1], self.force)
        return solve_elliptic(medium, f, _spacing(a), self.tolerance)[:, None, ..., None]

    def residual(
        self, u: Float[Tensor, "samples 1 x y 1"], a: Float[Tensor, "samples x y 1"]
    ) -> Float[Tensor, "samples x y 1"]:
        """−∇·(a∇u) − f on the cells, by the finite volumes of `solve`; differentiable."""
        return apply_elliptic(u[:, 0, ..., 0], a[..., 0].to(u.dtype), _spacing(a)).unsqueeze(-1) - self.force


def _spacing(a: Tensor) -> tuple[float, float]:
    """Cell sizes on the unit square."""
    return 1 / a.shape[1], 1 / a.shape[2]
