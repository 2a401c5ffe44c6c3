"""The elliptic solver against a sparse direct solve, exact solutions, and what is known of the operator."""

from itertools import pairwise
from math import log2

import numpy as np
import pytest
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import spsolve

from svdno.errors import InputError
from svdno.solvers.elliptic import apply_elliptic, discretise, make_levels, solve_elliptic, v_cycle


def draw_phases(samples: int, shape: tuple[int, int], contrast: float, seed: int = 0) -> torch.Tensor:
    """1 where a sum of random waves is positive, else 1/contrast."""
    rng = np.random.default_rng(seed)
    x, y = ((np.arange(n) + 0.5) / n for n in shape)
    k, phase = rng.normal(scale=6, size=(samples, 4, 2, 1, 1)), rng.uniform(0, 6.3, size=(samples, 4, 1, 1))
    waves = np.cos(k[:, :, 0] * x[:, None] + k[:, :, 1] * y + phase).sum(axis=1)
    return torch.from_numpy(np.where(waves > 0, 1.0, 1 / contrast))


def assemble(a: np.ndarray, spacing: tuple[float, float]) -> coo_matrix:
    """The matrix of the scheme, face by face: series of two half cells inside, one half cell at the boundary."""
    cells = np.arange(a.size).reshape(a.shape)
    rows, columns, values = [], [], []

    def add(i: np.ndarray, j: np.ndarray, value: np.ndarray) -> None:
        rows.append(i.ravel()), columns.append(j.ravel()), values.append(value.ravel())

    for axis, h in enumerate(spacing):
        cell, coefficient = np.moveaxis(cells, axis, 0), np.moveaxis(a, axis, 0)
        face = 1 / (h * (h / 2 / coefficient[:-1] + h / 2 / coefficient[1:]))
        for i, j in ((cell[:-1], cell[1:]), (cell[1:], cell[:-1])):
            add(i, i, face)
            add(i, j, -face)
        for end in (0, -1):
            add(cell[end], cell[end], coefficient[end] / (h * h / 2))
    return coo_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))).tocsc()


def relative_residual(u: torch.Tensor, a: torch.Tensor, f: torch.Tensor, spacing: tuple[float, float]) -> torch.Tensor:
    return (apply_elliptic(u, a, spacing) - f).flatten(1).norm(dim=1) / f.flatten(1).norm(dim=1)


@pytest.mark.parametrize("contrast", [10, 100])
@pytest.mark.parametrize(
    ("shape", "spacing"),
    [((128, 128), (1 / 128, 1 / 128)), ((65, 65), (1 / 65, 1 / 65)), ((48, 31), (0.1, 0.2)), ((7, 50), (1.0, 0.02))],
)
def test_solution_agrees_with_a_sparse_direct_solve(shape, spacing, contrast):
    a = draw_phases(2, shape, contrast)
    f = torch.from_numpy(np.random.default_rng(1).normal(size=(2, *shape))) + 1
    u = solve_elliptic(a, f, spacing)
    for i in range(2):
        exact = spsolve(assemble(a[i].numpy(), spacing), f[i].numpy().ravel()).reshape(shape)
        assert np.linalg.norm(u[i].numpy() - exact) / np.linalg.norm(exact) < 1e-8


def test_operator_equals_its_assembled_matrix():
    a, spacing = draw_phases(1, (9, 6), 50), (0.3, 0.7)
    u = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 9, 6)))
    dense = assemble(a[0].numpy(), spacing) @ u.numpy().ravel()
    np.testing.assert_allclose(apply_elliptic(u, a, spacing).numpy().ravel(), dense, rtol=1e-12, atol=1e-10)


def test_smooth_solution_is_approached_with_order_two():
    """u = sin(πx/2) sin(πy) eˣ on (0,2)×(0,1), a = 1 + xy/2 + y²; f by automatic differentiation."""
    errors = []
    for n in (16, 32, 64, 128):
        x = ((torch.arange(n, dtype=torch.float64) + 0.5) * 2 / n)[:, None].expand(n, n).clone().requires_grad_()
        y = ((torch.arange(n, dtype=torch.float64) + 0.5) / n).expand(n, n).clone().requires_grad_()
        u, a = (torch.pi * x / 2).sin() * (torch.pi * y).sin() * x.exp(), 1 + x * y / 2 + y**2
        u_x, u_y = torch.autograd.grad(u.sum(), (x, y), create_graph=True)
        (flux_xx,) = torch.autograd.grad((a * u_x).sum(), x, retain_graph=True)
        (flux_yy,) = torch.autograd.grad((a * u_y).sum(), y, retain_graph=True)
        ours = solve_elliptic(a.detach()[None], -(flux_xx + flux_yy)[None], (2 / n, 1 / n))[0]
        errors.append(((ours - u).norm() / u.norm()).item())
    orders = [log2(coarse / fine) for coarse, fine in pairwise(errors)]
    assert all(1.9 < order < 2.1 for order in orders), orders


