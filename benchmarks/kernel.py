"""One kernel application, forward and backward: factorised against Φ and Ψ formed; and one layer against an FNO layer.

    python benchmarks/kernel.py [-o results/kernel-cpu.json]

Sizes: B=4, n=4096, d=128 on a CPU; B=10, n=128², d=512 (the paper's shallow water) on a GPU; H=64 features. All
versions take the same features h(z), so the trunks are not part of it. Gradients are taken of v, both features, both
heads and Σ. On a GPU products use TF32, and the step runs as a CUDA graph: that times the device, not the host that
launches. Memory is the peak beyond inputs and the gradient of the output, the output being released once it is used.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from svdno.environment import describe_environment, pick_device
from svdno.models import aligned_linear, moments
from svdno.models.fno import SpectralConvolution
from svdno.models.singular_nets import SingularFunctions
from svdno.models.svd_kernel import SVDKernel

H = 64
MODES = 12


@dataclass(frozen=True)
class Size:
    """Batch B, points along each axis, width d, and the ranks L to measure."""

    batch: int
    space: tuple[int, int]
    width: int
    ranks: tuple[int, ...]

    @property
    def n(self) -> int:
        """Number of points."""
        return self.space[0] * self.space[1]


SIZES = {"cpu": Size(4, (64, 64), 128, (4, 8, 32, 64)), "cuda": Size(10, (128, 128), 512, (4, 10, 64))}


class GivenFeatures(nn.Module):
    """A trunk with ready-made features, whatever it is asked: h̃ = (h, 1, 0 …), as a trunk hands them out."""

    features = H

    def __init__(self) -> None:
        super().__init__()
        self.h: Tensor | None = None

    def forward(self, z: Tensor, extra: int = 0) -> Tensor:
        """Hand out h̃; random features while the head is being initialised."""
        return augment(torch.randn(*z.shape[:-1], H), extra) if self.h is None else self.h


def augment(h: Tensor, extra: int) -> Tensor:
    """(h, 1, 0 …)."""
    constant = F.pad(h.new_ones(1), (0, extra - 1))
    return torch.cat([h, constant.expand(*h.shape[:-1], -1)], dim=-1)


@dataclass(frozen=True)
class Problem:
    """A kernel with its features, the field v it acts on, and the gradient g of its output."""

    kernel: SVDKernel
    sigma: Tensor
    v: Tensor
    w: Tensor
    g: Tensor

    @classmethod
    def draw(cls, size: Size, rank: int, device: torch.device, dtype: torch.dtype) -> "Problem":
        """Random numbers everywhere."""
        torch.manual_seed(0)
        left, right = (SingularFunctions(GivenFeatures(), rank, size.width, 1, 1) for _ in range(2))  # type: ignore[arg-type]
        kernel = SVDKernel(left, right).to(device)
        for functions in (left, right):
            h = torch.randn(size.batch, size.n, H, device=device, dtype=dtype)
            functions.trunk.h = augment(h, functions.padded - H).requires_grad_()
        v, g = (torch.randn(size.batch, size.n, size.width, device=device, dtype=dtype) for _ in range(2))
        w = torch.full((1, 1), 1 / size.n, device=device, dtype=dtype).expand(1, size.n)
        return cls(kernel, torch.ones(rank, device=device).requires_grad_(), v.requires_grad_(), w, g)

    @property
    def inputs(self) -> list[Tensor]:
        """Everything that takes a gradient."""
        features: list[Any] = [self.kernel.left.trunk.h, self.kernel.right.trunk.h]  # type: ignore[union-attr]
        return [self.v, self.sigma, *features, *self.kernel.parameters()]

    def factored(self) -> Tensor:
        """The library's kernel."""
        return self.kernel(self.v, self.kernel.prepare(self.v, self.w), self.sigma)

    def formed(self) -> Tensor:
        """The same kernel as the paper writes it, Φ and Ψ formed at every point."""
        Phi, Psi = (_form(f) for f in (self.kernel.left, self.kernel.right))
        q = torch.einsum("bncl,bnc->bl", Psi, self.w.unsqueeze(-1) * self.v)
        return torch.einsum("bncl,bl->bnc", Phi, self.sigma * q)


