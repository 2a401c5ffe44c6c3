"""Symmetries of an equation, used to show a model each sample in another, equally true, place every time."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from svdno.errors import InputError
from svdno.grid import Grid
from svdno.training.batches import Batch


class Symmetries:
    """Random moves x ↦ g(x) of a grid onto itself, under which a solution of the equation stays one.

    They hold for scalar fields: the components of a vector would have to turn with the points.

    names: "shift" (along periodic axes), "mirror" (each axis, or not), "swap" (of two equal axes, or not), or
        "equation" for those that the equation has; of every s-th cell centre the mirror image lies elsewhere, so there
        it is without "mirror"
    grid: of the samples
    equation: that they solve, where it is known
    """

    def __init__(self, names: Sequence[str], grid: Grid, equation: Any | None = None) -> None:
        self.grid = grid
        self.names = {name for name in names if name != "equation"}
        lopsided = grid.placement == "cells" and grid.inset != 0.5
        if "mirror" in self.names and lopsided:
            raise InputError(
                'the symmetry "mirror" needs points that lie as far from one end as from the other; the first of these '
                f"lies {grid.inset:g} steps from it, the last {1 - grid.inset:g}. Use a stride of 1, or leave it out."
            )
        if "equation" in names:
            self.names |= set(_ask(equation)) - ({"mirror"} if lopsided else set())
        if "shift" in self.names and grid.placement != "periodic":
            raise InputError(f'the symmetry "shift" needs a periodic grid, and this one has {grid.placement}.')
        if "swap" in self.names and not (grid.dim == 2 and grid.shape[0] == grid.shape[1]):
            raise InputError(f'the symmetry "swap" needs a square grid, and this one has the shape {grid.shape}.')

    def draw(self, count: int, seed: int, epoch: int) -> Float[Tensor, "count numbers"]:
        """Numbers in [0,1) that decide the moves of an epoch, by seed and epoch alone."""
        generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
        return torch.rand(count, 2 * self.grid.dim + 1, generator=generator)

    def move(self, batch: Batch, numbers: Float[Tensor, "batch numbers"]) -> Batch:
        """Each sample of a batch, moved."""
        if not self.names:
            return batch
        index, samples = self._places(numbers), torch.arange(len(numbers), device=numbers.device).unsqueeze(-1)
        inputs, targets = (part.flatten(1, -2)[samples, index].unflatten(1, self.grid.shape) for part in batch[:2])
        return Batch(inputs, targets, batch.norms)

    def _places(self, numbers: Float[Tensor, "batch numbers"]) -> Int[Tensor, "batch n"]:
        """Where each point of a moved sample comes from, counted along the flattened grid."""
        places = torch.zeros(len(numbers), *[1] * self.grid.dim, dtype=torch.int64, device=numbers.device)
        for axis, n in enumerate(self.grid.shape):
            i = torch.arange(n, device=numbers.device).expand(len(numbers), n)
            if "mirror" in self.names:
                last = n - (self.grid.placement != "periodic")
                i = torch.where(numbers[:, [2 * axis]] < 0.5, i, (last - i) % n)
            if "shift" in self.names:
                i = (i + (numbers[:, [2 * axis + 1]] * n).long()) % n
            others = [-1 if other == axis else 1 for other in range(self.grid.dim)]
            places = places * n + i.reshape(len(numbers), *others)
        if "swap" in self.names:
            places = torch.where(numbers[:, -1].reshape(-1, 1, 1) < 0.5, places, places.mT)
        return places.flatten(1)


def _ask(equation: Any | None) -> tuple[str, ...]:
    if equation is None:
        raise InputError(
            'symmetries = ["equation"] needs data that name their equation. Name the symmetries: shift, mirror, swap.'
        )
    names: tuple[str, ...] = equation.symmetries
    return names
