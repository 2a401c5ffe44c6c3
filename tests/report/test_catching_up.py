"""The time that one method takes to the errors of the others, from histories with chosen errors and seconds."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from svdno.report.catching_up import tabulate_catching_up
from svdno.report.collect import collect
from svdno.report.records import HISTORY
from svdno.report.step_costs import StepCosts, take_costs
from svdno.report.studies import Study

from .made_runs import write_cell


def write_history(folder: Path, errors: list[float], seconds_per_epoch: float) -> None:
    with (folder / "history.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HISTORY)
        for epoch, error in enumerate(errors, 1):
            writer.writerow([epoch, 1e-3, 0.1, "", error, error, epoch * seconds_per_epoch])


@pytest.fixture
def runs(tmp_path):
    histories = {
        ("svdno", 0): ([0.5, 0.2, 0.3, 0.1], 3.0),
        ("svdno", 1): ([0.5, 0.4, 0.2, 0.1], 3.0),
        ("fno", 0): ([0.6, 0.1, 0.25], 4.0),
        ("fno", 1): ([0.6, 0.4, 0.3], 4.0),
        ("unet", 0): ([0.9, 0.09], 1.0),
        ("nearest-neighbour", 0): ([0.7], 1.0),
    }
    for (method, seed), (errors, seconds) in histories.items():
        folder = write_cell(tmp_path / "runs", "allen-cahn", method, seed, [0.01] * 10, model={"name": method})
        write_history(folder, errors, seconds)
    return tmp_path / "runs"


def study_of(runs: Path, against: str = "svdno") -> Study:
    return replace(collect([runs]).studies[0], against=against)


def test_seconds_to_the_kept_error_of_another_are_parts_of_its_training(runs):
    sheet = tabulate_catching_up(study_of(runs))
    # FNO keeps 0.1 and 0.3, on average 0.2, after 12 s; SVD-NO has 0.2 after 6 and 9 s.
    assert {row[0].text: row[1].value for row in sheet.rows} == {"fno": 7.5 / 12, "unet": float("inf")}
    assert [row[1].text for row in sheet.rows] == ["0.62", "never"], "and nothing that was not trained over epochs"


def test_without_a_method_to_compare_with_there_is_no_table(runs):
    assert tabulate_catching_up(study_of(runs, "SVD-NO+")) is None


def test_times_that_were_to_be_measured_apart_and_were_not_are_left_out(runs):
    measured = {"grid": "64 points", "seconds_per_epoch": 2.0, "peak_memory_bytes": 1.0, "latency_seconds": 1.0,
                "samples_per_second": 1.0}  # fmt: skip
    costs = StepCosts({"allen-cahn:svdno": measured, "allen-cahn:unet": measured}, "GPU")
    sheet = tabulate_catching_up(take_costs(study_of(runs), costs))
    assert {row[0].text: row[1].text for row in sheet.rows} == {"fno": "–", "unet": "never"}
    assert "measured apart" in sheet.note
