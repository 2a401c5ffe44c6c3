"""Neural operators: nn.Modules that map (batch, *space, channels) to (batch, *space, channels); no data code.

A new model is one file and one line in MODELS.
"""

from torch import nn

from svdno.models.deeponet import DeepONet
from svdno.models.fno import FNO
from svdno.models.mpnn import MPNN
from svdno.models.peers import PEERS
from svdno.models.svdno import SVDNO
from svdno.models.svdno_plus import SVDNOPlus
from svdno.models.trivial import TRIVIAL
from svdno.models.unet import UNet
from svdno.models.uno import UNO

MODELS: dict[str, type[nn.Module]] = {
    "svdno": SVDNO,
    "svdno-plus": SVDNOPlus,
    "fno": FNO,
    "uno": UNO,
    "unet": UNet,
    "deeponet": DeepONet,
    "mpnn": MPNN,
}

# With those of another package, and the methods that are fitted in closed form instead of trained.
ALL_MODELS: dict[str, type[nn.Module]] = {**MODELS, **PEERS, **TRIVIAL}

__all__ = ["ALL_MODELS", "FNO", "MODELS", "MPNN", "SVDNO", "UNO", "DeepONet", "SVDNOPlus", "UNet"]
