"""One self-contained HTML page that compares the runs of a demo."""

import os
import re
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from svdno.errors import InputError
from svdno.report.plots import figure_name, write_figures
from svdno.report.records import Run
from svdno.report.tables import best_row, comparison, details, labels, order_by_error, percent, statistic

SHARED_TEXTS = {  # kind: title, alternative text, caption
    "training": (
        "Training",
        "Two line charts of the validation error on a logarithmic scale, one line per model.",
        "Validation error while training, against epochs (left) and against seconds (right). The dot marks "
        "the epoch whose weights were kept. Look at how low each curve ends, and on the right at its cost.",
    ),
    "error_over_time": (
        "Error over time",
        "Line chart of the test error against time, one line per model.",
        "Mean relative L2 error on the test samples at each time. A flat curve means that the error does not "
        "build up as the solution evolves.",
    ),
}
OWN_TEXTS = {
    "predictions": (
        "Predictions of {label}",
        "Grid of panels: input, truth, prediction and their difference, one row per test sample.",
        "Test samples of {label}, by their relative L2 error. Truth and prediction share one colour scale, "
        "their difference has its own. Look at where the difference is large, above all in the worst row.",
    ),
    "spectrum": (
        "Singular values of {label}",
        "Line charts of the singular values on a logarithmic scale, one panel per layer.",
        "Singular values of the kernel κ = Φ Σ Ψᵀ that {label} has learned, layer by layer: median over test "
        "samples, with the band from the smallest to the largest. A steep fall suggests that a smaller rank "
        "would do, a flat end that a larger one may help.",
    ),
    "singular_functions": (
        "Singular functions of {label}",
        "Panels with the leading left singular functions above the right ones.",
        "The leading singular functions of {label} for one test sample, in their channel of largest energy. "
        "The right functions ψ show what a layer reads from its input, the left functions φ what it writes.",
    ),
}
_ORDER = ("predictions", "training", "error_over_time", "spectrum", "singular_functions")


@dataclass(frozen=True)
class Picture:
    """A figure as the page shows it: the PNG in base64 with its title and texts."""

    title: str
    alternative: str
    caption: str
    data: str


def write_page(runs: list[Run], folder: Path) -> Path:
    """Write the figures and `folder`/report.html, one file that needs nothing beside it."""
    _check_same_equation(runs)
    header, rows = comparison(runs)
    best = best_row(runs)
    html = read_template("page.html.j2").render(
        title=runs[0].metrics["title"],
        labels=labels(runs),
        result=describe_result(runs),
        comparison=(header, rows),
        best=[row[1] == rows[best][1] for row in rows],
        pictures=collect_pictures(runs, folder),
        splits=_group_by_split(runs),
        details=details(runs),
        recipes=list(zip(labels(runs), [run.recipe for run in runs], strict=True)),
        model=Path(os.path.relpath(runs[best].folder, folder)).as_posix(),
    )
    path = folder / "report.html"
    path.write_text(html, encoding="utf-8")
    return path


def read_template(name: str) -> Template:
    """A template of this package; what it is given is escaped, and what it is not given is an error."""
    return Environment(
        loader=PackageLoader("svdno", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template(name)


def describe_result(runs: list[Run]) -> str:
    """Say in one sentence which run predicts the test samples best, and how far the others are."""
    names, ranking = labels(runs), order_by_error(runs)
    errors = [percent(statistic(run, "relative_l2", "mean")) for run in runs]
    leaders = [names[i] for i in ranking if errors[i] == errors[ranking[0]]]
    others = "".join(f", {names[i]} {errors[i]}" for i in ranking[len(leaders) :])
    verb, pronoun = ("reaches", "it has") if len(leaders) == 1 else ("reach the same", "they have")
    sizes = {size.group(1) for run in runs if (size := re.search(r"(\S+) test", run.metrics["split"]))}
    samples = f"{sizes.pop()} samples" if len(sizes) == 1 else "test samples"
    subject = " and ".join([", ".join(leaders[:-1]), leaders[-1]] if leaders[1:] else leaders)
    reached = f"{subject} {verb} {errors[ranking[0]]} mean relative L2 error"
    return f"{reached} on {samples} {pronoun} never seen{others}."


def collect_pictures(runs: list[Run], folder: Path) -> list[Picture]:
    """Write the figures and embed them in reading order: predictions, learning curves, singular functions."""
    written = write_figures(runs, folder)
    texts = dict(SHARED_TEXTS)
    for label, run in zip(labels(runs), runs, strict=True):
        for kind, (title, alternative, caption) in OWN_TEXTS.items():
            filled = title.format(label=label), alternative, caption.format(label=label)
            texts[figure_name(run, kind, folder)] = filled
    names = sorted(written, key=lambda name: _ORDER.index(name.rsplit("/", 1)[-1]))
    return [Picture(*texts[name], data=b64encode(written[name].read_bytes()).decode()) for name in names]


def _group_by_split(runs: list[Run]) -> dict[str, list[str]]:
    """Collect the labels of the runs under the split they were trained and tested on."""
    groups: dict[str, list[str]] = {}
    for label, run in zip(labels(runs), runs, strict=True):
        groups.setdefault(run.metrics["split"], []).append(label)
    return groups


def _check_same_equation(runs: list[Run]) -> None:
    equations = sorted({str(run.metrics["equation"]) for run in runs})
    if len(equations) != 1:
        found = " and ".join(equations) or "no run at all"
        raise InputError(f"Expected runs of one equation, got {found}; write one page for each equation.")
