"""Which group each image is likely to be in.

By label spreading (Zhou et al. 2004):

    F ← keep · S F + (1 − keep) · Y

S is the symmetrically normalised graph of nearest neighbours, and Y holds the known groups. By frozen
features also by a ridge regression of the groups: the two make different mistakes.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.special import softmax

from anneal.files import release
from anneal.method.neighbours import Ranking, nearest, unit
from anneal.method.relations import Known, Relations
from anneal.method.ridge import GroupRidge
from anneal.pairs import Floats, Ids

NEIGHBOURS = 10
STEPS = 20
KEEP = 0.9
RIDGE = 0.1  # of the regression that guesses groups
BLOCK = 8192  # images whose scores are in memory at once
MAX_IMAGES = 20_000  # images with a group to look at, and as many without, drawn anew each time …
MAX_GROUPS = 1000  # … and groups, the largest ones: this bounds memory and time


@dataclass(frozen=True)
class Membership:
    """The share of each group in each image. A row sums to one, or to zero if no label reached the image."""

    images: Ids  # sorted
    groups: Ids  # group numbers of the relations, sorted
    share: Floats  # (images, groups)
    near: Ids  # (images, NEIGHBOURS + 1 or all) rows of the nearest images, usually the image itself first

    def disagreement(self, other: Self) -> Floats:
        """For each image, the probability that two groups, one drawn from each membership, differ; 1 where
        nothing is known. Against itself, this is how uncertain the group of the image is."""
        return np.asarray(1 - (self.share * other.share).sum(axis=1))

    def neighbourhood_mean(self, values: Floats) -> Floats:
        """For each image, the mean of ``values`` over its nearest images."""
        return np.asarray(values[self.near].mean(axis=1))

    @property
    def overlap(self) -> Floats:
        """(groups, groups) from 0 to 1: how far two groups claim the same images."""
        shared = self.share.T @ self.share
        norm = np.sqrt(np.maximum(np.diag(shared), 1e-12))
        return np.asarray(shared / np.outer(norm, norm))


def candidates(images: Ids, known: Known, rng: np.random.Generator) -> Ids:
    """The images to look at: at most MAX_IMAGES that have a relation, and as many others."""
    images = np.unique(images)
    placed = np.isin(images, known.members)
    if max(placed.sum(), (~placed).sum()) <= MAX_IMAGES:
        return images
    drawn = [_some(images[~placed], rng), _some(images[placed], rng)]
    return np.sort(np.concatenate(drawn))


def _some(images: Ids, rng: np.random.Generator) -> Ids:
    return images if len(images) <= MAX_IMAGES else rng.choice(images, MAX_IMAGES, replace=False)


def neighbour_table(vectors: Floats, images: Ids, centred: bool = False) -> Ranking:
    """For each of these images, distinct and sorted, the rows of its nearest ones, itself included. Vectors
    that are ``centred`` lose first what all of them share."""
    rows = np.asarray(vectors[images])
    release(vectors)
    if centred:
        rows = unit(rows - rows.mean(axis=0))
    return nearest(rows, np.arange(len(rows)), rows, neighbour_count(len(images)))


def neighbour_count(images: int) -> int:
    """How many neighbours each of so many images has in a table."""
    return min(NEIGHBOURS + 1, images)


def spread_labels(
    vectors: Floats, images: Ids, known: Known, neighbours: Ranking | None = None
) -> Membership:
    """Spread the known groups, the MAX_GROUPS largest ones at most, over all ``images``. The ``neighbours``
    are those of ``neighbour_table``, where it was made before."""
    images = np.unique(images)
    ranking = neighbour_table(vectors, images) if neighbours is None else neighbours
    near = ranking.ids
    graph = _graph(near, ranking.scores)

    placed = np.flatnonzero(np.isin(images, known.members))
    groups = np.unique(known.group[images[placed]])
    if len(groups) > MAX_GROUPS:
        groups = np.sort(groups[np.argsort(-known.sizes[groups], kind="stable")[:MAX_GROUPS]])
        placed = placed[np.isin(known.group[images[placed]], groups)]
    column = np.searchsorted(groups, known.group[images[placed]])
    labels = np.zeros((len(images), len(groups)), dtype=np.float32)
    labels[placed, column] = 1 / np.sqrt(np.bincount(column))[column]  # so a large group does not take all

    weight = labels
    for _ in range(STEPS):
        weight = KEEP * (graph @ weight) + (1 - KEEP) * labels
    total = weight.sum(axis=1, keepdims=True)
    share = np.where(total < 1e-9, 0, weight / np.maximum(total, 1e-12))
    return Membership(images, groups, share, near)


def likely_groups(vectors: Floats, images: Ids, known: Known, neighbours: Ranking) -> Membership:
    """The mean of what label spreading and the ridge regression say of all ``images``. A softmax makes shares
    of the scores. It is sharper where there are more groups: an image whose score is 0 for one group and −1
    for all others is in that one by a half."""
    spread = spread_labels(vectors, images, known, neighbours)
    if not len(spread.groups):
        return spread
    group = known.group[spread.images]
    rows = np.flatnonzero(np.isin(spread.images, known.members) & np.isin(group, spread.groups))
    features = np.asarray(vectors[spread.images])
    release(vectors)
    regression = GroupRidge(features[rows], spread.images[rows], group[rows], RIDGE)
    share = np.empty_like(spread.share)
    for i in range(0, len(features), BLOCK):
        some = slice(i, i + BLOCK)
        scores = regression.scores(features[some])
        by_regression = softmax(np.log(len(spread.groups)) * scores, axis=1).astype(np.float32)
        share[some] = (spread.share[some] + by_regression) / 2
    return replace(spread, share=share)


def _graph(near: Ids, similarity: Floats) -> csr_array:
    """(images, images) similarity cubed, to the nearest of each image; symmetric and normalised."""
    n, k = near.shape
    rows = np.repeat(np.arange(n), k)
    columns = near.ravel()
    weight = np.maximum(similarity.ravel(), 0) ** 3
    graph = csr_array(coo_array((weight * (rows != columns), (rows, columns)), shape=(n, n)))
    graph = graph.maximum(graph.T)
    degree = np.asarray(graph.sum(axis=1)).ravel()
    scale = 1 / np.sqrt(np.maximum(degree, 1e-9))
    return csr_array(graph.multiply(scale[:, None]).multiply(scale[None, :]))


def with_pseudo_labels(membership: Membership, known: Relations, least: float) -> Relations:
    """``known``, with each image that has no known pair added to its likeliest group, if the share of that
    group is at least ``least``. This is for training only: questions go by ``known``."""
    likely = membership.share.max(axis=1, initial=0) >= least
    rows = np.flatnonzero(likely & ~np.isin(membership.images, known.members))
    group = known.group.copy()
    group[membership.images[rows]] = membership.groups[membership.share[rows].argmax(axis=1)]
    return Relations(group, known.links, known.set_aside)
