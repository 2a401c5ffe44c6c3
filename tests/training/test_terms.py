"""Further terms of the loss: PINO's residual and start, conserved totals, gradients."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from svdno import Dataset, Surrogate, TrainingSettings, train
from svdno.data.normalizer import Normalizer
from svdno.equations import EQUATIONS, AllenCahn, Darcy, DiffusionReaction, DiffusionSorption, ShallowWater
from svdno.errors import InputError
from svdno.training.batches import Batches
from svdno.training.losses import Objective
from svdno.training.terms import Fields, Setting, build_residual, build_start, build_terms, build_total
from tests.training.problems import make_data, make_surrogate

SMALL = {
    "allen-cahn": {"points": 32, "frames": 5},
    "diffusion-reaction": {"points": 32, "frames": 5},
    "diffusion-sorption": {"points": 16, "frames": 6},
    "shallow-water": {"points": 8, "frames": 4},
    "darcy": {"points": 8},
}
# Every so many points and times of the equation's own: the paper's, and the laptop's.
PAPER = [
    (AllenCahn(), 4, 1, 0.004),
    (DiffusionReaction(), 4, 1, 0.004),
    (DiffusionSorption(), 4, 1, 0.004),
    (Darcy(), 1, 1, 0.004),
    (ShallowWater(points=64), 1, 1, 0.03),
    (AllenCahn(), 16, 5, 0.06),
    (DiffusionReaction(), 16, 5, 0.06),
    (DiffusionSorption(), 16, 5, 0.06),
]


def solve(equation, samples: int = 2, space_stride: int = 1, time_stride: int = 1) -> tuple[Fields, Setting]:
    """Solutions in place of predictions, with the setting that they make."""
    a = equation.sample_inputs(samples, seed=0)
    thin = (slice(None, None, space_stride),) * equation.grid.dim
    u, a = equation.solve(a)[:, ::time_stride][(slice(None), slice(None), *thin)], a[(slice(None), *thin)]
    times = tuple(equation.times[::time_stride].tolist())
    grid = equation.grid.strided(space_stride)
    norms = torch.linalg.vector_norm(u.flatten(1), dim=1)
    return Fields(u, u, a, norms), Setting(grid, times, Normalizer.fit([a]), Normalizer.fit([u]), equation)


def make_set(equation, samples: int = 10) -> Dataset:
    (_, u, a, _), setting = solve(equation, samples)
    names = equation.input_fields, equation.output_fields
    return Dataset(a.float(), u.float(), setting.grid, torch.tensor(setting.times).double(), *names, equation)


@pytest.mark.parametrize(("equation", "space_stride", "time_stride", "most"), PAPER)
def test_a_solution_leaves_little_residual_and_noise_leaves_its_size(equation, space_stride, time_stride, most):
    batch, setting = solve(equation, 2, space_stride, time_stride)
    term = build_residual(setting)
    assert term(batch).max() < most
    noise = torch.randn(batch.truth.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    assert 0.5 < term(batch._replace(prediction=setting.outputs.decode(noise))).mean() < 2
    rough = term(batch._replace(prediction=batch.truth + 0.1 * torch.tensor(setting.outputs.std) * noise))
    assert (rough > max(0.08, 1.4 * most)).all()


def test_the_term_is_the_equations_residual_relative_to_that_of_noise():
    equation = AllenCahn(**SMALL["allen-cahn"])
    batch, setting = solve(equation)
    generator = torch.Generator().manual_seed(0)
    noise = setting.outputs.decode(torch.randn(1, 5, 32, 1, generator=generator)).double()
    wrong = batch._replace(prediction=batch.truth + 0.1)
    scale = equation.residual(noise, batch.inputs[:1]).square().mean().sqrt()
    expected = equation.residual(wrong.prediction, batch.inputs).square().mean(dim=(1, 2, 3)).sqrt() / scale
    torch.testing.assert_close(build_residual(setting)(wrong), expected, rtol=1e-5, atol=0)


def test_cells_that_thinning_moved_from_the_boundary_do_not_count():
    # 16 cells whose first centre is 1/128 from the boundary: R of the end cells takes it to be 1/32.
    equation = DiffusionSorption(points=64, frames=11)
    batch, setting = solve(equation, space_stride=4)
    at_ends = replace(equation, points=16).residual(batch.truth, batch.inputs)[:, :, [0, -1]].abs().max()
    inside = equation.residual(batch.truth, batch.inputs)[:, :, 1:-1].abs().max()
    assert at_ends > 10 * inside
    assert build_residual(setting)(batch).max() < 1e-3


@pytest.mark.parametrize("name", EQUATIONS)
def test_gradients_of_the_residual_are_right(name):
    batch, setting = solve(EQUATIONS[name](**SMALL[name]), samples=2)
    term = build_residual(setting)
    generator = torch.Generator().manual_seed(1)
    u = (batch.truth + 0.3 + 0.1 * torch.rand(batch.truth.shape, generator=generator)).requires_grad_()
    assert torch.autograd.gradcheck(lambda u: term(batch._replace(prediction=u)), u, fast_mode=True, atol=1e-4)


class OneDevice(TorchDispatchMode):
    """Operations must not go from one device to another; on `meta` they cannot read a value either."""

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        tensors = [t for t in tree_leaves((arguments, keywords, result)) if isinstance(t, torch.Tensor)]
        assert len({t.device.type for t in tensors}) < 2, function
        return result


@pytest.mark.parametrize("name", EQUATIONS)
def test_terms_never_wait_for_the_host(name):
    batch, setting = solve(EQUATIONS[name](**SMALL[name]))
    terms = build_terms({"residual": 1.0, "total": 1.0, **({} if name == "darcy" else {"start": 1.0})}, setting)
    on_device = Fields(*(tensor.to("meta") for tensor in batch))
    with OneDevice():
        u = torch.zeros_like(on_device.prediction).requires_grad_()
        sum(term(on_device._replace(prediction=u)).sum() for _, term in terms).backward()


@pytest.mark.parametrize("name", EQUATIONS)
def test_a_step_with_all_terms_compiles_as_one_graph(name):
    terms = {"residual": 0.1, "total": 0.1, "h1": 0.1, **({} if name == "darcy" else {"start": 0.5})}
    program = f"""
