"""Primitives of the figures: panels, scales, legends."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from svdno.errors import InputError
from svdno.report.records import Array

Axis = tuple[str, Array]  # name and coordinates

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":")  # the next one each time the colours are used up


def draw_panel(panel: Axes, axes: list[Axis], values: Array, scale: dict[str, Any], bar: bool = False) -> Any:
    """Draw a line over one axis or an image over two, where an axis is a name and its coordinates."""
    panel.set_xlabel(axes[0][0])
    if len(axes) == 1:
        margin = 0.05 * (scale["vmax"] - scale["vmin"]) or 1.0
        panel.set_ylim(scale["vmin"] - margin, scale["vmax"] + margin)
        return panel.plot(axes[0][1], values, color="#333333", linewidth=1.5)
    panel.set_ylabel(axes[1][0], rotation=0, horizontalalignment="right")
    mesh = panel.pcolormesh(axes[0][1], axes[1][1], values, shading="nearest", rasterized=True, **scale)
    if axes[1][0] != "t":
        panel.set_aspect("equal")
    if bar:
        panel.figure.colorbar(mesh, ax=panel, shrink=0.9)
    return mesh


def use_log_scale(panels: Any) -> None:
    """Make the shared vertical axis logarithmic, with ticks at 1, 2, 5 unless it spans many decades."""
    panels[0].set_yscale("log")
    low, high = panels[0].get_ylim()
    axis = panels[0].yaxis
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1e5 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
    for panel in panels:
        panel.grid(alpha=0.3)


def add_legend(figure: Figure, panel: Axes) -> None:
    """Put the legend of one panel above the figure."""
    handles, names = panel.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=min(4, len(names)), frameon=False)


def choose_line(position: int) -> dict[str, Any]:
    """Choose colour and dashes by position, so that a run looks the same in every figure."""
    turn, colour = divmod(position, len(COLOURS))
    return {"color": COLOURS[colour], "linestyle": DASHES[turn % len(DASHES)], "linewidth": 1.6}


def choose_scale(*arrays: Array) -> dict[str, Any]:
    """Share one colour scale: diverging about zero where the values lie on both sides of it."""
    values = np.concatenate([array[np.isfinite(array)] for array in arrays])
    low, high = float(values.min()), float(values.max())
    if min(-low, high) > 0.1 * max(-low, high):
        return diverge(values, "RdBu_r")
    return {"vmin": low, "vmax": high, "cmap": "viridis"}


def diverge(values: Array, colours: str) -> dict[str, Any]:
    """Make a colour scale that is symmetric about zero."""
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
    return {"vmin": -largest, "vmax": largest, "cmap": colours}


def read_space(arrays: dict[str, Array]) -> list[Axis]:
    """Collect the space axes of recorded arrays."""
    names = [key for key in ("axis_0", "axis_1", "axis_2") if key in arrays]
    if len(names) > 2:
        raise InputError("Expected fields in one or two space dimensions, got three; draw those yourself.")
    return [(letter, arrays[key]) for letter, key in zip("xy", names, strict=False)]
