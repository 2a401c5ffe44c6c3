"""A file is looked over before it is trained on: what it holds, broken values, and axes that do not fit."""

import json
import shutil

import h5py
import numpy as np
import pytest

from svdno.data import audit_survey
from svdno.data.audit import describe, inspect_file
from svdno.data.audit_checks import check_start
from svdno.data.hdf5 import Contents, create_file, write_samples
from svdno.errors import InputError
from tests.data.audit_files import SMALL, found, write_groups


@pytest.mark.parametrize("name", ["allen-cahn", "diffusion-reaction"])
def test_a_generated_file_has_no_findings(name, clean):
    audit = inspect_file(clean[name])
    assert audit.findings == ()
    assert audit.notes == ()
    assert audit.ok
    assert (audit.equation, audit.parameters, audit.layout) == (name, SMALL, "tensor")
    assert (audit.samples, audit.frames, audit.dtype) == (40, 21, "float32")
    assert audit.memory_bytes == 4 * 40 * 64 * (1 + 21)
    assert (audit.placement, audit.placement_guessed) == ("periodic", False)


def test_reading_in_chunks_changes_nothing(clean, spoil, monkeypatch):
    def change(u):
        u[3, 4, 5] = np.nan
        u[39] = u[0]

    whole = spoil(change)
    monkeypatch.setattr(audit_survey, "CHUNK_BYTES", 7 * 8 * 64 * 22)
    assert spoil(change) == whole


@pytest.mark.parametrize(("value", "check"), [(np.nan, "nan"), (np.inf, "infinite"), (-np.inf, "infinite")])
def test_values_that_are_not_finite_are_found(value, check, spoil):
    def change(u):
        u[[3, 17], 4, 5] = value

    audit = spoil(change)
    assert found(audit) == {check: ("error", 2)}
    assert audit.findings[0].samples == (3, 17)
    assert not audit.ok


def test_a_file_without_any_finite_sample_is_still_inspected(spoil):
    def change(u):
        u[:, 2] = np.nan

    audit = spoil(change)
    assert found(audit) == {"nan": ("error", 40)}
    assert len(audit.findings[0].samples) == 10
    assert audit.notes == ("equation not checked: no sample is finite.",)


def test_a_constant_sample_is_found(spoil):
    def change(u):
        u[9] = 0

    audit = spoil(change)
    assert found(audit) == {"constant": ("warning", 1)}
    assert audit.ok, "warnings are allowed"


def test_a_field_with_one_value_is_found(spoil):
    def change(u):
        u[:] = 1

    messages = [finding.message for finding in spoil(change).findings]
    assert "the field u is 1 in all samples" in messages


@pytest.mark.parametrize(("times", "severity"), [(23, "warning"), (21.5, "warning"), (20, "error")])
def test_a_time_axis_that_does_not_fit_the_frames_is_found(times, severity, clean, tmp_path):
    """Too long, with a last step that is half as long as the others, and too short."""
    shutil.copy(clean["diffusion-reaction"], tmp_path / "f.h5")
    listed = np.minimum(np.arange(np.ceil(times)), times - 1) * 0.05
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        del file["t-coordinate"]
        file["t-coordinate"] = listed
    audit = inspect_file(tmp_path / "f.h5")
    assert found(audit) == {"times": (severity, 0)}
    assert f"{len(listed)} times for 21 frames" in audit.findings[0].message


@pytest.mark.parametrize("times", [21, 22])
def test_a_time_axis_may_go_on_for_one_regular_step_as_in_the_public_file(times, clean, tmp_path):
    shutil.copy(clean["diffusion-reaction"], tmp_path / "f.h5")
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        assert len(file["t-coordinate"]) == 22, "what is written here has it, too"
        del file["t-coordinate"]
        file["t-coordinate"] = np.arange(times) * 0.05
    audit = inspect_file(tmp_path / "f.h5")
    assert (audit.findings, audit.times.points) == ((), 21)


def test_102_times_for_101_frames_are_found_in_groups_too(tmp_path):
    fields = np.random.default_rng(0).standard_normal((3, 101, 4, 4, 1))
    write_groups(tmp_path / "f.h5", fields, {})
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        del file["0000/grid/t"]
        file["0000/grid/t"] = np.linspace(0, 1.01, 102)
    assert "102 times for 101 frames" in inspect_file(tmp_path / "f.h5").findings[-1].message


