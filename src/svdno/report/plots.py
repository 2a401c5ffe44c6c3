"""Figures drawn from the record files: predictions, learning curves and what SVD-NO has learned."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from svdno.errors import InputError
from svdno.report.records import Array, Run
from svdno.report.tables import labels, percent

Axis = tuple[str, Array]  # name and coordinates

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":")  # the next one each time the colours are used up


def predictions(run: Run) -> Figure:
    """Draw input, truth, prediction and error of the recorded test samples, one row per sample and field."""
    samples = run.samples()
    cases = [(s, f) for s in range(len(samples["index"])) for f in range(len(samples["field_names"]))]
    height = 2.5 if len(_space(samples)) == 1 else 2.2
    figure = Figure(figsize=(10, height * len(cases)), layout="constrained")
    panels = figure.subplots(len(cases), 4, squeeze=False)
    for row, (sample, field) in zip(panels, cases, strict=True):
        _draw_case(row, samples, sample, field)
        _title_case(row, samples, sample, field)
    return figure


def training(runs: list[Run]) -> Figure:
    """Draw the validation error of all runs over epochs and over seconds; a dot marks the kept epoch."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, column, name in zip(panels, ("epoch", "seconds"), ("epoch", "training time (s)"), strict=True):
        for position, (label, run) in enumerate(zip(labels(runs), runs, strict=True)):
            _draw_history(panel, run, column, label=label, **_line(position))
        panel.set_xlabel(name)
    _use_log_scale(panels)
    panels[0].set_ylabel("validation error, relative L2 (%)")
    _add_legend(figure, panels[0])
    return figure