def _form(functions: Any) -> Tensor:
    """Φ(z) = W h(z) + b as (batch, n, d, L)."""
    L, d, K = functions.head.shape
    weight = functions.head[..., :-1].transpose(0, 1).reshape(d * L, K - 1)
    formed: Tensor = F.linear(functions.trunk.h[..., :H], weight, functions.head[..., -1].T.reshape(-1))
    return formed.unflatten(-1, (d, L))


def make_step(forward: Callable[[], Tensor], inputs: list[Tensor], g: Tensor) -> Callable[[], None]:
    """Forward and backward; the output itself is dropped as soon as its gradient can be asked for."""

    def step() -> None:
        edge = get_gradient_edge(forward())
        torch.autograd.grad(edge, inputs, g)

    return step


def measure_ms(step: Callable[[], object], device: torch.device, *, graph: bool = True) -> float:
    """Median milliseconds of a step after warming up."""
    if device.type == "cpu":
        times = []
        for _ in range(20):
            start = perf_counter()
            step()
            times.append(1e3 * (perf_counter() - start))
        return median(times[3:])
    run = _capture(step) if graph else step
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(25)]
    for start_event, end_event in events:
        start_event.record()
        run()
        end_event.record()
    torch.cuda.synchronize()
    return median(a.elapsed_time(b) for a, b in events[5:])


