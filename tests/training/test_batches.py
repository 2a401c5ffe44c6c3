"""Samples that stay in their file, or on the host, train like those in memory."""

from dataclasses import replace

import pytest
import torch

from svdno import Surrogate, TrainingSettings, train
from svdno.data.dataset import FileOutputs, load_dataset
from svdno.data.generate import generate
from svdno.recipe import DataSettings
from svdno.training import batches
from svdno.training.batches import Batches
from tests.training.problems import SMALL, make_data, make_surrogate


@pytest.fixture(params=["allen-cahn", "diffusion-sorption", "darcy"])
def data_file(request, tmp_path):
    """A file of each layout, and the settings it was made with."""
    frames = {} if request.param == "darcy" else {"frames": 5}
    settings = DataSettings(request.param, samples=20, parameters={"points": 16, **frames})
    generate(settings, tmp_path / "data.h5", torch.device("cpu"))
    return tmp_path / "data.h5", settings


def test_samples_in_a_file_equal_those_in_memory(data_file):
    path, settings = data_file
    lazy, loaded = (load_dataset(path, replace(settings, keep=keep, space_stride=2)) for keep in ("file", "memory"))
    assert isinstance(lazy.outputs, FileOutputs)
    assert isinstance(loaded.outputs, torch.Tensor)
    part, same = lazy.subset(3, 17).subset(2, 9), loaded.subset(5, 12)
    assert torch.equal(part.outputs[:], same.outputs)
    rows = torch.tensor([6, 0, 3])
    assert torch.equal(part.outputs[rows], same.outputs[rows])
    assert torch.equal(part.outputs[1:3], same.outputs[1:3])
    assert part.nbytes == same.nbytes


def test_training_from_a_file_ends_with_the_same_bits(data_file):
    path, settings = data_file

    def trained(keep: str) -> torch.Tensor:
        split = load_dataset(path, replace(settings, keep=keep)).split()
        torch.manual_seed(0)
        surrogate = Surrogate.build("svdno", split.train, **SMALL["svdno"])
        train(surrogate, split.train, split.validation, TrainingSettings(epochs=2, batch_size=6))
        return torch.cat([p.detach().flatten() for p in surrogate.model.parameters()])

    assert torch.equal(trained("file"), trained("memory"))


def test_data_that_does_not_fit_on_the_device_is_fetched_batch_by_batch(monkeypatch):
    data, surrogate = make_data(), make_surrogate()
    resident = Batches(surrogate, data)
    monkeypatch.setattr(batches, "free_memory", lambda device: data.nbytes)
    streamed = Batches(surrogate, data)
    assert resident.resident is not None
    assert streamed.resident is None
    for ours, theirs in zip(streamed.in_order(7), resident.in_order(7), strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one, other)


def test_a_batch_holds_normalised_fields_with_times_as_channels():
    data, surrogate = make_data(), make_surrogate()
    batch = next(Batches(surrogate, data).in_order(3))
    assert batch.targets.shape == (3, 16, 2)
    torch.testing.assert_close(surrogate.as_frames(batch.targets), data.outputs[:3])
    torch.testing.assert_close(batch.norms, data.outputs[:3].flatten(1).norm(dim=1))


def test_a_file_that_breaks_while_it_is_read_is_an_error_not_a_hang(data_file):
    path, settings = data_file
    data = load_dataset(path, replace(settings, keep="file"))
    surrogate = Surrogate.build("svdno", data, **SMALL["svdno"])
    data.outputs.reader.file.close()
    with pytest.raises((ValueError, KeyError, RuntimeError)):
        list(Batches(surrogate, data).in_order(5))
