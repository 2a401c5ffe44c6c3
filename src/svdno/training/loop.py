"""The training loop, top to bottom."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from svdno.data.dataset import Dataset
from svdno.errors import InputError
from svdno.models import lstm_triton
from svdno.recipe import TrainingSettings
from svdno.training.averaging import AveragedModel
from svdno.training.batches import Batches
from svdno.training.capture import Replayed
from svdno.training.distributed import processes, rank, sum_over_processes
from svdno.training.losses import Objective
from svdno.training.muon import Muon
from svdno.training.refit import check_refit, refit
from svdno.training.schedules import Clock, limited_rate
from svdno.training.state import Epoch, TrainingState
from svdno.training.surrogate import Surrogate
from svdno.training.symmetries import Symmetries
from svdno.training.tabulate import check_tabulate, tabulate

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "muon": Muon}

# So many times the samples of a step are validated at once: nothing of them is kept for a backward pass.
VALIDATION = 2

# Samples whose features are in memory at once for least squares, at most.
SOLVED = 25

# A loss this many times its smallest value so far has exploded.
EXPLOSION = 1e3

# The state goes to disk after an epoch if this many seconds have passed since it last did.
SAVE_SECONDS = 30.0


def train(
    surrogate: Surrogate,
    training_set: Dataset,
    validation_set: Dataset,
    settings: TrainingSettings,
    on_epoch: Callable[[Epoch], None] = lambda row: None,
    state_file: Path | None = None,
    identity: Mapping[str, Any] | None = None,
) -> list[Epoch]:
    """Fit the surrogate's model in place, end with the weights of the best validation error, return the history.

    state_file: where the state is kept between epochs; a training whose file exists continues from it
    identity: what decides the result, by default settings and model; a state file of another identity is refused
    """
    if settings.batch_size > len(training_set):
        raise InputError(
            f"`batch_size` must not exceed the {len(training_set)} training samples, got {settings.batch_size}."
        )
    check_solves(surrogate, settings)
    if settings.seconds and processes() > 1:
        raise InputError("`seconds` needs one process: the clocks of several differ. Use `epochs`.")
    with _arithmetic(settings, surrogate.device):
        model = {"model": surrogate.name, **surrogate.model.arguments}  # type: ignore[dict-item]
        identity = identity or {**asdict(settings), **model, "samples": len(training_set)}
        return _train(surrogate, training_set, validation_set, settings, on_epoch, state_file, dict(identity))


def _train(
    surrogate: Surrogate,
    training_set: Dataset,
    validation_set: Dataset,
    settings: TrainingSettings,
    on_epoch: Callable[[Epoch], None],
    state_file: Path | None,
    identity: dict[str, Any],
) -> list[Epoch]:
    model, samples = surrogate.model, len(training_set)
    fitted, held_out = Batches(surrogate, training_set), Batches(surrogate, validation_set)
    objective = Objective(surrogate, settings.penalty, settings.terms, training_set.equation)
    symmetries = Symmetries(settings.symmetries, surrogate.grid, training_set.equation)
    optimizer = _build_optimizer(model, settings)
    average = AveragedModel(model, settings.average)
    step = _build_step(objective, optimizer, average, settings)
    validate = _build_validation(objective, average.model, settings)

    state = TrainingState(model, average.model, optimizer, identity, {}, [])
    state.keep_weights()
    if state_file is not None and state_file.exists():
        state.restore(state_file)
    steps_per_epoch = -(-samples // settings.batch_size)
    average.steps.fill_(len(state.history) * steps_per_epoch)
    clock = Clock(settings.seconds, before=state.history[-1].seconds if state.history else 0.0)
    saved = float("-inf")

    for epoch in range(len(state.history) + 1, settings.epochs + 1):
        if _has_stalled(state, settings.patience) or clock.is_up():
            break
        model.train()
        totals = torch.zeros(3, dtype=torch.float64, device=surrogate.device)
        order = _draw_order(samples, settings, epoch)
        moves = symmetries.draw(samples, settings.seed, epoch).to(surrogate.device).split(settings.batch_size)
        seen = 0
        for i, batch in enumerate(fitted.fetch(_share(rows)[0] for rows in order)):
            if i and clock.is_up():
                break
            count = _share(order[i])[1]
            rate = limited_rate(settings, (epoch - 1) * steps_per_epoch + i, steps_per_epoch, clock)
            _set_learning_rate(optimizer, rate)
            # DDP averages gradients over the processes, however many samples each of them had.
            portion = torch.full((), count * processes() / len(order[i]), device=surrogate.device)
            totals += count * step(*symmetries.move(batch, _share(moves[i])[0]), portion)
            clock.steps += 1
            seen += len(order[i])
        loss, train_error, penalty = (sum_over_processes(totals) / seen).tolist()
        _check_loss(loss, epoch, state)
        validation_error = _measure(held_out, validate, validation_size(settings))
        if state.best is None or validation_error < state.best.validation_error:
            state.keep_weights()
        state.history.append(Epoch(epoch, rate, loss, penalty, train_error, validation_error, clock.seconds))
        if state_file is not None and rank() == 0 and perf_counter() - saved > SAVE_SECONDS:
            state.save(state_file)
            saved = perf_counter()
        on_epoch(state.history[-1])
    model.load_state_dict(state.best_weights)
    if settings.refit or settings.tabulate:
        train_error, validation_error = solve_output(objective, fitted, held_out, settings)
        number = len(state.history) + 1
        state.history.append(Epoch(number, 0.0, train_error, 0.0, train_error, validation_error, clock.seconds))
        on_epoch(state.history[-1])
    model.eval()
    return state.history


def check_solves(surrogate: Surrogate, settings: TrainingSettings) -> None:
    """See that least squares at the end have something to solve for, where they are asked for."""
    if settings.refit:
        check_refit(surrogate.model)
    if settings.tabulate:
        check_tabulate(surrogate)


def validation_size(settings: TrainingSettings) -> int:
    """Samples that are validated at once."""
    return max(1, VALIDATION * settings.batch_size // settings.accumulate)


def solve_output(
    objective: Objective, fitted: Batches, held_out: Batches, settings: TrainingSettings
) -> tuple[float, float]:
    """Training and validation error after least squares for the last weights, and for a table."""
    # Not as recorded steps: those would know nothing of a table.
    plain = replace(settings, precision="fp32", compile=False, capture=False)
    samples = len(fitted.data)
    size = max(1, min(settings.batch_size // settings.accumulate, SOLVED, samples // processes()))
    evaluate = _build_validation(objective, objective.model, plain)
    mine = torch.arange(samples).split(size)[rank() :: processes()]

    def validate() -> float:
        return _measure(held_out, evaluate, size)

    with _arithmetic(plain, fitted.surrogate.device):
        for method, wanted in ((refit, settings.refit), (tabulate, settings.tabulate)):
            if wanted:
                method(fitted.surrogate, objective, lambda: fitted.fetch(mine), validate)
        return _measure(fitted, evaluate, size), validate()


def _build_optimizer(model: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    device, rate = next(model.parameters()).device, settings.learning_rate
    kind = OPTIMIZERS[settings.optimizer]
    if device.type != "cuda":
        return kind(model.parameters(), lr=rate, weight_decay=settings.weight_decay)
    on_device = torch.tensor(rate, device=device)  # where a recorded step reads it
    return kind(model.parameters(), on_device, weight_decay=settings.weight_decay, fused=True, capturable=True)


def _build_step(
    objective: Objective, optimizer: torch.optim.Optimizer, average: AveragedModel, settings: TrainingSettings
) -> Callable[..., Tensor]:
    """One step on a batch; returns the means of loss, error and penalty over its samples."""
    parameters = list(objective.model.parameters())
    on_gpu = parameters[0].is_cuda
    alone = processes() == 1
    evaluate = _compile(objective if alone else DistributedDataParallel(objective), settings, on_gpu)

    def step(a: Tensor, truth: Tensor, norms: Tensor, portion: Tensor) -> Tensor:
        optimizer.zero_grad()
        totals = torch.zeros_like(norms[:1]).expand(3)
        for part in zip(*(t.chunk(settings.accumulate) for t in (a, truth, norms)), strict=True):
            with _autocast(a, settings):
                values = evaluate(*part) * (len(part[0]) / len(a))
            (portion * values[0]).backward()
            totals = totals + values.detach()
        if settings.clip:
            torch.nn.utils.clip_grad_norm_(parameters, settings.clip)
        optimizer.step()
        average.update()
        return totals

    return Replayed(step) if on_gpu and alone and settings.capture else step


def _build_validation(objective: Objective, model: nn.Module, settings: TrainingSettings) -> Callable[..., Tensor]:
    """The errors of the samples of a batch, in the precision of the training."""
    on_gpu = objective.points.is_cuda
    evaluate = _compile(model, settings, on_gpu)

    @torch.no_grad()
    def validate(a: Tensor, truth: Tensor, norms: Tensor) -> Tensor:
        model.eval()
        with _autocast(a, settings):
            y = evaluate(a, objective.points, objective.weights)
        return objective.errors(y.to(truth.dtype), truth, norms)

    return Replayed(validate) if on_gpu and settings.capture else validate


def _compile(module: nn.Module, settings: TrainingSettings, on_gpu: bool) -> Callable[..., Tensor]:
    """The module, with its operations fused where that is asked for and pays."""
    if not (settings.compile and on_gpu):
        return module
    # Where Triton runs the LSTMs, none of them is called that would have to be unrolled.
    torch._dynamo.config.allow_rnn = lstm_triton.COMPILES
    # What the first layers give costs less to compute again in the backward pass than to keep until then.
    torch._functorch.config.ban_recompute_used_far_apart = False
    torch._functorch.config.ban_recompute_long_fusible_chains = False
    return torch.compile(module)


def _autocast(like: Tensor, settings: TrainingSettings) -> torch.autocast:
    return torch.autocast(like.device.type, torch.bfloat16, enabled=settings.precision == "bf16")


def _measure(data: Batches, validate: Callable[..., Tensor], batch_size: int) -> float:
    """Mean error over a data set, its batches shared out among the processes."""
    batches = torch.arange(len(data.data)).split(batch_size)[rank() :: processes()]
    total = torch.zeros((), dtype=torch.float64, device=data.surrogate.device)
    for batch in data.fetch(batches):
        total += validate(*batch).sum()
    return sum_over_processes(total).item() / len(data.data)


def _draw_order(samples: int, settings: TrainingSettings, epoch: int) -> tuple[Tensor, ...]:
    """The sample numbers of each batch of an epoch, by seed and epoch alone."""
    generator = torch.Generator().manual_seed(1_000_003 * settings.seed + epoch)
    return torch.randperm(samples, generator=generator).split(settings.batch_size)


def _share(rows: Tensor) -> tuple[Tensor, int]:
    """This process's part of a batch, and how many samples of it count: a process left without takes one for none."""
    mine = rows[rank() :: processes()]
    return (mine, len(mine)) if len(mine) else (rows[:1], 0)


