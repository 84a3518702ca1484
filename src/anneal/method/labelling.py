"""Baselines that ask for the class of images, at log₂ C bits each, instead of verdicts on pairs.

A labeller is a plain function (snapshot, labels, n, rng) → n images whose class is wanted.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from anneal.method.diversity import best_per_cluster, clusters
from anneal.method.neighbours import nearest
from anneal.method.placing import density
from anneal.method.snapshot import Snapshot
from anneal.method.strategies import WIDEN
from anneal.pairs import Floats, Ids


@dataclass(frozen=True)
class Labels:
    """What is known of classes: the labelled images, and the softmax of a classifier trained on them."""

    images: Ids
    probability: Floats | None = None  # (n, C)


Choose = Callable[[Snapshot, Labels, int, Generator], Ids]


@dataclass(frozen=True)
class Labeller:
    """A labeller, and whether its labels train the metric too or a classifier alone, as in the paper."""

    choose: Choose
    metric: bool = True


def cal(snapshot: Snapshot, labels: Labels, n: int, rng: Generator) -> Ids:
    """Classification-based active learning: the images whose class the softmax is least sure of, made diverse
    by the same clustering as pairs."""
    images = _unlabelled(snapshot, labels, rng)
    if labels.probability is None:
        return images[:n]
    uncertainty = 1 - labels.probability[images].max(axis=1)
    order = np.argsort(-uncertainty, kind="stable")[: WIDEN * n]
    rows = best_per_cluster(snapshot.vectors[images[order]], uncertainty[order], n, rng)
    return images[order[rows]]


def typiclust(snapshot: Snapshot, labels: Labels, n: int, rng: Generator, *, most: int = 500) -> Ids:
    """The most typical image of each cluster, clusters with the fewest labels first, larger ones first among
    those (TypiClust, Hacohen et al. 2022). There are as many clusters as labels, ``most`` at most."""
    images = _unlabelled(snapshot, labels, rng)
    if not n or n >= len(images):
        return images[:n]
    every = np.concatenate([images, labels.images])
    cluster = clusters(snapshot.vectors[every], min(len(labels.images) + n, most, len(every)), rng)
    labelled = np.bincount(cluster[len(images) :], minlength=cluster.max() + 1)
    order = np.argsort(-density(snapshot.vectors, images), kind="stable")
    own = cluster[order]
    size = np.bincount(own, minlength=len(labelled))
    queues = {c: images[order[own == c]].tolist() for c in np.unique(own).tolist()}
    picked: list[int] = []
    while len(picked) < n:
        best = min((c for c in queues if queues[c]), key=lambda c: (labelled[c], -size[c]))
        picked.append(queues[best].pop(0))
        labelled[best] += 1
    return np.array(picked, dtype=np.int64)


def coreset(snapshot: Snapshot, labels: Labels, n: int, rng: Generator) -> Ids:
    """The images farthest from all labelled ones, one after the other: the greedy k-centre of core-set
    selection (Sener and Savarese 2018)."""
    images = _unlabelled(snapshot, labels, rng)
    if not n or not len(images):
        return images[:0]
    vectors = np.asarray(snapshot.vectors[images])
    picked: list[int] = [] if len(labels.images) else [int(rng.integers(len(images)))]
    centres = labels.images if len(labels.images) else images[picked]
    nearness = nearest(snapshot.vectors, centres, vectors, 1).scores[:, 0]
    nearness[picked] = np.inf
    while len(picked) < min(n, len(images)):
        farthest = int(np.argmin(nearness))
        picked.append(farthest)
        nearness = np.maximum(nearness, vectors @ vectors[farthest])
        nearness[farthest] = np.inf
    return images[picked]


LABELLERS = {
    "cal": Labeller(cal, metric=False),
    "cal-metric": Labeller(cal),
    "typiclust": Labeller(typiclust),
    "coreset": Labeller(coreset),
}


def _unlabelled(snapshot: Snapshot, labels: Labels, rng: Generator) -> Ids:
    """Images without a class, in random order, so that the generator breaks ties."""
    return rng.permutation(np.setdiff1d(snapshot.images, labels.images))
