"""Periodic problems: what must hold of a start and its steps."""

import pytest
import torch

from svdno.errors import InputError
from svdno.solvers.spectral import solve_semilinear


def test_solution_that_blows_up_is_an_error_that_names_the_samples():
    """u_t = u² ends at t = 1/u(0): after the last output time for the first sample, before it for the second."""
    start = torch.tensor([0.5, 4.0], dtype=torch.float64)[:, None].expand(2, 8)
    times = torch.linspace(0, 1, 5, dtype=torch.float64)

    def solve(u: torch.Tensor) -> torch.Tensor:
        return solve_semilinear(u, 1.0, torch.zeros_like, torch.square, times, lambda t: 1e-2)

    torch.testing.assert_close(solve(start[:1])[0, -1], torch.full((8,), 1.0, dtype=torch.float64), rtol=1e-6, atol=0)
    with pytest.raises(InputError, match=r"must stay finite, 1 of 2 samples solved together \(number 1\) do not"):
        solve(start)
