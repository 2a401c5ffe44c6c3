"""Several processes that train one model: who this one is, and sums over all of them.

Started by `torchrun … -m svdno train`; on its own a process is rank 0 of 1.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

# Longest wait for the others, who may be solving an equation first.
PATIENCE = timedelta(hours=2)


def rank() -> int:
    """Which process this is, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def processes() -> int:
    """How many there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def sum_over_processes(values: Tensor) -> Tensor:
    """Σ over the processes, in place."""
    if dist.is_initialized():
        dist.all_reduce(values)
    return values


def wait_for_all() -> None:
    """Return once every process is here."""
    if dist.is_initialized():
        dist.barrier()


@contextmanager
def joined(device: torch.device) -> Iterator[torch.device]:
    """Join the processes that torchrun started, for as long as the context lasts; yields the device of this one."""
    if "WORLD_SIZE" not in os.environ:
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield device
    finally:
        dist.destroy_process_group()
