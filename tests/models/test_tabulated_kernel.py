"""Kernels with tabulated functions: against dense sums, on other points, and through files."""

import pytest
import torch

from svdno import load, save
from svdno.models.tabulated_kernel import TabulatedKernel
from tests.training.problems import make_data, make_surrogate

N, HIDDEN, RANK, CHANNELS = 12, 5, 3, 4
POINTS = torch.stack([torch.linspace(0, 1, N), torch.linspace(1, 0, N)], dim=-1).double()
WEIGHTS = torch.linspace(1, 2, N).double() / 18  # of a box of volume 1


def make_table(points=POINTS, hidden=HIDDEN, channels=CHANNELS):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=points.dtype)

    centre = torch.cat([draw(hidden), torch.zeros(1, dtype=points.dtype)])
    return TabulatedKernel(points, centre, draw(RANK, hidden + 1), draw(RANK, len(points), channels))


def test_it_is_the_dense_integral():
    table, h = make_table(), torch.randn(2, N, HIDDEN, dtype=torch.float64)
    expected = torch.zeros(2, N, CHANNELS, dtype=torch.float64)
    for b in range(2):
        for k in range(RANK):
            amplitude = sum(WEIGHTS[j] * (table.rows[k, :-1] @ (h[b, j] - table.centre[:-1])) for j in range(N))
            expected[b] += (amplitude + table.rows[k, -1]) * table.functions[k]
    torch.testing.assert_close(table(h, POINTS.unsqueeze(0), WEIGHTS.unsqueeze(0)), expected)


@pytest.mark.parametrize("x", [POINTS[: N - 1], POINTS + 0.01], ids=["fewer points", "other points"])
def test_it_is_nothing_on_points_that_it_does_not_know(x):
    h, w = torch.randn(2, len(x), HIDDEN, dtype=torch.float64), WEIGHTS[: len(x)].unsqueeze(0)
    assert torch.equal(make_table()(h, x.unsqueeze(0), w), torch.zeros(2, len(x), CHANNELS, dtype=torch.float64))


def test_each_sample_may_have_points_of_its_own():
    h, x = torch.randn(2, N, HIDDEN, dtype=torch.float64), torch.stack([POINTS, POINTS.flip(0)])
    table, w = make_table(), WEIGHTS.unsqueeze(0)
    out = table(h, x, w)
    torch.testing.assert_close(out[:1], table(h[:1], x[:1], w))
    assert not out[1].any()


def test_the_svd_is_that_of_the_dense_kernel():
    table = make_table()
    values, left, right = table.svd(WEIGHTS.unsqueeze(0), batch=2)
    kernel = torch.einsum("knc,ke->nce", table.functions, table.rows[:, :-1])  # the same at every y
    rebuilt = torch.einsum("bl,bncl,bmel->bncme", values, left, right)
    torch.testing.assert_close(rebuilt, kernel[None, :, :, None].expand_as(rebuilt))
    for functions in (left, right):
        gram = torch.einsum("n,bncl,bncm->blm", WEIGHTS, functions, functions)
        torch.testing.assert_close(gram, torch.eye(RANK, dtype=torch.float64).expand(2, -1, -1))
    assert (values.diff() <= 0).all()


@pytest.mark.parametrize("name", ["svdno-plus", "svdno", "fno", "uno"])
def test_a_model_has_it_in_its_file_and_on_its_grid_alone(tmp_path, name):
    data = make_data(n=32)
    surrogate, plain = make_surrogate(name, data), make_surrogate(name, data)
    points = surrogate.locate(surrogate.grid)[0]
    channels = len(data.times) * len(data.output_fields)
    surrogate.model.table = make_table(points, surrogate.model.last.in_features, channels)
    save(surrogate, tmp_path)
    read = load(tmp_path)
    u = read.predict(data.inputs)
    assert torch.equal(u, surrogate.predict(data.inputs))
    assert not torch.allclose(u, plain.predict(data.inputs))
    coarse = data.inputs[:, ::2]
    assert torch.equal(read.predict(coarse), plain.predict(coarse))
    assert read.parameters == plain.parameters + sum(p.numel() for p in surrogate.model.table.parameters())
    read.model.load_state_dict(plain.model.state_dict())
    assert torch.equal(read.predict(data.inputs), plain.predict(data.inputs))


@pytest.mark.parametrize("name", ["svdno-plus", "svdno"])
def test_the_svd_of_a_model_ends_with_it(name):
    data = make_data()
    surrogate = make_surrogate(name, data)
    x, w = surrogate.locate(surrogate.grid)
    before = len(surrogate.model.svd(data.inputs[:2], x, w))
    surrogate.model.table = make_table(x, surrogate.model.last.in_features, 2)
    *_, last = found = surrogate.model.svd(data.inputs[:2], x, w)
    assert len(found) == before + 1
    assert last.left.shape == (2, 16, 2, RANK)
    assert last.right.shape == (2, 16, surrogate.model.last.in_features, RANK)
    assert len(surrogate.model.svd(data.inputs[:2, ::2], *surrogate.locate(data.grid.strided(2)))) == before
