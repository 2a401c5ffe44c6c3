"""Muon: steps along orthogonal matrices, so that the weak directions of a layer learn as fast as the strong ones."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

MOMENTUM = 0.95

# Entries of a step of Muon, root mean square over those of Adam's first: what one rate serves both with.
SIZE = 0.7

# A matrix with fewer rows or columns has too few directions to balance.
SMALLEST = 8

# p(s) = 3.4445 s − 4.775 s³ + 2.0315 s⁵, applied five times, takes singular values in (0.01, 1] to about 0.7 … 1.2.
COEFFICIENTS = (3.4445, -4.775, 2.0315)
ITERATIONS = 5


# On a GPU rows and columns are made multiples of this by zeros, which orthogonalising leaves alone: fewer stacks.
GRAIN = 64


class Packing(NamedTuple):
    """Where the entries of matrices, one after the other, go, and where they come back from.

    stacks: numbers of the entries in stacks of matrices of one size; the number after the last stands for 0
    places: of each entry among those of the stacks
    """

    stacks: list[Int[Tensor, "matrices rows columns"]]
    places: Int[Tensor, " entries"]


class Muon(torch.optim.AdamW):
    """M ← μM + (1−μ)g and W ← (1−ηλ)W − η·0.7·√max(rows, columns)·orth(μM + (1−μ)g); AdamW for all but matrices.

    Matrices are the real parameters with at least 8 rows and columns; of a stack of matrices, each by itself.

    parameters: of a model
    lr: η, a number or, for recorded steps, a tensor on the device
    weight_decay: λ
    options: further ones of AdamW
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float | Tensor, weight_decay: float = 0.0, **options: Any
    ) -> None:
        super().__init__(parameters, lr, weight_decay=weight_decay, **options)
        self.packings: dict[tuple[torch.Size, ...], Packing] = {}
        for group in self.param_groups:
            for matrix in filter(_is_matrix, group["params"]):
                # Adam looks for "step" in whatever state is restored.
                self.state[matrix] = {"step": torch.zeros(()), "momentum": torch.zeros_like(matrix)}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient; those of the matrices are used up."""
        for group in self.param_groups:
            matrices: list[Tensor] = [p for p in group["params"] if p.grad is not None and _is_matrix(p)]
            if matrices:
                self._move(matrices, group["lr"], group["weight_decay"])
        super().step()

    def _move(self, matrices: list[Tensor], rate: float | Tensor, decay: float) -> None:
        """One step of all matrices at once: on a GPU each operation on a matrix alone would be mostly waiting."""
        gradients = [p.grad for p in matrices if p.grad is not None]
        momenta = [self.state[p]["momentum"] for p in matrices]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        ahead = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        moves = orthogonalize_all(ahead, self._pack(matrices))
        torch._foreach_mul_(moves, [SIZE * max(p.shape[-2:]) ** 0.5 for p in matrices])
        torch._foreach_mul_(moves, rate)
        if decay:
            torch._foreach_mul_(matrices, 1 - rate * decay)
        torch._foreach_sub_(matrices, moves)
        for p in matrices:
            p.grad = None

    def _pack(self, matrices: Sequence[Tensor]) -> Packing:
        """How they are put together; a recorded step finds it where it was."""
        shapes = tuple(M.shape for M in matrices)
        if shapes not in self.packings:
            self.packings[shapes] = pack(shapes, GRAIN if matrices[0].is_cuda else 1, matrices[0].device)
        return self.packings[shapes]


def pack(shapes: Sequence[torch.Size], grain: int, device: torch.device) -> Packing:
    """How matrices of these shapes, or stacks of them, become few stacks: lying, with zeros to multiples of `grain`."""
    total = sum(shape.numel() for shape in shapes)
    alike: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
    start = 0
    for shape in shapes:
        entries = torch.arange(start, start + shape.numel()).reshape(-1, *shape[-2:])
        start += shape.numel()
        lying = entries if shape[-2] <= shape[-1] else entries.mT
        missing = [-n % grain for n in lying.shape[-2:]]
        padded = F.pad(lying, (0, missing[1], 0, missing[0]), value=total)
        alike[tuple(padded.shape[-2:])].append(padded)
    stacks = [torch.cat(group) for group in alike.values()]
    order = torch.cat([stack.flatten() for stack in stacks])
    places = torch.empty(total + 1, dtype=torch.int64).scatter_(0, order, torch.arange(len(order)))[:total]
    return Packing([stack.to(device) for stack in stacks], places.to(device))


def orthogonalize_all(matrices: Sequence[Tensor], packing: Packing) -> list[Tensor]:
    """`orthogonalize` of each."""
    entries = torch.cat([M.flatten() for M in (*matrices, matrices[0].new_zeros(1))])
    orthogonal = torch.cat([orthogonalize(entries[stack]).flatten() for stack in packing.stacks])[packing.places]
    return [part.view_as(M) for part, M in zip(orthogonal.split([M.numel() for M in matrices]), matrices, strict=True)]


def orthogonalize(M: Float[Tensor, "*stack rows columns"]) -> Float[Tensor, "*stack rows columns"]:
    """Nearly U Vᵀ of M = U S Vᵀ, for each matrix: singular values about 1, by a polynomial in M alone."""
    if M.shape[-2] > M.shape[-1]:
        return orthogonalize(M.mT).mT
    X = M.reshape(-1, *M.shape[-2:])
    X = X / torch.linalg.matrix_norm(X, keepdim=True).clamp_min(torch.finfo(M.dtype).tiny)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        A = X @ X.mT
        X = torch.baddbmm(X, torch.baddbmm(A, A, A, beta=b, alpha=c), X, beta=a)  # aX + (bA + cA²)X
    return X.reshape(M.shape)


def _is_matrix(p: Tensor) -> bool:
    return p.ndim >= 2 and min(p.shape[-2:]) >= SMALLEST and not p.is_complex()
