"""FNO's spectral layer against a dense convolution."""

import pytest
import torch

from svdno.models.fno import SpectralConvolution


@pytest.mark.parametrize("shape", [(9,), (8,), (8, 7), (6, 7, 8)])
def test_spectral_layer_equals_a_dense_periodic_convolution(shape):
    dim, d = len(shape), 3
    torch.manual_seed(0)
    layer = SpectralConvolution(d, 3, dim).double()
    v = torch.randn(2, *shape, d).double()

    # The impulse response gives the convolution kernel; the layer must be that circular convolution everywhere.
    kernel = torch.zeros(*shape, d, d).double()
    for c in range(d):
        impulse = torch.zeros(1, *shape, d).double()
        impulse[(0, *[0] * dim, c)] = 1
        kernel[..., c] = layer(impulse)[0]
    dense = torch.zeros_like(v)
    for shift in torch.cartesian_prod(*[torch.arange(n) for n in shape]).reshape(-1, dim).tolist():
        rolled = torch.roll(v, shift, dims=tuple(range(1, dim + 1)))
        dense += rolled @ kernel[tuple(shift)].T
    torch.testing.assert_close(layer(v), dense, rtol=0, atol=1e-10)


def test_spectral_layer_multiplies_each_kept_mode_by_its_matrix_and_drops_the_others():
    layer = SpectralConvolution(2, 3, 1).double()
    x = torch.arange(16).double() / 16
    for mode in (0, 1, 2, 3, 5):
        wave = torch.exp(2j * torch.pi * mode * x)
        v = torch.stack([wave.real, torch.zeros(16)], dim=-1).unsqueeze(0)
        out = layer(v)[0]
        if mode >= 3:
            assert out.abs().max() < 1e-12
            continue
        R = torch.view_as_complex(layer.weight)[0, mode, 0]
        expected = (wave.unsqueeze(-1) * R).real
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
