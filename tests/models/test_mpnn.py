"""MPNN against loops over the edges, and what message passing must keep."""

import subprocess
import sys
from itertools import product

import pytest
import torch
import torch.nn.functional as F

from svdno import Grid
from svdno.errors import InputError
from svdno.models import message_passing
from svdno.models.mpnn import MPNN, connect

CPU = torch.device("cpu")


def make_model(dim: int = 1, **arguments) -> MPNN:
    torch.manual_seed(0)
    settings = {"times": 2, "hidden_channels": 8, "n_layers": 2, **arguments}
    return MPNN(1, 2, dim, **settings).double()


@pytest.fixture
def without_norm(monkeypatch):
    """The instance norm is the one part that sees all points at once."""
    monkeypatch.setattr(F, "instance_norm", lambda f: f)


@pytest.mark.parametrize(("space", "neighbors"), [((9,), 3), ((2,), 3), ((5, 4), 1), ((5, 4), 2), ((3, 4, 3), 1)])
def test_edges_join_each_point_with_those_around_it(space, neighbors):
    places = list(product(*map(range, space)))
    expected = {
        (j, i)
        for (j, y), (i, x) in product(enumerate(places), repeat=2)
        if 0 < max(abs(s - t) for s, t in zip(x, y, strict=True)) <= neighbors
    }
    edges = connect(space, neighbors, CPU)
    assert set(map(tuple, edges.T.tolist())) == expected
    assert edges.shape[1] == len(expected), "no edge comes twice"


def test_layer_equals_the_formula_edge_by_edge():
    torch.manual_seed(0)
    layer = message_passing.MessageLayer(4, 3).double()
    f, z = torch.randn(2, 7, 4).double(), torch.randn(2, 7, 3).double()
    edges = connect((7,), 2, CPU)
    new = torch.zeros_like(f)
    for b, i in product(range(2), range(7)):
        messages = [
            F.silu(layer.phi_out(F.silu(layer.phi_in(torch.cat([f[b, i], f[b, j], z[b, i] - z[b, j]])))))
            for j in range(7)
            if 0 < abs(i - j) <= 2
        ]
        new[b, i] = f[b, i] + layer.psi(torch.cat([f[b, i], sum(messages) / len(messages)]))
    mean, variance = new.mean(dim=1, keepdim=True), new.var(dim=1, keepdim=True, unbiased=False)
    expected = (new - mean) / (variance + 1e-5).sqrt()
    torch.testing.assert_close(layer(f, z, edges), expected, rtol=0, atol=1e-12)


def test_layer_does_not_depend_on_how_the_points_are_numbered():
    torch.manual_seed(0)
    layer = message_passing.MessageLayer(4, 3).double()
    f, z, edges = torch.randn(2, 12, 4).double(), torch.randn(2, 12, 3).double(), connect((3, 4), 1, CPU)
    order = torch.randperm(12)
    renumbered = order.argsort()[edges]
    expected = layer(f, z, edges)[:, order]
    torch.testing.assert_close(layer(f[:, order], z[:, order], renumbered), expected, rtol=0, atol=1e-12)


