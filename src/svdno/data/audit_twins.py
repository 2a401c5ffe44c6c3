"""Samples that are there twice: copies, contradictions, and twins on both sides of the split."""

from collections.abc import Iterator

import numpy as np

from svdno.data.audit_record import Finding, name_samples
from svdno.data.audit_survey import Survey

# Inputs are near duplicates, and outputs the same, if they are closer than this, relative to their norm.
NEAR = 1e-6
# Inputs closer than this may become equal in float32.
EQUAL = float(np.finfo(np.float32).eps)
# Part of the held-out samples that may have a twin before the test error stops meaning anything.
FEW_TWINS = 0.05
# Samples whose nearest neighbour is looked for.
PROBES = 200


def check_twins(survey: Survey, train: int, validation: int) -> tuple[list[Finding], list[str]]:
    """Findings about samples that repeat an earlier one, and a note where chance explains them.

    In file order, `train` samples are for training and `validation` for validation, the rest for the test.
    """
    labels = label_near_equals(survey.sketches, survey.norms, survey.digests)
    first, same = _first_equals(survey.digests)
    with np.errstate(invalid="ignore"):
        apart = np.abs(survey.marks - survey.marks[first]) > NEAR * survey.output_norms
    near = _first_equals(labels)[1] & ~same
    findings = [
        *name_samples("contradictions", "error", "input of an earlier sample with another output", same & apart),
        *name_samples("duplicates", "warning", "exact copies of earlier samples", same & ~apart),
        *name_samples("near-duplicates", "warning", f"input within a relative {NEAR:g} of an earlier sample's", near),
        *_name_twins(labels, train, validation),
    ]
    chances = len(labels) / median_distance(survey.sketches, survey.norms, labels)
    across = train / len(labels) * (1 - train / len(labels))
    expected = {"duplicates": EQUAL * chances, "near-duplicates": NEAR * chances, "twins": NEAR * chances * across}
    by_chance = [found for found in findings if found.count <= _most_likely(expected.get(found.check, 0.0))]
    note = f"no more than chance where inputs vary by one number: {'; '.join(found.message for found in by_chance)}"
    return [found for found in findings if found not in by_chance], [note] if by_chance else []


def _most_likely(expected: float) -> float:
    """A count that chance does not exceed: five standard deviations of a Poisson distribution above its mean."""
    return expected + 5 * expected**0.5


def _name_twins(labels: np.ndarray, train: int, validation: int) -> Iterator[Finding]:
    """Held-out samples whose input equals a training sample's, or nearly."""
    twin = np.isin(labels, labels[:train])
    twin[:train] = False
    parts = {"test": twin[train + validation :], "validation": twin[train : train + validation]}
    few = all(part.sum() <= FEW_TWINS * len(part) for part in parts.values())
    counts = " and ".join(f"{part.sum()} of {len(part)} {name}" for name, part in parts.items())
    yield from name_samples("twins", "warning" if few else "error", f"twin in training for {counts} samples", twin)


def median_distance(sketches: np.ndarray, norms: np.ndarray, labels: np.ndarray) -> float:
    """The median δ, over one input of each label, of the relative distance to the nearest other; ∞ if there is none.

    Of n inputs at most about nε/δ have another within ε by chance. That is so if they vary by one number; where they
    vary by d, it is n(ε/δ)ᵈ.
    """
    distinct = np.unique(labels, return_index=True)[1]
    distinct = distinct[np.isfinite(norms[distinct]) & (norms[distinct] > 0)]
    if len(distinct) < 2:
        return float("inf")
    nearest = [
        np.partition(np.linalg.norm(sketches[distinct] - sketches[i], axis=1), 1)[1] / norms[i]
        for i in distinct[:: -(-len(distinct) // PROBES)]
    ]
    return max(float(np.median(nearest)), float(np.finfo(np.float64).tiny))


def label_near_equals(sketches: np.ndarray, norms: np.ndarray, digests: np.ndarray) -> np.ndarray:
    """One label for inputs that are equal or within a relative 1e-6 of each other, by the distance of the sketches.

    Sorted along the first projection, a sample is compared with those in a narrow window only; memory is O(samples).
    """
    unique, members = np.unique(digests, return_index=True, return_inverse=True)[1:]
    order = unique[np.argsort(sketches[unique, 0])]
    sorted_sketches, leaders = sketches[order], np.full(len(order), -1)
    for i in np.flatnonzero(np.isfinite(norms[order])):
        if leaders[i] < 0:
            # A projection exceeds six standard deviations, 6/√k of the distance, for one pair in 10⁹.
            reach = 6 * NEAR * norms[order[i]] / np.sqrt(sketches.shape[1])
            last = np.searchsorted(sorted_sketches[:, 0], sorted_sketches[i, 0] + reach, side="right")
            distance = np.linalg.norm(sorted_sketches[i:last] - sorted_sketches[i], axis=1)
            leaders[i:last][(distance <= NEAR * norms[order[i]]) & (leaders[i:last] < 0)] = order[i]
    labels = np.empty(len(digests), dtype=int)
    labels[order] = np.where(leaders < 0, order, leaders)
    return labels[unique][members]


def _first_equals(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first sample with the key of each one, and whether that is an earlier one."""
    index, inverse = np.unique(keys, return_index=True, return_inverse=True)[1:]
    first = index[inverse]
    return first, first < np.arange(len(keys))
