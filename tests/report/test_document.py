"""The report as files: everything is written, the page needs nothing beside it, and says what is missing."""

import csv
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from svdno.report.document import write_report
from tests.report.made_runs import write_cell, write_comparison

SOLVERS = """{"environment": {"device": "cpu"}, "curves": {"darcy": [
  {"resolution": 16, "seconds_per_sample": 0.002, "relative_error": 0.01},
  {"resolution": 32, "seconds_per_sample": 0.004, "relative_error": 0.003}]}}"""
VOID = {"meta", "img", "br", "link", "input", "hr"}


class WellFormed(HTMLParser):
    """Fails on a tag that is closed without being open, and collects what a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.targets: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        assert tag not in ("script", "link", "iframe", "object")
        for name, value in attrs:
            if name in ("src", "href", "srcset", "data"):
                self.targets.append(value or "")
            if name == "id":
                self.anchors.add(f"#{value}")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("report")
    write_comparison(tmp_path / "table")
    for rank in (3, 16):
        model = {"name": "svdno", "rank": rank}
        write_cell(tmp_path / "table", "darcy", f"rank-{rank}", 0, [0.01 * rank] * 10, f"L = {rank}", model)
    failed = write_cell(tmp_path / "table", "darcy", "pino", 0, [0.01] * 10)
    (failed / "metrics.json").unlink()
    (failed / "failed.txt").write_text("error: <out of memory>")
    (tmp_path / "solvers.json").write_text(SOLVERS)
    write_report([tmp_path / "table"], tmp_path / "out", tmp_path / "solvers.json")
    return tmp_path / "out"


def test_every_table_and_figure_is_written_in_all_forms(report):
    tables = {
        "errors",
        "published",
        "linf",
        "allen-cahn-errors",
        "darcy-errors",
        "ablations",
        "cost",
        "catching-up",
        "break-even",
        "rank",
        "protocol",
    }
    assert {path.name for path in (report / "tables").iterdir()} == {f"{t}.{e}" for t in tables for e in ("csv", "tex")}
    figures = {
        "errors",
        "variability",
        "rank",
        "allen-cahn-training",
        "allen-cahn-time",
        "darcy-training",
        "darcy-time",
        "darcy-solver",
    }
    assert {path.name for path in (report / "figures").iterdir()} == {
        f"{f}.{e}" for f in figures for e in ("png", "svg")
    }
    assert (report / "figures" / "rank.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (report / "figures" / "rank.svg").read_text()


def test_the_page_is_well_formed_and_needs_nothing_beside_it(report):
    text = (report / "report.html").read_text(encoding="utf-8")
    page = WellFormed()
    page.feed(text)
    assert page.open == []
    assert not re.search(r"https?://|@import|url\(", text)
    links = [target for target in page.targets if target.startswith("#")]
    pictures = [target for target in page.targets if target.startswith("data:image/png;base64,")]
    assert set(links) <= page.anchors
    assert len(pictures) == 8
    assert len(links) + len(pictures) == len(page.targets)


def test_the_page_marks_best_and_second_in_the_cells(report):
    text = (report / "report.html").read_text(encoding="utf-8")
    row = re.search(r'<tr><th scope="row">FNO</th>(.*?)</tr>', text).group(1)
    allen_cahn, darcy = re.findall(r"<td.*?>(.*?)</td>", row)
    assert allen_cahn.startswith("<u>")
    assert darcy.startswith("<b>")


def test_a_failed_cell_is_named_and_its_message_escaped(report):
    assert "darcy/pino/seed-0: error: &lt;out of memory&gt;" in (report / "report.html").read_text(encoding="utf-8")
    assert "darcy/pino/seed-0: error: <out of memory>" in (report / "report.md").read_text(encoding="utf-8")


def test_markdown_shows_figures_that_exist(report):
    text = (report / "report.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert len(shown) == 8
    assert all((report / path).exists() for path in shown)


def test_csv_files_have_columns_of_their_own(report):
    for path in (report / "tables").glob("*.csv"):
        header, *rows = csv.reader(path.open(newline="", encoding="utf-8"))
        assert len(set(header)) == len(header), path.name
        assert {len(row) for row in rows} == {len(header)}, path.name


def test_what_is_missing_is_said(tmp_path):
    write_cell(tmp_path / "table", "allen-cahn", "svdno", 0, [0.01] * 6, "SVD-NO")
    write_report([tmp_path / "table"], tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    for sentence in (
        "There are no runs of ablations.",
        "no two methods differ in their rank alone",
        "The classical solver is not compared",
        "spatial variability β is not drawn",
        "samples.npz is not among the records",
    ):
        assert sentence in text


def test_damaged_samples_cost_one_figure_and_are_named(tmp_path):
    (write_cell(tmp_path / "table", "darcy", "svdno", 0, [0.01] * 6, "SVD-NO") / "samples.npz").write_bytes(b"PK")
    write_report([tmp_path / "table"], tmp_path / "out")
    assert "Predictions of SVD-NO is not drawn" in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_protocols_are_shown_apart_with_a_line_that_says_so(tmp_path):
    for name, epochs, error in (("short", 3, 0.02), ("long", 9, 0.01)):
        changes = {"training.epochs": epochs}
        write_cell(tmp_path / name, "allen-cahn", "svdno", 0, [error] * 6, "SVD-NO", settings=changes)
    write_report([tmp_path], tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "These runs are of 2 protocols" in text
    assert "## 1. long: Comparison" in text
    assert "## 2. short: Comparison" in text
    assert (tmp_path / "out" / "tables" / "2-errors.csv").exists()


def test_the_report_is_made_without_pytorch(tmp_path):
    write_cell(tmp_path, "allen-cahn", "svdno", 0, [0.01] * 6)
    script = (
        "import sys; from pathlib import Path; from svdno.report.document import write_report; "
        "write_report([Path(sys.argv[1])], Path(sys.argv[1]) / 'out'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script, tmp_path], check=False).returncode == 0


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the browser chromium")
@pytest.mark.parametrize("width", [390, 1200])
def test_in_a_browser_only_tables_and_figures_scroll_sideways(report, width):
    probe = report / "probe.html"
    probe.write_text(
        f'<iframe id="page" src="report.html" style="width:{width}px"></iframe><p id="found"></p><script>'
        'const page = document.getElementById("page"); page.onload = () => { const root = page.contentDocument'
        '.documentElement; document.getElementById("found").textContent = `${root.scrollWidth}/${root.clientWidth}`; }'
        "</script>"
    )
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    profile = f"--user-data-dir={report / 'profile'}"
    done = subprocess.run([*command, profile, "--dump-dom", probe.as_uri()], capture_output=True, text=True, timeout=60)
    content, visible = re.search(r'id="found">(\d+)/(\d+)<', done.stdout).groups()
    assert content == visible
