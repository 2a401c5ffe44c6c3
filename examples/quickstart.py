"""Solve an equation, learn its solution operator, and use the surrogate: one minute on a laptop.

python examples/quickstart.py
"""

from pathlib import Path
from tempfile import mkdtemp

import torch

from svdno import SVDNO, Dataset, Surrogate, TrainingSettings, load, save, train
from svdno.equations import AllenCahn

# Data: start fields u(x, 0) and solutions u(x, t) of the Allen–Cahn equation, thinned out to 64 points × 11 times.
equation = AllenCahn(frames=11)
a = equation.sample_inputs(256, seed=0)
u = equation.solve(a)
grid = equation.grid.resized((64,))
data = Dataset(
    inputs=a[:, ::16].float(),
    outputs=u[:, :, ::16].float(),
    grid=grid,
    times=equation.times,
    input_fields=equation.input_fields,
    output_fields=equation.output_fields,
)
split = data.split()

# Model and training: the normalisers are fitted on the training samples alone.
torch.manual_seed(0)
surrogate = Surrogate.build(
    "svdno", split.train, hidden_channels=48, rank=8, singular_net="bilstm", singular_layers=1, singular_channels=24
)
settings = TrainingSettings(epochs=12, batch_size=16, learning_rate=4e-3, schedule="one-cycle", clip=1.0)
history = train(surrogate, split.train, split.validation, settings)
print(f"validation error {100 * min(row.validation_error for row in history):.1f} % after {len(history)} epochs")

# Save, load, predict: raw fields in, (batch, times, x, fields) in physical units out, also on a finer grid.
folder = Path(mkdtemp()) / "quickstart"
save(surrogate, folder)
surrogate = load(folder)
print("prediction", tuple(surrogate.predict(split.test.inputs).shape))
print("on a grid twice as fine", tuple(surrogate.predict(a[:2, ::8]).shape))

# What the model has learned: singular values of each layer's kernel on the first test sample.
normalised = surrogate.input_normalizer.encode(split.test.inputs[:1])
assert isinstance(surrogate.model, SVDNO)
for layer, svd in enumerate(surrogate.model.svd(normalised, *surrogate.locate(grid)), start=1):
    print(f"layer {layer}: singular values", [round(value, 2) for value in svd.values[0].tolist()])
