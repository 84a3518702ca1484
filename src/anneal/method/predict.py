"""The likeliest class of an image that nobody has placed, from the nearest images whose class is settled.

    P(class) = σ((s₁ − cutoff) / SLOPE) · Σ_{j of the class} w_j / Σ_j w_j,   w_j = exp(s_j / SPREAD)

s_j are the similarities of the NEAREST settled images, best first. The sum is how far they agree. The factor
before it is how likely the image is near enough to belong to any of them; ``cutoff`` is the similarity from
which the model calls a pair similar. The settled images themselves cannot be used to find these constants:
the model was trained on them, so each of them lies right inside its class. ``bench/classes.py`` compares the
scores with the truth.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anneal.files import release
from anneal.method.neighbours import nearest
from anneal.pairs import Floats, Ids
from anneal.watch import Progress, silent

NO_CLASS = -1
NEAREST = 10  # settled images that vote
SPREAD = 0.2
SLOPE = 0.1
EXEMPLARS = 5000  # settled images that may vote, evenly from all classes: this bounds time and memory
BLOCK = 8192  # images at a time


@dataclass(frozen=True)
class Prediction:
    """The likeliest class of each image, and the probability that it is right."""

    column: Ids  # (m,) NO_CLASS where every class is ruled out
    score: Floats  # (m,)


def predict(
    vectors: Floats,
    images: Ids,
    settled: Ids,
    column: Ids,
    apart: Mapping[int, Sequence[int]],
    cutoff: float = math.nan,
    progress: Progress = silent,
) -> Prediction:
    """The class of ``images``, rows of the unit ``vectors``, from the ``settled`` images, which have the
    classes ``column`` (numbers from 0). ``apart`` has the classes that an image cannot be in. Without a
    cutoff every image counts as near enough."""
    voters, classes = _exemplars(settled, column)
    known = np.asarray(vectors[voters])  # (v, d)
    answer = Prediction(np.full(len(images), NO_CLASS), np.zeros(len(images), dtype=np.float32))
    restricted = np.isin(images, list(apart))
    free = np.flatnonzero(~restricted)
    done = 0
    for start in range(0, len(free), BLOCK):
        rows = free[start : start + BLOCK]
        found = nearest(known, np.arange(len(voters)), np.asarray(vectors[images[rows]]), NEAREST)
        release(vectors)
        voted = _vote(classes[found.ids], found.scores, cutoff)
        answer.column[rows] = voted.column
        answer.score[rows] = voted.score
        done += len(rows)
        progress(done, len(images))
    for row in np.flatnonzero(restricted).tolist():  # few: each of them has an answer
        scores = known @ vectors[images[row]]
        scores[np.isin(classes, apart[int(images[row])])] = -np.inf
        near = np.argsort(-scores, kind="stable")[None, :NEAREST]
        voted = _vote(classes[near], scores[near], cutoff)
        answer.column[row] = voted.column[0]
        answer.score[row] = voted.score[0]
        done += 1
        progress(done, len(images))
    return answer


def _exemplars(settled: Ids, column: Ids) -> tuple[Ids, Ids]:
    """At most EXEMPLARS of the settled images, as many of each class as of any other where it has them."""
    if len(settled) <= EXEMPLARS:
        return settled, column
    sizes = np.bincount(column)
    largest = np.argsort(-sizes, kind="stable")[:EXEMPLARS]
    each = max(EXEMPLARS // int(np.count_nonzero(sizes)), 1)
    order = np.argsort(column, kind="stable")
    start = np.concatenate([[0], np.cumsum(sizes)])
    taken = []
    for one in largest.tolist():
        rows = order[start[one] : start[one + 1]]
        taken.append(rows[np.linspace(0, len(rows) - 1, min(each, len(rows)), dtype=np.int64)])
    rows = np.sort(np.concatenate(taken))
    return settled[rows], column[rows]


def _vote(classes: Ids, scores: Floats, cutoff: float) -> Prediction:
    """The class with the most weight among the voters of each image, both (m, k), and its probability."""
    weights = np.exp(scores / SPREAD)  # 0 for a voter that is ruled out
    same: NDArray[np.bool_] = classes[:, :, None] == classes[:, None, :]
    of_class = (same * weights[:, None, :]).sum(axis=2)  # (m, k): of the class of each voter
    best = of_class.argmax(axis=1)
    rows = np.arange(len(classes))
    total = weights.sum(axis=1)
    share = of_class[rows, best] / np.maximum(total, 1e-30)
    beyond = np.inf if math.isnan(cutoff) else scores[:, 0].clip(-1, 1) - cutoff
    near_enough = 1 / (1 + np.exp(-beyond / SLOPE))
    found = np.where(total > 0, classes[rows, best], NO_CLASS)
    return Prediction(found, np.where(total > 0, share * near_enough, 0))
