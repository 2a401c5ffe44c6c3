"""A model with everything that makes it usable: normalisers, grid, times, names of the fields."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from svdno.data.dataset import Dataset
from svdno.data.normalizer import Normalizer
from svdno.errors import InputError
from svdno.grid import Grid
from svdno.lookup import construct, list_settings
from svdno.models import ALL_MODELS
from svdno.models.fitted import Fitted
from svdno.training.capture import Replayed

Array = TypeVar("Array", Tensor, np.ndarray)


@dataclass(frozen=True)
class Surrogate:
    """Raw input fields in, solutions in physical units out, at the grid and times the model was trained for.

    name: of the model in MODELS
    model: maps normalised (batch, *space, input fields) to normalised (batch, *space, times × output fields)
    """

    name: str
    model: nn.Module
    input_normalizer: Normalizer
    output_normalizer: Normalizer
    grid: Grid
    times: tuple[float, ...]
    input_fields: tuple[str, ...]
    output_fields: tuple[str, ...]

    @classmethod
    def build(cls, name: str, train: Dataset, **arguments: Any) -> "Surrogate":
        """Make an untrained surrogate for data like these; only the training samples may be passed.

        arguments: of the model's constructor, besides the channels and dimensions, which the data decide, and those
            of `times`, `sensors` and `placement` that it has, which they decide unless given
        """
        known = {"times": len(train.times), "sensors": train.grid.shape, "placement": train.grid.placement}
        wanted = list_settings("model", ALL_MODELS, name)
        arguments = {key: value for key, value in known.items() if key in wanted} | arguments
        arguments["in_channels"] = len(train.input_fields)
        arguments["out_channels"] = len(train.times) * len(train.output_fields)
        arguments["dim"] = train.grid.dim
        return cls(
            name=name,
            model=construct("model", ALL_MODELS, name, arguments),
            input_normalizer=Normalizer.fit([train.inputs]),
            output_normalizer=Normalizer.fit(train.chunks()),
            grid=train.grid,
            times=tuple(train.times.tolist()),
            input_fields=train.input_fields,
            output_fields=train.output_fields,
        )

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The precision the model computes in."""
        return next(self.model.parameters()).dtype

    @property
    def parameters(self) -> int:
        """Number of trained or fitted numbers."""
        return sum(p.numel() for p in self.model.parameters())

    def locate(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """Coordinates and weights that the model sees for a grid: the trained box is [0,1]^dim to it.

        A finer grid that has the trained points has their weights there and none elsewhere: the model integrates as
        it was trained to, and what it knows of its integrals, to the last digit, stays true.
        """
        like = torch.empty(0, dtype=self.dtype, device=self.device)
        box = list(zip(self.grid.lower, self.grid.upper, strict=True))
        lower, upper = (
            tuple((value - low) / (up - low) for value, (low, up) in zip(corner, box, strict=True))
            for corner in (grid.lower, grid.upper)
        )
        points, weights = replace(grid, lower=lower, upper=upper).points_and_weights(like)
        trained = None if grid.shape == self.grid.shape else grid.find(self.grid)
        if trained is not None:
            weights = torch.zeros_like(weights, memory_format=torch.contiguous_format)
            weights[trained] = self.locate(self.grid)[1]
        return points, weights

    def as_frames(self, y: Float[Tensor, "batch *space channels"]) -> Float[Tensor, "batch times *space output_fields"]:
        """The model's output in physical units, times first: channels are times × fields."""
        u = y.unflatten(-1, (len(self.times), len(self.output_fields))).movedim(-2, 1)
        return self.output_normalizer.decode(u)

    @torch.no_grad()
    def predict(
        self,
        a: Array,
        points: Tensor | None = None,
        weights: Tensor | None = None,
        batch_size: int = 64,
        grid: Grid | None = None,
    ) -> Array:
        """Solve for raw input fields.

        a: (batch, *space, fields), tensor or array, at any resolution of the box; (batch, n, fields) with points
        points: coordinates (n, dim) or (batch, n, dim) of a point cloud, in the units of the grid
        weights: quadrature weights of the points in the same units; default: equal ones
        grid: of the fields, where it is not the trained box at some resolution
        Returns (batch, times, *space, fields), of a's kind.
        """
        fields = self._read(a)
        x, w = self._geometry(fields, points, weights) if grid is None else self.locate(grid)
        space = fields.ndim - 2
        self.model.eval()
        solutions = []
        for i in range(0, len(fields), batch_size):
            rows = slice(i, i + batch_size)
            x_b = x[rows] if x.ndim == space + 2 else x
            w_b = w[rows] if w is not None and w.ndim == space + 1 else w
            solutions.append(self.as_frames(self.model(self._encode(fields[rows]), x_b, w_b)).cpu())
        return _as_kind_of(a, torch.cat(solutions))

    @torch.no_grad()
    def recorded(self, like: Array) -> Callable[[Array], Array]:
        """`predict` for fields of one shape, which a GPU runs as one recording, without the host's time between steps.

        It keeps the memory that one call takes. Weights that change in place, as in training, change what it predicts.

        like: fields of that shape, on the trained box
        """
        shape = self._read(like).shape
        x, w = self._geometry(self._read(like), None, None)
        self.model.eval()
        solve = Replayed(lambda b: self.model(b, x, w)) if self._waits_for_nothing() else lambda b: self.model(b, x, w)

        @torch.no_grad()
        def predict(a: Array) -> Array:
            fields = self._read(a)
            if fields.shape != shape:
                raise InputError(
                    f"recorded for fields of shape {tuple(shape)}, got {tuple(fields.shape)}. Record again."
                )
            return _as_kind_of(a, self.as_frames(solve(self._encode(fields))).cpu())

        return predict

    def _waits_for_nothing(self) -> bool:
        """Whether the model computes on a GPU without asking the host, as a recording must."""
        truncated = self.model.arguments.get("truncation") is not None  # type: ignore[operator, union-attr]
        return self.device.type == "cuda" and not truncated and not isinstance(self.model, Fitted)

    def _read(self, a: Array) -> Tensor:
        fields = torch.as_tensor(a)
        if fields.shape[-1] != len(self.input_fields) or fields.ndim < 3:
            raise InputError(
                f"`a` must be (batch, {', '.join('xyz'[: self.grid.dim])}, {len(self.input_fields)}) with the fields "
                f"{', '.join(self.input_fields)} last; got {tuple(fields.shape)}."
            )
        return fields

    def _encode(self, fields: Tensor) -> Tensor:
        return self.input_normalizer.encode(fields.to(self.device, self.dtype))

    def _geometry(self, a: Tensor, points: Tensor | None, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if points is None:
            if a.ndim - 2 != self.grid.dim:
                raise InputError(
                    f"a field of shape {tuple(a.shape)} has {a.ndim - 2} space axes, the model has {self.grid.dim}. "
                    "Pass `points` with a point cloud."
                )
            return self.locate(self.grid.resized(tuple(a.shape[1:-1])))
        lower, upper = points.new_tensor(self.grid.lower), points.new_tensor(self.grid.upper)
        x = ((points - lower) / (upper - lower)).to(self.device, self.dtype)
        return x, None if weights is None else (weights / self.grid.volume).to(self.device, self.dtype)


def _as_kind_of(a: Array, u: Tensor) -> Array:
    return u.numpy() if isinstance(a, np.ndarray) else u.to(a.device)
