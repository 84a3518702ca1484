"""How good retrieval is, from the answers to questions that were drawn at random; arrays only.

A few of the questions are not chosen to teach but drawn by lot: an image at random, then one of its
neighbours, at a rank drawn within strata (``STRATA``). Their answers are never learnt from, so what they
say of a model is not flattered. With r(q) the five nearest of image q,

    P@5 = mean over q and over r in r(q) of [q and r are similar]

and pairs of which the answers (not the drawn ones) already tell the verdict are counted exactly; only the
rest is estimated. A pair drawn for an early model says something of a later one too: it is weighted by
how likely the later model's five nearest contain it against how likely it was to be drawn by any of the
models so far (importance sampling with the balance heuristic), so no answer is ever wasted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anneal.pairs import Floats, Ids, Pairs, Verdict

K = 5
STRATA = ((0.6, K), (0.2, 25), (0.1, 125), (0.1, 2**62))
"""(share of the questions, the rank at which the stratum ends): similar pairs are the near ones."""
Z = 1.96  # 95 %


@dataclass(frozen=True)
class Estimate:
    """A share with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Places:
    """Where pairs stand in a model: b's rank among a's neighbours (0 is the nearest), a's among b's."""

    ab: Ids
    ba: Ids
    score: Floats


def draw(vectors: Floats, images: Ids, n: int, rng: np.random.Generator, strip: int = 64) -> Pairs:
    """n pairs by lot, each: a stratum, an image, a neighbour of it within the stratum. One may come twice."""
    strata = _strata(len(images))
    shares = np.array([share for share, _, _ in strata])
    picked = rng.choice(len(strata), n, p=shares / shares.sum())
    low, high = (np.array([s[i] for s in strata])[picked] for i in (1, 2))
    anchors, rank = rng.integers(0, len(images), n), rng.integers(low, high)
    found = np.empty(n, dtype=np.int64)
    for i in range(0, n, strip):
        some = slice(i, i + strip)
        s = np.asarray(vectors[images[anchors[some]]] @ vectors[images].T)
        s[np.arange(len(s)), anchors[some]] = -np.inf  # an image is no neighbour of its own
        order = np.argsort(-s, axis=1, kind="stable")
        found[some] = np.take_along_axis(order, rank[some, None], axis=1)[:, 0]
    return Pairs.of(images[anchors], images[found])


def places(vectors: Floats, images: Ids, pairs: Pairs, strip: int = 64) -> Places:
    """Where these pairs stand, among ``images``, in the space of ``vectors``."""
    ranks = {}
    for name, (rows, others) in {"ab": (pairs.a, pairs.b), "ba": (pairs.b, pairs.a)}.items():
        rank = np.empty(len(pairs), dtype=np.int64)
        for i in range(0, len(pairs), strip):
            one, other = rows[i : i + strip, None], others[i : i + strip, None]
            s = np.asarray(vectors[one[:, 0]] @ vectors[images].T)
            own = np.take_along_axis(s, np.searchsorted(images, other), axis=1)
            before = (s > own) | ((s == own) & (images < other))
            rank[i : i + strip] = (before & (images != one)).sum(axis=1)
        ranks[name] = rank
    score = np.einsum("pd,pd->p", vectors[pairs.a], vectors[pairs.b])
    return Places(ranks["ab"], ranks["ba"], score)


def _strata(n: int) -> list[tuple[float, int, int]]:
    """(share, first rank, end) of those that n images have."""
    ends = [min(end, n - 1) for _, end in STRATA]
    starts = [0, *ends[:-1]]
    return [
        (share, start, end)
        for (share, _), start, end in zip(STRATA, starts, ends, strict=True)
        if start < end
    ]


def density(at: Places, n: int) -> Floats:
    """How likely one draw is to be each of these pairs, in a model in which they stand so."""
    strata = _strata(n)
    total = sum(share for share, _, _ in strata)
    found = np.zeros(len(at.ab))
    for share, start, end in strata:
        for rank in (at.ab, at.ba):
            found += ((rank >= start) & (rank < end)) * share / total / (n * (end - start))
    return found


@dataclass(frozen=True)
class Drawn:
    """The drawn questions that were answered: where each stands in every model that was drawn from, and
    how many draws each of those models made."""

    similar: NDArray[np.bool_]  # (m,)
    places: Sequence[Places]  # one a model, each of m pairs
    draws: Sequence[int]  # one a model

    def chance(self, n: int) -> Floats:
        """(m,) how often each pair was to be expected among all draws: Σ_k draws_k · density_k"""
        total = np.zeros(len(self.similar))
        for at, draws in zip(self.places, self.draws, strict=True):
            if draws:
                total += draws * density(at, n)
        return total


