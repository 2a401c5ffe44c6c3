"""One pass over a data file: of each sample, the little that the checks need."""

import hashlib
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from svdno.data.hdf5 import Contents
from svdno.data.reader import read_samples

PROJECTIONS = 16
# What is read at once, in bytes as float64.
CHUNK_BYTES = 2**27


@dataclass(frozen=True)
class Survey:
    """What one pass over the file finds out of each sample; ranges are those of the fields.

    still: how many of the last intervals pass without motion
    sketches: k random projections of the input divided by √k, which keep distances within a factor two
    digests: of the inputs
    marks, output_norms: one random projection of the output, and its norm
    """

    nan: np.ndarray
    infinite: np.ndarray
    constant: np.ndarray
    start_differs: np.ndarray
    still: np.ndarray
    norms: np.ndarray
    sketches: np.ndarray
    digests: np.ndarray
    marks: np.ndarray
    output_norms: np.ndarray
    input_ranges: np.ndarray
    output_ranges: np.ndarray


def survey_file(path: Path, contents: Contents, frames: int) -> Survey:
    """Read the file once, in chunks."""
    points = prod(contents.space)
    inputs, outputs = points * contents.input_fields, points * frames * contents.output_fields
    chunk = max(1, CHUNK_BYTES // (8 * (inputs + outputs)))
    rng = np.random.default_rng(0)
    projection = rng.standard_normal((inputs, PROJECTIONS)) / np.sqrt(PROJECTIONS)
    direction = rng.standard_normal(outputs)
    parts = [
        _survey_chunk(*read_samples(path, first, min(first + chunk, contents.samples)), projection, direction)
        for first in range(0, contents.samples, chunk)
    ]
    joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0] if not key.endswith("ranges")}
    for key in ("input_ranges", "output_ranges"):
        lows, highs = np.moveaxis(np.stack([part[key] for part in parts]), -1, 0)
        joined[key] = np.stack([lows.min(axis=0), highs.max(axis=0)], axis=-1)
    return Survey(**joined)


def _survey_chunk(a: np.ndarray, u: np.ndarray, projection: np.ndarray, direction: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of a Survey for some samples; those that are not finite have NaN for norms and projections."""
    flat_a, flat_u = a.reshape(len(a), -1), u.reshape(len(u), -1)
    broken = ~(np.isfinite(flat_a).all(axis=1) & np.isfinite(flat_u).all(axis=1))[:, None]
    wide_a, wide_u = (np.where(broken, np.nan, flat.astype(np.float64)) for flat in (flat_a, flat_u))
    steady = u.shape[1] == 1
    return {
        "nan": np.isnan(flat_a).any(axis=1) | np.isnan(flat_u).any(axis=1),
        "infinite": np.isinf(flat_a).any(axis=1) | np.isinf(flat_u).any(axis=1),
        "constant": flat_u.min(axis=1) == flat_u.max(axis=1),
        "start_differs": np.full(len(a), False) if steady else _differs(a[..., 0], u[:, 0, ..., 0]),
        "still": _count_still(u),
        "norms": np.linalg.norm(wide_a, axis=1),
        "sketches": wide_a @ projection,
        "digests": np.array([hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest() for row in a]),
        "marks": wide_u @ direction,
        "output_norms": np.linalg.norm(wide_u, axis=1),
        "input_ranges": _ranges(a),
        "output_ranges": _ranges(u),
    }


def _differs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Which samples differ; NaN equals NaN."""
    return ~((a == b) | (np.isnan(a) & np.isnan(b))).reshape(len(a), -1).all(axis=1)


def _count_still(u: np.ndarray) -> np.ndarray:
    """Intervals at the end in which no value changes by more than the rounding of float32."""
    with np.errstate(invalid="ignore"):
        change = np.abs(np.diff(u, axis=1)).max(axis=tuple(range(2, u.ndim)))
        rounding = np.finfo(np.float32).eps * np.abs(u).reshape(len(u), -1).max(axis=1)
        still = change <= rounding[:, None]
    return np.cumprod(still[:, ::-1], axis=1).sum(axis=1)


def _ranges(fields: np.ndarray) -> np.ndarray:
    """Lowest and highest value of each field."""
    rows = fields.reshape(-1, fields.shape[-1])
    return np.stack([rows.min(axis=0), rows.max(axis=0)], axis=-1)
