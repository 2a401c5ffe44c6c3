"""U-NO: its two ways from grid to grid, and the operator they make."""

import pytest
import torch
from scipy.ndimage import map_coordinates

from svdno import load, save
from svdno.errors import InputError
from svdno.models import UNO
from svdno.models.fno import SpectralConvolution
from svdno.models.uno import FourierBlock, interpolate
from tests.models.compiling import assert_compiles
from tests.training.problems import make_data, make_surrogate

SMALL = {"hidden_channels": 4, "n_modes": [4, 2, 2, 2, 4]}


def make(dim: int = 1, **arguments) -> UNO:
    torch.manual_seed(0)
    return UNO(2, 3, dim, **{**SMALL, **arguments}).double()


def sample_waves(space: tuple[int, ...]) -> torch.Tensor:
    """A trigonometric polynomial with |k| ≤ 2 along each axis, on the periodic grid of this shape."""
    axes = torch.meshgrid(*(2 * torch.pi * torch.arange(n).double() / n for n in space), indexing="ij")
    waves = [0.3 + torch.cos(x + 0.4 * i) - 0.7 * torch.sin(2 * x) for i, x in enumerate(axes)]
    return torch.stack(waves).prod(dim=0).reshape(1, *space, 1)


@pytest.mark.parametrize(
    ("space", "target"),
    [
        ((32,), (16,)),
        ((16,), (32,)),
        ((15,), (9,)),
        ((9,), (6,)),
        ((16, 18), (8, 9)),
        ((7, 8), (14, 15)),
        ((6,) * 3, (12, 7, 8)),
    ],
)
def test_spectral_layer_resamples_a_band_limited_field_exactly(space, target):
    layer = SpectralConvolution(1, 3, len(space)).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(layer(sample_waves(space), target), sample_waves(target), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("space", "target"), [((8,), (16,)), ((5,), (11,)), ((6, 7), (12, 9)), ((4, 5, 6), (8, 10, 7))]
)
def test_interpolation_to_a_finer_grid_is_that_of_scipy(space, target):
    v = torch.randn(*space, dtype=torch.float64)
    points = torch.meshgrid(*(torch.arange(m) * n / m for n, m in zip(space, target, strict=True)), indexing="ij")
    expected = torch.from_numpy(map_coordinates(v.numpy(), torch.stack(points).numpy(), order=1, mode="grid-wrap"))
    torch.testing.assert_close(interpolate(v[None, ..., None], target)[0, ..., 0], expected, rtol=0, atol=1e-6)


def test_interpolation_to_half_the_points_averages_neighbours():
    v = torch.randn(2, 10, 3, dtype=torch.float64)
    expected = (v.roll(1, 1) + 2 * v + v.roll(-1, 1))[:, ::2] / 4
    torch.testing.assert_close(interpolate(v, (5,)), expected)
    torch.testing.assert_close(interpolate(torch.ones(1, 33, 9, 1), (16, 4)), torch.ones(1, 16, 4, 1))


def test_interpolation_in_bfloat16_finds_the_right_points():
    v = torch.arange(1024.0).remainder(8).reshape(1, 1024, 1).bfloat16()
    torch.testing.assert_close(interpolate(v, (2048,))[:, ::2], v)


