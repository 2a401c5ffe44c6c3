"""What a person sees in the terminal: progress bars and tables."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from svdno.errors import InputError
from svdno.recipe import DataSettings, Recipe
from svdno.report.records import Run, read_error
from svdno.report.tables import best_row, comparison
from svdno.training.state import Epoch

if TYPE_CHECKING:
    from svdno.benchmark import Cell
    from svdno.tuning.results import Attempt
    from svdno.tuning.study import SharedStudy

# Lines of a table that is drawn again and again: a terminal cannot take back what has left it.
LATEST = 12


class Board(Progress):
    """Bars for solving and for each training, with loss, error and time left."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            TextColumn("{task.description:<16}"),
            BarColumn(bar_width=16),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[info]}"),
            console=console,
        )

    def follow_solving(self, data: DataSettings) -> Callable[[int, int], None]:
        """Add a bar for a data set; returns what to call with the samples done."""
        title = data.equation or Path(data.file).name
        task = self.add_task(f"Data {title}", total=None, info="", start=False)

        def advance(done: int, of: int) -> None:
            self.start_task(task)
            self.update(task, completed=done, total=of, info=f"{done} samples")

        return advance

    def follow_training(self, recipe: Recipe) -> Callable[[Epoch], None]:
        """Add a bar for a training; returns what to call after each epoch."""
        task: TaskID = self.add_task(f"Train {recipe.label}", total=1.0, info="waiting", start=False)

        def advance(row: Epoch) -> None:
            self.start_task(task)
            info = f"loss {row.loss:.4f}  error {100 * row.validation_error:.2f} %"
            self.update(task, completed=recipe.training.share_done(row.epoch, row.seconds), info=info)

        return advance


