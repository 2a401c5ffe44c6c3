"""Figures drawn from the record files: predictions, learning curves and what SVD-NO has learned."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from svdno.errors import InputError
from svdno.report.drawing import (
    COLOURS,
    Axis,
    add_legend,
    choose_line,
    choose_scale,
    diverge,
    draw_panel,
    read_space,
    use_log_scale,
)
from svdno.report.records import Array, Run
from svdno.report.tables import labels, percent, statistic


def predictions(run: Run) -> Figure:
    """Draw input, truth, prediction and error of the recorded test samples, one row per sample and field."""
    samples = run.samples()
    cases = [(s, f) for s in range(len(samples["index"])) for f in range(len(samples["field_names"]))]
    height = 2.5 if len(read_space(samples)) == 1 else 2.2
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
            _draw_history(panel, run, column, label=label, **choose_line(position))
        panel.set_xlabel(name)
    use_log_scale(panels)
    panels[0].set_ylabel("validation error, relative L2 (%)")
    add_legend(figure, panels[0])
    return figure


def error_over_time(runs: list[Run]) -> Figure:
    """Draw the mean relative L2 error of all runs at each recorded time."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    panel = figure.subplots()
    dated = all(run.has_samples for run in runs)  # without the samples only the number of a time is known
    for position, (label, run) in enumerate(zip(labels(runs), runs, strict=True)):
        error = 100 * np.array(run.metrics["test"]["per_time"], dtype=float)
        times = run.samples()["times"] if dated else np.arange(len(error))
        panel.plot(times, error, label=label, marker="o", markersize=3, **choose_line(position))
    panel.set(xlabel="time t" if dated else "number of the output time", ylabel="test error, mean relative L2 (%)")
    if _spans_a_decade(runs):
        use_log_scale([panel])
    else:
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    add_legend(figure, panel)
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
        use_log_scale(panels)
    panels[0].set_ylabel("singular value σᵢ")
    add_legend(figure, panels[0])
    return figure


def singular_functions(run: Run) -> Figure:
    """Draw the leading singular functions of one sample: all layers in 1-D, the first one in 2-D."""
    arrays = _singular(run)
    sides = {"left φ": arrays["left_main"], "right ψ": arrays["right_main"]}
    draw = _draw_function_lines if len(read_space(arrays)) == 1 else _draw_function_images
    return draw(read_space(arrays), sides)


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
    space, times, inputs = read_space(samples), samples["times"], samples["input"][sample]
    axes, truth = _choose_view(space, times, samples["truth"][sample, ..., field])
    _, prediction = _choose_view(space, times, samples["prediction"][sample, ..., field])
    start = inputs[..., field if inputs.shape[-1] == len(samples["field_names"]) else 0].T
    scale, error = choose_scale(truth, prediction), prediction - truth
    draw_panel(row[0], space, start, choose_scale(start), bar=True)
    draw_panel(row[1], axes, truth, scale)
    draw_panel(row[2], axes, prediction, scale, bar=True)
    draw_panel(row[3], axes, error, diverge(error, "PuOr_r"), bar=True)


def _title_case(row: Any, samples: dict[str, Array], sample: int, field: int) -> None:
    times, error = samples["times"], percent(float(samples["error"][sample]))
    when = f" at t = {times[-1]:.3g}" if len(times) > 1 and len(read_space(samples)) == 2 else ""
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


def _draw_function_lines(space: list[Axis], sides: dict[str, Array]) -> Figure:
    layers, leading = next(iter(sides.values())).shape[:2]
    figure = Figure(figsize=(max(5.0, 2.4 * layers), 4.4), layout="constrained")
    panels = figure.subplots(2, layers, sharex=True, sharey="row", squeeze=False)
    for row, (side, functions) in zip(panels, sides.items(), strict=True):
        for layer, panel in enumerate(row):
            for i in range(leading):
                panel.plot(space[0][1], functions[layer, i], label=f"i = {i + 1}", **choose_line(i))
            panel.axhline(0, color="#999999", linewidth=0.6, zorder=0)
            panel.locator_params(axis="x", nbins=3)
        row[0].set_ylabel(f"{side}ᵢ")
    for layer in range(layers):
        panels[0, layer].set_title(f"layer {layer + 1}", fontsize="medium")
        panels[1, layer].set_xlabel(space[0][0])
    add_legend(figure, panels[0, 0])
    return figure


def _draw_function_images(space: list[Axis], sides: dict[str, Array]) -> Figure:
    leading = next(iter(sides.values())).shape[1]
    figure = Figure(figsize=(2.3 * leading + 1, 5.0), layout="constrained")
    figure.suptitle("layer 1", fontsize="medium")
    panels = figure.subplots(2, leading, sharex=True, sharey=True, squeeze=False)
    for row, (side, functions) in zip(panels, sides.items(), strict=True):
        scale = diverge(functions[0], "RdBu_r")
        for i, panel in enumerate(row):
            mesh = draw_panel(panel, space, functions[0, i].T, scale)
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


def _spans_a_decade(runs: list[Run]) -> bool:
    """Whether the mean errors of the runs are so far apart that a linear axis would hide the smaller ones."""
    means = [mean for run in runs if (mean := statistic(run, "relative_l2", "mean"))]
    return max(means, default=1.0) > 10 * min(means, default=1.0)


def _singular(run: Run) -> dict[str, Array]:
    arrays = run.singular()
    if arrays is None:
        raise InputError(f"Expected the singular functions of an SVD-NO run, `{run.folder}` records none.")
    return arrays
