"""The record of the classical solvers, as benchmarks/solver_curve.py writes it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from svdno.errors import InputError
from svdno.report.solver_curves import Curves, read_curves

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "solver_curve.py"


def test_no_file_means_no_curves():
    assert read_curves(None) == Curves({}, "")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"environment": {"device": "cpu"}, "curves": {"darcy": [{}]}}'])
def test_a_foreign_file_is_refused_with_the_command_that_makes_one(tmp_path, text):
    (tmp_path / "solvers.json").write_text(text)
    with pytest.raises(InputError, match=r"must hold .*solver_curve\.py -o"):
        read_curves(tmp_path / "solvers.json")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="no file"):
        read_curves(tmp_path / "solvers.json")


@pytest.mark.parametrize("equation", ["allen-cahn", "darcy"])
def test_the_script_measures_a_solver_that_converges(tmp_path, equation):
    path = tmp_path / "solvers.json"
    resolutions = ["256", "512"] if equation == "allen-cahn" else ["8", "16"]
    finest = "1024" if equation == "allen-cahn" else "64"
    command = [sys.executable, SCRIPT, equation, "--samples", "2", "--resolutions", *resolutions, "--finest", finest]
    subprocess.run([*command, "-o", path], check=True, capture_output=True)
    curves = read_curves(path)
    coarse, fine = curves.points[equation]
    assert (coarse.resolution, fine.resolution) == tuple(map(float, resolutions))
    assert 0 < fine.relative_error < coarse.relative_error / 1.7
    assert min(coarse.seconds_per_sample, fine.seconds_per_sample) > 0
    assert curves.device == json.loads(path.read_text())["environment"]["device"]


def test_resolutions_that_do_not_divide_the_finest_are_refused():
    command = [sys.executable, SCRIPT, "darcy", "--resolutions", "10", "--finest", "64"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "must divide the finest" in done.stderr
