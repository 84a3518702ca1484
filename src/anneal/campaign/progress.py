"""How far a campaign is: what was said, by whom and how fast, and what the machine is doing."""

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from anneal.campaign import guidance
from anneal.campaign.campaign import Campaign
from anneal.campaign.check import in_words, lost
from anneal.campaign.evidence import answers_of
from anneal.campaign.inventory import Reason
from anneal.campaign.log import PAUSE
from anneal.campaign.questions import LATEST
from anneal.campaign.store import MACHINE
from anneal.method import estimate, steering
from anneal.pairs import UNKNOWN, Answers, Pair, Verdict
from anneal.words import count

RETIRED = {
    Reason.REMOVED: "Retired because the file is gone",
    Reason.CHANGED: "Retired because the file has other content",
    Reason.DUPLICATE: "Left out because another file is the same",
    Reason.NEAR: "Left out because another image shows the same picture",
}
FOUND = ("new", "changed", "moved", "removed", "returned", "skipped", "duplicates")  # by an update
SILENT = 10.0  # seconds without a sign of life until the machine counts as absent


@dataclass(frozen=True)
class Standing:
    """The counts that every view shows."""

    images: int
    answers: int
    similar: int
    dissimilar: int
    unsure: int
    heldout: int  # answers that measure and do not teach
    labels: int
    implied: int
    contradictions: int
    rounds: int
    share: float | None  # of similar ones among the latest answers
    waiting: int  # pairs that are asked again; their answers do not count meanwhile
    alone: int | None  # images without a group; None for a large archive


def standing(campaign: Campaign) -> Standing:
    tally = campaign.tally()
    latest = campaign.log().latest(LATEST)
    return Standing(
        images=campaign.size - len(campaign.retired()),
        answers=sum(tally.verdicts.values()),
        similar=tally.verdicts[Verdict.SIMILAR],
        dissimilar=tally.verdicts[Verdict.DISSIMILAR],
        unsure=tally.verdicts[Verdict.UNSURE],
        heldout=len(tally.heldout),
        labels=len(campaign.store.labels()),
        implied=_implied(campaign),
        contradictions=len(campaign.contradictions()),
        rounds=campaign.rounds.current,
        share=steering.recent_share(answers_of(latest), np.array([row.round for row in latest])),
        waiting=len(campaign.log().waiting),
        alone=guidance.alone(campaign),
    )


def _implied(campaign: Campaign) -> int:
    """The number of pairs known to be similar or dissimilar that nobody was asked about."""
    if campaign.settings.closure == "full":
        return campaign.growing().closure.implied
    evidence = campaign.evidence()
    asked = evidence.rounds >= 0
    given = Answers(evidence.answers.pairs[asked], evidence.answers.verdicts[asked])
    return int(evidence.closure.relations.implied(given))


def archive(campaign: Campaign) -> dict[str, Any]:
    """The images that do not count and why, what the last update found, and whether one is wanted; in numbers
    and in sentences. The version changes with any of it."""
    reasons = Counter(campaign.reasons())
    unreadable = len(campaign.archive().skipped)
    updated, wanted = campaign.inventory.updates()
    lines = [f"{text}: {reasons[reason]}" for reason, text in RETIRED.items() if reasons[reason]]
    if campaign.reading.told:
        lines.append(f"Files are read with {campaign.reading.told}.")
    if unreadable:
        lines.append(f"Files that could not be read: {unreadable}")
    if updated is not None:
        found = ", ".join(f"{many:,} {name}" for name, many in updated.items() if name in FOUND and many)
        lines.append(f"The last update: {updated.get('error') or found or 'nothing had changed'}")
    return {
        **{str(reason): reasons[reason] for reason in Reason},
        "unreadable": unreadable,
        "updated": updated,
        "wanted": wanted,
        "version": campaign.rounds.version[-1],
        "lines": lines,
    }


def aim(campaign: Campaign) -> tuple[float, float] | None:
    """The share of similar answers that is aimed at, from … to; None where the strategy has no such aim."""
    return steering.aim(campaign.settings.share) if campaign.settings.strategy == "mgue" else None


def sheets(campaign: Campaign) -> bool | None:
    """Whether many images may be asked about at a glance; None where the strategy has no sheets."""
    if campaign.settings.strategy != "place":
        return None
    return bool(campaign.store.setting("sheets", campaign.settings.sheets))


