"""Which runs are found, which may stand in one table, and what is said of the rest."""

import json
import shutil

import pytest

from svdno.errors import InputError
from svdno.report.collect import collect
from tests.report.made_runs import write_cell, write_comparison, write_run

ERRORS = [0.01, 0.02, 0.03]
SVDNO = {"name": "svdno", "rank": 8}


def test_runs_of_a_benchmark_are_grouped_by_equation_method_and_seed(tmp_path):
    write_comparison(tmp_path / "table")
    (study,) = collect([tmp_path / "table"]).studies
    assert list(study.equations) == ["allen-cahn", "darcy"]
    assert {entry.label for entry in study.entries} == {"SVD-NO", "FNO", "Mercer", "U-Net"}
    assert [run.metrics["seed"] for run in study.find("darcy", "FNO").runs] == [0, 1, 2]
    assert study.reference("darcy").label == "SVD-NO"


def test_a_single_run_folder_is_found_wherever_it_lies(tmp_path):
    run = write_run(tmp_path / "paper" / "allen-cahn-seed0", "allen-cahn", "SVD-NO", 0, ERRORS, SVDNO)
    (study,) = collect([run]).studies
    assert (study.name, study.contenders) == ("paper", ["SVD-NO"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"label": "SVD', "readable record"),
        ('{"accuracy": 0.9}', "no 'label'"),
        ("[1, 2]", "a JSON list"),
    ],
)
def test_a_half_written_or_foreign_record_is_left_out_and_named(tmp_path, text, message):
    write_cell(tmp_path, "allen-cahn", "svdno", 0, ERRORS)
    broken = write_cell(tmp_path, "allen-cahn", "fno", 0, ERRORS)
    (broken / "metrics.json").write_text(text)
    collection = collect([tmp_path])
    assert collection.studies[0].contenders == ["svdno"]
    (line,) = collection.left_out
    assert str(broken) in line
    assert message in line


GOOD = {"relative_l2": {"mean": 0.3}, "per_time": [0.3]}


@pytest.mark.parametrize(
    "changes",
    [
        {"test": None},
        {"test": {}},
        {"test": {"relative_l2": 0.3}},
        {"test": GOOD | {"relative_l2": {"mean": "0.3"}}},
        {"test": GOOD | {"per_sample": ["a"]}},
        {"test": GOOD | {"linf": {"mean": [1]}}},
        {"train_seconds": "long"},
        {"best_epoch": [1]},
        {"samples_per_second": "many"},
    ],
    ids=str,
)
def test_a_record_without_the_numbers_of_a_run_is_left_out_and_named(tmp_path, changes):
    write_cell(tmp_path, "allen-cahn", "svdno", 0, ERRORS, test=GOOD)
    write_cell(tmp_path, "allen-cahn", "fno", 0, ERRORS, **changes)
    (line,) = collect([tmp_path]).left_out
    assert "another program or version" in line


def test_a_recipe_of_another_program_is_left_out_and_named(tmp_path):
    write_cell(tmp_path, "allen-cahn", "svdno", 0, ERRORS)
    (write_cell(tmp_path, "allen-cahn", "fno", 0, ERRORS) / "recipe.toml").write_text("lr = 0.1")
    (line,) = collect([tmp_path]).left_out
    assert "unknown setting 'lr'" in line


def test_failed_unfinished_and_diverged_runs_are_named_and_take_no_part(tmp_path):
    write_cell(tmp_path, "allen-cahn", "svdno", 0, ERRORS)
    failed, unfinished = (write_cell(tmp_path, "allen-cahn", "fno", seed, ERRORS) for seed in (0, 1))
    write_cell(tmp_path, "allen-cahn", "fno", 2, [float("nan")] * 3)
    for folder in (failed, unfinished):
        (folder / "metrics.json").unlink()
    (failed / "failed.txt").write_text("error: out of memory\n")
    collection = collect([tmp_path])
    assert sorted(line.split("fno/")[1] for line in collection.failed) == [
        "seed-0: error: out of memory", "seed-1: not finished", "seed-2: its test error is not finite",
    ]  # fmt: skip
    assert collection.studies[0].contenders == ["svdno"]


