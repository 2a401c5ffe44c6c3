"""A surrogate on disk: weights as safetensors, everything else as JSON. Loading never executes code from the files.

model.safetensors   the weights
surrogate.json      model name and constructor arguments, normalisers, grid, times, fields, version; written last
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from svdno import __version__
from svdno.data.normalizer import Normalizer
from svdno.errors import InputError
from svdno.files import replace_file, replace_text
from svdno.grid import Grid
from svdno.lookup import construct
from svdno.models import ALL_MODELS
from svdno.training.surrogate import Surrogate

FORMAT = 1
WEIGHTS, DESCRIPTION = "model.safetensors", "surrogate.json"


def save(surrogate: Surrogate, folder: str | Path) -> None:
    """Write the surrogate into a folder; an interruption leaves what was there before."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {key: tensor.contiguous().cpu() for key, tensor in surrogate.model.state_dict().items()}
    description = {
        "format": FORMAT,
        "svdno": __version__,
        "model": surrogate.name,
        "arguments": surrogate.model.arguments,
        "dtype": str(surrogate.dtype).removeprefix("torch."),
        "input_normalizer": asdict(surrogate.input_normalizer),
        "output_normalizer": asdict(surrogate.output_normalizer),
        "grid": asdict(surrogate.grid),
        "times": surrogate.times,
        "input_fields": surrogate.input_fields,
        "output_fields": surrogate.output_fields,
    }
    text = json.dumps(description, indent=1, ensure_ascii=False)
    replace_file(folder / WEIGHTS, lambda path: save_file(state, path))
    replace_text(folder / DESCRIPTION, text)


def load(folder: str | Path, device: str | torch.device = "cpu") -> Surrogate:
    """Read a surrogate from a folder, ready to predict."""
    folder = Path(folder)
    for name in (WEIGHTS, DESCRIPTION):
        if not (folder / name).is_file():
            raise InputError(
                f"no trained model in {folder}: {name} is missing. Pass the folder of a run, as `svdno train` makes it."
            )
    try:
        d = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        if d["format"] != FORMAT:
            raise InputError(
                f"{folder} was written in format {d['format']} by svdno {d['svdno']}; this is svdno {__version__}, "
                f"which reads format {FORMAT}. Install the version that wrote it."
            )
        model = construct("model", ALL_MODELS, d["model"], d["arguments"]).to(getattr(torch, d["dtype"]))
        model.load_state_dict(load_file(folder / WEIGHTS))
        surrogate = Surrogate(
            name=d["model"],
            model=model.to(device).eval(),
            input_normalizer=_read_normalizer(**d["input_normalizer"]),
            output_normalizer=_read_normalizer(**d["output_normalizer"]),
            grid=_read_grid(**d["grid"]),
            times=_read_numbers(d["times"]),
            input_fields=tuple(map(str, d["input_fields"])),
            output_fields=tuple(map(str, d["output_fields"])),
        )
        _check_channels(surrogate, d["arguments"])
        return surrogate
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError, SafetensorError) as error:
        raise InputError(f"the model in {folder} is damaged or was not written by svdno: {error}") from None


def _read_numbers(values: list[float]) -> tuple[float, ...]:
    return tuple(map(float, values))


def _read_grid(shape: list[int], lower: list[float], upper: list[float], placement: str, inset: float = 0.5) -> Grid:
    return Grid(tuple(map(int, shape)), _read_numbers(lower), _read_numbers(upper), placement, inset)


def _read_normalizer(mean: list[float], std: list[float]) -> Normalizer:
    return Normalizer(_read_numbers(mean), _read_numbers(std))


def _check_channels(s: Surrogate, arguments: dict[str, Any]) -> None:
    """The model's channels are those of the fields and times that stand beside it."""
    channels = {"in_channels": len(s.input_fields), "out_channels": len(s.times) * len(s.output_fields)}
    for name, wanted in channels.items():
        if arguments[name] != wanted:
            raise ValueError(f"its fields and times make `{name}` {wanted}, its model has {arguments[name]}")
    for normalizer, fields in ((s.input_normalizer, s.input_fields), (s.output_normalizer, s.output_fields)):
        if not len(normalizer.mean) == len(normalizer.std) == len(fields):
            raise ValueError(f"its normalisers need one mean and one deviation for each of {', '.join(fields)}")
