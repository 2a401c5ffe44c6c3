"""Further terms of the loss; a new one is one function and one line in TERMS.

A recipe gives their weights: training.terms = {residual = 0.1, start = 0.5} makes an FNO a PINO.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from svdno.data.normalizer import Normalizer
from svdno.errors import InputError
from svdno.grid import Grid


class Fields(NamedTuple):
    """A batch in physical units.

    prediction, truth: û and u
    inputs: a
    norms: ‖u_i‖₂
    """

    prediction: Float[Tensor, "batch times *space fields"]
    truth: Float[Tensor, "batch times *space fields"]
    inputs: Float[Tensor, "batch *space input_fields"]
    norms: Float[Tensor, " batch"]


@dataclass(frozen=True)
class Setting:
    """What is the same for all batches.

    grid, times: of the data
    inputs, outputs: means and standard deviations of the fields
    equation: that the data solve, if they say so
    """

    grid: Grid
    times: tuple[float, ...]
    inputs: Normalizer
    outputs: Normalizer
    equation: Any = None


Term = Callable[[Fields], Float[Tensor, " batch"]]


def relative_h1(
    prediction: Float[Tensor, "batch *space channels"], truth: Float[Tensor, "batch *space channels"]
) -> Float[Tensor, " batch"]:
    """‖∇û_i − ∇u_i‖₂ / ‖∇u_i‖₂ for each sample, with differences between neighbouring points for ∇."""
    wrong, whole = (
        sum(torch.diff(f, dim=axis).square().flatten(1).sum(dim=1) for axis in range(1, f.ndim - 1))
        for f in (prediction - truth, truth)
    )
    return (wrong / whole).sqrt()  # type: ignore[union-attr]


def build_h1(setting: Setting) -> Term:
    """The relative error of the gradient over all times, points and fields."""

    def channels(u: Tensor) -> Tensor:
        return u.movedim(1, -2).flatten(-2)

    return lambda batch: relative_h1(channels(batch.prediction), channels(batch.truth))


def build_start(setting: Setting) -> Term:
    """√m ‖û_i(0) − a_i‖₂ / ‖u_i‖₂ of m times: the error of the start, relative to the mean frame.

    The first output field counts, and the first input field. Relative to a_i itself, a start near zero would.
    """
    if len(setting.times) < 2 or setting.times[0] != 0:
        raise InputError(
            f"the term 'start' needs outputs that begin with the input: several times from t = 0, "
            f"got {len(setting.times)} from t = {setting.times[0]:g}. Leave it out of training.terms."
        )

    def measure(batch: Fields) -> Tensor:
        wrong = batch.prediction[:, 0, ..., 0] - batch.inputs[..., 0]
        return torch.linalg.vector_norm(wrong.flatten(1), dim=1) * len(setting.times) ** 0.5 / batch.norms

    return measure


def build_total(setting: Setting) -> Term:
    """Root mean square over time of |∫û_i − ∫u_i| / |∫u_i| of the first output field.

    What conservation says of a density whose fluxes are not among the outputs, such as the depth of water alone.
    """
    space = tuple(range(2, 2 + setting.grid.dim))

    def measure(batch: Fields) -> Tensor:
        predicted, true = (u[..., 0].mean(dim=space) for u in (batch.prediction, batch.truth))
        return torch.linalg.vector_norm(predicted - true, dim=1) / torch.linalg.vector_norm(true, dim=1)

    return measure


def build_residual(setting: Setting) -> Term:
    """‖R(û_i)‖ / S, root mean squares over times and points: PINO's term, with R the residual of the equation.

    R is formed at the points and times of the data. S is its size for white noise with the mean and the variance of
    the data, so that a prediction which knows nothing has about 1, as in the error, whatever the units and the
    stiffness of the equation: one weight serves all. True solutions have less than 0.004 on the paper's grids, 0.03
    with the shocks of shallow water, and up to 0.06 where only every 16th point and 5th time is kept.
    """
    equation, inner = _at_times(setting), _find_inner(setting)

    def size(u: Tensor, a: Tensor) -> Tensor:
        r: Tensor = equation.residual(u, a)
        return r[inner].flatten(1).square().mean(dim=1).sqrt()

    scale = size(*_draw_noise(setting)).item()
    return lambda batch: size(batch.prediction, batch.inputs) / scale


# Name in training.terms → what makes the term for the data at hand.
TERMS: dict[str, Callable[[Setting], Term]] = {
    "h1": build_h1,
    "start": build_start,
    "total": build_total,
    "residual": build_residual,
}


def build_terms(weights: Mapping[str, float], setting: Setting) -> list[tuple[float, Term]]:
    """The terms with their weights; one that is unknown or impossible with these data is an error."""
    for name in weights:
        if name not in TERMS:
            raise InputError(f"unknown term {name!r} in training.terms; there is {', '.join(TERMS)}.")
    return [(weight, TERMS[name](setting)) for name, weight in weights.items()]


def _at_times(setting: Setting) -> Any:
    """The equation with the times of the data, which may be fewer than it is solved for."""
    equation, times = setting.equation, setting.times
    if equation is None:
        raise InputError(
            "the term 'residual' needs the equation that the data solve, and they name none. "
            "Write it in the recipe as data.equation, or leave the term out of training.terms."
        )
    names = equation.input_fields, equation.output_fields
    found = len(setting.inputs.mean), len(setting.outputs.mean)
    if tuple(map(len, names)) != found:
        raise InputError(
            f"the term 'residual' needs the fields of the equation, {', '.join(names[0])} → {', '.join(names[1])}; "
            f"the data have {found[0]} → {found[1]}. Leave it out of training.terms."
        )
    if "frames" not in {f.name for f in fields(equation)}:
        return equation
    steps = torch.tensor(times, dtype=torch.float64).diff()
    if times[0] != 0 or not torch.allclose(steps, steps[:1], rtol=1e-3, atol=0.0):
        raise InputError("the term 'residual' needs evenly spaced times from t = 0. Leave it out of training.terms.")
    return replace(equation, frames=len(times), end=times[-1])


def _find_inner(setting: Setting) -> tuple[Any, ...]:
    """Where R counts: not in the outermost cells if thinning has moved them away from the boundary of the equation."""
    moved = setting.grid != setting.equation.grid.resized(setting.grid.shape)
    return (..., *[slice(1, -1)] * setting.grid.dim, slice(None)) if moved else (...,)


def _draw_noise(setting: Setting) -> tuple[Tensor, Tensor]:
    """White noise in place of one solution, and the mean input."""
    shape = (1, len(setting.times), *setting.grid.shape, len(setting.outputs.mean))
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    a = torch.zeros(1, *setting.grid.shape, len(setting.inputs.mean))
    return setting.outputs.decode(noise), setting.inputs.decode(a)
