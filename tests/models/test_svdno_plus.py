"""SVD-NO+: what it adds to the contract of the models."""

from itertools import pairwise, product

import pytest
import torch

from svdno.errors import InputError
from svdno.models import SVDNOPlus
from tests.models.compiling import assert_compiles

SMALL = {"hidden_channels": 6, "singular_channels": 4, "n_layers": 2, "stem_taps": 3}
VARIANTS = [
    {"orthogonality": o, "placement": p, "feed_forward": f}
    for o, p, f in product(["exact", "penalty", "none"], ["periodic", "nodes"], [0, 2])
] + [{"orthogonality": "exact", "positional": n, "output_kernel": k} for n, k in ((0, False), (0, True), (4, True))]


def make(dim: int = 1, **arguments):
    torch.manual_seed(0)
    return SVDNOPlus(2, 3, dim, **{**SMALL, **arguments})


def make_field(*space: int) -> torch.Tensor:
    return torch.randn(2, *space, 2, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
def test_every_variant_runs_and_trains_every_parameter(variant):
    model = make(**variant)
    u, penalty = model.forward_with_penalty(make_field(16))
    (u.square().mean() + penalty).backward()
    assert (penalty > 0) == (variant["orthogonality"] == "penalty")
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().max() > 0, key


def test_exact_bases_leave_little_of_the_penalty():
    """Up to the ridge, which counts where functions are nearly dependent."""
    a = make_field(16)
    assert make(orthogonality="exact").orthogonality(a) < 0.1 * make().orthogonality(a)


@pytest.mark.parametrize("orthogonality", ["exact", "penalty", "none"])
def test_svd_of_every_kernel_is_orthonormal(orthogonality):
    model, a = make(2, orthogonality=orthogonality, placement="cells").double(), make_field(5, 6).double()
    svds = model.svd(a, weights=torch.full((5, 6), 1 / 30, dtype=torch.float64))
    assert [svd.values.shape[1] for svd in svds] == [24, 24, 12]
    for values, left, right in svds:
        for functions in (left, right):
            G = torch.einsum("bxycl,bxycm->blm", functions, functions) / 30
            torch.testing.assert_close(G, torch.eye(values.shape[1]).double().expand_as(G), rtol=0, atol=1e-7)


def test_truncation_to_the_whole_rank_changes_nothing_and_to_less_does():
    model, a = make().double(), make_field(16).double()
    torch.testing.assert_close(model.truncated(24)(a), model(a))
    assert (model.truncated(2)(a) - model(a)).abs().max() > 1e-3


def test_points_may_come_in_any_order_without_a_stem():
    model, a, x = make(2, stem_taps=0), make_field(50), torch.rand(50, 2)
    order = torch.randperm(50)
    torch.testing.assert_close(model(a[:, order], x[order]), model(a, x)[:, order], rtol=1e-4, atol=1e-5)


def test_clouds_may_share_points_and_not_weights():
    model, a, x, w = make(2, stem_taps=0), make_field(50), torch.rand(50, 2), torch.rand(2, 50) / 50
    each = [model(a[i : i + 1], x, w[i]) for i in (0, 1)]
    torch.testing.assert_close(model(a, x, w), torch.cat(each), rtol=1e-4, atol=1e-5)


def test_finer_grids_give_the_same_function():
    """What is left of the difference between a grid and the one twice as fine after three further refinements."""
    model = make(placement="periodic", sensors=(32,)).double()
    answers = []
    for n in (32, 64, 128, 256, 512):
        x = torch.arange(n, dtype=torch.float64)[None, :, None] / n
        a = torch.cat([torch.sin(2 * torch.pi * x), torch.cos(4 * torch.pi * x)], dim=-1)
        answers.append(model(a, x[0], torch.full((n,), 1 / n, dtype=torch.float64))[:, :: n // 32])
    steps = [(fine - coarse).abs().max() for coarse, fine in pairwise(answers)]
    assert steps[-1] < steps[0] / 30


def test_products_in_bfloat16_leave_the_orthonormal_functions_alone():
    """Functions and blocks come from sums over the points in float32: what is rounded are the fields."""
    model, a = make(), make_field(40)
    plain, left, gradients = model(a), model.orthogonality(a), []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            u = model(a)
            torch.testing.assert_close(model.orthogonality(a), left, rtol=0.02, atol=0)
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(u.square().mean(), model.parameters())]))
    assert 0 < (u - plain).norm() < 0.02 * plain.norm()
    assert torch.cosine_similarity(*gradients, dim=0) > 0.99


def test_parameters_are_as_many_as_counted_by_hand():
    model = SVDNOPlus(1, 101, 1, hidden_channels=64, n_layers=4, singular_channels=32, frequencies=4, stem_taps=5)
    stem = 2 * 64 * (5 + 1)
    lift = (1 + 8 + 1 + 1 + 64) * 64 + 65 * 64
    basis = 2 * (10 * (1 + 8 + 1) + 22 * (1 + 8 + 1 + 64))
    block = 65 * 64 + basis + 32 * 64 * 64 + 65 * 128 + 129 * 64
    project = 65 * 128 + 129 * 101 + basis + 32 * 64 * 101
    assert sum(p.numel() for p in model.parameters()) == stem + lift + 4 * block + project + 2 * 101
    plane = SVDNOPlus(3, 1, 2, hidden_channels=64, stem_channels=16)
    assert sum(p.numel() for p in plane.stem.parameters()) == 16 * (3 * 25 + 1) + 16 * (25 + 1)


def test_it_compiles_as_one_graph():
    assert_compiles("SVDNOPlus(1, 3, 1, 8, 2, 8)", 16)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SVDNOPlus(1, 1, 1, stem_taps=4), "must be odd, or 0 for no stem, got 4"),
        (lambda: SVDNOPlus(1, 1, 1, frequencies=-1), "`frequencies` must be a whole number of at least 0, got -1"),
        (lambda: SVDNOPlus(1, 1, 1, orthogonality="some"), "must be one of 'exact', 'penalty', 'none', got 'some'"),
        (lambda: make(singular_channels=25), "must be at most 24, the 18 waves and 6 channels"),
        (lambda: make(positional=5), "`positional` must be at most 4: there are 4 functions and 18 waves, got 5"),
        (lambda: make().truncated(25), "between 1 and the model's rank H·d = 24, got 25"),
        (lambda: make(2)(make_field(50), torch.rand(50, 2)), "Build the model with stem_taps=0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
