"""How far a campaign is: what was said, by whom and how fast, what it has cost, what the machine is at."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from anneal.campaign.campaign import Campaign, Pair
from anneal.method import estimate
from anneal.pairs import UNKNOWN, Verdict

SILENT = 10.0  # seconds without a sign of life after which the machine is taken to be away
PAUSE = 60_000  # milliseconds: looking longer than this is counted as a pause


@dataclass(frozen=True)
class Standing:
    """How far the campaign is."""

    images: int
    answers: int
    similar: int
    dissimilar: int
    unsure: int
    held_back: int  # of the answers: those to questions drawn at random, which measure and do not teach
    labels: int
    implied: int
    contradictions: int
    rounds: int
    queued: int
    share: float | None  # similar ones among the latest answers


def standing(campaign: Campaign) -> Standing:
    rows, closure = campaign.said(), campaign.closure()
    verdicts = [row.verdict for row in rows]
    answers = campaign.store.answers(held_back=False)
    queue = campaign.store.questions()
    judged = {(row.a, row.b) for row in rows}
    unknown = closure.relations.of(queue.pairs) == UNKNOWN
    return Standing(
        images=campaign.size,
        answers=len(rows),
        similar=verdicts.count(Verdict.SIMILAR),
        dissimilar=verdicts.count(Verdict.DISSIMILAR),
        unsure=verdicts.count(Verdict.UNSURE),
        held_back=campaign.store.held_back()[0],
        labels=len(campaign.store.labels()),
        implied=int(closure.relations.implied(answers)),
        contradictions=len(closure.contradictions),
        rounds=len(campaign.store.rounds()),
        queued=sum(bool(u) and p not in judged for u, p in zip(unknown, queue.pairs, strict=True)),
        share=campaign.share(),
    )


def cost(campaign: Campaign) -> dict[str, float]:
    """What the answers so far have cost: how many, bits, minutes of looking."""
    given, labels = campaign.store.given(), campaign.store.labels()
    bits = given + len(labels) * math.log2(max(len(set(labels.values())), 1))
    minutes = campaign.store.looked(PAUSE) / 60_000
    return {"answers": given, "bits": round(bits, 1), "minutes": round(minutes, 2)}


def due(campaign: Campaign) -> tuple[int, int]:
    """How many answers the newest model has not seen, and how many make it worth another turn."""
    rounds = campaign.store.rounds()
    seen = rounds[-1][1].get("row", 0) if rounds else 0
    return campaign.store.fresh(seen), math.ceil(campaign.plan.per_round / 3)


def machine(campaign: Campaign) -> dict[str, Any]:
    """What the machine is doing, in numbers and in a sentence."""
    at, about = campaign.store.machine()
    fresh, needed = due(campaign)
    state = about.get("state", "absent") if time.time() - at < SILENT else "absent"
    bar = {name: about.get(name, start) for name, start in (("step", ""), ("done", 0), ("total", 1))}
    text = _machine_text(state, about, fresh, needed)
    return {"state": state, **bar, "text": text, "fresh": fresh, "needed": needed}


def people(campaign: Campaign) -> list[dict[str, Any]]:
    """Who has answered how much, and how fast of late."""
    rows = defaultdict(list)
    for row in campaign.said():
        rows[row.annotator].append(row)
    return [
        {
            "annotator": name,
            "answers": len(said),
            "unsure": sum(row.verdict == Verdict.UNSURE for row in said),
            "per_minute": _pace([row.looked for row in said[-20:] if row.looked]),
        }
        for name, said in sorted(rows.items())
    ]


def agreement(campaign: Campaign) -> list[dict[str, Any]]:
    """For every two people who judged the same pairs: how many, how often alike, Cohen's κ."""
    said: dict[str, dict[Pair, int]] = defaultdict(dict)
    for row in campaign.said():
        said[row.annotator][row.a, row.b] = row.verdict
    found = []
    for one, other in combinations(sorted(said), 2):
        both = sorted(said[one].keys() & said[other].keys())
        if both:
            alike, kappa = estimate.kappa([said[one][p] for p in both], [said[other][p] for p in both])
            found.append({"one": one, "other": other, "pairs": len(both), "agreement": alike, "kappa": kappa})
    return found


def shares(campaign: Campaign) -> list[dict[str, Any]]:
    """Of each round's chosen questions, how many were answered and which share was similar."""
    rounds: dict[int, list[int]] = defaultdict(list)
    for number, verdict in campaign.settled():
        rounds[number].append(verdict)
    return [
        {"round": number, "answers": len(said), "similar": said.count(Verdict.SIMILAR) / len(said)}
        for number, said in sorted(rounds.items())
    ]


def _machine_text(state: str, about: dict[str, Any], fresh: int, needed: int) -> str:
    if state == "learning":
        return f"The machine is {about.get('step', 'learning')}…"
    if state == "failed":
        left = max(round(about.get("again", 0) - time.time()), 0)
        return f"The machine's last turn failed: {about.get('error', '')} It tries again in {left} s."
    if state == "restarting":
        code = about.get("code")
        return f"The machine stopped (exit code {code}) and is being started again; nothing is lost."
    if state == "absent":
        return "The machine is not running. Answers are kept; anneal label starts it."
    if fresh >= needed:
        return "The machine is about to learn from your answers."
    return f"The machine learns after {needed - fresh} more answers."


def _pace(looked: Sequence[int]) -> float | None:
    """Answers a minute."""
    return round(60_000 * len(looked) / sum(min(ms, PAUSE) for ms in looked), 1) if looked else None
