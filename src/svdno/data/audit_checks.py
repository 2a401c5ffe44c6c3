"""What can be wrong with a file as a whole or with single samples, whatever the equation."""

from collections.abc import Iterator

import numpy as np

from svdno.data.audit_record import Finding, name_samples
from svdno.data.hdf5 import Contents


def check_finite(nan: np.ndarray, infinite: np.ndarray) -> Iterator[Finding]:
    """Samples with values that are not numbers, or not finite ones."""
    yield from name_samples("nan", "error", "NaN", nan)
    yield from name_samples("infinite", "error", "infinite values", infinite)


def check_constant(constant: np.ndarray, ranges: np.ndarray, fields: tuple[str, ...]) -> Iterator[Finding]:
    """Samples whose output never varies, and output fields whose range (lowest, highest) over the file is one value."""
    yield from name_samples("constant", "warning", "output varies neither in space nor in time", constant)
    for name, (low, high) in zip(fields, ranges, strict=True):
        if low == high:
            yield Finding("constant", "warning", f"the field {name} is {low:g} in all samples")


def check_start(differs: np.ndarray) -> Iterator[Finding]:
    """Samples whose first frame is not the input."""
    yield from name_samples("start", "error", "first frame differs from the input", differs)


def check_times(contents: Contents, frames: int) -> Iterator[Finding]:
    """A time axis of another length than the frames; the layout `tensor` may end it with one more regular step."""
    times = len(contents.times) + len(contents.later_times)
    if times < frames:
        yield Finding("times", "error", f"{times} times for {frames} frames: the last frames have no time")
    if times > frames and not (contents.layout == "tensor" and _is_one_more_step(contents)):
        yield Finding("times", "warning", f"{times} times for {frames} frames: the last times belong to no frame")


def _is_one_more_step(contents: Contents) -> bool:
    if len(contents.later_times) != 1 or len(contents.times) < 2:
        return False
    step = (contents.times[-1] - contents.times[0]) / (len(contents.times) - 1)
    return bool(abs(contents.later_times[0] - contents.times[-1] - step) <= 0.01 * abs(step))
