"""Predictions for a data file: whole, at any resolution, and refused where the model does not know the inputs."""

import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from svdno import Dataset, Grid, Surrogate, __version__, load, save
from svdno.data.audit import inspect_file
from svdno.data.generate import generate
from svdno.data.hdf5 import read_contents
from svdno.data.reader import read_samples
from svdno.errors import InputError
from svdno.inference import predict_file
from svdno.recipe import DataSettings

TINY = {"hidden_channels": 8, "n_layers": 2, "n_modes": 3}
BOX = Grid((8, 6), (0.0, -1.0), (3.0, 1.0), "cells")


def make_run(folder: Path, grid: Grid = BOX, fields: tuple[int, int] = (2, 3), times=(0.0, 0.5)) -> Surrogate:
    """Save an untrained surrogate, which predicts as well as any for what is tested here."""
    torch.manual_seed(0)
    data = Dataset(
        inputs=torch.randn(4, *grid.shape, fields[0]),
        outputs=torch.randn(4, len(times), *grid.shape, fields[1]),
        grid=grid,
        times=torch.tensor(times, dtype=torch.float64),
        input_fields=tuple("abc"[: fields[0]]),
        output_fields=tuple("uvw"[: fields[1]]),
    )
    save(Surrogate.build("fno", data, **TINY), folder)
    return load(folder)


def write_inputs(path: Path, grid: Grid = BOX, fields: int = 2, samples: int = 7) -> np.ndarray:
    """A file of inputs alone."""
    a = np.random.default_rng(1).standard_normal((samples, *grid.shape, fields)).astype("float32")
    with h5py.File(path, "w") as file:
        file["input"] = a
        for name, axis in zip("xyz", grid.axes, strict=False):
            file[f"{name}-coordinate"] = axis.numpy()
    return a


def mean_error(prediction: np.ndarray, truth: np.ndarray) -> float:
    """Mean over the samples of ‖û − u‖₂ / ‖u‖₂."""
    off, whole = ((f.reshape(len(truth), -1)).astype("float64") for f in (prediction - truth, truth))
    return float((np.linalg.norm(off, axis=1) / np.linalg.norm(whole, axis=1)).mean())


@pytest.mark.parametrize("finer", [1, 2])
@pytest.mark.parametrize(
    "grid", [Grid((8,), (-1.0,), (1.0,), "periodic"), BOX, Grid.unit((8, 6, 6))], ids=["1-D", "2-D", "3-D"]
)
def test_a_file_of_predictions_holds_what_the_surrogate_predicts(grid, finer, tmp_path):
    surrogate = make_run(tmp_path / "run", grid)
    grid = grid.resized(tuple(finer * n for n in grid.shape))
    a = write_inputs(tmp_path / "a.h5", grid)
    done = []
    error = predict_file(
        tmp_path / "run",
        tmp_path / "a.h5",
        tmp_path / "out/u.h5",
        batch_size=3,
        on_progress=lambda *at: done.append(at),
    )
    assert error is None, "nothing to compare with"
    assert done == [(0, 7), (3, 7), (6, 7), (7, 7)]
    inputs, outputs = read_samples(tmp_path / "out/u.h5", 0, 7)
    np.testing.assert_array_equal(inputs, a)
    np.testing.assert_allclose(outputs, surrogate.predict(a), rtol=1e-5, atol=1e-6)
    contents = read_contents(tmp_path / "out/u.h5")
    assert (contents.layout, contents.input_names, contents.output_names) == ("pairs", ("a", "b"), ("u", "v", "w"))
    for there, here in zip(contents.axes, grid.axes, strict=True):
        np.testing.assert_array_equal(there, here)
    np.testing.assert_array_equal(contents.times, [0, 0.5])
    made_by = {"model": "fno", "run": str(tmp_path / "run"), "version": __version__, "placement": grid.placement}
    assert {key: contents.attributes[key] for key in made_by} == made_by
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["u.h5"]


