"""A kernel of the last hidden layer whose left singular functions are tables of values at the trained points."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from svdno.models.moments import integrate
from svdno.models.orthonormal import factor
from svdno.models.svd_kernel import KernelSVD

# Points this near to each other are the same, in units of the box.
NEAR = 1e-5


class TabulatedKernel(nn.Module):
    """(K h)(x_j) = Σ_k φ_k(x_j) r_kᵀ (∫ (h, 1) dy − (h̄, 0)) at the points x_j of one grid, and 0 anywhere else.

    Its right singular functions are constant: what it sees of a sample is the mean of the hidden layer.

    points: x_j
    centre: (h̄, 0)
    rows: r_k
    functions: φ_k(x_j)
    """

    points: Tensor
    centre: Tensor
    rows: Tensor
    functions: Tensor

    def __init__(
        self,
        points: Float[Tensor, "n dim"],
        centre: Float[Tensor, " features"],
        rows: Float[Tensor, "rank features"],
        functions: Float[Tensor, "rank n out_channels"],
    ) -> None:
        super().__init__()
        for name, value in {"points": points, "centre": centre, "rows": rows, "functions": functions}.items():
            setattr(self, name, nn.Parameter(value, requires_grad=False))

    def knows(self, x: Float[Tensor, "#batch n dim"]) -> Tensor:
        """Whether these are the points of the table, for each sample: no host has to wait for the answer."""
        if x.shape[1:] != self.points.shape:
            return torch.zeros(len(x), dtype=torch.bool, device=x.device)
        return (x - self.points).abs().amax(dim=(1, 2)) < NEAR

    def forward(
        self, h: Float[Tensor, "batch n hidden"], x: Float[Tensor, "#batch n dim"], w: Float[Tensor, "#batch n"]
    ) -> Float[Tensor, "batch n out_channels"]:
        """K h at the points x, of which w are the weights."""
        n, channels = self.functions.shape[1:]
        if x.shape[1] != n:
            return h.new_zeros(len(h), x.shape[1], channels)
        amplitudes = (pool(h, w) - self.centre) @ self.rows.mT * self.knows(x).unsqueeze(-1)
        return (amplitudes @ self.functions.flatten(1)).unflatten(1, (n, channels))

    @torch.no_grad()
    def svd(self, w: Float[Tensor, "#batch n"], batch: int) -> KernelSVD:
        """The SVD of the part that acts on h − h̄ on each input of a batch, in float64.

        With L of the Gram matrix L Lᵀ of φ, and 1/√|D| as a constant of norm 1, its core is √|D| Lᵀ r.
        """
        phi, w = self.functions.double().movedim(0, -1), w.double()
        L = factor(torch.einsum("bn,ncl,ncm->blm", w, phi, phi))
        size = w.sum(dim=1)[:, None, None].sqrt()
        U, values, Vh = torch.linalg.svd(size * (L.mT @ self.rows[:, :-1].double()), full_matrices=False)
        left = torch.einsum("ncl,blm->bncm", phi, torch.linalg.solve_triangular(L.mT, U, upper=True))
        right = (Vh.mT / size).unsqueeze(1).expand(-1, len(phi), -1, -1)
        return KernelSVD(*(part.expand(batch, *part.shape[1:]) for part in (values, left, right)))


def pool(h: Float[Tensor, "batch n hidden"], w: Float[Tensor, "#batch n"]) -> Float[Tensor, "batch features"]:
    """∫ (h, 1)."""
    means = integrate(h, w.expand(len(h), -1).unsqueeze(-1)).squeeze(-1)
    return torch.cat([means, w.sum(dim=1, keepdim=True).expand(len(h), -1)], dim=-1)
