"""The layout for anybody's own data: one to three axes, any fields, with or without an equation."""

import json
import re

import h5py
import numpy as np
import pytest
import torch

from svdno.data.audit import inspect_file
from svdno.data.dataset import load_dataset
from svdno.data.hdf5 import Contents, create_file, read_contents, write_samples
from svdno.data.reader import SampleReader, read_samples
from svdno.equations import AllenCahn
from svdno.errors import InputError
from svdno.recipe import DataSettings
from svdno.report.fields import draw_sample

SPACES = {1: (8,), 2: (8, 6), 3: (8, 6, 4)}


def write_by_hand(path, space=(8,), fields=(2, 3), samples=10, times=4, dtype="float64", **attributes):
    """A file as a person writes it with h5py alone; what was put in."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((samples, *space, fields[0])).astype(dtype)
    u = rng.standard_normal((samples, times, *space, fields[1])).astype(dtype)
    with h5py.File(path, "w") as file:
        file["input"], file["output"], file["t-coordinate"] = a, u, np.linspace(0, 1, times)
        for name, n in zip("xyz", space, strict=False):
            file[f"{name}-coordinate"] = np.linspace(0, n - 1, n)
        file.attrs.update(attributes)
    return a, u


@pytest.mark.parametrize("dim", SPACES)
def test_what_is_written_comes_back(dim, tmp_path):
    rng, space = np.random.default_rng(0), SPACES[dim]
    a = rng.standard_normal((5, *space, 2)).astype("float32")
    u = rng.standard_normal((5, 4, *space, 3)).astype("float32")
    axes, times = tuple(np.linspace(-1, 2, n) for n in space), np.array([0.0, 0.1, 0.5, 2.0])
    names = {"input_names": ("a", "ν"), "output_names": ("u", "v", "p")}
    written = Contents("pairs", 5, axes, times, 2, 3, {"equation": "mine", "parameters": {"k": 2}}, **names)
    create_file(tmp_path / "f.h5", written)
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        write_samples(file, "pairs", 0, a[:3], u[:3])
        write_samples(file, "pairs", 3, a[3:], u[3:])
        assert set(file) == {"input", "output", "t-coordinate", *(f"{name}-coordinate" for name in "xyz"[:dim])}
        assert file["input"].dtype == file["output"].dtype == np.float32
    found = read_contents(tmp_path / "f.h5")
    assert (found.layout, found.samples, found.space) == ("pairs", 5, space)
    assert (found.input_names, found.output_names) == (("a", "ν"), ("u", "v", "p"))
    assert (found.attributes["equation"], json.loads(found.attributes["parameters"])) == ("mine", {"k": 2})
    np.testing.assert_array_equal(found.times, times)
    for there, here in zip(found.axes, axes, strict=True):
        np.testing.assert_array_equal(there, here)
    for there, here in zip(read_samples(tmp_path / "f.h5", 1, 4), (a[1:4], u[1:4]), strict=True):
        np.testing.assert_array_equal(there, here)
    with SampleReader(tmp_path / "f.h5", space_stride=2, time_stride=3) as reader:
        thinned = (slice(None), *(slice(None, None, 2),) * dim)
        np.testing.assert_array_equal(reader.inputs([4, 0]), a[[4, 0]][thinned])
        np.testing.assert_array_equal(reader.outputs([4, 0]), u[[4, 0], ::3][(slice(None), *thinned)])


@pytest.mark.parametrize("dim", SPACES)
@pytest.mark.parametrize("dtype", ["float64", ">f4", "int16"])
def test_files_written_by_hand_are_loaded_as_float32(dim, dtype, tmp_path):
    a, u = write_by_hand(tmp_path / "f.h5", SPACES[dim], dtype=dtype, input_fields='["k", "f"]')
    data = load_dataset(tmp_path / "f.h5", DataSettings(file=str(tmp_path / "f.h5")))
    assert torch.equal(data.inputs, torch.from_numpy(a.astype(np.float32)))
    assert torch.equal(data.outputs, torch.from_numpy(u.astype(np.float32)))
    assert (data.input_fields, data.output_fields) == (("k", "f"), ("output 1", "output 2", "output 3"))
    assert (data.grid.placement, data.grid.lower) == ("nodes", (0.0,) * dim)
    assert data.grid.upper == tuple(n - 1.0 for n in SPACES[dim])


@pytest.mark.parametrize(("placement", "lower", "upper"), [("cells", -0.5, 7.5), ("periodic", 0, 8), ("nodes", 0, 7)])
def test_the_box_follows_from_where_the_points_sit(placement, lower, upper, tmp_path):
    write_by_hand(tmp_path / "f.h5", placement=placement)
    data = load_dataset(tmp_path / "f.h5", DataSettings(file=str(tmp_path / "f.h5")))
    assert (data.grid.lower, data.grid.upper) == ((lower,), (upper,))
    np.testing.assert_allclose(data.grid.axes[0], np.arange(8.0), atol=1e-12)
    audit = inspect_file(tmp_path / "f.h5")
    assert (audit.placement, audit.placement_guessed) == (placement, False)


@pytest.mark.parametrize("dim", SPACES)
def test_own_data_have_no_findings(dim, tmp_path):
    write_by_hand(tmp_path / "f.h5", SPACES[dim])
    audit = inspect_file(tmp_path / "f.h5")
    assert (audit.findings, len(audit.axes), audit.frames) == ((), dim, 4)


def test_solutions_of_a_named_equation_are_checked(tmp_path):
    equation = AllenCahn(points=64, frames=5, end=0.5)
    a = equation.sample_inputs(10, seed=0)
    u = equation.solve(a)
    axes, times = tuple(axis.numpy() for axis in equation.grid.axes), equation.times.numpy()
    create_file(tmp_path / "f.h5", Contents("pairs", 10, axes, times, 1, 1, {"equation": "allen-cahn"}))
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        write_samples(file, "pairs", 0, a.numpy(), u.numpy())
    assert inspect_file(tmp_path / "f.h5").findings == ()
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        file["output"][3, 1:] *= 1.1
        file["output"][5, 0, 2] += 0.1
    found = {finding.check: finding.samples for finding in inspect_file(tmp_path / "f.h5").findings}
    assert found["start"] == (5,)
    assert 3 in found["solution"]


@pytest.mark.parametrize("dim", SPACES)
def test_one_and_two_dimensions_are_drawn_and_three_refused(dim, tmp_path):
    write_by_hand(tmp_path / "f.h5", SPACES[dim])
    contents, (a, u) = read_contents(tmp_path / "f.h5"), read_samples(tmp_path / "f.h5", 0, 1)
    sample = contents.axes, contents.times, a[0], u[0], (("a", "b"), ("u", "v", "w")), "mine"
    if dim < 3:
        assert draw_sample(*sample).axes
    else:
        with pytest.raises(InputError, match="in one or two space dimensions, got 3"):
            draw_sample(*sample)


def test_inputs_alone_are_described_where_they_are_enough(tmp_path):
    write_by_hand(tmp_path / "f.h5", input_fields='["k", "f"]')
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        del file["output"], file["t-coordinate"]
    contents = read_contents(tmp_path / "f.h5", outputs=False)
    assert (contents.samples, contents.input_names, contents.output_fields, len(contents.times)) == (
        10,
        ("k", "f"),
        0,
        0,
    )
    with pytest.raises(InputError, match=r"f.h5 must hold at least one frame .* alone are for `svdno predict`"):
        read_contents(tmp_path / "f.h5")


def put(name, values):
    def change(file):
        del file[name]
        file[name] = values

    return change


DEFECTS = {
    "x too short": (put("x-coordinate", np.arange(7.0)), "'input' must be (samples, x = 7, y = 6, fields)"),
    "a forgotten axis": (put("input", np.ones((10, 8, 6))), "'input' must be (samples, x = 8, y = 6, fields)"),
    "no input field": (put("input", np.ones((10, 8, 6, 0))), "'input' must be"),
    "other samples": (put("input", np.ones((9, 8, 6, 2))), "must have as many samples, got 9 and 10"),
    "no times": (put("output", np.ones((10, 8, 6, 3))), "'output' must be (samples, times, x = 8, y = 6, fields)"),
    "too many times": (put("t-coordinate", np.arange(5.0)), "'t-coordinate' must have the shape (4,), got (5,)"),
    "no x": (lambda file: file.pop("x-coordinate"), "'x-coordinate' is missing"),
    "no t": (lambda file: file.pop("t-coordinate"), "'t-coordinate' is missing"),
    "words": (put("output", np.full((10, 4, 8, 6, 3), b"no")), "'output' must be a data set of numbers"),
    "names in a list": (lambda file: file.attrs.update(input_fields=["k", "f"]), "must be a JSON list of 2 names"),
    "a name too many": (lambda file: file.attrs.update(output_fields='["u"]'), "must be a JSON list of 3 names"),
    "placement": (lambda file: file.attrs.update(placement="edges"), "`placement` must be one of 'nodes', 'cells'"),
    "uneven": (put("x-coordinate", np.arange(8.0) ** 2), "must be on a uniform grid"),
    "downwards": (put("x-coordinate", -np.arange(8.0)), "`lower` must be below `upper`"),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_file_that_breaks_the_layout_is_not_trained_on(defect, tmp_path):
    write_by_hand(tmp_path / "f.h5", (8, 6))
    spoil, message = DEFECTS[defect]
    settings = DataSettings(file=str(tmp_path / "f.h5"))
    assert len(load_dataset(tmp_path / "f.h5", settings)) == 10
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        spoil(file)
    with pytest.raises(InputError, match=re.escape(message)):
        load_dataset(tmp_path / "f.h5", settings)


def test_a_single_point_along_an_axis_is_refused(tmp_path):
    write_by_hand(tmp_path / "f.h5", (8, 1))
    with pytest.raises(InputError, match="at least two points along each axis, got 1"):
        load_dataset(tmp_path / "f.h5", DataSettings(file=str(tmp_path / "f.h5")))
