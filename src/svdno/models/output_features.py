"""All that the output of a model is linear in, and sums over points and samples of their squares.

At a point z of sample i they are f(z) = (g(z), φ_k(z) m_ke), for each k and e: some fields, and H functions times d
numbers each, H·d features that are never formed. With S_i = Σ_z w_i s sᵀ of s = (g, φ), sums over points see s alone:

    Σ_i w_i Σ_z f fᵀ:   Σ_i S_i[g,g′],   Σ_i S_i[g,k] m_ke,   Σ_i S_i[k,l] m_ke m_lf
    Σ_i w_i Σ_z f Rᵀ:   Σ_i Σ_z w_i g Rᵀ,   Σ_i m_ke Σ_z w_i φ_k Rᵀ

where the last of Gram's costs (H d)² per sample, not per point.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class OutputFeatures(NamedTuple):
    """f(z) = (g(z), φ_k(z) m_ke) at n points of each sample.

    g: fields
    functions: φ
    numbers: m
    """

    g: Float[Tensor, "batch n fields"]
    functions: Float[Tensor, "batch n functions"]
    numbers: Float[Tensor, "batch functions numbers"]

    @classmethod
    def of(cls, g: Float[Tensor, "batch n fields"]) -> "OutputFeatures":
        """Fields alone."""
        return cls(g, g.new_zeros(*g.shape[:2], 0), g.new_zeros(len(g), 0, 1))

    def at(self, points: Int[Tensor, " some"]) -> "OutputFeatures":
        """The same at some of the points."""
        return self._replace(g=self.g[:, points], functions=self.functions[:, points])

    def sums(
        self, roots: Float[Tensor, "batch 1 1"], R: Float[Tensor, "batch n out"]
    ) -> tuple[Float[Tensor, "features features"], Float[Tensor, "features out"]]:
        """Σ_i w_i Σ_z f fᵀ and Σ_i w_i Σ_z f Rᵀ, in float64; roots: √w_i."""
        rows = roots * torch.cat([self.g.double(), self.functions.double()], dim=-1)
        S, T = rows.mT @ rows, rows.mT @ (roots * R.double())
        fields, m = self.g.shape[-1], self.numbers.double()
        mixed = torch.einsum("bgk,bke->gke", S[:, :fields, fields:], m).flatten(1)
        scaled = (S[:, fields:, fields:].permute(2, 0, 1).unsqueeze(-1) * m).flatten(2)  # S[k,l] m_ke: l, sample, ke
        products = (scaled.mT @ m.transpose(0, 1)).transpose(0, 1).flatten(1)
        gram = [torch.cat([S[:, :fields, :fields].sum(0), mixed], dim=1), torch.cat([mixed.mT, products], dim=1)]
        target = [T[:, :fields].sum(0), torch.einsum("bko,bke->keo", T[:, fields:], m).flatten(0, 1)]
        return torch.cat(gram), torch.cat(target)

    def squared_changes(self, other: "OutputFeatures", roots: Float[Tensor, "batch 1 1"]) -> Float[Tensor, " features"]:
        """Σ_i w_i Σ_z (f′ − f)² for each feature, f′ of `other` at the same points.

        φ′m′ − φm = δφ m′ + φ δm, whose squares sum up to m′² Σ_z δφ² + 2 m′ δm Σ_z φ δφ + δm² Σ_z φ².
        """
        phi, m = self.functions.double(), other.numbers.double()
        change, shift = other.functions.double() - phi, m - self.numbers.double()
        terms = (m.square(), change.square()), (2 * m * shift, phi * change), (shift.square(), phi.square())
        products = sum(torch.einsum("bke,bnk->ke", roots.square() * mm, pp) for mm, pp in terms)
        fields = (roots * (other.g.double() - self.g.double())).square().sum(dim=(0, 1))
        return torch.cat([fields, torch.as_tensor(products).flatten()])
