"""How far one method gets in the time that others take: trained until their time is up, least squares included.

    python benchmarks/same_time.py laptop -o DIR [--record results/same-time-laptop.json]
    python benchmarks/same_time.py short --against fno-tuned --seed 0 -o DIR

The runs of the other methods are those of the table, in DIR/NAME. The method is then trained twice for each of them:
first with their seconds as its limit, which leaves out what least squares at the end take, then with that set aside.
With one worker on a GPU, or as many as there are cores, nothing else running, no run is in another's way. What is
finished is not done again; data files are those beside DIR, or of SVDNO_DATA.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from svdno.benchmark import Cell, Table, narrow, plan, prepare_files, read_table, run_cells
from svdno.environment import describe_environment
from svdno.run import find_data_folder

# What is set aside, over what the first run took too long: no two runs take the same time.
MARGIN = 1.15


def read_result(cell: Cell) -> dict[str, Any]:
    """Test error in percent, seconds and epochs of a finished run."""
    metrics = json.loads((cell.folder / "metrics.json").read_text(encoding="utf-8"))
    return {
        "percent": 100 * metrics["test"]["relative_l2"]["mean"],
        "seconds": metrics["train_seconds"],
        "epochs": metrics["epochs"],
    }


def train(cells: list[Cell], folder: Path, workers: int) -> None:
    """Train them, each on a share of the cores; a failed one ends the measurement."""
    data = find_data_folder(folder / "run")
    prepare_files(cells, data, lambda settings: lambda done, of: None)
    run_cells(cells, data, workers, "auto", lambda cell: Console().print(cell.state, cell.folder))
    for cell in cells:
        if cell.state != "finished":
            raise SystemExit(f"{cell.folder} has not been trained: {(cell.folder / 'log.txt').read_text()[-500:]}")


def limit(table: Table, method: str, other: Cell, seconds: float, folder: Path) -> Cell:
    """The run of this method that has so many seconds, for a run of another one."""
    part = narrow(table, [other.equation], [method], [other.seed], None)
    changes = {"training.seconds": round(seconds, 2), "training.epochs": 100000}
    return plan(part, folder / other.method, changes)[0]


def main() -> None:
    """Train the others, the method twice for each of their runs, print and record both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--method", default="svdno-plus")
    parser.add_argument("--against", action="append", help="by default fno and fno-tuned")
    parser.add_argument("--equation", action="append")
    parser.add_argument("--seed", action="append", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--record", type=Path, help="JSON file for what was measured")
    arguments = parser.parse_args()
    table, folder = read_table(arguments.table), arguments.output

    against = arguments.against or ["fno", "fno-tuned"]
    rows = narrow(table, arguments.equation or [], against, arguments.seed or [], None)
    others = plan(rows, folder / "others")
    train(others, folder, arguments.workers)
    theirs = [read_result(cell) for cell in others]

    most = [result["seconds"] for result in theirs]
    first = [limit(table, arguments.method, *pair, folder / "first") for pair in zip(others, most, strict=True)]
    train(first, folder, arguments.workers)
    aside = [MARGIN * (read_result(cell)["seconds"] - seconds) for cell, seconds in zip(first, most, strict=True)]

    left = [seconds - part for seconds, part in zip(most, aside, strict=True)]
    second = [
        limit(table, arguments.method, cell, seconds, folder / "second") if seconds > 0 else None
        for cell, seconds in zip(others, left, strict=True)
    ]
    train([cell for cell in second if cell], folder, arguments.workers)

    record: dict[str, Any] = {
        "command": f"python benchmarks/same_time.py {arguments.table}, {arguments.workers} runs at a time",
        "what": f"test error, seconds and epochs of each method, and of {arguments.method} in at most those seconds",
        "environment": describe_environment(),
        "runs": [],
    }
    for cell, result, seconds, within in zip(others, theirs, aside, second, strict=True):
        names = {"equation": cell.equation, "against": cell.method, "seed": cell.seed}
        ours = read_result(within) if within else None
        record["runs"].append({**names, "theirs": result, "within": ours, "set aside": seconds})
        Console().print(record["runs"][-1])
    if arguments.record:
        arguments.record.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
