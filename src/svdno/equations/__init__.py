"""WHAT is solved: one file per PDE with its formula, parameters, random inputs and solution.

A new equation is one file and one line in EQUATIONS.
"""

from typing import Protocol, runtime_checkable

from torch import Tensor

from svdno.equations.allen_cahn import AllenCahn
from svdno.equations.darcy import Darcy
from svdno.equations.diffusion_reaction import DiffusionReaction
from svdno.equations.diffusion_sorption import DiffusionSorption
from svdno.equations.shallow_water import ShallowWater
from svdno.grid import Grid


@runtime_checkable
class Equation(Protocol):
    """What the rest of the package knows of an equation."""

    @property
    def title(self) -> str:
        """Name for headings."""

    @property
    def input_fields(self) -> tuple[str, ...]:
        """Names of the input fields."""

    @property
    def output_fields(self) -> tuple[str, ...]:
        """Names of the output fields."""

    @property
    def symmetries(self) -> tuple[str, ...]:
        """Moves of the grid that take solutions to solutions; see `svdno.training.symmetries`."""

    @property
    def grid(self) -> Grid:
        """Where the fields are sampled by default."""

    @property
    def times(self) -> Tensor:
        """Output times; a steady equation has one."""

    def sample_inputs(self, samples: int, seed: int, first: int = 0) -> Tensor:
        """Random inputs (samples, *space, input fields), in float64; sample i depends on (seed, i) alone."""

    def solve(self, a: Tensor) -> Tensor:
        """Solutions (samples, times, *space, output fields), in float64, on a's grid and device."""

    def residual(self, u: Tensor, a: Tensor) -> Tensor:
        """How far trajectories u on the output times are from the equation, sample by sample."""


EQUATIONS: dict[str, type[Equation]] = {
    "allen-cahn": AllenCahn,
    "diffusion-reaction": DiffusionReaction,
    "diffusion-sorption": DiffusionSorption,
    "shallow-water": ShallowWater,
    "darcy": Darcy,
}

__all__ = ["EQUATIONS", "AllenCahn", "Darcy", "DiffusionReaction", "DiffusionSorption", "Equation", "ShallowWater"]
