"""Costs measured apart, as benchmarks/steps.py records them, in place of those of runs that shared a machine."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from svdno.errors import InputError
from svdno.report.collect import collect
from svdno.report.document import write_report
from svdno.report.step_costs import APART, read_costs, take_costs

from .made_runs import write_cell

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "steps.py"
MEASURED = {
    "grid": "64 points", "seconds_per_epoch": 0.5, "peak_memory_bytes": 3e6, "latency_seconds": 1e-3,
    "samples_per_second": 4000.0,
}  # fmt: skip


@pytest.fixture
def runs(tmp_path):
    for method in ("svdno", "fno"):
        write_cell(tmp_path / "runs", "allen-cahn", method, 0, np.linspace(0.01, 0.02, 10))
    return tmp_path / "runs"


def write_costs(path: Path, **methods: object) -> Path:
    names = {"svdno": "allen-cahn:svdno", "fno": "allen-cahn:fno"}
    record = {"environment": {"device": "GPU"}, "methods": {names[key]: row for key, row in methods.items()}}
    path.write_text(json.dumps(record))
    return path


def test_costs_measured_apart_take_the_place_of_those_of_the_runs(runs, tmp_path):
    costs = read_costs(write_costs(tmp_path / "steps.json", svdno=MEASURED, fno={"failed": "out of memory"}))
    before = collect([runs]).studies[0]
    theirs, ours = take_costs(before, costs).entries
    assert [ours.average(key) for key in APART] == [MEASURED[key] for key in APART]
    assert ours.average("train_seconds") == 1.5, "a quarter of 6 s, as 0.5 is of the 2 s of an epoch"
    assert ours.runs[0].history["seconds"].tolist() == [0.5, 1.0, 1.5]
    assert {theirs.average(key) for key in (*APART, "train_seconds")} == {None}, "what was not measured has no cost"
    assert ours.error == before.entries[1].error


def test_costs_of_another_size_are_not_taken(runs, tmp_path):
    costs = read_costs(write_costs(tmp_path / "steps.json", svdno={**MEASURED, "grid": "256 points"}))
    assert {entry.average("seconds_per_epoch") for entry in take_costs(collect([runs]).studies[0], costs).entries} == {
        None
    }


def test_a_report_says_where_its_times_come_from(runs, tmp_path):
    path = write_costs(tmp_path / "steps.json", svdno=MEASURED)
    write_report([runs], tmp_path / "report", steps=path)
    text = (tmp_path / "report/report.md").read_text()
    assert "measured apart, one method after the other on GPU" in text
    rows = (tmp_path / "report/tables/cost.csv").read_text().splitlines()
    assert rows[1:] == ["Allen–Cahn,fno,1000.0,,,,,", "Allen–Cahn,svdno,1000.0,3.0,0.5,1.5,1.0,4000.0"]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"environment": {"device": "cpu"}, "methods": {"darcy:fno": {}}}'])
def test_a_foreign_file_is_refused_with_the_command_that_makes_one(tmp_path, text):
    (tmp_path / "steps.json").write_text(text)
    with pytest.raises(InputError, match=r"must hold .*steps\.py -o"):
        read_costs(tmp_path / "steps.json")
    with pytest.raises(InputError, match="no file"):
        read_costs(tmp_path / "none.json")


def test_the_script_measures_what_a_report_reads(tmp_path):
    path = tmp_path / "steps.json"
    subprocess.run([sys.executable, SCRIPT, "allen-cahn:fno", "-o", path], check=True, capture_output=True)
    row = read_costs(path).methods["allen-cahn:fno"]
    assert row["grid"] == "32 points"
    assert min(row[key] for key in APART) > 0