def _capture(step: Callable[[], object]) -> Callable[[], object]:
    """The step as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def measure_gib(step: Callable[[], object], device: torch.device) -> float | None:
    """Peak GiB that a step takes beyond what is there before it; not known on a CPU."""
    if device.type == "cpu":
        return None
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


@contextmanager
def settings(alignment: int, block: int) -> Iterator[None]:
    """Other constants of the library for a while: padding of the features, points per product."""
    before = aligned_linear.ALIGNMENT, moments.BLOCK
    aligned_linear.ALIGNMENT, moments.BLOCK = alignment, block
    try:
        yield
    finally:
        aligned_linear.ALIGNMENT, moments.BLOCK = before


def compare_ranks(size: Size, device: torch.device) -> list[dict[str, Any]]:
    """Factored against formed, rank by rank."""
    rows = []
    for rank in size.ranks:
        problem = Problem.draw(size, rank, device, torch.float32)
        row: dict[str, Any] = {"rank": rank}
        for name, forward in (("factored", problem.factored), ("formed", problem.formed)):
            step = make_step(forward, problem.inputs, problem.g)
            row[f"{name}_gib"] = measure_gib(step, device)
            row[f"{name}_ms"] = measure_ms(step, device)
        row["speed"] = row["formed_ms"] / row["factored_ms"]
        row["memory"] = row["formed_gib"] / row["factored_gib"] if row["factored_gib"] else None
        rows.append(row)
        del problem, step
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return rows


def approach_floor(size: Size, device: torch.device) -> dict[str, Any]:
    """What each choice of the library is worth at the first rank, beside the least time the memory allows."""
    field, target = torch.empty(2, 2**28, device=device)
    copy_ms = measure_ms(lambda: target.copy_(field), device, graph=False)
    bandwidth = 2 * field.nbytes / (1e-3 * copy_ms)
    least_bytes = 4 * 4 * size.batch * size.n * (size.width + H)  # v, h, output and their gradients, once each

    def measure(alignment: int, block: int, dtype: torch.dtype = torch.float32, *, graph: bool = True) -> float:
        with settings(alignment, block):
            problem = Problem.draw(size, size.ranks[0], device, dtype)
            return measure_ms(make_step(problem.factored, problem.inputs, problem.g), device, graph=graph)

    uneven = Problem.draw(size, size.ranks[0], device, torch.float32)
    uneven = replace(uneven, w=uneven.w.contiguous())
    return {
        "copy_tb_per_s": bandwidth / 1e12,
        "floor_ms": 1e3 * least_bytes / bandwidth,
        "steps_ms": {
            "65 features, one product per sample": measure(1, 2**40),
            "72 features": measure(8, 2**40),
            "72 features, blocks of 1024 points: as shipped": measure(8, 1024),
            "as shipped, launched by the host, no CUDA graph": measure(8, 1024, graph=False),
            "as shipped, weights that differ from point to point": measure_ms(
                make_step(uneven.factored, uneven.inputs, uneven.g), device
            ),
            "as shipped, v and h in bfloat16 (its floor is half)": measure(8, 1024, torch.bfloat16),
        },
    }


def compare_layers(size: Size, device: torch.device) -> dict[str, Any]:
    """γ(W v + K v) with the features ready, against γ(W v + F⁻¹(R · F v)), forward and backward."""
    problem = Problem.draw(size, size.ranks[0], device, torch.float32)
    linear = nn.Linear(size.width, size.width, device=device)
    spectral = SpectralConvolution(size.width, MODES, 2).to(device)

    def svd_layer() -> Tensor:
        return F.gelu(linear(problem.v) + problem.factored())

    def fno_layer() -> Tensor:
        v = problem.v.unflatten(1, size.space)
        return F.gelu(linear(v) + spectral(v)).flatten(1, 2)

    result: dict[str, Any] = {"fno_modes": MODES}
    for name, layer, inputs in (
        ("svd", svd_layer, problem.inputs),
        ("fno", fno_layer, [problem.v, *spectral.parameters()]),
    ):
        step = make_step(layer, [*inputs, *linear.parameters()], problem.g)
        result[f"{name}_ms"], result[f"{name}_gib"] = measure_ms(step, device), measure_gib(step, device)
    result["fno_over_svd"] = result["fno_ms"] / result["svd_ms"]
    return result


def print_record(record: dict[str, Any]) -> None:
    """Show the record as tables."""
    console = Console()
    table = Table(title=record["title"])
    for title in ("L", "factored ms", "formed ms", "faster", "factored GiB", "formed GiB", "smaller"):
        table.add_column(title, justify="right")
    for row in record["ranks"]:
        gib = [f"{row[k]:.2f}" if row[k] else "–" for k in ("factored_gib", "formed_gib")]
        less = f"{row['memory']:.1f}×" if row["memory"] else "–"
        table.add_row(
            str(row["rank"]),
            f"{row['factored_ms']:.2f}",
            f"{row['formed_ms']:.1f}",
            f"{row['speed']:.1f}×",
            *gib,
            less,
        )
    console.print(table)
    last, first = record["ranks"][-1], record["ranks"][0]
    growth = last["factored_ms"] / first["factored_ms"]
    console.print(f"factored, L={last['rank']} over L={first['rank']}: {growth:.2f}")
    layers = record["layers"]
    console.print(f"layer: SVD {layers['svd_ms']:.2f} ms, FNO {layers['fno_ms']:.2f} ms")
    if record["floor"]:
        floor = record["floor"]["floor_ms"]
        console.print(f"floor {floor:.3f} ms at {record['floor']['copy_tb_per_s']:.2f} TB/s")
        for name, ms in record["floor"]["steps_ms"].items():
            console.print(f"  {ms:.3f} ms = {ms / floor:.2f} × floor  {name}")


def main() -> None:
    """Measure, print, and write the record where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the record")
    output = parser.parse_args().output
    device = pick_device()
    torch.backends.cuda.matmul.allow_tf32 = True
    size = SIZES[device.type]
    record = {
        "title": f"B={size.batch}, n={size.n}, d={size.width}, H={H}, forward + backward",
        "command": "python benchmarks/kernel.py",
        "environment": describe_environment(),
        "ranks": compare_ranks(size, device),
        "layers": compare_layers(size, device),
        "floor": approach_floor(size, device) if device.type == "cuda" else None,
    }
    print_record(record)
    if output:
        output.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
