"""neuraloperator's models behind our interface: the same numbers, real weights, files and training as any other."""

import subprocess
import sys

import neuralop.models
import pytest
import torch
from neuralop.utils import count_model_params

from svdno import Surrogate, TrainingSettings, load, save, train
from svdno.errors import InputError
from svdno.models import ALL_MODELS
from svdno.models.peers import PEERS, PeerFNO, PeerUNO
from tests.training.problems import make_data

SMALL = {"neuralop-fno": {"n_modes": 4}, "neuralop-uno": {"n_modes": [3, 2, 2, 2, 3]}}


def make(name: str, dim: int = 1, **arguments) -> torch.nn.Module:
    torch.manual_seed(0)
    return PEERS[name](2, 3, dim, **{"hidden_channels": 8, **SMALL[name], **arguments})


def make_field(dim: int, n: int = 24) -> torch.Tensor:
    return torch.randn(2, *[n] * dim, 2, generator=torch.Generator().manual_seed(1))


def make_theirs(name: str, dim: int) -> torch.nn.Module:
    """The same model from the package itself, which counts frequencies of both signs."""
    torch.manual_seed(0)
    channels = {"in_channels": dim + 2, "out_channels": 3, "hidden_channels": 8, "positional_embedding": None}
    if name == "neuralop-fno":
        modes = (*[8] * (dim - 1), 7)
        return neuralop.models.FNO(n_modes=modes, n_layers=4, projection_channel_ratio=16, **channels)
    return neuralop.models.UNO(
        uno_out_channels=[16, 32, 32, 16, 8],
        uno_n_modes=[(*[2 * m] * (dim - 1), 2 * m - 1) for m in (3, 2, 2, 2, 3)],
        uno_scalings=[[s] * dim for s in (0.5, 0.5, 1, 2, 2)],
        channel_mlp_skip="linear",
        n_layers=5,
        **channels,
    )


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_is_the_model_of_its_package(name, dim):
    ours, theirs, a = make(name, dim), make_theirs(name, dim), make_field(dim, 16 if dim == 3 else 24)
    axes = torch.meshgrid(*[torch.linspace(0, 1, n) for n in a.shape[1:-1]], indexing="ij")
    z = torch.cat([torch.stack(axes).expand(2, -1, *a.shape[1:-1]), a.movedim(-1, 1)], dim=1)
    torch.testing.assert_close(ours(a).movedim(-1, 1), theirs(z), rtol=1e-4, atol=1e-5)
    assert sum(p.numel() for p in ours.parameters()) == count_model_params(theirs)


@pytest.mark.parametrize("name", PEERS)
def test_every_weight_is_real_and_gets_a_gradient(name):
    model = make(name, 2)
    model(make_field(2)).square().sum().backward()
    for key, parameter in model.named_parameters():
        assert parameter.dtype == torch.float32, key
        assert parameter.grad.abs().max() > 0, key


@pytest.mark.parametrize("name", PEERS)
def test_peers_take_any_resolution_and_bf16_leaves_them_in_float32(name):
    model = make(name, 2)
    assert model(make_field(2, 32)).shape == (2, 32, 32, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model(make_field(2)), make(name, 2)(make_field(2)))


def test_fno_has_the_modes_and_the_width_of_ours():
    ours, peer = ALL_MODELS["fno"](1, 5, 2, n_modes=6), PeerFNO(1, 5, 2, n_modes=6)
    assert ours.spectral[0].weight.numel() == peer.net.fno_blocks.convs[0].weight.parts.numel()


@pytest.mark.parametrize("dim", [1, 2])
def test_without_channel_mlps_a_layer_is_that_of_our_fno_with_the_same_weights(dim):
    peer = make("neuralop-fno", dim, channel_mlps=False, n_layers=1)
    ours, net = ALL_MODELS["fno"](2, 3, dim, 8, n_layers=1, n_modes=4), peer.net
    with torch.no_grad():
        for linear, conv in (
            (ours.lift, net.lifting.fcs[0]),
            (ours.project[0], net.projection.fcs[0]),
            (ours.project[2], net.projection.fcs[1]),
        ):
            linear.weight.copy_(conv.weight.flatten(1))
            linear.bias.copy_(conv.bias)
        conv = net.fno_blocks.convs[0]
        modes = conv.weight.parts.movedim((0, 1), (-3, -2))  # theirs: channels first, negative frequencies first
        ours.spectral[0].weight.copy_(torch.stack([modes] if dim == 1 else [modes[4:], modes[:4]]))
        ours.pointwise[0].weight.copy_(net.fno_blocks.fno_skips[0].conv.weight.flatten(1))
        ours.pointwise[0].bias.copy_(conv.bias.flatten())
    a = make_field(dim)
    torch.testing.assert_close(ours(a), peer(a), rtol=1e-4, atol=1e-5)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in peer.parameters())


def test_padding_changes_a_peer_and_keeps_its_grid():
    for name in PEERS:
        assert make(name, padding=0.25)(make_field(1)).shape == (2, 24, 3)
        assert not torch.equal(make(name, padding=0.25)(make_field(1)), make(name)(make_field(1)))


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_trains_resumes_and_is_saved_like_any_model(name, tmp_path):
    data = make_data(samples=12, n=24)

    def run(state_file=None, epochs: int = 4) -> Surrogate:
        torch.manual_seed(0)
        surrogate = Surrogate.build(name, data, hidden_channels=8, **SMALL[name])
        settings = TrainingSettings(epochs=epochs, batch_size=4, learning_rate=3e-3, clip=1.0, average=0.9)
        train(surrogate, data, data, settings, state_file=state_file, identity={"run": "one"})
        return surrogate

    once = run()
    run(tmp_path / "state", epochs=2)
    again = run(tmp_path / "state")
    assert torch.equal(once.predict(data.inputs), again.predict(data.inputs))
    save(once, tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert torch.equal(loaded.predict(data.inputs), once.predict(data.inputs))
    assert loaded.model.arguments == once.model.arguments


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_overfits_four_samples(name):
    data = make_data(samples=4, n=24)
    torch.manual_seed(0)
    surrogate = Surrogate.build(name, data, hidden_channels=16, **SMALL[name])
    train(surrogate, data, data, TrainingSettings(epochs=200, batch_size=4, learning_rate=5e-3, schedule="one-cycle"))
    error = surrogate.predict(data.inputs) - data.outputs
    assert error.norm() / data.outputs.norm() < 0.01


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    program = """
import sys
sys.modules["neuralop"] = None
from svdno.models import ALL_MODELS
from svdno.errors import InputError
try:
    ALL_MODELS["neuralop-fno"](1, 1, 1)
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'svdno[peers]'" in done.stdout, done.stderr


def test_our_models_do_not_load_the_package():
    program = "import svdno.models, sys; svdno.models.FNO(1, 1, 1); assert 'neuralop' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_bad_settings_of_peers_are_named():
    with pytest.raises(InputError, match="`n_modes` must be five whole numbers"):
        PeerUNO(1, 1, 1, n_modes=[3, 3])
    with pytest.raises(InputError, match="`hidden_channels` must be a whole number of at least 1"):
        PeerFNO(1, 1, 1, hidden_channels=0)
    with pytest.raises(InputError, match="neuraloperator's FNO needs a uniform grid of 2 axes"):
        PeerFNO(1, 1, 2)(torch.randn(2, 10, 1), torch.rand(10, 2))


def test_building_a_peer_prints_nothing(capsys):
    make("neuralop-uno")
    assert capsys.readouterr().out == ""
