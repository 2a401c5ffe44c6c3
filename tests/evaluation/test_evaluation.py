"""Metrics by hand, and the arrays left for the report."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from svdno import Dataset, Grid, Surrogate
from svdno.evaluation.metrics import linf, relative_l2_per_time, summarise
from svdno.evaluation.records import collect_samples, collect_singular, evaluate, measure_orthogonality


def make_data(samples: int = 7) -> Dataset:
    torch.manual_seed(0)
    u = 1 + torch.rand(samples, 3, 4, 5, 2)
    return Dataset(u[:, 0, ..., :1], u, Grid.unit((4, 5)), torch.arange(3).double(), ("a",), ("h", "v"))


def test_metrics_by_hand():
    truth = torch.tensor([[[3.0, 4.0], [0.0, 1.0]]])
    prediction = torch.tensor([[[3.0, 3.0], [0.5, 1.0]]])
    assert linf(prediction, truth).tolist() == [1.0]
    assert relative_l2_per_time(prediction, truth).tolist() == pytest.approx([0.2, 0.5])
    assert summarise(torch.tensor([1.0, 2.0, 6.0])) == {"mean": 3.0, "median": 2.0, "p90": 5.2, "max": 6.0}


def test_evaluation_is_zero_for_the_truth_and_leaves_out_the_start_where_it_says():
    data = make_data()
    assert evaluate(data.outputs, data)["relative_l2"]["max"] == 0
    wrong_start = data.outputs.clone()
    wrong_start[:, 0] = 0
    errors = evaluate(wrong_start, data)
    assert errors["relative_l2"]["mean"] > 0.3
    assert errors["relative_l2_without_start"]["mean"] == 0
    assert errors["per_time"] == [1, 0, 0]


def test_recorded_samples_are_the_best_the_median_and_the_worst():
    data = make_data()
    order = [3, 1, 6, 0, 2, 5, 4]
    factor = 1 + 0.01 * torch.tensor(order).float().argsort()
    prediction = data.outputs * factor.reshape(-1, 1, 1, 1, 1)
    record = collect_samples(prediction, data)
    assert record["index"].tolist() == [order[0], order[3], order[6]]
    assert record["error"].tolist() == pytest.approx([0.0, 0.03, 0.06], abs=1e-5)
    np.testing.assert_array_equal(record["truth"][0], data.outputs[3].numpy())


def test_recorded_singular_functions_are_the_leading_ones_of_each_layer():
    data = make_data()
    surrogate = Surrogate.build("svdno", data, hidden_channels=8, n_layers=2, rank=5, singular_channels=8)
    record = collect_singular(surrogate, data)
    assert record["values_all"].shape == (7, 2, 5)
    assert (np.diff(record["values_all"], axis=-1) <= 0).all()
    assert record["left_main"].shape == record["right_main"].shape == (2, 4, 4, 5)
    a = surrogate.input_normalizer.encode(data.inputs[:1])
    left = surrogate.model.svd(a, *surrogate.locate(data.grid))[0].left[0, ..., 0].numpy()
    channel = (left**2).sum(axis=(0, 1)).argmax()
    np.testing.assert_allclose(np.abs(record["left_main"][0, 0]), np.abs(left[..., channel]))


def test_models_without_singular_functions_record_none():
    data = make_data()
    assert collect_singular(Surrogate.build("fno", data, n_modes=2), data) is None
    assert collect_singular(Surrogate.build("svdno", data, hidden_channels=8, kernel="dense"), data) is None


def test_the_memory_of_a_process_is_its_own_and_not_that_of_the_one_that_started_it():
    held = np.ones(2**27)  # 1 GiB
    code = "import torch; from svdno.evaluation.cost import peak_memory; print(peak_memory(torch.device('cpu')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert 2**26 < int(found.stdout) < held.nbytes


@pytest.mark.parametrize("name", ["svdno", "svdno-plus"])
def test_orthogonality_of_many_inputs_is_the_mean_over_them(name):
    data = make_data(40)
    torch.manual_seed(0)
    surrogate = Surrogate.build(name, data, hidden_channels=6, singular_channels=4, orthogonality="penalty")
    a = surrogate.input_normalizer.encode(data.inputs)
    whole = surrogate.model.orthogonality(a, *surrogate.locate(data.grid))
    assert measure_orthogonality(surrogate, data) == pytest.approx(whole.item(), rel=1e-5)