def machine(campaign: Campaign) -> dict[str, Any]:
    """What the machine is doing, in numbers and in a sentence."""
    at, about = campaign.mailbox.machine()
    fresh = campaign.log().news(campaign.rounds.seen)
    needed = campaign.settings.per_round
    state = about.get("state", "absent") if time.time() - at < SILENT else "absent"
    bar = {"step": about.get("step", ""), "done": about.get("done", 0), "total": about.get("total", 1)}
    damaged = lost(campaign.rounds)
    wanted = bool(campaign.store.setting("learn_wanted", False))
    text = _loss(campaign, damaged) + _machine_text(state, about, 0 if damaged or wanted else needed - fresh)
    counts = {"fresh": fresh, "needed": needed, "wanted": wanted, "refusal": refusal_to_learn(campaign)}
    return {"state": state, **bar, "text": text, **counts}


def refusal_to_learn(campaign: Campaign) -> str:
    """Why the machine would not learn now; empty if it would."""
    if not has_news(campaign):
        return "There is no new answer to learn from."
    if not campaign.known().count_groups(1):
        return "There is nothing to learn from: no pair is similar or dissimilar."
    return ""


def has_news(campaign: Campaign) -> bool:
    """Whether people have said something since the newest model, or taken something back."""
    seen = campaign.rounds.seen
    withdrawn = any(row.entered != MACHINE for row in campaign.log().since(seen) if row.verdict == UNKNOWN)
    return campaign.log().news(seen) > 0 or withdrawn


def _loss(campaign: Campaign, damaged: Sequence[str]) -> str:
    """A sentence if files of the newest model cannot be read."""
    if not damaged:
        return ""
    last_good = in_words(campaign.rounds.serving)
    what = f"Files are damaged: {' and '.join(damaged)} cannot be read."
    return f"{what} Until they are made again, the last good model serves ({last_good}). "


def _machine_text(state: str, about: dict[str, Any], missing: int) -> str:
    if state == "learning":
        return f"The machine is {about.get('step', 'learning')}…"
    if state == "failed":
        left = max(round(about.get("again", 0) - time.time()), 0)
        return f"The machine's last turn failed: {about.get('error', '')} It tries again in {left} s."
    if state == "restarting":
        why = "gave no sign of life" if about.get("silent") else f"stopped (exit code {about.get('code')})"
        return f"The machine {why} and is being started again; nothing is lost."
    if state == "absent":
        return "The machine is not running. Answers are kept; anneal label starts it."
    if missing <= 0:
        return "The machine is about to learn from your answers."
    return f"The machine learns after {count(missing, 'more answer')}."


def people(campaign: Campaign) -> list[dict[str, Any]]:
    """Who has answered how much, and how fast lately."""
    return [
        {
            "annotator": name,
            "answers": len(person.numbers),
            "unsure": person.verdicts[Verdict.UNSURE],
            "per_minute": _pace(person.latest(20)),
        }
        for name, person in sorted(campaign.tally().people.items())
    ]


def agreement(campaign: Campaign) -> list[dict[str, Any]]:
    """For every two people who judged the same pairs: how many, how often they agree, Cohen's κ."""
    by_person: dict[str, dict[Pair, int]] = defaultdict(dict)
    for row in campaign.log().standing():
        by_person[row.annotator][row.pair] = row.verdict
    agreements = []
    for one, other in combinations(sorted(by_person), 2):
        both = sorted(by_person[one].keys() & by_person[other].keys())
        if both:
            first = [by_person[one][pair] for pair in both]
            second = [by_person[other][pair] for pair in both]
            share, kappa = estimate.kappa(first, second)
            figures = {"pairs": len(both), "agreement": share, "kappa": kappa}
            agreements.append({"one": one, "other": other, **figures})
    return agreements


def shares(campaign: Campaign) -> list[dict[str, Any]]:
    """For each round: how many chosen questions were answered, and the share that was similar."""
    evidence = campaign.evidence()
    similar, rounds = steering.settled(evidence.answers, evidence.rounds)
    by_round = []
    for number in sorted(set(rounds.tolist())):
        own = similar[rounds == number]
        by_round.append({"round": number, "answers": len(own), "similar": float(own.mean())})
    return by_round


def _pace(looked: Sequence[int]) -> float | None:
    """Answers a minute."""
    return round(60_000 * len(looked) / sum(min(ms, PAUSE) for ms in looked), 1) if looked else None
