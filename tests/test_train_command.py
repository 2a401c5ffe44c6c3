"""`svdno train`, `--resume` and `evaluate` as a user runs them: real processes, real files, tiny sizes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

TINY = [
    "--set=data.samples=40",
    "--set=data.parameters.points=64",
    "--set=data.parameters.frames=11",
    "--set=data.space_stride=2",
    "--set=training.batch_size=8",
    "--set=model.hidden_channels=16",
    "--set=model.singular_channels=8",
]


def svdno(*arguments, cwd: Path, check: bool = True, launcher=("-m", "svdno"), **options):
    command = [sys.executable, *launcher, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, **options)
    if check:
        assert done.returncode == 0, done.stderr + done.stdout
    return done


def results(run: Path) -> tuple[bytes, dict]:
    metrics = json.loads((run / "metrics.json").read_text())
    return (run / "model.safetensors").read_bytes(), {key: metrics[key] for key in ("test", "orthogonality", "epochs")}


def test_a_run_killed_at_any_moment_resumes_to_the_same_bits(tmp_path):
    recipe = ["train", "allen-cahn/laptop", *TINY, "--set=training.epochs=40"]
    svdno(*recipe, "-o", "whole", cwd=tmp_path)
    command = [sys.executable, "-m", "svdno", *recipe, "-o", "cut"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    state = tmp_path / "cut/training.safetensors"
    while not state.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "cut/metrics.json").exists(), "killed before it was done"
    again = svdno(*recipe, "-o", "cut", cwd=tmp_path, check=False)
    assert again.returncode == 2
    assert "svdno train --resume cut" in again.stderr
    svdno("train", "--resume", "cut", cwd=tmp_path)
    assert results(tmp_path / "cut") == results(tmp_path / "whole")
    assert not state.exists()
    finished = svdno("train", "--resume", "cut", cwd=tmp_path, check=False)
    assert finished.returncode == 2
    assert "is finished" in finished.stderr


def test_ctrl_c_ends_with_the_command_that_resumes(tmp_path):
    command = [sys.executable, "-m", "svdno", "train", "allen-cahn/laptop", *TINY, "--set=training.epochs=100000"]
    # Tests that run in the background of a shell have Ctrl-C switched off, and what they start would inherit that.
    listening = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    process = subprocess.Popen([*command, "-o", "run"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, **listening)
    try:
        while not (tmp_path / "run/training.safetensors").exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "svdno train --resume run" in output
    assert read_losses(tmp_path / "run"), "the history so far"


def test_a_resumed_run_whose_recipe_was_changed_is_refused(tmp_path):
    test_ctrl_c_ends_with_the_command_that_resumes(tmp_path)
    recipe = tmp_path / "run/recipe.toml"
    recipe.write_text(recipe.read_text().replace("rank = 8", "rank = 7"))
    done = svdno("train", "--resume", "run", cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "model.rank was 8 and is 7" in done.stderr


def test_evaluate_repeats_the_recorded_errors_and_finds_the_data_again(tmp_path):
    svdno("train", "allen-cahn/laptop", *TINY, "--set=training.epochs=2", "-o", "run", "--tensorboard", cwd=tmp_path)
    assert list((tmp_path / "run/tensorboard").glob("events*"))
    (data,) = (tmp_path / "data").glob("*.h5")
    recorded = json.loads((tmp_path / "run/metrics.json").read_text())
    for number in ("peak_memory_bytes", "latency_seconds", "samples_per_second", "seconds_per_epoch", "parameters"):
        assert recorded[number] > 0
    data.unlink()  # made again, from its parameters
    again = json.loads(svdno("evaluate", "run", "--json", cwd=tmp_path).stdout)
    assert again["test"] == recorded["test"]
    assert "without t = 0" in svdno("evaluate", "run", cwd=tmp_path).stdout


def test_a_model_can_be_evaluated_on_other_data(tmp_path):
    model = ["--set=model.singular_net=mlp", "--set=training.epochs=2"]
    svdno("train", "allen-cahn/laptop", *TINY, *model, "-o", "run", cwd=tmp_path)
    errors = {}
    for change in ("data.seed=0", "data.space_stride=1", "data.seed=1"):
        metrics = json.loads(svdno("evaluate", "run", "--json", f"--set={change}", cwd=tmp_path).stdout)
        errors[change] = metrics["test"]["relative_l2"]["mean"]
    assert (
        errors["data.seed=0"] == json.loads((tmp_path / "run/metrics.json").read_text())["test"]["relative_l2"]["mean"]
    )
    assert errors["data.space_stride=1"] == pytest.approx(errors["data.seed=0"], rel=0.1)
    assert errors["data.seed=1"] != errors["data.seed=0"]
    for change, message in (
        ("training.epochs=3", "evaluate takes other data, such as data.space_stride=2, and no other training"),
        ("data.time_stride=1", "the model predicts 3 times up to 1, and these data have 11 up to 1"),
    ):
        done = svdno("evaluate", "run", f"--set={change}", cwd=tmp_path, check=False)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.split())


def test_two_processes_train_like_one(tmp_path):
    length = ["--set=training.epochs=3", "--set=training.refit=true"]
    recipe = ["train", "allen-cahn/laptop", *TINY, *length, "--device=cpu"]
    together = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "-m", "svdno")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for batch in (8, 31):  # the second leaves a last batch of one sample, which one process goes without
        size = f"--set=training.batch_size={batch}"
        svdno(*recipe, size, "-o", f"one-{batch}", cwd=tmp_path)
        svdno(*recipe, size, "-o", f"two-{batch}", cwd=tmp_path, launcher=together, env=environment)
        ours, theirs = (read_losses(tmp_path / f"{name}-{batch}") for name in ("two", "one"))
        assert ours[:-3] == pytest.approx(theirs[:-3], rel=1e-6)
        assert ours[-3:] == pytest.approx(theirs[-3:], rel=1e-3)  # least squares, where small differences grow


def read_losses(run: Path) -> list[float]:
    rows = (run / "history.csv").read_text().splitlines()
    columns = rows[0].split(",")
    wanted = [columns.index(name) for name in ("loss", "train_error", "validation_error")]
    return [float(row.split(",")[i]) for row in rows[1:] for i in wanted]


def test_a_process_that_dies_ends_the_others(tmp_path):
    together = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "-m", "svdno")
    arguments = ["train", "allen-cahn/laptop", *TINY, "--set=training.epochs=100000", "--device=cpu", "-o", "run"]
    command = [sys.executable, *together, *arguments]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while not (tmp_path / "run/training.safetensors").exists() and process.poll() is None:
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert (tmp_path / "run/training.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "takes a recipe to start, or --resume RUN"),
        (["train", "--resume", "nowhere"], "no run in nowhere"),
        (["train", "demo", "--set=training.batch_size=5000"], "must not exceed the 819 training samples"),
        (["train", "demo", "--set=training.precision=fp8"], "must be one of 'fp32', 'tf32', 'bf16', got 'fp8'"),
        (
            ["train", "allen-cahn/laptop", "--set=training.refit=true", "--set=model={name='unet'}"],
            "training.refit needs a model that ends in a linear layer",
        ),
        (["train", "demo", "--set=training.patience=-1"], "`patience` must be at least 0"),
        (["train", "demo", "--set=data.file=nothing.h5"], "nothing.h5 cannot be read as HDF5: No such file"),
        (["train", "demo", "--device=tpu"], "must be one of 'auto', 'cpu', 'cuda', got 'tpu'"),
        (["evaluate", "nowhere"], "no trained model in nowhere"),
    ],
)
def test_bad_input_is_named_and_ends_with_status_2(arguments, message, tmp_path):
    done = svdno(*arguments, cwd=tmp_path, check=False)
    assert done.returncode == 2, done.stderr
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_demanded_and_missing_is_named(tmp_path):
    done = svdno("train", "demo", "--device=cuda", cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "PyTorch finds no GPU" in done.stderr
