"""Tables of errors: methods by equations, one equation in detail with tests, and ablations."""

from svdno.report import published
from svdno.report.sheets import Cell, Sheet, mark_smallest, quantity, spread, word
from svdno.report.statistics import FEWEST_SIGNS, Comparison, compare, correct_for_many
from svdno.report.studies import Entry, Study

_INTERVALS = "± is half of the 95 % confidence interval of the mean over seeds; a value without it is of one seed."
_MARKS = "The smallest value is bold, the second underlined."


def shorten(title: str) -> str:
    """An equation's title for the head of a column."""
    return title.removesuffix(" equations").removesuffix(" equation")


def tabulate_errors(study: Study) -> Sheet:
    """Table 1: mean relative L2 error in percent, methods by equations."""
    note = f"Mean over the test samples of 100 ‖u − û‖ / ‖u‖, the start frame included. {_INTERVALS} {_MARKS}"
    columns = _estimate_columns(study, "relative_l2", 100.0)
    return _assemble("errors", "Mean relative L2 error (%)", study.contenders, columns, note)


def tabulate_published(study: Study) -> Sheet | None:
    """Table 1 as the paper has it, for the study's equations and methods; None where it has none of them."""
    labels = [label for label in study.contenders if label in published.METHODS]
    columns = [
        (shorten(title), [word(published.find_error(equation, label)) for label in labels])
        for equation, title in study.equations.items()
        if equation in published.ERRORS
    ]
    if not labels or not columns:
        return None
    note = "The paper's numbers, on the authors' data and by their protocol, ten seeds; they were not measured here."
    return _assemble("published", "Mean relative L2 error (%), as published", labels, columns, note)


def tabulate_linf(study: Study) -> Sheet:
    """Mean over test samples of the largest absolute error, methods by equations."""
    note = f"Mean over the test samples of max |u − û|, in the units of the solution. {_INTERVALS} {_MARKS}"
    return _assemble("linf", "L∞ error", study.contenders, _estimate_columns(study, "linf", 1.0), note)


def tabulate_details(study: Study, equation: str) -> Sheet:
    """All error statistics of one equation, and the tests of its reference method against the others."""
    entries, reference = study.with_ablations(equation), study.reference(equation)
    columns = [("Seeds", [word(len(entry.runs)) for entry in entries])]
    for title, metric, name in (
        ("Mean", "relative_l2", "mean"),
        ("Without start", "relative_l2_without_start", "mean"),
        ("Median", "relative_l2", "median"),
        ("p90", "relative_l2", "p90"),
        ("Max", "relative_l2", "max"),
    ):
        columns.append((title, _estimate(entries, metric, 100.0, name, intervals=name == "mean")))
    columns += _test_columns(entries, reference)
    note = (
        f"Relative L2 errors in percent on the test samples; median, 90th percentile and maximum over samples are "
        f"averaged over seeds. {_INTERVALS} {_MARKS} “Gain” says how much smaller the mean error of {reference.label} "
        f"is. p-values are of two-sided paired tests of {reference.label} against each row over the test samples, each "
        "sample's error averaged over seeds first, with Holm's correction for the rows of this table."
    )
    labels = [entry.label for entry in entries]
    title = f"{study.equations[equation]}: errors (%) and tests"
    return _assemble(f"{_file_name(equation)}-errors", title, labels, columns, note)


def tabulate_ablations(study: Study) -> Sheet | None:
    """SVD-NO beside its ablations: error, seconds per epoch, L_ortho; None where there are none."""
    rows: list[list[Cell]] = []
    for equation, title in study.equations.items():
        whole = study.find(equation, published.REFERENCE)
        parts = study.ablations(equation)
        if not parts:
            continue
        entries = [*([whole] if whole else []), *parts]
        errors = _estimate(entries, "relative_l2", 100.0)
        for entry, error in zip(entries, errors, strict=True):
            key = entry.label if entry is whole else entry.name
            rows.append([
                word(shorten(title)), word(entry.label), error,
                word(published.find_error(equation, entry.label, entry.name)),
                quantity(entry.average("seconds_per_epoch")),
                word(published.SECONDS_PER_EPOCH.get(equation, {}).get(key)),
                quantity(entry.average("orthogonality")),
                word(published.ORTHOGONALITY.get(equation) if entry is whole else None),
            ])  # fmt: skip
    if not rows:
        return None
    measured = ("Rel. L2 (%)", "s / epoch", "L_ortho")
    header = ["Equation", "Method", *(text for name in measured for text in (name, f"{name}, published"))]
    note = (
        f"{_INTERVALS} {_MARKS} L_ortho = ‖G_Φ − I‖² + ‖G_Ψ − I‖² with the Gram matrices of the singular functions, "
        "on the test inputs. The columns “published” hold the paper's numbers, its seconds on one L40."
    )
    return Sheet("ablations", "Ablations of SVD-NO", header, rows, note, words=2, groups=True)


def compare_methods(entries: list[Entry], reference: Entry) -> dict[str, Comparison]:
    """The reference against each other method over the test samples, by label, corrected for their number."""
    ours = reference.errors_by_sample()
    found: dict[str, Comparison] = {}
    for entry in entries:
        theirs = entry.errors_by_sample()
        if entry is reference or ours is None or theirs is None or ours.shape[1] < FEWEST_SIGNS:
            continue
        found[entry.label] = compare(ours, theirs)
    t_tests = correct_for_many([one.t_test for one in found.values()])
    wilcoxons = correct_for_many([one.wilcoxon for one in found.values()])
    return {
        label: Comparison(one.improvement, t_test, wilcoxon, one.samples)
        for (label, one), t_test, wilcoxon in zip(found.items(), t_tests, wilcoxons, strict=True)
    }


def _test_columns(entries: list[Entry], reference: Entry) -> list[tuple[str, list[Cell]]]:
    tests = compare_methods(entries, reference)
    if not tests:
        return []
    found = [tests.get(entry.label) for entry in entries]
    return [
        ("Gain (%)", [quantity(one.improvement if one else None) for one in found]),
        ("t-test p", [quantity(one.t_test if one else None) for one in found]),
        ("Wilcoxon p", [quantity(one.wilcoxon if one else None) for one in found]),
    ]


def _estimate_columns(study: Study, metric: str, factor: float) -> list[tuple[str, list[Cell]]]:
    """A column for each equation over all methods of the study, those not run left empty."""
    columns: list[tuple[str, list[Cell]]] = []
    for equation, title in study.equations.items():
        entries = study.of(equation)
        cells = dict(zip([entry.label for entry in entries], _estimate(entries, metric, factor), strict=True))
        columns.append((shorten(title), [cells.get(label, word(None)) for label in study.contenders]))
    return columns


def _estimate(
    entries: list[Entry], metric: str, factor: float, name: str = "mean", intervals: bool = True
) -> list[Cell]:
    found = [entry.estimate(metric, name) for entry in entries]
    cells = [spread(one, factor) if intervals else quantity(one.mean if one else None, factor) for one in found]
    return mark_smallest(cells)


def _assemble(name: str, title: str, labels: list[str], columns: list[tuple[str, list[Cell]]], note: str) -> Sheet:
    rows = [[word(label), *(cells[i] for _, cells in columns)] for i, label in enumerate(labels)]
    return Sheet(name, title, ["Method", *(head for head, _ in columns)], rows, note)


def _file_name(equation: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in equation)