@pytest.mark.parametrize("size", [64, 65, 100])
def test_true_residual_is_within_the_tolerance(size):
    a, spacing = draw_phases(8, (size, size), 10), (1 / size, 1 / size)
    f = torch.ones(1, size, size, dtype=torch.float64)
    u = solve_elliptic(a, f, spacing)
    assert (relative_residual(u, a, f, spacing) <= 1e-10).all()
    assert (relative_residual(u * 1.001, a, f, spacing) > 1e-4).all()


@pytest.mark.parametrize("contrast", [10, 1000])
@pytest.mark.parametrize(
    ("shape", "spacing", "iterations"),
    [
        ((128, 128), (1.0, 1.0), 19),
        ((129, 129), (1.0, 1.0), 23),
        ((128, 128), (1.0, 20.0), 32),
        ((128, 128), (20.0, 1.0), 32),
        ((100, 3), (1.0, 9.0), 16),
    ],
)
def test_iterations_stay_few_at_any_contrast_size_and_shape_of_cells(shape, spacing, iterations, contrast):
    """More are an error; with 2×2 blocks alone the flat cells would need them."""
    f = torch.ones(1, *shape, dtype=torch.float64)
    a = draw_phases(2, shape, contrast)
    u = solve_elliptic(a, f, spacing, max_iterations=iterations)
    assert (apply_elliptic(u, a, spacing) - f).norm() < 1e-9 * f.expand_as(u).norm()


@pytest.mark.parametrize("shape", [(16, 16), (13, 5)])
def test_preconditioner_is_symmetric_and_positive_definite(shape):
    a, n = draw_phases(1, shape, 100), shape[0] * shape[1]
    units = torch.eye(n, dtype=torch.float64).reshape(n, *shape)
    levels = make_levels(discretise(a, (1.0, 1.0)), (1.0, 1.0))
    inverse = torch.cat([v_cycle(levels, unit[None]) for unit in units]).reshape(n, n)
    torch.testing.assert_close(inverse, inverse.mT, rtol=1e-10, atol=1e-12)
    assert torch.linalg.eigvalsh(inverse).min() > 0


def test_mirrored_and_transposed_coefficient_gives_mirrored_and_transposed_solution():
    a, f = draw_phases(2, (32, 20), 10), torch.ones(1, 32, 20, dtype=torch.float64)
    u = solve_elliptic(a, f, (0.1, 0.2))
    torch.testing.assert_close(solve_elliptic(a.flip(1), f, (0.1, 0.2)).flip(1), u, rtol=1e-8, atol=0)
    torch.testing.assert_close(solve_elliptic(a.mT, f.mT, (0.2, 0.1)).mT, u, rtol=1e-8, atol=0)


def test_sample_does_not_depend_on_the_others_of_its_batch():
    """An easy one, a hard one, one without a source, and more than are solved at once."""
    a = torch.cat([torch.ones(1, 64, 64, dtype=torch.float64), draw_phases(39, (64, 64), 1000)])
    f = torch.ones(40, 64, 64, dtype=torch.float64)
    f[3] = 0
    together = solve_elliptic(a, f, (1.0, 1.0))
    assert not together[3].any()
    for i in (0, 1, 3, 38, 39):
        alone = solve_elliptic(a[i : i + 1], f[i : i + 1], (1.0, 1.0))[0]
        assert (together[i] - alone).norm() <= 1e-12 * alone.norm()


def test_operator_has_the_gradients_of_finite_differences():
    a, u = draw_phases(1, (4, 3), 10), torch.from_numpy(np.random.default_rng(0).normal(size=(1, 4, 3)))
    inputs = (u.requires_grad_(), a.requires_grad_())
    assert torch.autograd.gradcheck(lambda u, a: apply_elliptic(u, a, (1.0, 0.5)), inputs)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_coefficient_that_is_not_positive_is_named(value):
    a = torch.ones(2, 8, 8, dtype=torch.float64)
    a[1, 2, 3] = value
    with pytest.raises(InputError, match="coefficient must be positive and finite"):
        solve_elliptic(a, torch.ones_like(a), (1.0, 1.0))


def test_undefined_source_is_named():
    a = torch.ones(1, 8, 8, dtype=torch.float64)
    with pytest.raises(InputError, match="right-hand side must be finite"):
        solve_elliptic(a, a * float("nan"), (1.0, 1.0))


def test_too_few_iterations_are_an_error_that_says_how_far_they_came():
    a = draw_phases(1, (32, 32), 10)
    with pytest.raises(
        InputError,
        match=r"after 3 iterations.*1\.0e-10, for \d+ of \d+ samples.*\(number 0.*Use a larger `tolerance`",
    ):
        solve_elliptic(a, torch.ones_like(a), (1.0, 1.0), max_iterations=3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("shape", [(128, 128), (61, 34)])
def test_cpu_and_gpu_agree(shape):
    a, f = draw_phases(5, shape, 100), torch.ones(1, *shape, dtype=torch.float64)
    cpu, gpu = solve_elliptic(a, f, (0.01, 0.01)), solve_elliptic(a.cuda(), f.cuda(), (0.01, 0.01))
    assert gpu.is_cuda
    assert (gpu.cpu() - cpu).norm() <= 1e-10 * cpu.norm()