import torch
from svdno.training.losses import Objective
from svdno.training.batches import Batches
from svdno import Surrogate
from svdno.equations import EQUATIONS
from tests.training.test_terms import make_set
torch.manual_seed(0)
data = make_set(EQUATIONS[{name!r}](**{SMALL[name]}))
surrogate = Surrogate.build("fno", data, n_modes=3, hidden_channels=4)
objective = Objective(surrogate, 1.0, {terms}, data.equation)
batch = next(Batches(surrogate, data).in_order(4))
loss = torch.compile(objective, fullgraph=True, backend="aot_eager")(*batch)
loss[0].backward()
torch.testing.assert_close(loss, objective(*batch))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_loss_adds_the_terms_of_physical_fields():
    equation = AllenCahn(**SMALL["allen-cahn"])
    data = make_set(equation)
    torch.manual_seed(0)
    surrogate = Surrogate.build("fno", data, n_modes=3, hidden_channels=4)
    objective = Objective(surrogate, 1.0, {"residual": 0.1, "start": 0.5}, equation)
    loss, error, _ = objective(*next(Batches(surrogate, data).in_order(10)))
    norms = torch.linalg.vector_norm(data.outputs.flatten(1), dim=1)
    batch = Fields(surrogate.predict(data.inputs), data.outputs, data.inputs, norms)
    setting = Setting(data.grid, surrogate.times, surrogate.input_normalizer, surrogate.output_normalizer, equation)
    expected = error + 0.1 * build_residual(setting)(batch).mean() + 0.5 * build_start(setting)(batch).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_start_term_is_the_error_of_the_first_frame_relative_to_the_mean_frame():
    batch, setting = solve(ShallowWater(**SMALL["shallow-water"]))
    term = build_start(setting)
    assert term(batch).abs().max() < 1e-12, "the first frame is the input"
    wrong = batch.truth.clone()
    wrong[:, 0, ..., 0] += 0.5
    wrong[:, 1:] += 7  # later frames and the velocities do not count
    wrong[:, 0, ..., 1:] += 7
    mean_frame = batch.truth.square().sum(dim=(1, 2, 3, 4)).div(4).sqrt()
    torch.testing.assert_close(term(batch._replace(prediction=wrong)), 0.5 * 8 / mean_frame)


