import csv
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from svdno.errors import InputError
from svdno.report.page import describe_result, write_page
from svdno.report.plots import predictions, spectrum, write_figures
from svdno.report.records import HISTORY, Run, read_run
from svdno.report.tables import best_row, comparison, details, labels, number, percent

TIMES, LAYERS, RANK, LEADING = 6, 2, 8, 3


def write_records(folder: Path, dimensions: int = 1, mean: float = 0.0081, **metrics: object) -> Path:
    """Write synthetic records of a decaying wave, with singular functions unless the model is an FNO."""
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text('equation = "allen-cahn"\nepochs = 60\n')
    (folder / "environment.json").write_text(json.dumps({"svdno": "0.1.0", "device": "cpu", "commit": None}))
    (folder / "metrics.json").write_text(json.dumps(make_metrics(mean) | metrics))
    write_history(folder / "history.csv", mean)
    write_samples(folder / "samples.npz", dimensions, mean)
    if metrics.get("model") != "fno":
        write_singular(folder / "singular.npz", dimensions)
    return folder


def make_metrics(mean: float) -> dict[str, object]:
    statistics = {"mean": mean, "median": 0.9 * mean, "p90": 2 * mean, "max": 4 * mean}
    return {
        "label": "SVD-NO",
        "model": "svdno",
        "equation": "allen-cahn",
        "title": "Allen–Cahn equation",
        "seed": 0,
        "parameters": 123456,
        "train_seconds": 61.2,
        "epochs": 60,
        "best_epoch": 58,
        "split": "819 training, 102 validation, 103 test samples; in file order",
        "grid": "24 points",
        "times": TIMES,
        "rank": RANK,
        "orthogonality": 1e-4,
        "test": {
            "relative_l2": statistics,
            "relative_l2_without_start": {name: 1.1 * value for name, value in statistics.items()},
            "linf": {name: 6 * value for name, value in statistics.items()},
            "per_time": [mean * t / TIMES for t in range(TIMES)],
        },
    }


def write_history(path: Path, mean: float) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HISTORY)
        for epoch in range(1, 61):
            error = mean * (1 + 60 / epoch)
            writer.writerow([epoch, 1e-3, error**2, "", error, error, 1.02 * epoch])


def write_samples(path: Path, dimensions: int, mean: float) -> None:
    axes, start = make_wave(dimensions)
    times = np.linspace(0, 1, TIMES)
    truth = np.stack([np.exp(-t) * start for t in times])[None, ..., None] * np.ones((3,) + (1,) * (dimensions + 2))
    np.savez(
        path,
        **axes,
        times=times,
        index=np.array([4, 17, 90]),
        rank_of=np.array(["best", "median", "worst"]),
        error=mean * np.array([0.5, 1.0, 4.0]),
        truth=truth,
        prediction=truth + mean * truth**2,
        input=truth[:, 0],
        field_names=np.array(["u"]),
    )


def write_singular(path: Path, dimensions: int) -> None:
    axes, wave = make_wave(dimensions)
    values = np.exp(-0.4 * np.arange(RANK)) * np.ones((5, LAYERS, RANK))
    values *= np.linspace(0.8, 1.2, 5)[:, None, None]
    functions = np.stack([[wave * np.cos(i * wave) for i in range(LEADING)] for _ in range(LAYERS)])
    norms = np.abs(functions)
    main = {"left_main": functions, "right_main": -functions}
    np.savez(path, **axes, **main, values=values[0], values_all=values, left=norms, right=norms)