def error_over_time(runs: list[Run]) -> Figure:
    """Draw the mean relative L2 error of all runs at each recorded time."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    panel = figure.subplots()
    for position, (label, run) in enumerate(zip(labels(runs), runs, strict=True)):
        error = 100 * np.array(run.metrics["test"]["per_time"], dtype=float)
        panel.plot(run.samples()["times"], error, label=label, marker="o", markersize=3, **_line(position))
    panel.set(xlabel="time t", ylabel="test error, mean relative L2 (%)")
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)
    _add_legend(figure, panel)
    return figure


def spectrum(run: Run) -> Figure:
    """Draw the singular values of each layer: the median over test samples in the band from min to max."""
    values = _singular(run)["values_all"]
    layers, rank = values.shape[1:]
    figure = Figure(figsize=(max(4.5, 2.4 * layers), 3.3), layout="constrained")
    panels = figure.subplots(1, layers, sharey=True, squeeze=False)[0]
    index = np.arange(1, rank + 1)
    for layer, panel in enumerate(panels):
        low, middle, high = np.quantile(values[:, layer], (0, 0.5, 1), axis=0)
        panel.fill_between(index, low, high, color=COLOURS[0], alpha=0.2, linewidth=0, label="min to max")
        panel.plot(index, middle, color=COLOURS[0], marker="o", markersize=4, label="median over samples")
        panel.set_title(f"layer {layer + 1}", fontsize="medium")
        panel.set_xlabel("index i")
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if values.min() > 0.1 * values.max():  # too narrow for decades
        panels[0].set_ylim(bottom=0)
    else:
        _use_log_scale(panels)
    panels[0].set_ylabel("singular value σᵢ")
    _add_legend(figure, panels[0])
    return figure


def singular_functions(run: Run) -> Figure:
    """Draw the leading singular functions of one sample: all layers in 1-D, the first one in 2-D."""
    arrays = _singular(run)
    sides = {"left φ": arrays["left_main"], "right ψ": arrays["right_main"]}
    draw = _draw_function_lines if len(_space(arrays)) == 1 else _draw_function_images
    return draw(_space(arrays), sides)


def write_figures(runs: list[Run], folder: Path) -> dict[str, Path]:
    """Write all figures as PNG, those of one run into its own folder, and return their paths by name.

    Names are "training", "error_over_time" and, by run folder as seen from `folder`, "svdno/predictions" etc.
    """
    written = {"training": _write(folder, training, runs)}
    if any(len(run.metrics["test"]["per_time"]) > 1 for run in runs):
        written["error_over_time"] = _write(folder, error_over_time, runs)
    for run in runs:
        own = [predictions] if run.singular() is None else [predictions, spectrum, singular_functions]
        for draw in own:
            written[figure_name(run, draw.__name__, folder)] = _write(run.folder, draw, run)
    return written


def figure_name(run: Run, kind: str, folder: Path) -> str:
    """Name a figure of one run by the path of the run as seen from `folder`, e.g. "svdno/predictions"."""
    return f"{Path(os.path.relpath(run.folder, folder)).as_posix()}/{kind}"


def _write(folder: Path, draw: Callable[[Any], Figure], argument: Run | list[Run]) -> Path:
    path = folder / "figures" / f"{draw.__name__}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(argument).savefig(path, dpi=150)
    return path


def _draw_case(row: Any, samples: dict[str, Array], sample: int, field: int) -> None:
    space, times, inputs = _space(samples), samples["times"], samples["input"][sample]
    axes, truth = _choose_view(space, times, samples["truth"][sample, ..., field])
    _, prediction = _choose_view(space, times, samples["prediction"][sample, ..., field])
    start = inputs[..., field if inputs.shape[-1] == len(samples["field_names"]) else 0].T
    scale, error = _choose_scale(truth, prediction), prediction - truth
    _draw(row[0], space, start, _choose_scale(start), bar=True)
    _draw(row[1], axes, truth, scale)
    _draw(row[2], axes, prediction, scale, bar=True)
    _draw(row[3], axes, error, _diverge(error, "PuOr_r"), bar=True)


def _title_case(row: Any, samples: dict[str, Array], sample: int, field: int) -> None:
    times, error = samples["times"], percent(float(samples["error"][sample]))
    when = f" at t = {times[-1]:.3g}" if len(times) > 1 and len(_space(samples)) == 2 else ""
    titles = (
        f"{samples['rank_of'][sample]}, sample {samples['index'][sample]}\ninput",
        f"truth\n{samples['field_names'][field]}{when}",
        f"prediction\nrelative L2 {error}",
        "error\nprediction − truth",
    )
    for panel, title in zip(row, titles, strict=True):
        panel.set_title(title, fontsize="medium")


def _choose_view(space: list[Axis], times: Array, values: Array) -> tuple[list[Axis], Array]:
    """Take the space–time image of a 1-D evolution, otherwise the last frame, with x along its rows."""
    if len(space) == 1 and len(times) > 1:
        return [*space, ("t", times)], values
    return space, values[-1].T


def _draw(panel: Axes, axes: list[Axis], values: Array, scale: dict[str, Any], bar: bool = False) -> Any:
    panel.set_xlabel(axes[0][0])
    if len(axes) == 1:
        margin = 0.05 * (scale["vmax"] - scale["vmin"]) or 1.0
        panel.set_ylim(scale["vmin"] - margin, scale["vmax"] + margin)
        return panel.plot(axes[0][1], values, color="#333333", linewidth=1.5)
    panel.set_ylabel(axes[1][0], rotation=0, horizontalalignment="right")
    mesh = panel.pcolormesh(axes[0][1], axes[1][1], values, shading="nearest", **scale)
    if axes[1][0] != "t":
        panel.set_aspect("equal")
    if bar:
        panel.figure.colorbar(mesh, ax=panel, shrink=0.9)
    return mesh


def _draw_function_lines(space: list[Axis], sides: dict[str, Array]) -> Figure:
    layers, leading = next(iter(sides.values())).shape[:2]
    figure = Figure(figsize=(max(5.0, 2.4 * layers), 4.4), layout="constrained")
    panels = figure.subplots(2, layers, sharex=True, sharey="row", squeeze=False)
    for row, (side, functions) in zip(panels, sides.items(), strict=True):
        for layer, panel in enumerate(row):
            for i in range(leading):
                panel.plot(space[0][1], functions[layer, i], label=f"i = {i + 1}", **_line(i))
            panel.axhline(0, color="#999999", linewidth=0.6, zorder=0)
            panel.locator_params(axis="x", nbins=3)
        row[0].set_ylabel(f"{side}ᵢ")
    for layer in range(layers):
        panels[0, layer].set_title(f"layer {layer + 1}", fontsize="medium")
        panels[1, layer].set_xlabel(space[0][0])
    _add_legend(figure, panels[0, 0])
    return figure


def _draw_function_images(space: list[Axis], sides: dict[str, Array]) -> Figure:
    leading = next(iter(sides.values())).shape[1]
    figure = Figure(figsize=(2.3 * leading + 1, 5.0), layout="constrained")
    figure.suptitle("layer 1", fontsize="medium")
    panels = figure.subplots(2, leading, sharex=True, sharey=True, squeeze=False)
    for row, (side, functions) in zip(panels, sides.items(), strict=True):
        scale = _diverge(functions[0], "RdBu_r")
        for i, panel in enumerate(row):
            mesh = _draw(panel, space, functions[0, i].T, scale)
            panel.set_title(f"{side}, i = {i + 1}", fontsize="medium")
            panel.label_outer()
        figure.colorbar(mesh, ax=list(row), shrink=0.9)
    return figure


def _draw_history(panel: Axes, run: Run, column: str, **style: Any) -> None:
    horizontal, error = run.history[column], 100 * run.history["validation_error"]
    known = np.isfinite(error)
    panel.plot(horizontal[known], error[known], **style)
    kept = run.history["epoch"] == run.metrics["best_epoch"]
    panel.plot(horizontal[kept], error[kept], "o", color=style["color"], markersize=6)


def _use_log_scale(panels: Any) -> None:
    """Make the shared vertical axis logarithmic, with ticks at 1, 2, 5 unless it spans many decades."""
    panels[0].set_yscale("log")
    low, high = panels[0].get_ylim()
    axis = panels[0].yaxis
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1e5 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
    for panel in panels:
        panel.grid(alpha=0.3)


def _add_legend(figure: Figure, panel: Axes) -> None:
    handles, names = panel.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=min(4, len(names)), frameon=False)


def _line(position: int) -> dict[str, Any]:
    """Choose colour and dashes by position, so that a run looks the same in every figure."""
    turn, colour = divmod(position, len(COLOURS))
    return {"color": COLOURS[colour], "linestyle": DASHES[turn % len(DASHES)], "linewidth": 1.6}


def _choose_scale(*arrays: Array) -> dict[str, Any]:
    """Share one colour scale: diverging about zero where the values lie on both sides of it."""
    values = np.concatenate([array[np.isfinite(array)] for array in arrays])
    low, high = float(values.min()), float(values.max())
    if min(-low, high) > 0.1 * max(-low, high):
        return _diverge(values, "RdBu_r")
    return {"vmin": low, "vmax": high, "cmap": "viridis"}


def _diverge(values: Array, colours: str) -> dict[str, Any]:
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
    return {"vmin": -largest, "vmax": largest, "cmap": colours}


def _space(arrays: dict[str, Array]) -> list[Axis]:
    names = [key for key in ("axis_0", "axis_1", "axis_2") if key in arrays]
    if len(names) > 2:
        raise InputError("Expected fields in one or two space dimensions, got three; draw those yourself.")
    return [(letter, arrays[key]) for letter, key in zip("xy", names, strict=False)]


def _singular(run: Run) -> dict[str, Array]:
    arrays = run.singular()
    if arrays is None:
        raise InputError(f"Expected the singular functions of an SVD-NO run, `{run.folder}` records none.")
    return arrays
