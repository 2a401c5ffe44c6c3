"""From equation to file to data set to normalised fields."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from svdno import Dataset, Grid
from svdno.data import generate
from svdno.data.dataset import load_dataset
from svdno.data.generate import find_or_generate
from svdno.data.hdf5 import read_contents
from svdno.data.normalizer import Normalizer
from svdno.equations import AllenCahn
from svdno.errors import InputError
from svdno.recipe import DataSettings

CPU = torch.device("cpu")
SETTINGS = DataSettings("allen-cahn", samples=10, space_stride=4, time_stride=2, parameters={"points": 64, "frames": 5})


def make_dataset(samples: int = 10) -> Dataset:
    return Dataset(
        inputs=torch.randn(samples, 8, 1),
        outputs=torch.randn(samples, 3, 8, 1),
        grid=Grid.unit((8,)),
        times=torch.arange(3, dtype=torch.float64),
        input_fields=("a",),
        output_fields=("u",),
    )


def test_runs_that_start_at_the_same_time_share_one_file(tmp_path):
    code = (
        "from tests.data.test_data import *; from pathlib import Path; "
        f"print(find_or_generate(SETTINGS, Path({str(tmp_path)!r}), CPU))"
    )
    root = Path(__file__).parents[2]
    runs = [subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE) for _ in range(3)]
    assert len({run.communicate()[0] for run in runs}) == 1
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert [path.suffix for path in tmp_path.iterdir() if path.suffix != ".lock"] == [".h5"]


def test_file_has_the_public_layout_and_says_what_it_is(tmp_path):
    path = find_or_generate(SETTINGS, tmp_path, CPU)
    with h5py.File(path) as file:
        assert set(file) == {"tensor", "x-coordinate", "t-coordinate"}
        assert file["tensor"].shape == (10, 5, 64)
        assert file["tensor"].dtype == np.float32
        assert file["x-coordinate"][0] == -1
        assert file["t-coordinate"][-1] == 1
        assert file.attrs["equation"] == "allen-cahn"
        assert file.attrs["seed"] == 0


def test_samples_do_not_depend_on_how_they_are_grouped(tmp_path, monkeypatch):
    whole = find_or_generate(SETTINGS, tmp_path / "whole", CPU)
    monkeypatch.setattr(generate, "CHUNK_BYTES", 3 * 64 * 5 * 8)
    in_parts = find_or_generate(SETTINGS, tmp_path / "parts", CPU)
    with h5py.File(whole) as a, h5py.File(in_parts) as b:
        assert np.array_equal(a["tensor"][:], b["tensor"][:])


def test_a_file_is_found_again_by_what_decides_it(tmp_path):
    calls = []
    path = find_or_generate(SETTINGS, tmp_path, CPU)
    before = path.stat().st_mtime_ns
    assert find_or_generate(SETTINGS, tmp_path, CPU, lambda *done: calls.append(done)) == path
    assert path.stat().st_mtime_ns == before
    assert calls == [(10, 10)]
    other = DataSettings("allen-cahn", samples=10, seed=1, parameters={"points": 64, "frames": 5})
    assert find_or_generate(other, tmp_path, CPU) != path


def test_data_set_is_the_thinned_out_solution(tmp_path):
    data = load_dataset(find_or_generate(SETTINGS, tmp_path, CPU), SETTINGS)
    equation = AllenCahn(points=64, frames=5)
    u = equation.solve(equation.sample_inputs(10, seed=0))
    torch.testing.assert_close(data.outputs, u[:, ::2, ::4].float(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(data.inputs, data.outputs[:, 0])
    torch.testing.assert_close(data.grid.axes[0], equation.grid.axes[0][::4])
    torch.testing.assert_close(data.times, equation.times[::2])


def test_strides_that_break_the_period_are_refused(tmp_path):
    settings = DataSettings("allen-cahn", samples=2, space_stride=5, parameters={"points": 64, "frames": 3})
    with pytest.raises(InputError, match=r"a stride must divide the \(64,\) intervals of the grid, got 5"):
        load_dataset(find_or_generate(settings, tmp_path, CPU), settings)


def test_split_is_in_order_without_overlap_and_says_so():
    data = make_dataset(20)
    split = data.split(0.8, 0.1)
    assert [len(part) for part in split] == [16, 2, 2]
    assert torch.equal(torch.cat([part.inputs for part in split]), data.inputs)
    assert split.policy == "16 training, 2 validation, 2 test samples; in file order"


def test_too_few_samples_to_split_are_named():
    with pytest.raises(InputError, match="4 samples are too few to split"):
        make_dataset(4).split()


def test_fields_that_do_not_fit_the_grid_are_named():
    with pytest.raises(InputError, match=r"`outputs` must be \(samples, times, \*space, fields\) = \(4, 2, 8, 1\)"):
        Dataset(torch.randn(4, 8, 1), torch.randn(4, 8, 2, 1), Grid.unit((8,)), torch.zeros(2).double(), ("a",), ("u",))


def test_unreadable_and_foreign_files_are_named(tmp_path):
    (tmp_path / "text.h5").write_text("not HDF5")
    with pytest.raises(InputError, match=r"text.h5 cannot be read as HDF5"):
        read_contents(tmp_path / "text.h5")
    with pytest.raises(InputError, match=r"none.h5 cannot be read as HDF5"):
        read_contents(tmp_path / "none.h5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["data"] = [1.0]
    with pytest.raises(InputError, match=r"holds data; expected a data set 'input' or 'tensor', or groups"):
        read_contents(tmp_path / "other.h5")


def test_a_file_with_too_few_samples_is_named(tmp_path):
    path = find_or_generate(DataSettings("allen-cahn", samples=2), tmp_path, CPU)
    with pytest.raises(InputError, match="holds 2 samples, the recipe asks for 3"):
        load_dataset(path, DataSettings("allen-cahn", samples=3))
    with h5py.File(path, "r+") as file:
        shape = file["tensor"].shape
        del file["tensor"]
        file["tensor"] = np.zeros((0, *shape[1:]))
    with pytest.raises(InputError, match="holds 0 samples, the recipe asks for all"):
        load_dataset(path, DataSettings(file=str(path)))


def test_unknown_equations_and_parameters_are_named(tmp_path):
    with pytest.raises(InputError, match="unknown equation 'heat'; there is allen-cahn"):
        find_or_generate(DataSettings("heat", samples=2), tmp_path, CPU)
    with pytest.raises(InputError, match="equation 'allen-cahn' has no setting epsilon; it has diffusion"):
        find_or_generate(DataSettings("allen-cahn", samples=2, parameters={"epsilon": 1.0}), tmp_path, CPU)


def test_normaliser_gives_mean_zero_and_variance_one_per_field_and_comes_back():
    u = torch.randn(50, 4, 8, 2).double() * torch.tensor([3.0, 0.1]) + torch.tensor([-5.0, 100.0])
    normalizer = Normalizer.fit(u.split(3))
    y = normalizer.encode(u)
    torch.testing.assert_close(y.mean(dim=(0, 1, 2)), torch.zeros(2).double(), rtol=0, atol=1e-10)
    torch.testing.assert_close(y.std(dim=(0, 1, 2), correction=0), torch.ones(2).double())
    torch.testing.assert_close(normalizer.decode(y), u)


def test_a_constant_field_is_only_shifted():
    normalizer = Normalizer.fit([torch.full((5, 8, 1), 3.0)])
    assert normalizer.std == (1.0,)
    assert normalizer.encode(torch.full((1, 8, 1), 3.0)).abs().max() == 0


def test_values_that_are_not_finite_are_not_trained_on(tmp_path):
    path = find_or_generate(SETTINGS, tmp_path, CPU)
    with h5py.File(path, "r+") as file:
        file["tensor"][[2, 5], 0, 0] = np.nan
    with pytest.raises(InputError, match=r"not finite in 2 samples: 2, 5. See `svdno inspect`"):
        load_dataset(path, SETTINGS)


def test_shallow_water_of_the_public_kind_goes_through_a_file_of_the_public_layout(tmp_path):
    settings = DataSettings("shallow-water", 2, parameters={"points": 16, "frames": 3, "end": 0.1, "outputs": "h"})
    path = find_or_generate(settings, tmp_path, CPU)
    with h5py.File(path) as file:
        assert set(file["0001"]) == {"data", "grid"}
        assert file["0001/data"].shape == (3, 16, 16, 1)
    data = load_dataset(path, settings)
    assert (data.input_fields, data.output_fields) == (("h(x, y, 0)",), ("h",))


@pytest.mark.parametrize("name", ["allen-cahn", "diffusion-reaction", "diffusion-sorption", "shallow-water", "darcy"])
def test_every_equation_goes_through_a_file_into_a_data_set(name, tmp_path):
    small = {"points": 16} if name == "darcy" else {"points": 16, "frames": 3, "end": 0.1}
    settings = DataSettings(name, samples=3, parameters=small)
    data = load_dataset(find_or_generate(settings, tmp_path, CPU), settings)
    equation = generate.build_equation(name, small)
    a = equation.sample_inputs(3, seed=0)
    torch.testing.assert_close(data.inputs, a.float())
    torch.testing.assert_close(data.outputs, equation.solve(a).float(), rtol=1e-5, atol=1e-6)
    strided = load_dataset(find_or_generate(settings, tmp_path, CPU), replace(settings, space_stride=2))
    torch.testing.assert_close(strided.grid.points, data.grid.points[(slice(None, None, 2),) * data.grid.dim])
