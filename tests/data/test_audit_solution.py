"""Labels that do not solve their equation are named, those that do are not."""

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch

from svdno.data import audit_solution, generate
from svdno.data.audit import inspect_file
from svdno.data.audit_solution import refine, relative_distance
from svdno.equations import EQUATIONS
from svdno.recipe import DataSettings
from tests.data.audit_files import SMALL, found

CPU = torch.device("cpu")


def make_file(path: Path, name: str, samples: int, **parameters: Any) -> Path:
    generate.generate(DataSettings(name, samples, seed=5, parameters=parameters), path, CPU)
    return path


def rename_parameters(path: Path, **parameters: Any) -> None:
    """Let a file say that it was made with other parameters."""
    with h5py.File(path, "r+") as file:
        file.attrs["parameters"] = json.dumps(parameters)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *((name, {"points": n}) for name in ("allen-cahn", "diffusion-reaction") for n in (64, 256, 1024)),
        *((name, {"points": 64, "frames": 5}) for name in ("allen-cahn", "diffusion-reaction")),
        *(("diffusion-sorption", {"points": n}) for n in (64, 256, 1024)),
        *(("darcy", {"points": n}) for n in (32, 128)),
        ("shallow-water", {"points": 32, "frames": 11, "bathymetry": "random"}),
        ("shallow-water", {"points": 32, "frames": 11, "outputs": "h"}),
    ],
)
def test_files_written_here_are_far_within_the_limit(name, parameters, tmp_path, monkeypatch):
    """On any grid: the file's own inputs are solved on the file's own grid, and only rounding is left."""
    monkeypatch.setattr(audit_solution, "LIMIT", 1e-6)
    audit = inspect_file(make_file(tmp_path / "f.h5", name, 10, **parameters))
    assert (audit.findings, audit.notes) == ((), ())


@pytest.mark.parametrize(
    ("name", "points", "coefficient", "value"),
    [
        ("allen-cahn", 512, "diffusion", 1.1e-4),
        ("allen-cahn", 512, "reaction", 4.5),
        ("diffusion-reaction", 256, "diffusion", 0.55),
        ("diffusion-reaction", 256, "diffusion", 0.45),
        ("diffusion-reaction", 256, "reaction", 0.9),
        ("diffusion-sorption", 128, "diffusion", 5.5e-4),
        ("diffusion-sorption", 128, "freundlich_coefficient", 3.15e-4),
        ("shallow-water", 32, "gravity", 1.1),
    ],
)
def test_a_coefficient_that_is_a_tenth_off_is_found(name, points, coefficient, value, tmp_path):
    small = {"points": points} | ({"outputs": "h", "frames": 11} if name == "shallow-water" else {})
    path = make_file(tmp_path / "f.h5", name, 20, **small, **{coefficient: value})
    assert inspect_file(path).findings == ()
    rename_parameters(path, **small)
    audit = inspect_file(path)
    assert set(found(audit)) == {"solution"}
    assert "where 1 % is allowed" in audit.findings[0].message


@pytest.mark.parametrize(("scale", "off"), [(1.05, "5 %"), (0.97, "3 %")])
def test_a_scaled_darcy_solution_is_found_and_measured(scale, off, tmp_path):
    path = make_file(tmp_path / "f.h5", "darcy", 10, points=32)
    with h5py.File(path, "r+") as file:
        file["tensor"][:] = file["tensor"][:] * scale
    audit = inspect_file(path)
    assert found(audit) == {"solution": ("error", 10)}
    assert f"up to {off} from the solution at their worst time, {off} in the median" in audit.findings[0].message


def test_darcy_with_its_boundary_at_the_centres_of_ghost_cells_is_found(tmp_path):
    path = make_file(tmp_path / "f.h5", "darcy", 4)
    with h5py.File(path, "r+") as file:
        file["tensor"][:, 0] = [solve_with_ghost_cells(medium) for medium in file["nu"][:]]
    assert found(inspect_file(path)) == {"solution": ("error", 4)}


