"""Which questions to ask. A strategy is two plain functions:

    plan(snapshot, n, rng) → Agenda            once a round
    pick(snapshot, agenda, n, rng) → Pairs     whenever questions are wanted, with the answers since then

``pick`` returns n distinct pairs that are neither known nor pending, fewer only if there are no more. Both
hold no state. To add a strategy, write a function (snapshot, n, rng) → Pairs and wrap it with ``batch``.
"""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.random import Generator

from anneal.errors import UsageError
from anneal.method import placing, steering, uncertainty
from anneal.method.diversity import DIVERSITIES, Diversity, kmeans, representatives
from anneal.method.groups import candidates
from anneal.method.mining import cosine, mine, pairwise
from anneal.method.sheets import Sheet
from anneal.method.similarity import Similarity
from anneal.method.snapshot import Agenda, Snapshot
from anneal.method.tiles import Measure, mine_near
from anneal.pairs import UNKNOWN, Floats, Ids, Pairs, Verdict
from anneal.settings import Settings

Plan = Callable[[Snapshot, int, Generator], Agenda]
Pick = Callable[[Snapshot, Agenda, int, Generator], Pairs]
ShowSheet = Callable[[Snapshot, Agenda, int, Generator], Sheet]
Select = Callable[[Snapshot, int, Generator], Pairs]

WIDEN = 4  # p = 4h: the most uncertain pairs, of which a quarter is asked
LARGE = 100_000  # images: with more, first questions are drawn from …
POOL = 20_000  # … this many of them, because all images are sorted for each question
SUPER_INSTANCES = 2000  # of COBRA, at most
FEEDBACK = 10  # questions about a query in a round


@dataclass(frozen=True)
class Strategy:
    """Two functions and what they need: a pair classifier beside the metric, the likely group of images."""

    name: str
    plan: Plan
    pick: Pick
    pair_classifier: bool = False
    groups: bool = False
    sheet: ShowSheet | None = None  # the next sheet, of at most n tiles; empty if none pays


def strategies(settings: Settings) -> dict[str, Strategy]:
    """The strategies of this package, by name."""
    diversity = DIVERSITIES[settings.diversity]
    plan_mgue = partial(mgue, settings=settings, diversity=diversity)
    plan_place = partial(placing.plan, with_sheets=settings.sheets > 0)
    every = (
        Strategy("place", plan_place, placing.pick, groups=True, sheet=placing.sheet),
        Strategy("mgue", plan_mgue, partial(listed, share=settings.share)),
        batch("bcgue", partial(bcgue, diversity=diversity), pair_classifier=True),
        replace(batch("random", random), pick=partial(listed, more=random)),
        Strategy("cobra", cobra, pick_cobra),
        batch("pfma", pfma),
    )
    return {strategy.name: strategy for strategy in every}


def chosen(settings: Settings) -> Strategy:
    """The strategy that the settings name: one of this package, or ``module:name``, which is a Strategy or a
    function (snapshot, n, rng) → Pairs."""
    module, _, name = settings.strategy.partition(":")
    if not name:
        every = strategies(settings)
        if module not in every:
            raise UsageError(
                f"--strategy {module!r}: choose place or mgue, or give module:name. (anneal simulate --help "
                "lists those for experiments.)"
            )
        return every[module]
    if "" not in sys.path:
        sys.path.append("")  # a module in the current folder, which takes the place of no other
    try:
        own = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--strategy {settings.strategy!r} could not be imported: {error}.") from error
    return own if isinstance(own, Strategy) else batch(settings.strategy, own)


def batch(name: str, select: Select, *, pair_classifier: bool = False) -> Strategy:
    """A strategy that selects all pairs of a round at once."""
    return Strategy(name, lambda snapshot, n, rng: Agenda(select(snapshot, n, rng)), listed, pair_classifier)


def mgue(
    snapshot: Snapshot,
    n: int,
    rng: Generator,
    settings: Settings,
    diversity: Diversity = kmeans,
    budget: int | None = None,
) -> Agenda:
    """Metric-guided: the pairs nearest the threshold between similar and dissimilar, moved by the lean. With
    more pairs than the ``budget`` only those of some images are looked at (``tiles.mine_near``)."""
    threshold = mgue_threshold(snapshot, settings)
    if np.isnan(threshold) or len(np.unique(snapshot.images)) < 2:
        return Agenda(cold(snapshot, n, rng))
    lean = steering.lean(snapshot, threshold, settings.share, rng)
    if lean:
        level = steering.levels(snapshot.vectors, snapshot.images, threshold, rng) * np.exp(lean)
        threshold = steering.similarity_at(snapshot.vectors, snapshot.images, float(level), rng)
    similarity = Similarity.of(snapshot.vectors, threshold, WIDEN * n)
    return Agenda(_uncertain_and_diverse(snapshot, similarity, n, rng, diversity, budget), lean=lean)


