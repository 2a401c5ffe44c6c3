"""Tables of runs: what is planned, what is skipped, what happens when runs fail or are cut off."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from svdno.benchmark import FAILURE, bundled_tables, narrow, plan, read_table
from svdno.environment import advise_sharing
from svdno.equations import EQUATIONS
from svdno.errors import InputError
from svdno.models import ALL_MODELS

# Settings that change no grid.
NARROW = {name: {"hidden_channels": 4} for name in ("fno", "uno", "unet", "neuralop-fno", "neuralop-uno")}

TINY = """
budget = "laptop"
equations = ["allen-cahn", "diffusion-sorption"]
seeds = [0, 1]

[methods.svdno]
label = "SVD-NO"
set = {"data.samples" = 30, "data.parameters.points" = 32, "data.space_stride" = 2, "training.epochs" = 2,
       "model.hidden_channels" = 8, "model.singular_channels" = 8}

[methods.fno]
label = "FNO"
model = {name = "fno", n_modes = 4, hidden_channels = 8}
set = {"data.samples" = 30, "data.parameters.points" = 32, "data.space_stride" = 2, "training.epochs" = 2}

[methods.fno.equations.diffusion-sorption]
training = {learning_rate = 1e-4}
""".replace(",\n       ", ", ")


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def run(*arguments, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "svdno", "benchmark", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


def test_a_plan_has_a_recipe_for_every_cell(table, tmp_path):
    cells = plan(read_table(str(table)), tmp_path / "out")
    assert [(c.seed, c.equation, c.method) for c in cells[:4]] == [
        (0, "allen-cahn", "svdno"),
        (0, "allen-cahn", "fno"),
        (0, "diffusion-sorption", "svdno"),
        (0, "diffusion-sorption", "fno"),
    ]
    assert len(cells) == 8
    fno = cells[3].recipe
    assert (fno.label, fno.model["name"], fno.training.seed) == ("FNO", "fno", 0)
    assert fno.training.learning_rate == 1e-4, "what is said for one equation"
    assert cells[1].recipe.training.learning_rate == 1e-2, "the budget's own"
    assert cells[4].recipe.training.seed == 1
    assert cells[0].folder == tmp_path / "out/allen-cahn/svdno/seed-0"


def test_recipes_of_one_equation_differ_in_the_seed_alone(table, tmp_path):
    table.write_text(f'{TINY}set = {{"model.n_layers" = 2}}\n')  # of FNO on diffusion–sorption
    layers = [cell.recipe.model.get("n_layers") for cell in plan(read_table(str(table)), tmp_path)]
    assert layers == [None, None, None, 2] * 2


def test_single_settings_of_all_cells_come_on_top_of_what_a_table_says(table, tmp_path):
    changes = {"training.epochs": 7, "training.learning_rate": 3e-3, "data.samples": 20}
    for cell in plan(read_table(str(table)), tmp_path, changes):
        training = cell.recipe.training
        assert (training.epochs, training.learning_rate, cell.recipe.data.samples) == (7, 3e-3, 20)
        assert training.seed == cell.seed
    wrong = run(table, "-o", tmp_path / "out", "--set", "training.epoch=7", cwd=tmp_path)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: unknown setting 'epoch' in [training]; it takes epochs, ")


@pytest.mark.parametrize("name", bundled_tables())
def test_bundled_tables_can_be_planned(name, tmp_path):
    table = read_table(name)
    cells = plan(replace(table, seeds=[0]), tmp_path)
    assert len(cells) == len(table.equations) * len(table.methods)
    assert table.seeds == ([0] if name == "two-minutes" else [0, 1, 2])


def test_a_table_on_top_of_another_changes_what_it_says_and_keeps_the_rows_it_names(table, tmp_path):
    top = tmp_path / "top.toml"
    top.write_text(
        f"""
extends = "{table}"
equations = ["allen-cahn"]
rows = ["fno"]

[methods.fno]
training = {{weight_decay = 0.5}}

[set.all]
"data.parameters.max_mode" = 3
"training.patience" = 7

