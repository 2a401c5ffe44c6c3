"""The counterpart of the training loop for methods that are fitted in closed form."""

from collections.abc import Callable
from time import perf_counter

import torch

from svdno.data.dataset import CHUNK, Dataset
from svdno.data.memory import free_memory
from svdno.errors import InputError
from svdno.models.fitted import Fitted
from svdno.training.batches import Batches
from svdno.training.losses import relative_l2
from svdno.training.state import Epoch
from svdno.training.surrogate import Surrogate


@torch.no_grad()
def fit(
    surrogate: Surrogate,
    training_set: Dataset,
    validation_set: Dataset,
    on_epoch: Callable[[Epoch], None] = lambda row: None,
) -> list[Epoch]:
    """Fit the surrogate's method in place and return a history of one row, so that records are those of any run."""
    method = surrogate.model
    if not isinstance(method, Fitted):
        raise InputError(f"{surrogate.name!r} is trained, not fitted. Use train(surrogate, …).")
    _check_memory(surrogate, training_set)
    start = perf_counter()
    inputs, targets, _ = next(Batches(surrogate, training_set).in_order(len(training_set)))
    method.fit(inputs, targets, lambda: measure(surrogate, validation_set))
    seconds = perf_counter() - start
    train_error, validation_error = measure(surrogate, training_set), measure(surrogate, validation_set)
    row = Epoch(1, 0.0, train_error, 0.0, train_error, validation_error, seconds)
    on_epoch(row)
    return [row]


def measure(surrogate: Surrogate, data: Dataset) -> float:
    """Mean relative L2 error over a data set, in physical units."""
    errors = [
        relative_l2(surrogate.predict(data.inputs[i : i + CHUNK]), data.outputs[i : i + CHUNK])
        for i in range(0, len(data), CHUNK)
    ]
    return torch.cat(errors).double().mean().item()


def _check_memory(surrogate: Surrogate, data: Dataset) -> None:
    # The samples, and once more what the method makes of them.
    needed, free = 3 * data.nbytes, free_memory(surrogate.device)
    if needed > free:
        raise InputError(
            f"{surrogate.name!r} is fitted to all training samples at once, which takes {needed / 1e9:.1f} GB of "
            f"memory; {free / 1e9:.1f} GB are free. Use fewer samples, or set data.time_stride or data.space_stride."
        )