def solve_with_ghost_cells(a: np.ndarray) -> np.ndarray:
    """−∇·(a∇u) = 1 by a sparse direct solve, with u = 0 a whole cell beyond the outermost centres."""
    n = len(a)
    wide = np.pad(a, 1, mode="edge")
    number = np.pad(np.arange(n * n).reshape(n, n), 1, constant_values=-1)
    matrix = scipy.sparse.lil_matrix((n * n, n * n))
    for shift in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        beside = np.roll(wide, shift, (0, 1))[1:-1, 1:-1]
        face = (2 * a * beside / (a + beside)).ravel() * n**2
        there = np.roll(number, shift, (0, 1))[1:-1, 1:-1].ravel()
        matrix.setdiag(matrix.diagonal() + face)
        inside = np.flatnonzero(there >= 0)
        matrix[inside, there[inside]] = -face[inside]
    u: np.ndarray = scipy.sparse.linalg.spsolve(matrix.tocsc(), np.ones(n * n)).reshape(n, n)
    return u


def write_evolution(path: Path, name: str, x: np.ndarray, u: torch.Tensor) -> Path:
    """A file of another hand, u (samples, times, x): the public layout, and no attributes but the equation."""
    with h5py.File(path, "w") as file:
        file["tensor"], file["x-coordinate"] = u.numpy().astype("float32"), x
        file["t-coordinate"] = np.linspace(0, 1, u.shape[1])
        file.attrs["equation"] = name
    return path


@pytest.mark.parametrize("name", ["allen-cahn", "diffusion-reaction"])
def test_labels_thinned_out_from_a_fine_grid_are_right_although_their_own_grid_is_too_coarse(name, tmp_path):
    equation = EQUATIONS[name](frames=21)
    a = equation.sample_inputs(6, seed=0)
    x, u = equation.grid.axes[0][::4], equation.solve(a)[:, :, ::4, 0]
    assert inspect_file(write_evolution(tmp_path / "f.h5", name, x, u)).findings == ()
    wrong = EQUATIONS[name](frames=21, reaction=1.2 * equation.reaction).solve(a)[:, :, ::4, 0]
    assert set(found(inspect_file(write_evolution(tmp_path / "f.h5", name, x, wrong)))) == {"solution"}


@pytest.mark.parametrize("name", ["allen-cahn", "diffusion-reaction"])
def test_nodes_from_end_to_end_of_a_period_hold_its_first_point_twice(name, tmp_path):
    equation = EQUATIONS[name](points=512, frames=21)
    u = equation.solve(equation.sample_inputs(6, seed=0))[..., 0]
    closed = torch.cat([u, u[..., :1]], dim=-1)
    x = np.linspace(equation.grid.lower[0], equation.grid.upper[0], 513)
    assert inspect_file(write_evolution(tmp_path / "f.h5", name, x, closed)).findings == ()


def test_points_beside_the_middle_of_their_cells_are_not_compared(tmp_path):
    """Every fourth cell of 1024 is not a cell of 256: near the boundary that would look like an error of 1 %."""
    path = make_file(tmp_path / "f.h5", "diffusion-sorption", 4, points=64)
    with h5py.File(path, "r+") as file:
        file["0000/grid/x"][:] = np.arange(64) / 64 + 0.5 / 256
    audit = inspect_file(path)
    assert audit.findings == ()
    assert "equation not checked: diffusion-sorption has points 0.0078125 … 0.992188, the file" in audit.notes[0]


def test_inputs_that_cannot_be_solved_are_noted(tmp_path):
    path = make_file(tmp_path / "f.h5", "allen-cahn", 4, **SMALL)
    with h5py.File(path, "r+") as file:
        file["tensor"][:] = file["tensor"][:] * 1e9
    assert "equation not checked: A solution must stay finite, 4 of 4 samples" in inspect_file(path).notes[0]
    path = make_file(tmp_path / "h.h5", "shallow-water", 4, points=16, frames=3, outputs="h")
    with h5py.File(path, "r+") as file:
        file["0000/data"][:] = -file["0000/data"][:]
    assert "equation not checked: The depth h(x, y, 0)" in inspect_file(path).notes[0]


