"""DeepONet (Lu et al. 2021): a branch net of the input field times a trunk net of the place and time of the output."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from svdno.errors import InputError, choose
from svdno.grid import PLACEMENTS
from svdno.models.grid_model import GridModel
from svdno.models.inputs import Samples, check_counts, count_fields


class DeepONet(GridModel):
    """Deep operator network; the defaults are PDENNEval's.

    u_f(x, t_k) = β_f + Σ_p b_{fp}(a(ξ_1), …, a(ξ_m)) τ_{fp}(x, t_k),   t_k = k/(times − 1)

    The trunk τ is the same for all samples: a batch evaluates it once, with n × times × width numbers per layer.

    in_channels: components of a
    out_channels: times × fields, the fields of one time side by side
    dim: space dimensions, 1 to 3
    times: number of output times; with one the trunk takes x alone
    sensors: numbers of points ξ along the axes, or one number for all; on another grid a is interpolated linearly
    placement: where grid points sit, as in `Grid`: "nodes", "cells" or "periodic"; only interpolation asks
    hidden_channels: width of branch and trunk
    products: terms of the sum for each field
    branch_layers, trunk_layers: hidden layers; trunk_layers=None means 3 in one dimension, else 4
    """

    title = "DeepONet"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dim: int,
        times: int = 1,
        sensors: int | Sequence[int] = 128,
        placement: str = "nodes",
        hidden_channels: int = 128,
        products: int = 128,
        branch_layers: int = 4,
        trunk_layers: int | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        arguments["trunk_layers"] = (3 if dim == 1 else 4) if trunk_layers is None else trunk_layers
        check_counts(arguments, *(name for name in arguments if name not in ("sensors", "placement")))
        choose("placement", placement, PLACEMENTS)
        arguments["sensors"] = _read_shape(sensors, dim)
        super().__init__()
        self.arguments: dict[str, Any] = arguments
        self.fields = count_fields(out_channels, times)
        readings, coordinates = in_channels * prod(arguments["sensors"]), dim + (times > 1)
        ends = self.fields * products
        self.branch = _build_net([readings, *[hidden_channels] * branch_layers, ends])
        self.trunk = _build_net([coordinates, *[hidden_channels] * arguments["trunk_layers"], ends])
        self.bias = nn.Parameter(torch.zeros(self.fields))

    def map_grid(self, samples: Samples) -> Float[Tensor, "batch *space out_channels"]:
        """Evaluate u = G(a) at any resolution."""
        a, x = samples.as_grid(samples.a), samples.x  # points that all samples share pass the trunk once
        b = self.branch(self._read_sensors(a)).unflatten(-1, (self.fields, -1))
        # As in PDENNEval, the last layer of the trunk is activated too. Coordinates in [−1,1] are where tanh bends.
        tau = torch.tanh(self.trunk(2 * self._locate(x) - 1)).unflatten(-1, (self.fields, -1))
        u = torch.einsum("bfp,bqfp->bqf", b, tau) + self.bias
        return u.reshape(*a.shape[:-1], self.arguments["out_channels"])

    def _read_sensors(self, a: Float[Tensor, "batch *space in_channels"]) -> Float[Tensor, "batch readings"]:
        shape = tuple(self.arguments["sensors"])
        if a.shape[1:-1] != shape:
            a = resample(a, shape, self.arguments["placement"])
        return a.flatten(1)

    def _locate(self, x: Float[Tensor, "#batch n dim"]) -> Float[Tensor, "#batch queries coordinates"]:
        """(x, t) for every point and time, the times of one point side by side; x where there is one time."""
        times = self.arguments["times"]
        if times == 1:
            return x
        t = torch.linspace(0, 1, times, dtype=x.dtype, device=x.device).unsqueeze(-1)
        xt = torch.cat([x.unsqueeze(-2).expand(-1, -1, times, -1), t.expand(*x.shape[:-1], -1, -1)], dim=-1)
        return xt.flatten(1, 2)


def resample(
    a: Float[Tensor, "batch *space channels"], shape: tuple[int, ...], placement: str
) -> Float[Tensor, "batch *new_space channels"]:
    """The piecewise linear interpolant of a on the grid of this shape and the same placement in the same box."""
    values = a.movedim(-1, 1)
    wraps = int(placement == "periodic")
    if wraps:  # with the lower end once more as the upper one, both grids are of the kind "nodes"
        values = F.pad(values, (0, 1) * len(shape), mode="circular")
    mode = ("linear", "bilinear", "trilinear")[len(shape) - 1]
    size = [n + wraps for n in shape]
    values = F.interpolate(values, size, mode=mode, align_corners=placement != "cells")
    inside = (slice(None), slice(None), *(slice(n) for n in shape))
    return values[inside].movedim(1, -1)


def _read_shape(sensors: int | Sequence[int], dim: int) -> list[int]:
    shape = [sensors] * dim if isinstance(sensors, int) else list(sensors)
    if len(shape) != dim or min(shape) < 2:
        raise InputError(f"`sensors` must be at least 2 along each of the {dim} axes, got {sensors}.")
    return shape


def _build_net(widths: list[int]) -> nn.Sequential:
    """Linear layers of these widths with tanh between, their weights drawn by Glorot's rule."""
    net = nn.Sequential()
    for i, (narrow, wide) in enumerate(pairwise(widths)):
        # Biases as torch draws them: without, the trunk starts as exactly 0 in the corner x = 0, t = 0.
        layer = nn.Linear(narrow, wide)
        nn.init.xavier_normal_(layer.weight)
        net.extend([nn.Tanh(), layer] if i else [layer])
    return net
