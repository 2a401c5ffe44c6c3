"""Samples that are there twice are named, unless chance explains them."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from svdno.data.audit import inspect_file
from svdno.data.audit_twins import label_near_equals
from svdno.data.hdf5 import Contents, create_file, write_samples
from tests.data.audit_files import found, write_groups


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
    axis = (np.arange(32) + 0.5) * 5 / 32 - 2.5
    inside = np.add.outer(axis**2, axis**2) < rng.uniform(0.3, 0.7, size=(1000, 1, 1)) ** 2
    start = (1.0 + inside)[:, None, ..., None]
    write_groups(tmp_path / "f.h5", np.concatenate([start, start / 2], axis=1), {})
    audit = inspect_file(tmp_path / "f.h5")
    twins = next(finding for finding in audit.findings if finding.check == "twins")
    assert twins.severity == "error"
    assert "100 of 100 test and 100 of 100 validation samples" in twins.message
    assert twins.samples == tuple(range(800, 810))
    assert found(audit)["duplicates"] == ("warning", 1000 - len(np.unique(inside, axis=0)))
    assert audit.notes == ("equation not checked: neither the file nor the caller names it.",)


def test_a_near_twin_is_found_and_the_split_decides(clean, tmp_path):
    shutil.copy(clean["allen-cahn"], tmp_path / "f.h5")
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        file["tensor"][39] = file["tensor"][30] * np.float32(1 + 2e-7)
    assert "1 of 4 test and 0 of 4 validation" in inspect_file(tmp_path / "f.h5").findings[-1].message
    assert "twins" not in found(inspect_file(tmp_path / "f.h5", train=0.5, validation=0.1))


def write_constants(path: Path, starts: np.ndarray) -> None:
    """A file like those of diffusion–sorption: each input is one number."""
    u = starts[:, None, None] * np.linspace(1, 2, 3)[:, None] * np.linspace(1, 0.5, 4)
    u[:, 0] = starts[:, None]
    create_file(path, Contents("tensor", len(u), (np.linspace(0, 1, 4),), np.linspace(0, 1, 3), 1, 1, {}))
    with h5py.File(path, "r+") as file:
        write_samples(file, "tensor", 0, u[:, 0, :, None], u[..., None])


@pytest.mark.parametrize("seed", range(5))
def test_single_numbers_that_come_close_by_chance_are_noted_and_no_more(seed, tmp_path):
    starts = np.random.default_rng(seed).uniform(0, 0.2, size=10000)
    write_constants(tmp_path / "f.h5", starts)
    audit = inspect_file(tmp_path / "f.h5")
    assert audit.findings == ()
    assert "no more than chance where inputs vary by one number: " in audit.notes[0]
    assert "input within a relative 1e-06 of an earlier sample's" in audit.notes[0]


def test_more_copies_of_single_numbers_than_chance_brings_are_found(tmp_path):
    starts = np.random.default_rng(0).uniform(0, 0.2, size=10000)
    starts[9000:9100] = starts[:100]
    write_constants(tmp_path / "f.h5", starts)
    audit = inspect_file(tmp_path / "f.h5")
    assert found(audit)["duplicates"][1] >= 100
    assert found(audit)["twins"][0] == "error"


def test_a_second_half_that_nearly_repeats_the_first_is_not_chance(spoil):
    def change(u):
        u[20:] = u[:20] * np.float32(1 + 2e-7)

    assert found(spoil(change)) == {"near-duplicates": ("warning", 20), "twins": ("error", 8)}


def test_a_sample_that_differs_from_its_copy_by_rounding_is_no_contradiction(spoil):
    def change(u):
        u[5] = u[2]
        u[5, 1:] *= np.float32(1 + 1.2e-7)

    assert found(spoil(change)) == {"duplicates": ("warning", 1)}