def make_wave(dimensions: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    axes = {f"axis_{d}": np.linspace(0, d + 1, 24 + 4 * d) for d in range(dimensions)}
    mesh = np.meshgrid(*axes.values(), indexing="ij")
    return axes, np.prod([np.sin(2 * np.pi * x) for x in mesh], axis=0)


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    write_records(tmp_path / "svdno", mean=0.0081)
    write_records(tmp_path / "fno", mean=0.0108, label="FNO", model="fno", rank=None, orthogonality=None)
    return [read_run(tmp_path / "svdno"), read_run(tmp_path / "fno")]


class LinkCollector(HTMLParser):
    """Collects everything a browser would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.targets += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]


def test_numbers_in_the_table_come_from_the_records(runs: list[Run]) -> None:
    header, rows = comparison(runs)
    assert [len(row) for row in rows] == [len(header)] * 2
    assert rows[0] == ["SVD-NO", "0.81 %", "0.73 %", "3.24 %", "0.89 %", "0.049", "61.2", "123,456"]
    assert rows[1][:2] == ["FNO", "1.08 %"]


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.0081, "0.81 %"),
        (0.0108, "1.08 %"),
        (0.12345, "12.3 %"),
        (0.99999, "100 %"),
        (12.5, "1,250 %"),
        (0.0, "0 %"),
        (None, "–"),
        (float("nan"), "not finite"),
    ],
)
def test_percentages_have_two_or_three_significant_digits(fraction: float | None, text: str) -> None:
    assert percent(fraction) == text


def test_large_numbers_have_thousands_separators() -> None:
    assert number(3600.4) == "3,600"


def test_best_row_has_the_smallest_mean_and_skips_a_diverged_run(tmp_path: Path) -> None:
    means = {"a": float("nan"), "b": 0.02, "c": 0.01}
    assert best_row([read_run(write_records(tmp_path / name, mean=mean)) for name, mean in means.items()]) == 2


def test_runs_of_one_label_are_told_apart_by_seed_or_folder(tmp_path: Path) -> None:
    seeds = {"a": 0, "b": 1, "c": 1}
    found = labels([read_run(write_records(tmp_path / name, seed=seed)) for name, seed in seeds.items()])
    assert found == ["SVD-NO (seed 0)", "SVD-NO (seed 1) (b)", "SVD-NO (seed 1) (c)"]


def test_details_leave_out_what_no_run_records(runs: list[Run]) -> None:
    rows = {row[0]: row[1:] for row in details(runs)[1]}
    assert rows["Rank L"] == ["8", "–"]
    assert "Commit" not in rows


@pytest.mark.parametrize("name", ["recipe.toml", "environment.json", "history.csv", "metrics.json"])
def test_a_missing_record_is_named_with_the_command_that_makes_it(tmp_path: Path, name: str) -> None:
    (write_records(tmp_path / "run") / name).unlink()
    with pytest.raises(InputError, match=rf"{re.escape(name)}.*no such file.*svdno train RECIPE -o .*run"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("metrics.json", "{", "readable record .*metrics.json"),
        ("metrics.json", "[]", "a JSON list instead of an object"),
        ("metrics.json", "{}", "no 'label'"),
        ("history.csv", "epoch,loss\n1,2\n", "no 'learning_rate'"),
        ("history.csv", "epoch,loss\n", "no epochs"),
    ],
)
def test_a_damaged_record_is_named_with_what_is_wrong(tmp_path: Path, name: str, text: str, message: str) -> None:
    (write_records(tmp_path / "run") / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_run(tmp_path / "run")


def test_damaged_sample_arrays_are_named(tmp_path: Path) -> None:
    path = write_records(tmp_path / "run") / "samples.npz"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"samples\.npz"):
        read_run(tmp_path / "run").samples()


def test_the_result_is_ordered_by_error_whoever_wins(runs: list[Run]) -> None:
    sentence = "SVD-NO reaches 0.81 % mean relative L2 error on 103 samples it has never seen, FNO 1.08 %."
    assert describe_result(runs) == describe_result(runs[::-1]) == sentence
    runs[0].metrics["test"]["relative_l2"]["mean"] = 0.02
    assert describe_result(runs).startswith("FNO reaches 1.08 %")
    assert describe_result(runs).endswith("SVD-NO 2.00 %.")


def test_a_tie_at_the_printed_precision_is_called_the_same(runs: list[Run]) -> None:
    runs[1].metrics["test"]["relative_l2"]["mean"] = 0.00812
    assert describe_result(runs) == (
        "SVD-NO and FNO reach the same 0.81 % mean relative L2 error on 103 samples they have never seen."
    )


def test_singular_values_of_a_model_without_them_are_refused(runs: list[Run]) -> None:
    with pytest.raises(InputError, match="records none"):
        spectrum(runs[1])


@pytest.mark.parametrize("dimensions", [1, 2])
def test_figures_are_written_beside_the_records_they_show(tmp_path: Path, dimensions: int) -> None:
    run = read_run(write_records(tmp_path / "svdno", dimensions))
    written = write_figures([run], tmp_path)
    assert written == {
        "training": tmp_path / "figures" / "training.png",
        "error_over_time": tmp_path / "figures" / "error_over_time.png",
        "svdno/predictions": run.folder / "figures" / "predictions.png",
        "svdno/spectrum": run.folder / "figures" / "spectrum.png",
        "svdno/singular_functions": run.folder / "figures" / "singular_functions.png",
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written.values())


@pytest.mark.filterwarnings("error")
def test_a_diverged_prediction_is_still_drawn(tmp_path: Path) -> None:
    run = read_run(write_records(tmp_path / "run"))
    samples = run.samples()
    np.savez(run.folder / "samples.npz", **samples | {"prediction": np.full_like(samples["truth"], np.nan)})
    assert len(predictions(run).axes) == 18  # three rows of four panels and two colour bars


def test_page_is_self_contained(runs: list[Run], tmp_path: Path) -> None:
    text = write_page(runs, tmp_path).read_text(encoding="utf-8")
    links = LinkCollector()
    links.feed(text)
    assert not re.search(r"https?://|@import|url\(", text)
    assert not {"script", "link", "iframe", "object"} & set(links.tags)
    assert len(links.targets) == 6
    assert all(target.startswith("data:image/png;base64,") for target in links.targets)


def test_page_marks_the_best_run_and_shows_result_recipes_and_use(runs: list[Run], tmp_path: Path) -> None:
    text = write_page(runs, tmp_path).read_text(encoding="utf-8")
    assert re.findall(r'<tr class="best"><th scope="row">(.*?)</th>', text) == ["SVD-NO"]
    assert describe_result(runs) in text.replace("\u00a0", " ")
    assert "<title>Allen–Cahn equation: SVD-NO, FNO</title>" in text
    assert 'load("svdno")' in text
    assert text.count("equation = &#34;allen-cahn&#34;") == 2


def test_page_escapes_a_label(tmp_path: Path) -> None:
    run = read_run(write_records(tmp_path / "run", label="<b>&</b>"))
    text = write_page([run], tmp_path).read_text(encoding="utf-8")
    assert "&lt;b&gt;&amp;&lt;/b&gt;" in text
    assert "<b>" not in text


def test_page_says_when_the_runs_were_split_differently(runs: list[Run], tmp_path: Path) -> None:
    runs[1].metrics["split"] = "80 training, 10 validation, 10 test samples; shuffled"
    text = write_page(runs, tmp_path).read_text(encoding="utf-8")
    assert "not tested on the same split" in text
    assert "on test samples it has never seen" in text


def test_page_refuses_runs_of_two_equations(runs: list[Run], tmp_path: Path) -> None:
    runs[1].metrics["equation"] = "burgers"
    with pytest.raises(InputError, match="one equation, got allen-cahn and burgers"):
        write_page(runs, tmp_path)


def test_page_refuses_an_empty_list(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run at all"):
        write_page([], tmp_path)


def test_report_does_not_import_torch() -> None:
    check = "import sys, svdno.report.page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
