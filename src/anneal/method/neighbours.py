"""Nearest neighbours by cosine similarity: exact, and by an inverted file for large archives.

The inverted file (faiss) puts each vector into the list of its nearest centroid. A search looks into the few
lists whose centroids are nearest to the query, and finds candidates by codes of one byte per number. Their
similarities are then computed from the vectors, so scores are exact, and only a result can be missed.
It takes seconds to build. That matters because every round has new vectors; a graph (HNSW) takes twenty times
as long or more (bench/search.py).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

import numpy as np

from anneal.pairs import Floats, Ids
from anneal.work import blas_threads

T = TypeVar("T")
S = TypeVar("S")
PROBED = 16  # lists that a search looks into; a few more of them for many results
SAMPLE = 50  # vectors per list, at least, from which its centroid is found
BLOCK = 65536  # vectors that are added at once
COPIED = 16384  # vectors, at most, that exact search copies at once
THREADED = 2**24  # similarities: with fewer, exact search has no threads of its own


@dataclass(frozen=True)
class Ranking:
    """The results of each query, best first: image ids and similarities, both (queries, k)."""

    ids: Ids
    scores: Floats

    def __post_init__(self) -> None:
        if self.ids.shape != self.scores.shape or self.ids.ndim != 2:
            raise ValueError(f"ids are {self.ids.shape} but scores are {self.scores.shape}")
        if (np.diff(self.scores, axis=1) > 0).any():
            raise ValueError("a ranking must have its best result first")


# -- exact -----------------------------------------------------------------------------------------


def nearest(
    vectors: Floats, images: Ids, queries: Floats, k: int, strip: int = 256, block: int = 2**21
) -> Ranking:
    """The k of ``images`` (rows of the unit ``vectors``) most similar to each unit query; of equally similar
    ones the smaller id first. Memory is bounded: ``strip`` queries meet images at a time, and a thread holds
    ``block`` similarities. Images whose ids follow each other are not copied."""
    images = _ascending(images)
    vectors = np.asarray(vectors)
    k = min(k, len(images))
    threads = blas_threads() if len(queries) * len(images) >= THREADED else 1
    strips = [queries[i : i + strip] for i in range(0, len(queries), strip)]
    parts = np.array_split(images, threads) if len(strips) < threads else [images]

    def search(work: tuple[Floats, Ids]) -> tuple[Ids, Floats]:
        some = np.asarray(work[0], dtype=vectors.dtype)
        return _nearest_of_strip(vectors, work[1], some, k, block)

    found = iter(_map(search, list(product(strips, parts)), threads))
    ids = np.empty((len(queries), k), dtype=np.int64)
    scores = np.empty((len(queries), k), dtype=np.float32)
    for i in range(0, len(queries), strip):
        of_parts = [next(found) for _ in parts]  # of equally similar ones those of the first part come first
        ids_found = np.concatenate([one for one, _ in of_parts], axis=1)
        best = np.concatenate([one for _, one in of_parts], axis=1)
        order = _best_columns(best, k)
        ids[i : i + strip] = np.take_along_axis(ids_found, order, axis=1)
        scores[i : i + strip] = np.take_along_axis(best, order, axis=1)
    return Ranking(ids, scores)


def _map(work: Callable[[T], S], every: list[T], threads: int) -> list[S]:
    """The results in order. Each product has one thread, so that the choice of candidates is shared out too,
    and no thread waits for another one in the middle of a product."""
    if threads == 1:
        return [work(one) for one in every]
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, every))


def _nearest_of_strip(
    vectors: Floats, images: Ids, queries: Floats, k: int, block: int
) -> tuple[Ids, Floats]:
    """(queries, k or all) ids and scores. Images come in the order of their ids, so one that is only as
    similar as the k-th best so far comes after it and is no candidate."""
    ids = np.empty((len(queries), 0), dtype=np.int64)
    best = np.empty((len(queries), 0), dtype=vectors.dtype)
    k = min(k, len(images))
    together = len(images) and images[-1] - images[0] == len(images) - 1
    most = max(block // len(queries), 1)
    if not together:
        most = min(most, COPIED)
    done = 0
    while done < len(images):
        size = min(max(done, 4 * k), most)  # small blocks at first, so that few of the others are candidates
        columns = images[done : done + size]
        done += len(columns)
        s = rows_of(vectors, columns) @ queries.T  # (block, queries): quicker than its transpose
        if best.shape[1] < k:
            ids = np.concatenate([ids, np.broadcast_to(columns, s.T.shape)], axis=1)
            best = np.concatenate([best, s.T], axis=1)
            order = _best_columns(best, k)
            ids = np.take_along_axis(ids, order, axis=1)
            best = np.take_along_axis(best, order, axis=1)
        else:
            row, query = np.divmod(np.flatnonzero(s > best[:, -1]), len(queries))
            _insert(ids, best, query, columns[row], s[row, query])
    return ids, best


def _insert(ids: Ids, best: Floats, query: Ids, more_ids: Ids, more: Floats) -> None:
    """Put candidates of some queries into the rows of the best so far, in place."""
    changed = np.unique(query)
    k = best.shape[1]
    query = np.concatenate([np.repeat(changed, k), query])
    every_id = np.concatenate([ids[changed].ravel(), more_ids])
    every = np.concatenate([best[changed].ravel(), more])
    order = np.lexsort((every_id, -every, query))
    start = np.searchsorted(query[order], changed)
    first = order[start[:, None] + np.arange(k)]  # (changed, k)
    ids[changed] = every_id[first]
    best[changed] = every[first]


def rows_of(vectors: Floats, ids: Ids) -> Floats:
    """The vectors of distinct ascending ids: not a copy where the ids follow each other."""
    if len(ids) and ids[-1] - ids[0] == len(ids) - 1:
        return vectors[ids[0] : ids[-1] + 1]
    return vectors[ids]


def _ascending(images: Ids) -> Ids:
    """The distinct ids in ascending order: the same array if it is so already."""
    return images if (np.diff(images) > 0).all() else np.unique(images)


def _best_columns(scores: Floats, k: int) -> Ids:
    """The columns of the k highest scores of each row, best first; of equal scores the first columns."""
    if k >= scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")
    last = -np.partition(-scores, k - 1, axis=1)[:, k - 1 : k]  # the k-th best
    # Ordered by row, then column; more than k where some tie. In two dimensions np.nonzero is slow.
    rows, columns = np.divmod(np.flatnonzero(scores >= last), scores.shape[1])
    order = np.lexsort((columns, -scores[rows, columns], rows))
    start = np.searchsorted(rows, np.arange(len(scores)))
    return np.asarray(columns[order][start[:, None] + np.arange(k)])


# -- approximate -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Index:
    """An inverted file of the rows of an array. It holds codes, so a search needs the array as well."""

    lists: Any  # of faiss

    def __len__(self) -> int:
        return int(self.lists.ntotal)

    def add(self, vectors: Floats) -> None:
        """More rows, numbered on from those that are there. Centroids stay where they are."""
        for i in range(0, len(vectors), BLOCK):
            self.lists.add(np.ascontiguousarray(vectors[i : i + BLOCK], dtype=np.float32))

    def nearest(
        self, vectors: Floats, queries: Floats, k: int, probed: int = PROBED, without: Ids | None = None
    ) -> Ranking:
        """About the k of all rows of the unit ``vectors`` most similar to each unit query; rows ``without``
        are not found. Similarities are exact; of equally similar rows the smaller id comes first. A query
        whose ``probed`` lists have fewer than k rows is compared with every row."""
        import faiss

        left = len(self)
        breadth = faiss.SearchParametersIVF(nprobe=min(probed + k // 32, self.lists.nlist))
        if without is not None and len(without):
            left -= len(without)
            # Held here: faiss keeps no reference to what a selector points to.
            unwanted = faiss.IDSelectorBatch(without.astype(np.int64))
            wanted = faiss.IDSelectorNot(unwanted)
            breadth.sel = wanted
        k = min(k, left)
        vectors = np.asarray(vectors)
        some = np.ascontiguousarray(queries, dtype=np.float32)
        _, found = self.lists.search(some, min(2 * k + 32, len(self)), params=breadth)
        ids = np.empty((len(some), k), dtype=np.int64)
        scores = np.empty((len(some), k), dtype=np.float32)
        for i, query in enumerate(some):
            candidates = np.sort(found[i][found[i] >= 0])  # in the order in which they are stored
            if len(candidates) < k:
                rows = np.arange(len(self))
                if without is not None:
                    rows = np.setdiff1d(rows, without, assume_unique=True)
                exact = nearest(vectors, rows, query[None], k)
                ids[i] = exact.ids[0]
                scores[i] = exact.scores[0]
                continue
            s = vectors[candidates] @ query
            best = np.argsort(-s, kind="stable")[:k]
            ids[i] = candidates[best]
            scores[i] = s[best]
        return Ranking(ids, scores)


def build_index(vectors: Floats) -> Index:
    """An index of the unit rows of ``vectors``, with √n / 2 lists: twice as many take nearly twice as long to
    build. Their centroids are found by k-means on rows at even distances."""
    import faiss

    n, d = vectors.shape
    count = max(int(np.sqrt(n) / 2), 1)
    step = max(n // (SAMPLE * count), 1)
    lists = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(d), d, count, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT, False
    )
    lists.cp.spherical = True
    lists.cp.niter = 8
    lists.cp.min_points_per_centroid = 1
    lists.train(np.ascontiguousarray(vectors[::step], dtype=np.float32))
    index = Index(lists)
    index.add(vectors)
    return index


def unit(vectors: Floats) -> Floats:
    """The rows scaled to length one; a row of zeros stays as it is."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, 1e-12))
