"""Neural operators: nn.Modules that map (batch, *space, channels) to (batch, *space, channels); no data code.

A new model is one file and one line in MODELS.
"""

from torch import nn

from svdno.models.fno import FNO
from svdno.models.svdno import SVDNO

MODELS: dict[str, type[nn.Module]] = {"svdno": SVDNO, "fno": FNO}

__all__ = ["FNO", "MODELS", "SVDNO"]
