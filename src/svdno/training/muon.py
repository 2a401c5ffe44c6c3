"""Muon: steps along orthogonal matrices, so that the weak directions of a layer learn as fast as the strong ones."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

MOMENTUM = 0.95

# Entries of a step of Muon, root mean square over those of Adam's first: what one rate serves both with.
SIZE = 0.7

# A matrix with fewer rows or columns has too few directions to balance.
SMALLEST = 8

# p(s) = 3.4445 s − 4.775 s³ + 2.0315 s⁵, applied five times, takes singular values in (0.01, 1] to about 0.7 … 1.2.
COEFFICIENTS = (3.4445, -4.775, 2.0315)
ITERATIONS = 5


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
        for group in self.param_groups:
            for matrix in filter(_is_matrix, group["params"]):
                # Adam looks for "step" in whatever state is restored.
                self.state[matrix] = {"step": torch.zeros(()), "momentum": torch.zeros_like(matrix)}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient; those of the matrices are used up."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None and _is_matrix(p):
                    alike[p.shape].append(p)
            for matrices in alike.values():
                self._move(matrices, group["lr"], group["weight_decay"])
        super().step()

    def _move(self, matrices: list[nn.Parameter], rate: float | Tensor, decay: float) -> None:
        """One step of matrices of the same shape, all at once."""
        gradient = torch.stack([p.grad for p in matrices])  # type: ignore[misc]
        momentum = torch.stack([self.state[p]["momentum"] for p in matrices]).lerp_(gradient, 1 - MOMENTUM)
        size = SIZE * max(gradient.shape[-2:]) ** 0.5
        moves = orthogonalize(gradient.lerp(momentum, MOMENTUM)) * (size * rate)
        for p, m, move in zip(matrices, momentum, moves, strict=True):
            self.state[p]["momentum"].copy_(m)
            if decay:
                p.mul_(1 - rate * decay)
            p.sub_(move)
            p.grad = None


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
