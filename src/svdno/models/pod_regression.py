"""POD + linear regression: the best linear map between the leading principal components of inputs and outputs."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from svdno.errors import InputError
from svdno.models.fitted import Fitted

# Candidates for the weight of the ridge, as parts of the largest squared singular value of the inputs.
RIDGES = tuple(10.0**exponent for exponent in range(-14, 1))
# Rows or columns whose products are added up at once.
COLUMNS = 4096
TINY = torch.finfo(torch.float64).tiny


class PODRegression(Fitted):
    """Linear regression between the leading principal components (POD) of inputs and outputs.

    û = ū + Bᵀ Wᵀ V (a − ā), with V, B the components of the inputs and outputs and W the ridge regression of the
    output coefficients D on the input coefficients C: W = (CᵀC + λI)⁻¹ CᵀD, λ chosen on the validation samples.

    energy: part of Σσ² that the components of inputs and outputs keep; 1 − energy bounds the squared relative error
        of leaving the others out
    """

    keeps = ("output_mean", "output_components", "weight", "input_components", "input_mean")
    output_mean: Tensor
    output_components: Tensor
    weight: Tensor
    input_components: Tensor
    input_mean: Tensor

    def __init__(self, in_channels: int, out_channels: int, dim: int, energy: float = 1 - 1e-8) -> None:
        if not 0 < energy <= 1:
            raise InputError(f"`energy` must be above 0 and at most 1, got {energy}. Use 0.9999 for 99.99 %.")
        super().__init__(in_channels, out_channels, dim, energy=energy)

    def fit(self, inputs: Tensor, targets: Tensor, validate: Callable[[], float]) -> None:
        """Find the components, then the ridge of the smallest validation error."""
        energy = self.arguments["energy"]
        self.keep("input_mean", inputs.mean(dim=0))
        self.keep("output_mean", targets.mean(dim=0))
        a, u = (inputs - self.input_mean).flatten(1), (targets - self.output_mean).flatten(1)
        V, B = find_components(a, energy), find_components(u, energy)
        self.keep("input_components", V)
        self.keep("output_components", B)
        C, D = (a @ V.mT).double(), (u @ B.mT).double()
        squares, Q = torch.linalg.eigh(C.mT @ C)
        projected = Q.mT @ (C.mT @ D)
        candidates = []
        for ridge in RIDGES:
            damped = (squares + ridge * squares.max()).clamp_min(TINY)  # inputs that never vary have no influence
            W = Q @ (projected / damped.unsqueeze(1))
            self.keep("weight", W.to(inputs.dtype))
            candidates.append((validate(), self.weight))
        self.weight = min(candidates, key=lambda candidate: candidate[0])[1]

    def map_fields(self, a: Float[Tensor, "batch *space in_channels"]) -> Float[Tensor, "batch *space out_channels"]:
        """Project, regress, expand."""
        coefficients = (a - self.input_mean).flatten(1) @ self.input_components.mT
        u = (coefficients @ self.weight) @ self.output_components
        return self.output_mean + u.unflatten(1, self.output_mean.shape)


def find_components(rows: Float[Tensor, "samples values"], energy: float) -> Float[Tensor, "components values"]:
    """As few right singular vectors as keep this part of the energy Σσ², from products in float64.

    Eigenvectors of the smaller of X Xᵀ and XᵀX: an SVD of all samples would take many times the memory.
    """
    samples, values = rows.shape
    wide = values > samples
    products = torch.zeros(2 * (min(rows.shape),), dtype=torch.float64, device=rows.device)
    for part in rows.split(COLUMNS, dim=1) if wide else rows.split(COLUMNS):
        x = part.double()
        products += x @ x.mT if wide else x.mT @ x
    squares, vectors = (t.flip(-1) for t in torch.linalg.eigh(products))
    squares = squares.clamp_min(0)
    # Below the rounding of the products a direction is noise; one is kept even where nothing varies.
    enough = int((squares.cumsum(0) < energy * squares.sum()).sum()) + 1
    count = max(1, min(enough, int((squares > 1e-14 * squares[0]).sum())))
    leading = vectors[:, :count]
    if not wide:
        return leading.mT.to(rows.dtype)
    onto = leading / squares[:count].sqrt().clamp_min(TINY)
    return torch.cat([onto.mT @ part.double() for part in rows.split(COLUMNS, dim=1)], dim=1).to(rows.dtype)
