"""The p unknown pairs nearest a middle, exactly, at about the cost of the matrix products or less.

The square of all pairs is cut into tiles. ``mine_tile`` mines one of them, and ``merge`` puts the results of
several together. All sets of tiles that cover the same pairs give the same result, to the last digit and the
last tie: a tile only *finds* pairs by quick arithmetic in single precision, with a margin for its rounding,
and scores those again pair by pair in double precision. So tiles may be mined in threads or on several
machines.

A ``Measure`` says how far a pair is from the middle. ``Similarity`` is MGUE's, and that of the most similar
pairs; ``uncertainty.PairProbability`` is BCGUE's.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from anneal.method.mining import Mined, best_of, new_salt
from anneal.method.relations import Known
from anneal.pairs import UNKNOWN, Floats, Ids, Pairs
from anneal.work import Workers, blas_threads, in_threads

TILE = 4096  # images a side, at most: large enough that gathering their vectors costs little
DENSE = 8  # verdicts of a whole block are looked up at once where one pair in DENSE passes
Part = tuple[Ids, Ids, float]  # the rows and columns of a tile, and the score that a pair needs


class Tile(Protocol):
    """Quick arithmetic on the pairs of some rows and columns."""

    error: float  # a distance is wrong by this at most

    def candidates(self, within: Callable[[], float]) -> Iterator[tuple[Ids, Ids, Floats]]:
        """All pairs whose true distance is at most ``within()``, and maybe some more, in portions of bounded
        size: their places among the rows and among the columns, and their distance. ``within`` is asked
        again for every portion, and falls. Where rows and columns are the same images, a pair may come in
        one order only."""
        ...


class Measure(Protocol):
    """How far pairs are from the middle."""

    @property
    def budget(self) -> int:
        """Pairs that one call of ``mine_near`` looks at, at most."""
        ...

    def tile(self, rows: Ids, columns: Ids) -> Tile: ...

    def scores(self, pairs: Pairs) -> Floats:
        """Minus the distance of each pair, in double precision. It does not depend on the other pairs."""
        ...


def mine_near(
    measure: Measure,
    images: Ids,
    known: Known,
    p: int,
    rng: Generator,
    *,
    budget: int | None = None,
    size: int | None = None,
    threads: int | None = None,
    workers: Workers | None = None,
) -> Mined:
    """The p unknown pairs among ``images`` that are nearest the middle; fewer if there are not p. Equal ones
    are ordered by a hash with a salt from ``rng``.

    Where there are more pairs than ``budget`` (the measure's own if None), some images are drawn as anchors,
    and the pairs of an anchor and any image are mined: they hold all neighbours of every anchor.
    Tiles are mined by the ``workers``, or in ``threads`` of this process (as many as BLAS has if None).
    Neither these nor the ``size`` of a tile change the result."""
    from threadpoolctl import threadpool_limits

    images = np.unique(images)
    salt = new_salt(rng)
    anchors = _anchors(images, measure.budget if budget is None else budget, rng)
    threads = blas_threads() if threads is None else threads
    best = Mined.none()

    def parts() -> Iterator[Part]:
        for rows, columns in tiles(anchors, images, size or _size(len(images))):
            yield rows, columns, _floor(best, p)

    work = partial(_mine_part, measure, known, p, salt)
    # BLAS has one thread in each of ours: its own threads would wait for each other at every small block.
    with threadpool_limits(1, "blas"):
        for mined in workers.map("mining", work, parts()) if workers else in_threads(threads, work, parts()):
            best = merge([best, mined], p, salt)
    return best


def _mine_part(measure: Measure, known: Known, p: int, salt: np.uint64, part: Part) -> Mined:
    rows, columns, floor = part
    return mine_tile(measure, rows, columns, known, p, salt, floor)


def tiles(rows: Ids, columns: Ids, size: int = TILE) -> list[tuple[Ids, Ids]]:
    """The rows and the columns of each tile. Where both are the same images, every pair is in one tile."""
    parts = []
    same = np.array_equal(rows, columns)
    for i in range(0, len(rows), size):
        starts = range(i if same else 0, len(columns), size)
        parts += [(rows[i : i + size], columns[j : j + size]) for j in starts]
    return parts


def mine_tile(
    measure: Measure,
    rows: Ids,
    columns: Ids,
    known: Known,
    p: int,
    salt: np.uint64,
    floor: float = -np.inf,
) -> Mined:
    """The best p unknown pairs of one image of ``rows`` and another one of ``columns``, best first; both hold
    distinct ids. Pairs with a score below ``floor`` may be left out: give the p-th best score of what other
    tiles have, or nothing. Every tile of one search needs the same ``salt`` (``mining.new_salt``)."""
    if p == 0:
        return Mined.none()
    same = np.array_equal(rows, columns)
    tile = measure.tile(rows, columns)
    best = Mined.none()
    found = Mined.none()  # by quick scores; some may be known

    def within() -> float:
        return -max(floor, _floor(best, p))

    for i, j, distance in tile.candidates(within):
        two = rows[i] < columns[j] if same else rows[i] != columns[j]
        dense = DENSE * len(i) > np.ptp(i) * np.ptp(j)
        if dense:
            two &= _unknown_in_block(known, rows, columns, i, j)
        pairs = Pairs.of(rows[i[two]], columns[j[two]])
        more = Mined(pairs, -distance[two])
        if dense:
            best = _settled(measure, best, more, p, salt, tile.error)
            continue
        found = found.then(more)
        if len(found) > 2 * p + TILE:
            best = _settled(measure, best, _unknown(known, found), p, salt, tile.error)
            found = Mined.none()
    return _settled(measure, best, _unknown(known, found), p, salt, tile.error)


def merge(parts: list[Mined], p: int, salt: np.uint64) -> Mined:
    """The best p of what tiles returned, best first. A pair may be in several of them."""
    every = Mined.none()
    for part in parts:
        every = every.then(part)
    return best_of(_distinct(every), p, salt)


def _settled(measure: Measure, best: Mined, found: Mined, p: int, salt: np.uint64, error: float) -> Mined:
    """The best p of both. Of those ``found``, whose scores are quick ones, only those that may be among the
    best are scored again."""
    found = _distinct(found)
    if len(found) > p:
        least = np.partition(found.scores, -p)[-p] - 2 * error
        near = np.flatnonzero(found.scores >= least)
        found = Mined(found.pairs[near], found.scores[near])
    return merge([best, Mined(found.pairs, measure.scores(found.pairs))], p, salt)


def _distinct(mined: Mined) -> Mined:
    """Each pair once."""
    once = np.unique((mined.pairs.a << 32) + mined.pairs.b, return_index=True)[1]
    return Mined(mined.pairs[once], mined.scores[once])


def _floor(best: Mined, p: int) -> float:
    """The score that a pair needs to be among the best p."""
    return float(best.scores[-1]) if len(best) >= p > 0 else -np.inf


def _unknown(known: Known, mined: Mined) -> Mined:
    unknown = np.flatnonzero(known.of(mined.pairs) == UNKNOWN)
    return Mined(mined.pairs[unknown], mined.scores[unknown])


def _unknown_in_block(known: Known, rows: Ids, columns: Ids, i: Ids, j: Ids) -> NDArray[np.bool_]:
    """Which of the pairs at these places are unknown, by the verdicts of the block they lie in."""
    top = int(i.min())
    left = int(j.min())
    verdicts = known.among(rows[top : int(i.max()) + 1], columns[left : int(j.max()) + 1])
    return np.asarray(verdicts[i - top, j - left] == UNKNOWN)


def _anchors(images: Ids, budget: int, rng: Generator) -> Ids:
    """All images, or as many as the budget of pairs pays for."""
    if len(images) * (len(images) - 1) // 2 <= budget:
        return images
    number = max(budget // len(images), 1)
    return np.sort(rng.choice(images, number, replace=False))


def _size(n: int) -> int:
    """Of a tile: smaller for few images, so that all threads have work."""
    return min(max(n // 4 // 512, 1) * 512, TILE)
