"""How good retrieval is, estimated from the answers to held-out questions. Arrays only.

Some questions are drawn at random: an image, then one of its neighbours, at a rank drawn within ``STRATA``.
The model never learns from their answers. P@5 is the share of similar pairs among the pairs of an image and
one of its five nearest. Pairs whose verdict follows from the other answers are counted exactly, and only
the rest is estimated. A pair drawn for an early model also counts for a later one. Its weight is how often
it is among the later model's five nearest, divided by the expected number of draws of it over all models
so far (importance sampling with the balance heuristic).
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from anneal.files import release
from anneal.method.mining import pairwise
from anneal.method.neighbours import rows_of
from anneal.pairs import Floats, Ids, Pairs, Verdict

K = 5
STRATA = ((0.6, K), (0.2, 25), (0.1, 125), (0.1, 2**62))  # share of the questions, rank of the end
Z = 1.96  # 95 %
SCORES = 2**25  # similarities held at a time, at most
BLOCK = 16384  # images that are compared at a time


@dataclass(frozen=True)
class Estimate:
    """A share with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Ranks:
    """Pairs as one model sees them."""

    ab: Ids  # the rank of b among the neighbours of a; 0 is the nearest
    ba: Ids  # the rank of a among the neighbours of b
    score: Floats  # the similarity


def draw(vectors: Floats, images: Ids, n: int, rng: np.random.Generator, strip: int = 64) -> Pairs:
    """n random pairs: for each a stratum, an image, and a neighbour within the stratum. Pairs may repeat."""
    shares, starts, ends = _strata(len(images))
    stratum = rng.choice(len(shares), n, p=shares)
    anchors = rng.integers(0, len(images), n)
    rank = rng.integers(starts[stratum], ends[stratum])
    neighbours = np.empty(n, dtype=np.int64)
    for i, s in _strips(vectors, images, anchors, strip):
        neighbours[i] = _column_at(s, rank[i])
    return Pairs.of(images[anchors], images[neighbours])


def ranks(vectors: Floats, images: Ids, pairs: Pairs, strip: int = 64) -> Ranks:
    """The ranks of these pairs among the sorted ``images``, in the space of ``vectors``."""
    ab = _rank(vectors, images, pairs.a, pairs.b, strip)
    ba = _rank(vectors, images, pairs.b, pairs.a, strip)
    return Ranks(ab, ba, pairwise(vectors, pairs))


def _rank(vectors: Floats, images: Ids, anchors: Ids, neighbours: Ids, strip: int) -> Ids:
    """The rank of each neighbour for its anchor. Of equally similar images the smaller id comes first."""
    rank = np.empty(len(anchors), dtype=np.int64)
    columns = np.searchsorted(images, neighbours)
    for i, s in _strips(vectors, images, np.searchsorted(images, anchors), strip):
        own = s[columns[i]]
        rank[i] = np.count_nonzero(s > own) + np.count_nonzero(s[: columns[i]] == own)
    return rank


