"""The command line: svdno demo | generate | inspect | plot | train | evaluate | predict | benchmark | report | tune.

No logic here. Bad input ends with a message and status 2; nobody is shown a traceback unless SVDNO_DEBUG=1.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from svdno import __version__
from svdno.errors import InputError
from svdno.recipe import bundled_recipes, parse_changes

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


Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


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


@app.command()
def generate(
    equation: Annotated[str, typer.Argument(help="Name of the equation, such as allen-cahn.")],
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, help="How many.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="HDF5 file; continued if it was interrupted.")],
    seed: Annotated[int, typer.Option(min=0, help="Sample i depends on the seed and i alone.")] = 0,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a parameter of the equation, such as points=512."),
    ] = None,
) -> None:
    """Solve an equation for random inputs and write a data file in the layout of the public benchmarks."""
    from svdno.console import Board
    from svdno.data.generate import generate as write_file
    from svdno.environment import pick_device
    from svdno.recipe import DataSettings

    if output.exists():
        raise InputError(f"{output} exists. Delete it or choose another name.")
    settings = DataSettings(equation, samples, seed, parameters=parse_changes(changes or []))
    with Board(Console()) as board:
        write_file(settings, output, pick_device(), board.follow_solving(settings))
    Console().print(f"File: {output} ({output.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="Data file.")],
    equation: Annotated[
        str | None, typer.Option(help="Equation to check it against, where the file does not name one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the audit as JSON.")] = False,
) -> None:
    """Say what a data file holds and check it: broken values, duplicates, twins across the split, wrong solutions."""
    from svdno.data.audit import describe, inspect_file

    audit = inspect_file(file, equation=equation)
    if as_json:
        print(json.dumps(audit.to_dict(), indent=1, ensure_ascii=False))
    else:
        for line in describe(audit):
            Console().print(line, markup=False, highlight=False, soft_wrap=True)
    if not audit.ok:
        raise typer.Exit(1)


@app.command()
def plot(
    file: Annotated[Path, typer.Argument(help="Data file.")],
    sample: Annotated[int, typer.Option(min=0, help="Which sample, counted from 0.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="PNG file.")] = Path("sample.png"),
) -> None:
    """Draw the input and the solution of one sample of a data file."""
    from svdno.data.generate import name_fields
    from svdno.data.hdf5 import read_contents
    from svdno.data.reader import read_samples
    from svdno.report.fields import draw_sample

    contents = read_contents(file)
    if sample >= contents.samples:
        raise InputError(f"{file} has samples 0 to {contents.samples - 1}, got {sample}.")
    inputs, outputs = read_samples(file, sample, sample + 1)
    title = f"{contents.equation or file.name}, sample {sample}"
    names = name_fields(contents)
    draw_sample(contents.axes, contents.times, inputs[0], outputs[0], names, title).savefig(output, dpi=150)
    Console().print(f"Figure: {output}", soft_wrap=True)


@app.command(epilog=f"Bundled recipes: {', '.join(bundled_recipes())}.")
def train(
    recipe: Annotated[str | None, typer.Argument(help="Name of a bundled recipe, or a TOML file.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Run folder; by default runs/RECIPE.")] = None,
    changes: Changes = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the unfinished run in this folder.")] = None,
    device: Device = "auto",
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write curves for TensorBoard too.")] = False,
) -> None:
    """Train one model as a recipe says; the run folder holds the model, its history and its test errors.

    Several processes train together: torchrun --nproc-per-node 2 -m svdno train RECIPE
    """
    from svdno.console import Board, follow_with_tensorboard, print_comparison
    from svdno.environment import pick_device
    from svdno.report.records import read_run
    from svdno.run import check_recipe, find_data_folder, find_run, prepare_data, run_recipe
    from svdno.training.distributed import joined, rank

    folder, settings = find_run(recipe, parse_changes(changes or []), output, resume)
    check_recipe(settings)
    with joined(pick_device(device)) as place:
        console = Console(quiet=rank() > 0)
        try:
            with Board(console) as board:
                on_progress, on_epoch = board.follow_solving(settings.data), board.follow_training(settings)
                if tensorboard and rank() == 0:
                    on_epoch = follow_with_tensorboard(folder / "tensorboard", on_epoch)
                data = prepare_data(settings, find_data_folder(folder), on_progress)
                run_recipe(settings, data, folder, on_epoch, place)
        except KeyboardInterrupt:
            console.print(f"Stopped. To continue: svdno train --resume {folder}", soft_wrap=True)
            raise typer.Exit(130) from None
        if rank() == 0:
            print_comparison(console, [read_run(folder)])
            console.print(f"Run: {folder}", soft_wrap=True)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    changes: Changes = None,
    device: Device = "auto",
) -> None:
    """Evaluate a trained model again on the test samples of its recipe, or of other data: --set data.space_stride=2."""
    from svdno.console import Board, print_errors
    from svdno.environment import pick_device
    from svdno.run import evaluate_run, find_data_folder

    with Board(Console(stderr=True)) as board:
        metrics = evaluate_run(
            run, find_data_folder(run), pick_device(device), board.follow_solving, parse_changes(changes or [])
        )
    if as_json:
        print(json.dumps(metrics, indent=1, ensure_ascii=False))
    else:
        print_errors(Console(), metrics)


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    inputs: Annotated[Path, typer.Argument(metavar="INPUT", help="Data file; its inputs are taken.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="HDF5 file for inputs and predictions.")],
    device: Device = "auto",
) -> None:
    """Predict the solutions for the inputs of a data file, at any resolution of the box that the model knows."""
    from svdno.console import Board
    from svdno.environment import pick_device
    from svdno.inference import predict_file
    from svdno.recipe import DataSettings

    with Board(Console()) as board:
        follow = board.follow_solving(DataSettings(file=str(inputs)))
        error = predict_file(run, inputs, output, device=pick_device(device), on_progress=follow)
    Console().print(f"File: {output} ({output.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)
    if error is not None:
        Console().print(f"Mean relative L2 error: {100 * error:.4g} %", soft_wrap=True)


@app.command()
def benchmark(
    table: Annotated[str, typer.Argument(help="Name of a bundled table, such as laptop, or a TOML file.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder; by default runs/TABLE.")] = None,
    equation: Annotated[list[str] | None, typer.Option(help="Only this one of its equations; repeatable.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this one of its methods; repeatable.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="This seed in place of its own; repeatable.")] = None,
    budget: Annotated[str | None, typer.Option(help="laptop, short or paper in place of its own.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Stop after so long; the same command continues.")
    ] = None,
    changes: Changes = None,
    device: Device = "auto",
) -> None:
    """Train every method of a table on every equation with every seed; what is finished is not done again."""
    from svdno.benchmark import narrow, plan, prepare_files, read_table, run_cells
    from svdno.console import Board, CellBoard
    from svdno.environment import advise_sharing, pick_device
    from svdno.run import find_data_folder

    _end_as_by_ctrl_c()
    folder = output or Path("runs") / "-".join([Path(table).stem, *([budget] if budget else [])])
    part = narrow(read_table(table), equation or [], method or [], seed or [], budget)
    cells = plan(part, folder, parse_changes(changes or []))
    data_folder = find_data_folder(folder / "run")
    console = Console()
    if advice := advise_sharing(workers, pick_device(device)):
        console.print(advice, soft_wrap=True)
    with Board(console) as board:
        prepare_files(cells, data_folder, board.follow_solving)
    with CellBoard(console, cells, workers) as view:
        run_cells(cells, data_folder, workers, device, view.show, None if minutes is None else 60 * minutes)
    console.print(f"Runs: {folder}", soft_wrap=True)
    if unfinished := sum(cell.state == "open" for cell in cells):
        console.print(f"Time is up with {unfinished} of {len(cells)} runs to go; the same command continues.")
    failed = [cell for cell in cells if cell.state == "failed"]
    for cell in failed:
        console.print(f"failed: {cell.folder}: {(cell.folder / 'failed.txt').read_text()}", soft_wrap=True)
    if failed:
        raise typer.Exit(1)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Folders of benchmarks or of runs.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder; by default FOLDER/report.")] = None,
    solvers: Annotated[
        Path | None, typer.Option(help="Record of the classical solvers, by benchmarks/solver_curve.py.")
    ] = None,
    steps: Annotated[
        Path | None, typer.Option(help="Record of the methods' cost measured apart, by benchmarks/steps.py.")
    ] = None,
    against: Annotated[str, typer.Option(help="Label of the method that the others are tested against.")] = "SVD-NO",
) -> None:
    """Turn finished runs into tables with statistics, figures and one page: Markdown, LaTeX, CSV, PNG, SVG, HTML."""
    from svdno.report.document import describe_protocols, describe_results, write_report

    output = output or folders[0] / "report"
    collection = write_report(folders, output, solvers, against, steps)
    lines = [*describe_results(collection), describe_protocols(collection) or ""]
    lines += [f"no result: {name}" for name in collection.failed]
    lines += [f"left out: {name}" for name in collection.left_out]
    for line in filter(None, [*lines, f"Report: {output / 'report.html'}"]):
        Console().print(line, markup=False, highlight=False, soft_wrap=True)


@app.command()
def tune(
    space: Annotated[str, typer.Argument(help="Name of a bundled space, or a TOML recipe with a search table.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the study, continued if there; by default runs/SPACE."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Trials of the study, those of earlier calls included.")] = 50,
    workers: Annotated[int, typer.Option(min=1, help="Trials at the same time.")] = 1,
    recipe: Annotated[str | None, typer.Option(help="Recipe to extend instead of the one the space names.")] = None,
    changes: Changes = None,
    device: Device = "auto",
) -> None:
    """Search for the settings with the smallest validation error; hopeless trials end early, what is done is kept."""
    from svdno.console import Board, TrialBoard, print_search
    from svdno.data.generate import find_or_generate
    from svdno.environment import pick_device
    from svdno.run import find_data_folder
    from svdno.tuning.space import read_space
    from svdno.tuning.study import SharedStudy
    from svdno.tuning.workers import run_workers

    _end_as_by_ctrl_c()
    place, console = pick_device(device), Console()
    settings = read_space(space, recipe, parse_changes(changes or []))
    folder = output or Path("runs") / Path(space).stem
    study, data_folder = SharedStudy(settings, folder), find_data_folder(folder)
    try:
        with Board(console) as board:
            find_or_generate(settings.recipe.data, data_folder, place, board.follow_solving(settings.recipe.data))
        with TrialBoard(console, list(settings.search), trials) as view:
            broken = run_workers(study, trials, workers, device, data_folder, view.show)
    except KeyboardInterrupt:
        console.print("\nStopped. The same command continues the study.")
        raise typer.Exit(130) from None
    print_search(console, study, broken)
    if broken or not (folder / "best.toml").exists():
        raise typer.Exit(1)
    console.print(f"Recipe: {folder / 'best.toml'}", soft_wrap=True)


def _end_as_by_ctrl_c() -> None:
    """On SIGTERM, which queues send, end what was started too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


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
        _fail(errors, _explain(error), status=1)


def _explain(error: Exception) -> str:
    """What the user can do about a failure that no other message is for."""
    name, said = type(error).__name__, str(error).partition("\n")[0].rstrip(".")
    # By name: commands that need no PyTorch do not load it.
    if name == "OutOfMemoryError" or "can't allocate memory" in said:
        return (
            f"{said}. Set training.accumulate or a smaller training.batch_size, or run fewer --workers at once; for "
            "data, take fewer points or frames."
        )
    if name == "AcceleratorError":
        return (
            f"the GPU failed: {said}. See with nvidia-smi who else uses it; a run that was cut off continues with "
            "`svdno train --resume RUN`, a benchmark with the same command."
        )
    return f"unexpected {name}: {error}. This is a defect of svdno; SVDNO_DEBUG=1 shows where."


def _fail(console: Console, message: str, status: int) -> None:
    if os.environ.get("SVDNO_DEBUG") == "1":
        raise
    console.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    sys.exit(status)
