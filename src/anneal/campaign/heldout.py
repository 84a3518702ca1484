"""Held-out questions: drawn at random, never learnt from. They tell how good each model is and which one
serves (``method.estimate`` has the formulas).

A model that draws must keep its vectors, because a pair drawn later is ranked in it too. So only the frozen
features and the models of rounds 0, 1, 3, 7, 15 … draw; in between, the newest of these goes on.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import FROZEN, Record
from anneal.campaign.store import HeldOut
from anneal.method import estimate
from anneal.method.estimate import Estimate, HeldOutDraws, Ranks
from anneal.method.neighbours import nearest
from anneal.method.relations import Known
from anneal.pairs import UNKNOWN, Floats, Ids, Pair, Pairs, Verdict
from anneal.settings import Settings, Stream

QUERIES = 5000  # images, at most, by which P@5 is measured …
COMPARED = 500_000_000  # … and pairs that this takes, at most: past 100 000 images there are fewer queries
NOWHERE = 2**62  # the rank of a pair in a model in which it was not ranked

Noted = dict[tuple[int, int, int], tuple[int, int, float]]
"""(model, a, b) → the pair's ranks and similarity in that model, as the store has them."""


def is_drawing(number: int) -> bool:
    """Whether the model of this round draws pairs."""
    return (number + 1) & number == 0 or number == FROZEN


def first(vectors: Floats, images: Ids, known: Known, settings: Settings) -> HeldOut:
    """The first held-out pairs, drawn from the frozen space."""
    wanted = round(settings.per_round * settings.heldout)
    drawn = _draw(vectors, images, known, wanted, settings.rng(Stream.HELD_OUT, 0, 0), {})
    rows = [(FROZEN, number, *pair) for number, pair in drawn]
    return HeldOut(rows, _ranked(FROZEN, vectors, images, Pairs.from_list({pair: None for _, pair in drawn})))


def more(campaign: Campaign, vectors: Floats, known: Known, number: int) -> HeldOut:
    """Held-out pairs for the next round, when the model of this round has ``vectors``: as many as are
    missing. All pairs are ranked in the new model, and new pairs in every model whose vectors are there."""
    settings = campaign.settings
    images = campaign.images
    rounds = campaign.rounds
    if not settings.heldout:
        return HeldOut([], [])
    earlier = rounds.heldout_draws()
    pairs = rounds.heldout_pairs()
    drawing = max((model for model, *_ in earlier), default=number)
    if is_drawing(number) or not rounds.has_vectors(drawing):
        drawing = number
    space = vectors if drawing == number else rounds.files(drawing).vectors()
    wanted = round(settings.per_round * settings.heldout) - len(campaign.open_heldout(known))
    rng = settings.rng(Stream.HELD_OUT, drawing + 1, number + 1)
    start = 1 + max((draw for model, draw, *_ in earlier if model == drawing), default=-1)
    drawn = _draw(space, images, known, wanted, rng, pairs)
    new = Pairs.from_list({pair: None for _, pair in drawn if pair not in pairs})
    ranked = _ranked(number, vectors, images, Pairs.from_list(pairs).then(new))
    for model in range(FROZEN, number):
        if rounds.has_vectors(model):
            ranked += _ranked(model, rounds.files(model).vectors(), images, new)
    return HeldOut([(drawing, start + at, *pair) for at, pair in drawn], ranked)


def again(campaign: Campaign) -> HeldOut:
    """The ranks of all held-out pairs in every model whose vectors are there, when the images have changed.
    New images had no chance in earlier draws: until the next ones, the estimates take them to be like the
    others."""
    pairs = Pairs.from_list(campaign.rounds.heldout_pairs())
    ranked = []
    for model in campaign.rounds.kept():
        ranked += _ranked(model, campaign.rounds.files(model).vectors(), campaign.images, pairs)
    return HeldOut([], ranked)


