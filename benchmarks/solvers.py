"""Error against time of each solver, beside the tool that a person would use, on one machine in one run.

    python benchmarks/solvers.py [-o results/solvers-cpu.json]

Each curve varies the setting that trades accuracy for time. Errors are relative L2 over all frames against a reference
that is finer in that setting; times are seconds per sample of a batch. Peers solve the same discretisation one sample
at a time: scipy's DOP853 and LSODA in Fourier space, scipy's BDF for diffusion–sorption, a sparse direct solve for
Darcy. The peer of shallow water is Clawpack, in shallow_water_reference.py.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.sparse import diags
from scipy.sparse.linalg import spsolve
from torch import Tensor

from svdno.environment import describe_environment
from svdno.equations import AllenCahn, Darcy, DiffusionReaction, DiffusionSorption, Equation, ShallowWater

Curve = dict[str, Any]


def time_solve(equation: Equation, a: Tensor) -> tuple[Tensor, float]:
    """Solutions and seconds per sample, after a first small solve that loads what is needed."""
    equation.solve(a[:1])
    start = perf_counter()
    u = equation.solve(a)
    return u, (perf_counter() - start) / len(a)


def relative_error(u: Tensor, reference: Tensor) -> float:
    """The largest relative L2 error of the samples."""
    difference = torch.linalg.vector_norm((u - reference).flatten(1), dim=1)
    return (difference / torch.linalg.vector_norm(reference.flatten(1), dim=1)).max().item()


def trace(
    name: str, build: Callable[[float], Equation], settings: tuple[float, ...], finest: float, samples: int
) -> Curve:
    """Error and time of one equation over settings, against the finest one."""
    a = build(settings[0]).sample_inputs(samples, seed=0)
    reference = build(finest).solve(a)
    points = []
    for setting in settings:
        u, seconds = time_solve(build(setting), a)
        points.append({"setting": setting, "error": relative_error(u, reference), "seconds": seconds})
    return {"equation": name, "samples": samples, "finest": finest, "points": points}


def add_peer(curve: Curve, tool: str, solve: Callable[[Tensor], Tensor], equation: Equation, finest: Equation) -> Curve:
    """Time the peer on two samples and compare it with our default on the same ones."""
    a = equation.sample_inputs(2, seed=0)
    start = perf_counter()
    theirs = torch.stack([solve(sample) for sample in a])
    seconds = (perf_counter() - start) / len(a)
    reference = finest.solve(a)
    many = equation.sample_inputs(curve["samples"], seed=0)
    ours, our_seconds = time_solve(equation, many)
    curve["peer"] = {
        "tool": tool,
        "error": relative_error(theirs, reference),
        "seconds": seconds,
        "our_error": relative_error(ours[:2], reference),
        "our_seconds": our_seconds,
        "faster": seconds / our_seconds,
    }
    return curve


def solve_spectral(
    equation: AllenCahn | DiffusionReaction, length: float, method: str, react: Callable[[Any], Any]
) -> Any:
    """A solver by one of scipy's methods of the Fourier discretisation."""

    def solve(a: Tensor) -> Tensor:
        n = a.shape[0]
        k = np.fft.rfftfreq(n, d=length / n) * 2 * np.pi

        def slope(t: float, u: np.ndarray) -> np.ndarray:
            return equation.diffusion * np.fft.irfft(-(k**2) * np.fft.rfft(u), n) + react(u)

        times = equation.times.numpy()
        found = solve_ivp(slope, (0, times[-1]), a[:, 0].numpy(), method, times, rtol=1e-7, atol=1e-9)
        return torch.from_numpy(found.y.T.copy()).unsqueeze(-1)

    return solve


def solve_sorption(equation: DiffusionSorption) -> Callable[[Tensor], Tensor]:
    """A solver by BDF, with the band of the Jacobian known, of second-order differences written here once more."""
    D, exponent = equation.diffusion, equation.freundlich_exponent
    factor = (1 - equation.porosity) / equation.porosity * equation.density * equation.freundlich_coefficient * exponent

    def slope(t: float, u: np.ndarray) -> np.ndarray:
        h = 1 / len(u)
        outside = u[-1] * (D / h - 0.5) / (D / h + 0.5)
        wide = np.concatenate([[2 - u[0]], u, [outside]])
        retardation = 1 + factor * (np.maximum(u, 0) + 1e-6) ** (exponent - 1)
        return D / retardation * (wide[2:] - 2 * u + wide[:-2]) / h**2

    def solve(a: Tensor) -> Tensor:
        n, times = a.shape[0], equation.times.numpy()
        band = diags([1.0, 1.0, 1.0], [-1, 0, 1], shape=(n, n))
        start = a[:, 0].numpy()
        found = solve_ivp(slope, (0, times[-1]), start, "BDF", times, rtol=1e-7, atol=1e-9, jac_sparsity=band)
        return torch.from_numpy(found.y.T.copy()).unsqueeze(-1)

    return solve


