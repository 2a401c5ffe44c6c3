import math

import pytest
import torch

from svdno import Grid
from svdno.errors import InputError


@pytest.mark.parametrize("placement", ["nodes", "cells", "periodic"])
@pytest.mark.parametrize("shape", [(7,), (5, 6), (3, 4, 5)])
def test_weights_sum_to_the_volume_and_points_lie_in_the_box(shape, placement):
    dim = len(shape)
    grid = Grid(shape, (-1.0, 0.0, 2.0)[:dim], (1.0, 3.0, 2.5)[:dim], placement)
    assert grid.points.shape == (*shape, dim)
    assert grid.weights.shape == shape
    assert grid.weights.sum().item() == pytest.approx(grid.volume)
    for i in range(dim):
        assert grid.lower[i] <= grid.points[..., i].min()
        assert grid.points[..., i].max() <= grid.upper[i]


@pytest.mark.parametrize(("placement", "order", "stride"), [("nodes", 2, 1), ("cells", 2, 1), ("cells", 5, 4)])
def test_quadrature_converges_at_its_order(placement, order, stride):
    def integrate(n: int) -> float:
        grid = Grid((n * stride,), (0.0,), (1.0,), placement).strided(stride)
        return (grid.weights * torch.exp(grid.points[..., 0])).sum().item()

    errors = [abs(integrate(n) - (math.e - 1)) for n in (32, 64, 128)]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)
    assert math.log2(errors[1] / errors[2]) == pytest.approx(order, abs=0.15)


def test_periodic_quadrature_is_exact_for_waves():
    grid = Grid((8,), (0.0,), (1.0,), "periodic")
    assert (grid.weights * torch.cos(2 * torch.pi * grid.points[..., 0]).square()).sum().item() == pytest.approx(0.5)


@pytest.mark.parametrize(("placement", "n"), [("nodes", 13), ("cells", 12), ("periodic", 12)])
def test_a_strided_grid_keeps_every_third_point_and_the_volume(placement, n):
    grid = Grid((n,), (0.0,), (2.0,), placement)
    coarse = grid.strided(3)
    torch.testing.assert_close(coarse.axes[0], grid.axes[0][::3])
    assert coarse.weights.sum().item() == pytest.approx(2.0)
    with pytest.raises(InputError, match="a stride must divide"):
        grid.strided(5)


@pytest.mark.parametrize(("n", "degree"), [(2, 1), (3, 1), (15, 1), (16, 3), (40, 3)])
@pytest.mark.parametrize("stride", [2, 3, 16])
def test_some_of_the_cells_integrate_polynomials_exactly_with_positive_weights(n, degree, stride):
    grid = Grid((n * stride,), (0.0,), (2.0,), "cells").strided(stride)
    for power in range(degree + 1):
        exact = 2 ** (power + 1) / (power + 1)
        assert (grid.weights * grid.axes[0] ** power).sum().item() == pytest.approx(exact, rel=1e-12)
    assert grid.weights.min() > 0


@pytest.mark.parametrize(("placement", "n"), [("nodes", 13), ("cells", 12), ("periodic", 12)])
def test_a_finer_grid_knows_where_the_points_of_a_coarser_one_are(placement, n):
    grid = Grid((n, 2 * n - 1 if placement == "nodes" else 2 * n), (0.0, -1.0), (2.0, 1.0), placement)
    for stride in (1, 2, 3):
        coarse = grid.strided(stride)
        torch.testing.assert_close(grid.points[grid.find(coarse)], coarse.points)
    assert coarse.find(grid) is None, "a coarser one does not have all points of a finer one"
    assert grid.find(coarse.moved([0.01, 0.02])) is None
    assert grid.find(grid.resized((n - 1, n - 1))) is None


def test_the_middle_of_three_cells_is_the_cell_of_a_grid_with_a_third_of_them():
    grid, coarse = Grid.unit((12,), "cells"), Grid.unit((4,), "cells")
    assert grid.find(coarse) == (slice(1, 13, 3),)
    assert Grid.unit((8,), "cells").find(coarse) is None


def test_cells_move_within_their_box_and_other_points_with_it():
    cells = Grid((4, 8), (0.0, 0.0), (1.0, 2.0), "cells")
    moved = cells.moved([-0.05, -0.05])
    torch.testing.assert_close(moved.points, cells.points - 0.05)
    assert (moved.lower, moved.upper) == (cells.lower, cells.upper)
    assert moved.weights.sum().item() == pytest.approx(2.0)
    assert cells.moved([0.01, 0.02]).lower == (0.01, 0.02)
    assert Grid((4,), (0.0,), (1.0,), "periodic").moved([0.1]).upper == (1.1,)


def test_equal_weights_are_one_number_in_memory():
    for placement, strides in (("periodic", (0, 0)), ("cells", (0, 0)), ("nodes", (5, 1))):
        _, weights = Grid.unit((4, 5), placement).points_and_weights(torch.empty(0))
        assert weights.stride() == strides
        torch.testing.assert_close(weights, Grid.unit((4, 5), placement).weights.float())


def test_placements_put_the_points_where_they_say():
    assert Grid((5,), (0.0,), (1.0,), "nodes").axes[0].tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert Grid((4,), (0.0,), (1.0,), "cells").axes[0].tolist() == [0.125, 0.375, 0.625, 0.875]
    assert Grid((4,), (-1.0,), (1.0,), "periodic").axes[0].tolist() == [-1, -0.5, 0, 0.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((4,), (0.0,), (1.0,), "corners"), "must be one of 'nodes', 'cells', 'periodic', got 'corners'"),
        (((4, 4), (0.0,), (1.0,), "nodes"), "need one entry per axis"),
        (((1,), (0.0,), (1.0,), "nodes"), "at least two points"),
        (((4,), (1.0,), (1.0,), "nodes"), "`lower` must be below `upper`"),
    ],
)
def test_bad_grids_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        Grid(*arguments)
