"""DeepONet against its formula, written out, and its sensors against numpy's interpolation."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from svdno import Grid, load, save
from svdno.errors import InputError
from svdno.models.deeponet import DeepONet, resample
from tests.training.problems import make_data, make_surrogate


def make_model(dim: int = 1, **arguments) -> DeepONet:
    torch.manual_seed(0)
    settings = {"times": 3, "sensors": 6, "hidden_channels": 8, "products": 5, **arguments}
    return DeepONet(2, 6, dim, **settings).double()


def evaluate(net: nn.Sequential, v: torch.Tensor) -> torch.Tensor:
    """The net as matrices: W_L tanh(… tanh(W_1 v + b_1) …) + b_L."""
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    for layer in layers[:-1]:
        v = torch.tanh(layer.weight @ v + layer.bias)
    return layers[-1].weight @ v + layers[-1].bias


@pytest.mark.parametrize("dim", [1, 2])
def test_output_is_the_sum_of_products_of_branch_and_trunk_at_every_point_and_time(dim):
    model = make_model(dim)
    a = torch.randn(2, *[6] * dim, 2).double()
    u = model(a).unflatten(-1, (3, 2))
    x = torch.linspace(0, 1, 6, dtype=torch.float64)
    for sample, k, field in product(range(2), range(3), range(2)):
        b = evaluate(model.branch, a[sample].flatten())[5 * field : 5 * field + 5]
        for place in product(range(6), repeat=dim):
            query = torch.stack([*(x[i] for i in place), torch.tensor(k / 2).double()])
            tau = torch.tanh(evaluate(model.trunk, 2 * query - 1))[5 * field : 5 * field + 5]
            expected = model.bias[field] + b @ tau
            torch.testing.assert_close(u[(sample, *place, k, field)], expected, rtol=0, atol=1e-12)


def test_output_is_affine_in_the_values_of_the_branch():
    model, a = make_model(), torch.randn(1, 6, 2).double()

    def respond(values: torch.Tensor) -> torch.Tensor:
        model.branch = nn.Sequential(nn.Linear(12, 10).double())
        with torch.no_grad():
            model.branch[0].weight.zero_()
            model.branch[0].bias.copy_(values)
            return model(a)

    v, w = torch.randn(2, 10).double()
    start = respond(torch.zeros(10).double())
    assert (start == 0).all(), "the bias starts as 0"
    torch.testing.assert_close(respond(2 * v - 3 * w), 2 * respond(v) - 3 * respond(w), rtol=0, atol=1e-12)


def test_number_of_parameters_is_that_of_an_independent_count():
    square = 128 * 128 + 128

    def count(readings: int, coordinates: int, trunk_layers: int, fields: int) -> int:
        end = 128 * (128 * fields) + 128 * fields
        branch = readings * 128 + 128 + 3 * square + end
        trunk = coordinates * 128 + 128 + (trunk_layers - 1) * square + end
        return branch + trunk + fields

    for model, expected in (
        (DeepONet(1, 101, 1, times=101, sensors=1024), count(1024, 2, 3, 1)),
        (DeepONet(2, 303, 2, times=101, sensors=(32, 16)), count(2 * 32 * 16, 3, 4, 3)),
        (DeepONet(1, 1, 2, sensors=64), count(64 * 64, 2, 4, 1)),
    ):
        assert sum(p.numel() for p in model.parameters()) == expected


@pytest.mark.parametrize(("n", "m"), [(8, 12), (12, 8), (9, 5), (7, 7)])
@pytest.mark.parametrize("placement", ["nodes", "cells", "periodic"])
def test_sensors_read_the_linear_interpolant(placement, n, m):
    given, wanted = (Grid.unit((size,), placement).axes[0].numpy() for size in (n, m))
    values = torch.randn(n).double()
    expected = np.interp(wanted, given, values.numpy(), period=1.0 if placement == "periodic" else None)
    found = resample(values.reshape(1, n, 1), (m,), placement).flatten()
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(5, 9), (5, 9, 4)])
def test_sensors_read_products_of_linear_functions_exactly_in_more_dimensions(shape):
    def evaluate_at(space: tuple[int, ...]) -> torch.Tensor:
        return (1 + Grid.unit(space).points * torch.arange(1, len(space) + 1)).prod(dim=-1).reshape(1, *space, 1)

    fine = tuple(2 * n + 1 for n in shape)
    torch.testing.assert_close(resample(evaluate_at(fine), shape, "nodes"), evaluate_at(shape), rtol=0, atol=1e-12)
    torch.testing.assert_close(resample(evaluate_at(shape), fine, "nodes"), evaluate_at(fine), rtol=0, atol=1e-12)


def test_the_data_decide_times_sensors_and_placement_and_the_file_keeps_them(tmp_path):
    data, surrogate = make_data(), make_surrogate("deeponet")
    wanted = {"times": 2, "sensors": [16], "placement": "periodic"}
    assert {key: surrogate.model.arguments[key] for key in wanted} == wanted
    assert make_surrogate("deeponet", sensors=5).model.arguments["sensors"] == [5]
    save(surrogate, tmp_path)
    assert torch.equal(load(tmp_path).predict(data.inputs), surrogate.predict(data.inputs))


def test_prediction_on_a_finer_grid_agrees_where_the_grids_meet():
    data, surrogate = make_data(), make_surrogate("deeponet")
    fine = resample(data.inputs, (64,), "periodic")
    torch.testing.assert_close(surrogate.predict(fine)[:, :, ::4], surrogate.predict(data.inputs), rtol=1e-5, atol=1e-5)


def test_points_may_differ_between_samples():
    model, a = make_model(2), torch.randn(2, 6, 6, 2).double()
    x = Grid.unit((6, 6)).points
    both = torch.stack([x, x**2])
    expected = torch.cat([model(a[:1], x), model(a[1:], x**2)])
    torch.testing.assert_close(model(a, both), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DeepONet(1, 5, 1, times=2), "`out_channels` must be times × fields, got out_channels=5 for times=2"),
        (lambda: DeepONet(1, 2, 2, sensors=(8,)), r"`sensors` must be at least 2 along each of the 2 axes, got \(8,\)"),
        (lambda: DeepONet(1, 2, 1, sensors=1), "`sensors` must be at least 2"),
        (lambda: DeepONet(1, 2, 1, placement="corners"), "`placement` must be one of 'nodes', 'cells', 'periodic'"),
        (lambda: DeepONet(1, 2, 1, times=0), "`times` must be a whole number of at least 1, got 0"),
        (lambda: DeepONet(1, 2, 1, trunk_layers=0), "`trunk_layers` must be a whole number of at least 1"),
        (
            lambda: DeepONet(1, 2, 2, sensors=8)(torch.randn(1, 30, 1), torch.rand(30, 2)),
            "DeepONet needs a uniform grid of 2 axes, got a cloud of 30 points. Use SVDNO",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
