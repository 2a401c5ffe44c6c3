"""One model on grids, scattered points and a domain with a hole: only sums over points with weights appear.

python examples/point_cloud.py
"""

import torch

from svdno import SVDNO

torch.manual_seed(0)
model = SVDNO(in_channels=1, out_channels=1, dim=2, hidden_channels=32, rank=12, singular_channels=32)


def field(x: torch.Tensor) -> torch.Tensor:
    """A smooth input, known everywhere."""
    return torch.sin(3 * x[..., :1]) * torch.cos(2 * x[..., 1:])


# A uniform grid of [0,1]², the default.
axes = torch.linspace(0, 1, 65)
grid = torch.stack(torch.meshgrid(axes, axes, indexing="ij"), dim=-1)
on_grid = model(field(grid).unsqueeze(0))

# The same field on 4000 scattered points, each standing for 1/4000 of the area.
scattered = torch.rand(4000, 2)
on_points = model(field(scattered).unsqueeze(0), points=scattered)
print(f"mean output: grid {on_grid.mean():.4f}, scattered points {on_points.mean():.4f}")

# A hole: leave the points out; the weights say how much area the others stand for.
solid = scattered[(scattered - 0.5).norm(dim=1) > 0.2]
with_hole = model(field(solid).unsqueeze(0), points=solid, weights=torch.full((len(solid),), 1 / 4000))
print(f"{len(solid)} points around the hole, output {tuple(with_hole.shape)}")

# The kernel's singular functions live on the same points, orthonormal under the same weights.
svd = model.svd(field(solid).unsqueeze(0), points=solid, weights=torch.full((len(solid),), 1 / 4000))[0]
print("singular values", [round(value, 3) for value in svd.values[0].tolist()][:4])
