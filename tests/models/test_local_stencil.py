"""Stencils: a convolution on the trained grid, the same operator on others."""

import pytest
import torch
import torch.nn.functional as F

from svdno.grid import Grid
from svdno.models.local_stencil import LocalStencil


@pytest.mark.parametrize("groups", [1, 2])
def test_on_the_trained_grid_it_is_a_convolution(groups):
    torch.manual_seed(0)
    local = LocalStencil(2, 4, 2, 3, (8, 9), "periodic", groups)
    a = torch.randn(2, 8, 9, 2)
    padded = F.pad(a.movedim(-1, 1), (1, 1, 1, 1), mode="circular")
    truth = F.conv2d(padded, local.taps.reshape(local.shape), local.bias, groups=groups).movedim(1, -1)
    torch.testing.assert_close(local(a), truth)


def measure_error(stencil: LocalStencil, n: int) -> torch.Tensor:
    """On a grid of n points; the ends are left out, beyond which values are made up."""

    def a(x):
        return torch.sin(2 * torch.pi * x) + 0.3 * x.square()

    n0, ends = stencil.sensors[0], int(stencil.placement == "nodes")
    x = Grid.unit((n,), stencil.placement).axes[0]
    truth = sum(theta * a(x + m / (n0 - ends)) for m, theta in zip(range(-2, 3), stencil.taps[0], strict=True))
    inside = (x > 0.3) & (x < 0.7)
    values = stencil(a(x)[None, :, None])[0, :, 0]
    return (values - truth - stencil.bias)[inside].abs().max()


@pytest.mark.parametrize("placement", ["periodic", "nodes", "cells"])
def test_other_grids_evaluate_the_same_operator(placement):
    torch.manual_seed(0)
    ends = int(placement == "nodes")
    stencil = LocalStencil(1, 1, 1, 5, (16 + ends,), placement).double()
    for refined in (1, 2, 5):  # every shift ends on a point
        assert measure_error(stencil, 16 * refined + ends) < 1e-12
    errors = [measure_error(stencil, n + ends) for n in (24, 72, 216)]  # halfway between two
    assert errors[0] / errors[1] > 6
    assert errors[1] / errors[2] > 6
    assert measure_error(stencil, 12 + ends) < 0.1  # a coarser one
