"""Files that are there whole or not at all."""

from pathlib import Path

import pytest

from svdno.files import replace_file, replace_text


def write_half(path: Path) -> None:
    path.write_text("hal")
    raise KeyboardInterrupt


def test_an_interruption_leaves_the_file_before_and_nothing_beside_it(tmp_path):
    path = tmp_path / "metrics.json"
    replace_text(path, "whole\n")
    with pytest.raises(KeyboardInterrupt):
        replace_file(path, write_half)
    assert path.read_text() == "whole\n"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_first_file_is_not_there(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        replace_file(tmp_path / "metrics.json", write_half)
    assert not list(tmp_path.iterdir())
