"""The published numbers, by what can be checked of them."""

import pytest

from svdno.report.published import ERRORS, METHODS, VARIABILITY, find_error, find_improvement


def test_every_equation_has_all_methods():
    assert all(tuple(row) == METHODS for row in ERRORS.values())
    assert set(VARIABILITY) == set(ERRORS)


@pytest.mark.parametrize(
    ("equation", "label", "name", "text"),
    [
        ("shallow-water", "SVD-NO", "svdno", "0.37 ± .042"),
        ("shallow-water", "Mercer", "mercer", "0.87"),
        ("darcy", "MPNN", "mpnn", None),
        ("darcy", "tuned FNO", "tuned-fno", None),
        ("burgers", "FNO", "fno", None),
    ],
)
def test_a_number_is_found_by_label_or_by_the_name_of_the_ablation(equation, label, name, text):
    assert find_error(equation, label, name) == text


def test_the_improvement_is_over_the_best_baseline():
    assert find_improvement("allen-cahn") == pytest.approx(25.0)  # 0.06 against 0.08
    assert find_improvement("darcy") == pytest.approx(100 * (2.02 - 2.55) / 2.02)
    assert find_improvement("burgers") is None
