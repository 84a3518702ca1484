"""The oracle: it knows the class of every image, answers in a person's place, and scores the search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from anneal.archive.catalog import Archive
from anneal.archive.reading import SPLITS
from anneal.errors import UsageError
from anneal.method import metrics
from anneal.method.neighbours import nearest
from anneal.pairs import Floats, Ids, Pair, Verdict
from anneal.settings import Stream, generator

NAME = "oracle"
K = 5


@dataclass(frozen=True)
class Oracle:
    """The class of every image; a share of the answers, ``noise``, is wrong at random."""

    classes: Ids
    names: tuple[str, ...]
    noise: float = 0.0
    seed: int = 0
    overlooked: float = 0.0  # share of the wrong guesses on sheets

    @classmethod
    def of(cls, archive: Archive, noise: float = 0.0, seed: int = 0, overlooked: float = 0.0) -> Oracle:
        classes = archive.classes
        unlabelled = int((classes < 0).sum())
        if unlabelled:
            raise UsageError(
                f"The oracle needs every image's class and {unlabelled} have none: give one folder per class."
            )
        names = tuple(sorted(set(archive.labels)))
        if len(names) < 2:
            raise UsageError(f"All images are of one class ({names[0]}): there is nothing to tell apart.")
        return cls(classes, names, noise, seed, overlooked)

    @property
    def bits_per_label(self) -> float:
        return math.log2(len(self.names))

    def verdict(self, pair: Pair, given: int, guess: int | None = None) -> Verdict:
        """The answer to a pair, when this many were given before; on a sheet there is a ``guess``."""
        similar = self.classes[pair[0]] == self.classes[pair[1]]
        if self.noise and generator(self.seed, Stream.NOISE, given).random() < self.noise:
            similar = not similar
        verdict = Verdict.SIMILAR if similar else Verdict.DISSIMILAR
        if guess is None or guess == verdict or not self.overlooked:
            return verdict
        overlooks = generator(self.seed, Stream.OVERLOOKED, given).random() < self.overlooked
        return Verdict(guess) if overlooks else verdict

    def labels(self, images: Ids) -> list[tuple[int, str]]:
        return [(i, self.names[self.classes[i]]) for i in images.tolist()]

    def first_query(self, split: Split, name: str) -> int:
        """The first validation image of a class."""
        if name not in self.names:
            raise UsageError(f"There is no class {name!r} here: there are {', '.join(self.names)}.")
        queries = split.val[self.classes[split.val] == self.names.index(name)]
        if not len(queries):
            raise UsageError(f"No validation image is of class {name!r}: the retrieval panel needs one.")
        return int(queries[0])


@dataclass(frozen=True)
class Split:
    train: Ids
    val: Ids  # the queries
    test: Ids  # what is retrieved from


def split_of(archive: Archive, seed: int) -> Split:
    """The archive's own split; else 80 / 10 / 10 at random."""
    if any(archive.splits):
        column = np.array(archive.splits)
        parts = [np.flatnonzero(column == name) for name in SPLITS]
    else:
        parts = _tenths(len(archive), generator(seed, Stream.SPLIT))
    return _whole(parts)


def inner_split(archive: Archive, seeds: Iterable[int], seed: int) -> Split:
    """A split of the images that all of these seeds train on, or of the training part of the archive's own
    split: for choosing settings without test images."""
    splits = [split_of(archive, other) for other in seeds]
    times = np.bincount(np.concatenate([split.train for split in splits]))
    always = np.flatnonzero(times == len(splits))
    parts = _tenths(len(always), generator(seed, Stream.INNER_SPLIT))
    return _whole([always[part] for part in parts])


def _whole(parts: Sequence[Ids]) -> Split:
    if not all(len(part) for part in parts):
        sizes = ", ".join(str(len(part)) for part in parts)
        raise UsageError(
            f"Training, validation and test would get {sizes} images: each must have some. Give more images."
        )
    return Split(*parts)


def _tenths(n: int, rng: np.random.Generator) -> list[Ids]:
    """0 … n-1 in three random parts: eight tenths, one, one."""
    order = rng.permutation(n)
    tenth = n // 10
    return [np.sort(part) for part in (order[2 * tenth :], order[:tenth], order[tenth : 2 * tenth])]


def score(vectors: Floats, split: Split, classes: Ids) -> dict[str, float]:
    """Validation images as queries, retrieved from the test images, k = 5."""
    results = nearest(vectors, split.test, vectors[split.val], K).ids
    own = classes[split.val]
    relevant = classes[results] == own[:, None]
    total = (own[:, None] == classes[split.test][None, :]).sum(axis=1)
    meanings: tuple[metrics.Meaning, ...] = ("min", "hits", "all")
    scores = {}
    for meaning in meanings:
        scores[f"map5_{meaning}"] = metrics.mean(metrics.average_precision(relevant, total, meaning))
    p5 = metrics.precision(relevant, total)
    by_class = np.array([metrics.mean(p5[own == c]) for c in np.unique(own)])
    return {**scores, "p5": metrics.mean(p5), "p5_class": metrics.mean(by_class)}
