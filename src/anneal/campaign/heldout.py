"""Questions drawn by lot in every round, to measure the models with; ``quality`` says what they tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anneal.campaign.campaign import FROZEN, Campaign, Pair, pairs_of
from anneal.campaign.store import AUDIT, Audit, Questions
from anneal.method import estimate
from anneal.method.neighbours import nearest
from anneal.method.relations import Relations
from anneal.pairs import UNKNOWN, Floats, Ids, Pairs, Verdict
from anneal.settings import Plan

QUERIES = 5000  # images whose nearest are looked at to tell how good a model is


@dataclass(frozen=True)
class Lot:
    """What was drawn for a model: the questions that must be asked, and what the store keeps of it all."""

    asked: Pairs
    kept: Audit


def first(vectors: Floats, images: Ids, known: Relations, plan: Plan) -> Lot:
    """Drawn from the frozen space, when there is no other model."""
    rows, asked = _draw(vectors, images, known, plan, FROZEN, set())
    pairs = pairs_of({(a, b) for _, _, a, b in rows})
    return Lot(asked, Audit(rows, _places(FROZEN, vectors, images, pairs)))


def draw(campaign: Campaign, vectors: Floats, known: Relations, number: int) -> Lot:
    """Drawn from a round's new model. Where these and all earlier ones stand is noted, in every model."""
    images = campaign.images
    judged = {(row.a, row.b) for row in campaign.store.standing()}
    rows, asked = _draw(vectors, images, known, campaign.plan, number, judged)
    before = {(a, b) for _, _, a, b in campaign.store.audits()}
    new = {(a, b) for _, _, a, b in rows} - before
    places = _places(number, vectors, images, pairs_of(before | new))
    for model in range(FROZEN, number):
        if (campaign.round_folder(model) / "vectors.npy").exists():
            places += _places(model, campaign.vectors_of(model), images, pairs_of(new))
    return Lot(asked, Audit(rows, places))


def _draw(
    vectors: Floats, images: Ids, known: Relations, plan: Plan, model: int, judged: set[Pair]
) -> tuple[list[tuple[int, int, int, int]], Pairs]:
    """As many of a round's questions as the plan says, and those of them that must be asked: of a pair
    that is settled nothing need be, of one that was judged before (and held back, or unsure) neither."""
    wanted = round(plan.per_round * plan.audit)
    rows: list[tuple[int, int, int, int]] = []
    asked: dict[Pair, None] = {}
    if wanted and len(images) > 1:
        drawn = estimate.draw(vectors, images, 8 * wanted + 16, plan.rng(6, model + 1))
        for number, ((a, b), verdict) in enumerate(zip(drawn, known.of(drawn), strict=True)):
            if verdict in (UNKNOWN, Verdict.UNSURE) and len(asked) < wanted:
                rows.append((model, number, a, b))
                if (a, b) not in judged:
                    asked[a, b] = None
    return rows, pairs_of(asked)


def _places(
    model: int, vectors: Floats, images: Ids, pairs: Pairs
) -> list[tuple[int, int, int, int, int, float]]:
    at = estimate.places(vectors, images, pairs)
    columns = zip(pairs, at.ab.tolist(), at.ba.tolist(), at.score.tolist(), strict=True)
    return [(model, a, b, ab, ba, score) for (a, b), ab, ba, score in columns]


def mixed(chosen: Questions, drawn: Pairs) -> Questions:
    """A round's questions: those drawn by lot take the place of as many chosen ones, evenly spread. One that
    was both chosen and drawn counts as chosen: what is held back must not differ from what is not."""
    wanted = set(chosen.pairs)
    lot = pairs_of(pair for pair in drawn if pair not in wanted)
    n = max(len(chosen) - len(lot), 0)
    places = [(i + 0.5) / of for of in (n, len(lot)) for i in range(of)]
    order = np.argsort(places, kind="stable")
    levels = (chosen.levels or (None,) * len(chosen))[:n] + (None,) * len(lot)
    strategies = chosen.strategies[:n] + (AUDIT,) * len(lot)
    return Questions(
        chosen.pairs[:n].then(lot)[order],
        chosen.round,
        tuple(strategies[i] for i in order),
        tuple(levels[i] for i in order),
    )


def top(vectors: Floats, images: Ids, rng: np.random.Generator) -> Ids:
    """(queries, 1 + 5): up to 5000 images, drawn once and for all, and the five nearest of each."""
    queries = images if len(images) <= QUERIES else np.sort(rng.choice(images, QUERIES, replace=False))
    ranking = nearest(vectors, images, np.asarray(vectors[queries]), estimate.K + 1).ids
    others = [row[row != query][: estimate.K] for query, row in zip(queries, ranking, strict=True)]
    return np.column_stack([queries, np.stack(others)])
