"""The training loop, top to bottom."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR, StepLR

from svdno.data.dataset import Dataset
from svdno.errors import InputError
from svdno.recipe import TrainingSettings
from svdno.training.losses import Objective, relative_l2
from svdno.training.surrogate import Surrogate


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


def train(
    surrogate: Surrogate,
    training_set: Dataset,
    validation_set: Dataset,
    settings: TrainingSettings,
    on_epoch: Callable[[Epoch], None] = lambda row: None,
) -> list[Epoch]:
    """Fit the surrogate's model in place, end with the weights of the best validation error, return the history."""
    model, device = surrogate.model, surrogate.device
    points, weights = surrogate.locate(surrogate.grid.shape)
    a = surrogate.input_normalizer.encode(training_set.inputs.to(device, surrogate.dtype))
    u = training_set.outputs.to(device, surrogate.dtype)
    shuffle = torch.Generator().manual_seed(settings.seed)

    objective = Objective(surrogate, settings.penalty)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    batches = -(-len(a) // settings.batch_size)
    schedule = _build_schedule(optimizer, settings, batches)

    history: list[Epoch] = []
    best, best_state = float("inf"), deepcopy(model.state_dict())
    start = perf_counter()
    for epoch in range(1, settings.epochs + 1):
        model.train()
        totals = torch.zeros(3, dtype=torch.float64, device=device)
        learning_rate = float(schedule.get_last_lr()[0])
        for rows in torch.randperm(len(a), generator=shuffle).to(device).split(settings.batch_size):
            loss, error, penalty = objective(a[rows], u[rows], points, weights)
            optimizer.zero_grad()
            loss.backward()
            if settings.clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            optimizer.step()
            schedule.step()
            totals += len(rows) * torch.stack([loss, error, penalty]).detach()
        loss_mean, train_error, penalty_mean = (totals / len(a)).tolist()
        if not loss_mean < float("inf"):
            model.load_state_dict(best_state)
            raise InputError(
                f"the loss became {loss_mean} in epoch {epoch}; the best weights so far are kept. "
                "Lower training.learning_rate or set training.clip = 1.0."
            )
        validation_error = measure_error(surrogate, validation_set)
        if validation_error < best:
            best, best_state = validation_error, deepcopy(model.state_dict())
        history.append(
            Epoch(
                epoch,
                learning_rate,
                loss_mean,
                penalty_mean,
                train_error,
                validation_error,
                perf_counter() - start,
            )
        )
        on_epoch(history[-1])
    model.load_state_dict(best_state)
    return history


def measure_error(surrogate: Surrogate, data: Dataset) -> float:
    """Mean relative L2 error of the surrogate's predictions."""
    prediction: Tensor = surrogate.predict(data.inputs)
    return relative_l2(prediction, data.outputs.to(prediction)).mean().item()


def _build_schedule(optimizer: torch.optim.Optimizer, settings: TrainingSettings, batches: int) -> LRScheduler:
    """The learning rate after each batch."""
    if settings.schedule == "one-cycle":
        return OneCycleLR(optimizer, settings.learning_rate, total_steps=settings.epochs * batches + 1)
    if settings.schedule == "step":
        return StepLR(optimizer, settings.step_epochs * batches, gamma=0.5)
    return LambdaLR(optimizer, lambda step: 1.0)
