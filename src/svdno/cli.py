"""The command line: svdno demo | train. No logic of its own.

Bad input ends with a message and status 2; nobody is shown a traceback unless SVDNO_DEBUG=1.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from svdno import __version__
from svdno.errors import InputError
from svdno.recipe import bundled_recipes, parse_changes, read_recipe

app = typer.Typer(
    help="Learn solution operators of PDEs with SVD-NO, the neural operator whose kernel is kept as its SVD.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe, such as training.epochs=20."),
]


def _show_version(show: bool) -> None:
    if show:
        print(f"svdno {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")] = Path("runs/demo"),
    changes: Changes = None,
) -> None:
    """Solve an equation, train SVD-NO and an FNO on it, compare them, and write a report: minutes on a laptop."""
    from svdno.demo import run_demo  # PyTorch loads here, so that --help does not wait for it

    run_demo(output, parse_changes(changes or []), Console())


@app.command(epilog=f"Bundled recipes: {', '.join(bundled_recipes())}.")
def train(
    recipe: Annotated[str, typer.Argument(help="Name of a bundled recipe, or a TOML file.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Run folder; by default runs/RECIPE.")] = None,
    changes: Changes = None,
) -> None:
    """Train one model as a recipe says; the run folder holds the model, its history and its test errors."""
    from svdno.console import Board, print_comparison
    from svdno.report.records import read_run
    from svdno.run import check_recipe, prepare_data, run_recipe

    settings = read_recipe(recipe, parse_changes(changes or []))
    check_recipe(settings)
    folder = output or Path("runs") / Path(recipe).stem
    console = Console()
    with Board(console) as board:
        on_progress, on_epoch = board.follow_solving(settings.data.equation), board.follow_training(settings)
        run_recipe(settings, prepare_data(settings, folder.parent / "data", on_progress), folder, on_epoch)
    print_comparison(console, [read_run(folder)])
    console.print(f"Run: {folder}", soft_wrap=True)


def main() -> None:
    """Run the command line; every failure becomes a message and an exit status."""
    errors = Console(stderr=True)
    try:
        app()
    except InputError as error:
        _fail(errors, str(error), status=2)
    except KeyboardInterrupt:
        _fail(errors, "stopped.", status=130)
    except OSError as error:
        _fail(errors, f"{error.filename or 'a file'}: {error.strerror or error}", status=2)
    except Exception as error:
        message = f"unexpected {type(error).__name__}: {error}. This is a defect of svdno; SVDNO_DEBUG=1 shows where."
        _fail(errors, message, status=1)


def _fail(console: Console, message: str, status: int) -> None:
    if os.environ.get("SVDNO_DEBUG") == "1":
        raise
    console.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    sys.exit(status)
