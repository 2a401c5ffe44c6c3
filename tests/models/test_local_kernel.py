"""Local integrals: a convolution on the trained grid, the same integral on others."""

import pytest
import torch
import torch.nn.functional as F

from svdno.grid import Grid
from svdno.models.local_kernel import LocalKernel


@pytest.mark.parametrize("groups", [1, 2])
def test_on_the_trained_grid_it_is_a_convolution(groups):
    torch.manual_seed(0)
    local = LocalKernel(2, 4, 2, 3, (8, 9), "periodic", groups)
    a = torch.randn(2, 8, 9, 2)
    padded = F.pad(a.movedim(-1, 1), (1, 1, 1, 1), mode="circular")
    truth = F.conv2d(padded, local.taps.reshape(local.shape), local.bias, groups=groups).movedim(1, -1)
    torch.testing.assert_close(local(a), truth)


@pytest.mark.parametrize("placement", ["periodic", "nodes", "cells"])
def test_finer_grids_converge_to_the_integral_with_order_two(placement):
    """Against a grid 32 times as fine; the ends are left out, where values beyond the box are made up."""
    torch.manual_seed(0)
    n0 = 17 if placement == "nodes" else 16
    local = LocalKernel(1, 1, 1, 5, (n0,), placement).double()

    def evaluate(refined: int):
        n = (n0 - 1) * refined + 1 if placement == "nodes" else n0 * refined
        grid = Grid.unit((n,), placement)
        x = grid.axes[0]
        values = local(torch.sin(2 * torch.pi * x)[None, :, None] + 0.3 * x.square()[None, :, None])[0, :, 0]
        inside = (x > 0.3) & (x < 0.7)
        return x[inside], values[inside]

    x_fine, fine = evaluate(64)
    errors = []
    for refined in (2, 4, 8):
        x, values = evaluate(refined)
        nearest = (x[:, None] - x_fine).abs().argmin(dim=1)
        slope = (fine[2:] - fine[:-2]) / (x_fine[2:] - x_fine[:-2])
        truth = fine[nearest] + slope[(nearest - 1).clamp(0, len(slope) - 1)] * (x - x_fine[nearest])
        errors.append((values - truth).abs().max().item())
    assert errors[0] / errors[1] > 3
    assert errors[1] / errors[2] > 3
