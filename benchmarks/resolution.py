"""Errors on grids two and four times as fine as the trained one, against solutions on those grids.

    svdno benchmark resolution -o runs/resolution
    python benchmarks/resolution.py runs/resolution [-o results/resolution-h200.json]

Takes every run below the folder whose data were thinned out at least fourfold, and evaluates it on the same test
samples with a half and a quarter of the stride; those of `svdno benchmark laptop` will do too.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from svdno.environment import describe_environment, pick_device
from svdno.recipe import read_recipe
from svdno.run import evaluate_run, find_data_folder


def measure(run: Path) -> dict[str, Any]:
    """Mean relative L2 error in percent by how many times as fine the grid is, and the largest over the first."""
    stride = read_recipe(run / "recipe.toml").data.space_stride
    errors = {}
    for finer in (1, 2, 4):
        record = evaluate_run(
            run,
            find_data_folder(run.parents[2] / "run"),
            pick_device(),
            lambda data: lambda done, of: None,
            {"data.space_stride": stride // finer},
        )
        errors[str(finer)] = 100 * record["test"]["relative_l2"]["mean"]
    return {"percent": errors, "ratio": max(errors.values()) / errors["1"]}


def main() -> None:
    """Measure, print, and write the record where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the record")
    arguments = parser.parse_args()
    record: dict[str, Any] = {
        "command": f"python benchmarks/resolution.py {arguments.folder}",
        "what": "mean relative L2 error of the test samples in percent at 1, 2 and 4 times the trained resolution",
        "environment": describe_environment(),
        "runs": {},
    }
    for path in sorted(arguments.folder.glob("*/*/*/metrics.json")):
        run = path.parent
        if read_recipe(run / "recipe.toml").data.space_stride % 4 == 0:
            record["runs"][str(run.relative_to(arguments.folder))] = measure(run)
            Console().print(run, record["runs"][str(run.relative_to(arguments.folder))])
    if not record["runs"]:
        parser.error(f"no finished run below {arguments.folder} whose data were thinned out fourfold.")
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
