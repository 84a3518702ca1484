"""How unsure the current metric space is of a pair: arrays in, scores out, higher means ask first.

MGUE asks the pairs whose similarity is nearest a threshold α_t between the similar and the dissimilar
pairs known so far; BCGUE those to which a pair classifier gives a probability nearest one half.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from anneal.method.relations import Relations
from anneal.pairs import Floats, Ids, Verdict


@dataclass(frozen=True)
class Moments:
    """Mean and population standard deviation of the similarity, over similar and over dissimilar
    pairs; nan where there is no such pair."""

    mean_similar: float
    std_similar: float
    mean_dissimilar: float
    std_dissimilar: float

    @property
    def complete(self) -> bool:
        return not (np.isnan(self.mean_similar) or np.isnan(self.mean_dissimilar))


def moments(vectors: Floats, known: Relations, block: int = 1024) -> Moments:
    """μ and σ of s = u·v over all pairs known to be similar and dissimilar, answered or implied.

    Only images of which something is known are visited, a block of pairs at a time.
    """
    sums = {Verdict.SIMILAR: np.zeros(3), Verdict.DISSIMILAR: np.zeros(3)}  # count, Σs, Σs²
    images = known.members
    for i in range(0, len(images), block):
        rows = images[i : i + block]
        for j in range(i, len(images), block):
            columns = images[j : j + block]
            s = vectors[rows] @ vectors[columns].T
            verdicts = known.among(rows, columns)
            if i == j:
                verdicts[np.tri(len(rows), dtype=bool)] = 0  # each pair once, none with itself
            for verdict, total in sums.items():
                picked = s[verdicts == verdict].astype(np.float64)
                total += len(picked), picked.sum(), np.square(picked).sum()
    (mean_similar, std_similar), (mean_dissimilar, std_dissimilar) = map(_mean_std, sums.values())
    return Moments(mean_similar, std_similar, mean_dissimilar, std_dissimilar)


def _mean_std(total: Floats) -> tuple[float, float]:
    count, first, second = total
    if not count:
        return float("nan"), float("nan")
    mean = first / count
    return float(mean), float(np.sqrt(max(second / count - mean**2, 0.0)))


def mgue_threshold(m: Moments, lam: float) -> float:
    """α_t = (μ_sim + μ_dsim − λ(σ_sim − σ_dsim)) / 2"""
    spread = m.std_similar - m.std_dissimilar
    return (m.mean_similar + m.mean_dissimilar - lam * spread) / 2


def calibrate(
    x: Floats, similar: NDArray[np.bool_], slope: float = 1.5, certainty: float = 0.05, steps: int = 50
) -> tuple[float, float]:
    """(k, m) of P(similar | x) = 1 / (1 + e^{−k(x − m)}), the likeliest where k is about ``slope`` to begin
    with (a normal prior on k of precision ``certainty``, a faint one on the rest); by Newton's method."""
    centre = float(np.mean(x))
    design = np.stack([x - centre, np.ones_like(x)], axis=1).astype(np.float64)  # (pairs, 2)
    prior, precision = np.array([slope, 0.0]), np.array([certainty, 1e-2])
    w = prior.copy()
    for _ in range(steps):
        p = expit(design @ w)
        gradient = design.T @ (similar - p) - precision * (w - prior)
        hessian = (design * (p * (1 - p))[:, None]).T @ design + np.diag(precision)
        step = np.linalg.solve(hessian, gradient)
        w += step * min(1.0, 2 / max(float(np.abs(step).max()), 1e-12))  # never a leap
        if np.abs(step).max() < 1e-9:
            break
    k = max(float(w[0]), 0.25)
    return k, centre - float(w[1]) / k


def chance_similar(s: Floats, similar: NDArray[np.bool_]) -> tuple[float, float]:
    """(k, m) of P(similar | s) = 1 / (1 + e^{−k(s − m)}), going by the similarities of pairs and how they
    were judged."""
    spread = max(float(np.std(s)), 1e-6)
    k, middle = calibrate(s / spread, similar)
    return k / spread, middle * spread


def balanced(levels: Floats, similar: NDArray[np.bool_], share: float) -> float:
    """The level at which this share of the answers will be similar, going by the levels and the verdicts
    of those so far (``strategies.levels``)."""
    k, middle = calibrate(-np.log(levels), similar)
    return float(np.exp(-(middle + logit(share) / k)))


def limit(s: Floats, similar: NDArray[np.bool_]) -> float:
    """The similarity from which on a pair is called similar: where the share of similar pairs below it and
    that of dissimilar ones above it are least, together; nan until there is one of each."""
    if similar.all() or not similar.any():
        return float("nan")
    order = np.argsort(s)
    below = np.concatenate([[0], np.cumsum(similar[order])]) / similar.sum()
    above = 1 - np.concatenate([[0], np.cumsum(~similar[order])]) / (~similar).sum()
    ends = np.concatenate([[s[order[0]]], s[order]])
    cuts = np.append((ends[:-1] + ends[1:]) / 2, np.nextafter(ends[-1], np.inf))  # cut i lies before pair i
    best = np.flatnonzero(below + above <= (below + above).min() + 1e-12)
    return float(cuts[best[len(best) // 2]])


def mgue_score(s: Floats, threshold: float) -> Floats:
    """−|s − α_t|"""
    score: Floats = -np.abs(s - threshold)
    return score


def bcgue_score(probability: Floats) -> Floats:
    """−|P − ½|"""
    score: Floats = -np.abs(probability - 0.5)
    return score


@dataclass(frozen=True)
class PairProbability:
    """P(similar) of a trained pair classifier, for a block of pairs at a time.

    The classifier's first layer works on two concatenated vectors, so it splits into one half per
    image: ``left`` and ``right`` hold W₁ᵃu and W₁ᵇu + b₁ for every image, and a pair costs their sum
    and two small layers. The logit is the mean over both orders of the pair, hence order-free.
    """

    left: Floats  # (n, h1)
    right: Floats  # (n, h1)
    second: Floats  # (h1, h2)
    second_bias: Floats  # (h2,)
    last: Floats  # (h2,)
    last_bias: float

    def __call__(self, rows: Ids, columns: Ids) -> Floats:
        there = self._logit(self.left[rows], self.right[columns])
        back = self._logit(self.left[columns], self.right[rows]).T
        probability: Floats = expit((there + back) / 2)
        return probability

    def _logit(self, left: Floats, right: Floats, rows: int = 64) -> Floats:
        out = np.empty((len(left), len(right)), dtype=np.float32)
        for i in range(0, len(left), rows):  # a strip at a time: (rows, |right|, h1) is the largest
            hidden = np.maximum(left[i : i + rows, None, :] + right[None, :, :], 0)
            hidden = np.maximum(hidden @ self.second + self.second_bias, 0)
            out[i : i + rows] = hidden @ self.last + self.last_bias
        return out
