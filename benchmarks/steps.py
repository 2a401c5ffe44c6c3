"""What methods of the table `short` cost with the machine to themselves, for `svdno report --steps FILE`.

    python benchmarks/steps.py [-o results/steps-h200.json]                             # all that are trained
    python benchmarks/steps.py allen-cahn:svdno-plus allen-cahn:fno-tuned --kernels     # where the time goes
    python benchmarks/steps.py darcy:svdno-plus --set training.precision=bf16

The step and the validation are those of the training loop, on random fields of the recipe's shapes. An epoch is its
steps and its validation; memory is that of a step, the data apart. Besides, the seconds that it takes to compile and
settle, latency and throughput of predictions and, with --kernels, the longest kernels of a step. On a CPU one can see
that it works, at toy sizes.
"""

import argparse
import gc
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from rich.console import Console
from torch.profiler import ProfilerActivity, profile
from training import build_surrogate, draw_data, synchronise

from svdno.benchmark import narrow, plan, read_table
from svdno.environment import describe_environment, pick_device
from svdno.errors import InputError
from svdno.evaluation.cost import measure_speed, peak_memory
from svdno.models.trivial import TRIVIAL
from svdno.recipe import Recipe, parse_changes
from svdno.training import loop
from svdno.training.averaging import AveragedModel
from svdno.training.batches import Batches
from svdno.training.losses import Objective

# Calls before a step is recorded and settled, calls that are timed at most, kernels that are named.
SETTLE, CALLS, NAMED = 6, 50, 30


def read_method(name: str, changes: dict[str, Any]) -> Recipe:
    """The recipe of EQUATION:METHOD in the table `short`, with settings changed."""
    equation, method = name.split(":")
    return plan(narrow(read_table("short"), [equation], [method], [0], None), Path("none"), changes)[0].recipe


def list_methods() -> list[str]:
    """All methods of the table `short` that are trained."""
    table = read_table("short")
    trained = [name for name, method in table.methods.items() if method.model.get("name") not in TRIVIAL]
    return [f"{equation}:{name}" for equation in table.equations for name in trained]


def milliseconds(work: Callable[[], object]) -> float:
    """Mean over calls, without waiting between them: CALLS, or as many as take about a second."""
    calls = max(1, min(CALLS, int(1 / _time(work, 1))))
    return 1e3 * _time(work, calls) / calls


def _time(work: Callable[[], object], calls: int) -> float:
    synchronise()
    start = perf_counter()
    for _ in range(calls):
        work()
    synchronise()
    return perf_counter() - start


def count_batches(recipe: Recipe) -> tuple[int, int]:
    """Batches of an epoch, and of its validation."""
    data, settings = recipe.data, recipe.training
    return (
        -(-int(data.train * data.samples) // settings.batch_size),
        -(-int(data.validation * data.samples) // loop.validation_size(settings)),
    )


def measure(recipe: Recipe, device: torch.device, kernels: bool = False) -> dict[str, Any]:
    """All figures of one method on one equation."""
    settings = recipe.training
    torch.compiler.reset()
    gc.collect()  # what is left of the method before
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    size = loop.validation_size(settings)
    data = draw_data(recipe, max(size, settings.batch_size), 32 if device.type == "cpu" else None)
    surrogate = build_surrogate(recipe, data, device)
    with loop._arithmetic(settings, device):
        start = perf_counter()
        objective = Objective(surrogate, settings.penalty, settings.terms, data.equation)
        optimizer = loop._build_optimizer(surrogate.model, settings)
        average = AveragedModel(surrogate.model, settings.average)
        step = loop._build_step(objective, optimizer, average, settings)
        validate = loop._build_validation(objective, average.model, settings)
        rows = torch.arange(settings.batch_size), torch.arange(size)
        batch, held_out = Batches(surrogate, data).fetch(rows)
        whole = torch.ones((), device=device)
        for _ in range(SETTLE):
            step(*batch, whole)
        synchronise()
        row: dict[str, Any] = {"grid": str(data.grid), "seconds_until_settled": perf_counter() - start}
        row["step_ms"] = milliseconds(lambda: step(*batch, whole))
        row["peak_memory_bytes"] = peak_memory(device)
        if kernels:
            row |= _count_kernels(lambda: step(*batch, whole))
        for _ in range(SETTLE):
            validate(*held_out)
        times = row["step_ms"], milliseconds(lambda: validate(*held_out))
    row["seconds_per_epoch"] = sum(n * ms / 1e3 for n, ms in zip(count_batches(recipe), times, strict=True))
    return row | measure_speed(surrogate, data.inputs)


def _count_kernels(work: Callable[[], object]) -> dict[str, Any]:
    """Launches and microseconds of one call by kernel, the longest first."""
    if not torch.cuda.is_available():
        return {}
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
        synchronise()
    launches: Counter[str] = Counter()
    microseconds: Counter[str] = Counter()
    for event in profiler.events() or []:
        if event.device_type.name == "CUDA":
            launches[event.name] += 1
            microseconds[event.name] += event.device_time
    return {
        "launches": launches.total(),
        "busy_ms": microseconds.total() / 1e3,
        "kernels": [[name[:90], launches[name], round(us, 1)] for name, us in microseconds.most_common(NAMED)],
    }


def main() -> None:
    """Measure, print, and write the record where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="EQUATION:METHOD", help="by default all that are trained")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting for all of them")
    parser.add_argument("--kernels", action="store_true", help="name the kernels of a step")
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the record")
    arguments = parser.parse_args()
    record: dict[str, Any] = {
        "command": " ".join(["python benchmarks/steps.py", *arguments.methods, *(f"--set {s}" for s in arguments.set)]),
        "environment": describe_environment(),
        "methods": {},
    }
    for name in arguments.methods or list_methods():
        recipe = read_method(name, parse_changes(arguments.set))
        try:
            record["methods"][name] = measure(recipe, pick_device(), arguments.kernels)
        except (InputError, torch.OutOfMemoryError) as error:
            record["methods"][name] = {"failed": str(error)}
        Console().print(name, {key: value for key, value in record["methods"][name].items() if key != "kernels"})
        if arguments.output:
            arguments.output.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
