"""How sure a table is: intervals over seeds, paired tests over test samples, and the correction for many tests."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from svdno.errors import InputError
from svdno.report.tables import number

Array = NDArray[np.float64]

# The smallest p-value that n signs can give is 2/2ⁿ, which is below 0.05 from here on.
FEWEST_SIGNS = 6


# A spread below this share of the mean is the rounding of float32 numbers: seeds that do not matter.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Interval:
    """Mean and half the width of its confidence interval, which one value alone does not have."""

    mean: float
    half_width: float | None
    count: int

    def format(self, factor: float = 1.0) -> str:
        """Write "0.37 ± .042": half the width with two significant digits, the mean to the first of them.

        The mean keeps two significant digits of its own where the interval is wide.
        """
        mean = factor * self.mean
        if self.half_width is None:
            return f"{number(mean)} (1 seed, no interval)"
        half = factor * self.half_width
        if half <= ROUNDING * abs(mean):
            return f"{number(mean)} ± 0"
        decimals = max(_second_decimal(half), 0)
        width = f"{half:.{decimals}f}"
        return f"{mean:.{max(decimals - 1, _second_decimal(mean), 0)}f} ± {width.removeprefix('0')}"


@dataclass(frozen=True)
class Comparison:
    """One method against another on the same test samples; the tests are two-sided.

    improvement: of the mean error in percent, positive where the first method is better
    t_test, wilcoxon: p-values of the paired t-test and of the signed-rank test
    """

    improvement: float
    t_test: float
    wilcoxon: float
    samples: int


def estimate_mean(values: ArrayLike, level: float = 0.95) -> Interval:
    """Mean over seeds and its confidence interval, x̄ ± t_{(1+level)/2, n−1} · s/√n."""
    x = _read(values, "values")
    if x.ndim != 1 or len(x) == 0:
        raise InputError(f"a mean needs one value for each seed, got values of shape {x.shape}.")
    if not 0 < level < 1:
        raise InputError(f"`level` must be between 0 and 1, got {level}. Use 0.95 for a 95 % interval.")
    if len(x) == 1:
        return Interval(float(x[0]), None, 1)
    quantile = float(stats.t.ppf((1 + level) / 2, len(x) - 1))
    return Interval(float(x.mean()), quantile * float(x.std(ddof=1)) / math.sqrt(len(x)), len(x))


def compare(errors: ArrayLike, others: ArrayLike) -> Comparison:
    """Compare the errors of two methods, each (samples,) or (seeds, samples), which are averaged over seeds first.

    The same sample under several seeds is one observation: seeds repeat the training, not the problem.
    """
    ours, theirs = _average_over_seeds(errors), _average_over_seeds(others)
    if len(ours) != len(theirs):
        raise InputError(
            f"a paired test needs the errors of the same samples, got {len(ours)} and {len(theirs)}. "
            "Evaluate both methods on one test set."
        )
    return Comparison(
        improvement(float(ours.mean()), float(theirs.mean())),
        paired_t_test(ours - theirs),
        signed_rank_test(ours - theirs),
        len(ours),
    )


def improvement(error: float, other: float) -> float:
    """How much smaller an error is than another one, in percent: 100 · (other − error) / other."""
    if not other > 0:
        raise InputError(f"an improvement is relative to a positive error, got {other}.")
    return 100 * (other - error) / other


def paired_t_test(differences: ArrayLike) -> float:
    """Two-sided p-value of mean difference 0: Student's t = d̄ / (s/√n) with n − 1 degrees of freedom."""
    d = _read(differences, "differences")
    if len(d) < 2:
        raise InputError(f"a paired t-test needs at least 2 samples, got {len(d)}.")
    spread = d.std(ddof=1) / math.sqrt(len(d))
    if spread == 0:  # the same everywhere: t is 0/0 or infinite
        return 0.0 if d[0] else 1.0
    return float(2 * stats.t.sf(abs(d.mean()) / spread, len(d) - 1))


def signed_rank_test(differences: ArrayLike) -> float:
    """Two-sided p-value of Wilcoxon's signed-rank test; differences of 0 have no sign and are left out."""
    d = _read(differences, "differences")
    if len(d) < FEWEST_SIGNS:
        raise InputError(
            f"a signed-rank test needs at least {FEWEST_SIGNS} samples, with fewer it never falls below 0.05; "
            f"got {len(d)}."
        )
    signed = d[d != 0]
    return float(stats.wilcoxon(signed).pvalue) if len(signed) else 1.0


def correct_for_many(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of m tests: p̃₍ᵢ₎ = max_{j ≤ i} min(1, (m − j + 1) p₍ⱼ₎), in the order of the p-values given.

    Rejecting where p̃ ≤ α keeps the chance of any false rejection among the m below α.
    """
    p = _read(p_values, "p-values")
    if not ((p >= 0) & (p <= 1)).all():
        raise InputError(f"p-values must be between 0 and 1, got {p[(p < 0) | (p > 1)][0]:g}.")
    order = np.argsort(p)
    corrected = np.empty_like(p)
    corrected[order] = np.maximum.accumulate(np.minimum(1, np.arange(len(p), 0, -1) * p[order]))
    return corrected.tolist()


def _second_decimal(value: float) -> int:
    """The decimal place of a number's second significant digit, at most that of 1e-12."""
    return 1 - math.floor(math.log10(max(abs(value), 1e-12)))


def _average_over_seeds(errors: ArrayLike) -> Array:
    values = _read(errors, "errors")
    if values.ndim not in (1, 2) or not values.size:
        raise InputError(f"errors must be (samples,) or (seeds, samples), got shape {values.shape}.")
    return values if values.ndim == 1 else values.mean(axis=0)


def _read(values: ArrayLike, name: str) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}. Leave out runs that diverged.")
    return array
