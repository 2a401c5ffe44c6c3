"""One sample of a data file as a figure: a space–time image in one dimension, frames in two."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from svdno.report.drawing import Axis, choose_scale, draw_panel
from svdno.report.records import Array

# Frames shown of a two-dimensional evolution, spread evenly over time.
FRAMES = 4


def draw_sample(axes: tuple[Array, ...], times: Array, inputs: Array, outputs: Array, title: str) -> Figure:
    """Draw inputs (*space, fields) and outputs (times, *space, fields)."""
    space: list[Axis] = list(zip("xy", axes, strict=False))
    draw = _draw_evolution if len(axes) == 1 and len(times) > 1 else _draw_frames
    figure = draw(space, times, inputs, outputs)
    figure.suptitle(title)
    return figure


def _draw_evolution(space: list[Axis], times: Array, inputs: Array, outputs: Array) -> Figure:
    """The input as a line, each output field over space and time."""
    fields = outputs.shape[-1]
    figure = Figure(figsize=(4.2 * (1 + fields), 3.6), layout="constrained")
    panels = figure.subplots(1, 1 + fields, squeeze=False)[0]
    draw_panel(panels[0], space, inputs[..., 0], choose_scale(inputs[..., 0]))
    panels[0].set_title("input", fontsize="medium")
    for field, panel in enumerate(panels[1:]):
        draw_panel(panel, [*space, ("t", times)], outputs[..., field], choose_scale(outputs[..., field]), bar=True)
        panel.set_title("solution" if fields == 1 else f"solution, field {field + 1}", fontsize="medium")
    return figure


def _draw_frames(space: list[Axis], times: Array, inputs: Array, outputs: Array) -> Figure:
    """Input fields in the first column, then frames of each output field with one colour scale per field."""
    shown = np.unique(np.linspace(0, len(times) - 1, FRAMES).round().astype(int))
    rows = max(inputs.shape[-1], outputs.shape[-1])
    figure = Figure(figsize=(2.7 * (1 + len(shown)), 2.5 * rows), layout="constrained")
    panels = figure.subplots(rows, 1 + len(shown), squeeze=False)
    for row in range(rows):
        _draw_input(panels[row, 0], space, inputs, row)
        for column, frame in enumerate(shown, start=1):
            if row >= outputs.shape[-1]:
                panels[row, column].set_axis_off()
                continue
            scale = choose_scale(outputs[..., row])
            draw_panel(panels[row, column], space, outputs[frame, ..., row].T, scale, bar=column == len(shown))
            when = f" at t = {times[frame]:.3g}" if len(times) > 1 else ""
            panels[row, column].set_title(f"field {row + 1}{when}", fontsize="medium")
    return figure


def _draw_input(panel: Axes, space: list[Axis], inputs: Array, field: int) -> None:
    if field >= inputs.shape[-1]:
        panel.set_axis_off()
        return
    values = inputs[..., field].T
    draw_panel(panel, space, values, choose_scale(values), bar=True)
    panel.set_title(f"input {field + 1}", fontsize="medium")
