"""Where the time of a training step goes: milliseconds, launches, the longest kernels, of methods of the table `short`.

    python benchmarks/steps.py allen-cahn:svdno-plus allen-cahn:fno-tuned [-o results/steps-h200.json]
    python benchmarks/steps.py darcy:svdno-plus --set training.precision=bf16 --set model.feed_forward=0

The step is that of the training loop, on random fields of the recipe's shapes. Besides, the seconds that it takes to
compile and settle, and the latency of one sample, as it is and recorded. On a CPU one can see that it works.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from rich.console import Console
from torch.profiler import ProfilerActivity, profile
from training import build_surrogate, draw_data, synchronise

from svdno.benchmark import narrow, plan, read_table
from svdno.environment import describe_environment, pick_device
from svdno.recipe import Recipe, parse_changes
from svdno.training import loop
from svdno.training.averaging import AveragedModel
from svdno.training.batches import Batches
from svdno.training.losses import Objective

# Calls before a step is recorded and settled, calls that are timed, kernels that are named.
SETTLE, CALLS, NAMED = 6, 50, 30


def read_method(name: str, changes: dict[str, Any]) -> Recipe:
    """The recipe of EQUATION:METHOD in the table `short`, with settings changed."""
    equation, method = name.split(":")
    table = narrow(read_table("short"), [equation], [method], [0], None)
    return plan(replace(table, set={equation: {**table.set.get(equation, {}), **changes}}), Path("none"))[0].recipe


def milliseconds(work: Callable[[], object]) -> float:
    """Mean over calls, without waiting between them."""
    synchronise()
    start = perf_counter()
    for _ in range(CALLS):
        work()
    synchronise()
    return 1e3 * (perf_counter() - start) / CALLS


def measure(recipe: Recipe, device: torch.device) -> dict[str, Any]:
    """All figures of one method on one equation."""
    settings = recipe.training
    torch.compiler.reset()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    data = draw_data(recipe, 2 * settings.batch_size, 32 if device.type == "cpu" else None)
    surrogate = build_surrogate(recipe, data, device)
    with loop._arithmetic(settings, device):
        start = perf_counter()
        objective = Objective(surrogate, settings.penalty, {}, None)
        optimizer = loop._build_optimizer(surrogate.model, settings)
        step = loop._build_step(objective, optimizer, AveragedModel(surrogate.model, settings.average), settings)
        batch = next(iter(Batches(surrogate, data).fetch([torch.arange(settings.batch_size)])))
        whole = torch.ones((), device=device)
        for _ in range(SETTLE):
            step(*batch, whole)
        synchronise()
        row: dict[str, Any] = {"seconds_until_settled": perf_counter() - start}
        row["step_ms"] = milliseconds(lambda: step(*batch, whole))
        row |= _count_kernels(lambda: step(*batch, whole))
    row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    one = data.inputs[:1]
    predict = surrogate.recorded(one)
    for _ in range(SETTLE):
        predict(one)
    return {
        **row,
        "latency_ms": milliseconds(lambda: predict(one)),
        "plain_latency_ms": milliseconds(lambda: surrogate.predict(one)),
    }


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
    parser.add_argument("methods", nargs="+", metavar="EQUATION:METHOD")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting for all of them")
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the record")
    arguments = parser.parse_args()
    record: dict[str, Any] = {
        "command": " ".join(["python benchmarks/steps.py", *arguments.methods, *(f"--set {s}" for s in arguments.set)]),
        "environment": describe_environment(),
        "methods": {},
    }
    for name in arguments.methods:
        record["methods"][name] = measure(read_method(name, parse_changes(arguments.set)), pick_device())
        Console().print(name, {key: value for key, value in record["methods"][name].items() if key != "kernels"})
        if arguments.output:
            arguments.output.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
