"""`svdno report` from the outside: what it prints, writes and refuses."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from svdno.equations import AllenCahn
from tests.report.made_runs import write_cell, write_comparison

RESULTS = Path(__file__).parents[1] / "results"


# Fitted in closed form, so there is nothing to wait for.
RECIPE = """
label = "Training mean"
[data]
equation = "allen-cahn"
samples = 40
parameters = {points = 32, frames = 5}
[model]
name = "training-mean"
[training]
epochs = 1
batch_size = 8
"""


def run(*arguments, cwd: Path, command: str = "report") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "svdno", command, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_a_report_names_the_best_methods_and_its_page(tmp_path):
    write_comparison(tmp_path / "table")
    done = run("table", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "SVD-NO on Allen–Cahn" in done.stdout
    assert "FNO on Darcy flow" in done.stdout
    assert "Report: table/report/report.html" in done.stdout
    assert (tmp_path / "table/report/report.html").is_file()


def test_others_are_tested_against_the_method_that_is_asked_for(tmp_path):
    write_comparison(tmp_path / "table")
    tests = {}
    for label in ("SVD-NO", "FNO"):
        assert run("table", "--against", label, cwd=tmp_path).returncode == 0
        tests[label] = (tmp_path / "table/report/report.md").read_text(encoding="utf-8")
    assert "paired tests of FNO against each row" in tests["FNO"]
    assert "paired tests of FNO" not in tests["SVD-NO"]
    wrong = run("table", "--against", "FMO", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "no method 'FMO' to test against; the runs are of" in " ".join(wrong.stderr.split())


def test_a_second_report_is_the_same_and_does_not_read_the_first(tmp_path):
    write_comparison(tmp_path / "table")
    texts = []
    for _ in range(2):
        assert run("table", cwd=tmp_path).returncode == 0
        texts.append((tmp_path / "table/report/report.md").read_text(encoding="utf-8"))
    assert texts[0] == texts[1]


def test_what_takes_no_part_is_printed_by_name(tmp_path):
    write_comparison(tmp_path)
    (write_cell(tmp_path, "darcy", "uno", 0, [0.1] * 10) / "metrics.json").write_text("{")
    failed = write_cell(tmp_path, "darcy", "pino", 0, [0.1] * 10)
    (failed / "metrics.json").unlink()
    (failed / "failed.txt").write_text("error: out of memory")
    done = run(".", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no result: darcy/pino/seed-0: error: out of memory" in done.stdout
    assert "left out: darcy/uno/seed-0" in done.stdout


def test_a_folder_without_a_finished_run_ends_with_a_message_and_status_2(tmp_path):
    done = run(".", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: a report needs at least one finished run")
    assert "Traceback" not in done.stderr


def test_the_records_of_this_repository_make_a_report(tmp_path):
    done = run(RESULTS / "demo-cpu", "-o", tmp_path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "left out" not in done.stdout
    assert "| FNO |" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_a_run_records_the_variability_of_its_test_solutions_and_is_reported(tmp_path):
    (tmp_path / "mean.toml").write_text(RECIPE)
    assert run("mean.toml", "-o", "run", cwd=tmp_path, command="train").returncode == 0
    equation = AllenCahn(points=32, frames=5)
    u = equation.solve(equation.sample_inputs(40, seed=0))[36:, ..., 0].numpy()  # the last tenth is the test set
    differences = [((u[..., h:] - u[..., :-h]) ** 2).mean(axis=-1) for h in range(1, 6)]
    beta = np.mean(differences / u.var(axis=-1))
    assert json.loads((tmp_path / "run/metrics.json").read_text())["variability"] == pytest.approx(beta, rel=1e-4)
    done = run("run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/report/figures/allen-cahn-predictions.svg").is_file()