def mgue_threshold(snapshot: Snapshot, settings: Settings) -> float:
    """α_t, or with ``logistic`` the similarity at which the answers are as likely similar as dissimilar; nan
    until both kinds of pair are known."""
    moments = uncertainty.moments(snapshot.vectors, snapshot.known)
    if not moments.complete:
        return float("nan")
    if settings.threshold == "moments":
        return uncertainty.alpha_t(moments, settings.lam)
    return _even_chance(snapshot)


def _even_chance(snapshot: Snapshot) -> float:
    """The similarity at which a logistic fit of the answers gives ½."""
    answers = snapshot.answers
    settled = answers.verdicts != Verdict.UNSURE
    s = pairwise(snapshot.vectors, answers.pairs[settled])
    return uncertainty.fit_logistic(s, answers.verdicts[settled] == Verdict.SIMILAR)[1]


def bcgue(snapshot: Snapshot, n: int, rng: Generator, diversity: Diversity = kmeans) -> Pairs:
    """Classifier-guided: the pairs to which the pair classifier gives a probability near ½."""
    if snapshot.probability is None:
        return cold(snapshot, n, rng)
    return _uncertain_and_diverse(snapshot, snapshot.probability, n, rng, diversity)


def _uncertain_and_diverse(
    snapshot: Snapshot,
    measure: Measure,
    n: int,
    rng: Generator,
    diversity: Diversity,
    budget: int | None = None,
) -> Pairs:
    """The paper's two steps: the p = 4n pairs nearest the middle, then n that differ."""
    mined = mine_near(
        measure, snapshot.images, snapshot.known, WIDEN * n, rng, budget=budget, workers=snapshot.workers
    )
    return diversity(snapshot.vectors, mined, n, rng)


def cobra(snapshot: Snapshot, n: int, rng: Generator) -> Agenda:
    """Merge over-clusters (COBRA, Van Craenendonck et al. 2018): k-means makes super-instances, as many as
    images were asked about and n more, and the most similar pair of their representatives is asked first.
    Similar merges and dissimilar separates, by the closure. An image that has a relation represents its
    super-instance before the medoid does, so that earlier answers count."""
    images = rng.permutation(candidates(snapshot.images, snapshot.known, rng))
    has = snapshot.known.has_relations(images)
    count = min(int(has.sum()) + n, SUPER_INSTANCES)
    if count < len(images):
        images = images[representatives(np.asarray(snapshot.vectors[images]), count, has, rng)[0]]
    return Agenda(_closest(snapshot, images, WIDEN * WIDEN * n, rng), images)


def pick_cobra(snapshot: Snapshot, agenda: Agenda, n: int, rng: Generator) -> Pairs:
    """The planned pairs that are still open, then other pairs of representatives, the most similar first."""

    def others(snapshot: Snapshot, n: int, rng: Generator) -> Pairs:
        return _closest(snapshot, agenda.images, n + len(snapshot.pending), rng)

    pairs = listed(snapshot, agenda, n, rng, more=others)
    return pairs if len(pairs) >= n else listed(snapshot, Agenda(pairs), n, rng)


def _closest(snapshot: Snapshot, images: Ids, n: int, rng: Generator) -> Pairs:
    """The n most similar unknown pairs of these images."""
    return mine(images, cosine(snapshot.vectors), snapshot.known, n, rng).pairs


