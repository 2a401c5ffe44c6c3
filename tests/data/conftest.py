"""Small files as this package writes them, to be spoilt and inspected."""

import shutil
from pathlib import Path

import h5py
import pytest
import torch

from svdno.data import generate
from svdno.data.audit import inspect_file
from svdno.recipe import DataSettings
from tests.data.audit_files import SMALL


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> dict[str, Path]:
    """Files as this package writes them."""
    folder = tmp_path_factory.mktemp("clean")
    for name in ("allen-cahn", "diffusion-reaction"):
        generate.generate(DataSettings(name, samples=40, parameters=SMALL), folder / f"{name}.h5", torch.device("cpu"))
    return {path.stem: path for path in folder.iterdir()}


@pytest.fixture
def spoil(clean, tmp_path):
    """Change the solutions of a clean copy in place, and inspect it."""

    def inspect_spoilt(change, name="allen-cahn"):
        path = tmp_path / "spoilt.h5"
        shutil.copy(clean[name], path)
        with h5py.File(path, "r+") as file:
            tensor = file["tensor"][:]
            change(tensor)
            file["tensor"][:] = tensor
        return inspect_file(path)

    return inspect_spoilt
