"""What every model does with its input first: check it, and see grids and point clouds as one list of points."""

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from svdno.errors import InputError
from svdno.grid import Grid


class Samples(NamedTuple):
    """A batch of input fields as values at n points; a leading 1 means "the same for the whole batch".

    a: values a(x_j)
    x: coordinates x_j
    w: quadrature weights w_j
    space: shape that the list of points has as a grid, or (n,) for a cloud
    """

    a: Float[Tensor, "batch n channels"]
    x: Float[Tensor, "#batch n dim"]
    w: Float[Tensor, "#batch n"]
    space: tuple[int, ...]

    @property
    def z(self) -> Float[Tensor, "batch n augmented"]:
        """The augmented coordinate z = (x, a(x))."""
        return torch.cat([self.x.expand(self.a.shape[0], -1, -1), self.a], dim=-1)

    def as_grid(self, values: Float[Tensor, "batch n channels"]) -> Float[Tensor, "batch *space channels"]:
        """Give values at the points the shape the input came in."""
        return values.reshape(values.shape[0], *self.space, values.shape[-1])


def read_samples(
    a: Tensor,
    points: Tensor | None,
    weights: Tensor | None,
    *,
    dim: int,
    in_channels: int,
    dtype: torch.dtype,
) -> Samples:
    """Check a model's input and lay it out as a list of points.

    a: fields, (batch, *space, channels) on a grid or (batch, n, channels) on a point cloud
    points: coordinates; default: the uniform grid on [0,1]^dim, both ends included
    weights: quadrature weights, 0 where only the solution is wanted; default: the trapezoidal rule on that grid, 1/n
        where `points` are given
    """
    _check_field(a, dim, in_channels, dtype)
    batch, *shape, channels = a.shape
    space = tuple(shape)
    if points is None and len(space) != dim:
        raise InputError(
            f"A point cloud needs its coordinates: got a of shape {tuple(a.shape)} and no `points`. "
            f"Pass points of shape ({space[0]}, {dim}) or ({batch}, {space[0]}, {dim}); "
            "for one field on a grid, add the batch axis: a.unsqueeze(0)."
        )
    if points is None:
        points, quadrature = Grid.unit(space).points_and_weights(a)
    else:
        _check_points(points, a, dim)
        quadrature = a.new_full((), 1.0 / prod(space)).expand(space)
    if weights is not None:
        _check_weights(weights, a)
        quadrature = weights
    n = prod(space)
    x = points.to(a).reshape(-1, n, dim)
    w = quadrature.to(a).reshape(-1, n)
    return Samples(a.reshape(batch, n, channels), x, w, space)


def check_counts(arguments: Mapping[str, Any], *names: str) -> None:
    """Check constructor arguments: `dim` is 1, 2 or 3, and those named are whole numbers of at least 1."""
    if arguments["dim"] not in (1, 2, 3):
        raise InputError(f"`dim` must be 1, 2 or 3, got {arguments['dim']}.")
    for name in names:
        if type(arguments[name]) is not int or arguments[name] < 1:
            raise InputError(f"`{name}` must be a whole number of at least 1, got {arguments[name]!r}.")


def check_flags(arguments: Mapping[str, Any], *names: str) -> None:
    """Check constructor arguments that are True or False."""
    for name in names:
        if not isinstance(arguments[name], bool):
            raise InputError(f"`{name}` must be True or False, got {arguments[name]!r}.")


def count_fields(out_channels: int, times: int) -> int:
    """Fields of a model that has to know which of its output channels are times: out_channels / times."""
    if out_channels % times:
        raise InputError(
            f"`out_channels` must be times × fields, got out_channels={out_channels} for times={times}. "
            f"Use out_channels={times} for one field."
        )
    return out_channels // times


def _check_field(a: Tensor, dim: int, in_channels: int, dtype: torch.dtype) -> None:
    axes = ("x", "y", "z")[:dim]
    expected = f"(batch, {', '.join(axes)}, {in_channels})"
    if a.ndim not in (dim + 2, 3):
        raise InputError(
            f"a {dim}-dimensional model takes fields of shape {expected}, channels last, or point clouds "
            f"(batch, points, {in_channels}); got {a.ndim} axes: {tuple(a.shape)}."
            + (" Add the channel axis: a.unsqueeze(-1)." if a.ndim == dim + 1 and in_channels == 1 else "")
        )
    if a.shape[-1] != in_channels:
        first = a.shape[1] == in_channels
        raise InputError(
            f"the last axis must hold the {in_channels} input channels, {expected}; got shape {tuple(a.shape)}."
            + (" It looks channels-first: pass a.movedim(1, -1)." if first else "")
        )
    if a.dtype != dtype and not torch.is_autocast_enabled(a.device.type):
        raise InputError(
            f"the model computes in {dtype}, got an input in {a.dtype}. "
            f"Pass a.to({dtype}) or convert the model: model.to({a.dtype})."
        )
    if min(a.shape) < 1:
        raise InputError(f"the input is empty: got shape {tuple(a.shape)}.")


def _check_points(points: Tensor, a: Tensor, dim: int) -> None:
    space = tuple(a.shape[1:-1])
    allowed = ((*space, dim), (a.shape[0], *space, dim))
    if tuple(points.shape) not in allowed:
        raise InputError(
            f"`points` must give {dim} coordinate(s) for each point of a, shape {allowed[0]} or {allowed[1]}; "
            f"got {tuple(points.shape)} for a of shape {tuple(a.shape)}."
        )


def _check_weights(weights: Tensor, a: Tensor) -> None:
    space = tuple(a.shape[1:-1])
    allowed = (space, (a.shape[0], *space))
    if tuple(weights.shape) not in allowed:
        raise InputError(
            f"`weights` must hold one number for each point of a, shape {allowed[0]} or {allowed[1]}; "
            f"got {tuple(weights.shape)} for a of shape {tuple(a.shape)}."
        )
    # Reading the values waits for the device, so a compiled or captured step goes without.
    if torch.compiler.is_compiling() or (weights.is_cuda and torch.cuda.is_current_stream_capturing()):
        return
    smallest, largest = weights.min().item(), weights.max().item()
    if not (0 <= smallest <= largest < float("inf") and largest > 0):
        raise InputError(
            "quadrature weights must be finite, none below 0 and not all 0, "
            f"got values from {smallest:g} to {largest:g}."
        )
