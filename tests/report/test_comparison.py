"""Numbers in the tables and figures of a study, against numbers worked out apart from the package."""

import math

import numpy as np
import pytest
from scipy import stats

from svdno.report.collect import collect
from svdno.report.cost_tables import choose_peer, count_solves, tabulate_break_even, tabulate_cost, tabulate_ranks
from svdno.report.error_tables import (
    tabulate_ablations,
    tabulate_details,
    tabulate_errors,
    tabulate_linf,
    tabulate_published,
)
from svdno.report.figures import draw_ranks, find_trend
from svdno.report.sheets import Sheet
from svdno.report.solver_curves import Curves, Point
from svdno.report.studies import Study
from tests.report.made_runs import write_cell, write_comparison

CURVE = [Point(16.0, 0.001, 0.05), Point(32.0, 0.004, 0.012), Point(64.0, 0.03, 0.001)]


def read_study(root) -> Study:
    (study,) = collect([root]).studies
    return study


def column(sheet: Sheet, head: str, first: str | None = None) -> dict:
    """Label → cell of one column; of the rows of one group where there are groups."""
    rows = [row for row in sheet.rows if first is None or row[0].text == first]
    return {row[sheet.words - 1].text: row[sheet.header.index(head)] for row in rows}


def test_table_1_has_the_mean_over_seeds_and_students_interval(tmp_path):
    for seed, percent in enumerate((1.0, 2.0, 3.0)):
        write_cell(tmp_path, "allen-cahn", "svdno", seed, [percent / 100] * 6, "SVD-NO")
    cell = tabulate_errors(read_study(tmp_path)).rows[0][1]
    assert cell.value == pytest.approx(2.0)
    assert cell.half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)  # t of 2 degrees of freedom, s = 1
    assert cell.text == "2.0 ± 2.5"


def test_table_1_marks_the_best_and_the_second_of_each_equation(tmp_path):
    write_comparison(tmp_path)
    sheet = tabulate_errors(read_study(tmp_path))
    marks = {head: [cell.mark for cell in column(sheet, head).values()] for head in ("Allen–Cahn", "Darcy flow")}
    assert list(column(sheet, "Allen–Cahn")) == ["SVD-NO", "FNO", "U-Net"]
    assert marks == {"Allen–Cahn": ["best", "second", ""], "Darcy flow": ["second", "best", ""]}


def test_published_numbers_have_a_table_of_their_own_that_says_so(tmp_path):
    write_comparison(tmp_path)
    sheet = tabulate_published(read_study(tmp_path))
    texts = {label: cell.text for label, cell in column(sheet, "Darcy flow").items()}
    assert texts == {"SVD-NO": "2.55 ± .030", "FNO": "2.35", "U-Net": "50.20"}
    assert "not measured here" in sheet.note


def test_methods_that_the_paper_does_not_have_are_not_among_the_published(tmp_path):
    write_cell(tmp_path, "allen-cahn", "svdno-plus", 0, [0.01] * 6, "SVD-NO+")
    assert tabulate_published(read_study(tmp_path)) is None


def test_a_method_that_was_not_run_on_an_equation_has_an_empty_cell(tmp_path):
    write_cell(tmp_path, "allen-cahn", "svdno", 0, [0.01] * 6, "SVD-NO")
    write_cell(tmp_path, "darcy", "fno", 0, [0.01] * 6, "FNO")
    assert column(tabulate_errors(read_study(tmp_path)), "Darcy flow")["SVD-NO"].text == "–"


def test_linf_is_not_in_percent(tmp_path):
    write_cell(tmp_path, "allen-cahn", "svdno", 0, [0.01] * 6, "SVD-NO")
    assert tabulate_linf(read_study(tmp_path)).rows[0][1].value == pytest.approx(0.05)


def test_tests_agree_with_scipy_on_errors_averaged_over_seeds_and_with_holm_by_hand(tmp_path):
    errors = {label: values.mean(axis=0) for label, values in write_comparison(tmp_path, samples=20).items()}
    sheet = tabulate_details(read_study(tmp_path), "allen-cahn")
    for head, test in (("t-test p", stats.ttest_rel), ("Wilcoxon p", stats.wilcoxon)):
        p = {label: test(errors["SVD-NO"], errors[label]).pvalue for label in ("FNO", "Mercer", "U-Net")}
        smallest, middle, largest = sorted(p, key=p.get)
        first = 3 * p[smallest]
        second = max(first, 2 * p[middle])
        expected = {smallest: first, middle: second, largest: max(second, p[largest])}
        cells = column(sheet, head)
        assert {label: cells[label].value for label in p} == pytest.approx(expected)
        assert cells["SVD-NO"].text == "–"
    gain = 100 * (1 - errors["SVD-NO"].mean() / errors["FNO"].mean())
    assert column(sheet, "Gain (%)")["FNO"].value == pytest.approx(gain)


def test_details_average_median_p90_and_maximum_over_seeds(tmp_path):
    values = 100 * write_comparison(tmp_path)["FNO"]
    sheet = tabulate_details(read_study(tmp_path), "allen-cahn")
    expected = {
        "Mean": values.mean(),
        "Without start": 1.1 * values.mean(),
        "Median": np.median(values, axis=1).mean(),
        "p90": np.quantile(values, 0.9, axis=1).mean(),
        "Max": values.max(axis=1).mean(),
    }
    assert {head: column(sheet, head)["FNO"].value for head in expected} == pytest.approx(expected)