@pytest.mark.parametrize(
    ("axis", "placement"),
    [
        (np.linspace(0, 1, 101), "nodes"),
        (np.linspace(-1, 1, 1024, endpoint=False), "periodic"),
        ((np.arange(128) + 0.5) * 5 / 128 - 2.5, "cells"),
        (((np.arange(1024) + 0.5) / 1024).astype("float32"), "cells"),
        (np.linspace(0, 1, 50) ** 2, None),
    ],
)
def test_placement_is_guessed_from_coordinates(axis, placement, tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["tensor"] = np.random.default_rng(0).standard_normal((2, 3, len(axis)))
        file["x-coordinate"], file["t-coordinate"] = axis, np.arange(3.0)
    audit = inspect_file(tmp_path / "f.h5")
    assert (audit.placement, audit.axes[0].uniform) == (placement, placement is not None)
    assert audit.dtype == "float64"


def test_a_first_frame_that_is_not_the_input_is_named():
    assert list(check_start(np.array([False, False]))) == []
    finding = next(check_start(np.array([False, True])))
    assert (finding.check, finding.severity, finding.samples) == ("start", "error", (1,))


def test_a_first_frame_is_compared_with_an_input_stored_apart(clean, monkeypatch):
    read = audit_survey.read_samples

    def read_other_input(path, first, last):
        a, u = read(path, first, last)
        return a + (np.arange(first, last) == 4)[:, None, None], u

    monkeypatch.setattr(audit_survey, "read_samples", read_other_input)
    assert found(inspect_file(clean["allen-cahn"]))["start"] == ("error", 1)


def test_a_steady_file_is_described(tmp_path):
    rng = np.random.default_rng(0)
    axis = (np.arange(8) + 0.5) / 8
    create_file(tmp_path / "f.h5", Contents("coefficient", 12, (axis, axis), np.zeros(1), 1, 1, {}))
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        write_samples(file, "coefficient", 0, rng.standard_normal((12, 8, 8, 1)), rng.standard_normal((12, 1, 8, 8, 1)))
    audit = inspect_file(tmp_path / "f.h5")
    assert audit.findings == ()
    assert "  times      steady" in describe(audit)


def test_json_holds_the_whole_audit(spoil):
    def change(u):
        u[3, 4, 5] = np.nan

    audit = spoil(change)
    plain = json.loads(json.dumps(audit.to_dict()))
    assert plain == audit.to_dict()
    assert plain["ok"] is False
    assert plain["axes"][0] == {
        "name": "x", "points": 64, "first": -1.0, "last": 0.96875, "spacing": 0.03125, "uniform": True,
    }  # fmt: skip
    assert plain["findings"] == [
        {"check": "nan", "severity": "error", "message": "NaN: 1 of 40 samples", "samples": [3], "count": 1}
    ]
    assert plain["split"] == {"training": 32, "validation": 4, "test": 4}


def test_the_terminal_shows_axes_sizes_and_memory(clean, spoil):
    text = "\n".join(describe(inspect_file(clean["allen-cahn"])))
    for part in (
        "40 samples, layout tensor, float32",
        "allen-cahn (points=64, frames=21, max_step=0.02)",
        "64 points, -1 … 0.96875, spacing 0.03125",
        "21 times for 21 frames, 0 … 1, spacing 0.05",
        "u(x, 0) → u",
        " kB on disk, 225 kB in memory",
        "32 training, 4 validation, 4 test, in file order",
        "no findings",
    ):
        assert part in text

    def change(u):
        u[:12, 4, 5] = np.inf

    lines = describe(spoil(change))
    wanted = "  error: infinite values: 12 of 40 samples (samples 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …)"
    assert lines[-1] == wanted


def test_files_that_cannot_be_inspected_say_why(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["tensor"], file["x-coordinate"], file["t-coordinate"] = np.zeros((0, 3, 8)), np.arange(8.0), np.arange(3.0)
    with pytest.raises(InputError, match="holds no samples"):
        inspect_file(tmp_path / "f.h5")
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        del file["tensor"]
        file["tensor"] = np.zeros((2, 3, 8))
        file.attrs["equation"], file.attrs["parameters"] = "allen-cahn", "[1]"
    with pytest.raises(InputError, match="must be a JSON object"):
        inspect_file(tmp_path / "f.h5")
