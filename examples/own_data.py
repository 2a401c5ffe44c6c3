"""Train on your own arrays: two input fields, one output field, a two-dimensional grid, no equation known.

python examples/own_data.py
"""

import numpy as np
import torch

from svdno import Dataset, Grid, Surrogate, TrainingSettings, train
from svdno.training.losses import relative_l2

# Stand-ins for simulation results on 24 × 16 cells of [0,3] × [0,2]: a conductivity, a source, and what came out.
rng = np.random.default_rng(0)
grid = Grid(shape=(24, 16), lower=(0.0, 0.0), upper=(3.0, 2.0), placement="cells")
x, y = np.moveaxis(grid.points.numpy(), -1, 0)
phase, rate = rng.uniform(0, 2 * np.pi, (200, 1, 1)), rng.uniform(0.5, 2, (200, 1, 1))
conductivity = 1.5 + np.sin(x + phase)
source = np.exp(-rate * (y - 1) ** 2) * np.ones_like(x)
temperature = (source.mean(axis=(1, 2), keepdims=True) + source) / conductivity

# Axes: inputs (samples, x, y, fields), outputs (samples, times, x, y, fields); a steady problem has one time.
data = Dataset(
    inputs=torch.tensor(np.stack([conductivity, source], axis=-1), dtype=torch.float32),
    outputs=torch.tensor(temperature[:, None, :, :, None], dtype=torch.float32),
    grid=grid,
    times=torch.zeros(1, dtype=torch.float64),
    input_fields=("conductivity", "source"),
    output_fields=("temperature",),
)
split = data.split()
torch.manual_seed(0)
surrogate = Surrogate.build("svdno", split.train, hidden_channels=32, rank=16, singular_channels=32, singular_layers=2)
train(surrogate, split.train, split.validation, TrainingSettings(epochs=15, batch_size=10, schedule="one-cycle"))
error = relative_l2(surrogate.predict(split.test.inputs), split.test.outputs[:]).mean()
print(f"{split.policy}: test error {100 * error:.1f} %")
