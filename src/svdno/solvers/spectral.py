"""Periodic problems in one dimension by Fourier series: u_t = L u + N(u) with constant coefficients in L."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from svdno.errors import InputError
from svdno.solvers.etdrk4 import integrate_etdrk4
from svdno.solvers.failures import name_samples


def wavenumbers(n: int, length: float, like: Tensor) -> Float[Tensor, " modes"]:
    """k = 2πm/ℓ of the modes that a real Fourier transform of n points keeps."""
    return 2 * torch.pi / length * torch.arange(n // 2 + 1, dtype=torch.float64, device=like.device)


def second_derivative(u: Float[Tensor, "*batch x"], length: float) -> Float[Tensor, "*batch x"]:
    """u_xx of periodic functions."""
    n = u.shape[-1]
    return torch.fft.irfft(-(wavenumbers(n, length, u).to(u.dtype) ** 2) * torch.fft.rfft(u), n)


def solve_semilinear(
    u: Float[Tensor, "samples x"],
    length: float,
    linear: Callable[[Tensor], Tensor],
    nonlinear: Callable[[Tensor], Tensor],
    times: Float[Tensor, " times"],
    max_step: Callable[[float], float],
) -> Float[Tensor, "samples times x"]:
    """Solutions of u_t = L u + N(u) at the given times, in float64, with ETDRK4.

    u: start fields
    length: of the period
    linear: symbol of L as a function of the wave number k
    nonlinear: N as a function of the values of u
    max_step: largest time step as a function of time
    """
    n = u.shape[-1]

    def nonlinear_modes(u_hat: Tensor) -> Tensor:
        return torch.fft.rfft(nonlinear(torch.fft.irfft(u_hat, n)))

    u_hat = torch.fft.rfft(u.to(torch.float64))
    states = integrate_etdrk4(u_hat, linear(wavenumbers(n, length, u)), nonlinear_modes, times, max_step)
    lost = ~states[-1].isfinite().all(dim=-1)
    if lost.any():
        raise InputError(
            f"A solution must stay finite, {name_samples(lost)} do not. "
            "Use smaller steps, and check that the start is finite and not too large."
        )
    return torch.fft.irfft(torch.stack(states, dim=1), n)


def trapezoidal_residual(
    u: Float[Tensor, "samples times *rest"], rate: Float[Tensor, "samples times *rest"], step: float
) -> Float[Tensor, "samples intervals *rest"]:
    """(u^{m+1} − u^m)/Δt − ½(F^m + F^{m+1}) of u_t = F(u) between consecutive times: second order in Δt."""
    return u.diff(dim=1) / step - (rate[:, 1:] + rate[:, :-1]) / 2
