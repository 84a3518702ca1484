"""The label view: questions, answers, and the state of the campaign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator

from anneal.campaign import progress
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import LEASE, take
from anneal.errors import UsageError
from anneal.pairs import Pair
from anneal.web.desk import WORDS, Desk, SharedDesk

AHEAD = 3  # questions that a page may load ahead: each is chosen by the answers before it
NUMBERS = {word: number for number, word in WORDS.items()}

Name = Annotated[str, Field(min_length=1, max_length=200)]
Word = Literal["similar", "dissimilar", "unsure", "none"]
ImageId = Annotated[int, Field(ge=0)]

router = APIRouter()


class Event(BaseModel):
    """An answer (``a``, ``b``, ``verdict``), an undo (``undoes``: the key of an answer, or null for the last
    one) or a correction (``of``: the id of an answer, ``verdict``). The sender chooses the key. An event with
    the same key counts once, even if it is sent again."""

    model_config = ConfigDict(extra="forbid")

    key: Annotated[str, Field(min_length=8, max_length=80)]
    a: ImageId | None = None
    b: ImageId | None = None
    verdict: Word | None = None
    asked: float | None = None  # milliseconds since 1970
    looked: Annotated[int, Field(ge=0)] | None = None  # milliseconds
    undoes: str | None = None
    of: int | None = None

    @property
    def is_undo(self) -> bool:
        return "undoes" in self.model_fields_set

    @model_validator(mode="after")
    def one_of_three(self) -> Self:
        answer = self.a is not None and self.b is not None and self.verdict is not None
        correction = self.of is not None and self.verdict is not None
        if answer + correction + self.is_undo != 1:
            raise ValueError("an event is an answer, an undo or a correction")
        return self


class Events(BaseModel):
    campaign: str = ""  # the id from /api/state: answers to another campaign are refused
    annotator: Name = "me"
    holder: Name
    n: Annotated[int, Field(ge=0, le=20)] = AHEAD
    events: Annotated[list[Event], Field(max_length=200)]


class Criterion(BaseModel):
    text: Annotated[str, Field(max_length=200)]


@router.get("/api/state")
def state(desk: SharedDesk, annotator: str = "me", holder: str = "") -> dict[str, Any]:
    """The counts of the campaign, and what the machine is doing. It also renews the lease of this screen
    (``holder``) on its questions."""
    with desk.lock:
        if holder:
            desk.campaign.store.renew(holder, LEASE)
        return _state(desk, annotator, holder)


@router.get("/api/questions")
def questions(
    desk: SharedDesk, holder: str, annotator: str = "me", n: Annotated[int, Query(ge=1, le=20)] = AHEAD
) -> dict[str, Any]:
    """The next pairs for this person at this screen (``holder``), at most three, leased for five minutes."""
    with desk.lock:
        return {"questions": _take(desk, annotator, holder, n)}


@router.post("/api/answers")
def answers(desk: SharedDesk, sent: Events) -> dict[str, Any]:
    """Answers, undos and corrections, in order. Each is on disk when this returns. The reply has the next
    questions, at most ``n`` and at most three; with ``n`` 0 nothing is leased."""
    if sent.campaign not in ("", desk.campaign.id):
        raise HTTPException(409, "Another campaign is served here now: open the page again.")
    with desk.lock:
        done = [_carry_out(desk, event, sent.annotator) for event in sent.events]
        undone = {event.key for event in sent.events if event.is_undo}
        opened = [one for one in done if one["key"] in undone and one["a"] is not None]
        shown = [(one["a"], one["b"]) for one in reversed(opened)]
        following = _take(desk, sent.annotator, sent.holder, sent.n, shown) if sent.n else []
        state = _state(desk, sent.annotator, sent.holder)
        return {"done": done, "questions": following, "state": state}


@router.put("/api/criterion")
def criterion(desk: SharedDesk, wanted: Criterion) -> dict[str, str]:
    """Say what counts as similar."""
    text = wanted.text.strip()
    with desk.lock:
        desk.campaign.store.set(criterion=text)
    return {"criterion": text}


def _state(desk: Desk, annotator: str, holder: str) -> dict[str, Any]:
    campaign = desk.campaign
    standing = asdict(progress.standing(campaign))
    share = standing.pop("share")
    people = {person["annotator"]: person for person in progress.people(campaign)}
    mine = people.get(annotator, {"answers": 0, "per_minute": None})
    return {
        "campaign": campaign.folder.resolve().name,
        "id": campaign.id,
        "criterion": campaign.store.setting("criterion", ""),
        "images": campaign.size,
        "standing": standing,
        "share": share,
        "aim": progress.aim(campaign),
        "yours": {"answers": mine["answers"], "per_minute": mine["per_minute"]},
        "others": sum(lease.holder != holder for lease in campaign.store.leases()),
        "machine": progress.machine(campaign),
        "advice": desk.advice(),
    }


def _take(
    desk: Desk, annotator: str, holder: str, n: int, shown: Sequence[Pair] = ()
) -> list[dict[str, Any]]:
    taken = take(desk.campaign, annotator, holder, min(n, AHEAD), shown)
    log = desk.campaign.log()
    again = [{"again": True} if log.is_doubted(one.pair) else {} for one in taken]
    return [{"a": one.pair[0], "b": one.pair[1], **more} for one, more in zip(taken, again, strict=True)]


def _carry_out(desk: Desk, event: Event, annotator: str) -> dict[str, Any]:
    """What came of one event, or why it can never be carried out. Any other error is raised: then the page
    keeps the event and sends it again."""
    try:
        a, b = _apply(desk.campaign, event, annotator) or (None, None)
    except UsageError as error:
        return {"key": event.key, "error": str(error)}
    return {"key": event.key, "a": a, "b": b, "verdict": "none" if event.is_undo else event.verdict}


def _apply(campaign: Campaign, event: Event, annotator: str) -> Pair | None:
    """The pair that the event is about; None for an undo when there was nothing to undo."""
    if event.is_undo:
        return campaign.undo(annotator, key=event.key, undoes=event.undoes)
    assert event.verdict is not None  # one_of_three
    verdict = NUMBERS[event.verdict]
    if event.of is not None:
        return campaign.correct(event.of, verdict, annotator, key=event.key)
    assert event.a is not None
    assert event.b is not None
    asked = None if event.asked is None else event.asked / 1000
    campaign.answer(event.a, event.b, verdict, annotator, key=event.key, asked=asked, looked=event.looked)
    return event.a, event.b