def test_folders_without_a_finished_run_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"at least one finished run.*nothing that a run leaves"):
        collect([tmp_path])
    with pytest.raises(InputError, match=r"no folder .*nowhere"):
        collect([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    "settings",
    [{"training.epochs": 9}, {"data.samples": 200}, {"data.space_stride": 2}, {"model.rank": 3}],
    ids=lambda settings: next(iter(settings)),
)
def test_another_protocol_is_never_averaged_with_the_first(tmp_path, settings):
    write_cell(tmp_path / "a", "allen-cahn", "svdno", 0, [0.01] * 3)
    write_cell(tmp_path / "b", "allen-cahn", "svdno", 1, [0.05] * 3, settings=settings)
    studies = collect([tmp_path]).studies
    assert [study.reference("allen-cahn").error for study in studies] == pytest.approx([0.01, 0.05])


def test_budgets_stay_apart_where_their_methods_differ(tmp_path):
    write_cell(tmp_path / "short", "allen-cahn", "svdno", 0, ERRORS)
    write_cell(tmp_path / "paper", "allen-cahn", "fno", 0, ERRORS, settings={"training.epochs": 500})
    assert [study.contenders for study in collect([tmp_path]).studies] == [["fno"], ["svdno"]]


def test_one_benchmark_may_give_its_methods_different_epochs(tmp_path):
    write_cell(tmp_path, "allen-cahn", "svdno", 0, ERRORS)
    write_cell(tmp_path, "allen-cahn", "fno", 0, ERRORS, settings={"training.epochs": 2})
    assert len(collect([tmp_path]).studies) == 1


def test_seeds_of_one_protocol_from_two_folders_come_together(tmp_path):
    for home, seed in (("a", 0), ("b", 1)):
        write_cell(tmp_path / home, "allen-cahn", "svdno", seed, ERRORS, settings={"training.compile": home == "b"})
    (study,) = collect([tmp_path / "a", tmp_path / "b"]).studies
    assert study.name == "a, b"
    assert len(study.reference("allen-cahn").runs) == 2


def test_a_run_counts_once_however_often_it_is_named(tmp_path):
    run = write_cell(tmp_path / "a", "allen-cahn", "svdno", 0, ERRORS)
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    collection = collect([tmp_path / "a", run, tmp_path / "copy"])
    assert len(collection.studies[0].entries[0].runs) == 1
    (line,) = collection.left_out
    assert "the same recipe and seed" in line


def test_methods_that_share_a_label_are_told_apart_by_their_names(tmp_path):
    for method, rank in (("wide", 16), ("narrow", 4)):
        write_cell(tmp_path, "allen-cahn", method, 0, ERRORS, "SVD-NO", {"name": "svdno", "rank": rank})
    (study,) = collect([tmp_path]).studies
    assert study.contenders == ["SVD-NO (narrow)", "SVD-NO (wide)"]


def test_records_from_before_errors_by_sample_are_still_read(tmp_path):
    folder = write_cell(tmp_path, "allen-cahn", "svdno", 0, ERRORS)
    record = json.loads((folder / "metrics.json").read_text())
    del record["test"]["per_sample"], record["variability"]
    (folder / "metrics.json").write_text(json.dumps(record))
    entry = collect([tmp_path]).studies[0].entries[0]
    assert entry.errors_by_sample() is None
    assert entry.average("variability") is None


def test_variants_of_a_method_follow_it_and_ablations_and_ranks_stay_out_of_the_first_table(tmp_path):
    for label in ("POD", "U-NO", "another UNO", "FNO", "FNO, tuned", "SVD-NO"):
        method = label.lower()
        write_cell(tmp_path, "allen-cahn", method, 0, ERRORS, label, SVDNO if label == "SVD-NO" else None)
    write_cell(tmp_path, "allen-cahn", "mercer", 0, ERRORS, "Mercer")
    write_cell(tmp_path, "allen-cahn", "rank-3", 0, ERRORS, "SVD-NO, L = 3", SVDNO | {"rank": 3})
    (study,) = collect([tmp_path]).studies
    assert study.contenders == ["SVD-NO", "FNO", "FNO, tuned", "U-NO", "another UNO", "POD"]
    assert [entry.label for entry in study.ablations("allen-cahn")] == ["Mercer"]
    assert [entry.label for entry in study.ranks("allen-cahn")] == ["SVD-NO, L = 3", "SVD-NO"]


def test_ablations_alone_are_compared_with_each_other(tmp_path):
    for method in ("mercer", "dense"):
        write_cell(tmp_path, "allen-cahn", method, 0, ERRORS)
    (study,) = collect([tmp_path]).studies
    assert [entry.label for entry in study.with_ablations("allen-cahn")] == ["dense", "mercer"]


def test_tables_of_one_budget_come_together_whichever_is_named_first(tmp_path):
    """As short, ablations and rank do: some runs are in two of them, and one rank is that of SVD-NO."""
    for method, label in (("svdno", "SVD-NO"), ("fno", "FNO")):
        for equation in ("allen-cahn", "darcy"):
            write_cell(tmp_path / "short", equation, method, 0, ERRORS, label)
    for method, label in (("svdno", "SVD-NO"), ("mercer", "Mercer")):
        write_cell(tmp_path / "ablations", "allen-cahn", method, 0, ERRORS, label)
    for rank in (10, 8, 3):
        write_cell(tmp_path / "rank", "allen-cahn", f"rank-{rank}", 0, ERRORS, f"L = {rank}", SVDNO | {"rank": rank})
    for names in (("short", "ablations", "rank"), ("rank", "short", "ablations")):
        collection = collect([tmp_path / name for name in names])
        (study,) = collection.studies
        assert study.contenders == ["SVD-NO", "FNO"]
        assert list(study.equations) == ["allen-cahn", "darcy"]
        assert [entry.recipe.model["rank"] for entry in study.ranks("allen-cahn")] == [3, 8, 10]
        assert len(collection.left_out) == 1


def test_ranks_alone_are_ordered_as_numbers(tmp_path):
    for rank in (10, 8, 3):
        write_cell(tmp_path, "allen-cahn", f"rank-{rank}", 0, ERRORS, f"L = {rank}", SVDNO | {"rank": rank})
    assert collect([tmp_path]).studies[0].contenders == ["L = 3", "L = 8", "L = 10"]
