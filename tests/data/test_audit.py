"""A file is looked over before it is trained on; every defect of the public files, made by hand, is named."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from svdno.data import audit as audit_module
from svdno.data import audit_checks, generate
from svdno.data.audit import describe, inspect_file
from svdno.data.audit_checks import check_start, label_near_equals, relative_residuals
from svdno.data.hdf5 import Contents, create_file, write_samples
from svdno.equations import DiffusionReaction
from svdno.errors import InputError
from svdno.recipe import DataSettings

CPU = torch.device("cpu")
SMALL = {"points": 64, "frames": 21, "max_step": 0.02}


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> dict[str, Path]:
    """Files as this package writes them."""
    folder = tmp_path_factory.mktemp("clean")
    for name in ("allen-cahn", "diffusion-reaction"):
        generate.generate(DataSettings(name, samples=40, parameters=SMALL), folder / f"{name}.h5", CPU)
    return {path.stem: path for path in folder.iterdir()}


@pytest.fixture
def spoil(clean, tmp_path):
    """Change the solutions of a clean copy in place, and inspect it."""

    def inspect_spoilt(change, name="allen-cahn"):
        path = tmp_path / "spoilt.h5"
        shutil.copy(clean[name], path)
        with h5py.File(path, "r+") as file:
            tensor = file["tensor"][:]
            change(tensor)
            file["tensor"][:] = tensor
        return inspect_file(path)

    return inspect_spoilt


def found(audit) -> dict[str, tuple[str, int]]:
    return {finding.check: (finding.severity, finding.count) for finding in audit.findings}


def write_groups(path: Path, fields: np.ndarray, attributes: dict[str, str]) -> None:
    """A file of the layout of shallow-water, fields (samples, times, x, y, 1)."""
    samples, times, n, _, _ = fields.shape
    axis = (np.arange(n) + 0.5) * 5 / n - 2.5
    create_file(path, Contents("groups", samples, (axis, axis), np.linspace(0, 1, times), 1, 1, attributes))
    with h5py.File(path, "r+") as file:
        write_samples(file, "groups", 0, fields[:, 0], fields)


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


@pytest.mark.parametrize("parameters", [{"points": 64, "frames": 5}, {"points": 256, "frames": 101}])
@pytest.mark.parametrize("name", ["allen-cahn", "diffusion-reaction"])
def test_neither_few_frames_nor_many_points_look_like_a_violation(name, parameters, tmp_path):
    generate.generate(DataSettings(name, samples=12, seed=5, parameters=parameters), tmp_path / "f.h5", CPU)
    assert inspect_file(tmp_path / "f.h5").findings == ()


def test_reading_in_chunks_changes_nothing(clean, spoil, monkeypatch):
    def change(u):
        u[3, 4, 5] = np.nan
        u[39] = u[0]

    whole = spoil(change)
    monkeypatch.setattr(audit_checks, "CHUNK_BYTES", 7 * 8 * 64 * 22)
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


def test_exact_copies_are_found(spoil):
    def change(u):
        u[[5, 6]] = u[2]

    audit = spoil(change)
    assert found(audit) == {"duplicates": ("warning", 2)}
    assert audit.findings[0].samples == (5, 6)


def test_one_input_with_two_outputs_is_found(spoil):
    def change(u):
        u[5, 0] = u[2, 0]

    assert found(spoil(change))["contradictions"] == ("error", 1)


@pytest.mark.parametrize(("distance", "near"), [(2e-7, True), (2e-5, False)])
def test_near_copies_are_found_up_to_their_tolerance(distance, near, spoil):
    def change(u):
        u[7] = u[2] * np.float32(1 + distance)

    expected = {"near-duplicates": ("warning", 1)} if near else {}
    assert found(spoil(change)) == expected


def test_labels_of_near_equal_inputs_match_comparing_all_pairs():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((60, 50))
    a[20:40] = a[:20] * (1 + 3e-7 * rng.standard_normal((20, 50)))
    a[40:50] = a[:10] * (1 + 1e-5 * rng.standard_normal((10, 50)))
    norms = np.linalg.norm(a, axis=1)
    sketches = a @ rng.standard_normal((50, 16)) / 4
    labels = label_near_equals(sketches, norms, np.array([row.tobytes().hex() for row in a]))
    close = np.linalg.norm(a[:, None] - a[None], axis=-1) <= 1e-6 * norms
    np.testing.assert_array_equal(labels[:, None] == labels[None], close)


def test_twins_of_thresholded_starts_are_found(tmp_path):
    """Radii drawn at random share starts once they are thresholded at the cells, as in the public file."""
    rng = np.random.default_rng(0)
    axis = (np.arange(16) + 0.5) * 5 / 16 - 2.5
    inside = np.add.outer(axis**2, axis**2) < rng.uniform(0.3, 0.7, size=(100, 1, 1)) ** 2
    start = (1.0 + inside)[:, None, ..., None]
    write_groups(tmp_path / "f.h5", np.concatenate([start, start / 2], axis=1), {})
    audit = inspect_file(tmp_path / "f.h5")
    twins = next(finding for finding in audit.findings if finding.check == "twins")
    assert twins.severity == "error"
    assert "10 of 10 test and 10 of 10 validation samples" in twins.message
    assert twins.samples == tuple(range(80, 90))
    assert found(audit)["duplicates"][1] >= 90


def test_a_near_twin_is_found_and_the_split_decides(clean, tmp_path):
    shutil.copy(clean["allen-cahn"], tmp_path / "f.h5")
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        file["tensor"][39] = file["tensor"][30] * np.float32(1 + 2e-7)
    assert "1 of 4 test and 0 of 4 validation" in inspect_file(tmp_path / "f.h5").findings[-1].message
    assert "twins" not in found(inspect_file(tmp_path / "f.h5", train=0.5, validation=0.1))


@pytest.mark.parametrize(("times", "severity"), [(22, "warning"), (20, "error")])
def test_a_time_axis_of_another_length_is_found(times, severity, clean, tmp_path):
    shutil.copy(clean["diffusion-reaction"], tmp_path / "f.h5")
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        del file["t-coordinate"]
        file["t-coordinate"] = np.arange(times) * 0.05
    audit = inspect_file(tmp_path / "f.h5")
    assert found(audit) == {"times": (severity, 0)}
    assert f"{times} times for 21 frames" in audit.findings[0].message


def test_102_times_for_101_frames_are_found_in_groups_too(tmp_path):
    fields = np.random.default_rng(0).standard_normal((3, 101, 4, 4, 1))
    write_groups(tmp_path / "f.h5", fields, {})
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        del file["0000/grid/t"]
        file["0000/grid/t"] = np.linspace(0, 1.01, 102)
    assert "102 times for 101 frames" in inspect_file(tmp_path / "f.h5").findings[-1].message


@pytest.mark.parametrize("name", ["allen-cahn", "diffusion-reaction"])
def test_frozen_solutions_are_found(name, spoil):
    def change(u):
        u[:, 8:] = u[:, 7:8]

    audit = spoil(change, name)
    assert found(audit)["frozen"] == ("error", 32)
    assert "stops moving before the last frame" in audit.findings[0].message


def test_one_frozen_solution_among_many_is_found(spoil, monkeypatch):
    def change(u):
        u[20, 16:] = u[20, 15]

    monkeypatch.setattr(audit_module, "CHECKED", 4)  # 0, 13, 26 and 39 if they were only spread out
    audit = spoil(change)
    assert [finding.samples for finding in audit.findings if finding.check == "frozen"] == [(20,)]


def test_a_rate_that_leaves_no_trace_counts_as_rest():
    equation = DiffusionReaction(points=16, frames=5)
    u = torch.full((1, 5, 16, 1), 0.9999, dtype=torch.float64)
    assert relative_residuals(equation, u, u[:, 0]).max() < 0.02
    assert relative_residuals(equation, u / 2, u[:, 0] / 2).min() > 0.99


def test_blocks_keep_rounding_to_float32_out_of_the_residual(monkeypatch):
    equation = DiffusionReaction(points=1024, frames=101)
    a = equation.sample_inputs(1, seed=0)
    u = equation.solve(a).float().double()
    assert relative_residuals(equation, u, a)[:, 10:50].max() < 0.01
    monkeypatch.setattr(audit_checks, "BLOCKS", 1024)
    assert relative_residuals(equation, u, a)[:, 10:50].max() > 0.1


def test_a_solution_at_rest_is_not_frozen(tmp_path):
    """After a long time u = 1 is reached for good."""
    parameters = {"points": 16, "frames": 41, "end": 40.0, "max_step": 0.1}
    generate.generate(DataSettings("diffusion-reaction", samples=3, parameters=parameters), tmp_path / "f.h5", CPU)
    with h5py.File(tmp_path / "f.h5") as file:
        assert np.abs(np.diff(file["tensor"][:, -3:], axis=1)).max() < 1e-7
    assert inspect_file(tmp_path / "f.h5").findings == ()


@pytest.mark.parametrize("name", ["allen-cahn", "diffusion-reaction"])
def test_noise_violates_the_equation(name, spoil):
    def change(u):
        u *= 1 + 0.01 * np.random.default_rng(0).standard_normal(u.shape)

    assert found(spoil(change, name)) == {"residual": ("error", 32)}


@pytest.mark.parametrize("name", ["allen-cahn", "diffusion-reaction"])
def test_the_solution_of_another_parameter_violates_the_equation(name, clean, tmp_path):
    reaction = {"allen-cahn": 4.0, "diffusion-reaction": 0.7}[name]
    settings = DataSettings(name, samples=40, parameters=SMALL | {"reaction": reaction})
    generate.generate(settings, tmp_path / "f.h5", CPU)
    assert inspect_file(tmp_path / "f.h5").ok
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        file.attrs["parameters"] = json.dumps(SMALL)
    assert found(inspect_file(tmp_path / "f.h5")) == {"residual": ("error", 32)}


def test_the_caller_names_the_equation_of_a_public_file(clean, tmp_path):
    shutil.copy(clean["diffusion-reaction"], tmp_path / "f.h5")
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        for key in list(file.attrs):
            del file.attrs[key]
    unnamed = inspect_file(tmp_path / "f.h5")
    assert unnamed.notes == ("equation not checked: neither the file nor the caller names it.",)
    assert (unnamed.equation, unnamed.placement, unnamed.placement_guessed) == (None, "cells", True)
    named = inspect_file(tmp_path / "f.h5", equation="diffusion-reaction")
    assert (named.findings, named.notes, named.placement) == ((), (), "periodic")
    wrong = inspect_file(tmp_path / "f.h5", equation="allen-cahn")
    assert wrong.notes[0].startswith("equation not checked: allen-cahn has axes of length")
    unknown = inspect_file(tmp_path / "f.h5", equation="burgers")
    assert "unknown equation 'burgers'" in unknown.notes[0]
    assert unknown.findings == ()


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
    read = audit_checks.read_samples

    def read_other_input(path, first, last):
        a, u = read(path, first, last)
        return a + (np.arange(first, last) == 4)[:, None, None], u

    monkeypatch.setattr(audit_checks, "read_samples", read_other_input)
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
    (tmp_path / "text.h5").write_text("no")
    with pytest.raises(InputError, match="cannot be read as HDF5"):
        inspect_file(tmp_path / "text.h5")
