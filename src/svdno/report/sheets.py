"""Tables of a report as Markdown, LaTeX and CSV; the page draws the same cells as HTML."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import ClassVar

from svdno.report.statistics import Interval
from svdno.report.tables import number

BEST, SECOND = "best", "second"

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "∞": r"$\infty$", "×": r"$\times$", "−": "$-$", "–": "--", "—": "---", "β": r"$\beta$",
    "Φ": r"$\Phi$", "Ψ": r"$\Psi$", "²": r"$^2$", "≤": r"$\leq$", "…": r"\dots{}", "‖": r"$\|$",
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """Text for people, and for CSV the number and half the width of its interval."""

    text: str
    value: float | None = None
    half_width: float | None = None
    mark: str = ""


@dataclass(frozen=True)
class Sheet:
    """A table: the file name of it, a title, columns, rows and a note; `words` columns on the left are text.

    groups: the first column names groups of rows, each shown once
    """

    name: str
    title: str
    header: list[str]
    rows: list[list[Cell]]
    note: str
    words: int = 1
    groups: bool = False

    kind: ClassVar[str] = "table"

    @property
    def starts(self) -> list[bool]:
        """Whether a row begins a group."""
        names = [row[0].text for row in self.rows]
        return [i == 0 or name != names[i - 1] for i, name in enumerate(names)] if self.groups else [False] * len(names)


def word(text: object) -> Cell:
    """A cell of text; – for nothing."""
    return Cell("–" if text is None else str(text))


def quantity(value: float | None, factor: float = 1.0) -> Cell:
    """A cell with one number, in the unit that the factor makes."""
    return Cell(number(value, factor), None if value is None else factor * value)


def spread(interval: Interval | None, factor: float = 1.0) -> Cell:
    """A cell with mean ± half the width of its interval; one seed has no interval."""
    if interval is None or interval.half_width is None:
        return quantity(interval.mean if interval else None, factor)
    return Cell(interval.format(factor), factor * interval.mean, factor * interval.half_width)


def mark_smallest(cells: Sequence[Cell]) -> list[Cell]:
    """Mark the smallest and the second smallest number; numbers equal to three digits share a mark."""
    digits = [None if cell.value is None or math.isnan(cell.value) else float(f"{cell.value:.3g}") for cell in cells]
    known = sorted({value for value in digits if value is not None})
    marks = dict(zip(known, (BEST, SECOND), strict=False)) if len(known) > 1 else {}
    return [
        cell if value is None else replace(cell, mark=marks.get(value, ""))
        for cell, value in zip(cells, digits, strict=True)
    ]


def to_markdown(sheet: Sheet) -> str:
    """The table in pipes, the best in bold and the second underlined."""
    wrap = {"": "{}", BEST: "**{}**", SECOND: "<u>{}</u>"}
    rows = [[wrap[cell.mark].format(cell.text.replace("|", r"\|")) for cell in row] for row in sheet.rows]
    rule = ["---" if i < sheet.words else "---:" for i in range(len(sheet.header))]
    header = [text.replace("|", r"\|") for text in sheet.header]
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, rule, *rows))


def to_latex(sheet: Sheet) -> str:
    """A `table` of the package booktabs, the best in bold and the second underlined."""
    wrap = {"": "{}", BEST: r"\textbf{{{}}}", SECOND: r"\underline{{{}}}"}
    lines: list[str] = []
    for row, start in zip(sheet.rows, sheet.starts, strict=True):
        texts = [wrap[cell.mark].format(escape_latex(cell.text)) for cell in row]
        if sheet.groups and not start:
            texts[0] = ""
        lines.append((r"\addlinespace" + "\n" if start and lines else "") + " & ".join(texts) + r" \\")
    columns = "l" * sheet.words + "r" * (len(sheet.header) - sheet.words)
    return "\n".join([
        "% needs \\usepackage{booktabs}", r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule", " & ".join(map(escape_latex, sheet.header)) + r" \\", r"\midrule", *lines, r"\bottomrule",
        r"\end{tabular}", rf"\caption{{{escape_latex(sheet.title)}. {escape_latex(sheet.note)}}}",
        rf"\label{{tab:{sheet.name}}}", r"\end{table}", "",
    ])  # fmt: skip


def to_csv(sheet: Sheet) -> str:
    """Numbers in full, nothing for –; a column with intervals is followed by one of their half widths."""
    wide = [any(row[i].half_width is not None for row in sheet.rows) for i in range(len(sheet.header))]
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = ((text, f"{text}, half width of the interval") for text in sheet.header)
    writer.writerow([name for pair, two in zip(names, wide, strict=True) for name in pair[: 1 + two]])
    for row in sheet.rows:
        pairs = ((cell.text.strip("–") if cell.value is None else repr(cell.value), cell.half_width) for cell in row)
        writer.writerow([item for pair, two in zip(pairs, wide, strict=True) for item in pair[: 1 + two]])
    return buffer.getvalue()


def escape_latex(text: str) -> str:
    """The text with LaTeX's special characters, and symbols it may lack, written as commands."""
    return "".join(_LATEX.get(letter, letter) for letter in text)
