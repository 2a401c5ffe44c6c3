"""RODAS4: implicit integration of stiff u_t = f(u) whose Jacobian ∂f/∂u is tridiagonal, with error control.

A Rosenbrock method of order 4 with an embedded one of order 3, L-stable and stiffly accurate, with the coefficients of
Hairer and Wanner (1996, section IV.7). A step solves six linear systems with one matrix, without Newton iterations.
The systems are solved by cyclic reduction, in about log₂ n operations on the whole batch.

Each sample has its own steps, and only operations whose result for one sample does not depend on the others are used:
elementwise arithmetic, square roots and maxima.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from svdno.errors import InputError
from svdno.solvers.failures import name_samples

GAMMA = 0.25
# Stage i evaluates f at u + Σ_j STATE_WEIGHTS[i][j] k_j; the last two stages are solutions of order 3 and 4.
STATE_WEIGHTS: tuple[tuple[float, ...], ...] = (
    (),
    (1.544,),
    (0.9466785280815826, 0.2557011698983284),
    (3.314825187068521, 2.896124015972201, 0.9986419139977817),
    (1.221224509226641, 6.019134481288629, 12.53708332932087, -0.6878860361058950),
    (1.221224509226641, 6.019134481288629, 12.53708332932087, -0.6878860361058950, 1.0),
)
# ... and adds Σ_j SLOPE_WEIGHTS[i][j] k_j to h f.
SLOPE_WEIGHTS: tuple[tuple[float, ...], ...] = (
    (),
    (-5.6688,),
    (-2.430093356833875, -0.2063599157091915),
    (-0.1073529058151375, -9.594562251023355, -20.47028614809616),
    (7.496443313967647, -10.24680431464352, -33.99990352819905, 11.70890893206160),
    (8.083246795921522, -7.981132988064893, -31.52159432874371, 16.31930543123136, -6.058818238834054),
)
SAFETY, SHRINK, GROW = 0.9, 0.2, 6.0
# A sample that needs more steps than this between two output times does not get there.
MAX_STEPS = 10_000


class Tridiagonal(NamedTuple):
    """Matrices with entries lower[i] at (i+1, i), diagonal[i] at (i, i) and upper[i] at (i, i+1), one per sample."""

    lower: Float[Tensor, "*batch n-1"]
    diagonal: Float[Tensor, "*batch n"]
    upper: Float[Tensor, "*batch n-1"]


class Level(NamedTuple):
    """What eliminates the even unknowns of a system, leaving a tridiagonal one for the odd unknowns.

    odd rows:  d_i ← d_i − left d_{i−1} − right d_{i+1}
    even rows: x_i = inverse d_i − below x_{i−1} − above x_{i+1}
    """

    left: Tensor
    right: Tensor
    below: Tensor
    above: Tensor
    inverse: Tensor


def factorize(matrix: Tridiagonal) -> list[Level]:
    """Eliminate every other unknown until none is left; stable without pivots for diagonally dominant matrices."""
    lower, diagonal, upper = matrix
    levels: list[Level] = []
    while diagonal.shape[-1] > 0:
        odd = diagonal.shape[-1] // 2
        inverse = 1 / diagonal[..., ::2]
        # Couplings of odd rows to the even unknowns on their sides, and of even rows to the odd ones.
        odd_left, even_left = lower[..., ::2], lower[..., 1::2]
        even_right, odd_right = upper[..., ::2], upper[..., 1::2]
        left, right = odd_left * inverse[..., :odd], odd_right * inverse[..., 1:]
        levels.append(Level(left, right, even_left * inverse[..., 1:], even_right * inverse[..., :odd], inverse))
        diagonal = diagonal[..., 1::2] - left * even_right
        diagonal[..., : right.shape[-1]] -= right * even_left  # the last odd row may have no right neighbour
        rest = max(odd - 1, 0)
        lower, upper = -left[..., 1:] * even_left[..., :rest], -right[..., :rest] * even_right[..., 1:]
    return levels


def solve_factorized(levels: list[Level], d: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    """Solve for the right-hand side d: reduce it level by level, then substitute back."""
    reduced = [d]
    for level in levels[:-1]:
        even, odd = reduced[-1][..., ::2], reduced[-1][..., 1::2]
        odd = torch.addcmul(odd, level.left, even[..., : odd.shape[-1]], value=-1)
        odd[..., : level.right.shape[-1]].addcmul_(level.right, even[..., 1:], value=-1)
        reduced.append(odd)
    x = d[..., :0]
    for level, d in zip(reversed(levels), reversed(reduced), strict=True):
        odd, x = x, torch.empty_like(d)
        even = d[..., ::2] * level.inverse
        even[..., 1:].addcmul_(level.below, odd[..., : level.below.shape[-1]], value=-1)
        even[..., : odd.shape[-1]].addcmul_(level.above, odd, value=-1)
        x[..., ::2], x[..., 1::2] = even, odd
    return x


def combine(start: Tensor, weights: tuple[float, ...], terms: list[Tensor]) -> Tensor:
    """Add Σ_j weights[j] terms[j]."""
    for weight, term in zip(weights, terms, strict=True):
        start = torch.add(start, term, alpha=weight)
    return start


def step(
    u: Float[Tensor, "batch n"],
    h: Float[Tensor, "batch 1"],
    slope: Callable[[Tensor], Tensor],
    jacobian: Callable[[Tensor], Tridiagonal],
) -> tuple[Float[Tensor, "batch n"], Float[Tensor, "batch n"]]:
    """One step of size h, and its estimated error: (I/γ − hJ) k_i = h f(u + Σ_j a_ij k_j) + Σ_j c_ij k_j."""
    J = jacobian(u)
    levels = factorize(Tridiagonal(-h * J.lower, 1 / GAMMA - h * J.diagonal, -h * J.upper))
    k: list[Tensor] = []
    state = u
    for state_weights, slope_weights in zip(STATE_WEIGHTS, SLOPE_WEIGHTS, strict=True):
        state = combine(u, state_weights, k)
        k.append(solve_factorized(levels, combine(h * slope(state), slope_weights, k)))
    return state + k[-1], k[-1]


def integrate_rodas4(
    u: Float[Tensor, "batch n"],
    slope: Callable[[Tensor], Tensor],
    jacobian: Callable[[Tensor], Tridiagonal],
    times: Float[Tensor, " times"],
    tolerance: float,
) -> list[Tensor]:
    """States at the given times, the first of which is that of `u`.

    slope: f
    jacobian: ∂f/∂u, exact
    tolerance: largest estimated error of one step, relative to 1 + |u|
    """
    states = [u]
    h = 0.01 * (1 + u.abs().amax(dim=-1, keepdim=True)) / slope(u).abs().amax(dim=-1, keepdim=True)
    for start, end in pairwise(times.tolist()):
        u, h = advance(u, h.clamp(max=end - start), end - start, slope, jacobian, tolerance)
        states.append(u)
    return states


def advance(
    u: Float[Tensor, "batch n"],
    h: Float[Tensor, "batch 1"],
    interval: float,
    slope: Callable[[Tensor], Tensor],
    jacobian: Callable[[Tensor], Tridiagonal],
    tolerance: float,
) -> tuple[Float[Tensor, "batch n"], Float[Tensor, "batch 1"]]:
    """The state after the interval and the step that suits it, from a first step of at most h."""
    left = torch.full_like(h, interval)
    for _ in range(MAX_STEPS):
        if not left.any():
            return u, h
        now = left / torch.ceil(left / h).clamp(min=1)  # even steps to the end; zero for samples that are there
        new, error = step(u, now, slope, jacobian)
        size = (error.abs() / (tolerance * (1 + u.abs()))).amax(dim=-1, keepdim=True)
        accepted = size <= 1  # not so if it is NaN
        u, left = torch.where(accepted, new, u), torch.where(accepted, left - now, left)
        change = (SAFETY / size.sqrt().sqrt()).clamp(SHRINK, GROW)
        h = torch.where(now > 0, now * torch.where(size.isnan(), SHRINK, change), h)
    raise InputError(
        f"`tolerance` {tolerance:g} cannot be met in {MAX_STEPS} steps between two output times by "
        f"{name_samples(left > 0)}. Use a larger tolerance, and check that the start is finite."
    )