def follow_with_tensorboard(folder: Path, on_epoch: Callable[[Epoch], None]) -> Callable[[Epoch], None]:
    """Write each epoch's numbers for TensorBoard, besides what `on_epoch` does."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("--tensorboard needs the package: pip install 'svdno[tensorboard]'.") from None
    writer = SummaryWriter(str(folder))

    def advance(row: Epoch) -> None:
        for name, value in asdict(row).items():
            writer.add_scalar(name, value, row.epoch)
        writer.flush()
        on_epoch(row)

    return advance


def print_errors(console: Console, metrics: dict[str, Any]) -> None:
    """Print the test errors of one evaluation, with and without the start frame, as percentages."""
    table = RichTable(title=f"{metrics['label']}, {metrics['equation']}: {metrics['split']}")
    for title in ("", "mean", "median", "p90", "max"):
        table.add_column(title, justify="right" if title else "left")
    rows = {"relative L2 (%)": "relative_l2", "without t = 0 (%)": "relative_l2_without_start", "L∞": "linf"}
    for label, key in rows.items():
        factor = 100 if "%" in label else 1
        table.add_row(label, *(f"{factor * value:.4g}" for value in metrics["test"][key].values()))
    console.print(table)
    if metrics["orthogonality"] is not None:
        console.print(f"L_ortho: {metrics['orthogonality']:.2e}")


def print_comparison(console: Console, runs: list[Run]) -> None:
    """Print the errors and costs of runs on test samples, the best row in bold."""
    header, rows = comparison(runs)
    table = RichTable(title=f"{runs[0].metrics['title']}: {runs[0].metrics['split']}")
    for i, title in enumerate(header):
        table.add_column(title, justify="left" if i == 0 else "right")
    for i, row in enumerate(rows):
        table.add_row(*row, style="bold" if i == best_row(runs) else None)
    console.print(table)


class CellBoard(Live):
    """A table that fills: methods down, equations across, mean test error of the seeds that are done."""

    def __init__(self, console: Console, cells: list["Cell"], workers: int) -> None:
        self.cells, self.workers = cells, workers
        self.started, self.open_at_start = perf_counter(), self._count("open") + self._count("failed")
        super().__init__(self._draw(), console=console, auto_refresh=False)

    def show(self, changed: "Cell") -> None:
        """Draw the table again, as a cell has changed."""
        self.update(self._draw(), refresh=True)

    def _count(self, state: str) -> int:
        return sum(cell.state == state for cell in self.cells)

    def _draw(self) -> RichTable:
        finished, failed = self._count("finished"), self._count("failed")
        done = self.open_at_start - (len(self.cells) - finished - failed)
        left = (perf_counter() - self.started) / done * (self.open_at_start - done) if done > 0 else None
        time = "" if left is None else f", about {left / 60:.0f} min left"
        title = f"{finished} of {len(self.cells)} runs finished" + (f", {failed} failed" if failed else "") + time
        equations = list(dict.fromkeys(cell.equation for cell in self.cells))
        table = RichTable("method", *equations, title=title)
        for method in dict.fromkeys(cell.method for cell in self.cells):
            row = [self._describe(method, equation) for equation in equations]
            table.add_row(next(c.recipe.label for c in self.cells if c.method == method), *row)
        return table

    def _describe(self, method: str, equation: str) -> str:
        cells = [cell for cell in self.cells if (cell.method, cell.equation) == (method, equation)]
        errors = [read_error(cell.folder) for cell in cells if cell.state == "finished"]
        mean = f"{100 * sum(errors) / len(errors):.3g} %" if errors else "–"
        failed = sum(cell.state == "failed" for cell in cells)
        return f"{mean} ({len(errors)}/{len(cells)})" + (f" {failed} failed" if failed else "")


class TrialBoard(Live):
    """A table that grows: the latest trials of a search and the best one, with their values and validation errors."""

    def __init__(self, console: Console, keys: list[str], trials: int) -> None:
        self.keys, self.trials = keys, trials
        self.started, self.done_at_start = perf_counter(), -1
        super().__init__(console=console, auto_refresh=False)

    def show(self, study: "SharedStudy") -> None:
        """Draw the table again, as the study is now."""
        self.update(self._draw(study.attempts()), refresh=True)

    def _draw(self, attempts: list["Attempt"]) -> RichTable:
        from svdno.tuning.results import find_best

        best = find_best(attempts)
        table = RichTable("trial", title=self._summarise(attempts))
        for key in self.keys:  # with blanks a narrow terminal breaks names between words
            table.add_column(key.rpartition(".")[2].replace("_", " "), justify="right")
        for title in ("error (%)", "epochs", "time (s)", "state"):
            table.add_column(title, justify="left" if title == "state" else "right", no_wrap=title == "state")
        for attempt in attempts:
            if attempt is best or attempt in attempts[-LATEST:]:
                table.add_row(*self._row(attempt), style="bold" if attempt is best else None)
        return table

    def _row(self, attempt: "Attempt") -> list[str]:
        values = [attempt.values.get(key, "") for key in self.keys]
        error = "–" if attempt.error is None else f"{100 * attempt.error:.4g}"
        numbers = [error, str(attempt.epochs), f"{attempt.seconds:.0f}", attempt.state]
        return [str(attempt.number), *(f"{v:.3g}" if isinstance(v, float) else str(v) for v in values), *numbers]

    def _summarise(self, attempts: list["Attempt"]) -> str:
        counts = {state: sum(a.state == state for a in attempts) for state in ("finished", "pruned", "failed")}
        done = sum(counts.values())
        if self.done_at_start < 0:
            self.done_at_start = done
        made = done - self.done_at_start
        left = (perf_counter() - self.started) / made * (self.trials - done) if made else 0.0
        time = f", about {left / 60:.0f} min left" if left > 0 else ""
        others = "".join(f", {n} {state}" for state, n in counts.items() if n and state != "finished")
        return f"{done} of {self.trials} trials done{others}{time}"


def print_search(console: Console, study: "SharedStudy", broken: list[str]) -> None:
    """Print the best trial of a search, how much its settings matter, and what went wrong."""
    from svdno.tuning.results import find_best

    attempts, importances = study.attempts(), study.importances()
    best, lines = find_best(attempts), ["", "No trial is finished."]
    if best is not None:
        lines = ["", f"Best: trial {best.number}, validation error {100 * (best.error or 0.0):.4g} %"]
        for key, value in best.values.items():
            share = f"   importance {100 * importances[key]:.0f} %" if key in importances else ""
            lines.append(f"  {key} = {value}{share}")
    lines += [f"failed: trial {a.number}: {a.message}" for a in attempts if a.state == "failed"]
    for line in lines + broken:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