def pfma(snapshot: Snapshot, n: int, rng: Generator) -> Pairs:
    """Relevance feedback on random queries, positive first (after PF-MA, Zaher et al. 2026): for each query
    in turn the most similar unknown image, which is a likely positive, and the most ambiguous one, whose
    similarity is nearest to where the answers are as likely similar as dissimilar. Until there are answers
    of both kinds, likely positives alone."""
    images = np.unique(snapshot.images)
    if len(images) > LARGE:
        images = np.sort(rng.choice(images, POOL, replace=False))
    given = set(snapshot.answers.verdicts.tolist())
    threshold = _even_chance(snapshot) if {Verdict.SIMILAR, Verdict.DISSIMILAR} <= given else np.inf
    pairs = Pairs.none()
    for query in rng.permutation(images)[: -(-n // FEEDBACK)].tolist():
        others = rng.permutation(images[snapshot.known.among(np.array([query]), images)[0] == UNKNOWN])
        s = snapshot.vectors[others] @ snapshot.vectors[query]
        positive = np.argsort(-s, kind="stable")
        ambiguous = np.argsort(np.abs(s - threshold), kind="stable") if np.isfinite(threshold) else positive
        both = np.column_stack([positive, ambiguous]).ravel()
        distinct = both[np.sort(np.unique(both, return_index=True)[1])][:FEEDBACK]
        pairs = pairs.then(Pairs.of(np.full(len(distinct), query), others[distinct]))
    return pairs[:n]


def random(snapshot: Snapshot, n: int, rng: Generator) -> Pairs:
    """Any unknown pairs, each with the same probability."""
    images = np.unique(snapshot.images)
    pairs = Pairs.none()
    if len(images) < 2:
        return pairs
    for _ in range(20):  # drawing is quick while most pairs are unknown
        i, j = rng.choice(images, (2, 2 * n + 16))
        pairs = _distinct_unknown(snapshot, pairs.then(Pairs.of(i[i != j], j[i != j])))
        if len(pairs) >= n:
            return pairs[:n]
    enough = n + len(snapshot.pending)
    mined = mine(images, lambda i, j: np.zeros((len(i), len(j))), snapshot.known, enough, rng)
    return _distinct_unknown(snapshot, mined.pairs)[:n]


def cold(snapshot: Snapshot, n: int, rng: Generator) -> Pairs:
    """First questions, when nothing is known: an image beside a neighbour, whose rank is drawn evenly on a
    logarithmic scale. Nearly all random pairs are dissimilar and nearly all nearest neighbours are similar;
    this gives a mix of both."""
    images = np.unique(snapshot.images)
    pairs = Pairs.none()
    if len(images) < 2:
        return pairs
    if len(images) > LARGE:
        images = np.sort(rng.choice(images, POOL, replace=False))
    for _ in range(20):
        anchors = rng.permutation(images)[: n + 16]
        rank = np.exp(rng.uniform(0, np.log(len(images)), len(anchors))).astype(np.int64)
        neighbour = _neighbour(snapshot.vectors, images, anchors, rank)
        other = anchors != neighbour
        pairs = _distinct_unknown(snapshot, pairs.then(Pairs.of(anchors[other], neighbour[other])))
        if len(pairs) >= n:
            return pairs[:n]
    return random(snapshot, n, rng)


def listed(
    snapshot: Snapshot, agenda: Agenda, n: int, rng: Generator, *, share: float = 0.0, more: Select = cold
) -> Pairs:
    """The agenda's pairs that are still open, steered where a share of similar answers is aimed at. Where the
    list is used up before the next one is made, ``more`` adds to it."""
    pairs = steering.steered(snapshot, _distinct_unknown(snapshot, agenda.pairs), share)
    if len(pairs) < n:
        pairs = _distinct_unknown(snapshot, pairs.then(more(snapshot, n, rng)))
    return pairs[:n]


def _distinct_unknown(snapshot: Snapshot, pairs: Pairs) -> Pairs:
    """Those that are unknown and not pending, each once, in the order given."""
    n = len(snapshot.known)
    keys = pairs.a * n + pairs.b
    first = np.sort(np.unique(keys, return_index=True)[1])
    pending = snapshot.pending.a * n + snapshot.pending.b
    once = pairs[first[~np.isin(keys[first], pending)]]
    return once[snapshot.known.of(once) == UNKNOWN]


def _neighbour(vectors: Floats, images: Ids, anchors: Ids, rank: Ids) -> Ids:
    """For each anchor its neighbour of the given rank; rank 0 is the anchor itself."""
    neighbours = np.empty(len(anchors), dtype=np.int64)
    for i in range(0, len(anchors), 64):
        some = slice(i, i + 64)
        order = np.argsort(-(vectors[anchors[some]] @ vectors[images].T), axis=1)
        neighbours[some] = images[np.take_along_axis(order, rank[some, None], axis=1)[:, 0]]
    return neighbours
