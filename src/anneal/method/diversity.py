"""Choose a few pairs that differ from each other out of many uncertain ones.

A diversity is a function (vectors, mined, n, rng) → n pairs. ``DIVERSITIES`` has them by name.
"""

import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from anneal.method.mining import Mined
from anneal.method.neighbours import unit
from anneal.pairs import Floats, Ids, Pairs

PairVectors = Callable[[Floats, Floats], Floats]
Diversity = Callable[[Floats, Mined, int, np.random.Generator], Pairs]


def pair_vectors(u: Floats, v: Floats) -> Floats:
    """(|pairs|, 2d): [u + v, |u − v|]. Like the other choices, it ignores the order of the two images."""
    return np.concatenate([u + v, np.abs(u - v)], axis=1)


def kmeans(
    vectors: Floats, mined: Mined, n: int, rng: np.random.Generator, vector: PairVectors = pair_vectors
) -> Pairs:
    """The most uncertain pair of each of n clusters of pairs."""
    points = vector(vectors[mined.pairs.a], vectors[mined.pairs.b])
    return mined.pairs[best_per_cluster(points, mined.scores, n, rng)]


def none(vectors: Floats, mined: Mined, n: int, rng: np.random.Generator) -> Pairs:
    """The n most uncertain pairs."""
    return mined.pairs[:n]


DIVERSITIES: dict[str, Diversity] = {
    "kmeans": kmeans,
    "kmeans-sum": partial(kmeans, vector=np.add),
    "kmeans-product": partial(kmeans, vector=np.multiply),
    "none": none,
}


def best_per_cluster(points: Floats, scores: Floats, n: int, rng: np.random.Generator) -> Ids:
    """The row of the best point of each of n k-means clusters, best first. The points must come best first.
    If points coincide there are fewer clusters, and the best of the other points fill up the n rows."""
    if n >= len(points):
        return np.arange(len(points))
    cluster = clusters(points, n, rng)
    first = np.unique(cluster, return_index=True)[1]  # the points are sorted, so the first is the best
    others = np.setdiff1d(np.arange(len(points)), first)
    rows: Ids = np.sort(np.concatenate([first, others[: n - len(first)]]))
    return rows[np.argsort(-scores[rows], kind="stable")]


def clusters(points: Floats, n: int, rng: np.random.Generator) -> Ids:
    """The cluster of each point, by k-means into n clusters; fewer if points coincide."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    seed = int(rng.integers(2**31))
    # One thread: the work is small, and on a busy machine several threads wait for each other.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # coinciding points
        cluster = KMeans(n, n_init=1, random_state=seed).fit_predict(points)
    return np.asarray(cluster, dtype=np.int64)


def representatives(
    points: Floats, n: int, known: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[Ids, Ids]:
    """The row of one point for each of n clusters, and the size of its cluster: a ``known`` point where there
    is one, and of these, or of all, the one nearest to the centre."""
    cluster = clusters(points, n, rng)
    centres = np.zeros((n, points.shape[1]), points.dtype)
    np.add.at(centres, cluster, points)
    typical = np.einsum("ij,ij->i", points, unit(centres)[cluster])
    order = np.lexsort((-typical, ~known))
    found, first = np.unique(cluster[order], return_index=True)
    return order[first], np.bincount(cluster)[found]
