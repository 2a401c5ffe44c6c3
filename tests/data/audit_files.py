"""What the tests of the audit share: small settings, a file of any fields, and findings in short."""

from pathlib import Path

import h5py
import numpy as np

from svdno.data.audit import Audit
from svdno.data.hdf5 import Contents, create_file, write_samples

SMALL = {"points": 64, "frames": 21, "max_step": 0.02}


def found(audit: Audit) -> dict[str, tuple[str, int]]:
    """Severity and number of samples of each check that found something."""
    return {finding.check: (finding.severity, finding.count) for finding in audit.findings}


def write_groups(path: Path, fields: np.ndarray, attributes: dict[str, str]) -> None:
    """A file of the layout of shallow-water, fields (samples, times, x, y, 1)."""
    samples, times, n, _, _ = fields.shape
    axis = (np.arange(n) + 0.5) * 5 / n - 2.5
    create_file(path, Contents("groups", samples, (axis, axis), np.linspace(0, 1, times), 1, 1, attributes))
    with h5py.File(path, "r+") as file:
        write_samples(file, "groups", 0, fields[:, 0], fields)
