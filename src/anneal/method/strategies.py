"""Which questions to ask next. A strategy is a plain function of (snapshot, n, rng).

It sees the snapshot and nothing else, returns n pairs nobody knows the verdict of (fewer only if there
are no more), and keeps no state: to add one, write the function (docs/guide.md shows one).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from anneal.errors import UsageError
from anneal.method import uncertainty
from anneal.method.diversity import Diversity, best_per_cluster, clusters, kmeans
from anneal.method.mining import Scorer, cosine, mine, pairwise
from anneal.method.neighbours import nearest
from anneal.method.placing import density, order, place
from anneal.method.snapshot import Order as Order
from anneal.method.snapshot import Snapshot as Snapshot
from anneal.pairs import UNKNOWN, Floats, Ids, Pairs, Verdict

Select = Callable[[Snapshot, int, np.random.Generator], Pairs]
Label = Callable[[Snapshot, int, np.random.Generator], Ids]
Decide = Callable[[Snapshot, int, np.random.Generator], Order]


def mgue(
    snapshot: Snapshot,
    n: int,
    rng: np.random.Generator,
    *,
    lam: float = 3.0,
    widen: int = 4,
    diversity: Diversity = kmeans,
    threshold: str = "moments",
) -> Pairs:
    """Metric-guided: the pairs nearest the threshold between similar and dissimilar, moved by the
    snapshot's lean where it has one. The threshold is the paper's α_t, from the moments of all known pairs;
    or ``logistic``: where the answers given, without what follows from them, are as likely either way."""
    if len(np.unique(snapshot.images)) < 2:
        return cold(snapshot, n, rng)
    limit = mgue_limit(snapshot, lam, threshold)
    if np.isnan(limit):
        return cold(snapshot, n, rng)
    similarity = cosine(snapshot.vectors)
    if snapshot.lean:
        level = levels(snapshot.vectors, snapshot.images, limit, rng) * np.exp(snapshot.lean)
        limit = similarity_at(snapshot.vectors, snapshot.images, float(level), rng)

    def score(rows: Ids, columns: Ids) -> Floats:
        return uncertainty.mgue_score(similarity(rows, columns), limit)

    return _diverse(snapshot, score, n, rng, widen, diversity)


def mgue_limit(snapshot: Snapshot, lam: float = 3.0, threshold: str = "moments") -> float:
    """The similarity at which MGUE asks, before any lean; nan until both kinds of pair are known."""
    found = uncertainty.moments(snapshot.vectors, snapshot.known)
    asked = snapshot.asked
    if threshold == "moments" or asked is None or not found.complete:
        return uncertainty.mgue_threshold(found, lam) if found.complete else float("nan")
    settled = asked.verdicts != Verdict.UNSURE
    s = pairwise(snapshot.vectors, asked.pairs[settled])
    return uncertainty.chance_similar(s, asked.verdicts[settled] == Verdict.SIMILAR)[1]


def bcgue(
    snapshot: Snapshot,
    n: int,
    rng: np.random.Generator,
    *,
    widen: int = 4,
    diversity: Diversity = kmeans,
) -> Pairs:
    """Classifier-guided: the pairs to which the pair classifier gives a probability near ½."""
    probability = snapshot.probability
    if probability is None:
        return cold(snapshot, n, rng)

    def score(rows: Ids, columns: Ids) -> Floats:
        return uncertainty.bcgue_score(probability(rows, columns))

    return _diverse(snapshot, score, n, rng, widen, diversity)


def random(snapshot: Snapshot, n: int, rng: np.random.Generator) -> Pairs:
    """Any unknown pairs, each as likely as another."""
    images = np.unique(snapshot.images)
    found = Pairs.none()
    if len(images) < 2:
        return found
    for _ in range(20):  # drawing is quick while most pairs are unknown …
        i, j = rng.choice(images, (2, 2 * n + 16))
        found = _fresh(snapshot, found.then(Pairs.of(i[i != j], j[i != j])))
        if len(found) >= n:
            return found[:n]
    return mine(images, _flat, snapshot.known, n, rng).pairs  # … then look at them all


def cold(snapshot: Snapshot, n: int, rng: np.random.Generator) -> Pairs:
    """First questions, when nothing is known: an image beside a neighbour, near or far.

    Of random pairs nearly all are dissimilar, of nearest neighbours nearly all similar; either
    teaches little. So the neighbour's rank is drawn evenly on a logarithmic scale, from the nearest
    to the farthest, which gives a fair mix of both.
    """
    images = np.unique(snapshot.images)
    found = Pairs.none()
    if len(images) < 2:
        return found
    farthest = len(images) - 1
    for _ in range(20):
        anchors = rng.permutation(images)[: n + 16]
        rank = np.exp(rng.uniform(0, np.log(farthest + 1), len(anchors))).astype(np.int64)
        neighbour = _neighbour(snapshot.vectors, images, anchors, rank)
        other = anchors != neighbour
        found = _fresh(snapshot, found.then(Pairs.of(anchors[other], neighbour[other])))
        if len(found) >= n:
            return found[:n]
    return random(snapshot, n, rng)


def cal(snapshot: Snapshot, n: int, rng: np.random.Generator, *, widen: int = 4) -> Ids:
    """Classification-based: n *images* whose class the softmax is least sure of, made diverse by
    the same clustering. Its answers are class labels, at log₂ C bits each, not verdicts on pairs."""
    images, _ = _unlabelled(snapshot, rng)
    if snapshot.classes is None:
        return images[:n]
    unsure = 1 - snapshot.classes[images].max(axis=1)
    order = np.argsort(-unsure, kind="stable")[: widen * n]
    rows = best_per_cluster(snapshot.vectors[images[order]], unsure[order], n, rng)
    return images[order[rows]]


def typiclust(snapshot: Snapshot, n: int, rng: np.random.Generator, *, most: int = 500) -> Ids:
    """Of each cluster the most typical image, the least labelled clusters first and the larger of those;
    after TypiClust (Hacohen et al. 2022), with as many clusters as there will be labels, ``most`` at most."""
    images, labelled = _unlabelled(snapshot, rng)
    if n >= len(images):
        return images
    every = np.concatenate([images, labelled])
    cluster = clusters(snapshot.vectors[every], min(len(labelled) + n, most, len(every)), rng)
    own = cluster[: len(images)]
    typical = density(snapshot.vectors, images)
    labels = np.bincount(cluster[len(images) :], minlength=cluster.max() + 1)
    size = np.bincount(own, minlength=len(labels))
    queues = {
        c: images[own == c][np.argsort(-typical[own == c], kind="stable")].tolist() for c in np.unique(own)
    }
    picked: list[int] = []
    while len(picked) < n:
        best = min((c for c in queues if queues[c]), key=lambda c: (labels[c], -size[c]))
        picked.append(queues[best].pop(0))
        labels[best] += 1
    return np.array(picked, dtype=np.int64)


def coreset(snapshot: Snapshot, n: int, rng: np.random.Generator) -> Ids:
    """The images farthest from all that are labelled, one after the other; after core-set selection (Sener
    and Savarese 2018), the greedy k-centre."""
    images, labelled = _unlabelled(snapshot, rng)
    vectors = np.asarray(snapshot.vectors[images])
    picked: list[int] = [] if len(labelled) else [int(rng.integers(len(images)))]
    near = nearest(snapshot.vectors, labelled if len(labelled) else images[picked], vectors, 1).scores[:, 0]
    near[picked] = np.inf
    while len(picked) < min(n, len(images)):
        far = int(np.argmin(near))
        picked.append(far)
        near = np.maximum(near, vectors @ vectors[far])
        near[far] = np.inf
    return images[picked]


def _unlabelled(snapshot: Snapshot, rng: np.random.Generator) -> tuple[Ids, Ids]:
    """Images without a class, in a random order so that the generator breaks ties, and those with one."""
    none = np.empty(0, dtype=np.int64)
    labelled = none if snapshot.labelled is None else snapshot.labelled
    return rng.permutation(np.setdiff1d(snapshot.images, labelled)), labelled


@dataclass(frozen=True)
class Strategy:
    """A function that picks pairs to be judged, or one that picks images to be given a class; and
    what must be trained for it: the metric, a pair classifier beside it. With ``order``, which is called
    once a round, it picks pair by pair, each in the light of the answers before it."""

    name: str
    select: Select | None = None
    label: Label | None = None
    order: Decide | None = None
    pair_classifier: bool = False
    metric: bool = True


def named(name: str, lam: float = 3.0, diversity: Diversity = kmeans, threshold: str = "moments") -> Strategy:
    """A strategy of this package by its name, or anybody's function as ``module:function``."""
    module, _, function = name.partition(":")
    if function:
        sys.path[:0] = [""] * ("" not in sys.path)  # a module in the folder one works in
        try:
            return Strategy(name, getattr(importlib.import_module(module), function))
        except (ImportError, AttributeError) as error:
            raise UsageError(f"--strategy {name!r} could not be imported: {error}.") from error
    every = strategies(lam, diversity, threshold)
    if name not in every:
        raise UsageError(f"--strategy {name!r}: choose among {', '.join(every)}, or give module:function.")
    return every[name]


