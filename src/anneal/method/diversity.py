"""Out of many uncertain pairs, few that differ from each other.

A diversity is a function (vectors, mined, n, rng) → n pairs; by name in ``DIVERSITIES``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import numpy as np

from anneal.method.mining import Mined
from anneal.pairs import Floats, Ids, Pairs

Diversity = Callable[[Floats, Mined, int, np.random.Generator], Pairs]


def pair_vectors(u: Floats, v: Floats) -> Floats:
    """(|pairs|, 2d): [u + v, |u − v|], the same whichever image comes first, as all of these."""
    return np.concatenate([u + v, np.abs(u - v)], axis=1)


def kmeans(
    vectors: Floats,
    mined: Mined,
    n: int,
    rng: np.random.Generator,
    vector: Callable[[Floats, Floats], Floats] = pair_vectors,
) -> Pairs:
    """Cluster the pairs into n, take the most uncertain pair of each cluster."""
    points = vector(vectors[mined.pairs.a], vectors[mined.pairs.b])
    return mined.pairs[best_per_cluster(points, mined.scores, n, rng)]


def none(vectors: Floats, mined: Mined, n: int, rng: np.random.Generator) -> Pairs:
    """The n most uncertain pairs, alike or not."""
    return mined.pairs[:n]


DIVERSITIES: dict[str, Diversity] = {
    "kmeans": kmeans,
    "kmeans-sum": partial(kmeans, vector=np.add),
    "kmeans-product": partial(kmeans, vector=np.multiply),
    "none": none,
}


def best_per_cluster(points: Floats, scores: Floats, n: int, rng: np.random.Generator) -> Ids:
    """Rows of the best-scored point of each of n k-means clusters, best first.

    The points come best first. Where fewer than n clusters can be formed (points that coincide),
    the best of the others make up the number.
    """
    if n >= len(points):
        return np.arange(len(points))
    cluster = clusters(points, n, rng)
    first = np.unique(cluster, return_index=True)[1]  # sorted by score, so the first is the best
    others = np.setdiff1d(np.arange(len(points)), first)
    rows: Ids = np.sort(np.concatenate([first, others[: n - len(first)]]))
    return rows[np.argsort(-scores[rows], kind="stable")]


def clusters(points: Floats, n: int, rng: np.random.Generator) -> Ids:
    """The cluster of each point, by k-means with n; fewer are formed where points coincide."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    seed = int(rng.integers(2**31))
    # One thread: the work is small, and threads that wait for each other on a busy machine take longer.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # coinciding points
        found: Ids = KMeans(n, n_init=1, random_state=seed).fit_predict(points).astype(np.int64)
    return found
