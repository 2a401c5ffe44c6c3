"""The command line as a person types it: real processes, real files."""

import json
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

from svdno.data.hdf5 import read_contents
from svdno.report.records import read_run

TINY = ["--set", "training.epochs=2", "--set", "data.samples=20", "--set", "data.parameters.points=128"]


def svdno(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "svdno", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=300
    )


def test_demo_goes_from_equation_to_report(tmp_path):
    done = svdno("demo", "-o", "out", *TINY, "--set", "data.space_stride=2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in ("SVD-NO", "FNO", "Rel. L2", "16 training, 2 validation, 2 test samples", "report.html"):
        assert text in done.stdout
    out = tmp_path / "out"
    for name in ("svdno", "fno"):
        assert read_run(out / name).metrics["epochs"] == 2
        for file in ("recipe.toml", "history.csv", "model.safetensors", "surrogate.json", "figures/predictions.png"):
            assert (out / name / file).is_file(), file
    for file in ("spectrum.png", "singular_functions.png"):
        assert (out / "svdno/figures" / file).is_file()
    assert "SVD-NO" in (out / "report.html").read_text()


def test_train_writes_a_run_that_loads_and_predicts(tmp_path):
    done = svdno("train", "demo-fno", "-o", "run", *TINY, "--set", "data.space_stride=2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run/metrics.json").read_text())["label"] == "FNO"
    from svdno import load
    from svdno.equations import AllenCahn

    assert load(tmp_path / "run").predict(AllenCahn(points=64).sample_inputs(2, seed=9)).shape == (2, 21, 64, 1)
    again = svdno("train", tmp_path / "run/recipe.toml", "-o", "again", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    ours, theirs = ((tmp_path / run / "model.safetensors").read_bytes() for run in ("run", "again"))
    assert ours == theirs, "a run's recipe repeats the run"


def test_generate_inspect_and_plot_a_file(tmp_path):
    small = ["--set", "points=64", "--set", "frames=5"]
    done = svdno("generate", "allen-cahn", "--samples", "6", "--seed", "3", "-o", "ac.h5", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    contents = read_contents(tmp_path / "ac.h5")
    assert (contents.samples, contents.space, len(contents.times)) == (6, (64,), 5)
    done = svdno("inspect", "ac.h5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "64 points" in done.stdout
    assert "no findings" in done.stdout
    with h5py.File(tmp_path / "ac.h5", "r+") as file:
        file["tensor"][2, 3, 4] = float("nan")
    done = svdno("inspect", "ac.h5", "--json", cwd=tmp_path)
    assert done.returncode == 1
    assert [finding["check"] for finding in json.loads(done.stdout)["findings"]] == ["nan"]
    done = svdno("plot", "ac.h5", "--sample", "5", "-o", "ac.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ac.png").read_bytes().startswith(b"\x89PNG")
    again = svdno("generate", "allen-cahn", "--samples", "6", "-o", "ac.h5", cwd=tmp_path)
    assert again.returncode == 2
    assert "ac.h5 exists" in again.stderr
    missing = svdno("plot", "ac.h5", "--sample", "6", cwd=tmp_path)
    assert missing.returncode == 2
    assert "has samples 0 to 5, got 6" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "nope"], "no recipe 'nope'"),
        (["train", "demo", "--set", "model.rank=0"], "`rank` must be a whole number of at least 1, got 0"),
        (["train", "demo", "--set", "model.rank=2.5"], "`rank` must be a whole number, got 2.5"),
        (["train", "demo", "--set", "model.singular_net=gru"], "must be one of 'mlp', 'lstm', 'bilstm', got 'gru'"),
        (["train", "demo", "--set", "model=3"], "`model` must be a table, got 3"),
        (["train", "demo", "--set", "label={a=1}"], "`label` must be text, got {'a': 1}"),
        (["demo", "--set", "training.epoch=3"], "unknown setting 'epoch' in [training]"),
        (["demo", "--set", "data.equation=heat"], "unknown equation 'heat'"),
        (["demo", "--set", "model.depth=3"], "has no setting depth"),
        (["demo", "--set", "nonsense"], "--set takes key=value"),
        (["demo", "-o", "file/inside"], "file"),
        (["generate", "heat", "-n", "3", "-o", "f.h5"], "unknown equation 'heat'"),
        (["generate", "allen-cahn", "-n", "3", "-o", "f.h5", "--set", "eps=1"], "has no setting eps"),
        (["generate", "darcy", "-n", "3", "-o", "f.h5", "--set", "points=x"], "`points` must be a whole number"),
        (["plot", "file"], "cannot be read as HDF5"),
        (["inspect", "file"], "cannot be read as HDF5"),
        (["demo", "--colour"], "No such option"),
        (["dmeo"], "No such command"),
    ],
)
def test_bad_input_ends_with_a_message_and_status_2(arguments, message, tmp_path):
    (tmp_path / "file").write_text("a file, not a folder")
    done = svdno(*arguments, *(TINY if "file/inside" in arguments else []), cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.h5")), "nothing is generated before the settings are known to be good"


def test_defects_are_told_from_bad_input(tmp_path):
    program = "import svdno.recipe\ndef broken(*_): raise RuntimeError('boom')\nsvdno.recipe.parse_changes = broken\n"
    program += "import sys; sys.argv = ['svdno', 'demo']\nfrom svdno.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "unexpected RuntimeError: boom. This is a defect of svdno" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("torch.OutOfMemoryError('CUDA out of memory.')", "CUDA out of memory. Set training.accumulate"),
        ("RuntimeError('can\\'t allocate memory: 8 TB')", "can't allocate memory: 8 TB. Set training.accumulate"),
        ("torch.AcceleratorError('CUDA error: busy\\nmore')", "the GPU failed: CUDA error: busy. See with nvidia-smi"),
    ],
)
def test_a_machine_that_fails_is_no_defect(error, message, tmp_path):
    program = f"import svdno.recipe, torch\ndef broken(*_): raise {error}\nsvdno.recipe.parse_changes = broken\n"
    program += "import sys; sys.argv = ['svdno', 'demo']\nfrom svdno.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())
    assert "defect" not in done.stderr


def test_version_and_help(tmp_path):
    assert svdno("--version", cwd=tmp_path).stdout.startswith("svdno 0.")
    assert "demo" in svdno("--help", cwd=tmp_path).stdout


@pytest.mark.parametrize("example", ["quickstart", "own_data", "point_cloud"])
def test_examples_run(example, tmp_path):
    path = Path(__file__).parents[1] / "examples" / f"{example}.py"
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout
