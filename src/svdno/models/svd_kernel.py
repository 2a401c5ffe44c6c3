"""The integral kernel κ(z,z′) = Φ(z) Σ Ψ(z′)ᵀ, applied without ever forming Φ or Ψ.

With Φ(z) = W̃_Φ h̃_Φ(z) (see singular_nets), the sums over points and over features change places, exactly:

    moments        M[c,k] = Σ_j w_j v(z_j)[c] h̃_Ψ(z_j)[k]        one GEMM over the points, O(n H d)
    coefficients   q[l]   = Σ_{c,k} W̃_Ψ[l,c,k] M[c,k]             no n
    expansion      A[c,k] = Σ_l W̃_Φ[l,c,k] σ_l q[l]               no n
    output         (K v)(z_i)[c] = Σ_k A[c,k] h̃_Φ(z_i)[k]         one GEMM over the points, O(n H d)

so the rank L costs nothing that grows with the number of points. Gram matrices need only ∫ h̃ h̃ᵀ dx.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from svdno.models.moments import are_equal, expand, gram, integrate
from svdno.models.orthonormal import factor, inverse_factor, rounding
from svdno.models.singular_nets import SingularFunctions, evaluate_trunks


class Bases(NamedTuple):
    """What the layers need of Φ and Ψ on one batch of inputs.

    left: h̃_Φ(z_i)
    right: w_i h̃_Ψ(z_i), the features that integrate; without w_i where it is the same for all points
    volume: that common w, or None
    heads: W̃_Φ and W̃_Ψ for the padded features
    grams: G_Φ and G_Ψ, or None where nothing needs them
    maps: T_Φ and T_Ψ, which make the functions orthonormal, in float64, or None where nothing needs them
    """

    left: Float[Tensor, "batch n left"]
    right: Float[Tensor, "batch n right"]
    volume: Float[Tensor, "#batch 1"] | None
    heads: tuple[Float[Tensor, "rank left_columns"], Float[Tensor, "rank right_columns"]]
    grams: tuple[Float[Tensor, "batch rank rank"], Float[Tensor, "batch rank rank"]] | None = None
    maps: tuple[Float[Tensor, "batch rank rank"], Float[Tensor, "batch rank rank"]] | None = None


class KernelSVD(NamedTuple):
    """Singular value decomposition of a kernel on each input of a batch: κ(z,z′) = Σ_l values_l left_l(z) right_l(z′)ᵀ.

    values: sorted, largest first, non-negative
    left, right: singular functions, orthonormal under the quadrature of the points
    """

    values: Float[Tensor, "batch rank"]
    left: Float[Tensor, "batch *space channels rank"]
    right: Float[Tensor, "batch *space channels rank"]

    def on_grid(self, space: tuple[int, ...]) -> "KernelSVD":
        """With the functions in the shape that the points have as a grid."""
        return KernelSVD(self.values, self.left.unflatten(1, space), self.right.unflatten(1, space))


class SVDKernel(nn.Module):
    """κ(z,z′) = Φ(z) Σ Ψ(z′)ᵀ with learned Φ and Ψ; without `right`, Mercer's κ(z,z′) = Φ(z) Λ Φ(z′)ᵀ.

    exact: orthonormalise the functions on each input (Cholesky), Φ R_Φ⁻¹ and Ψ R_Ψ⁻¹ instead of Φ and Ψ
    truncation: keep only this many leading triplets of the SVD on each input
    """

    def __init__(
        self,
        left: SingularFunctions,
        right: SingularFunctions | None,
        *,
        exact: bool = False,
        truncation: int | None = None,
    ) -> None:
        super().__init__()
        self.left = left
        self.right = right
        self.exact = exact
        self.truncation = truncation

    def prepare(
        self, z: Float[Tensor, "batch n augmented"], w: Float[Tensor, "#batch n"], *, with_grams: bool = False
    ) -> Bases:
        """Evaluate both trunks on an input; every layer that shares the functions uses the result."""
        left, right = _evaluate_both(self.left, self.right, z)
        weighted, volume = (right, w[:, :1]) if are_equal(w) else (right * w.unsqueeze(-1), None)
        head_left = self.left.padded_head()
        heads = (head_left, head_left if self.right is None else self.right.padded_head())
        needs_maps = self.exact or self.truncation is not None
        if not (with_grams or needs_maps):
            return Bases(left, weighted, volume, heads)
        with torch.autocast(z.device.type, enabled=False):
            G_left = gram(self.left.head, left, w)
            G_right = G_left if self.right is None else gram(self.right.head, right, w)
            maps = (_orthonormalise(G_left), _orthonormalise(G_right)) if needs_maps else None
        return Bases(left, weighted, volume, heads, (G_left, G_right), maps)

    def forward(
        self,
        v: Float[Tensor, "batch n d"],
        bases: Bases,
        sigma: Float[Tensor, " rank"],
        bias: Float[Tensor, " d"] | None = None,
    ) -> Float[Tensor, "batch n d"]:
        """(K v)(z_i) = Φ(z_i) Σ Σ_j w_j Ψ(z_j)ᵀ v(z_j) at every point; `bias` joins it with the constant feature."""
        W_left, W_right = bases.heads
        M = integrate(v, bases.right)
        with torch.autocast(v.device.type, enabled=False):
            q = M.flatten(1).to(W_right.dtype) @ W_right.T
            if bases.volume is not None:
                q = bases.volume * q
            A = (self._scale(q, bases, sigma) @ W_left).unflatten(1, (v.shape[-1], -1))
            if bias is not None:
                A = A + self.left.as_constant(bias)
        return expand(bases.left, A.to(bases.left.dtype))

    def orthogonality(self, bases: Bases) -> Float[Tensor, ""]:
        """L_ortho = ‖G_Φ − I‖²_F + ‖G_Ψ − I‖²_F of the functions in use, averaged over the batch (Eq. 12)."""
        assert bases.grams is not None
        grams = torch.stack(bases.grams)
        if self.exact:
            assert bases.maps is not None
            T = torch.stack(bases.maps)
            grams = T @ grams.double() @ T.mT
        identity = torch.eye(grams.shape[-1], dtype=grams.dtype, device=grams.device)
        return (grams - identity).square().sum(dim=(0, -2, -1)).mean()

    @torch.no_grad()
    def svd(
        self,
        z: Float[Tensor, "batch n augmented"],
        w: Float[Tensor, "#batch n"],
        sigma: Float[Tensor, " rank"],
    ) -> KernelSVD:
        """The SVD on each input, in float64: core R_Φ Σ R_Ψᵀ = U S Vᵀ, functions Φ R_Φ⁻¹ U and Ψ R_Ψ⁻¹ V."""
        left = self.left.features(z).double()
        right = left if self.right is None else self.right.features(z).double()
        F_left = factor(gram(self.left.head.double(), left, w.double()))
        F_right = factor(gram(self.right_head.double(), right, w.double()))
        U, S, Vh = torch.linalg.svd(self._core(F_left, F_right, sigma.double()))
        keep = self.truncation or S.shape[-1]
        return KernelSVD(
            S[:, :keep],
            _functions(self.left.head, left, torch.linalg.solve_triangular(F_left.mT, U, upper=True)[..., :keep]),
            _functions(
                self.right_head,
                right,
                torch.linalg.solve_triangular(F_right.mT, Vh.mT, upper=True)[..., :keep],
            ),
        )

    @property
    def right_head(self) -> Tensor:
        """W̃_Ψ, which is W̃_Φ in Mercer's kernel."""
        return self.left.head if self.right is None else self.right.head

    def _core(self, F_left: Tensor, F_right: Tensor, sigma: Tensor) -> Tensor:
        """The kernel in orthonormal bases: Σ itself, or R_Φ Σ R_Ψᵀ = F_Φᵀ Σ F_Ψ."""
        if self.exact:
            return torch.diag_embed(sigma).expand_as(F_left)
        return F_left.mT @ (sigma.unsqueeze(-1) * F_right)

    def _scale(self, q: Tensor, bases: Bases, sigma: Tensor) -> Tensor:
        """Σ q, in the bases that the heads span."""
        if bases.maps is None:
            return sigma * q
        T_left, T_right = bases.maps
        q_hat = T_right @ q.to(T_right).unsqueeze(-1)
        if self.truncation is None:
            r_hat = sigma.to(T_right).unsqueeze(-1) * q_hat
        else:
            assert bases.grams is not None
            F_left, F_right = (factor(G) for G in bases.grams)
            U, S, Vh = torch.linalg.svd(self._core(F_left, F_right, sigma.to(F_right)))
            k = self.truncation
            r_hat = U[..., :k] @ (S[:, :k, None] * (Vh[:, :k] @ q_hat))
        return (T_left.mT @ r_hat).squeeze(-1).to(q.dtype)


def _evaluate_both(
    left: SingularFunctions, right: SingularFunctions | None, z: Float[Tensor, "batch n augmented"]
) -> tuple[Tensor, Tensor]:
    """Features of Φ and of Ψ, which are those of Φ in Mercer's kernel."""
    functions = [left] if right is None else [left, right]
    features = evaluate_trunks([f.trunk for f in functions], z, left.padded - left.trunk.features)
    return features[0], features[-1]


def _orthonormalise(G: Tensor) -> Tensor:
    """T with T G Tᵀ = I, in float64."""
    return inverse_factor(G.double(), rounding(G.dtype))


def _functions(head: Tensor, h: Tensor, mixing: Tensor) -> Tensor:
    """The functions Φ(z) · mixing, formed at each point: (batch, n, channels, functions)."""
    mixed = torch.einsum("lck,blm->bkcm", head.double(), mixing)
    return torch.einsum("bnk,bkcm->bncm", h[..., : head.shape[-1]], mixed)