def strategies(
    lam: float = 3.0, diversity: Diversity = kmeans, threshold: str = "moments"
) -> dict[str, Strategy]:
    """Those of this package, by name."""
    every = (
        Strategy("mgue", partial(mgue, lam=lam, diversity=diversity, threshold=threshold)),
        Strategy("bcgue", partial(bcgue, diversity=diversity), pair_classifier=True),
        Strategy("random", random),
        Strategy("place", place, order=order),
        Strategy("place-apart", place, order=partial(order, join=False)),  # to see what joining is worth …
        Strategy("place-doubtful", place, order=partial(order, soon=False)),  # … the order of images …
        Strategy("place-alone", place, order=partial(order, around=False)),  # … and their neighbourhood
        Strategy("cal", label=cal, metric=False),  # classes train a classifier, as in the paper
        Strategy("cal-metric", label=cal),  # and here the metric as well: all that a class label implies
        Strategy("typiclust", label=typiclust),
        Strategy("coreset", label=coreset),
    )
    return {strategy.name: strategy for strategy in every}


def _diverse(
    snapshot: Snapshot,
    scorer: Scorer,
    n: int,
    rng: np.random.Generator,
    widen: int,
    diversity: Diversity,
) -> Pairs:
    """The paper's two steps: the p = widen·n most uncertain pairs, then n that differ."""
    mined = mine(snapshot.images, scorer, snapshot.known, widen * n, rng)
    return diversity(snapshot.vectors, mined, n, rng)


