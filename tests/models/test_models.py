"""The contract every model keeps, whatever it is."""

from itertools import product

import pytest
import torch

from svdno import FNO, SVDNO
from svdno.models import MODELS
from tests.models.compiling import assert_compiles

SMALL = {
    "svdno": {"hidden_channels": 8, "singular_channels": 8, "rank": 3},
    "svdno-plus": {"hidden_channels": 8, "singular_channels": 6, "n_layers": 2},
    "fno": {"hidden_channels": 8, "n_modes": 3},
    "uno": {"hidden_channels": 4, "n_modes": [4, 2, 2, 2, 4]},
    "unet": {"hidden_channels": 4},
    "deeponet": {"hidden_channels": 8, "sensors": 16, "products": 5},
    "mpnn": {"hidden_channels": 8, "n_layers": 2},
}
VARIANTS = [
    {"singular_net": net, "kernel": kernel, "orthogonality": orthogonality, "bases": bases}
    for net, kernel, orthogonality, bases in product(
        ["mlp", "bilstm"], ["svd", "mercer", "dense"], ["penalty", "exact", "none"], ["global", "per-layer"]
    )
]


def make(name: str, dim: int = 1, **arguments):
    torch.manual_seed(0)
    # As it predicts: a batch norm that trains makes samples depend on each other.
    return MODELS[name](2, 3, dim, **{**SMALL[name], **arguments}).eval()


def make_field(dim: int, n: int = 16, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, *[n, n + 1, n + 2][:dim], 2, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_model_keeps_the_grid_and_changes_the_channels(name, dim):
    a = make_field(dim)
    assert make(name, dim)(a).shape == (*a.shape[:-1], 3)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_gets_a_gradient(name, dim):
    model = make(name, dim)
    model(make_field(dim)).square().sum().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().max() > 0, key


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(v.values()))
def test_every_variant_of_svdno_runs_and_trains_every_parameter(variant):
    model = make("svdno", **variant)
    u, penalty = model.forward_with_penalty(make_field(1))
    (u.square().mean() + penalty).backward()
    assert torch.equal(u, model(make_field(1)))
    assert (penalty > 0) == (variant["orthogonality"] == "penalty" and variant["kernel"] != "dense")
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().max() > 0, key


@pytest.mark.parametrize("name", MODELS)
def test_any_resolution_after_training(name):
    model = make(name, 2)
    assert model(torch.randn(1, 16, 16, 2)).shape == (1, 16, 16, 3)
    assert model(torch.randn(1, 32, 24, 2)).shape == (1, 32, 24, 3)


@pytest.mark.parametrize("name", MODELS)
def test_output_at_one_point_depends_on_every_other(name):
    model = make(name, 1).double()
    a = make_field(1, n=16).double().requires_grad_()
    (influence,) = torch.autograd.grad(model(a)[0, 0].sum(), a)
    assert (influence[0].abs().amax(dim=-1) > 0).all()
    assert (influence[1] == 0).all()