def test_inner_blocks_forget_the_scale_of_each_sample():
    block = FourierBlock(3, 4, 2, 1, normalize=True).double()
    v = torch.randn(2, 16, 3, dtype=torch.float64)
    scale = torch.tensor([1.0, 100.0], dtype=torch.float64).reshape(2, 1, 1)
    torch.testing.assert_close(block(scale * v, (8,)), block(v, (8,)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dim", [1, 2])
def test_shifting_a_periodic_field_shifts_the_solution(dim):
    """By whole points of the coarsest grid; coordinates would tell positions apart, so all are 0 here."""
    model, n = make(dim), [16, 20][:dim]
    a, nowhere = torch.randn(2, *n, 2).double(), torch.zeros(*n, dim).double()
    axes, shift = list(range(1, 1 + dim)), [4, 8][:dim]
    shifted = model(a.roll(shift, axes), nowhere)
    torch.testing.assert_close(shifted, model(a, nowhere).roll(shift, axes), rtol=0, atol=1e-12)


def test_refining_the_grid_converges_to_one_answer():
    model = make()

    def evaluate(n: int) -> torch.Tensor:
        x = torch.arange(n).double().unsqueeze(-1) / n
        wave = torch.sin(2 * torch.pi * x)
        return model(torch.cat([wave, wave.square()], dim=-1).unsqueeze(0), x)[0, :: n // 64]

    *u, truth = (evaluate(n) for n in (64, 256, 1024, 4096))
    errors = torch.stack([(coarse - truth).norm() / truth.norm() for coarse in u])
    assert errors[0] < 0.05
    assert (errors[1:] < errors[:-1] / 2.5).all(), f"the coordinate jumps: expected order 1, got {errors.tolist()}"


def test_padding_is_a_larger_domain_with_nothing_in_it():
    padded, plain = make(padding=0.25), make()
    for model in (padded, plain):
        for layer in model.lift[0], model.lift[2]:
            torch.nn.init.zeros_(layer.bias)  # then the lift of nothing is nothing
    a, x = torch.randn(2, 16, 2).double(), torch.rand(16, 1).double()
    extended = plain(torch.cat([a, torch.zeros(2, 4, 2)], dim=1), torch.cat([x, torch.zeros(4, 1)]))
    torch.testing.assert_close(padded(a, x), extended[:, :16], rtol=0, atol=1e-12)
    assert not torch.allclose(padded(a, x), plain(a, x))


def test_parameters_are_those_of_an_independent_count():
    def count(dim: int, d: int, modes: tuple[int, ...], channels_in: int, channels_out: int) -> int:
        lift = ((dim + channels_in) * d + d) + (d * d + d)
        pairs = [(d, 2 * d), (2 * d, 4 * d), (4 * d, 4 * d), (4 * d, 2 * d), (2 * d + 2 * d, d)]
        spectral = sum(2 ** (dim - 1) * m**dim * c * e * 2 for m, (c, e) in zip(modes, pairs, strict=True))
        pointwise = sum(c * e for c, e in pairs) + 2 * d + d  # biases of the outer blocks
        norms = 2 * (4 * d + 4 * d + 2 * d)
        return lift + spectral + pointwise + norms + (2 * d * 4 * d + 4 * d) + (4 * d * channels_out + channels_out)

    for dim, d, modes in ((1, 20, (11, 5, 5, 5, 11)), (2, 30, (17, 7, 7, 7, 17))):
        model = UNO(1, 101, dim)
        assert sum(p.numel() for p in model.parameters()) == count(dim, d, modes, 1, 101)
        assert (model.arguments["hidden_channels"], tuple(model.arguments["n_modes"])) == (d, modes)


def test_bf16_autocast_is_close_to_float32_and_has_gradients():
    model, a = make(2).float(), torch.randn(2, 16, 17, 2)
    with torch.autocast("cpu", torch.bfloat16):
        u = model(a)
    torch.testing.assert_close(u.float(), model(a), rtol=0.1, atol=0.05)
    u.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_saved_and_loaded_surrogate_gives_the_same_bits(tmp_path):
    data, surrogate = make_data(), make_surrogate("uno", padding=0.5)
    save(surrogate, tmp_path)
    loaded = load(tmp_path)
    assert loaded.model.arguments == surrogate.model.arguments
    assert torch.equal(loaded.predict(data.inputs), surrogate.predict(data.inputs))


def test_compiles_without_graph_breaks():
    assert_compiles("UNO(1, 3, 2, 4, [4, 2, 2, 2, 4], padding=0.1)", 16, 18)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: UNO(1, 1, 2)(torch.randn(1, 30, 1), torch.rand(30, 2)),
            "U-NO needs a uniform grid of 2 axes, got a cl",
        ),
        (lambda: UNO(1, 1, 1)(torch.randn(1, 43, 1)), r"n_modes=\[11, 5, 5, 5, 11\] needs at least 44 points.*got 43"),
        (lambda: UNO(1, 1, 1, n_modes=[4, 2, 4]), r"`n_modes` must be five whole numbers.*got \[4, 2, 4\]"),
        (lambda: UNO(1, 1, 1, n_modes=[4, 2, 2, 2, 0]), "`n_modes` must be five whole numbers of at least 1"),
        (lambda: UNO(1, 1, 1, padding=-0.1), "`padding` must be a fraction of at least 0 .* got -0.1"),
        (lambda: UNO(1, 1, 1, hidden_channels=0), "`hidden_channels` must be a whole number of at least 1, got 0"),
        (lambda: UNO(1, 1, 4), "`dim` must be 1, 2 or 3, got 4"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