def solve_directly(a: Tensor) -> Tensor:
    """Darcy flow by a sparse direct solve of the finite volumes, assembled here once more."""
    n = a.shape[0]
    medium = a[..., 0].numpy()
    x, y = (2 * m[:-1] * m[1:] / (m[:-1] + m[1:]) * n**2 for m in (medium, medium.T))
    diagonal = np.zeros((n, n))
    for faces, view in ((x, diagonal), (y, diagonal.T)):
        view[1:] += faces
        view[:-1] += faces
    for view, m in ((diagonal, medium), (diagonal.T, medium.T)):
        view[0] += 2 * m[0] * n**2
        view[-1] += 2 * m[-1] * n**2
    beside = np.zeros((n, n))
    beside[:, :-1] = y.T
    bands = [diagonal.ravel(), -x.ravel(), -x.ravel(), -beside.ravel()[:-1], -beside.ravel()[:-1]]
    matrix = diags(bands, [0, n, -n, 1, -1], format="csc")
    return torch.from_numpy(spsolve(matrix, np.ones(n * n))).reshape(1, n, n, 1)


def trace_resolution(samples: int, points: tuple[int, ...], finest: int) -> Curve:
    """Error and time of shallow water over the number of cells, against the finest grid averaged to each."""
    reference = ShallowWater(points=finest, outputs="h")
    truth = reference.solve(reference.sample_inputs(samples, seed=0))[..., 0]
    curve = []
    for n in points:
        equation = ShallowWater(points=n, outputs="h")
        u, seconds = time_solve(equation, equation.sample_inputs(samples, seed=0))
        averaged = torch.nn.functional.avg_pool2d(truth, finest // n)
        curve.append({"setting": n, "error": relative_error(u[..., 0], averaged), "seconds": seconds})
    return {"equation": "shallow-water", "samples": samples, "finest": finest, "points": curve, "peer": None}


def measure_all() -> list[Curve]:
    """The curves of the equations with a peer in scipy."""
    steps = (2e-2, 1e-2, 5e-3, 2.5e-3)
    allen_cahn = trace("allen-cahn", lambda h: AllenCahn(max_step=h), steps, 5e-4, samples=32)
    reaction = trace(
        "diffusion-reaction", lambda h: DiffusionReaction(first_step=h), (4e-3, 2e-3, 1e-3, 5e-4), 5e-5, samples=32
    )
    sorption = trace(
        "diffusion-sorption", lambda e: DiffusionSorption(tolerance=e), (1e-3, 1e-4, 1e-5, 1e-6), 1e-9, samples=32
    )
    darcy = trace("darcy", lambda e: Darcy(tolerance=e), (1e-2, 1e-4, 1e-7, 1e-10), 1e-13, samples=32)
    logistic = solve_spectral(DiffusionReaction(), 1.0, "LSODA", lambda u: u * (1 - u))
    phases = solve_spectral(AllenCahn(), 2.0, "DOP853", lambda u: 5 * (u - u**3))
    return [
        add_peer(allen_cahn, "scipy DOP853, rtol 1e-7", phases, AllenCahn(), AllenCahn(max_step=5e-4)),
        add_peer(
            reaction, "scipy LSODA, rtol 1e-7, 256 points", logistic, DiffusionReaction(points=256),
            DiffusionReaction(points=256, first_step=5e-5),
        ),
        add_peer(
            sorption, "scipy BDF, rtol 1e-7", solve_sorption(DiffusionSorption()), DiffusionSorption(),
            DiffusionSorption(tolerance=1e-9),
        ),
        trace_resolution(4, (32, 64, 128), 512),
        add_peer(darcy, "scipy sparse direct", solve_directly, Darcy(), Darcy(tolerance=1e-13)),
    ]  # fmt: skip


def main() -> None:
    """Measure, print, and write the record where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the record")
    output = parser.parse_args().output
    curves = measure_all()
    for curve in curves:
        print(curve["equation"])
        for point in curve["points"]:
            print(f"  {point['setting']:8.1e}  error {point['error']:.1e}  {1e3 * point['seconds']:8.2f} ms per sample")
        peer = curve["peer"]
        if peer is None:
            continue
        print(
            f"  {peer['tool']}: error {peer['error']:.1e} in {1e3 * peer['seconds']:.0f} ms; "
            f"ours {peer['our_error']:.1e} in {1e3 * peer['our_seconds']:.2f} ms: {peer['faster']:.0f} times faster"
        )
    record = {"command": "python benchmarks/solvers.py", "environment": describe_environment(), "curves": curves}
    if output:
        output.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
