"""Tables as text: marks, escapes, and CSV that reads back."""

import csv
import re
from io import StringIO

import pytest

from svdno.report.sheets import (
    Cell,
    Sheet,
    escape_latex,
    mark_smallest,
    quantity,
    spread,
    to_csv,
    to_latex,
    to_markdown,
    word,
)
from svdno.report.statistics import Interval


def make_sheet(**changes) -> Sheet:
    rows = [
        [word("A & B_1"), Cell("0.37 ± .042", 0.3701, 0.042, "best")],
        [word("50 % | {x}"), Cell("2.0", 2.0, None, "second")],
        [word("C"), word(None)],
    ]
    return Sheet(
        **{"name": "errors", "title": "L∞ error", "header": ["Method", "Error"], "rows": rows, "note": "n"} | changes
    )


def test_the_smallest_is_best_and_the_next_is_second():
    cells = mark_smallest([quantity(v) for v in (3.0, 1.0, None, 2.0, float("nan"))])
    assert [cell.mark for cell in cells] == ["", "best", "", "second", ""]


def test_numbers_that_print_the_same_share_a_mark():
    assert [c.mark for c in mark_smallest([quantity(v) for v in (0.12341, 0.12344, 0.2)])] == ["best", "best", "second"]


def test_a_number_without_competitor_is_not_marked():
    assert [c.mark for c in mark_smallest([quantity(0.1), quantity(None)])] == ["", ""]


def test_a_cell_shows_its_interval_and_one_seed_shows_none():
    assert spread(Interval(0.003701, 0.00042, 10), 100.0).text == "0.37 ± .042"
    alone = spread(Interval(0.0037, None, 1), 100.0)
    assert (alone.text, alone.value, alone.half_width) == ("0.37", pytest.approx(0.37), None)
    assert spread(None).text == "–"


def test_markdown_sets_the_best_bold_and_underlines_the_second():
    lines = to_markdown(make_sheet()).splitlines()
    assert lines[1] == "| --- | ---: |"
    assert lines[2] == "| A & B_1 | **0.37 ± .042** |"
    assert lines[3] == r"| 50 % \| {x} | <u>2.0</u> |"
    assert lines[4] == "| C | – |"


def test_latex_sets_the_best_bold_and_underlines_the_second():
    text = to_latex(make_sheet())
    assert r"A \& B\_1 & \textbf{0.37 $\pm$ .042} \\" in text
    assert r"50 \% | \{x\} & \underline{2.0} \\" in text
    assert text.index(r"\toprule") < text.index(r"\midrule") < text.index(r"\bottomrule")
    assert r"\begin{tabular}{lr}" in text
    assert r"\caption{L$\infty$ error. n}" in text


def test_latex_escapes_every_special_character():
    assert escape_latex(r"\ & % $ # _ { } ~ ^") == (
        r"\textbackslash{} \& \% \$ \# \_ \{ \} \textasciitilde{} \textasciicircum{}"
    )


def test_latex_braces_balance_and_rows_have_all_columns():
    text = to_latex(make_sheet())
    unescaped = re.sub(r"\\[{}]", "", text)
    assert unescaped.count("{") == unescaped.count("}")
    assert [re.sub(r"\\&", "", line).count("&") for line in text.splitlines() if line.endswith(r"\\")] == [1] * 4


def test_a_group_of_rows_is_named_once_in_latex():
    rows = [[word(g), word(m), quantity(1.0)] for g, m in (("AC", "a"), ("AC", "b"), ("DF", "a"))]
    text = to_latex(make_sheet(header=["Equation", "Method", "x"], rows=rows, words=2, groups=True))
    assert [line for line in text.splitlines() if line.endswith(r"\\")][1:] == [
        r"AC & a & 1.00 \\", r" & b & 1.00 \\", r"DF & a & 1.00 \\",
    ]  # fmt: skip
    assert text.count(r"\addlinespace") == 1


def test_csv_reads_back_with_full_precision_and_half_widths():
    rows = list(csv.DictReader(StringIO(to_csv(make_sheet()))))
    assert [row["Method"] for row in rows] == ["A & B_1", "50 % | {x}", "C"]
    assert [row["Error"] for row in rows] == ["0.3701", "2.0", ""]
    assert [row["Error, half width of the interval"] for row in rows] == ["0.042", "", ""]