@pytest.mark.parametrize("points", [15, 16])
def test_a_refined_start_goes_through_its_points_and_is_exact_for_waves_they_resolve(points):
    a = torch.from_numpy(np.random.default_rng(0).standard_normal((2, points, 1)))
    torch.testing.assert_close(refine(a)[:, ::4], a)
    x = 2 * torch.pi * torch.arange(4 * points, dtype=torch.float64)[None, :, None] / (4 * points)
    wave = torch.sin(7 * x + 1)
    torch.testing.assert_close(refine(wave[:, ::4]), wave)


def test_large_samples_are_checked_by_twos(tmp_path, monkeypatch):
    path = make_file(tmp_path / "f.h5", "darcy", 9, points=16)
    with h5py.File(path, "r+") as file:
        file["tensor"][:] = 2 * file["tensor"][:]
    monkeypatch.setattr(audit_solution, "VALUES", 1)
    assert "2 of 2 checked samples" in inspect_file(path).findings[0].message


def test_a_field_that_is_almost_nothing_is_measured_by_the_others():
    s = torch.ones(1, 2, 8, 2)
    s[..., 1] = 1e-12
    u = s.clone()
    u[0, 1, :, 1] = 1e-4
    torch.testing.assert_close(relative_distance(u, s), torch.tensor([[0.0, 1e-2]]), rtol=1e-4, atol=0)
    u[0, 0, :, 0] = 0.5
    torch.testing.assert_close(relative_distance(u, s), torch.tensor([[0.5, 1e-2]]), rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", ["allen-cahn", "diffusion-reaction"])
def test_frozen_solutions_are_found(name, spoil):
    def change(u):
        u[:, 8:] = u[:, 7:8]

    audit = spoil(change, name)
    assert found(audit)["frozen"] == ("error", 32)
    assert "labels stop moving before the last frame" in audit.findings[0].message


def test_one_frozen_solution_among_many_is_found(spoil, monkeypatch):
    def change(u):
        u[20, 16:] = u[20, 15]

    monkeypatch.setattr(audit_solution, "SOLVED", 4)  # 0, 13, 26 and 39 if they were only spread out
    audit = spoil(change)
    assert [finding.samples for finding in audit.findings if finding.check == "frozen"] == [(20,)]


def test_a_solution_at_rest_is_not_frozen(tmp_path):
    """After a long time u = 1 is reached for good."""
    parameters = {"points": 16, "frames": 41, "end": 40.0, "max_step": 0.1}
    generate.generate(DataSettings("diffusion-reaction", samples=3, parameters=parameters), tmp_path / "f.h5", CPU)
    with h5py.File(tmp_path / "f.h5") as file:
        assert np.abs(np.diff(file["tensor"][:, -3:], axis=1)).max() < 1e-7
    assert inspect_file(tmp_path / "f.h5").findings == ()


@pytest.mark.parametrize("name", ["allen-cahn", "diffusion-reaction"])
def test_noise_is_no_solution(name, spoil):
    def change(u):
        u *= 1 + 0.01 * np.random.default_rng(0).standard_normal(u.shape)

    audit = spoil(change, name)
    assert set(found(audit)) == {"solution"}
    assert audit.findings[0].count > 16, "as large as the limit, it is not seen in every sample"


@pytest.mark.parametrize("name", ["allen-cahn", "diffusion-reaction"])
def test_the_solution_of_another_parameter_is_no_solution(name, clean, tmp_path):
    reaction = {"allen-cahn": 4.0, "diffusion-reaction": 0.7}[name]
    settings = DataSettings(name, samples=40, parameters=SMALL | {"reaction": reaction})
    generate.generate(settings, tmp_path / "f.h5", CPU)
    assert inspect_file(tmp_path / "f.h5").ok
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        file.attrs["parameters"] = json.dumps(SMALL)
    assert found(inspect_file(tmp_path / "f.h5")) == {"solution": ("error", 32)}


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
