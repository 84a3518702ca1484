"""The p best of *all* unknown pairs, in bounded memory: n images have about n²/2 pairs, too many to hold. One
call scores a block of them, and only the p best so far are kept. Higher means ask first."""

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


def mine(
    images: Ids, scorer: Scorer, known: Known, p: int, rng: np.random.Generator, block: int = 1024
) -> Mined:
    """The p unknown pairs among ``images`` with the highest scores; fewer if there are not p. A hash with a
    salt from ``rng`` orders equal scores, so neither the block size nor the order of the images matters."""
    salt = rng.integers(0, 2**63, dtype=np.uint64)
    best = Mined(Pairs.none(), np.empty(0))
    floor = -np.inf  # a lower score cannot be among the best p
    for rows, columns, verdicts in known.blocks(np.unique(images), block):
        scores = np.asarray(scorer(rows, columns))
        i, j = np.nonzero((verdicts == UNKNOWN) & (scores >= floor))
        pairs = best.pairs.then(Pairs(rows[i], columns[j]))
        best = Mined(pairs, np.concatenate([best.scores, scores[i, j]]))
        if len(pairs) > 2 * p:
            best = _best(best, p, salt)
            floor = float(best.scores.min(initial=np.inf))
    return _best(best, p, salt)


def _best(mined: Mined, p: int, salt: np.uint64) -> Mined:
    """The best p, best first."""
    rows = np.arange(len(mined.pairs))
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
