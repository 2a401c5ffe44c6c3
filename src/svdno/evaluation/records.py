"""What a trained surrogate leaves behind for reports: numbers and a few arrays, readable without PyTorch."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from svdno.data.dataset import Dataset
from svdno.evaluation.metrics import linf, relative_l2_per_time, summarise
from svdno.evaluation.variability import spatial_variability
from svdno.models import SVDNO, SVDNOPlus
from svdno.training.losses import relative_l2
from svdno.training.surrogate import Surrogate

# How many inputs the recorded singular values come from and L_ortho takes at once, and how many leading functions are
# kept.
SPECTRUM_SAMPLES = 16
LEADING = 4

# How many solutions β is measured on, in float64: 25 passes over them in two dimensions.
VARIABILITY_SAMPLES = 16


def evaluate(prediction: Tensor, test: Dataset) -> dict[str, Any]:
    """Errors on test samples, with the start frame (as the paper counts) and without it."""
    truth = test.outputs[:].to(prediction)
    later = slice(1, None) if len(test.times) > 1 else slice(None)
    return {
        "relative_l2": summarise(relative_l2(prediction, truth)),
        "relative_l2_without_start": summarise(relative_l2(prediction[:, later], truth[:, later])),
        "linf": summarise(linf(prediction, truth)),
        "per_time": relative_l2_per_time(prediction, truth).tolist(),
        "per_sample": relative_l2(prediction, truth).tolist(),
    }


def collect_samples(prediction: Tensor, test: Dataset) -> dict[str, np.ndarray]:
    """Truth and prediction of the samples with the smallest, the median and the largest error."""
    error = relative_l2(prediction, test.outputs[:].to(prediction))
    order = error.argsort()
    index = order[[0, len(order) // 2, -1]]
    return {
        **_axes(test),
        "times": test.times.numpy(),
        "index": index.numpy(),
        "rank_of": np.array(["best", "median", "worst"]),
        "error": error[index].numpy(),
        "input": test.inputs[index].numpy(),
        "truth": test.outputs[index].numpy(),
        "prediction": prediction[index].numpy(),
        "field_names": np.array(test.output_fields),
    }


def collect_singular(surrogate: Surrogate, test: Dataset) -> dict[str, np.ndarray] | None:
    """Singular values of each layer's kernel on some test inputs, and the leading functions on the first of them.

    A singular function has d components; the one with the largest energy is kept, its largest value positive.
    None for a model without singular functions.
    """
    if (model := _svd_model(surrogate)) is None:
        return None
    layers = model.svd(*_model_inputs(surrogate, test.subset(0, SPECTRUM_SAMPLES)))
    return {
        **_axes(test),
        "values_all": torch.stack([layer.values for layer in layers], dim=1).cpu().numpy(),
        "left_main": torch.stack([_main_component(layer.left[0]) for layer in layers]).cpu().numpy(),
        "right_main": torch.stack([_main_component(layer.right[0]) for layer in layers]).cpu().numpy(),
    }


@torch.no_grad()
def measure_orthogonality(surrogate: Surrogate, test: Dataset) -> float | None:
    """L_ortho on the test inputs, or None for a model without singular functions."""
    model = surrogate.model if isinstance(surrogate.model, SVDNOPlus) else _svd_model(surrogate)
    if model is None:
        return None
    total = 0.0
    for first in range(0, len(test), SPECTRUM_SAMPLES):
        part = test.subset(first, min(first + SPECTRUM_SAMPLES, len(test)))
        total += len(part) * model.orthogonality(*_model_inputs(surrogate, part)).item()
    return total / len(test)


def measure_variability(test: Dataset, device: torch.device) -> float:
    """β of the first test solutions: how rough the data set is."""
    return spatial_variability(test.outputs[:VARIABILITY_SAMPLES].to(device))


def _svd_model(surrogate: Surrogate) -> SVDNO | None:
    model = surrogate.model
    return model if isinstance(model, SVDNO) and model.arguments["kernel"] != "dense" else None


def _model_inputs(surrogate: Surrogate, data: Dataset) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised fields, coordinates and weights, as the model takes them."""
    a = surrogate.input_normalizer.encode(data.inputs.to(surrogate.device, surrogate.dtype))
    return a, *surrogate.locate(data.grid)


def _axes(data: Dataset) -> dict[str, np.ndarray]:
    return {f"axis_{i}": axis.numpy() for i, axis in enumerate(data.grid.axes)}


def _main_component(functions: Tensor) -> Tensor:
    """(*space, d, L) to (leading, *space)."""
    leading = functions[..., :LEADING].movedim((-1, -2), (0, 1)).flatten(2)
    channel = leading.square().sum(dim=2).argmax(dim=1)
    main = leading[torch.arange(len(leading)), channel]
    peak = main.gather(1, main.abs().argmax(dim=1, keepdim=True))
    return (main * peak.sign()).unflatten(1, functions.shape[:-2])
