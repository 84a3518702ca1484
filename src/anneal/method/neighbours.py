"""Exact nearest neighbours by cosine similarity."""

from dataclasses import dataclass

import numpy as np

from anneal.pairs import Floats, Ids


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


def nearest(
    vectors: Floats, images: Ids, queries: Floats, k: int, strip: int = 256, block: int = 65536
) -> Ranking:
    """The k of ``images`` (rows of the unit ``vectors``) most similar to each unit query; of equally similar
    ones the smaller id first. Memory is bounded: a strip of queries meets a block of images at a time."""
    images = np.unique(images)
    k = min(k, len(images))
    ids = np.empty((len(queries), k), dtype=np.int64)
    scores = np.empty((len(queries), k), dtype=np.float32)
    for i in range(0, len(queries), strip):
        some = queries[i : i + strip]
        best_ids = np.empty((len(some), 0), dtype=np.int64)
        best = np.empty((len(some), 0), dtype=np.float32)
        for j in range(0, len(images), block):
            columns = images[j : j + block]
            s = some @ vectors[columns].T
            best_ids = np.concatenate([best_ids, np.broadcast_to(columns, s.shape)], axis=1)
            best = np.concatenate([best, s], axis=1)
            order = _best_columns(best, k)
            best_ids = np.take_along_axis(best_ids, order, axis=1)
            best = np.take_along_axis(best, order, axis=1)
        ids[i : i + strip] = best_ids
        scores[i : i + strip] = best
    return Ranking(ids, scores)


def _best_columns(scores: Floats, k: int) -> Ids:
    """The columns of the k highest scores of each row, best first; of equal scores the first columns."""
    if k >= scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")
    last = -np.partition(-scores, k - 1, axis=1)[:, k - 1 : k]  # the k-th best
    rows, columns = np.nonzero(scores >= last)  # ordered by row, then column; more than k where some tie
    order = np.lexsort((columns, -scores[rows, columns], rows))
    start = np.searchsorted(rows, np.arange(len(scores)))
    return np.asarray(columns[order][start[:, None] + np.arange(k)])


def unit(vectors: Floats) -> Floats:
    """The rows scaled to length one; a row of zeros stays as it is."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, 1e-12))
