"""Symmetries: moved solutions solve the equation from the moved input; draws depend on seed and epoch alone."""

from dataclasses import replace

import pytest
import torch

from svdno.equations import EQUATIONS
from svdno.errors import InputError
from svdno.grid import Grid
from svdno.recipe import TrainingSettings
from svdno.training.batches import Batch
from svdno.training.loop import train
from svdno.training.symmetries import Symmetries
from tests.training.problems import make_data, make_surrogate

CASES = {
    "allen-cahn": {"points": 64, "frames": 3},
    "diffusion-reaction": {"points": 64, "frames": 3},
    "shallow-water": {"points": 16, "frames": 3, "end": 0.1, "bathymetry": "random", "outputs": "h"},
    "darcy": {"points": 16},
}


@pytest.mark.parametrize("name", CASES)
def test_the_solution_from_a_moved_input_is_the_moved_solution(name):
    equation = EQUATIONS[name](**CASES[name])
    a = equation.sample_inputs(12, seed=0)
    u = equation.solve(a).movedim(1, -2).flatten(-2)
    moves = Symmetries(["equation"], equation.grid, equation)
    batch = moves.move(Batch(a, u, torch.ones(12)), moves.draw(12, seed=0, epoch=1))
    again = equation.solve(batch.inputs).movedim(1, -2).flatten(-2)
    assert (batch.inputs - a).flatten(1).norm(dim=1).gt(0.01).sum() >= 8
    assert (again - batch.targets).norm() < 1e-7 * u.norm()


def test_every_equation_with_symmetries_is_tested():
    assert {name for name, equation in EQUATIONS.items() if equation(**CASES.get(name, {})).symmetries} == set(CASES)


def test_a_mirrored_line_of_nodes_is_reversed_and_a_periodic_one_keeps_its_first_point():
    numbers = torch.tensor([[0.9, 0.0, 0.0]])
    for placement, expected in (("nodes", [3, 2, 1, 0]), ("periodic", [0, 3, 2, 1])):
        field = torch.arange(4.0).reshape(1, 4, 1)
        batch = Symmetries(["mirror"], Grid.unit((4,), placement)).move(Batch(field, field, torch.ones(1)), numbers)
        assert batch.inputs.flatten().tolist() == expected


def test_every_other_cell_is_swapped_but_not_mirrored():
    """Its mirror image would lie between the points."""
    equation = EQUATIONS["darcy"](points=8)
    grid = equation.grid.strided(2)
    moves = Symmetries(["equation"], grid, equation)
    field = torch.rand(16, *grid.shape, 1)
    moved = moves.move(Batch(field, field, torch.ones(16)), moves.draw(16, seed=0, epoch=1)).inputs
    same = (moved == field).flatten(1).all(dim=1)
    swapped = (moved == field.transpose(1, 2)).flatten(1).all(dim=1)
    assert same.any()
    assert swapped.any()
    assert (same | swapped).all()


def test_draws_depend_on_seed_and_epoch_alone():
    moves = Symmetries(["shift"], Grid.unit((8,), "periodic"))
    assert torch.equal(moves.draw(5, seed=1, epoch=2), moves.draw(5, seed=1, epoch=2))
    assert not torch.equal(moves.draw(5, seed=1, epoch=2), moves.draw(5, seed=1, epoch=3))


def test_a_model_that_saw_waves_in_one_place_knows_them_elsewhere_if_shifted():
    data = make_data()
    wave = torch.sin(torch.pi * data.grid.axes[0].float())[:, None]
    a = wave + data.inputs.mean(dim=1, keepdim=True)
    data = replace(data, inputs=a, outputs=torch.stack([a, a + a.mean(dim=1, keepdim=True)], dim=1))
    errors = []
    for symmetries in ([], ["shift"]):
        surrogate = make_surrogate("svdno-plus", data)
        settings = TrainingSettings(epochs=30, batch_size=8, learning_rate=3e-3, symmetries=symmetries)
        train(surrogate, data, data, settings)
        elsewhere = surrogate.predict(data.inputs.roll(5, 1)) - data.outputs.roll(5, 2)
        errors.append((elsewhere.norm() / data.outputs.norm()).item())
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize(
    ("names", "grid", "message"),
    [
        (
            ["equation"],
            Grid.unit((8,)),
            "needs data that name their equation. Name the symmetries: shift, mirror, swap",
        ),
        (["shift"], Grid.unit((8,)), "needs a periodic grid, and this one has nodes"),
        (
            ["mirror"],
            Grid.unit((8,), "cells").strided(2),
            "the first of these lies 0.25 steps from it, the last 0.75. Use a stride of 1, or leave it out",
        ),
        (["swap"], Grid.unit((8, 9)), r"needs a square grid, and this one has the shape \(8, 9\)"),
    ],
)
def test_a_symmetry_that_cannot_hold_is_refused(names, grid, message):
    with pytest.raises(InputError, match=message):
        Symmetries(names, grid)
