"""An unfinished training on disk: one file, replaced in one step, from which it continues to the same last bit.

training.safetensors holds the weights, the best weights so far and the moments of the optimiser as tensors, and the
history and the settings as JSON in its header. It is read without executing anything. history.csv beside it is for
people who want to follow.
"""

import csv
import json
from dataclasses import asdict, astuple, dataclass, fields
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from svdno.errors import InputError
from svdno.files import replace_file, replace_text

FORMAT = 1

HISTORY = "history.csv"


@dataclass(frozen=True)
class Epoch:
    """One row of the history; errors are mean relative L2, as fractions."""

    epoch: int
    learning_rate: float
    loss: float
    penalty: float
    train_error: float
    validation_error: float
    seconds: float


@dataclass
class TrainingState:
    """What changes while a model is trained.

    average: the model whose weights count, which may be `model` itself
    identity: everything that decides the result, to recognise a file that belongs to another training
    """

    model: nn.Module
    average: nn.Module
    optimizer: torch.optim.Optimizer
    identity: dict[str, Any]
    best_weights: dict[str, Tensor]
    history: list[Epoch]

    @property
    def best(self) -> Epoch | None:
        """The epoch of the smallest validation error."""
        return min(self.history, key=lambda row: row.validation_error, default=None)

    def keep_weights(self) -> None:
        """Take the present weights as the best ones."""
        self.best_weights = {name: tensor.clone() for name, tensor in self.average.state_dict().items()}

    def save(self, path: Path) -> None:
        """Write the file; an interruption leaves the one before."""
        tensors = {f"model/{name}": tensor for name, tensor in self.model.state_dict().items()}
        if self.average is not self.model:
            tensors |= {f"average/{name}": tensor for name, tensor in self.average.state_dict().items()}
        tensors |= {f"best/{name}": tensor for name, tensor in self.best_weights.items()}
        for i, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{i}/{name}": torch.as_tensor(value) for name, value in moments.items()}
        header = {"format": FORMAT, "identity": self.identity, "history": [asdict(row) for row in self.history]}
        on_host = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
        write_history(path.with_name(HISTORY), self.history)
        try:
            replace_file(path, lambda part: save_file(on_host, part, metadata={"state": json.dumps(header)}))
        except SafetensorError as error:
            raise InputError(f"the state cannot be written to {path}: {error}. The last one is kept.") from None

    def restore(self, path: Path) -> None:
        """Continue from a file, if it is of this training."""
        try:
            with safe_open(path, framework="pt") as file:
                header = json.loads((file.metadata() or {})["state"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            self._check(header, path)
            self.history = [Epoch(**row) for row in header["history"]]
            self.model.load_state_dict(_part(tensors, "model"))
            if self.average is not self.model:
                self.average.load_state_dict(_part(tensors, "average"))
            self.best_weights = {name: t.to(_device(self.model)) for name, t in _part(tensors, "best").items()}
            self._restore_optimizer(_part(tensors, "optimizer"))
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
            raise InputError(
                f"{path} is damaged or is not the state of this training: {error}. Delete it to start again."
            ) from None

    def _check(self, header: dict[str, Any], path: Path) -> None:
        if header["format"] != FORMAT:
            raise InputError(f"{path} has format {header['format']}, this version of svdno reads format {FORMAT}.")
        found, wanted = header["identity"], json.loads(json.dumps(self.identity))
        changed = [
            f"{key} was {found.get(key)!r} and is {wanted.get(key)!r}"
            for key in sorted(found.keys() | wanted.keys())
            if found.get(key) != wanted.get(key)
        ]
        if changed:
            raise InputError(
                f"the training in {path} was started with other settings: {'; '.join(changed)}. "
                "Restore them to continue, or start a new run in another folder."
            )

    def _restore_optimizer(self, tensors: dict[str, Tensor]) -> None:
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            i, key = name.split("/")
            moments.setdefault(int(i), {})[key] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})


def write_history(path: Path, history: list[Epoch]) -> None:
    """Write one row per epoch."""
    text = StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([f.name for f in fields(Epoch)])
    writer.writerows(astuple(row) for row in history)
    replace_text(path, text.getvalue())


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}/"): t for name, t in tensors.items() if name.startswith(f"{prefix}/")}


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
