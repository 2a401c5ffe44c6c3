"""A table of runs that is killed at random times ends with the records of one that is not.

    python benchmarks/kills.py TABLE.toml [--whole FOLDER --minutes M] [--kills 10] [-o results/kills-cpu.json]

`svdno benchmark` runs the table once undisturbed, then once with SIGKILL to it and all its workers at random moments,
each time started again. Compared are the weights, to the bit, and what was measured on the test samples. With
`--whole`, the folder of a table that has run undisturbed before, and about how many minutes it takes, the first part
is left out.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, sleep

from svdno.environment import describe_environment, pick_device


def start(table: str, folder: Path, workers: int) -> subprocess.Popen[bytes]:
    """`svdno benchmark` with its workers, in a process group of its own."""
    command = [sys.executable, "-m", "svdno", "benchmark", table, f"--workers={workers}", "-o", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)


def run_killed(table: str, folder: Path, workers: int, moments: list[float]) -> int:
    """Run the table, killed after each of these seconds of running; how often it was still running then."""
    killed = 0
    for seconds in moments:
        process = start(table, folder, workers)
        sleep(seconds)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
    start(table, folder, workers).wait()
    return killed


def read_records(folder: Path) -> dict[str, tuple[bytes, object]]:
    """Weights and test errors of each run."""
    return {
        str(path.parent.relative_to(folder)): (
            (path.parent / "model.safetensors").read_bytes(),
            json.loads(path.read_text())["test"],
        )
        for path in sorted(folder.glob("*/*/*/metrics.json"))
    }


def main() -> None:
    """Run, kill, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument("--whole", type=Path, help="folder of the table, run undisturbed before")
    parser.add_argument("--minutes", type=float, help="that the undisturbed table takes, with --whole")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    if (arguments.whole is None) != (arguments.minutes is None):
        parser.error("--whole and --minutes go together")
    with tempfile.TemporaryDirectory() as name:
        undisturbed = arguments.whole or Path(name) / "whole"
        seconds = 60 * (arguments.minutes or 0.0)
        if arguments.whole is None:
            begin = perf_counter()
            start(arguments.table, undisturbed, arguments.workers).wait()
            seconds = perf_counter() - begin
        draw = random.Random(arguments.seed)
        shares = [draw.uniform(0.2, 1.8) * seconds / (arguments.kills + 1) for _ in range(arguments.kills)]
        begin = perf_counter()
        killed = run_killed(arguments.table, Path(name) / "killed", arguments.workers, shares)
        seconds_killed = perf_counter() - begin
        begin = perf_counter()
        start(arguments.table, Path(name) / "killed", arguments.workers).wait()
        seconds_again = perf_counter() - begin
        whole, other = read_records(undisturbed), read_records(Path(name) / "killed")
    record = {
        "command": " ".join(["python benchmarks/kills.py", *(Path(part).name for part in sys.argv[1:])]),
        "environment": describe_environment(pick_device()),
        "runs": len(whole),
        "killed": killed,
        "seconds_with_kills": round(seconds_killed),
        "seconds_started_again": round(seconds_again, 1),
        "runs_after_kills": len(other),
        "equal_to_the_bit": sum(whole[key] == other.get(key) for key in whole),
    }
    print(json.dumps(record, indent=1))
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