def _draw(
    vectors: Floats, images: Ids, known: Known, n: int, rng: np.random.Generator, old: Container[Pair]
) -> list[tuple[int, Pair]]:
    """(draw, pair) of random pairs, until n of them are new questions. Pairs whose verdict is known
    are counted as draws and left out; ``old`` pairs and those answered unsure are no new question."""
    drawn: list[tuple[int, Pair]] = []
    asked: set[Pair] = set()
    if n < 1 or len(images) < 2:
        return drawn
    pairs = estimate.draw(vectors, images, 8 * n + 16, rng)
    for number, (pair, verdict) in enumerate(zip(pairs, known.of(pairs), strict=True)):
        if verdict in (UNKNOWN, Verdict.UNSURE):
            drawn.append((number, pair))
            if verdict == UNKNOWN and pair not in old:
                asked.add(pair)
        if len(asked) == n:
            break
    return drawn


def _ranked(
    model: int, vectors: Floats, images: Ids, pairs: Pairs
) -> list[tuple[int, int, int, int, int, float]]:
    ranks = estimate.ranks(vectors, images, pairs)
    columns = zip(pairs, ranks.ab.tolist(), ranks.ba.tolist(), ranks.score.tolist(), strict=True)
    return [(model, a, b, ab, ba, score) for (a, b), ab, ba, score in columns]


