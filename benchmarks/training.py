"""Training speed at the paper's settings and sizes, against a plain loop and against neuraloperator's FNO.

    python benchmarks/training.py [-o results/training-h200.json]

For each of the five paper recipes, on random fields of the recipe's shapes:
    epoch    seconds of one epoch of `svdno.train`, validation included, best of the last two of four
    plain    an epoch of the same model with Φ and Ψ formed at every point, in the loop people write: eager, PyTorch's
             default precision, batches from a DataLoader in host memory, loss.item() after every step, validation
             included (from the least times of a step and of a validation batch); and the same loop with TF32 and
             the data on the device
    peer     neuraloperator's FNO of the same width (12 modes), points and batch under its own Trainer
Then the memory of the shallow-water step at ranks 4 and 10, and the growth of the step's time with the number of
points. Ratios are of times from one run. Without a GPU everything runs at toy sizes, to see that it works.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from math import log
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from svdno import Dataset, Surrogate, train
from svdno.data.generate import build_equation
from svdno.environment import describe_environment, pick_device
from svdno.models.svd_kernel import Bases, SVDKernel
from svdno.recipe import Recipe, read_recipe
from svdno.training.losses import relative_l2

EQUATIONS = ("allen-cahn", "diffusion-reaction", "diffusion-sorption", "shallow-water", "darcy")
MODES = 12


def synchronise() -> None:
    """Wait for the GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def draw_data(recipe: Recipe, samples: int, points: int | None = None) -> Dataset:
    """Random fields of the shapes that the recipe's data have, or on fewer points; a few dozen, repeated."""
    fewer = {"points": points} if points else {}
    equation = build_equation(recipe.data.equation, {**recipe.data.parameters, **fewer})
    grid = equation.grid.strided(1 if points else recipe.data.space_stride)
    shape = grid.shape
    torch.manual_seed(0)
    distinct = min(samples, 40)
    a = torch.randn(distinct, *shape, len(equation.input_fields))
    u = torch.randn(distinct, len(equation.times), *shape, len(equation.output_fields))
    rows = torch.arange(samples) % distinct
    return Dataset(a[rows], u[rows], grid, equation.times, equation.input_fields, equation.output_fields, equation)


def build_surrogate(recipe: Recipe, data: Dataset, device: torch.device) -> Surrogate:
    """The recipe's model on the device."""
    torch.manual_seed(0)
    arguments = {key: value for key, value in recipe.model.items() if key != "name"}
    surrogate = Surrogate.build(recipe.model["name"], data, **arguments)
    surrogate.model.to(device)
    return surrogate


