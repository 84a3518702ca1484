"""The p best of *all* pairs that are not known yet, block by block, in bounded memory.

n images have n²/2 pairs, far too many to hold. A block of them, scored by one call, is looked at
and forgotten; only the p best so far are kept. Higher means ask first.
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
    images: Ids,
    scorer: Scorer,
    known: Relations,
    p: int,
    rng: np.random.Generator,
    block: int = 1024,
) -> Mined:
    """The p unknown pairs among ``images`` with the highest scores, fewer if there are no more.

    Equal scores are ordered by a number that the generator gives each pair, so that neither the
    size of a block nor the order of the images decides between them.
    """
    images = np.unique(images)
    salt = rng.integers(0, 2**63, dtype=np.uint64)
    kept = _Best(p, salt)
    for i in range(0, len(images), block):
        rows = images[i : i + block]
        for j in range(i, len(images), block):
            columns = images[j : j + block]
            scores = np.asarray(scorer(rows, columns))
            wanted = known.among(rows, columns) == UNKNOWN
            wanted &= scores >= kept.floor
            if i == j:
                wanted &= np.tri(len(rows), k=-1, dtype=bool).T  # each pair once, none with itself
            at = np.nonzero(wanted)
            kept.add(rows[at[0]], columns[at[1]], scores[at])
    return kept.sorted()


class _Best:
    """The best p so far: candidates pile up and are cut back when they are twice too many."""

    def __init__(self, p: int, salt: np.uint64) -> None:
        self.p, self.salt = p, salt
        self.floor = -np.inf
        self.a = self.b = np.empty(0, dtype=np.int64)
        self.scores: Floats = np.empty(0)

    def add(self, a: Ids, b: Ids, scores: Floats) -> None:
        self.a, self.b = np.concatenate([self.a, a]), np.concatenate([self.b, b])
        self.scores = np.concatenate([self.scores, scores])
        if len(self.a) > 2 * self.p:
            self._cut()

    def _cut(self) -> None:
        if len(self.a) > self.p > 0:
            floor = np.partition(self.scores, -self.p)[-self.p]
            near = np.flatnonzero(self.scores >= floor)  # the p best, and whoever ties the last
            order = np.lexsort((_shuffled(self.a[near], self.b[near], self.salt), -self.scores[near]))
            best = near[order[: self.p]]
            self.floor = float(floor)
        else:
            best = np.lexsort((_shuffled(self.a, self.b, self.salt), -self.scores))[: self.p]
        self.a, self.b, self.scores = self.a[best], self.b[best], self.scores[best]

    def sorted(self) -> Mined:
        self._cut()
        order = np.lexsort((_shuffled(self.a, self.b, self.salt), -self.scores))
        return Mined(Pairs(self.a[order], self.b[order]), self.scores[order])


def _shuffled(a: Ids, b: Ids, salt: np.uint64) -> NDArray[np.uint64]:
    """A number for each pair that looks random and depends on nothing but the pair and the salt
    (two rounds of the splitmix64 finaliser)."""
    x = a.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + salt
    for more in (b.astype(np.uint64), np.uint64(0)):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = (x ^ (x >> np.uint64(31))) + more * np.uint64(0xD1B54A32D192ED03)
    return x