def test_a_mirrored_field_on_a_mirrored_grid_has_the_mirrored_solution():
    model, a, x = make_model(2), torch.randn(2, 6, 7, 1).double(), Grid.unit((6, 7)).points
    expected = model(a, x).flip(1, 2)
    torch.testing.assert_close(model(a.flip(1, 2), x.flip(0, 1)), expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("without_norm")
def test_without_the_norm_and_the_place_a_moved_field_has_the_moved_solution_inside():
    model = make_model()
    with torch.no_grad():
        model.embed[0].weight[:, :1].zero_()  # x itself; differences of x stay
    a = torch.randn(1, 40, 1).double()
    moved = torch.roll(a, 5, dims=1)
    inside = slice(5 + 2 * 3, 40 - 2 * 3)
    expected = torch.roll(model(a), 5, dims=1)[:, inside]
    torch.testing.assert_close(model(moved)[:, inside], expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("without_norm")
@pytest.mark.parametrize(("n_layers", "neighbors"), [(1, 3), (2, 3), (3, 2), (4, 1)])
def test_messages_reach_as_many_points_as_layers_times_neighbours(n_layers, neighbors):
    model = make_model(n_layers=n_layers, neighbors=neighbors)
    a = torch.randn(1, 31, 1).double().requires_grad_()
    (influence,) = torch.autograd.grad(model(a)[0, 15].sum(), a)
    reached = (influence[0, :, 0] != 0).nonzero().flatten().tolist()
    assert reached == list(range(15 - n_layers * neighbors, 15 + n_layers * neighbors + 1))


def test_the_norm_takes_the_mean_and_the_scale_over_the_points_of_each_sample():
    torch.manual_seed(0)
    layer = message_passing.MessageLayer(4, 2)
    f = layer(3 + 5 * torch.randn(2, 50, 4), torch.randn(2, 50, 2), connect((50,), 3, CPU))
    torch.testing.assert_close(f.mean(dim=1), torch.zeros(2, 4), rtol=0, atol=1e-5)
    torch.testing.assert_close(f.std(dim=1, unbiased=False), torch.ones(2, 4), rtol=0, atol=1e-3)


def test_the_increments_of_all_times_start_from_an_affine_map_of_the_input():
    model, a = make_model(times=2), torch.randn(1, 9, 1).double()
    with torch.no_grad():
        model.decode[-1].weight.zero_()
        model.decode[-1].bias.fill_(0.5)
    start = model.start.weight.item() * a + model.start.bias.item()
    torch.testing.assert_close(model(a), start + torch.tensor([0.25, 0.5]).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("times", [1, 2, 10, 20, 25, 50, 101, 118, 119, 120, 127, 128])
def test_decoder_uses_the_whole_latent_vector_for_any_number_of_times(times):
    decode = MPNN(1, 3 * times, 1, times=times, n_layers=1).decode
    f = torch.randn(2, 1, 128, requires_grad=True)
    increments = decode(f)
    assert increments.shape == (2, 3, times)
    increments.square().sum().backward()
    assert (f.grad != 0).all()
    if times in (20, 25, 50):
        assert decode[0].stride == ({20: 4, 25: 3, 50: 2}[times],), "as in the paper"


@pytest.mark.parametrize(("dim", "times", "kernels"), [(1, 101, (19, 10)), (2, 1, (29, 10))])
def test_number_of_parameters_is_that_of_an_independent_count(dim, times, kernels):
    model = MPNN(1, times, dim, times=times)
    square, z = 128 * 128 + 128, dim + 1
    embed = z * 128 + 128 + square
    layer = (256 + z) * 128 + 128 + square + (256 * 128 + 128) + square
    decode = (8 * kernels[0] + 8) + (8 * kernels[1] + 1)
    assert sum(p.numel() for p in model.parameters()) == embed + 6 * layer + decode + 2


def test_bf16_autocast_keeps_the_differences_of_neighbours():
    """On a fine grid x_i − x_j is below what bfloat16 can tell apart near 1."""
    torch.manual_seed(0)
    layer = message_passing.MessageLayer(8, 1)
    with torch.no_grad():
        layer.phi_in.weight[:, :16].zero_()
        layer.phi_in.weight[:, 16:].mul_(1000)
    f, z, edges = torch.randn(1, 1024, 8), torch.linspace(0, 1, 1024).reshape(1, 1024, 1), connect((1024,), 1, CPU)
    expected = layer(f, z, edges)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(layer(f, z, edges), expected, rtol=0.1, atol=0.05)


def test_compiles_without_graph_breaks():
    """In a process of its own: the shape checks of this suite are not part of the program."""
    program = """
import torch
from svdno.models import MPNN
model = MPNN(1, 2, 2, times=2, hidden_channels=8, n_layers=2)
a = torch.randn(2, 6, 7, 1)
u = torch.compile(model, fullgraph=True, backend="aot_eager")(a)
u.sum().backward()
torch.testing.assert_close(u, model(a))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_torch_geometric_the_error_names_the_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "svdno.models.message_passing")
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    monkeypatch.setitem(sys.modules, "torch_geometric.nn", None)
    with pytest.raises(InputError, match=r"MPNN needs the package torch_geometric.*pip install 'svdno\[baselines\]'"):
        MPNN(1, 1, 1)


def test_models_import_without_torch_geometric():
    program = "import sys, svdno.models; assert 'torch_geometric' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: MPNN(1, 101, 1, times=101, hidden_channels=64),
            "`hidden_channels` must be at least the 101 output times, got 64. Use a wider model",
        ),
        (lambda: MPNN(1, 5, 1, times=2), "`out_channels` must be times × fields"),
        (lambda: MPNN(1, 1, 1, neighbors=0), "`neighbors` must be a whole number of at least 1, got 0"),
        (
            lambda: MPNN(1, 1, 2, n_layers=1)(torch.randn(1, 30, 1), torch.rand(30, 2)),
            "MPNN needs a uniform grid of 2 axes, got a cloud of 30 points. Use SVDNO",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
