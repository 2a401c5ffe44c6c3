"""Files that are there whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside the file and put it in place in one step; an interruption or a power cut leaves the one before."""
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        write(unfinished)
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """The same for a text."""
    replace_file(path, lambda part: part.write_text(text, encoding="utf-8"))
