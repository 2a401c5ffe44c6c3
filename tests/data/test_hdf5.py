"""Files that cannot be read as they are: the message says what is wrong, and the command line ends with status 2."""

import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from svdno.data import generate
from svdno.data.audit import inspect_file
from svdno.data.dataset import load_dataset
from svdno.data.hdf5 import read_contents
from svdno.data.reader import read_samples
from svdno.errors import InputError
from svdno.recipe import DataSettings

SMALL = {
    "allen-cahn": {"points": 16, "frames": 3, "end": 0.1},
    "diffusion-reaction": {"points": 16, "frames": 3, "end": 0.1},
    "diffusion-sorption": {"points": 16, "frames": 3, "end": 0.1},
    "shallow-water": {"points": 16, "frames": 3, "end": 0.1},
    "darcy": {"points": 16},
}

INSPECT = """
import sys
from svdno.cli import main
for path in sys.argv[1:]:
    sys.argv = ["svdno", "inspect", path]
    try:
        main()
    except SystemExit as end:
        print(end.code)
"""


def make_file(path: Path, name: str) -> Path:
    generate.generate(DataSettings(name, samples=5, parameters=SMALL[name]), path, torch.device("cpu"))
    return path


def replace(file: h5py.File, name: str, values: np.ndarray) -> None:
    del file[name]
    file[name] = values


def shorten(file: h5py.File, name: str) -> None:
    replace(file, name, file[name][:-1])


# What is done to a file of which equation, and what is said.
DEFECTS = {
    "no tensor": ("allen-cahn", lambda f: f.move("tensor", "fields"), "expected a data set 'input' or 'tensor', or"),
    "no x": ("allen-cahn", lambda f: f.pop("x-coordinate"), "'x-coordinate' is missing"),
    "no t": ("allen-cahn", lambda f: f.pop("t-coordinate"), "'t-coordinate' is missing"),
    "x too short": ("allen-cahn", lambda f: shorten(f, "x-coordinate"), "must have the shape (16,), got (15,)"),
    "x undefined": ("allen-cahn", lambda f: replace(f, "x-coordinate", np.full(16, np.nan)), "must hold finite"),
    "no times": ("allen-cahn", lambda f: replace(f, "t-coordinate", np.zeros(0)), "must hold finite"),
    "no frames": ("allen-cahn", lambda f: replace(f, "tensor", np.zeros((5, 0, 16))), "at least one frame"),
    "two axes": ("allen-cahn", lambda f: replace(f, "tensor", np.zeros((5, 16))), "must have 3 or 4 axes, got"),
    "five axes": ("allen-cahn", lambda f: replace(f, "tensor", np.zeros((5, 3, 2, 2, 2))), "must have 3 or 4 axes"),
    "words": ("allen-cahn", lambda f: replace(f, "tensor", np.full((5, 3, 16), b"no")), "must be a data set"),
    "a group": ("allen-cahn", lambda f: (f.pop("tensor"), f.create_group("tensor")), "must be a data set"),
    "other nu": ("darcy", lambda f: shorten(f, "nu"), "got (5, 1, 16, 16) and (4, 16, 16)"),
    "flat nu": ("darcy", lambda f: replace(f, "nu", np.ones((5, 256))), "'nu' must have 3 axes, got shape (5, 256)"),
    "y too short": ("darcy", lambda f: shorten(f, "y-coordinate"), "'y-coordinate' must have the shape (16,)"),
    "no y": ("darcy", lambda f: f.pop("y-coordinate"), "'y-coordinate' is missing"),
    "no grid": ("diffusion-sorption", lambda f: f.pop("0000/grid"), "'0000/grid/t' is missing"),
    "grid is data": ("diffusion-sorption", lambda f: replace(f, "0000/grid", np.ones(3)), "'0000/grid/t' is missing"),
    "no data in one": ("diffusion-sorption", lambda f: f.pop("0003/data"), "'0003/data' is missing"),
    "one is data": ("diffusion-sorption", lambda f: replace(f, "0003", np.ones(3)), "'0003/data' is missing"),
    "one too short": ("diffusion-sorption", lambda f: shorten(f, "0003/data"), "'0003/data' must have the shape"),
    "no field": ("diffusion-sorption", lambda f: replace(f, "0000/data", np.ones((3, 16, 0))), "one field, got none"),
    "group x": ("diffusion-sorption", lambda f: shorten(f, "0000/grid/x"), "'0000/grid/x' must have the shape (16,)"),
    "no fields": ("diffusion-sorption", lambda f: replace(f, "0000/data", np.ones((3, 16))), "must have 3 or 4 axes"),
    "no bed in one": ("shallow-water", lambda f: f.pop("0002/bathymetry"), "'0002/bathymetry' is missing"),
    "another bed": ("shallow-water", lambda f: shorten(f, "0002/bathymetry"), "'0002/bathymetry' must have the shape"),
    "equation list": ("darcy", lambda f: f.attrs.update(equation=[1, 2]), "the attribute 'equation' must be text, got"),
}  # fmt: skip


