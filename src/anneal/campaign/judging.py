"""How good the models are by the answers that are held back, and which of them serves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anneal.campaign.campaign import FROZEN, Campaign, Pair, pairs_of
from anneal.campaign.store import AUDIT, EVER, Audit
from anneal.method import estimate
from anneal.method.estimate import Drawn, Estimate, Places
from anneal.method.relations import Relations
from anneal.pairs import UNKNOWN, Pairs, Verdict

Noted = dict[tuple[int, int, int], tuple[int, int, float]]
"""(model, a, b) → the pair's places in it, as the store has them."""


@dataclass(frozen=True)
class Model:
    """A round's model, what it had been told, and how good it is by the answers that are held back."""

    round: int  # FROZEN before the first
    answers: int
    bits: float
    minutes: float  # of looking
    p5: Estimate
    precision: Estimate | None  # of "similar", where the model has a limit


def models(campaign: Campaign) -> list[Model]:
    """Every model so far with what it cost and how good it is, by all held-back answers."""
    noted, known = campaign.store.places(), campaign.closure().relations
    drawn, pairs = _drawn(campaign, noted)
    n, open_ = len(campaign.images), np.isin(known.of(pairs), (UNKNOWN, Verdict.UNSURE))
    start = {"answers": 0, "bits": 0.0, "minutes": 0.0}
    found = []
    for number, about in [(FROZEN, start), *campaign.store.rounds()]:
        top = _top(campaign, number, known)
        if top is None:  # its results are lost
            continue
        at, limit = _places(noted, number, pairs), about.get("limit", math.nan)
        p5 = estimate.precision_at_5(drawn, at, open_, n, top)  # what is known taken for true
        told = not math.isnan(limit)
        precision = estimate.precision_of_similar(drawn, at, open_, n, limit) if told else None
        cost = {name: about.get(name, 0) for name in start}
        found.append(Model(number, int(cost["answers"]), cost["bits"], cost["minutes"], p5, precision))
    return found


def decide(campaign: Campaign, number: int, audit: Audit) -> int:
    """Which model is to serve when this round is over: its own, unless the held-back answers say that it
    is worse than the one before it. All that have served are judged again, each against the one whose
    place it took: of a new model little is known yet. ``audit`` has the drawn pairs' places in it."""
    noted = campaign.store.places() | {row[:3]: row[3:] for row in audit.places}
    served = {campaign.serving(before) for before, _ in campaign.store.rounds()} | {campaign.serving()}
    serves, *later = sorted({*served, number})
    for model in later:
        serves = serves if _worse(campaign, model, serves, noted) else model
    return serves


def _worse(campaign: Campaign, model: int, than: int, noted: Noted) -> bool:
    """By what was held back and nothing else: answers that are wrong would speak for the model that has
    learnt them."""
    held = [
        row
        for row in campaign.said()
        if row.strategy == AUDIT
        and row.verdict != Verdict.UNSURE
        and {(model, row.a, row.b), (than, row.a, row.b)} <= noted.keys()
    ]
    similar = np.array([row.verdict == Verdict.SIMILAR for row in held], dtype=bool)
    new, old = (np.array([noted[m, row.a, row.b][2] for row in held]) for m in (model, than))
    return estimate.worse(similar, new, old)


def refusal(campaign: Campaign) -> str:
    """Where the newest model is not in service, a sentence that says so; else nothing."""
    newest, serving = campaign.newest(), campaign.serving()
    if newest == serving:
        return ""
    stays = "the frozen features stay" if serving == FROZEN else f"that of round {serving} stays"
    return (
        f"The newest model, of round {newest}, is not in service: by the held-back answers it finds less "
        f"than the one before, so {stays}."
    )


def advice(campaign: Campaign, models: Sequence[Model]) -> tuple[bool, str]:
    """Whether to stop, and why, by the models that have been in service."""
    served = {FROZEN, *(about.get("serves", number) for number, about in campaign.store.rounds())}
    used = [model for model in models if model.round in served]
    return estimate.advice([model.answers for model in used], [model.p5 for model in used])


def _drawn(campaign: Campaign, noted: Noted) -> tuple[Drawn, Pairs]:
    """The drawn questions that are settled, by their own answers or by others. Of each model's draws
    only those before the first that is not, lest what is answered first be what is easy."""
    audits = campaign.store.audits()
    pairs = pairs_of((a, b) for _, _, a, b in audits)
    told = dict(zip(pairs, campaign.closure().relations.of(pairs).tolist(), strict=True))
    told |= {(row.a, row.b): row.verdict for row in campaign.said() if (row.a, row.b) in told}
    draws: dict[int, int] = {}
    ended: set[int] = set()
    counted: list[Pair] = []
    for model, number, a, b in audits:
        if told[a, b] == UNKNOWN:
            ended.add(model)
        if model not in ended:
            draws[model] = number + 1
            if told[a, b] != Verdict.UNSURE:
                counted.append((a, b))
    similar = np.array([told[pair] == Verdict.SIMILAR for pair in counted], dtype=bool)
    found = pairs_of(counted)
    return Drawn(similar, [_places(noted, model, found) for model in draws], list(draws.values())), found


def _top(campaign: Campaign, model: int, relations: Relations) -> NDArray[np.int8] | None:
    """What is known of each query's five nearest in a model."""
    file = campaign.round_folder(model) / "top.npy"
    if not file.exists():
        return None
    top = np.load(file)  # a query and its results
    queries = np.repeat(top[:, 0], top.shape[1] - 1)
    return relations.of(Pairs.of(queries, top[:, 1:].ravel())).reshape(len(top), -1)


def _places(noted: Noted, model: int, pairs: Pairs) -> Places:
    """Where drawn pairs stand in a model; where that was not noted (its vectors were lost), nowhere."""
    rows = [noted.get((model, a, b), (EVER, EVER, -1.0)) for a, b in pairs]
    ab, ba, score = (np.array([row[i] for row in rows]) for i in range(3))
    return Places(ab, ba, score)
