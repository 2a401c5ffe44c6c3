"""Learn solution operators of PDEs with SVD-NO.

equation ─solve→ data file ─load→ batches ─model→ prediction ─metrics→ records ─report→ table, figure, page
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from svdno.data.dataset import Dataset
    from svdno.grid import Grid
    from svdno.models.fno import FNO
    from svdno.models.svdno import SVDNO
    from svdno.models.svdno_plus import SVDNOPlus
    from svdno.recipe import TrainingSettings
    from svdno.training.checkpoint import load, save
    from svdno.training.loop import train
    from svdno.training.surrogate import Surrogate

__version__ = "0.1.0"

_HOMES = {
    "SVDNO": "svdno.models.svdno",
    "SVDNOPlus": "svdno.models.svdno_plus",
    "FNO": "svdno.models.fno",
    "Grid": "svdno.grid",
    "Dataset": "svdno.data.dataset",
    "Surrogate": "svdno.training.surrogate",
    "TrainingSettings": "svdno.recipe",
    "train": "svdno.training.loop",
    "save": "svdno.training.checkpoint",
    "load": "svdno.training.checkpoint",
}

__all__ = [
    "FNO",
    "SVDNO",
    "Dataset",
    "Grid",
    "SVDNOPlus",
    "Surrogate",
    "TrainingSettings",
    "__version__",
    "load",
    "save",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that `svdno --help` and the report do not wait for PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'svdno' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