def measure_epoch(recipe: Recipe, data: Dataset, device: torch.device) -> dict[str, float]:
    """Seconds of an epoch and peak memory of the library's loop."""
    split = data.split()
    torch.compiler.reset()  # or shapes seen before would make the sizes of this one variables of slower code
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    history = train(build_surrogate(recipe, split.train, device), split.train, split.validation, recipe.training)
    ends = [row.seconds for row in history]
    seconds = min(ends[i] - ends[i - 1] for i in (-1, -2))
    steps, validation_steps = (-(-len(part) // recipe.training.batch_size) for part in (split.train, split.validation))
    memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    return {
        "seconds_per_epoch": seconds,
        "steps": steps,
        "validation_steps": validation_steps,
        "peak_gib_with_data": memory,
    }


class FormedKernel(SVDKernel):
    """The kernel as the paper writes it: Φ(z) and Ψ(z) as tensors of n × d × L numbers."""

    def prepare(self, z: Tensor, w: Tensor, *, with_grams: bool = False) -> Bases:
        """Form both and integrate their products."""
        formed = [_form(f, z) for f in (self.left, self.right)]
        grams = tuple(torch.einsum("bncl,bncm,bn->blm", F, F, w.expand(z.shape[:2])) for F in formed)
        return Bases(formed[0], formed[1] * w[..., None, None], None, (z, z), grams)  # type: ignore[arg-type]

    def forward(self, v: Tensor, bases: Bases, sigma: Tensor, bias: Tensor | None = None) -> Tensor:
        """Φ Σ ∫ Ψᵀ v + b."""
        q = torch.einsum("bncl,bnc->bl", bases.right, v)
        Kv = torch.einsum("bncl,bl->bnc", bases.left, sigma * q)
        return Kv if bias is None else Kv + bias


def _form(functions: Any, z: Tensor) -> Tensor:
    h = functions.trunk(z)
    return torch.einsum("bnk,lck->bncl", h, functions.head[..., :-1]) + functions.head[..., -1].T


def measure_plain(recipe: Recipe, data: Dataset, device: torch.device, *, favoured: bool) -> dict[str, float]:
    """Seconds per step and per validation batch of the plain loop over the formed kernel.

    favoured: TF32 and data on the device instead of the defaults
    """
    surrogate = build_surrogate(recipe, data, device)
    model = surrogate.model
    for kernel in model.kernels:  # type: ignore[union-attr]
        kernel.__class__ = FormedKernel
    points, weights = surrogate.locate(data.grid)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    a, u = data.inputs, data.outputs
    assert isinstance(u, Tensor)
    if favoured:
        a, u = a.to(device), u.to(device)
    loader = DataLoader(TensorDataset(a, u), recipe.training.batch_size, shuffle=True)
    torch.set_float32_matmul_precision("high" if favoured else "highest")

    def compute_loss(batch: list[Tensor]) -> Tensor:
        a_batch, u_batch = (tensor.to(device) for tensor in batch)
        y, penalty = model.forward_with_penalty(  # type: ignore[operator]
            surrogate.input_normalizer.encode(a_batch), points, weights
        )
        return relative_l2(surrogate.as_frames(y), u_batch).mean() + penalty

    def step(batch: list[Tensor]) -> None:
        loss = compute_loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    @torch.no_grad()
    def validate(batch: list[Tensor]) -> None:
        compute_loss(batch).item()

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = {"seconds_per_step": least_time(step, loader)}
    memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    seconds["seconds_per_validation_step"] = least_time(validate, loader)
    torch.set_float32_matmul_precision("highest")
    return {**seconds, "peak_gib": memory}


def least_time(work: Callable[[list[Tensor]], None], loader: DataLoader[Any]) -> float:
    """Least seconds of a batch, the first two apart, with the time the loader takes for it."""
    times = []
    start = perf_counter()
    for batch in loader:
        work(batch)
        times.append(perf_counter() - start)
        start = perf_counter()
    return min(times[2:])


def measure_peer(recipe: Recipe, data: Dataset, device: torch.device) -> dict[str, Any]:
    """Seconds per step of neuraloperator's FNO in its own Trainer, TF32 allowed."""
    try:
        from neuralop import LpLoss, Trainer
        from neuralop.models import FNO
    except ImportError as error:
        return {"skipped": f"neuraloperator is not installed: {error}"}
    dim, width = data.grid.dim, recipe.model["hidden_channels"]
    assert isinstance(data.outputs, Tensor)
    x, y = data.inputs.movedim(-1, 1), data.outputs[..., 0]
    model = FNO(n_modes=(2 * MODES,) * dim, in_channels=x.shape[1], out_channels=y.shape[1], hidden_channels=width)
    model = model.to(device)
    pairs = [{"x": a, "y": u} for a, u in zip(x.to(device), y.to(device), strict=True)]
    loader: DataLoader[Any] = DataLoader(pairs, recipe.training.batch_size, shuffle=True)  # type: ignore[arg-type]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.set_float32_matmul_precision("high")
    trainer = Trainer(model=model, n_epochs=3, device=device, eval_interval=100, verbose=False)
    metrics = trainer.train(
        train_loader=loader,
        test_loaders={},
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 100),
        training_loss=LpLoss(d=dim, p=2),
    )
    torch.set_float32_matmul_precision("highest")
    return {
        "seconds_per_step": metrics["epoch_train_time"] / len(loader),
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def compare(name: str, device: torch.device) -> dict[str, Any]:
    """All figures of one equation."""
    recipe = read_recipe(f"{name}/paper", {"training.epochs": 4})
    toy = device.type == "cpu"
    if toy:
        recipe = replace(recipe, training=replace(recipe.training, batch_size=4))
    data = draw_data(recipe, 40 if toy else recipe.data.samples, 32 if toy else None)
    row: dict[str, Any] = {"equation": name, **measure_epoch(recipe, data, device)}
    few = data.subset(0, 12 * recipe.training.batch_size if not toy else 16)
    for label, favoured in (("plain", False), ("plain_tf32_on_device", True)):
        plain = measure_plain(recipe, few, device, favoured=favoured)
        plain["seconds_per_epoch"] = (
            plain["seconds_per_step"] * row["steps"] + plain["seconds_per_validation_step"] * row["validation_steps"]
        )
        row[label] = {**plain, "ratio": plain["seconds_per_epoch"] / row["seconds_per_epoch"]}
    row["peer"] = measure_peer(recipe, few, device)
    if "seconds_per_step" in row["peer"]:
        row["step_over_peer"] = row["seconds_per_epoch"] / row["steps"] / row["peer"]["seconds_per_step"]
    return row


def measure_rank_memory(device: torch.device) -> list[dict[str, float]]:
    """Peak memory of the shallow-water training at ranks 4 and 10, data apart."""
    rows = []
    for rank in (4, 10):
        recipe = read_recipe("shallow-water/paper", {"training.epochs": 4, "model.rank": rank})
        data = draw_data(recipe, 30, 16 if device.type == "cpu" else None)
        row = measure_epoch(recipe, data, device)
        resident = 0.9 * data.nbytes / 2**30  # training and validation samples stay on the device
        rows.append({"rank": rank, "peak_gib": row["peak_gib_with_data"] - resident})
    return rows


def measure_growth(device: torch.device) -> dict[str, Any]:
    """Seconds of a step over the number of points, 2¹² to 2²⁰, batch 1."""
    settings = {"training.epochs": 4, "training.batch_size": 1, "training.compile": False}
    recipe = read_recipe("darcy/paper", settings)  # not compiled, which would take longer than all the steps
    powers = range(12, 21, 2) if device.type == "cuda" else range(6, 11, 2)
    rows = []
    for power in powers:
        data = draw_data(recipe, 20, 2 ** (power // 2))
        measured = measure_epoch(recipe, data, device)
        rows.append({"points": 2**power, "seconds": measured["seconds_per_epoch"] / measured["steps"]})
    slope = log(rows[-1]["seconds"] / rows[0]["seconds"]) / log(rows[-1]["points"] / rows[0]["points"])
    return {"steps": rows, "slope": slope}


def main() -> None:
    """Measure, print, and write the record where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the record")
    parser.add_argument("--equations", nargs="*", default=list(EQUATIONS))
    arguments = parser.parse_args()
    device, console = pick_device(), Console()
    record: dict[str, Any] = {
        "command": "python benchmarks/training.py",
        "environment": describe_environment(),
        "modes_of_fno": MODES,
        "equations": [],
    }

    def add(key: str, measure: Callable[[], Any]) -> None:
        record[key] = measure()
        console.print(key, record[key])

    for name in arguments.equations:
        record["equations"].append(compare(name, device))
        console.print(record["equations"][-1])
        sys.stdout.flush()
    add("rank_memory", lambda: measure_rank_memory(device))
    add("growth", lambda: measure_growth(device))
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
