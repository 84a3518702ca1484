"""The p best of *all* unknown pairs, in bounded memory: n images have about n²/2 pairs, too many to hold. One
call scores a block of them, and only the p best so far are kept. Higher means ask first.

``mine`` takes any scorer. ``tiles.mine_near`` is much faster where the pairs nearest a threshold are wanted.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anneal.method.relations import Known
from anneal.pairs import UNKNOWN, Floats, Ids, Pairs

Scorer = Callable[[Ids, Ids], Floats]  # (ids of the rows, ids of the columns) → (|rows|, |columns|)


def cosine(vectors: Floats) -> Scorer:
    """Similarity s = u·v of unit vectors."""
    return lambda rows, columns: vectors[rows] @ vectors[columns].T


def pairwise(vectors: Floats, pairs: Pairs) -> Floats:
    """Similarity of each pair, (|pairs|,)."""
    return np.asarray(np.einsum("pd,pd->p", vectors[pairs.a], vectors[pairs.b]))


@dataclass(frozen=True)
class Mined:
    """Pairs with their scores, best first."""

    pairs: Pairs
    scores: Floats

    @classmethod
    def none(cls) -> "Mined":
        return cls(Pairs.none(), np.empty(0))

    def __len__(self) -> int:
        return len(self.pairs)

    def then(self, more: "Mined") -> "Mined":
        """These, then more. They are in no order."""
        return Mined(self.pairs.then(more.pairs), np.concatenate([self.scores, more.scores]))


def mine(
    images: Ids, scorer: Scorer, known: Known, p: int, rng: np.random.Generator, block: int = 1024
) -> Mined:
    """The p unknown pairs among ``images`` with the highest scores; fewer if there are not p. A hash with a
    salt from ``rng`` orders equal scores, so neither the block size nor the order of the images matters."""
    salt = new_salt(rng)
    best = Mined.none()
    floor = -np.inf  # a lower score cannot be among the best p
    for rows, columns, verdicts in known.blocks(np.unique(images), block):
        scores = np.asarray(scorer(rows, columns))
        i, j = np.nonzero((verdicts == UNKNOWN) & (scores >= floor))
        best = best.then(Mined(Pairs(rows[i], columns[j]), scores[i, j]))
        if len(best) > 2 * p:
            best = best_of(best, p, salt)
            floor = float(best.scores.min(initial=np.inf))
    return best_of(best, p, salt)


def new_salt(rng: np.random.Generator) -> np.uint64:
    """What the order of equal scores follows from."""
    return rng.integers(0, 2**63, dtype=np.uint64)


def best_of(mined: Mined, p: int, salt: np.uint64) -> Mined:
    """The best p, best first."""
    rows = np.arange(len(mined))
    if len(rows) > p > 0:
        floor = np.partition(mined.scores, -p)[-p]
        rows = np.flatnonzero(mined.scores >= floor)  # p, and more where the last one ties
    order = np.lexsort((_hash(mined.pairs[rows], salt), -mined.scores[rows]))
    best = rows[order[:p]]
    return Mined(mined.pairs[best], mined.scores[best])


def _hash(pairs: Pairs, salt: np.uint64) -> NDArray[np.uint64]:
    """A pseudo-random number for each pair, by two rounds of the splitmix64 finaliser."""
    x = pairs.a.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + salt
    for more in (pairs.b.astype(np.uint64), np.uint64(0)):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = (x ^ (x >> np.uint64(31))) + more * np.uint64(0xD1B54A32D192ED03)
    return x