[set.allen-cahn]
"data.parameters.max_mode" = 4
"""
    )
    below, above = plan(read_table(str(table)), tmp_path / "a"), plan(read_table(str(top)), tmp_path / "b")
    assert [(c.equation, c.method, c.seed) for c in above] == [("allen-cahn", "fno", 0), ("allen-cahn", "fno", 1)]
    before, after = below[1].recipe, above[0].recipe
    assert (after.model, after.label, after.data.samples) == (before.model, before.label, before.data.samples)
    assert (after.training.weight_decay, after.training.patience, after.data.parameters["max_mode"]) == (0.5, 7, 4)
    wrongs = {
        'rows = ["fmo"]': "`rows` must be one of",
        "rows = 3": "`rows` must be a list, got 3",
        "set = 3": "`set` must be a table, got 3",
        "set = {darcy = 3}": "`darcy` must be a table, got 3",
        "[set.allen]\nx = 1": "`set` must be one of",
    }
    for wrong, message in wrongs.items():
        top.write_text(f'extends = "{table}"\n{wrong}')
        with pytest.raises(InputError, match=message):
            read_table(str(top))
    top.write_text(f'extends = "{top}"')
    with pytest.raises(InputError, match="extends itself"):
        read_table(str(top))


def test_tables_hold_the_methods_of_the_paper_trivial_ones_and_beyond_a_laptop_peers():
    seven = ["svdno", "fno", "uno", "deeponet", "mpnn", "pino", "unet"]
    for name in ("laptop", "short", "paper"):
        table = read_table(name)
        assert table.budget == name
        assert list(table.methods)[:7] == seven
        assert {"training-mean", "nearest-neighbour", "pod-regression"} <= set(table.methods)
        tuned_and_peers = {"fno-tuned", "uno-tuned", "neuralop-fno", "neuralop-uno"}
        assert tuned_and_peers & set(table.methods) == ({"fno-tuned"} if name == "laptop" else tuned_and_peers)


@pytest.mark.parametrize("name", ["laptop", "short"])
def test_all_methods_of_a_table_get_the_same_data_and_epochs(name, tmp_path):
    cells = plan(replace(read_table(name), seeds=[0]), tmp_path)
    for equation in EQUATIONS:
        column = [cell.recipe for cell in cells if cell.equation == equation]
        assert len({(repr(recipe.data), recipe.training.epochs) for recipe in column}) == 1


@pytest.mark.parametrize("name", bundled_tables())
def test_every_model_of_a_table_takes_the_grid_of_its_data(name, tmp_path):
    """Modes and levels must fit the grid, which only a pass shows; four channels are enough to see it."""
    tried = set()
    for cell in plan(replace(read_table(name), seeds=[0]), tmp_path):
        data, model = cell.recipe.data, {**cell.recipe.model}
        grid = EQUATIONS[data.equation](**data.parameters).grid.strided(data.space_stride)
        if model["name"] not in NARROW or str((grid, model)) in tried:
            continue
        tried.add(str((grid, model)))
        arguments = {key: value for key, value in model.items() if key != "name"} | NARROW[model["name"]]
        with torch.no_grad():
            u = ALL_MODELS[model["name"]](1, 1, grid.dim, **arguments)(torch.randn(1, *grid.shape, 1))
        assert u.shape == (1, *grid.shape, 1)


def test_a_table_cut_off_ends_with_the_same_records_and_does_nothing_twice(table, tmp_path):
    table.write_text(TINY.replace("seeds = [0, 1]", "seeds = [0]"))
    whole = run(table, "-o", "whole", "--workers", 2, cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr + whole.stdout
    assert "4 of 4 runs finished" in " ".join(whole.stdout.split())
    # The same number of workers: more threads for each run would round differently.
    command = [sys.executable, "-m", "svdno", "benchmark", str(table), "-o", "cut", "--workers=2"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and len(list((tmp_path / "cut").rglob("metrics.json"))) < 1:
        time.sleep(0.05)
    subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=True)
    process.wait()
    assert run(table, "-o", "cut", "--workers", 2, cwd=tmp_path).returncode == 0
    for metrics in (tmp_path / "whole").rglob("metrics.json"):
        same = tmp_path / "cut" / metrics.relative_to(tmp_path / "whole")
        assert json.loads(same.read_text())["test"] == json.loads(metrics.read_text())["test"]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cut").rglob("*.*")}
    assert run(table, "-o", "cut", cwd=tmp_path).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cut").rglob("*.*")} == before


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_no_run_outlives_the_benchmark_that_started_it(table, tmp_path, sign):
    table.write_text(TINY.replace('"training.epochs" = 2', '"training.epochs" = 100000'))
    command = [sys.executable, "-m", "svdno", "benchmark", str(table), "-o", "out"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and not list((tmp_path / "out").rglob("training.safetensors")):
        time.sleep(0.05)
    process.send_signal(sign)
    process.wait()
    end = time.monotonic() + 60
    while (alive := subprocess.run(["pgrep", "-s", str(process.pid)], check=False).returncode == 0) and (
        time.monotonic() < end
    ):
        time.sleep(0.05)
    assert not alive


def test_a_table_whose_time_is_up_says_so_and_continues(table, tmp_path):
    table.write_text(TINY.replace("seeds = [0, 1]", "seeds = [0]"))
    stopped = run(table, "-o", "out", "--minutes", 0, cwd=tmp_path)
    assert stopped.returncode == 0, stopped.stderr + stopped.stdout
    assert "Time is up with 4 of 4 runs to go; the same command continues." in " ".join(stopped.stdout.split())
    assert not list((tmp_path / "out").rglob("metrics.json"))
    whole = run(table, "-o", "out", "--workers", 2, "--minutes", 60, cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr + whole.stdout
    assert "Time is up" not in whole.stdout
    assert len(list((tmp_path / "out").rglob("metrics.json"))) == 4


def test_a_cell_that_fails_is_named_and_the_rest_go_on(table, tmp_path):
    table.write_text(
        TINY.replace("seeds = [0, 1]", "seeds = [0]").replace("{learning_rate = 1e-4}", "{learning_rate = 1e30}")
    )
    done = run(table, "-o", "out", "--workers", 2, cwd=tmp_path)
    assert done.returncode == 1
    assert "3 of 4 runs finished, 1 failed" in " ".join(done.stdout.split())
    assert "diffusion-sorption/fno/seed-0" in done.stdout
    assert "the loss became" in (tmp_path / "out/diffusion-sorption/fno/seed-0" / FAILURE).read_text()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"allen-cahn", ', '"heat", ', "must be one of 'allen-cahn', .*got 'heat'"),
        ('name = "fno"', 'name = "fmo"', "unknown model 'fmo'"),
        ("[methods.svdno]", "[methods.svdno]\nepochs = 3", "unknown setting 'epochs' in .methods.svdno."),
        ('budget = "laptop"', 'budget = "giant"', "no recipe 'allen-cahn/giant'"),
        ('budget = "laptop"', 'budgets = "laptop"', "unknown setting 'budgets'"),
        ('{name = "fno", n_modes = 4, hidden_channels = 8}', '{name = "mpnn", hidden_channels = 8}', "21 output times"),
        ("{learning_rate = 1e-4}", "{terms = {momentum = 1.0}}", "unknown term 'momentum'"),
        ('"data.space_stride" = 2', '"data.space_stride" = 5', "a stride must divide"),
    ],
)
def test_mistakes_in_a_table_are_named(table, tmp_path, old, new, message):
    table.write_text(TINY.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        plan(read_table(str(table)), tmp_path)


def test_a_folder_with_another_run_is_not_touched(table, tmp_path):
    cell = plan(read_table(str(table)), tmp_path / "out")[0]
    cell.folder.mkdir(parents=True)
    (cell.folder / "recipe.toml").write_text(cell.recipe.to_toml().replace("epochs = 2", "epochs = 9"))
    with pytest.raises(InputError, match="holds a run of another recipe"):
        plan(read_table(str(table)), tmp_path / "out")


def test_a_part_of_a_table_has_the_recipes_of_the_whole(tmp_path):
    table = read_table("short")
    part = narrow(table, ["darcy"], ["fno", "svdno-plus"], [2, 7], None)
    cells = {cell.folder: cell.recipe for cell in plan(part, tmp_path)}
    whole = {cell.folder: cell.recipe for cell in plan(replace(table, seeds=[2, 7]), tmp_path)}
    assert len(cells) == 4
    assert cells.items() <= whole.items()
    assert narrow(table, [], [], [], None) == table
    assert {cell.recipe.training.epochs for cell in plan(narrow(part, [], [], [], "laptop"), tmp_path)} == {30}
    with pytest.raises(InputError, match="`method` must be one of 'fno', 'svdno-plus', got 'uno'"):
        narrow(part, [], ["uno"], [], None)


def test_processes_that_would_take_turns_on_a_gpu_are_told_of_a_better_way(tmp_path, monkeypatch):
    gpu = torch.device("cuda")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr("svdno.environment.which", lambda name: None)
    assert advise_sharing(4, gpu) is None, "where there is no MPS"
    monkeypatch.setattr("svdno.environment.which", lambda name: f"/usr/bin/{name}")
    assert "`nvidia-cuda-mps-control -d` lets them run together, which pays" in str(advise_sharing(4, gpu))
    assert advise_sharing(1, gpu) is None
    assert advise_sharing(4, torch.device("cpu")) is None
    (tmp_path / "control").touch()
    assert advise_sharing(4, gpu) is None, "where it runs"


def test_an_unknown_table_is_named():
    with pytest.raises(InputError, match="no table 'nothing': not a file, and not one of the bundled ablations, "):
        read_table("nothing")
