"""U-Net: how far it sees, any number of points, and the statistics of its batch norms."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from svdno import TrainingSettings, load, save, train
from svdno.errors import InputError
from svdno.models import UNet
from svdno.models.unet import _pool
from svdno.training import loop
from tests.models.compiling import assert_compiles
from tests.training.problems import make_data, make_surrogate
from tests.training.test_resume import train_with_cuts


def make(dim: int = 1, **arguments) -> UNet:
    torch.manual_seed(0)
    return UNet(2, 3, dim, **{"hidden_channels": 4, **arguments}).double()


def find_reach(point: int, levels: int) -> tuple[int, int]:
    """First and last input point that a path down, through the coarsest grid and up connects with an output point."""
    first = last = point
    for _ in range(levels):  # from the output down: two convolutions, then the coarse point of a transposed one
        first, last = (first - 2) // 2, (last + 2) // 2
    first, last = first - 2, last + 2
    for _ in range(levels):  # up to the input: the two points of a maximum, then two convolutions
        first, last = 2 * first - 2, 2 * last + 1 + 2
    return first, last


@pytest.mark.parametrize(("levels", "point"), [(1, 32), (2, 61), (3, 64)])
def test_receptive_field_is_that_of_its_convolutions(levels, point):
    model = make(n_levels=levels, hidden_channels=8).eval()
    a = torch.randn(64, 128, 2).double().requires_grad_()
    # Of two points only the larger one passes a maximum, so many samples are needed to see all paths.
    (influence,) = torch.autograd.grad(model(a)[:, point].sum(), a)
    seen = influence.abs().amax(dim=(0, 2)).nonzero()
    assert (seen.min().item(), seen.max().item()) == find_reach(point, levels)


@pytest.mark.parametrize("space", [(17,), (16, 9), (5, 8, 3)])
def test_missing_points_repeat_the_last_ones(space):
    model, dim = make(len(space), n_levels=3).eval(), len(space)
    a, x = torch.randn(2, *space, 2).double(), torch.rand(*space, dim).double()
    ends = [(0, -n % 8) for n in space]
    long_a = torch.from_numpy(np.pad(a.numpy(), [(0, 0), *ends, (0, 0)], mode="edge"))
    long_x = torch.from_numpy(np.pad(x.numpy(), [*ends, (0, 0)], mode="edge"))
    inside = (slice(None), *(slice(n) for n in space))
    torch.testing.assert_close(model(a, x), model(long_a, long_x)[inside], rtol=0, atol=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_pooling_is_that_of_torch(dim):
    v = torch.randn(2, 3, *[4, 6, 8][:dim])
    assert torch.equal(_pool(v), (F.max_pool1d, F.max_pool2d, F.max_pool3d)[dim - 1](v, 2))


def test_parameters_are_those_of_an_independent_count():
    for dim in (1, 2):
        w = 3**dim
        sizes = [(dim + 1, 32), (32, 64), (64, 128), (128, 256), (256, 512)]
        down = sum(w * c * d + w * d * d + 4 * d for c, d in sizes)
        up = sum(2**dim * 2 * d * d + d + w * 2 * d * d + w * d * d + 4 * d for d in (32, 64, 128, 256))
        assert sum(p.numel() for p in UNet(1, 101, dim).parameters()) == down + up + 32 * 101 + 101


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_every_parameter_gets_a_gradient_while_it_trains(dim):
    model = make(dim, n_levels=2)
    model(torch.randn(2, *[16, 17, 18][:dim], 2).double()).square().sum().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().max() > 1e-9, key


def test_a_saved_model_predicts_with_the_statistics_of_its_training(tmp_path):
    data, surrogate = make_data(), make_surrogate("unet")
    untrained = {key: tensor.clone() for key, tensor in surrogate.model.state_dict().items() if "running" in key}
    train(surrogate, data, data, TrainingSettings(epochs=3, batch_size=8))
    save(surrogate, tmp_path)
    loaded = load(tmp_path)
    assert torch.equal(loaded.predict(data.inputs), surrogate.predict(data.inputs))
    state = loaded.model.state_dict()
    assert untrained
    assert not any(torch.equal(state[key], before) for key, before in untrained.items())


def test_a_training_cut_off_ends_with_the_same_bits_and_statistics(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    whole = train_with_cuts(tmp_path / "whole", [], name="unet")
    cut = train_with_cuts(tmp_path / "cut", [2, 5], name="unet")
    assert torch.equal(whole[0], cut[0])
    assert whole[1] == cut[1], "validation errors are those of the running statistics"


def test_bf16_autocast_is_close_to_float32_and_has_gradients():
    model, a = make(2).float(), torch.randn(2, 16, 17, 2)
    with torch.autocast("cpu", torch.bfloat16):
        u = model.eval()(a)
    torch.testing.assert_close(u.float(), model(a), rtol=0.1, atol=0.05)
    u.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_compiles_without_graph_breaks():
    assert_compiles("UNet(1, 3, 2, 4)", 16, 18)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: UNet(1, 1, 2)(torch.randn(1, 30, 1), torch.rand(30, 2)),
            "U-Net needs a uniform grid of 2 axes, got a c",
        ),
        (
            lambda: UNet(1, 1, 2)(torch.randn(1, 16, 9, 1)),
            "batch of 1 whose 16 × 16 points end as a single one. Use lar",
        ),
        (lambda: UNet(1, 1, 1, n_levels=0), "`n_levels` must be a whole number of at least 1, got 0"),
        (lambda: UNet(1, 1, 4), "`dim` must be 1, 2 or 3, got 4"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
