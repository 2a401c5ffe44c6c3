"""Features of an output as they are, one after the other: what the factorised sums are held against."""

import torch


def form(features):
    """f at each point: fields, then φ_k m_ke for each k and e."""
    g, phi, m = features
    return torch.cat([g, torch.einsum("bnk,bke->bnke", phi, m).flatten(2)], dim=-1)
