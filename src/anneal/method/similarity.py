"""How far the similarity of pairs is from a middle, for ``tiles.mine_near``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from anneal.pairs import Floats, Ids, Pairs

MOST_SIMILAR = 2.0  # a middle above every similarity of unit vectors: the nearest pairs are the most similar
BLOCK = 512  # images a side: the products of one block stay in a core's cache
ROUNDING = 2.0**-24  # of single precision, relative
SKETCHED = 20_000  # images: with fewer, a sketch costs more than it saves
SAMPLE = 1024  # images that a sketch is made from
WIDTHS = (8, 16, 32, 48, 64, 96, 128)  # of a sketch
MARGIN = 1e-4  # of the squared lengths: far more than the rounding in a sketch
PASSES = 40  # the work on a pair besides its product, in columns of the product
APART = 32  # multiplying one pair alone costs as much as this many in a block
PATIENCE = 8  # blocks in which the sketch may fail before the rest of a tile is mined without it
NOWHERE: Ids = np.empty(0, dtype=np.int64)

Found = tuple[Ids, Ids, Floats]  # places among rows and columns, distances


@dataclass(frozen=True)
class Similarity:
    """|s − middle| for s = u·v, by ``Similarity.of``.

    A sketch saves most of the products where the vectors form clusters. For orthonormal columns P, p = Pᵀu,
    q = Pᵀv and r_u² = |u|² − |p|², |u·v − p·q| ≤ r_u r_v. So a pair is farther than t from the middle where
    |p·q − middle| > r_u r_v + t, and then also where |p·q − middle| > ρ_u ρ_v, with ρ² = r² + t. Divided by
    both ρ this is one product of few columns, compared with 1. P holds principal components of a sample.
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


class Bound(NamedTuple):
    left: Floats  # (|rows|, k + 1): [p, 1] / ρ
    right: Floats  # (|columns|, k + 1): [p, −middle] / ρ
    limit: float  # t


class SimilarityTile:
    """The products of some rows and columns. One more column, 1 and −middle, makes them s − middle."""

    def __init__(
        self, u: Floats, v: Floats, middle: float, sketch: Floats | None = None, same: bool = False
    ) -> None:
        self.rows = _with_column(u, 1.0)
        self.columns = _with_column(v, -middle)
        self.middle = middle
        self.sketch = sketch
        self.same = same  # rows and columns: blocks below the diagonal are left out
        self.squares = (_squares(self.rows[:, :-1]), _squares(self.columns[:, :-1]))
        longest = float(np.sqrt(self.squares[0].max(initial=0) * self.squares[1].max(initial=0)))
        self.error = 2 * self.rows.shape[1] * ROUNDING * (longest + abs(middle))

    def _bound(self, limit: float) -> Bound | None:
        """What to multiply: pairs within the limit have a product within 1."""
        if self.sketch is None or limit == np.inf:
            return None
        p, residual_u = _residual(self.rows[:, :-1], self.squares[0], self.sketch, limit)
        q, residual_v = _residual(self.columns[:, :-1], self.squares[1], self.sketch, limit)
        left = _with_column(p, 1.0) / residual_u[:, None]
        return Bound(left, _with_column(q, -self.middle) / residual_v[:, None], limit)

    def candidates(self, within: Callable[[], float]) -> Iterator[tuple[Ids, Ids, Floats]]:
        buffer = np.empty((BLOCK, BLOCK), dtype=np.float32)
        bound = None
        patience = PATIENCE
        for top in range(0, len(self.rows), BLOCK):
            for left in range(top if self.same else 0, len(self.columns), BLOCK):
                rows = slice(top, top + BLOCK)
                columns = slice(left, left + BLOCK)
                limit = within() + self.error
                if patience and (bound is None or limit < bound.limit / 2):
                    bound = self._bound(limit)
                found = None
                if patience and bound is not None:
                    found = self._by_sketch(bound, rows, columns, limit, buffer)
                    patience = patience - 1 if found is None else PATIENCE
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

    def _by_sketch(
        self, bound: Bound, rows: slice, columns: slice, limit: float, buffer: Floats
    ) -> Found | None:
        """The same; None where the sketch leaves too many pairs open: then the product is cheaper."""
        product = _absolute_product(bound.left[rows], bound.right[columns], buffer)
        i, j = _at_most(product, 1.0)
        if len(i) * APART > product.size:
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


def _residual(rows: Floats, squares: Floats, sketch: Floats, limit: float) -> tuple[Floats, Floats]:
    """p = Pᵀu and ρ of every row. ρ² is a little larger, so that rounding never makes a bound too narrow."""
    p = rows @ sketch
    rest = np.maximum(squares - _squares(p), 0)
    return p, np.sqrt(rest + limit + MARGIN * (squares.max(initial=0) + ROUNDING))


def _sketch(vectors: Floats, middle: float, p: int) -> Floats | None:
    """The principal components that make mining cheapest, by a sample; None if it is cheaper without."""
    spread = np.linspace(0, len(vectors) - 1, SAMPLE).astype(np.int64)
    sample = vectors[spread].astype(np.float32)
    squares = _squares(sample)
    d = sample.shape[1]
    distance = np.abs(sample @ sample.T - middle)[np.triu_indices(SAMPLE, 1)]
    rank = int(p * (SAMPLE / len(vectors)) ** 2)  # of the last pair that is mined, in the sample
    limit = float(np.partition(distance, rank)[rank]) if rank < len(distance) else np.inf
    components = np.linalg.eigh(sample.T @ sample)[1][:, ::-1]  # the largest first
    best = 0.9 * (d + PASSES)
    chosen = None
    for width in WIDTHS:
        kept, residual = _residual(sample, squares, components[:, :width], limit)
        left_open = np.abs(kept @ kept.T - middle) <= np.outer(residual, residual)
        cost = width + PASSES + APART * float(left_open.mean()) * d
        if cost < best:
            best = cost
            chosen = components[:, :width]
    return None if chosen is None else np.ascontiguousarray(chosen)
