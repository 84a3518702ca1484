"""How far the similarity of pairs is from a middle, for ``tiles.mine_near``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from anneal.pairs import Floats, Ids, Pairs

MOST_SIMILAR = 2.0  # a middle above every similarity of unit vectors: the nearest pairs are the most similar
BLOCK = 512  # images a side: the products of one block stay in a core's cache
ROUNDING = 2.0**-24  # of single precision, relative
SKETCHED = 20_000  # images: with fewer, a sketch costs more than it saves
SAMPLE = 1024  # images that a sketch is made from
WIDTHS = (8, 16, 32, 64, 128)  # of a sketch
MARGIN = 1e-4  # of the squared lengths: far more than the rounding in a sketch
PASSES = 40  # the work on a pair besides its product, in columns of the product
APART = 32  # multiplying one pair alone costs as much as this many in a block
PATIENCE = 8  # blocks in which the sketch may fail before the rest of a tile is mined without it
NOWHERE: Ids = np.empty(0, dtype=np.int64)

Found = tuple[Ids, Ids, Floats]  # places among rows and columns, distances


@dataclass(frozen=True)
class Similarity:
    """|s − middle| for s = u·v, by ``Similarity.of``.

    A sketch saves most of the products where the vectors form clusters. With orthonormal columns P, p = Pᵀu and
    r² = |u|² − |p|², |u·v − p·q| ≤ r_u r_v. So a pair is farther than t from the middle where |p·q − middle|
    > r_u r_v + t, which is a product of few columns. P holds principal components of a sample.
    """

    vectors: Floats  # (n, d)
    middle: float
    sketch: Floats | None = None  # P, (d, k)
    budget: int = 5_000_000_000  # all pairs of 100 000 images

    @classmethod
    def of(cls, vectors: Floats, middle: float, p: int) -> Similarity:
        """To mine p pairs. It has a sketch if there are many vectors and it pays on a sample of them."""
        return cls(vectors, middle, _sketch(vectors, middle, p) if len(vectors) >= SKETCHED else None)

    def tile(self, rows: Ids, columns: Ids) -> SimilarityTile:
        u = self.vectors[rows]
        v = self.vectors[columns]
        return SimilarityTile(u, v, self.middle, self.sketch, np.array_equal(rows, columns))

    def scores(self, pairs: Pairs) -> Floats:
        scores = np.empty(len(pairs))
        for k in range(0, len(pairs), BLOCK):
            u = self.vectors[pairs.a[k : k + BLOCK]].astype(np.float64)
            v = self.vectors[pairs.b[k : k + BLOCK]].astype(np.float64)
            scores[k : k + BLOCK] = -np.abs(np.einsum("pd,pd->p", u, v) - self.middle)
        return scores


class SimilarityTile:
    """The products of some rows and columns. One more column holds 1 and −middle, so that they are s − middle."""

    def __init__(
        self, u: Floats, v: Floats, middle: float, sketch: Floats | None = None, same: bool = False
    ) -> None:
        self.rows = _with_column(u, 1.0)
        self.columns = _with_column(v, -middle)
        self.same = same  # rows and columns: blocks below the diagonal are left out
        squares_u = _squares(self.rows[:, :-1])
        squares_v = _squares(self.columns[:, :-1])
        longest = float(np.sqrt(squares_u.max(initial=0) * squares_v.max(initial=0)))
        self.error = self.rows.shape[1] * 2 * ROUNDING * (longest + abs(middle))
        self.sketch: tuple[Floats, Floats, float] | None = None
        if sketch is not None:
            p, residual_u = _residual(self.rows[:, :-1], squares_u, sketch)
            q, residual_v = _residual(self.columns[:, :-1], squares_v, sketch)
            left = _with_column(p, 1.0) / residual_u[:, None]
            right = _with_column(q, -middle) / residual_v[:, None]
            self.sketch = left, right, float(residual_u.min() * residual_v.min())

    def candidates(self, within: Callable[[], float]) -> Iterator[tuple[Ids, Ids, Floats]]:
        buffer = np.empty((BLOCK, BLOCK), dtype=np.float32)
        trust = PATIENCE if self.sketch is not None else 0
        for top in range(0, len(self.rows), BLOCK):
            for left in range(top if self.same else 0, len(self.columns), BLOCK):
                rows = slice(top, top + BLOCK)
                columns = slice(left, left + BLOCK)
                limit = within() + self.error
                found = None
                if trust > 0 and limit < np.inf:
                    found = self._by_sketch(rows, columns, limit, buffer)
                    trust = trust - 1 if found is None else min(trust + 1, PATIENCE)
                if found is None:
                    found = self._by_product(rows, columns, limit, buffer)
                i, j, distance = found
                if len(i):
                    yield i + top, j + left, distance

    def _by_product(self, rows: slice, columns: slice, limit: float, buffer: Floats) -> Found:
        """The pairs of a block within the limit."""
        distance = _absolute_product(self.rows[rows], self.columns[columns], buffer)
        i, j = _at_most(distance, limit)
        return i, j, distance[i, j]

    def _by_sketch(self, rows: slice, columns: slice, limit: float, buffer: Floats) -> Found | None:
        """The same; None where the sketch leaves so many pairs open that the product is cheaper."""
        assert self.sketch is not None
        left, right, least = self.sketch
        bound = _absolute_product(left[rows], right[columns], buffer)
        i, j = _at_most(bound, 1 + limit / least)
        if len(i) * APART > bound.size:
            return None
        distance = np.abs(np.einsum("pd,pd->p", self.rows[rows][i], self.columns[columns][j]))
        near = distance <= limit
        return i[near], j[near], distance[near]


def _absolute_product(rows: Floats, columns: Floats, buffer: Floats) -> Floats:
    """|rows · columnsᵀ|, written into the buffer."""
    out = buffer[: len(rows), : len(columns)]
    np.matmul(rows, columns.T, out=out)
    np.abs(out, out=out)
    return out


def _at_most(block: Floats, limit: float) -> tuple[Ids, Ids]:
    """Where a block is at most ``limit``. Most blocks are nowhere, which their minimum tells quickly."""
    if block.min() > limit:
        return NOWHERE, NOWHERE
    i, j = np.divmod(np.flatnonzero(block <= limit), block.shape[1])
    return i, j


def _with_column(rows: Floats, value: float) -> Floats:
    wider = np.empty((len(rows), rows.shape[1] + 1), dtype=np.float32)
    wider[:, :-1] = rows
    wider[:, -1] = value
    return wider


def _squares(rows: Floats) -> Floats:
    """The squared length of each row."""
    return np.asarray(np.einsum("nd,nd->n", rows, rows))


def _residual(rows: Floats, squares: Floats, sketch: Floats) -> tuple[Floats, Floats]:
    """p = Pᵀu of every row, and r, raised a little: rounding then never makes a bound too narrow."""
    p = rows @ sketch
    rest = np.maximum(squares - _squares(p), 0)
    return p, np.sqrt(rest + MARGIN * max(squares.max(initial=0), ROUNDING))


def _sketch(vectors: Floats, middle: float, p: int) -> Floats | None:
    """The principal components that make mining cheapest, by a sample; None if it is cheaper without."""
    spread = np.linspace(0, len(vectors) - 1, SAMPLE).astype(np.int64)
    sample = vectors[spread].astype(np.float32)
    squares = _squares(sample)
    d = sample.shape[1]
    distance = np.abs(sample @ sample.T - middle)[np.triu_indices(SAMPLE, 1)]
    rank = int(p * (SAMPLE / len(vectors)) ** 2)  # of the last pair that is mined, in the sample
    limit = np.partition(distance, rank)[rank] if rank < len(distance) else np.inf
    components = np.linalg.eigh(sample.T @ sample)[1][:, ::-1]  # the largest first
    best = 0.9 * (d + PASSES)
    chosen = None
    for width in WIDTHS:
        kept, residual = _residual(sample, squares, components[:, :width])
        bound = np.outer(residual, residual) * (1 + limit / residual.min() ** 2)
        cost = width + PASSES + APART * float((np.abs(kept @ kept.T - middle) <= bound).mean()) * d
        if cost < best:
            best = cost
            chosen = components[:, :width]
    return None if chosen is None else np.ascontiguousarray(chosen)
