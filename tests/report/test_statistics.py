"""Statistics against cases worked out by hand, brute force and numerical integration."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special, stats

from svdno.errors import InputError
from svdno.report.statistics import (
    Interval,
    compare,
    correct_for_many,
    estimate_mean,
    improvement,
    paired_t_test,
    signed_rank_test,
)


def integrate_t_tails(t: float, freedom: int) -> float:
    """2 ∫_t^∞ of Student's density, written out."""
    scale = special.gamma((freedom + 1) / 2) / (np.sqrt(freedom * np.pi) * special.gamma(freedom / 2))
    density = lambda x: scale * (1 + x * x / freedom) ** (-(freedom + 1) / 2)  # noqa: E731
    return 2 * integrate.quad(density, t, np.inf)[0]


def enumerate_signed_ranks(differences: np.ndarray) -> float:
    """The share of all 2ⁿ assignments of signs whose smaller rank sum is at most the one seen."""
    ranks = np.abs(differences).argsort().argsort() + 1
    total, seen = ranks.sum(), ranks[differences > 0].sum()
    sums = [
        sum(r for r, plus in zip(ranks, signs, strict=True) if plus) for signs in product((0, 1), repeat=len(ranks))
    ]
    return float(np.mean([min(s, total - s) <= min(seen, total - seen) for s in sums]))


def test_the_interval_of_1_2_3_is_2_plus_minus_4_303_over_root_3():
    # s = 1, and with two degrees of freedom t_p = (2p − 1)/√(2p(1 − p)) in closed form
    t = 0.95 / np.sqrt(2 * 0.975 * 0.025)
    interval = estimate_mean([1.0, 2.0, 3.0])
    assert (interval.mean, interval.count) == (2.0, 3)
    assert interval.half_width == pytest.approx(t / np.sqrt(3), rel=1e-12)


def test_the_interval_of_two_seeds_comes_from_the_cauchy_distribution():
    interval = estimate_mean([0.0, 2.0], level=0.9)
    assert interval.half_width == pytest.approx(np.tan(0.45 * np.pi), rel=1e-12)  # s/√n = 1


def test_the_interval_covers_the_truth_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(5.0, 2.0, (4000, 10))
    intervals = [estimate_mean(row) for row in draws]
    covered = np.mean([abs(i.mean - 5.0) < i.half_width for i in intervals])
    assert covered == pytest.approx(0.95, abs=0.015)


def test_one_seed_has_no_interval_and_says_so():
    interval = estimate_mean([0.0037])
    assert interval == Interval(0.0037, None, 1)
    assert interval.format(100.0) == "0.37 (1 seed, no interval)"


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(0.003701, 0.00042, 10), "0.37 ± .042"),
        (Interval(0.0255, 0.0003, 10), "2.55 ± .030"),
        (Interval(0.000637, 0.00007, 10), "0.064 ± .0070"),
        (Interval(0.123, 0.0456, 3), "12 ± 4.6"),
        (Interval(3.21, 1.234, 3), "321 ± 123"),
        (Interval(0.0037, 0.0, 3), "0.37 ± 0"),
        (Interval(0.0037, 1e-15, 3), "0.37 ± 0"),
        (Interval(0.0, 0.0, 3), "0 ± 0"),
    ],
)
def test_intervals_are_written_as_in_the_paper(interval, text):
    assert interval.format(100.0) == text


def test_the_t_test_of_1_2_3_has_a_closed_form():
    # t = √12, and with two degrees of freedom p = 1 − t/√(2 + t²)
    assert paired_t_test([1.0, 2.0, 3.0]) == pytest.approx(1 - np.sqrt(12 / 14), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_t_test_agrees_with_integration_and_with_scipy(seed):
    a, b = np.random.default_rng(seed).lognormal(size=(2, 12))
    t = (a - b).mean() / ((a - b).std(ddof=1) / np.sqrt(12))
    assert paired_t_test(a - b) == pytest.approx(integrate_t_tails(abs(t), 11), rel=1e-7)
    assert paired_t_test(a - b) == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-10)


