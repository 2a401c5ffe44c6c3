"""One sample of a data file as a figure: a space–time image in one dimension, frames in two."""

import numpy as np
from matplotlib.figure import Figure

from svdno.errors import InputError
from svdno.report.drawing import Axis, choose_scale, draw_panel
from svdno.report.records import Array

# Names of the input and of the output fields.
Names = tuple[tuple[str, ...], tuple[str, ...]]

# Frames shown of a two-dimensional evolution, spread evenly over time.
FRAMES = 4


def draw_sample(
    axes: tuple[Array, ...], times: Array, inputs: Array, outputs: Array, names: Names, title: str
) -> Figure:
    """Draw inputs (*space, fields) and outputs (times, *space, fields), named by `names`."""
    if len(axes) > 2:
        raise InputError(f"Samples can be drawn in one or two space dimensions, got {len(axes)}; draw those yourself.")
    space: list[Axis] = list(zip("xy", axes, strict=False))
    draw = _draw_evolution if len(axes) == 1 and len(times) > 1 else _draw_frames
    figure = draw(space, times, inputs, outputs, names)
    figure.suptitle(title)
    return figure


def _draw_evolution(space: list[Axis], times: Array, inputs: Array, outputs: Array, names: Names) -> Figure:
    """The first input as a line, each output field over space and time."""
    fields = outputs.shape[-1]
    figure = Figure(figsize=(4.2 * (1 + fields), 3.6), layout="constrained")
    panels = figure.subplots(1, 1 + fields, squeeze=False)[0]
    draw_panel(panels[0], space, inputs[..., 0], choose_scale(inputs[..., 0]))
    panels[0].set_title(names[0][0], fontsize="medium")
    for field, panel in enumerate(panels[1:]):
        draw_panel(panel, [*space, ("t", times)], outputs[..., field], choose_scale(outputs[..., field]), bar=True)
        panel.set_title(names[1][field], fontsize="medium")
    return figure


def _draw_frames(space: list[Axis], times: Array, inputs: Array, outputs: Array, names: Names) -> Figure:
    """Input fields in the first column, then frames of each output field with one colour scale per field."""
    shown = np.unique(np.linspace(0, len(times) - 1, FRAMES).round().astype(int))
    rows = max(inputs.shape[-1], outputs.shape[-1])
    figure = Figure(figsize=(2.7 * (1 + len(shown)), 2.5 * rows), layout="constrained")
    panels = figure.subplots(rows, 1 + len(shown), squeeze=False)
    for panel in panels.flat:
        panel.set_axis_off()
    for field, name in enumerate(names[0]):
        values = inputs[..., field].T
        panels[field, 0].set_axis_on()
        draw_panel(panels[field, 0], space, values, choose_scale(values), bar=True)
        panels[field, 0].set_title(name, fontsize="medium")
    for field, name in enumerate(names[1]):
        scale = choose_scale(outputs[..., field])
        for column, frame in enumerate(shown, start=1):
            panel = panels[field, column]
            panel.set_axis_on()
            draw_panel(panel, space, outputs[frame, ..., field].T, scale, bar=column == len(shown))
            panel.set_title(f"{name} at t = {times[frame]:.3g}" if len(times) > 1 else name, fontsize="medium")
    return figure
