"""Data files that survive whatever happens to the process that writes them."""

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from svdno.data import generate
from svdno.data.hdf5 import Contents, create_file, read_contents, write_samples
from svdno.data.reader import read_samples
from svdno.errors import InputError
from svdno.recipe import DataSettings

CPU = torch.device("cpu")
SETTINGS = DataSettings("allen-cahn", samples=20, parameters={"points": 64, "frames": 5})

ENDLESS = """
import sys, time, torch
from pathlib import Path
from svdno.data import generate
from svdno.recipe import DataSettings
generate.CHUNK_BYTES = 3 * 64 * 5 * 8
settings = DataSettings("allen-cahn", samples=20, parameters={"points": 64, "frames": 5})
def report(done, of):
    print(done, flush=True)
    time.sleep(0.05)
generate.generate(settings, Path(sys.argv[1]), torch.device("cpu"), report)
"""


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def whole(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(generate, "CHUNK_BYTES", 3 * 64 * 5 * 8)
    path = tmp_path / "whole.h5"
    generate.generate(SETTINGS, path, CPU)
    return path


def test_a_killed_run_continues_and_ends_with_the_same_bytes(whole, tmp_path):
    path = tmp_path / "killed.h5"
    done = [0]
    for stop in (1, 3, 2):  # killed after so many chunks, three times over
        process = subprocess.Popen([sys.executable, "-c", ENDLESS, path], stdout=subprocess.PIPE, text=True)
        lines = [process.stdout.readline() for _ in range(stop + 1)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert int(lines[0]) >= done[-1], "it starts where the last one was"
        done.append(int(lines[-1]))
        assert not path.exists()
    assert 0 < done[1] < done[-1] < 20
    subprocess.run([sys.executable, "-c", ENDLESS, path], check=True, capture_output=True)
    assert digest(path) == digest(whole)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["killed.h5", "whole.h5"]


def test_an_interruption_while_solving_keeps_what_was_written(whole, tmp_path):
    path = tmp_path / "stopped.h5"

    def stop(done: int, of: int) -> None:
        if done == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate.generate(SETTINGS, path, CPU, stop)
    starts = []
    generate.generate(SETTINGS, path, CPU, lambda done, of: starts.append(done))
    assert starts[0] == 9
    assert digest(path) == digest(whole)


def test_solutions_beyond_what_a_file_holds_are_not_written(tmp_path):
    settings = DataSettings("darcy", samples=3, parameters={"points": 16, "low": 1e-300, "high": 2e-300})
    with pytest.raises(InputError, match=r"first for sample 0\. Choose other values"):
        generate.generate(settings, tmp_path / "d.h5", CPU)
    assert not (tmp_path / "d.h5").exists()


def test_what_the_disk_cannot_hold_is_refused_before_anything_is_solved(tmp_path):
    settings = DataSettings("shallow-water", samples=1000, parameters={"points": 100_000})
    with pytest.raises(InputError, match=r"would take 12,120,000\.0 GB, and .* has room for .* Take fewer samples"):
        generate.generate(settings, tmp_path / "d.h5", CPU)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_a_file_that_continues(whole, tmp_path, monkeypatch):
    path = tmp_path / "full.h5"
    write, calls = generate.write_samples, []

    def write_until_full(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        write(*arguments)

    monkeypatch.setattr(generate, "write_samples", write_until_full)
    with pytest.raises(OSError, match="No space left"):
        generate.generate(SETTINGS, path, CPU)
    assert not path.exists()
    generate.generate(SETTINGS, path, CPU)
    assert digest(path) == digest(whole)


def test_an_unfinished_file_of_other_settings_is_not_touched(tmp_path):
    path = tmp_path / "f.h5"

    def stop(done: int, of: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate.generate(SETTINGS, path, CPU, stop)
    before = digest(tmp_path / "f.h5.unfinished")
    other = DataSettings("allen-cahn", samples=20, seed=7, parameters={"points": 64, "frames": 5})
    with pytest.raises(InputError, match="belongs to other settings"):
        generate.generate(other, path, CPU)
    assert digest(tmp_path / "f.h5.unfinished") == before


@pytest.mark.parametrize(
    ("layout", "space", "times", "inputs", "outputs", "expected"),
    [
        ("tensor", (8,), 3, 1, 1, {"tensor": (4, 3, 8), "x-coordinate": (8,), "t-coordinate": (3,)}),
        ("groups", (8,), 3, 1, 1, {"0003/data": (3, 8, 1), "0003/grid/x": (8,), "0003/grid/t": (3,)}),
        (
            "groups", (8, 6), 3, 2, 3,
            {"0000/data": (3, 8, 6, 3), "0000/grid/y": (6,), "0000/bathymetry": (8, 6)},
        ),
        ("coefficient", (8, 6), 1, 1, 1, {"tensor": (4, 1, 8, 6), "nu": (4, 8, 6), "y-coordinate": (6,)}),
    ],
)  # fmt: skip
def test_each_layout_is_the_public_one_and_comes_back(layout, space, times, inputs, outputs, expected, tmp_path):
    rng = np.random.default_rng(0)
    u = rng.standard_normal((4, times, *space, outputs)).astype("float32")
    a = u[:, 0, ..., :1] if layout != "coefficient" else rng.standard_normal((4, *space, 1)).astype("float32")
    if inputs == 2:
        a = np.concatenate([a, rng.standard_normal((4, *space, 1)).astype("float32")], axis=-1)
    axes = tuple(np.linspace(0, 1, n) for n in space)
    contents = Contents(layout, 4, axes, np.linspace(0, 1, times), inputs, outputs, {"seed": 3, "parameters": {"p": 1}})
    path = tmp_path / "f.h5"
    create_file(path, contents)
    with h5py.File(path, "r+") as file:
        write_samples(file, layout, 0, a[:1], u[:1])
        write_samples(file, layout, 1, a[1:], u[1:])
        for name, shape in expected.items():
            assert file[name].shape == shape
        assert json.loads(file.attrs["parameters"]) == {"p": 1}

    found = read_contents(path)
    assert (found.layout, found.samples, found.space) == (layout, 4, space)
    assert (found.input_fields, found.output_fields, len(found.times)) == (inputs, outputs, times)
    read_a, read_u = read_samples(path, 1, 3)
    np.testing.assert_array_equal(read_a, a[1:3])
    np.testing.assert_array_equal(read_u, u[1:3])
    thin_a, thin_u = read_samples(path, 0, 4, space_stride=2, time_stride=2)
    strided = (slice(None, None, 2),) * len(space)
    np.testing.assert_array_equal(thin_a, a[(slice(None), *strided)])
    np.testing.assert_array_equal(thin_u, u[(slice(None), slice(None, None, 2), *strided)])


def test_frames_beyond_the_time_axis_are_not_read(tmp_path):
    """The public diffusion–reaction file has one more time than frames."""
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["tensor"], file["x-coordinate"] = np.zeros((2, 101, 8)), np.arange(8.0)
        file["t-coordinate"] = np.linspace(0, 1.01, 102)
    contents = read_contents(tmp_path / "f.h5")
    assert len(contents.times) == 101
    assert contents.times[-1] == pytest.approx(1.0)