def test_differences_without_spread_are_certain_or_no_difference_at_all():
    assert paired_t_test([0.5] * 8) == 0.0
    assert paired_t_test([0.0] * 8) == signed_rank_test([0.0] * 8) == 1.0


def test_six_differences_of_one_sign_have_a_signed_rank_p_of_2_in_64():
    assert signed_rank_test([1, 2, 3, 4, 5, 6]) == 2 / 64
    assert signed_rank_test([-1, 2, 3, 4, 5, 6]) == 4 / 64
    assert signed_rank_test([1, 2, 3, 4, 5, 6, 0, 0]) == 2 / 64


@pytest.mark.parametrize("seed", range(5))
def test_the_signed_rank_test_counts_all_assignments_of_signs(seed):
    differences = np.random.default_rng(seed).normal(0.4, 1.0, 9)
    assert signed_rank_test(differences) == pytest.approx(enumerate_signed_ranks(differences), rel=1e-12)


def test_holm_multiplies_by_the_tests_that_are_left_and_never_decreases():
    assert correct_for_many([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert correct_for_many([0.5, 0.6]) == [1.0, 1.0]
    assert correct_for_many([0.2]) == [0.2]
    assert correct_for_many([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closed_test_of_bonferroni(p):
    """p̃_i = the largest min(1, |S| · min_{j∈S} p_j) over all sets of hypotheses S that contain i."""
    sets = [s for size in range(1, len(p) + 1) for s in combinations(range(len(p)), size)]
    expected = [max(min(1, len(s) * min(p[j] for j in s)) for s in sets if i in s) for i in range(len(p))]
    assert correct_for_many(p) == pytest.approx(expected)


def test_improvement_is_relative_to_the_other_error():
    assert improvement(0.37, 0.49) == pytest.approx(100 * 0.12 / 0.49)
    assert improvement(2.0, 1.0) == -100.0


def test_seeds_are_averaged_so_that_repeating_them_adds_no_evidence():
    errors, others = np.random.default_rng(1).lognormal(size=(2, 3, 20))
    once = compare(errors, others)
    again = compare(np.tile(errors, (10, 1)), others.mean(axis=0))
    assert once.samples == 20
    assert (again.t_test, again.wilcoxon) == pytest.approx((once.t_test, once.wilcoxon))
    assert once.t_test == pytest.approx(stats.ttest_rel(errors.mean(0), others.mean(0)).pvalue)
    assert once.wilcoxon == pytest.approx(stats.wilcoxon(errors.mean(0), others.mean(0)).pvalue)


def test_a_better_method_improves_and_the_tests_see_it():
    others = np.random.default_rng(2).lognormal(size=(4, 50))
    result = compare(0.9 * others, others)
    assert result.improvement == pytest.approx(10.0)
    assert max(result.t_test, result.wilcoxon) < 1e-4
    assert compare(others, 0.9 * others).improvement < 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: estimate_mean([]), r"needs one value for each seed, got values of shape \(0,\)"),
        (lambda: estimate_mean([1.0, np.nan]), "values must be finite, got nan. Leave out runs that diverged"),
        (lambda: estimate_mean([1.0, 2.0], level=95.0), "`level` must be between 0 and 1, got 95.0. Use 0.95"),
        (lambda: compare(np.ones(8), np.ones(9)), "same samples, got 8 and 9. Evaluate both methods on one test set"),
        (lambda: compare(np.ones((2, 2, 8)), np.ones(8)), r"must be \(samples,\) or \(seeds, samples\)"),
        (lambda: paired_t_test([1.0]), "needs at least 2 samples, got 1"),
        (lambda: signed_rank_test(np.arange(1.0, 6.0)), "at least 6 samples, with fewer it never falls below 0.05"),
        (lambda: improvement(1.0, 0.0), "relative to a positive error, got 0.0"),
        (lambda: correct_for_many([0.1, 1.2]), "p-values must be between 0 and 1, got 1.2"),
    ],
)
def test_what_cannot_be_tested_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