@pytest.mark.parametrize("name", ["allen-cahn", "diffusion-sorption", "shallow-water", "darcy"])
def test_every_public_layout_is_predicted_and_compared(name, tmp_path):
    evolution = {} if name == "darcy" else {"frames": 5, "end": 0.1}
    settings = DataSettings(name, samples=3, parameters={"points": 16, **evolution})
    generate(settings, tmp_path / "f.h5", torch.device("cpu"))
    contents = read_contents(tmp_path / "f.h5")
    a, u = read_samples(tmp_path / "f.h5", 0, 3)
    kept = slice(None, None, 2)  # a model of every second frame
    grid = Grid(contents.space, *zip(*((x[0], x[-1]) for x in contents.axes), strict=True))
    surrogate = make_run(tmp_path / "run", grid, (a.shape[-1], u.shape[-1]), tuple(contents.times[kept].tolist()))
    error = predict_file(tmp_path / "run", tmp_path / "f.h5", tmp_path / "u.h5", batch_size=2)
    assert error == pytest.approx(mean_error(surrogate.predict(a), u[:, kept]), rel=1e-4)
    assert read_contents(tmp_path / "u.h5").attributes["equation"] == name
    assert inspect_file(tmp_path / "u.h5").equation == name
    again = predict_file(tmp_path / "run", tmp_path / "u.h5", tmp_path / "again.h5")
    assert again == pytest.approx(0, abs=1e-5), "predictions are data, and equal themselves"


def test_other_times_are_not_compared(tmp_path):
    make_run(tmp_path / "run", times=(0.0, 0.5))
    make_run(tmp_path / "other", times=(0.0, 0.4))
    write_inputs(tmp_path / "a.h5")
    predict_file(tmp_path / "other", tmp_path / "a.h5", tmp_path / "u.h5")
    assert predict_file(tmp_path / "run", tmp_path / "u.h5", tmp_path / "v.h5") is None


def test_every_second_cell_of_a_finer_grid_is_still_the_box(tmp_path):
    make_run(tmp_path / "run", BOX.resized((16, 12)).strided(2))
    write_inputs(tmp_path / "fine.h5", BOX.resized((16, 12)))
    predict_file(tmp_path / "run", tmp_path / "fine.h5", tmp_path / "u.h5")
    assert read_contents(tmp_path / "u.h5").space == (16, 12)


def test_points_keep_their_coordinates_whatever_cells_are_taken(tmp_path):
    fine = BOX.resized((16, 12))
    surrogate = make_run(tmp_path / "run", fine.strided(2))
    write_inputs(tmp_path / "fine.h5", fine)
    predict_file(tmp_path / "run", tmp_path / "fine.h5", tmp_path / "u.h5")
    a, u = read_samples(tmp_path / "u.h5", 0, 7)
    points, _ = surrogate.locate(fine)
    torch.testing.assert_close(points[::2, ::2], surrogate.locate(surrogate.grid)[0])
    np.testing.assert_allclose(u, surrogate.predict(a, grid=fine), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(u, surrogate.predict(a), rtol=1e-5, atol=1e-6)  # all cells of the box


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_leaves_nothing_behind(stop, tmp_path):
    make_run(tmp_path / "run")
    write_inputs(tmp_path / "a.h5")

    def interrupt(done: int, of: int) -> None:
        if done:
            assert (tmp_path / "u.h5.unfinished").exists()
            assert not (tmp_path / "u.h5").exists()
            raise stop

    with pytest.raises(stop):
        predict_file(tmp_path / "run", tmp_path / "a.h5", tmp_path / "u.h5", batch_size=2, on_progress=interrupt)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "a.h5"}


def spoil_sample(path: Path, row: int) -> None:
    with h5py.File(path, "r+") as file:
        file["input"][row, 0] = np.nan if row else np.inf


def write_one_point(path: Path) -> None:
    write_inputs(path)
    with h5py.File(path, "r+") as file:
        del file["input"], file["y-coordinate"]
        file["input"], file["y-coordinate"] = np.ones((2, 8, 1, 2)), np.zeros(1)


def write_not_finite(path: Path) -> None:
    write_inputs(path)
    with h5py.File(path, "r+") as file:
        file["input"][0, 3], file["input"][5, 2, 1, 1] = np.inf, np.nan


def write_on(path: Path, lower: tuple[float, ...], upper: tuple[float, ...]) -> None:
    write_inputs(path, Grid(BOX.shape[: len(lower)], tuple(map(float, lower)), tuple(map(float, upper)), "cells"))