def _set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def _has_stalled(state: TrainingState, patience: int) -> bool:
    best = state.best
    return patience > 0 and best is not None and len(state.history) - best.epoch >= patience


def _check_loss(loss: float, epoch: int, state: TrainingState) -> None:
    smallest = min((row.loss for row in state.history), default=float("inf"))
    if not loss < min(float("inf"), EXPLOSION * smallest):
        state.model.load_state_dict(state.best_weights)
        kept = f"; the weights of epoch {state.best.epoch} are kept" if state.best else ""
        raise InputError(
            f"the loss became {loss:g} in epoch {epoch}{kept}. Lower training.learning_rate, or training.clip."
        )


@contextmanager
def _arithmetic(settings: TrainingSettings, device: torch.device) -> Iterator[None]:
    """On a GPU, products of float32 numbers in the precision asked for, and reproducible ones on request."""
    if device.type != "cuda":
        yield
        return
    cudnn = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), cudnn.allow_tf32, torch.are_deterministic_algorithms_enabled()
    torch.set_float32_matmul_precision("highest" if settings.precision == "fp32" else "high")
    cudnn.allow_tf32 = settings.precision != "fp32"
    torch.use_deterministic_algorithms(settings.deterministic or before[2])
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.allow_tf32 = before[1]
        torch.use_deterministic_algorithms(before[2])
