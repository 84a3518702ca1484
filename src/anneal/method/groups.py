"""Which group each image is likely to belong to: what is known of some, spread over the graph of neighbours.

    F ← keep · S F + (1 − keep) · Y

S is the symmetrically normalised graph of the nearest neighbours, Y says of the images that have a group
which one (label spreading, Zhou et al. 2004).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array

from anneal.method.neighbours import nearest
from anneal.method.relations import Relations
from anneal.pairs import Floats, Ids

NEIGHBOURS = 10
MOST = 20_000  # images without a group that are looked at, drawn anew each time: memory is bounded


@dataclass(frozen=True)
class Spread:
    """The share of each group in each image; the rows sum to one, or to nothing where nothing came."""

    images: Ids  # sorted
    groups: Ids  # by their number in the relations, sorted
    share: Floats  # (images, groups)
    near: Ids  # (images, NEIGHBOURS + 1 or all) the rows of the nearest of each, mostly itself first

    def apart(self, other: Spread) -> Floats:
        """How likely it is that two draws of an image's group, one from each, differ; 1 where nothing is
        known. With itself: how doubtful the group is."""
        same: Floats = (self.share * other.share).sum(axis=1)
        return 1 - same

    def around(self, values: Floats) -> Floats:
        """The mean of a value of each image over its nearest."""
        found: Floats = values[self.near].mean(axis=1)
        return found

    @property
    def overlap(self) -> Floats:
        """(groups, groups) from 0 to 1: how much two groups lay claim to the same images."""
        both = self.share.T @ self.share
        own = np.sqrt(np.maximum(np.diag(both), 1e-12))
        claimed: Floats = both / np.outer(own, own)
        return claimed


def pool(images: Ids, known: Relations, rng: np.random.Generator) -> Ids:
    """The images to look at: all that have a group, and of the others as many as there is room for."""
    images = np.unique(images)
    other = np.setdiff1d(images, known.members)
    if len(other) <= MOST:
        return images
    return np.union1d(np.setdiff1d(images, other), rng.choice(other, MOST, replace=False))


def spread(vectors: Floats, images: Ids, known: Relations, steps: int = 20, keep: float = 0.9) -> Spread:
    """From the images of which something is known to all of ``images``."""
    images = np.unique(images)
    ranking = nearest(vectors, images, np.asarray(vectors[images]), min(NEIGHBOURS + 1, len(images)))
    near = np.searchsorted(images, ranking.ids)
    graph = _graph(near, ranking.scores)
    touched = np.flatnonzero(np.isin(images, known.members))
    groups, group = np.unique(known.group[images[touched]], return_inverse=True)
    start = np.zeros((len(images), len(groups)), dtype=np.float32)
    start[touched, group] = 1 / np.sqrt(np.bincount(group))[group]  # a large group must not swallow all
    found = start
    for _ in range(steps):
        found = keep * (graph @ found) + (1 - keep) * start
    total = found.sum(axis=1, keepdims=True)
    share = np.where(total < 1e-9, 0, found / np.maximum(total, 1e-12))
    return Spread(images, groups, share, near)


def _graph(near: Ids, similarity: Floats) -> csr_array:
    """Similarity cubed to the nearest of each image, symmetric and normalised."""
    n, k = near.shape
    rows, columns = np.repeat(np.arange(n), k), near.ravel()
    weight = np.maximum(similarity.ravel(), 0) ** 3
    graph = coo_array((weight * (rows != columns), (rows, columns)), shape=(n, n))
    graph = csr_array(graph).maximum(csr_array(graph).T)
    scale = 1 / np.sqrt(np.maximum(np.asarray(graph.sum(axis=1)).ravel(), 1e-9))
    return csr_array(graph.multiply(scale[:, None]).multiply(scale[None, :]))


def presumed(spread: Spread, known: Relations, least: float) -> Relations:
    """What is known, and of every image whose likeliest group has at least this share, that it belongs to
    it: to train with, never to ask by."""
    sure = np.flatnonzero(
        (spread.share.max(axis=1, initial=0) >= least) & ~np.isin(spread.images, known.members)
    )
    group = known.group.copy()
    group[spread.images[sure]] = spread.groups[spread.share[sure].argmax(axis=1)]
    return Relations(group, known.links, known.aside)
