"""What a person sees in the terminal: progress bars and tables."""

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from svdno.recipe import Recipe
from svdno.report.records import Run
from svdno.report.tables import best_row, comparison
from svdno.training.state import Epoch


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

    def follow_solving(self, title: str) -> Callable[[int, int], None]:
        """Add a bar for a data set; returns what to call with the samples done."""
        task = self.add_task(f"Data {title}", total=None, info="", start=False)

        def advance(done: int, of: int) -> None:
            self.start_task(task)
            self.update(task, completed=done, total=of, info=f"{done} samples")

        return advance

    def follow_training(self, recipe: Recipe) -> Callable[[Epoch], None]:
        """Add a bar for a training; returns what to call after each epoch."""
        task: TaskID = self.add_task(f"Train {recipe.label}", total=recipe.training.epochs, info="waiting", start=False)

        def advance(row: Epoch) -> None:
            self.start_task(task)
            info = f"loss {row.loss:.4f}  error {100 * row.validation_error:.2f} %"
            self.update(task, completed=row.epoch, info=info)

        return advance


def print_comparison(console: Console, runs: list[Run]) -> None:
    """Print the errors and costs of runs on test samples, the best row in bold."""
    header, rows = comparison(runs)
    table = Table(title=f"{runs[0].metrics['title']}: {runs[0].metrics['split']}")
    for i, title in enumerate(header):
        table.add_column(title, justify="left" if i == 0 else "right")
    for i, row in enumerate(rows):
        table.add_row(*row, style="bold" if i == best_row(runs) else None)
    console.print(table)