def query_results(vectors: Floats, images: Ids, rng: np.random.Generator) -> Ids:
    """(queries, 1 + 5): up to 5000 images, the same in every round, and the five nearest of each."""
    most = min(QUERIES, max(COMPARED // max(len(images), 1), 1))
    queries = images if len(images) <= most else np.sort(rng.choice(images, most, replace=False))
    ranking = nearest(vectors, images, np.asarray(vectors[queries]), estimate.K + 1).ids
    others = [row[row != query][: estimate.K] for query, row in zip(queries, ranking, strict=True)]
    return np.column_stack([queries, np.stack(others)])


@dataclass(frozen=True)
class Model:
    """A round's model, what it cost, and how good it is by the held-out answers."""

    round: int  # FROZEN before the first
    answers: int
    bits: float
    minutes: float  # of looking
    p5: Estimate


def models(campaign: Campaign) -> list[Model]:
    """Every model so far. What is known from the other answers is taken for true; the rest is estimated. A
    model whose files were removed keeps its last estimate."""
    noted = campaign.rounds.ranks()
    answered, pairs = _answered(campaign, noted)
    known = campaign.known()
    unsettled = np.isin(known.of(pairs), (UNKNOWN, Verdict.UNSURE))
    n = len(campaign.images)
    every = []
    for record in (Record(FROZEN, 0, FROZEN), *campaign.rounds.records()):
        results = _known_results(campaign, record.number, known)
        if results is not None:
            ranks = _ranks(noted, record.number, pairs)
            p5 = estimate.precision_at_5(answered, ranks, unsettled, n, results)
        elif record.p5 is not None:
            p5 = Estimate(*record.p5)
        else:
            continue
        every.append(Model(record.number, record.answers, record.bits, record.minutes, p5))
    return every


def _answered(campaign: Campaign, noted: Noted) -> tuple[HeldOutDraws, Pairs]:
    """The drawn pairs that have a verdict, by their own answer or by others. Of each model's draws only those
    before its first open one count: what is answered first may be what is easy."""
    draws = campaign.rounds.heldout_draws()
    live = campaign.rounds.heldout_pairs()
    pairs = Pairs.from_list((a, b) for _, _, a, b in draws)
    log = campaign.log()
    verdict = dict(zip(pairs, campaign.known().of(pairs).tolist(), strict=True))
    for pair in verdict:
        for row in log.standing_on(pair):
            verdict[pair] = row.verdict
    counts: dict[int, int] = {}
    ended: set[int] = set()
    counted: list[Pair] = []
    for model, number, a, b in draws:
        if (a, b) not in live:
            continue
        if verdict[a, b] == UNKNOWN:
            ended.add(model)
        if model not in ended:
            counts[model] = number + 1
            if verdict[a, b] != Verdict.UNSURE:
                counted.append((a, b))
    similar = np.array([verdict[pair] == Verdict.SIMILAR for pair in counted], dtype=bool)
    answered = Pairs.from_list(counted)
    ranks = [_ranks(noted, model, answered) for model in counts]
    return HeldOutDraws(similar, ranks, list(counts.values())), answered


def _known_results(campaign: Campaign, model: int, known: Known) -> NDArray[np.int8] | None:
    """(queries, 5) what is known of each query's five nearest in a model; None if its files are gone."""
    results = campaign.rounds.files(model).nearest()
    if results is None:
        return None
    queries = np.repeat(results[:, 0], results.shape[1] - 1)
    return known.of(Pairs.of(queries, results[:, 1:].ravel())).reshape(len(results), -1)


def _ranks(noted: Noted, model: int, pairs: Pairs) -> Ranks:
    rows = [noted.get((model, a, b), (NOWHERE, NOWHERE, -1.0)) for a, b in pairs]
    return Ranks(*(np.array([row[i] for row in rows]) for i in range(3)))


def choose_serving(campaign: Campaign, number: int, heldout: HeldOut) -> int:
    """The number of the model that serves after this round: its own, unless the held-out answers say that it
    is worse than the one before. Every model that has served, and whose files are there, is compared again
    with the one before it, because little is known of a new model. ``heldout`` has the new model's ranks."""
    rounds = campaign.rounds
    noted = campaign.rounds.ranks() | {row[:3]: row[3:] for row in heldout.ranks}
    served = {FROZEN, *(record.serving for record in rounds.records())}
    served = {model for model in served if rounds.is_whole(model)}
    serving, *later = sorted({*served, number})
    for model in later:
        if not _is_worse(campaign, model, serving, noted):
            serving = model
    return serving


def _is_worse(campaign: Campaign, model: int, than: int, noted: Noted) -> bool:
    """By the held-out answers alone: a wrong answer speaks for the model that has learnt it."""
    asked = sorted(campaign.tally().heldout.values(), key=lambda row: row.id)
    settled = [row for row in asked if row.verdict != Verdict.UNSURE]
    rows = [row for row in settled if (model, *row.pair) in noted and (than, *row.pair) in noted]
    similar = np.array([row.verdict == Verdict.SIMILAR for row in rows], dtype=bool)
    new = np.array([noted[model, row.a, row.b][2] for row in rows])
    old = np.array([noted[than, row.a, row.b][2] for row in rows])
    return estimate.worse(similar, new, old)


def refusal(campaign: Campaign) -> str:
    """A sentence that says so if the newest model does not serve; else nothing."""
    records = campaign.rounds.records()
    newest = len(records) - 1
    serving = records[-1].serving if records else FROZEN
    if newest == serving:
        return ""
    stays = "the frozen features stay" if serving == FROZEN else f"the model of round {serving} stays"
    return f"The model of round {newest} does not serve: by the held-out answers it is worse, so {stays}."


def prune(campaign: Campaign, pinned: Iterable[int] = ()) -> None:
    """Remove the files of old rounds that do not draw. The last estimate of each goes into its record."""
    drawing = {model for model, *_ in campaign.rounds.heldout_draws()}
    old = campaign.rounds.unneeded({*drawing, *pinned})
    if old and campaign.settings.heldout:
        estimates = {model.round: model.p5 for model in models(campaign)}
        for record in old:
            p5 = estimates.get(record.number)
            if p5 is not None:
                campaign.rounds.save(replace(record, p5=(p5.value, p5.low, p5.high)))
    campaign.store.remove_ranks([record.number for record in old])
    for record in old:
        campaign.rounds.files(record.number).remove()
