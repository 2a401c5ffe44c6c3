"""Where fields are sampled: coordinates x_j and quadrature weights w_j with ∫ f dx ≈ Σ_j w_j f(x_j)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from svdno.errors import InputError, choose

PLACEMENTS: tuple[str, ...] = ("nodes", "cells", "periodic")

# Points this near to each other are the same, in steps of the grid.
NEAR = 1e-4


@dataclass(frozen=True)
class Grid:
    """A uniform grid on the box Π [lower, upper].

    shape: points along each axis
    lower, upper: corners of the box
    placement: where the n points of an axis of length ℓ sit, and the rule that integrates with them
        "nodes"     x_j = lower + j ℓ/(n−1)        both ends included, trapezoidal rule
        "cells"     x_j = lower + (j+inset) ℓ/n    cell centres, midpoint rule
        "periodic"  x_j = lower + j ℓ/n            the upper end is the lower one again, equal weights
    inset: of the first point, in steps, for "cells"; of every s-th centre it is 1/(2s), and the rule has other weights
        at the ends, which make it exact for cubic functions (linear ones where there are fewer than 16 points)
    """

    shape: tuple[int, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    placement: str = "nodes"
    inset: float = 0.5

    def __post_init__(self) -> None:
        choose("placement", self.placement, PLACEMENTS)
        if not len(self.shape) == len(self.lower) == len(self.upper) >= 1:
            raise InputError(
                f"`shape`, `lower` and `upper` need one entry per axis, got {len(self.shape)}, "
                f"{len(self.lower)} and {len(self.upper)} entries."
            )
        if min(self.shape) < 2:
            raise InputError(f"A grid needs at least two points along each axis, got shape {self.shape}.")
        if any(low >= up for low, up in zip(self.lower, self.upper, strict=True)):
            raise InputError(f"`lower` must be below `upper` on each axis, got {self.lower} and {self.upper}.")
        if not 0 < self.inset < 1:
            raise InputError(f"`inset` must be between 0 and 1 steps, got {self.inset}.")

    def __str__(self) -> str:
        return " × ".join(map(str, self.shape)) + " points"

    @classmethod
    def unit(cls, shape: tuple[int, ...], placement: str = "nodes") -> "Grid":
        """The grid of this shape on [0,1]^dim."""
        return cls(shape, (0.0,) * len(shape), (1.0,) * len(shape), placement)

    @property
    def dim(self) -> int:
        """Number of space dimensions."""
        return len(self.shape)

    @property
    def volume(self) -> float:
        """|D|, which is also the sum of the weights."""
        return prod(up - low for low, up in zip(self.lower, self.upper, strict=True))

    @property
    def axes(self) -> tuple[Float[Tensor, "_"], ...]:
        """The coordinates along each axis, in float64."""
        return tuple(self._axis(i, None) for i in range(self.dim))

    @property
    def points(self) -> Float[Tensor, "*space dim"]:
        """x_j for each point, in float64."""
        return self._points(None)

    @property
    def weights(self) -> Float[Tensor, "*space"]:
        """w_j for each point, in float64; they sum to the volume of the box."""
        return self._weights(None)

    def points_and_weights(self, like: Tensor) -> tuple[Float[Tensor, "*space dim"], Float[Tensor, "*space"]]:
        """x_j and w_j on the device and in the precision of `like`."""
        weights = self._weights(like.device)
        if self.placement == "periodic" or (self.placement == "cells" and self.inset == 0.5):
            # All equal: stays one number in memory, which kernels recognise.
            weights = weights[(0,) * self.dim].to(like.dtype).expand(self.shape)
        return self._points(like.device).to(like.dtype), weights.to(like.dtype)

    def resized(self, shape: tuple[int, ...]) -> "Grid":
        """The same box and placement with another number of points, cells with their centres."""
        return self if tuple(shape) == self.shape else replace(self, shape=tuple(shape), inset=0.5)

    def strided(self, stride: int) -> "Grid":
        """Every `stride`-th point of each axis, the first one included."""
        intervals = [n - (self.placement == "nodes") for n in self.shape]
        if any(count % stride for count in intervals):
            raise InputError(f"a stride must divide the {tuple(intervals)} intervals of the grid, got {stride}.")
        shape = tuple(-(-n // stride) for n in self.shape)
        return replace(self, shape=shape, inset=self.inset / stride if self.placement == "cells" else self.inset)

    def find(self, coarse: "Grid") -> tuple[slice, ...] | None:
        """Where the points of a coarser grid of the same box are among these; None where they are not."""
        if (self.lower, self.upper) != (coarse.lower, coarse.upper):
            return None
        places = []
        for ours, theirs in zip(self.axes, coarse.axes, strict=True):
            step = (ours[1] - ours[0]).item()
            first, second = (round((theirs[i] - ours[0]).item() / step) for i in (0, 1))
            if not 0 <= first < second:
                return None
            place = slice(first, first + (second - first) * len(theirs), second - first)
            if len(ours[place]) < len(theirs) or (ours[place] - theirs).abs().max() > NEAR * step:
                return None
            places.append(place)
        return tuple(places)

    def moved(self, by: Sequence[float]) -> "Grid":
        """The grid of the points x_j + by; cells move within their box, where that is by the same part of a step."""
        steps = [s * n / (up - low) for s, n, low, up in zip(by, self.shape, self.lower, self.upper, strict=True)]
        if self.placement == "cells" and max(steps) - min(steps) < 1e-6 and 0 < self.inset + steps[0] < 1:
            return replace(self, inset=self.inset + steps[0])
        lower, upper = (tuple(x + s for x, s in zip(corner, by, strict=True)) for corner in (self.lower, self.upper))
        return replace(self, lower=lower, upper=upper)

    def _points(self, device: torch.device | None) -> Tensor:
        axes = [self._axis(i, device) for i in range(self.dim)]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)

    def _weights(self, device: torch.device | None) -> Tensor:
        product = self._axis_weights(0, device)
        for i in range(1, self.dim):
            product = product.unsqueeze(-1) * self._axis_weights(i, device)
        return product

    def _axis(self, i: int, device: torch.device | None) -> Tensor:
        n, low, length = self.shape[i], self.lower[i], self.upper[i] - self.lower[i]
        j = torch.arange(n, dtype=torch.float64, device=device)
        if self.placement == "nodes":
            return low + j * (length / (n - 1))
        return low + (j + (self.inset if self.placement == "cells" else 0.0)) * (length / n)

    def _axis_weights(self, i: int, device: torch.device | None) -> Tensor:
        n, length = self.shape[i], self.upper[i] - self.lower[i]
        intervals = n - 1 if self.placement == "nodes" else n
        weights = torch.full((n,), length / intervals, dtype=torch.float64, device=device)
        if self.placement == "nodes":
            weights[0] /= 2
            weights[-1] /= 2
        elif self.placement == "cells" and self.inset != 0.5:
            degree, reach = (3, 8) if n >= 16 else (1, 2)
            weights[:reach] += length / n * _correct_end(self.inset, degree, reach).to(weights)
            weights[-reach:] += length / n * _correct_end(1 - self.inset, degree, reach).to(weights).flip(0)
        return weights


def _correct_end(inset: float, degree: int, reach: int) -> Float[Tensor, " reach"]:
    """What the first `reach` points count more than 1, if the box begins `inset` steps before the first.

    Σ_i c_i (i + inset)^m = B_{m+1}(inset) / (m+1) for m = 0 … degree takes as many terms off the error of Σ_j f(x_j)
    (Euler–Maclaurin, B the Bernoulli polynomials). Of all such c the smallest: weights 1 + c_i stay positive.
    """
    x = inset
    bernoulli = (x - 1 / 2, x**2 - x + 1 / 6, x**3 - 3 / 2 * x**2 + x / 2, x**4 - 2 * x**3 + x**2 - 1 / 30)
    powers = torch.arange(degree + 1, dtype=torch.float64)
    conditions = (torch.arange(reach, dtype=torch.float64) + inset) ** powers.unsqueeze(-1)
    values = torch.tensor(bernoulli[: degree + 1], dtype=torch.float64) / (powers + 1)
    return torch.linalg.pinv(conditions) @ values