def test_too_few_samples_give_no_tests_instead_of_empty_ones(tmp_path):
    write_comparison(tmp_path, samples=4)
    assert "t-test p" not in tabulate_details(read_study(tmp_path), "allen-cahn").header


def test_ablations_stand_below_the_whole_method_with_what_was_published(tmp_path):
    write_comparison(tmp_path)
    sheet = tabulate_ablations(read_study(tmp_path))
    rows = [row for row in sheet.rows if row[0].text == "Allen–Cahn"]
    assert [row[1].text for row in rows] == ["SVD-NO", "Mercer"]
    assert [row[3].text for row in rows] == ["0.06 ± .007", "0.99"]
    assert [row[4].value for row in rows] == [2.0, 2.0]
    assert [row[6].value for row in rows] == pytest.approx([1e-5, 1e-5])


def test_there_is_no_ablation_table_without_ablations(tmp_path):
    write_cell(tmp_path, "allen-cahn", "svdno", 0, [0.01] * 6, "SVD-NO")
    assert tabulate_ablations(read_study(tmp_path)) is None


def test_the_cost_table_averages_seeds_and_converts_units(tmp_path):
    for seed, seconds in enumerate((4.0, 8.0)):
        write_cell(tmp_path, "darcy", "svdno", seed, [0.01] * 6, "SVD-NO", train_seconds=seconds)
    (row,) = tabulate_cost(read_study(tmp_path)).rows
    assert [cell.value for cell in row[2:]] == pytest.approx([1000, 5.0, 2.0, 6.0, 4.0, 1000])


@pytest.mark.parametrize(("error", "resolution"), [(0.06, 16), (0.02, 32), (0.012, 32), (0.0005, 64)])
def test_the_peer_is_the_fastest_solver_that_is_as_accurate(error, resolution):
    assert choose_peer(CURVE, error).resolution == resolution


def test_training_pays_after_its_time_over_the_time_saved_per_solve():
    assert count_solves(60.0, 0.001, 0.004) == pytest.approx(20_000)
    assert count_solves(60.0, 0.004, 0.004) == math.inf


def test_the_break_even_table_counts_solves_and_says_never(tmp_path):
    write_cell(tmp_path, "darcy", "svdno", 0, [0.02] * 6, "SVD-NO")  # 1 ms against 4 ms, 6 s of training
    write_cell(tmp_path, "darcy", "fno", 0, [0.2] * 6, "FNO")  # 1 ms against 1 ms
    sheet = tabulate_break_even(read_study(tmp_path), Curves({"darcy": CURVE}, "one GPU"))
    cells = column(sheet, "Pays after")
    assert {label: cell.text for label, cell in cells.items()} == {"SVD-NO": "2,000", "FNO": "never"}
    assert "The solver ran on one GPU, the models on cpu." in sheet.note


def test_the_trend_takes_the_best_of_the_papers_baselines_and_its_fit_is_a_line(tmp_path):
    for equation, beta, ours in (("allen-cahn", 0.1, 0.010), ("darcy", 0.2, 0.008), ("shallow-water", 0.3, 0.006)):
        write_cell(tmp_path, equation, "svdno", 0, [ours] * 6, "SVD-NO", variability=beta)
        write_cell(tmp_path, equation, "mercer", 0, [0.001] * 6, "Mercer")
        write_cell(tmp_path, equation, "nearest-neighbour", 0, [0.001] * 6, "Nearest neighbour")
        write_cell(tmp_path, equation, "fno", 0, [0.020] * 6, "FNO")
        write_cell(tmp_path, equation, "unet", 0, [0.500] * 6, "U-Net")
    trend = find_trend(read_study(tmp_path))
    assert dict(zip(trend.names, trend.y, strict=True)) == pytest.approx(
        {"Allen–Cahn": 50.0, "Darcy flow": 60.0, "Shallow-water": 70.0}
    )
    assert trend.fit == pytest.approx((100.0, 40.0, 1.0))


def test_two_equations_are_not_fitted(tmp_path):
    write_comparison(tmp_path)
    assert find_trend(read_study(tmp_path)).fit is None


def test_the_rank_table_and_its_figure_have_the_methods_that_differ_in_rank_alone(tmp_path):
    for rank in (16, 3, 8):
        model = {"name": "svdno", "rank": rank}
        write_cell(tmp_path, "allen-cahn", f"rank-{rank}", 0, [0.1 / rank] * 6, f"L = {rank}", model)
    other = {"name": "svdno", "rank": 4, "hidden_channels": 9}
    write_cell(tmp_path, "allen-cahn", "wide", 0, [0.01] * 6, "wide", other)
    write_cell(tmp_path, "darcy", "svdno", 0, [0.01] * 6, "SVD-NO")
    study = read_study(tmp_path)
    sheet = tabulate_ranks(study)
    assert [(row[0].text, row[1].text) for row in sheet.rows] == [("Allen–Cahn", rank) for rank in ("3", "8", "16")]
    assert [row[2].value for row in sheet.rows] == pytest.approx([10 / 3, 10 / 8, 10 / 16])
    panel, _ = draw_ranks([study.ranks("allen-cahn")]).axes
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["3", "8", "16"]
    np.testing.assert_allclose(panel.lines[0].get_xydata(), [[3, 10 / 3], [8, 10 / 8], [16, 10 / 16]])
