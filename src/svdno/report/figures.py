"""Figures over many runs: errors at a glance, improvement against β, error against rank, methods and solver."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from svdno.report import published
from svdno.report.drawing import COLOURS, add_legend, choose_line, use_log_scale
from svdno.report.error_tables import shorten
from svdno.report.solver_curves import Point
from svdno.report.statistics import improvement
from svdno.report.studies import Entry, Study

# Points that a straight line needs before it says anything.
FEWEST_FOR_FIT = 3


@dataclass(frozen=True)
class Trend:
    """Improvement y over the best baseline against variability x, and the least-squares line y = slope x + start."""

    names: list[str]
    x: list[float]
    y: list[float]

    @property
    def fit(self) -> tuple[float, float, float] | None:
        """Slope, start and the correlation r; None for fewer than three equations."""
        if len(set(self.x)) < FEWEST_FOR_FIT:
            return None
        slope, start = np.polyfit(self.x, self.y, 1)
        return float(slope), float(start), float(np.corrcoef(self.x, self.y)[0, 1])


def draw_errors(study: Study) -> Figure:
    """Draw the mean error of every method, with its interval over seeds, on an axis for each equation."""
    labels = study.contenders[::-1]
    figure = Figure(figsize=(1.5 + 2.1 * len(study.equations), 0.9 + 0.27 * len(labels)), layout="constrained")
    panels = figure.subplots(1, len(study.equations), sharey=True, squeeze=False)[0]
    for panel, (equation, title) in zip(panels, study.equations.items(), strict=True):
        entries = sorted(study.of(equation), key=lambda entry: entry.error)
        for entry, colour in zip(entries, [COLOURS[1]] + [COLOURS[0]] * len(entries), strict=False):
            width = ((one := entry.estimate("relative_l2")) and one.half_width) or 0.0
            row = labels.index(entry.label)
            panel.errorbar(100 * entry.error, row, xerr=100 * width, fmt="o", color=colour, markersize=5, capsize=2)
        panel.set_xscale("log")
        panel.set_xlim(100 * entries[0].error / 3, 100 * entries[-1].error * 3)  # not where an interval begins
        panel.xaxis.set_major_locator(LogLocator(numticks=4))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.set_title(shorten(title), fontsize="medium")
        panel.grid(alpha=0.3)
    panels[0].set_yticks(range(len(labels)), labels)
    figure.supxlabel("test error, mean relative L2 (%)", fontsize="medium")
    return figure


def find_trend(study: Study) -> Trend:
    """SVD-NO against the best of the paper's baselines, on each equation that records β and has both."""
    trend = Trend([], [], [])
    for equation, title in study.equations.items():
        ours = study.find(equation, published.REFERENCE)
        others = [e.error for e in study.of(equation) if e.label in published.METHODS and e is not ours]
        beta = None if ours is None else ours.average("variability")
        if ours is None or beta is None or not others:
            continue
        trend.names.append(shorten(title))
        trend.x.append(beta)
        trend.y.append(improvement(ours.error, min(others)))
    return trend


def draw_trend(trend: Trend) -> Figure:
    """Draw measured improvements over β with their line, and the published ones as open circles."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    panel = figure.subplots()
    panel.plot(trend.x, trend.y, "o", color=COLOURS[0], label="measured here", zorder=3)
    for name, x, y in zip(trend.names, trend.x, trend.y, strict=True):
        panel.annotate(name, (x, y), xytext=(0, 7), textcoords="offset points", fontsize="small", ha="center")
    theirs = [(beta, published.find_improvement(name) or 0.0) for name, beta in published.VARIABILITY.items()]
    panel.plot(*zip(*theirs, strict=True), "o", color="#777777", markerfacecolor="none", label="published")
    if trend.fit is not None:
        slope, start, r = trend.fit
        ends = np.array([min(trend.x), max(trend.x)])
        line = f"fit {start:.3g} {'−' if slope < 0 else '+'} {abs(slope):.3g} β, r = {r:.2f}"
        panel.plot(ends, slope * ends + start, "--", color=COLOURS[0], label=line)
    panel.axhline(0, color="#999999", linewidth=0.8)
    panel.margins(x=0.12, y=0.12)
    panel.set(xlabel="spatial variability β", ylabel="improvement over the best baseline (%)")
    panel.grid(alpha=0.3)
    add_legend(figure, panel)
    return figure


def draw_ranks(series: list[list[Entry]]) -> Figure:
    """Draw the test error, with its interval over seeds, and the peak memory against the rank L."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = figure.subplots(1, 2)
    for position, entries in enumerate(series):
        ranks = [int(entry.recipe.model["rank"]) for entry in entries]
        style = {"label": shorten(entries[0].title), "marker": "o", "markersize": 4, **choose_line(position)}
        widths = [((one := e.estimate("relative_l2")) and one.half_width) or 0.0 for e in entries]
        panels[0].errorbar(ranks, [100 * e.error for e in entries], [100 * w for w in widths], capsize=3, **style)
        memory = [(entry.average("peak_memory_bytes") or np.nan) / 1e6 for entry in entries]
        panels[1].plot(ranks, memory, **style)
    panels[0].set_ylabel("test error, mean relative L2 (%)")
    panels[1].set_ylabel("peak memory while training (MB)")
    ranks = sorted({int(entry.recipe.model["rank"]) for entries in series for entry in entries})
    for panel in panels:
        use_log_scale([panel])
        panel.set_xscale("log")
        panel.set_xticks(ranks, [str(rank) for rank in ranks])
        panel.set_xticks([], minor=True)
        panel.set_xlabel("rank L")
    low, high = panels[1].get_ylim()
    panels[1].set_ylim(min(low, high / 10), 1.2 * high)  # a few percent of memory should look like that
    add_legend(figure, panels[1])
    return figure


def draw_solver(entries: list[Entry], points: list[Point]) -> Figure:
    """Draw error against seconds per sample: the classical solver over resolutions, and every method."""
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    panel = figure.subplots()
    x, y = [p.seconds_per_sample for p in points], [100 * p.relative_error for p in points]
    panel.plot(x, y, "s-", color="#333333", markersize=4, label="classical solver")
    for point in points:
        place = point.seconds_per_sample, 100 * point.relative_error
        panel.annotate(f"{point.resolution:g}", place, xytext=(4, 4), textcoords="offset points", fontsize="small")
    for position, entry in enumerate(entries):
        speed = entry.average("samples_per_second")
        if speed is not None:
            colour = choose_line(position)["color"]
            marker = "ov^D"[position // len(COLOURS) % 4]
            panel.plot(1 / speed, 100 * entry.error, marker, color=colour, label=entry.label, markersize=7)
    panel.set_xscale("log")
    use_log_scale([panel])
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.set(xlabel="seconds per sample, in batches", ylabel="mean relative L2 error (%)")
    add_legend(figure, panel)
    return figure
