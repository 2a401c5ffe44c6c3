"""Solve an equation for random inputs and keep the result as a data file."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from svdno import __version__
from svdno.data.hdf5 import write_file
from svdno.equations import EQUATIONS, Equation
from svdno.lookup import construct
from svdno.recipe import DataSettings

# Samples solved at once; results do not depend on it.
CHUNK = 128


def build_equation(name: str, parameters: dict[str, Any]) -> Equation:
    """Make the equation called `name` with the given parameters."""
    return construct("equation", EQUATIONS, name, parameters)


def find_or_generate(
    settings: DataSettings,
    folder: Path,
    device: torch.device,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> Path:
    """The data file for these settings, made if it is not in the folder yet; its name is given by what decides it."""
    identity = {
        "equation": settings.equation,
        "parameters": settings.parameters,
        "samples": settings.samples,
        "seed": settings.seed,
        "version": __version__,
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    path = folder / f"{settings.equation}-{digest}.h5"
    if path.exists():
        on_progress(settings.samples, settings.samples)
        return path
    equation = build_equation(settings.equation, settings.parameters)

    def chunks() -> Iterator[np.ndarray]:
        for first in range(0, settings.samples, CHUNK):
            count = min(CHUNK, settings.samples - first)
            a = equation.sample_inputs(count, settings.seed, first=first).to(device)
            yield equation.solve(a).cpu().numpy()
            on_progress(first + count, settings.samples)

    write_file(
        path,
        chunks(),
        samples=settings.samples,
        axis=equation.grid.axes[0].numpy(),
        times=equation.times.numpy(),
        attributes=identity,
    )
    return path
