"""Steering MGUE: from where it asks follows how many of the answers are similar.

The *level* of a pair is the share of all pairs that are more similar than it. A level means much the same
before and after training, which a similarity does not. The *lean* is the log of the ratio between the level
MGUE asks at and the level of its threshold α_t.
"""

import math

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import logit

from anneal.method.mining import pairwise
from anneal.method.snapshot import Snapshot
from anneal.method.uncertainty import level_for_share
from anneal.pairs import Answers, Floats, Ids, Pairs, Verdict

RECENT = 50  # answers whose share of similar ones is watched
TOO_FEW = 10  # answers that say nothing about the share
SLACK = 0.2  # around the share that is aimed at
SAMPLE = 200_000  # draws of pairs that stand for all pairs, at most …
TIMES = 10  # … this many times the pairs there are …
LEAST = 1_000  # … and at least this many


def aim(share: float) -> tuple[float, float] | None:
    """The shares of similar answers that are fine, from … to; None where steering is off."""
    if not share:
        return None
    return round(max(share - SLACK, 0.05), 3), round(min(share + SLACK, 0.95), 3)


def settled(answers: Answers, rounds: Ids) -> tuple[NDArray[np.bool_], Ids]:
    """Of the answers that say similar or dissimilar: whether similar, and the round."""
    rows = _settled_rows(answers, rounds)
    return answers.verdicts[rows] == Verdict.SIMILAR, rounds[rows]


def _settled_rows(answers: Answers, rounds: Ids) -> Ids:
    """The rows of the answers that say similar or dissimilar, without pairs of class labels."""
    return np.flatnonzero((answers.verdicts != Verdict.UNSURE) & (rounds >= 0))


def recent_share(answers: Answers, rounds: Ids) -> float | None:
    """The share of similar ones among the latest answers; None while there are too few."""
    similar, _ = settled(answers, rounds)
    latest = similar[-RECENT:]
    return float(latest.mean()) if len(latest) >= TOO_FEW else None


def steered(snapshot: Snapshot, pairs: Pairs, share: float) -> Pairs:
    """The pairs in their order. Where the latest answers were similar too often or too seldom, the half that
    is expected to mend it comes first."""
    target = aim(share)
    now = recent_share(snapshot.answers, snapshot.rounds)
    if target is None or now is None or target[0] <= now <= target[1] or not len(pairs):
        return pairs
    s = pairwise(snapshot.vectors, pairs)
    wanted = -s if now > target[1] else s
    return pairs[np.argsort(wanted < np.median(wanted), kind="stable")]


def lean(snapshot: Snapshot, threshold: float, share: float, rng: Generator) -> float:
    """How far from the threshold to ask next, never negative.

    The first answers span all levels, so they tell directly at which level the share is met. After that the
    lean halves every round. It grows only where two rounds in a row missed the aim on the same side: late in
    a campaign similar and dissimilar pairs lie far apart, and a small step leads from one kind to the other.
    """
    target = aim(share)
    if target is None:
        return 0.0
    if snapshot.agenda is None or not len(snapshot.rounds) or snapshot.rounds.max() < 1:
        return _first_lean(snapshot, threshold, target, rng)
    newest = int(snapshot.rounds.max())
    last = _excess(snapshot, newest, target)
    before = _excess(snapshot, newest - 1, target)
    lasting = math.copysign(min(abs(last), abs(before)), last) if last * before > 0 else 0.0
    step = min(max(0.25 * lasting, -0.5), 0.5)
    return max(0.5 * snapshot.agenda.lean + step, 0.0)


def _first_lean(snapshot: Snapshot, threshold: float, target: tuple[float, float], rng: Generator) -> float:
    rows = _settled_rows(snapshot.answers, snapshot.rounds)
    similar = snapshot.answers.verdicts[rows] == Verdict.SIMILAR
    if snapshot.frozen is None or len(similar) < TOO_FEW:
        return 0.0
    s = pairwise(snapshot.frozen, snapshot.answers.pairs[rows])
    seen = levels(snapshot.frozen, snapshot.images, s, rng)
    highest = level_for_share(seen, similar, target[0])
    lowest = level_for_share(seen, similar, target[1])
    level = float(levels(snapshot.vectors, snapshot.images, threshold, rng))
    return max(math.log(min(max(level, lowest), highest) / level), 0.0)


def _excess(snapshot: Snapshot, number: int, target: tuple[float, float]) -> float:
    """How far a round's share of similar answers is above the aim, or below, in logits."""
    similar, rounds = settled(snapshot.answers, snapshot.rounds)
    mine = similar[rounds == number]
    share = (mine.sum() + 1) / (len(mine) + 2)
    return float(logit(share) - logit(min(max(share, target[0]), target[1])))


def levels(vectors: Floats, images: Ids, s: Floats | float, rng: Generator) -> Floats:
    """The level of each similarity, by a sample of pairs; nan where the similarity is."""
    every = _sampled(vectors, images, rng)
    s = np.asarray(s)
    level: Floats = (len(every) - np.searchsorted(every, s, side="right") + 0.5) / (len(every) + 1)
    return np.where(np.isnan(s), np.nan, level)


def similarity_at(vectors: Floats, images: Ids, level: float, rng: Generator) -> float:
    """The similarity at a level."""
    return float(np.quantile(_sampled(vectors, images, rng), 1 - min(level, 1.0)))


def _sampled(vectors: Floats, images: Ids, rng: Generator) -> Floats:
    """Similarities of random pairs, sorted."""
    pairs = len(images) * (len(images) - 1) // 2
    i, j = rng.choice(images, (2, min(SAMPLE, max(TIMES * pairs, LEAST))))
    return np.sort(pairwise(vectors, Pairs.of(i[i != j], j[i != j])))
