"""Searches for settings: what a space may say, what a study keeps, and what happens when trials or processes end."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from math import log10
from pathlib import Path

import pytest
import torch
from filelock import FileLock, Timeout

from svdno.data.dataset import Dataset
from svdno.equations import EQUATIONS
from svdno.errors import InputError
from svdno.recipe import read_recipe
from svdno.run import prepare_data
from svdno.tuning.results import find_best, write_results
from svdno.tuning.space import Choice, Range, bundled_spaces, read_space
from svdno.tuning.study import ATTEMPTS, SharedStudy, report, worker_lock
from svdno.tuning.workers import follow_trial, train_trial

TINY = """
extends = "demo"

[data]
samples = 40
parameters = {points = 64}
space_stride = 4
time_stride = 20

[model]
name = "fno"
n_modes = 4
hidden_channels = 8

[training]
epochs = 6
batch_size = 8

[search]
"model.hidden_channels" = [4, 8]
"model.n_layers" = {low = 1, high = 3}
"training.learning_rate" = {low = 1e-4, high = 1e-1, log = true}
"""


@pytest.fixture
def toml(tmp_path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Dataset:
    folder = tmp_path_factory.mktemp("data")
    (folder / "tiny.toml").write_text(TINY)
    return prepare_data(read_space(str(folder / "tiny.toml")).recipe, folder)


def search(study: SharedStudy, trials: int, data: Dataset) -> None:
    """What a worker does, in this process."""
    split, cpu = data.split(0.8, 0.1), torch.device("cpu")
    with FileLock(worker_lock(study.folder, "here")):
        while (trial := study.claim(trials, "here")) is not None:
            recipe = study.space.build(trial.params)
            study.conclude(trial, lambda r=recipe, t=trial: train_trial(r, split, cpu, follow_trial(t)))


def start(*arguments, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "svdno", "tune", *map(str, arguments), "--device", "cpu"]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, output + errors
    return " ".join(output.split())


def wait_until(happens, seconds=120) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_a_space_is_a_recipe_with_a_table_of_what_is_searched(toml):
    space = read_space(str(toml), changes={"training.epochs": 3})
    assert (space.recipe.model["name"], space.recipe.training.epochs) == ("fno", 3)
    assert space.search["model.hidden_channels"] == Choice((4, 8))
    assert space.search["model.n_layers"] == Range(1, 3)
    built = space.build({"model.n_layers": 2, "training.learning_rate": 0.5})
    assert (built.model["n_layers"], built.model["hidden_channels"], built.training.learning_rate) == (2, 8, 0.5)
    assert "n_layers" not in space.recipe.model, "a trial leaves the space as it was"


@pytest.mark.parametrize("name", bundled_spaces())
def test_bundled_spaces_fit_all_equations(name):
    for equation in EQUATIONS:
        assert read_space(name, recipe=f"{equation}/short").recipe.data.equation == equation


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (TINY[TINY.index("[search]") :], "", "says nothing to search"),
        (TINY[TINY.index("[search]") :], "[search]\n", "says nothing to search"),
        ('"model.n_layers"', '"model.layers"', "model 'fno' has no setting layers; it has in_channels"),
        ('"training.learning_rate"', '"training.rate"', "unknown setting 'rate' in .training.; it takes epochs"),
        ('"model.n_layers"', '"data.samples"', "settings of the model and of the training"),
        ('"model.n_layers"', "model.n_layers", "settings of the model and of the training, in quotes"),
        ("{low = 1, high = 3}", "{low = 3, high = 3}", "n_layers in .search.: `low` must be below `high`, got 3 and 3"),
        ("{low = 1, high = 3}", "{low = 1, hihg = 3}", "unknown setting 'hihg' in .range.; it takes low, high, step"),
        ("{low = 1, high = 3}", "{low = 1}", "incomplete"),
        ("{low = 1, high = 3}", "{low = 1, high = 4, step = 2}", "in whole steps, got 2"),
        ("{low = 1, high = 3}", "{low = 1, high = 3, step = 0}", "in whole steps, got 0"),
        ("{low = 1, high = 3}", '{low = "1", high = 3}', "n_layers in .search.: `low` must be a number, got '1'"),
        ("{low = 1, high = 3}", "{low = 1, high = inf}", "must be finite"),
        ("{low = 1, high = 3}", "{low = 1, high = 3, step = 1, log = true}", "takes no `step`"),
        ("{low = 1e-4,", "{low = 0.0,", "needs `low` above 0"),
        ("[4, 8]", "[4]", "two different values"),
        ("[4, 8]", "[4, 8, 4]", "each once"),
        ("[4, 8]", "8", "must be a list of numbers, texts or true and false, or a range"),
        ("[4, 8]", "[[4], [8]]", "must be a list of numbers, texts or true and false, or a range"),
        ("[4, 8]", "[4, -8]", "cannot be trained: .*-8.* It has model.hidden_channels = -8"),
        ("{low = 1, high = 3}", "{low = 0, high = 3}", "cannot be trained: .* It has .*model.n_layers = 0"),
        ('name = "fno"', 'name = "fmo"', "unknown model 'fmo'"),
        ("[search]", "[serach]", "says nothing to search"),
    ],
)
def test_mistakes_in_a_space_are_named_before_any_work(toml, old, new, message):
    toml.write_text(TINY.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        read_space(str(toml))


def test_an_unknown_space_and_a_setting_that_is_searched_and_set_are_named(toml):
    with pytest.raises(
        InputError, match="no search space 'nothing': not a file, and not one of the bundled svdno-plus"
    ):
        read_space("nothing")
    with pytest.raises(InputError, match=r"model.n_layers is searched"):
        read_space(str(toml), changes={"model.n_layers": 2})


def test_values_are_of_the_space_and_use_its_width(toml, tmp_path):
    toml.write_text(
        TINY.replace(
            "{low = 1, high = 3}", "{low = 1, high = 3}\n'training.clip' = {low = 0.0, high = 1.0, step = 0.25}"
        )
    )
    study = SharedStudy(read_space(str(toml)), tmp_path / "out")
    for _ in range(40):
        study.conclude(study.claim(99, "here"), lambda: 1.0)
    drawn = [attempt.values for attempt in study.attempts()]
    assert {v["model.hidden_channels"] for v in drawn} == {4, 8}
    assert {v["model.n_layers"] for v in drawn} == {1, 2, 3}
    assert {v["training.clip"] for v in drawn} == {0.0, 0.25, 0.5, 0.75, 1.0}
    rates = sorted(log10(v["training.learning_rate"]) for v in drawn)
    assert rates[0] >= -4
    assert rates[-1] <= -1
    assert -3 < rates[20] < -2, "the median of an even draw over the logarithm"


def test_the_best_recipe_has_the_smallest_validation_error_and_repeats_it(toml, tmp_path, data):
    space = read_space(str(toml))
    study = SharedStudy(space, tmp_path / "out")
    search(study, 4, data)
    write_results(space, study.attempts(), study.folder)
    rows = list(csv.DictReader((tmp_path / "out/trials.csv").open()))
    assert [row["state"] for row in rows] == ["finished"] * 4
    smallest = min(float(row["validation_error"]) for row in rows)
    best = find_best(study.attempts())
    assert best.error == smallest
    recipe = read_recipe(tmp_path / "out/best.toml")
    assert recipe == space.build(best.values)
    again = train_trial(recipe, data.split(0.8, 0.1), torch.device("cpu"), lambda row: None)
    assert again == pytest.approx(smallest, rel=1e-6)


def test_the_test_samples_play_no_part(toml, data):
    recipe, cpu = read_space(str(toml)).recipe, torch.device("cpu")
    clean = train_trial(recipe, data.split(0.8, 0.1), cpu, lambda row: None)
    outputs = data.outputs.clone()
    outputs[36:] = float("nan")
    assert train_trial(recipe, replace(data, outputs=outputs).split(0.8, 0.1), cpu, lambda row: None) == clean


def test_trials_worse_than_the_median_end_early_but_not_in_the_first_third(toml, tmp_path, data):
    study = SharedStudy(read_space(str(toml)), tmp_path)
    search(study, 5, data)
    median = sorted(attempt.error for attempt in study.attempts())[2]
    trial = study.claim(6, "here")

    def stagnate() -> float:
        for epoch in range(1, 7):
            report(trial, epoch, 2 * median + 1)
        return 2 * median + 1

    study.conclude(trial, stagnate)
    last = study.attempts()[-1]
    assert (last.state, last.epochs) == ("pruned", 3)


def test_a_trial_that_diverges_or_needs_too_much_memory_fails_and_the_others_go_on(toml, tmp_path, data):
    toml.write_text(TINY.replace("{low = 1e-4, high = 1e-1, log = true}", "[1e-3, 1e30]"))
    study = SharedStudy(read_space(str(toml)), tmp_path)
    search(study, 6, data)
    states = {attempt.values["training.learning_rate"]: attempt.state for attempt in study.attempts()}
    assert states == {1e-3: "finished", 1e30: "failed"}
    assert all("the loss became" in a.message for a in study.attempts() if a.state == "failed")

    def exhaust() -> float:
        raise torch.OutOfMemoryError("CUDA out of memory.\nMore of it")

    study.conclude(study.claim(7, "here"), exhaust)
    assert (study.attempts()[-1].state, study.attempts()[-1].message) == ("failed", "CUDA out of memory.")


def test_a_setting_that_alone_decides_the_error_is_the_important_one(toml, tmp_path):
    study = SharedStudy(read_space(str(toml)), tmp_path)
    assert study.importances() == {}
    for _ in range(20):
        trial = study.claim(20, "here")
        study.conclude(trial, lambda t=trial: abs(log10(t.params["training.learning_rate"]) + 2))
    shares = study.importances()
    assert shares["training.learning_rate"] > 0.5
    assert sum(shares.values()) == pytest.approx(1.0)


def test_a_trial_whose_worker_died_is_done_again_with_the_same_values_but_not_for_ever(toml, tmp_path):
    study = SharedStudy(read_space(str(toml)), tmp_path)
    values = study.claim(1, "dead").params
    with FileLock(worker_lock(tmp_path, "alive")):
        assert study.claim(2, "alive").params == values
        assert study.claim(1, "another") is None, "what a living worker trains is not taken from it"
    for _ in range(ATTEMPTS - 2):
        assert study.claim(1, "dead").params == values
    assert study.claim(1, "dead") is None
    attempts = study.attempts()
    assert [attempt.state for attempt in attempts] == ["cut off"] * (ATTEMPTS - 1) + ["failed"]
    assert attempts[0].message == "done again as trial 1"
    assert "its process ended" in attempts[-1].message


def test_a_line_that_was_torn_off_does_not_spoil_the_study(toml, tmp_path):
    space = read_space(str(toml))
    study = SharedStudy(space, tmp_path)
    study.conclude(study.claim(1, "here"), lambda: 0.5)
    with (tmp_path / "study.log").open("a") as file:
        file.write('{"op_code": 7, "trial_')
    again = SharedStudy(space, tmp_path)
    again.conclude(again.claim(2, "here"), lambda: 0.25)
    assert [attempt.state for attempt in SharedStudy(space, tmp_path).attempts()] == ["finished"] * 2


def test_a_folder_with_another_space_is_refused(toml, tmp_path):
    SharedStudy(read_space(str(toml)), tmp_path / "out")
    SharedStudy(read_space(str(toml)), tmp_path / "out")
    with pytest.raises(InputError, match="holds a study of another space, with other training"):
        SharedStudy(read_space(str(toml), changes={"training.epochs": 3}), tmp_path / "out")
    toml.write_text(TINY.replace("high = 3", "high = 4"))
    with pytest.raises(InputError, match="holds a study of another space, with other search"):
        SharedStudy(read_space(str(toml)), tmp_path / "out")


def test_without_optuna_the_extra_is_named(toml, tmp_path):
    script = "import sys; sys.modules['optuna'] = None; sys.argv[1:] = ['tune', 'tiny.toml']; import svdno.__main__"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "pip install 'svdno[tune]'" in done.stderr


def test_two_workers_share_a_study_and_its_best_recipe_trains(toml, tmp_path):
    output = finish(start(toml, "-o", "out", "--trials", 7, "--workers", 2, cwd=tmp_path))
    assert "7 of 7 trials done" in output
    records = [json.loads(line) for line in (tmp_path / "out/study.log").read_text().splitlines()]
    workers = [r["user_attr"]["worker"] for r in records if "worker" in r.get("user_attr", {})]
    assert len(workers) == 7
    assert len(set(workers)) == 2
    rows = list(csv.DictReader((tmp_path / "out/trials.csv").open()))
    assert len({row["training.learning_rate"] for row in rows}) == 7, "workers draw different values"
    train = [sys.executable, "-m", "svdno", "train", "out/best.toml", "-o", "run", "--device", "cpu"]
    subprocess.run(train, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    assert (tmp_path / "run/metrics.json").exists()


def test_a_search_killed_in_the_middle_continues_as_it_would_have_gone_on(toml, tmp_path):
    toml.write_text(TINY.replace("epochs = 6", "epochs = 40"))
    space = read_space(str(toml))
    whole = SharedStudy(space, tmp_path / "whole")
    for _ in range(3):
        whole.conclude(whole.claim(3, "here"), lambda: 1.0)
    study = SharedStudy(space, tmp_path / "cut")
    killed = start(toml, "-o", "cut", "--trials", 3, cwd=tmp_path)
    wait_until(lambda: len(a := study.attempts()) == 2 and a[1].epochs >= 1)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    # The worker sees that nobody waits for it, and ends.
    lock = next((tmp_path / "cut/workers").glob("*.lock"))
    wait_until(lambda: is_free(lock))
    before = study.attempts()
    assert [attempt.state for attempt in before] == ["finished", "running"]

    finish(start(toml, "-o", "cut", "--trials", 3, cwd=tmp_path))
    after = study.attempts()
    assert [attempt.state for attempt in after][:2] == ["finished", "cut off"]
    assert after[0] == before[0], "what is finished is not done again"
    assert after[2].values == before[1].values
    assert [a.values for a in after if a.state != "cut off"] == [a.values for a in whole.attempts()]
    assert all(attempt.state in ("finished", "pruned") for attempt in after[2:])


def is_free(lock: Path) -> bool:
    try:
        with FileLock(lock, timeout=0):
            return True
    except Timeout:
        return False
