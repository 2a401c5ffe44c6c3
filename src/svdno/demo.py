"""The demo: one equation, SVD-NO beside an FNO, from solver to report, on a laptop."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from svdno.console import Board, print_comparison
from svdno.recipe import read_recipe
from svdno.report.page import describe_result, write_page
from svdno.report.records import read_run
from svdno.run import check_recipe, prepare_data, run_recipe

RECIPES = {"svdno": "demo", "fno": "demo-fno"}


def run_demo(folder: Path, changes: Mapping[str, Any], console: Console) -> None:
    """Generate the data, train both models, evaluate them, and write records and report into the folder.

    changes: settings of the recipes; those of the model are meant for SVD-NO
    """
    shared = {key: value for key, value in changes.items() if not key.startswith("model.")}
    recipes = {name: read_recipe(recipe, changes if name == "svdno" else shared) for name, recipe in RECIPES.items()}
    for recipe in recipes.values():
        check_recipe(recipe)
    with Board(console) as board:
        on_progress = board.follow_solving(recipes["svdno"].data)
        followers = {name: board.follow_training(recipe) for name, recipe in recipes.items()}
        data = prepare_data(recipes["svdno"], folder / "data", on_progress)
        # Products this small gain nothing from threads, and lose much where something else keeps a core busy.
        torch.set_num_threads(1)
        for name, recipe in recipes.items():
            run_recipe(recipe, data, folder / name, followers[name])
    runs = [read_run(folder / name) for name in recipes]
    print_comparison(console, runs)
    console.print(describe_result(runs))
    console.print(f"Report: {write_page(runs, folder)}", soft_wrap=True)
