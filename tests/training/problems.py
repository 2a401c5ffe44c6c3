"""A problem small enough to be learned in seconds."""

import torch

from svdno import Dataset, Grid, Surrogate

SMALL = {
    "svdno": {"hidden_channels": 24, "rank": 4, "singular_channels": 16, "singular_layers": 2},
    "svdno-plus": {"hidden_channels": 16, "singular_channels": 8, "n_layers": 2, "stem_taps": 3},
    "fno": {"hidden_channels": 24, "n_modes": 4},
    "uno": {"hidden_channels": 12, "n_modes": [4, 2, 2, 2, 4]},
    "unet": {"hidden_channels": 16, "n_levels": 2},
    "deeponet": {"hidden_channels": 64, "products": 8, "branch_layers": 2, "trunk_layers": 4},
    "mpnn": {"hidden_channels": 48, "n_layers": 2},
}


def make_data(samples: int = 40, n: int = 16, seed: int = 0) -> Dataset:
    """u(x, t) = 3 + a(x) + t·mean(a): local and non-local parts, a mean and a scale to normalise."""
    generator = torch.Generator().manual_seed(seed)
    grid = Grid((n,), (-1.0,), (1.0,), "periodic")
    phase = 6.28 * torch.rand(samples, 1, generator=generator)
    wave = torch.sin(torch.pi * grid.axes[0].float() + phase)
    a = (wave + torch.randn(samples, 1, generator=generator)).unsqueeze(-1)
    times = torch.tensor([0.0, 1.0], dtype=torch.float64)
    u = 3 + torch.stack([a, a + a.mean(dim=1, keepdim=True)], dim=1)
    return Dataset(a, u, grid, times, ("a",), ("u",))


def make_surrogate(name: str = "svdno", data: Dataset | None = None, **arguments) -> Surrogate:
    torch.manual_seed(0)
    return Surrogate.build(name, data or make_data(), **{**SMALL[name], **arguments})