def share(weights: Floats, similar: NDArray[np.bool_]) -> Estimate:
    """The weighted share of similar pairs, and Wilson's interval at Kish's effective number of answers."""
    if not weights.sum():
        return Estimate(0.5, 0.0, 1.0)  # nothing is known
    p = float((weights * similar).sum() / weights.sum())
    total = weights.sum()
    m = float(total**2 / np.square(weights).sum())
    spread = np.square(weights * (similar - p)).sum()  # weights and verdicts may hang together
    if spread:
        m = min(m, float(p * (1 - p) * total**2 / spread))
    centre = (p + Z**2 / (2 * m)) / (1 + Z**2 / m)
    half = Z * np.sqrt(p * (1 - p) / m + Z**2 / (4 * m**2)) / (1 + Z**2 / m)
    low, high = min(centre - half, p), max(centre + half, p)  # which they are, but for the last digit
    return Estimate(p, max(low, 0.0), min(high, 1.0))


def precision_at_5(
    drawn: Drawn, at: Places, open_: NDArray[np.bool_], n: int, top: NDArray[np.int8]
) -> Estimate:
    """P@5 of a model in which the drawn pairs stand ``at``; ``open_`` marks those whose verdict the other
    answers do not tell, ``top`` holds what they tell of (queries, 5) results: 0 where nothing."""
    settled = (top == Verdict.SIMILAR) | (top == Verdict.DISSIMILAR)
    known, hits = settled.mean(), (top == Verdict.SIMILAR).mean()
    near = (at.ab < K).astype(float) + (at.ba < K)  # a pair may be in it both ways
    weights = np.where(open_, near / np.maximum(drawn.chance(n), 1e-300), 0.0)
    rest = share(weights, drawn.similar)
    low, value, high = (float(hits + (1 - known) * x) for x in (rest.low, rest.value, rest.high))
    return Estimate(value, low, high)


def precision_of_similar(
    drawn: Drawn, at: Places, open_: NDArray[np.bool_], n: int, threshold: float
) -> Estimate:
    """Of the pairs the model calls similar and nobody's answers have settled, the share that are."""
    called = (at.score >= threshold) & open_
    weights = np.where(called, 1 / np.maximum(drawn.chance(n), 1e-300), 0.0)
    return share(weights, drawn.similar)


def worse(similar: NDArray[np.bool_], new: Floats, old: Floats) -> bool:
    """Whether a new model tells the pairs that were judged apart less well than another: by the area under
    the ROC curve of their similarities in each, the chance that a similar pair is more similar than a
    dissimilar one. The same pairs, so it is the difference that counts, and it must be below zero by two
    standard errors (DeLong et al. 1988); with fewer than five of either kind nothing is said."""
    kinds = (similar.sum(), (~similar).sum())
    if min(kinds) < 5:
        return False
    ahead = _ahead(similar, new) - _ahead(similar, old)  # (similar, dissimilar)
    errors = [
        part.var(ddof=1) / n for part, n in zip((ahead.mean(axis=1), ahead.mean(axis=0)), kinds, strict=True)
    ]
    return bool(ahead.mean() < -2 * np.sqrt(sum(errors)) and ahead.mean() < 0)


def _ahead(similar: NDArray[np.bool_], s: Floats) -> Floats:
    """1 where a similar pair is more similar than a dissimilar one, ½ where they tie, else 0."""
    found: Floats = (np.sign(s[similar][:, None] - s[~similar][None, :]) + 1) / 2
    return found


def advice(answers: Sequence[int], estimates: Sequence[Estimate]) -> tuple[bool, str]:
    """Whether to stop, and why: the estimates of P@5 of the models so far, and how many answers each had.
    Each is uncertain, so two models in a row must say that the last third of the answers brought nothing."""
    if len(estimates) < 5:
        return False, "Too early to say: a few rounds are needed to see how quality grows."
    now = estimates[-1]
    if now.high - now.low > 0.2:
        width = round(100 * (now.high - now.low))
        return False, f"Too early to say: P@5 is known within {width} points only. Go on."
    (gain, last), (earlier, _) = (_gain(answers[:end], estimates[:end]) for end in (None, -1))
    if max(gain, earlier) < 0.01:
        return True, (
            f"P@5 has levelled off near {now.value:.2f} ({now.low:.2f} to {now.high:.2f}): the last {last} "
            f"answers changed it by {100 * gain:+.0f} points. You may stop here."
        )
    return False, f"Still moving: {100 * gain:+.0f} points of P@5 in the last {last} answers."


def _gain(answers: Sequence[int], estimates: Sequence[Estimate]) -> tuple[float, int]:
    """What the last third of the answers brought, and how many they are."""
    since = min(int(np.searchsorted(answers, answers[-1] * 2 / 3)), len(estimates) - 3)
    return estimates[-1].value - estimates[since].value, answers[-1] - answers[since]


def kappa(one: Sequence[int], other: Sequence[int]) -> tuple[float, float | None]:
    """Agreement of two people on the same pairs, and Cohen's κ: agreement beyond chance,
    (p_o − p_e) / (1 − p_e). None where both always said the same one thing."""
    x, y = np.asarray(one), np.asarray(other)
    observed = float((x == y).mean())
    expected = float(sum((x == v).mean() * (y == v).mean() for v in Verdict))
    return observed, None if expected == 1 else (observed - expected) / (1 - expected)
