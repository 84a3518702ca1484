"""Two models compared on images that neither has learnt from, by what is known about these. Arrays only."""

import math
from dataclasses import dataclass

import numpy as np

from anneal.method import metrics
from anneal.method.estimate import Estimate
from anneal.method.relations import Known
from anneal.pairs import Floats, Ids, Verdict

K = 5
Z95 = 1.96
Z80 = 1.28
BLOCK = 1024  # images at a time


@dataclass(frozen=True)
class Comparison:
    """Mean AP@5 of both models with 95 % intervals, and of their difference with an 80 % interval."""

    before: Estimate
    after: Estimate
    gain: Estimate
    images: int  # that were queries

    @property
    def is_better(self) -> bool:
        """Whether the whole interval of the difference is above zero."""
        return self.gain.low > 0


def average_precision(vectors: Floats, known: Known, images: Ids) -> Floats:
    """(m,) AP@5 of each image, retrieved from the others whose relation to it is known; NaN without a similar
    one. ``vectors`` are the (m, d) unit rows of these images."""
    blocks = []
    for i in range(0, len(images), BLOCK):
        rows = images[i : i + BLOCK]
        verdicts = known.among(rows, images)
        verdicts[np.arange(len(rows)), i + np.arange(len(rows))] = 0  # an image does not find itself
        similar = verdicts == Verdict.SIMILAR
        s = vectors[i : i + BLOCK] @ vectors.T
        s = np.where(similar | (verdicts == Verdict.DISSIMILAR), s, -np.inf)
        best = np.argsort(-s, axis=1, kind="stable")[:, :K]
        found = np.take_along_axis(similar, best, axis=1)
        blocks.append(metrics.average_precision(found, similar.sum(axis=1), "min"))
    return np.concatenate(blocks)


def compare(before: Floats, after: Floats) -> Comparison | None:
    """From the average precision of the same queries in two models; None with fewer than two queries. The
    difference of each query counts: a query that is hard for both says nothing."""
    counts = np.isfinite(before) & np.isfinite(after)
    if counts.sum() < 2:
        return None
    one = before[counts]
    other = after[counts]
    return Comparison(_mean(one, Z95), _mean(other, Z95), _mean(other - one, Z80), int(counts.sum()))


def _mean(values: Floats, z: float) -> Estimate:
    mean = float(values.mean())
    half = z * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)