def test_the_total_term_sees_only_what_is_lost_or_gained():
    batch, setting = solve(ShallowWater(points=8, frames=4, outputs="h"))
    term = build_total(setting)
    assert term(batch._replace(prediction=batch.truth.flip(2))).max() < 1e-12
    torch.testing.assert_close(term(batch._replace(prediction=1.02 * batch.truth)), torch.full((2,), 0.02).double())


def test_training_with_the_residual_ends_nearer_to_the_equation():
    data = make_set(DiffusionSorption(points=32, frames=11), samples=24)

    def train_and_measure(terms: dict[str, float]) -> float:
        torch.manual_seed(0)
        surrogate = Surrogate.build("fno", data, n_modes=4, hidden_channels=8)
        settings = TrainingSettings(epochs=40, batch_size=8, learning_rate=5e-3, schedule="one-cycle", terms=terms)
        train(surrogate, data, data, settings)
        scale = surrogate.input_normalizer, surrogate.output_normalizer
        term = build_residual(Setting(data.grid, surrogate.times, *scale, data.equation))
        return term(Fields(surrogate.predict(data.inputs), data.outputs, data.inputs, torch.ones(24))).mean().item()

    assert train_and_measure({"residual": 1.0}) < 0.5 * train_and_measure({})


@pytest.mark.parametrize(
    ("equation", "terms", "message"),
    [
        (None, {"residual": 1.0}, r"needs the equation that the data solve, and they name none.*data\.equation"),
        (ShallowWater(), {"residual": 1.0}, "needs the fields of the equation.*the data have 1 → 1"),
        (Darcy(points=8), {"start": 1.0}, "needs outputs that begin with the input: several times.*got 1 from t = 0"),
        (AllenCahn(), {"h2": 1.0}, r"unknown term 'h2' in training\.terms; there is h1, start, total, residual"),
    ],
)
def test_terms_that_the_data_do_not_allow_are_named(equation, terms, message):
    data = make_data()
    times = (0.0,) if isinstance(equation, Darcy) else tuple(data.times.tolist())
    one = Normalizer((1.0,), (1.0,))
    with pytest.raises(InputError, match=message):
        build_terms(terms, Setting(data.grid, times, one, one, equation))


def test_depths_alone_have_no_residual_and_the_error_says_so():
    equation = ShallowWater(outputs="h", bathymetry="random", points=8)
    one, two = Normalizer((1.0,), (1.0,)), Normalizer((1.0, 0.0), (1.0, 1.0))
    with pytest.raises(InputError, match="the residual needs the velocities"):
        build_residual(Setting(equation.grid, tuple(equation.times.tolist()), two, one, equation))


def test_times_that_are_not_even_have_no_residual():
    one = Normalizer((1.0,), (1.0,))
    with pytest.raises(InputError, match="needs evenly spaced times from t = 0"):
        build_residual(Setting(AllenCahn().grid, (0.0, 0.1, 0.5), one, one, AllenCahn()))


def test_data_in_memory_name_no_equation():
    data = make_data()
    with pytest.raises(InputError, match="they name none"):
        train(make_surrogate(), data, data, TrainingSettings(epochs=1, batch_size=8, terms={"residual": 1.0}))
