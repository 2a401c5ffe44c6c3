"""The machine a run happens on: its devices, and what is recorded of it beside every number."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from shutil import which
from typing import Any

import torch

from svdno import __version__
from svdno.errors import InputError, choose

# Environment variable of a run that is to end with the process that started it: the number of that process.
PARENT = "SVDNO_PARENT"


def is_orphan() -> bool:
    """Whether the process that this one is to end with is gone."""
    parent = str(os.getppid())
    return os.environ.get(PARENT, parent) != parent


def pick_device(name: str = "auto") -> torch.device:
    """The device called "cpu" or "cuda"; "auto" takes the GPU where there is one."""
    choose("device", name, ("auto", "cpu", "cuda"))
    found = torch.cuda.is_available()
    if name == "cuda" and not found:
        raise InputError("device 'cuda' was asked for, and PyTorch finds no GPU here. Use --device cpu or auto.")
    return torch.device("cuda" if found and name != "cpu" else "cpu")


def advise_sharing(processes: int, device: torch.device) -> str | None:
    """How so many processes could share a GPU better than by turns, if they would take turns there."""
    control = "nvidia-cuda-mps-control"
    running = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()
    if processes == 1 or device.type != "cuda" or running or which(control) is None:
        return None
    return (
        f"{processes} processes take turns on the GPU. Started before them, `{control} -d` lets them run together, "
        "which pays where one alone leaves the GPU idle, as models in 1-D do."
    )


def count_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_environment(device: torch.device | None = None) -> dict[str, Any]:
    """Machine and versions, to stand beside every number."""
    device = device or pick_device()
    return {
        "svdno": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cores": count_cores(),
        "machine": platform.machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _find_commit(),
    }


def _find_commit() -> str | None:
    """The commit of the source, where it is a git checkout."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
