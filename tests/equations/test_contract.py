"""What every equation keeps, whatever it is."""

import pytest
import torch

from svdno.equations import EQUATIONS, Equation
from svdno.errors import InputError

SHORT = {"frames": 4, "end": 0.1}
SMALL = {
    "allen-cahn": {"points": 32, **SHORT},
    "diffusion-reaction": {"points": 32, **SHORT},
    "diffusion-sorption": {"points": 32, **SHORT},
    "shallow-water": {"points": 16, "bathymetry": "random", **SHORT},
    "darcy": {"points": 16},
}

each_equation = pytest.mark.parametrize("name", EQUATIONS)


def make(name: str) -> Equation:
    return EQUATIONS[name](**SMALL[name])


@each_equation
def test_fields_have_the_shape_of_grid_times_and_names(name):
    equation = make(name)
    a = equation.sample_inputs(2, seed=0)
    space = equation.grid.shape
    assert a.shape == (2, *space, len(equation.input_fields))
    assert equation.solve(a).shape == (2, len(equation.times), *space, len(equation.output_fields))
    assert a.dtype == equation.solve(a).dtype == torch.float64


@each_equation
def test_more_points_than_anything_holds_are_refused(name):
    with pytest.raises(InputError, match="`points` must be at most 10,000,000, got 100,000,000,000"):
        EQUATIONS[name](points=10**11)


@each_equation
def test_sample_depends_on_its_seed_and_index_alone(name):
    equation = make(name)
    six = equation.sample_inputs(6, seed=5)
    assert torch.equal(six[:2], equation.sample_inputs(2, seed=5))
    assert torch.equal(six[4:], equation.sample_inputs(2, seed=5, first=4))
    assert not torch.equal(six, equation.sample_inputs(6, seed=6))


@each_equation
def test_solution_of_a_sample_does_not_depend_on_its_batch(name):
    equation = make(name)
    a = equation.sample_inputs(3, seed=0)
    torch.testing.assert_close(equation.solve(a)[1:2], equation.solve(a[1:2]), rtol=0, atol=1e-12)


@each_equation
def test_residual_is_larger_on_noise_than_on_a_solution(name):
    equation = make(name)
    a = equation.sample_inputs(2, seed=0)
    u = equation.solve(a)
    noisy = u + 0.1 * torch.randn(u.shape, dtype=u.dtype, generator=torch.Generator().manual_seed(0))
    assert equation.residual(noisy, a).norm() > 2 * equation.residual(u, a).norm()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@each_equation
def test_cpu_and_gpu_agree(name):
    equation = make(name)
    a = equation.sample_inputs(3, seed=0)
    torch.testing.assert_close(equation.solve(a.cuda()).cpu(), equation.solve(a), rtol=0, atol=1e-10)
