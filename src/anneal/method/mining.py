"""The p best of *all* unknown pairs, in bounded memory.

n images have about n²/2 pairs, too many to hold. One call scores a block of them, and only the p best
so far are kept. Higher means ask first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anneal.method.relations import Relations
from anneal.pairs import UNKNOWN, Floats, Ids, Pairs

Scorer = Callable[[Ids, Ids], Floats]
"""(ids of the rows, ids of the columns) → scores (|rows|, |columns|)."""


def cosine(vectors: Floats) -> Scorer:
    """Similarity s = u·v of unit vectors."""
    return lambda rows, columns: vectors[rows] @ vectors[columns].T


def pairwise(vectors: Floats, pairs: Pairs) -> Floats:
    """Similarity of each pair, (|pairs|,)."""
    s: Floats = np.einsum("pd,pd->p", vectors[pairs.a], vectors[pairs.b])
    return s


@dataclass(frozen=True)
class Mined:
    """Pairs with their scores, best first."""

    pairs: Pairs
    scores: Floats


def mine(
    images: Ids, scorer: Scorer, known: Relations, p: int, rng: np.random.Generator, block: int = 1024
) -> Mined:
    """The p unknown pairs among ``images`` with the highest scores; fewer if there are not p.

    Equal scores are ordered by a hash of the pair with a salt from ``rng``. So neither the block size
    nor the order of the images affects the result.
    """
    images = np.unique(images)
    salt = rng.integers(0, 2**63, dtype=np.uint64)
    best = _Best(p, salt)
    for rows, columns, verdicts in known.blocks(images, block):
        scores = np.asarray(scorer(rows, columns))
        wanted = (verdicts == UNKNOWN) & (scores >= best.floor)
        i, j = np.nonzero(wanted)
        best.add(rows[i], columns[j], scores[i, j])
    return best.sorted()


class _Best:
    """The best p pairs so far. Pairs pile up and are cut back to p when there are more than 2p."""

    def __init__(self, p: int, salt: np.uint64) -> None:
        self.p = p
        self.salt = salt
        self.floor = -np.inf  # a lower score cannot be among the best p
        self.a: Ids = np.empty(0, dtype=np.int64)
        self.b: Ids = np.empty(0, dtype=np.int64)
        self.scores: Floats = np.empty(0)

    def add(self, a: Ids, b: Ids, scores: Floats) -> None:
        self.a = np.concatenate([self.a, a])
        self.b = np.concatenate([self.b, b])
        self.scores = np.concatenate([self.scores, scores])
        if len(self.a) > 2 * self.p:
            self._cut()

    def sorted(self) -> Mined:
        self._cut()
        return Mined(Pairs(self.a, self.b), self.scores)

    def _cut(self) -> None:
        """Keep the best p, best first."""
        if len(self.a) > self.p > 0:
            self.floor = float(np.partition(self.scores, -self.p)[-self.p])
            self._keep(np.flatnonzero(self.scores >= self.floor))  # p, and more where the last one ties
        order = np.lexsort((_hash(self.a, self.b, self.salt), -self.scores))
        self._keep(order[: self.p])

    def _keep(self, rows: Ids) -> None:
        self.a = self.a[rows]
        self.b = self.b[rows]
        self.scores = self.scores[rows]


def _hash(a: Ids, b: Ids, salt: np.uint64) -> NDArray[np.uint64]:
    """A pseudo-random number for each pair, from the pair and the salt alone: two rounds of the splitmix64
    finaliser."""
    x = a.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + salt
    for more in (b.astype(np.uint64), np.uint64(0)):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = (x ^ (x >> np.uint64(31))) + more * np.uint64(0xD1B54A32D192ED03)
    return x
