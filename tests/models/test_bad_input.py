"""Bad input to models: each error says what was expected, what came, and what to do."""

import pytest
import torch

from svdno import FNO, SVDNO
from svdno.errors import InputError

MODEL = SVDNO(2, 3, 2, hidden_channels=8, singular_channels=8, rank=3)
GRID, CLOUD = torch.randn(4, 8, 9, 2), torch.randn(4, 30, 2)
X, W = torch.rand(30, 2), torch.full((30,), 1 / 30)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: MODEL(torch.randn(4, 8, 9, 5)),
            r"last axis must hold the 2 input channels, \(batch, x, y, 2\); got .*9, 5",
        ),
        (lambda: MODEL(torch.randn(4, 2, 8, 9)), r"looks channels-first: pass a\.movedim\(1, -1\)"),
        (lambda: MODEL(torch.randn(8, 2)), r"takes fields of shape \(batch, x, y, 2\).*got 2 axes: \(8, 2\)"),
        (lambda: MODEL(torch.randn(1, 8, 9, 2, 2)), "got 5 axes"),
        (lambda: SVDNO(1, 1, 1)(torch.randn(4, 8)), r"Add the channel axis: a\.unsqueeze\(-1\)"),
        (lambda: MODEL(GRID.double()), r"computes in torch\.float32, got an input in torch\.float64.*a\.to"),
        (lambda: MODEL(GRID[:0]), "the input is empty"),
        (lambda: MODEL(CLOUD), r"needs its coordinates.*Pass points of shape \(30, 2\) or \(4, 30, 2\)"),
        (lambda: MODEL(GRID[0]), r"for one field on a grid, add the batch axis: a\.unsqueeze\(0\)"),
        (lambda: MODEL(CLOUD, X[:29], W), r"`points` must give 2 coordinate\(s\).*\(30, 2\).*got \(29, 2\)"),
        (lambda: MODEL(CLOUD, X[:, :1], W), r"`points` must give 2 coordinate"),
        (lambda: MODEL(CLOUD, X, W[:29]), r"`weights` must hold one number for each point.*got \(29,\)"),
        (lambda: MODEL(CLOUD, X, W.expand(3, 30)), r"`weights` must hold .*\(4, 30\); got \(3, 30\)"),
        (lambda: MODEL(CLOUD, X, 0 * W), "weights must be finite, none below 0 and not all 0, got values from 0"),
        (lambda: MODEL(CLOUD, X, -W), "weights must be finite, none below 0"),
        (lambda: MODEL(CLOUD, X, W * float("nan")), "weights must be finite"),
        (lambda: MODEL(GRID, weights=torch.ones(8, 8)), r"shape \(8, 9\) or \(4, 8, 9\)"),
        (lambda: SVDNO(1, 1, 2, singular_net="lstm"), "needs dim=1, got dim=2. Use singular_net='mlp'"),
        (lambda: SVDNO(1, 1, 3, singular_net="bilstm"), "needs dim=1, got dim=3"),
        (lambda: SVDNO(1, 1, 1, rank=0), "`rank` must be a whole number of at least 1, got 0"),
        (
            lambda: SVDNO(1, 1, 1, 4, rank=99, singular_channels=4),
            "must not exceed hidden_channels × singular_channels = 16",
        ),
        (lambda: SVDNO(1, 1, 4), "`dim` must be 1, 2 or 3, got 4"),
        (lambda: SVDNO(1, 1, 1, hidden_channels=0), "`hidden_channels` must be a whole number"),
        (lambda: SVDNO(1, 1, 1, singular_net="gru"), "must be one of 'mlp', 'lstm', 'bilstm', got 'gru'"),
        (lambda: SVDNO(1, 1, 1, kernel="low-rank"), "must be one of 'svd', 'mercer', 'dense'"),
        (lambda: SVDNO(1, 1, 1, orthogonality="soft"), "must be one of 'penalty', 'exact', 'none'"),
        (lambda: SVDNO(1, 1, 1, bases="local"), "must be one of 'global', 'per-layer'"),
        (lambda: SVDNO(1, 1, 1, truncation=9), "`truncation` must be between 1 and rank=8, got 9"),
        (lambda: MODEL.truncated(4), "between 1 and the model's rank 3, got 4"),
        (lambda: MODEL.truncated(0), "between 1 and the model's rank 3, got 0"),
        (
            lambda: SVDNO(1, 1, 1, kernel="dense").svd(torch.randn(1, 8, 1)),
            "kernel='dense' has none. Use kernel='svd'",
        ),
        (lambda: SVDNO(1, 1, 1, kernel="dense").truncated(2), "kernel='dense' has none"),
        (lambda: FNO(1, 1, 2)(torch.randn(1, 30, 1), torch.rand(30, 2)), "Use SVDNO for point clouds"),
        (
            lambda: FNO(1, 1, 1, n_modes=80)(torch.randn(1, 128, 1)),
            "got n_modes=80 for 128 points. Use n_modes <= 64",
        ),
        (lambda: FNO(1, 1, 1, n_modes=0), "`n_modes` must be a whole number of at least 1"),
        (lambda: FNO(1, 1, 0), "`dim` must be 1, 2 or 3"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