def _fresh(snapshot: Snapshot, pairs: Pairs) -> Pairs:
    """Those that are unknown, each once, in the order given."""
    keys = pairs.a * len(snapshot.known) + pairs.b
    once = pairs[np.sort(np.unique(keys, return_index=True)[1])]
    return once[snapshot.known.of(once) == UNKNOWN]


def levels(vectors: Floats, images: Ids, s: Floats | float, rng: np.random.Generator) -> Floats:
    """The level of each similarity: the share of all pairs that are more similar, by a sample of them.
    Unlike a similarity, a level means much the same before and after training."""
    every = _similarities(vectors, images, rng)
    s = np.asarray(s)
    found: Floats = (len(every) - np.searchsorted(every, s, side="right") + 0.5) / (len(every) + 1)
    return np.where(np.isnan(s), np.nan, found)


def similarity_at(vectors: Floats, images: Ids, level: float, rng: np.random.Generator) -> float:
    """The similarity that lies at a level."""
    return float(np.quantile(_similarities(vectors, images, rng), 1 - min(level, 1.0)))


def _similarities(vectors: Floats, images: Ids, rng: np.random.Generator, sample: int = 200_000) -> Floats:
    """Similarities of pairs drawn at random, sorted."""
    i, j = rng.choice(images, (2, sample))
    return np.sort(pairwise(vectors, Pairs.of(i[i != j], j[i != j])))


def _flat(rows: Ids, columns: Ids) -> Floats:
    return np.zeros((len(rows), len(columns)))


def _neighbour(vectors: Floats, images: Ids, anchors: Ids, rank: Ids, strip: int = 64) -> Ids:
    """For each anchor its neighbour of the given rank; rank 0 is the anchor itself."""
    found = np.empty(len(anchors), dtype=np.int64)
    for i in range(0, len(anchors), strip):
        some = slice(i, i + strip)
        order = np.argsort(-(vectors[anchors[some]] @ vectors[images].T), axis=1)
        found[some] = images[np.take_along_axis(order, rank[some, None], axis=1)[:, 0]]
    return found
