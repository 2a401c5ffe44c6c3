"""What a table would add to models that are already trained: errors before and after `training.tabulate`.

    svdno benchmark laptop -o runs/laptop
    python benchmarks/tabulated.py runs/laptop --method fno-tuned [-o results/tabulated-laptop.json]

Takes every finished run of the method below the folder, gives its model a table as the end of a training would, and
evaluates it on the test samples; the runs stay as they are.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from svdno.environment import describe_environment, pick_device
from svdno.recipe import read_recipe
from svdno.run import find_data_folder, prepare_data
from svdno.training.batches import Batches
from svdno.training.checkpoint import load
from svdno.training.fitting import measure
from svdno.training.loop import solve_output
from svdno.training.losses import Objective
from svdno.training.refit import check_refit


def compare(run: Path) -> dict[str, Any]:
    """Mean relative L2 errors in percent, validation and test, without and with a table, and the rank of the table."""
    recipe = read_recipe(run / "recipe.toml")
    split = prepare_data(recipe, find_data_folder(run.parents[2] / "run")).split(
        recipe.data.train, recipe.data.validation
    )
    surrogate = load(run, pick_device())
    sets = {"validation": split.validation, "test": split.test}
    before = {name: 100 * measure(surrogate, data) for name, data in sets.items()}
    solve_output(
        Objective(surrogate, recipe.training.penalty, {}),
        Batches(surrogate, split.train),
        Batches(surrogate, split.validation),
        replace(recipe.training, refit=False, tabulate=True),
    )
    after = {name: 100 * measure(surrogate, data) for name, data in sets.items()}
    table = check_refit(surrogate.model, "tabulate").table
    return {"without": before, "with": after, "rank": 0 if table is None else len(table.rows)}


def main() -> None:
    """Compare, print, and write the record where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--method", required=True)
    parser.add_argument("--equation", default="*")
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the record")
    arguments = parser.parse_args()
    record: dict[str, Any] = {
        "command": f"python benchmarks/tabulated.py {arguments.folder.name} --method {arguments.method}",
        "what": "mean relative L2 error in percent of trained models without and with a table (training.tabulate)",
        "environment": describe_environment(),
        "runs": {},
    }
    for path in sorted(arguments.folder.glob(f"{arguments.equation}/{arguments.method}/*/metrics.json")):
        name = str(path.parent.relative_to(arguments.folder))
        record["runs"][name] = compare(path.parent)
        Console().print(name, record["runs"][name])
    if not record["runs"]:
        parser.error(f"no finished run of {arguments.method} below {arguments.folder}.")
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