def _strips(vectors: Floats, images: Ids, anchors: Ids, strip: int) -> Iterator[tuple[int, Floats]]:
    """The number of each anchor (a row of ``images``), and its similarity to all of ``images``: −∞ to itself,
    because an image is not its own neighbour. At most ``strip`` anchors are compared at a time."""
    strip = min(strip, max(SCORES // max(len(images), 1), 1))
    for i in range(0, len(anchors), strip):
        some = anchors[i : i + strip]
        queries = np.asarray(vectors[images[some]])
        s = np.empty((len(some), len(images)), dtype=queries.dtype)
        for j in range(0, len(images), BLOCK):
            s[:, j : j + BLOCK] = queries @ rows_of(vectors, images[j : j + BLOCK]).T
            release(vectors)
        s[np.arange(len(s)), some] = -np.inf
        yield from enumerate(s, start=i)


def _column_at(s: Floats, rank: int) -> int:
    """The column at this rank, the highest value first; of equal values the first column."""
    last = len(s) - 1 - rank
    value = np.partition(s, last)[last]
    ties = np.flatnonzero(s == value)
    return int(ties[rank - np.count_nonzero(s > value)])


def _strata(n: int) -> tuple[Floats, Ids, Ids]:
    """The shares, first ranks and end ranks of the strata that n images have; the shares sum to one."""
    shares = np.array([share for share, _ in STRATA])
    ends = np.array([min(end, n - 1) for _, end in STRATA])
    starts = np.concatenate([[0], ends[:-1]])
    some = starts < ends
    return shares[some] / shares[some].sum(), starts[some], ends[some]


def draw_density(ranks: Ranks, n: int) -> Floats:
    """The probability that one draw, from a model with these ranks of n images, is each of these pairs."""
    density = np.zeros(len(ranks.ab))
    for share, start, end in zip(*_strata(n), strict=True):
        for rank in (ranks.ab, ranks.ba):
            inside = (rank >= start) & (rank < end)
            density += inside * share / (n * (end - start))
    return density


@dataclass(frozen=True)
class HeldOutDraws:
    """The held-out questions that have an answer, with the ranks and the draws of each model."""

    similar: NDArray[np.bool_]  # (m,)
    ranks: Sequence[Ranks]  # one per model, each of the m pairs
    draws: Sequence[int]  # one per model: how many pairs were drawn from it

    def expected(self, n: int) -> Floats:
        """(m,) how often each pair is expected among all draws: Σ_k draws_k · density_k"""
        total = np.zeros(len(self.similar))
        for ranks, draws in zip(self.ranks, self.draws, strict=True):
            total += draws * draw_density(ranks, n)
        return total


def weighted_share(weights: Floats, similar: NDArray[np.bool_]) -> Estimate:
    """The weighted share of similar pairs, with Wilson's interval at an effective number of answers: Kish's,
    or less where the weights depend on the verdicts."""
    total = weights.sum()
    if not total:
        return Estimate(0.5, 0.0, 1.0)  # nothing is known
    p = float((weights * similar).sum() / total)
    m = float(total**2 / np.square(weights).sum())
    spread = np.square(weights * (similar - p)).sum()
    if spread:
        m = min(m, float(p * (1 - p) * total**2 / spread))
    centre = (p + Z**2 / (2 * m)) / (1 + Z**2 / m)
    half = Z * np.sqrt(p * (1 - p) / m + Z**2 / (4 * m**2)) / (1 + Z**2 / m)
    low = min(centre - half, p)  # p is inside the interval, except for rounding
    high = max(centre + half, p)
    return Estimate(p, max(low, 0.0), min(high, 1.0))


def precision_at_5(
    drawn: HeldOutDraws, ranks: Ranks, unsettled: NDArray[np.bool_], n: int, top: NDArray[np.int8]
) -> Estimate:
    """P@5 of a model with these ``ranks`` of the drawn pairs. ``unsettled`` marks the pairs whose verdict the
    other answers do not imply. ``top`` (queries, 5) holds the verdicts that they imply on results, or 0."""
    hits = (top == Verdict.SIMILAR).mean()
    unknown = 1 - ((top == Verdict.SIMILAR) | (top == Verdict.DISSIMILAR)).mean()
    near = (ranks.ab < K).astype(float) + (ranks.ba < K)  # a pair may count in both directions
    weights = np.where(unsettled, near / np.maximum(drawn.expected(n), 1e-300), 0.0)
    rest = weighted_share(weights, drawn.similar)
    return Estimate(*(float(hits + unknown * share) for share in astuple(rest)))


def worse(similar: NDArray[np.bool_], new: Floats, old: Floats) -> bool:
    """Whether the similarities of a new model separate the judged pairs worse than those of an old one: the
    difference in area under the ROC curve is below zero by two standard errors (DeLong et al. 1988). With
    fewer than five pairs of either kind the result is False."""
    count_similar = similar.sum()
    count_dissimilar = (~similar).sum()
    if min(count_similar, count_dissimilar) < 5:
        return False
    difference = _ordered(similar, new) - _ordered(similar, old)  # (similar, dissimilar)
    variance = difference.mean(axis=1).var(ddof=1) / count_similar
    variance += difference.mean(axis=0).var(ddof=1) / count_dissimilar
    return bool(difference.mean() < -2 * np.sqrt(variance) and difference.mean() < 0)


def _ordered(similar: NDArray[np.bool_], s: Floats) -> Floats:
    """1 where a similar pair has a higher similarity than a dissimilar one, ½ where they tie, else 0."""
    return np.asarray((np.sign(s[similar][:, None] - s[~similar][None, :]) + 1) / 2)


def kappa(one: Sequence[int], other: Sequence[int]) -> tuple[float, float | None]:
    """The agreement of two people on the same pairs, and Cohen's κ = (p_o − p_e) / (1 − p_e), the
    agreement beyond chance. κ is None if both always give the same single verdict."""
    x = np.asarray(one)
    y = np.asarray(other)
    observed = float((x == y).mean())
    expected = float(sum((x == v).mean() * (y == v).mean() for v in Verdict))
    return observed, None if expected == 1 else (observed - expected) / (1 - expected)