# What is no data file, and what is said.
FOREIGN = {
    "missing": (lambda path: None, "cannot be read as HDF5"),
    "text": (lambda path: path.write_text("no"), "cannot be read as HDF5"),
    "truncated": (lambda path: truncate(path), "cannot be read as HDF5"),
    "empty": (lambda path: path.write_bytes(b""), "cannot be read as HDF5"),
    "folder": (lambda path: path.mkdir(), "cannot be read as HDF5"),
    "other HDF5": (lambda path: write_weights(path), "holds weights; expected a data set 'input' or 'tensor', or"),
}


def truncate(path: Path) -> None:
    whole = make_file(path, "shallow-water").read_bytes()
    path.write_bytes(whole[: len(whole) * 6 // 10])


def write_weights(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["weights/layer"] = np.ones(3)


def spoil_file(path: Path, defect: str) -> str:
    """Make a file with this defect; what must be said about it."""
    if defect in FOREIGN:
        make, message = FOREIGN[defect]
        make(path)
        return message
    name, spoil, message = DEFECTS[defect]
    assert inspect_file(make_file(path, name)).ok
    with h5py.File(path, "r+") as file:
        spoil(file)
    return message


@pytest.mark.parametrize("defect", DEFECTS | FOREIGN)
def test_a_file_that_breaks_its_layout_is_refused_and_the_part_named(defect, tmp_path):
    message = spoil_file(tmp_path / "f.h5", defect)
    with pytest.raises(InputError, match=re.escape(message)) as error:
        inspect_file(tmp_path / "f.h5")
    assert "f.h5" in str(error.value)


def test_the_command_line_refuses_them_with_status_2_and_without_a_traceback(tmp_path):
    """All of them in one process, as starting one takes seconds."""
    messages = {f"{defect}.h5": spoil_file(tmp_path / f"{defect}.h5", defect) for defect in DEFECTS | FOREIGN}
    done = subprocess.run([sys.executable, "-c", INSPECT, *messages], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["2"] * len(messages)
    errors = done.stderr.splitlines()
    assert len(errors) == len(messages), "one line each"
    for line, (name, message) in zip(errors, messages.items(), strict=True):
        assert line.startswith(f"error: {name}")
        assert message in line


def test_attributes_in_bytes_are_text(tmp_path):
    path = make_file(tmp_path / "f.h5", "darcy")
    with h5py.File(path, "r+") as file:
        file.attrs["equation"] = np.bytes_(b"darcy")
    assert read_contents(path).equation == "darcy"


@pytest.mark.parametrize("name", SMALL)
def test_undefined_values_are_a_finding_and_are_not_trained_on(name, tmp_path):
    path = make_file(tmp_path / "f.h5", name)
    with h5py.File(path, "r+") as file:
        (file["0002/data"] if "0002" in file else file["tensor"])[2, 0, 0] = np.nan
    finding = inspect_file(path).findings[0]
    assert (finding.check, finding.severity, finding.samples) == ("nan", "error", (2,))
    with pytest.raises(InputError, match=r"f.h5 has values that are not finite in 1 samples: 2. See `svdno inspect`"):
        load_dataset(path, DataSettings(name, samples=5, parameters=SMALL[name]))


def test_samples_of_a_whole_file_are_read_in_their_order(tmp_path):
    path = make_file(tmp_path / "f.h5", "shallow-water")
    a, u = read_samples(path, 1, 4)
    assert (a.shape, u.shape) == ((3, 16, 16, 2), (3, 3, 16, 16, 3))
    for i in range(3):
        one_a, one_u = read_samples(path, 1 + i, 2 + i)
        np.testing.assert_array_equal(one_a[0], a[i])
        np.testing.assert_array_equal(one_u[0], u[i])


def test_the_groups_of_more_than_10000_samples_are_read_by_number(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        for i in (2, 9999, 10000, 1000):
            file[f"{i:04d}/data"] = np.full((2, 4, 1), float(i))
    assert read_samples(tmp_path / "f.h5", 0, 4)[1][:, 0, 0, 0].tolist() == [2, 1000, 9999, 10000]


def test_times_after_the_last_frame_are_kept_apart(tmp_path):
    path = make_file(tmp_path / "f.h5", "diffusion-reaction")
    with h5py.File(path) as file:
        np.testing.assert_allclose(file["t-coordinate"], [0, 0.05, 0.1, 0.15], rtol=1e-15)
    contents = read_contents(path)
    np.testing.assert_array_equal(contents.times, [0, 0.05, 0.1])
    assert contents.later_times == pytest.approx((0.15,))
    for name in SMALL:
        if name != "diffusion-reaction":
            assert read_contents(make_file(tmp_path / f"{name}.h5", name)).later_times == ()