@pytest.mark.parametrize("name", MODELS)
def test_float64_agrees_with_float32(name):
    model, a = make(name, 2), make_field(2)
    torch.testing.assert_close(model(a), model.double()(a.double()).float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("orthogonality", ["penalty", "exact"])
@pytest.mark.parametrize("net", ["mlp", "lstm", "bilstm"])
def test_bf16_autocast_is_close_to_float32_and_has_gradients(net, orthogonality):
    model, a = make("svdno", singular_net=net, orthogonality=orthogonality), make_field(1, n=16)
    expected, penalty = model.forward_with_penalty(a)
    with torch.autocast("cpu", torch.bfloat16):
        u, penalty_bf16 = model.forward_with_penalty(a)
    torch.testing.assert_close(u.float(), expected, rtol=0.1, atol=0.05)
    torch.testing.assert_close(penalty_bf16, penalty, rtol=0.1, atol=0.05)
    u.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_bf16_autocast_of_fno_is_close_to_float32():
    model, a = make("fno", 2), make_field(2)
    with torch.autocast("cpu", torch.bfloat16):
        u = model(a)
    torch.testing.assert_close(u.float(), model(a), rtol=0.1, atol=0.05)


@pytest.mark.parametrize("dim", [1, 2])
def test_permuting_the_points_of_a_cloud_permutes_the_output(dim):
    model = make("svdno", dim).double()
    a, x, w = (
        torch.randn(2, 20, 2).double(),
        torch.rand(2, 20, dim).double(),
        0.1 + torch.rand(2, 20).double(),
    )
    order = torch.randperm(20)
    expected = model(a, x, w)[:, order]
    torch.testing.assert_close(model(a[:, order], x[:, order], w[:, order]), expected, rtol=0, atol=1e-12)


def test_a_grid_is_a_cloud_of_its_points():
    model, a = make("svdno", 2).double(), make_field(2).double()
    from svdno import Grid

    grid = Grid.unit(tuple(a.shape[1:-1]))
    as_cloud = model(a.flatten(1, 2), grid.points.flatten(0, 1), grid.weights.flatten())
    torch.testing.assert_close(as_cloud.reshape(*a.shape[:-1], 3), model(a), rtol=0, atol=1e-12)


def test_refining_the_grid_converges_to_one_answer_at_second_order():
    model = make("svdno").double()

    def evaluate(n: int) -> torch.Tensor:
        x = torch.linspace(0, 1, n + 1).double()
        a = torch.stack([torch.exp(x) * torch.sin(5 * x), x**2], dim=-1)
        return model(a.unsqueeze(0))[0, :: n // 16]

    u = [evaluate(n) for n in (32, 64, 128, 1024)]
    errors = torch.stack([(coarse - u[-1]).abs().max() for coarse in u[:-1]])
    order = (errors[:-1] / errors[1:]).log2()
    assert (order > 1.8).all(), f"trapezoidal rule: expected order 2, got {order.tolist()}"


def test_truncated_at_full_rank_changes_nothing():
    for variant in ({}, {"orthogonality": "exact"}, {"kernel": "mercer"}, {"bases": "per-layer"}):
        model, a = make("svdno", **variant).double(), make_field(1).double()
        torch.testing.assert_close(model.truncated(3)(a), model(a), rtol=0, atol=1e-8)


def test_truncated_keeps_the_leading_triplets_and_leaves_the_model_alone():
    model, a = make("svdno").double(), make_field(1).double()
    before = model(a)
    cut = model.truncated(1)
    assert not torch.allclose(cut(a), before)
    assert torch.equal(model(a), before)
    for full, short in zip(model.svd(a), cut.svd(a), strict=True):
        torch.testing.assert_close(short.values, full.values[:, :1])


def test_svd_has_the_shape_of_the_grid_and_one_entry_per_layer():
    model, a = make("svdno", 2, n_layers=2), make_field(2)
    layers = model.svd(a)
    assert len(layers) == 2
    assert layers[0].values.shape == (2, 3)
    assert layers[0].left.shape == (2, 16, 17, 8, 3)


@pytest.mark.parametrize("orthogonality", ["penalty", "exact", "none"])
@pytest.mark.parametrize("kernel", ["svd", "mercer"])
def test_compiles_without_graph_breaks(kernel, orthogonality):
    settings = f"rank=3, singular_channels=8, kernel={kernel!r}, orthogonality={orthogonality!r}"
    assert_compiles(f"SVDNO(1, 3, 2, 8, {settings})", 6, 7)


def test_parameter_count_is_that_of_an_independent_count():
    model = SVDNO(1, 101, 1, 128, 4, 8, "lstm", 4, 32)
    lift = (2 * 128 + 128) + (128 * 128 + 128)
    lstm = 4 * 32 * (2 + 32 + 2) + 3 * 4 * 32 * (32 + 32 + 2)
    singular = 2 * (lstm + 8 * (32 + 1) * 128)
    layers = 4 * (128 * 128 + 128 + 8)
    project = (128 * 128 + 128) + (128 * 101 + 101)
    assert sum(p.numel() for p in model.parameters()) == lift + singular + layers + project
    fno = FNO(1, 101, 1)
    expected = (2 * 20 + 20) + 4 * (12 * 20 * 20 * 2 + 20 * 20 + 20) + (20 * 128 + 128) + (128 * 101 + 101)
    assert sum(p.numel() for p in fno.parameters()) == expected
