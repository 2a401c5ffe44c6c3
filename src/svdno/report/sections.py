"""What a report shows of a study, section by section; what the records do not allow is said instead."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from matplotlib.figure import Figure

from svdno.errors import InputError
from svdno.report.catching_up import tabulate_catching_up
from svdno.report.cost_tables import tabulate_break_even, tabulate_cost, tabulate_ranks
from svdno.report.error_tables import (
    tabulate_ablations,
    tabulate_details,
    tabulate_errors,
    tabulate_linf,
    tabulate_published,
)
from svdno.report.figures import FEWEST_FOR_FIT, draw_errors, draw_ranks, draw_solver, draw_trend, find_trend
from svdno.report.page import OWN_TEXTS, SHARED_TEXTS
from svdno.report.plots import error_over_time, predictions, training
from svdno.report.protocol import tabulate_protocol
from svdno.report.records import Run
from svdno.report.sheets import Sheet
from svdno.report.solver_curves import Curves
from svdno.report.studies import Entry, Study


@dataclass(frozen=True)
class Illustration:
    """A figure with the name of its files and its texts."""

    name: str
    title: str
    alternative: str
    caption: str
    figure: Figure

    kind: ClassVar[str] = "figure"


@dataclass(frozen=True)
class Missing:
    """What is not shown, and why."""

    text: str

    kind: ClassVar[str] = "missing"


Item = Sheet | Illustration | Missing


@dataclass(frozen=True)
class Section:
    """A heading with what stands below it."""

    title: str
    items: list[Item] = field(default_factory=list)


def describe_study(study: Study, curves: Curves) -> list[Section]:
    """All sections of a study: comparison, ablations, cost and rank, each equation, protocol."""
    published = tabulate_published(study)
    beside: list[Item] = [published] if published else []
    race = tabulate_catching_up(study)
    raced: list[Item] = [race] if race else []
    return [
        Section(
            "Comparison",
            [tabulate_errors(study), _show_errors(study), *beside, tabulate_linf(study), _show_trend(study)],
        ),
        Section("Ablations", [tabulate_ablations(study) or Missing("There are no runs of ablations.")]),
        Section("Cost", [tabulate_cost(study), *raced, _show_break_even(study, curves)]),
        Section("Rank", _show_ranks(study)),
        *(Section(title, _show_equation(study, name, curves)) for name, title in study.equations.items()),
        Section("Protocol", [tabulate_protocol(study)]),
    ]


def _show_errors(study: Study) -> Item:
    return Illustration(
        "errors",
        "Errors at a glance",
        "Dot charts of the test error on logarithmic axes, one for each equation, a row for each method.",
        "The means of the table above with their 95 % confidence intervals over seeds, the smallest in another colour.",
        draw_errors(study),
    )


def _show_trend(study: Study) -> Item:
    trend = find_trend(study)
    if not trend.names:
        return Missing(
            "Improvement against spatial variability β is not drawn: no equation has runs of SVD-NO that record β and "
            "runs of a baseline."
        )
    fit = "" if trend.fit else f" A line is fitted from {FEWEST_FOR_FIT} equations on."
    return Illustration(
        "variability",
        "Improvement against spatial variability",
        "Scatter plot of the improvement of SVD-NO over the best baseline against the spatial variability β.",
        "How much smaller the mean error of SVD-NO is than that of the best of the paper's baselines, against the "
        f"spatial variability β of the equation's solutions. Open circles: as published.{fit}",
        draw_trend(trend),
    )


def _show_break_even(study: Study, curves: Curves) -> Item:
    return tabulate_break_even(study, curves) or Missing(
        "The classical solver is not compared: there is no record of its error and time for these equations. "
        "Measure it with benchmarks/solver_curve.py and name the file with --solvers."
    )


def _show_ranks(study: Study) -> list[Item]:
    sheet = tabulate_ranks(study)
    if sheet is None:
        return [Missing("Error and memory against the rank are not shown: no two methods differ in their rank alone.")]
    drawing = Illustration(
        "rank",
        "Error and memory against the rank",
        "Two line charts against the rank L, one line per equation: test error, and peak memory while training.",
        "Methods that differ in the rank L alone. Left: mean test error, with its 95 % confidence interval over seeds. "
        "Right: peak memory while training.",
        draw_ranks([entries for name in study.equations if (entries := study.ranks(name))]),
    )
    return [drawing, sheet]


def _show_equation(study: Study, equation: str, curves: Curves) -> list[Item]:
    entries, reference = study.of(equation), study.reference(equation)
    runs = [_first_run(entry) for entry in entries]
    shown = _first_run(reference)
    name = f"{equation}-" if equation.replace("-", "").isalnum() else f"data-{list(study.equations).index(equation)}-"
    items: list[Item] = [
        tabulate_details(study, equation),
        _try(name + "training", _of_first_seed("training"), lambda: training(runs)),
    ]
    if any(len(run.metrics["test"]["per_time"]) > 1 for run in runs):
        items.append(_try(name + "time", _of_first_seed("error_over_time"), lambda: error_over_time(runs)))
    if shown.has_samples:
        title, alternative, caption = (text.format(label=reference.label) for text in OWN_TEXTS["predictions"])
        items.append(_try(name + "predictions", (title, alternative, caption), lambda: predictions(shown)))
    else:
        items.append(Missing("Predictions are not drawn: samples.npz is not among the records."))
    if equation in curves.points:
        items.append(_show_solver(name + "solver", entries, curves, equation))
    return items


def _show_solver(name: str, entries: list[Entry], curves: Curves, equation: str) -> Item:
    texts = (
        "Beside the classical solver",
        "Log–log chart of error against seconds per sample: a line for the solver, a point for each method.",
        f"Error and time of a sample, in batches: the classical solver on {curves.device} at the numbers of points "
        "written beside its line, and each method after training. Lower and further left is better.",
    )
    return _try(name, texts, lambda: draw_solver(entries, curves.points[equation]))


def _try(name: str, texts: tuple[str, str, str], draw: Callable[[], Figure]) -> Item:
    """The illustration, or what is wrong with the records that it needs."""
    try:
        return Illustration(name, *texts, draw())
    except InputError as error:
        return Missing(f"{texts[0]} is not drawn: {error}")


def _of_first_seed(kind: str) -> tuple[str, str, str]:
    title, alternative, caption = SHARED_TEXTS[kind]
    return title, alternative, f"{caption} Each method is shown with its first seed."


def _first_run(entry: Entry) -> Run:
    """The run of the first seed, under the label of the study."""
    return replace(entry.runs[0], metrics={**entry.runs[0].metrics, "label": entry.label})
