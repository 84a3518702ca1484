"""Nearest neighbours by cosine similarity. Exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anneal.pairs import Floats, Ids


@dataclass(frozen=True)
class Ranking:
    """For each query its results, best first: image ids and similarities, (queries, k) each."""

    ids: Ids
    scores: Floats

    def __post_init__(self) -> None:
        if self.ids.shape != self.scores.shape or self.ids.ndim != 2:
            raise ValueError(f"ids are {self.ids.shape} but scores {self.scores.shape}")
        if (np.diff(self.scores, axis=1) > 0).any():
            raise ValueError("a ranking holds its best result first")


def nearest(
    vectors: Floats, images: Ids, queries: Floats, k: int, strip: int = 256, block: int = 65536
) -> Ranking:
    """The k of ``images`` (rows of the unit ``vectors``) most similar to each unit query.

    A strip of queries meets a block of images at a time, so memory is bounded by strip × block. Of
    equally similar images the one with the smaller id comes first.
    """
    images = np.unique(images)
    k = min(k, len(images))
    ids = np.empty((len(queries), k), dtype=np.int64)
    scores = np.empty((len(queries), k), dtype=np.float32)
    for i in range(0, len(queries), strip):
        some = queries[i : i + strip]
        best_ids = np.empty((len(some), 0), dtype=np.int64)
        best = np.empty((len(some), 0), dtype=np.float32)
        for j in range(0, len(images), block):
            here = images[j : j + block]
            s = some @ vectors[here].T
            best_ids = np.concatenate([best_ids, np.broadcast_to(here, s.shape)], axis=1)
            best = np.concatenate([best, s], axis=1)
            order = _best(best, k)
            best_ids = np.take_along_axis(best_ids, order, axis=1)
            best = np.take_along_axis(best, order, axis=1)
        ids[i : i + strip], scores[i : i + strip] = best_ids, best
    return Ranking(ids, scores)


def _best(scores: Floats, k: int) -> Ids:
    """Columns of the k best of each row, best first; of equal ones those that come first."""
    if k >= scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")
    last = -np.partition(-scores, k - 1, axis=1)[:, k - 1 : k]  # the k-th best
    rows, columns = np.nonzero(scores >= last)  # sorted by row, then column; more than k where some tie
    order = np.lexsort((columns, -scores[rows, columns], rows))
    start = np.searchsorted(rows, np.arange(len(scores)))
    found: Ids = columns[order][start[:, None] + np.arange(k)]
    return found


def unit(vectors: Floats) -> Floats:
    """Rows scaled to length one; a row of zeros stays."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Floats = vectors / np.maximum(length, 1e-12)
    return scaled