# What is done, and what is said; the run knows two fields on 8 × 6 cells of [0,3] × [−1,1].
REFUSED = {
    "fields": (lambda path: write_inputs(path, fields=3), "the 2 input fields that the model was trained on (a, b)"),
    "axes": (lambda path: write_on(path, (0,), (3,)), "as many space axes as the model was trained on, 2, got 1"),
    "another box": (lambda path: write_on(path, (0, 0), (1, 2)), "a.h5 has points from (0.0625, 0.166667) to (0.9375, "
                    "1.83333), the model was trained on the box from (0, -1) to (3, 1), where as many points go from"),
    "a box beside it": (lambda path: write_on(path, (0.2, -1), (3.2, 1)), "to within half a cell"),
    "one point": (write_one_point, "at least two points along each axis"),
    "no samples": (lambda path: write_inputs(path, samples=0), "holds no samples"),
    "not finite": (write_not_finite, "must be finite, got other values in 2 samples: 0, 5"),
    "no file": (lambda path: None, "cannot be read as HDF5"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_inputs_that_the_model_does_not_know_are_refused(case, tmp_path):
    make_run(tmp_path / "run")
    make, message = REFUSED[case]
    make(tmp_path / "a.h5")
    with pytest.raises(InputError, match=re.escape(message)) as error:
        predict_file(tmp_path / "run", tmp_path / "a.h5", tmp_path / "u.h5", batch_size=2)
    assert "a.h5" in str(error.value) or case == "one point"
    assert not list(tmp_path.glob("u.h5*"))


def test_nothing_is_overwritten(tmp_path):
    make_run(tmp_path / "run")
    a = write_inputs(tmp_path / "a.h5")
    (tmp_path / "u.h5").write_text("mine")
    with pytest.raises(InputError, match=r"u.h5 exists. Delete it or choose another name"):
        predict_file(tmp_path / "run", tmp_path / "a.h5", tmp_path / "u.h5")
    assert (tmp_path / "u.h5").read_text() == "mine"
    (tmp_path / "b.h5.unfinished").write_bytes((tmp_path / "a.h5").read_bytes())
    for source, target in (("a.h5", "a.h5"), ("a.h5", "run/../a.h5"), ("b.h5.unfinished", "b.h5")):
        with pytest.raises(InputError, match="must go to another file than the inputs"):
            predict_file(tmp_path / "run", tmp_path / source, tmp_path / target)
        with h5py.File(tmp_path / source) as file:
            np.testing.assert_array_equal(file["input"], a)


def test_a_folder_without_a_model_and_an_empty_batch_are_refused(tmp_path):
    write_inputs(tmp_path / "a.h5")
    with pytest.raises(InputError, match="no trained model in"):
        predict_file(tmp_path, tmp_path / "a.h5", tmp_path / "u.h5")
    with pytest.raises(InputError, match="`batch_size` must be at least 1, got 0"):
        predict_file(tmp_path, tmp_path / "a.h5", tmp_path / "u.h5", batch_size=0)


RECIPE = """
label = "own"
[data]
file = "own.h5"
[model]
name = "fno"
hidden_channels = 8
n_layers = 2
n_modes = 3
[training]
epochs = 2
batch_size = 4
"""


def svdno(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "svdno", *arguments], cwd=cwd, capture_output=True, text=True)


def test_own_data_go_from_file_to_training_to_predictions(tmp_path):
    a = write_inputs(tmp_path / "own.h5", samples=20)
    with h5py.File(tmp_path / "own.h5", "r+") as file:
        file["output"] = np.stack([a[..., :1], a[..., :1] * a[..., 1:]], axis=1)
        file["t-coordinate"] = [0.0, 2.0]
        file.attrs.update(placement="cells", input_fields='["heat", "rate"]')
    (tmp_path / "own.toml").write_text(RECIPE)
    done = svdno("train", "own.toml", "-o", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    surrogate = load(tmp_path / "run")
    assert (surrogate.times, surrogate.input_fields) == ((0.0, 2.0), ("heat", "rate"))
    assert (surrogate.grid.placement, surrogate.grid.upper) == ("cells", pytest.approx(BOX.upper))
    done = svdno("predict", "run", "own.h5", "-o", "u.h5", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "File: u.h5" in done.stdout
    error = 100 * mean_error(surrogate.predict(a), read_samples(tmp_path / "own.h5", 0, 20)[1])
    assert float(re.search(r"Mean relative L2 error: (\S+) %", done.stdout)[1]) == pytest.approx(error, rel=1e-3)
    again = svdno("predict", "run", "own.h5", "-o", "u.h5", cwd=tmp_path)
    assert again.returncode == 2
    assert "u.h5 exists" in again.stderr
