"""Trivial methods against what they are by definition."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.spatial import KDTree

from svdno.errors import InputError
from svdno.models import pod_regression, trivial
from svdno.models.pod_regression import PODRegression, find_components
from svdno.models.trivial import TRIVIAL, NearestNeighbour, TrainingMean

SPACES = [(9,), (4, 5), (3, 4, 2)]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_pairs(space=(9,), samples: int = 80) -> tuple[torch.Tensor, torch.Tensor]:
    """Two input and three output channels, joined by a full matrix and a shift."""
    a, n = draw(samples, *space, 2), int(np.prod(space))
    return a, (a.flatten(1) @ draw(2 * n, 3 * n, seed=1) + draw(3 * n, seed=2)).unflatten(1, (*space, 3))


def fit(name: str, space=(9,), dtype=torch.float64, **arguments):
    method = TRIVIAL[name](2, 3, len(space), **arguments).to(dtype)
    method.fit(*(t.to(dtype) for t in make_pairs(space)), lambda: 0.0)
    return method


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", TRIVIAL)
def test_every_method_keeps_the_grid_and_changes_the_channels(name, space):
    assert fit(name, space)(draw(7, *space, 2, seed=5)).shape == (7, *space, 3)


def test_the_training_mean_is_the_mean_of_the_outputs_whatever_the_input():
    expected = make_pairs()[1].numpy().mean(axis=0)
    for output in fit("training-mean")(draw(4, 9, 2, seed=5)):
        np.testing.assert_allclose(output, expected, rtol=1e-12, atol=1e-12)


def test_the_nearest_neighbour_of_a_twin_is_the_twin():
    a, u = make_pairs((4, 5))
    assert torch.equal(fit("nearest-neighbour", (4, 5))(a[[3, 70, 3]] + 1e-3), u[[3, 70, 3]])


def test_the_nearest_neighbour_is_that_of_a_search_tree():
    a, u = make_pairs()
    queries = draw(50, 9, 2, seed=5)
    _, nearest = KDTree(a.flatten(1).numpy()).query(queries.flatten(1).numpy())
    assert torch.equal(fit("nearest-neighbour")(queries), u[torch.from_numpy(nearest)])


def test_the_nearest_neighbour_tells_close_inputs_apart_in_float32():
    a = (30 + 1e-4 * torch.arange(100.0)).reshape(100, 1, 1).expand(100, 64, 1)
    method = NearestNeighbour(1, 1, 1)
    method.fit(a, torch.arange(100.0).reshape(100, 1, 1).expand(100, 64, 1), lambda: 0.0)
    assert method(a + 2e-5)[:, 0, 0].tolist() == list(range(100))


@pytest.mark.parametrize("space", SPACES)
def test_pod_regression_is_exact_for_a_linear_operator(space):
    method = TRIVIAL["pod-regression"](2, 3, len(space), energy=1.0).double()
    a, u = make_pairs(space, samples=120)
    truth = u[100:]
    method.fit(a[:100], u[:100], lambda: (method(a[100:]) - truth).norm().item())
    assert ((method(a[100:]) - truth).norm() / truth.norm()).item() < 1e-10


@pytest.mark.parametrize("shape", [(12, 30), (30, 12), (20, 20), (5, 10_000), (9_000, 6)])
def test_components_span_what_those_of_an_svd_span(shape):
    rows = draw(*shape) * 0.6 ** torch.arange(shape[1])
    _, singular, vectors = np.linalg.svd(rows.numpy(), full_matrices=False)
    energy = np.cumsum(singular**2) / np.sum(singular**2)
    for part in (0.5, 0.9, 0.9999):
        components = find_components(rows, part).numpy()
        leading = vectors[: np.searchsorted(energy, part) + 1]
        np.testing.assert_allclose(components.T @ components, leading.T @ leading, atol=1e-9)


def test_the_ridge_regression_is_that_of_the_normal_equations(monkeypatch):
    monkeypatch.setattr(pod_regression, "RIDGES", (0.3,))
    a, u = draw(12, 9, 2), draw(12, 9, 3, seed=1)  # fewer samples than values: without the ridge there is no answer
    method = PODRegression(2, 3, 1, energy=1.0).double()
    method.fit(a, u, lambda: 0.0)
    A, U = ((t - t.mean(dim=0)).flatten(1).numpy() for t in (a, u))
    damping = 0.3 * np.linalg.norm(A, 2) ** 2
    query = draw(4, 9, 2, seed=5)
    centred = (query - a.mean(dim=0)).flatten(1).numpy()
    expected = centred @ np.linalg.solve(A.T @ A + damping * np.eye(18), A.T @ U) + u.mean(dim=0).flatten().numpy()
    np.testing.assert_allclose(method(query).flatten(1), expected, atol=1e-10)


def test_the_ridge_is_the_one_of_the_smallest_validation_error():
    a, u = draw(12, 9, 2), draw(12, 9, 3, seed=1)
    method = PODRegression(2, 3, 1)
    seen = []

    def validate() -> float:
        seen.append(method.weight.clone())
        return abs(len(seen) - 5.0)

    method.double().fit(a, u, validate)
    assert torch.equal(method.weight, seen[4])
    assert not torch.equal(method.weight, seen[-1])


def test_pod_regression_of_inputs_that_never_vary_is_the_mean():
    a, u = torch.ones(12, 9, 2).double(), draw(12, 9, 3)
    method = PODRegression(2, 3, 1).double()
    method.fit(a, u, lambda: 0.0)
    torch.testing.assert_close(method(a[:1])[0], u.mean(dim=0))


def test_leaving_components_out_costs_no_more_than_the_energy_says():
    a = draw(200, 40, 1) * 0.5 ** torch.arange(40).unsqueeze(1)
    for energy in (0.9, 0.999):
        method = PODRegression(1, 1, 1, energy=energy).double()
        method.fit(a, a, lambda: 0.0)
        lost = (method(a) - a).square().sum() / (a - a.mean(dim=0)).square().sum()
        assert 0.1 * (1 - energy) < lost < 1.01 * (1 - energy)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", TRIVIAL)
def test_a_method_from_a_file_gives_the_same_bits(name, dtype, tmp_path):
    method, query = fit(name, (4, 5), dtype), draw(6, 4, 5, 2, seed=5).to(dtype)
    save_file(method.state_dict(), tmp_path / "method.safetensors")
    loaded = TRIVIAL[name](**method.arguments).to(dtype)
    loaded.load_state_dict(load_file(tmp_path / "method.safetensors"))
    assert torch.equal(loaded(query), method(query))
    assert not any(p.requires_grad for p in loaded.parameters())


def test_a_file_of_another_method_is_refused():
    with pytest.raises(RuntimeError, match="Unexpected key"):
        fit("training-mean").load_state_dict(fit("nearest-neighbour").state_dict())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TrainingMean(2, 3, 1)(torch.randn(4, 9, 2)), "not fitted yet: it has seen no samples"),
        (lambda: fit("training-mean")(draw(4, 18, 2)), "fitted to a grid of 9 points and knows no other, got 18"),
        (lambda: fit("nearest-neighbour", (4, 5))(draw(4, 5, 4, 2)), "grid of 4 × 5 points and knows no other, got 5"),
        (lambda: fit("pod-regression", (4, 5))(draw(4, 20, 2), draw(20, 2)), "4 × 5 points and knows no other, got 20"),
        (lambda: fit("pod-regression")(draw(4, 9, 1)), "last axis must hold the 2 input channels"),
        (lambda: fit("pod-regression")(draw(4, 9, 2).float()), r"computes in torch\.float64, got an input in"),
        (lambda: PODRegression(1, 1, 1, energy=99.99), "`energy` must be above 0 and at most 1, got 99.99. Use 0.9999"),
        (lambda: TrainingMean(0, 1, 1), "`in_channels` must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_training_set_too_large_to_keep_is_refused_with_its_size(monkeypatch):
    monkeypatch.setattr(trivial, "LARGEST", 28_000)
    with pytest.raises(InputError, match=r"keeps the training set, which may have 0\.0 GB.*data\.time_stride"):
        fit("nearest-neighbour")
    fit("nearest-neighbour", dtype=torch.float32)
