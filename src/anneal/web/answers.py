"""Questions, answers and what came of them: the views label, review and progress."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, astuple
from typing import Annotated, Literal

from fastapi import APIRouter, Body, HTTPException, Query
from pydantic import BaseModel, ConfigDict, Field

from anneal.campaign import guidance, heldout, progress, tuning
from anneal.campaign.campaign import Campaign
from anneal.campaign.evidence import answers_of
from anneal.campaign.heldout import Model
from anneal.campaign.questions import LEASE, prototypes, take
from anneal.campaign.recheck import reason
from anneal.campaign.store import Row
from anneal.errors import AnnealError, UsageError
from anneal.method.mining import pairwise
from anneal.names import printable
from anneal.pairs import UNKNOWN, Pair, Verdict
from anneal.settings import MOST_TILES
from anneal.web.bounds import ImageId, Key, Milliseconds, Name, Number, RowId, Text
from anneal.web.desk import Desk, Json, SharedDesk

AHEAD = 3  # questions that a page may load ahead: each is chosen by the answers before it
EXAMPLES = 3  # members of a group beside the prototype of a sheet
SIGNS = {int(Verdict.SIMILAR): 1, int(Verdict.DISSIMILAR): -1}
WORDS: dict[int, str] = {UNKNOWN: "none"} | {int(verdict): verdict.name.lower() for verdict in Verdict}
NUMBERS = {word: number for number, word in WORDS.items()}
SHOWN = ("id", "a", "b", "annotator", "answered", "looked", "strategy", "purpose", "round")

Word = Literal["similar", "dissimilar", "unsure", "none"]

router = APIRouter()
logger = logging.getLogger("uvicorn.error")


class Event(BaseModel):
    """The sender chooses the key. An event with the same key counts once, even if it is sent again."""

    model_config = ConfigDict(extra="forbid")

    key: Key


class Answer(Event):
    a: ImageId
    b: ImageId
    verdict: Word
    asked: Milliseconds | None = None  # since 1970
    looked: Number | None = None  # milliseconds
    sheet: Name | None = None  # this and the guess are as the question says
    guess: Word | None = None


class Undo(Event):
    undoes: Key | None  # the key of an answer; null for the last one


class Correction(Event):
    of: RowId
    verdict: Word


class Events(BaseModel):
    campaign: Text = ""  # the id from /api/state: answers to another campaign are refused
    annotator: Name = "me"
    holder: Name
    n: Annotated[int, Field(ge=0, le=20)] = AHEAD
    events: Annotated[list[Answer | Undo | Correction], Field(max_length=200)]


class Again(BaseModel):
    annotator: Name = "me"
    ids: Annotated[list[RowId], Field(max_length=10_000)]


@router.get("/api/state")
def state(desk: SharedDesk, annotator: Text = "me", holder: Text = "") -> Json:
    """The counts of the campaign, and what the machine is doing. It also renews the lease of this screen
    (``holder``) on its questions."""
    with desk.lock:
        if holder:
            desk.campaign.store.renew(holder, LEASE)
        return {**_state(desk, annotator, holder), "advice": desk.advice()}


@router.get("/api/questions")
def questions(
    desk: SharedDesk, holder: Name, annotator: Name = "me", n: Annotated[int, Query(ge=1, le=20)] = AHEAD
) -> Json:
    """The next pairs for this person at this screen (``holder``), at most three, leased for five minutes."""
    with desk.lock:
        return {"questions": _take(desk, annotator, holder, n, [])}


@router.post("/api/answers")
def answer(desk: SharedDesk, sent: Events) -> Json:
    """Answers, undos and corrections, in order. Each is on disk when this returns. The reply has the next
    questions, at most ``n`` and at most three; with ``n`` 0 nothing is leased. If the questions or the state
    cannot be given, the reply says why in ``problem``, and the events are confirmed all the same."""
    if sent.campaign not in ("", desk.campaign.id):
        raise HTTPException(409, "Another campaign is served here now: open the page again.")
    with desk.lock:
        done = [_carry_out(desk.campaign, event, sent.annotator) for event in sent.events]
        undone = [one for event, one in zip(sent.events, done, strict=True) if isinstance(event, Undo)]
        shown = [(one["a"], one["b"]) for one in reversed(undone) if one.get("a") is not None]
        try:
            return {"done": done, "problem": None, **_afterwards(desk, sent, shown)}
        except Exception as error:
            if not isinstance(error, AnnealError):
                logger.exception("What follows answers that are saved could not be given.")
            why = str(error) if isinstance(error, AnnealError) else "the server has printed what went wrong."
            problem = f"Your answers are saved, but there is no next question: {why}"
            return {"done": done, "problem": problem, "questions": [], "state": None}


def _afterwards(desk: Desk, sent: Events, shown: list[Pair]) -> Json:
    """The next questions and the state."""
    with desk.campaign.transaction():  # inside it nothing is read twice
        following = _take(desk, sent.annotator, sent.holder, sent.n, shown) if sent.n else []
        state = _state(desk, sent.annotator, sent.holder)
    state["advice"] = desk.advice()  # may take a while: nobody waits for the transaction to end
    return {"questions": following, "state": state}


@router.post("/api/update", status_code=202)
def update(desk: SharedDesk) -> Json:
    """Ask the machine to look at the archive again: for new, moved, changed and removed files."""
    with desk.lock:
        desk.campaign.store.set(update_wanted=True)
        return progress.archive(desk.campaign)


@router.post("/api/learn", status_code=202)
def learn(desk: SharedDesk) -> Json:
    """Ask the machine to learn now, before the round is over."""
    with desk.lock:
        refusal = progress.refusal_to_learn(desk.campaign)
        if refusal:
            raise HTTPException(409, refusal)
        desk.campaign.store.set(learn_wanted=True)
        return progress.machine(desk.campaign)


@router.get("/api/finetune")
def tuning_state(desk: SharedDesk) -> Json:
    """Whether the network is being fine-tuned or could be, and what came of it last."""
    with desk.lock:
        return {**tuning.state(desk.campaign), "machine": progress.machine(desk.campaign)}


@router.post("/api/finetune", status_code=202)
def finetune(desk: SharedDesk) -> Json:
    """Ask the machine to fine-tune the last stage of the network."""
    with desk.lock:
        try:
            tuning.request(desk.campaign, tuning.PARTS[0])
        except UsageError as error:
            raise HTTPException(409, str(error)) from None
        return tuning.state(desk.campaign)


@router.delete("/api/finetune", status_code=202)
def stop_tuning(desk: SharedDesk) -> Json:
    """Ask the machine to stop fine-tuning: the campaign stays as it was."""
    with desk.lock:
        tuning.stop(desk.campaign)
        return tuning.state(desk.campaign)


@router.put("/api/stop")
def stop(desk: SharedDesk, below: Annotated[float, Body(embed=True, ge=0, le=100)]) -> Json | None:
    """Set the gain in P@5 by 50 answers, in points, below which the advice is to stop."""
    with desk.lock:
        guidance.set_stop_below(desk.campaign, below)
        return desk.advice()


@router.put("/api/criterion")
def criterion(desk: SharedDesk, text: Annotated[Text, Body(embed=True)]) -> dict[str, str]:
    """Say what counts as similar."""
    with desk.lock:
        desk.campaign.store.set(criterion=text.strip())
    return {"criterion": text.strip()}


@router.put("/api/sheets")
def sheets(desk: SharedDesk, on: Annotated[bool, Body(embed=True)]) -> dict[str, bool]:
    """Let sheets of many images be asked, or only single pairs."""
    with desk.lock:
        desk.campaign.store.set(sheets=(desk.campaign.settings.sheets or MOST_TILES) if on else 0)
    return {"on": on}


def _state(desk: Desk, annotator: str, holder: str) -> Json:
    """The state without the advice."""
    campaign = desk.campaign
    desk.look()
    standing = asdict(progress.standing(campaign))
    people = {person["annotator"]: person for person in progress.people(campaign)}
    mine = people.get(annotator, {"answers": 0, "per_minute": None})
    return {
        "campaign": campaign.folder.resolve().name,
        "id": campaign.id,
        "criterion": campaign.store.setting("criterion", ""),
        "sheets": progress.sheets(campaign),
        "images": standing["images"],
        "archive": progress.archive(campaign),
        "share": standing.pop("share"),
        "standing": standing,
        "aim": progress.aim(campaign),
        "yours": {"answers": mine["answers"], "per_minute": mine["per_minute"]},
        "others": sum(lease.holder != holder for lease in campaign.store.leases()),
        "machine": progress.machine(campaign),
    }


def _take(desk: Desk, annotator: str, holder: str, n: int, shown: list[Pair]) -> list[Json]:
    questions = take(desk.campaign, annotator, holder, min(n, AHEAD), shown)
    log = desk.campaign.log()
    sheets = {sheet: _sheet(desk, sheet, prototype) for sheet, prototype in prototypes(questions).items()}
    asked: list[Json] = []
    for one in questions:
        why = reason(log, one.pair, annotator)
        question: Json = {"a": one.pair[0], "b": one.pair[1]}
        if why:
            question["again"] = why
        if one.sheet in sheets:
            question |= {**sheets[one.sheet], "guess": WORDS[one.guess or Verdict.SIMILAR]}
        asked.append(question)
    return asked


def _sheet(desk: Desk, sheet: str, prototype: int | None) -> Json:
    """What the page needs to know of a sheet: its prototype, if it has one, and others of that group."""
    if prototype is None:
        return {"sheet": sheet}
    known = desk.campaign.known()
    members = known.members[known.group[known.members] == known.group[prototype]]
    others = members[members != prototype][:EXAMPLES]
    return {"sheet": sheet, "prototype": prototype, "examples": others.tolist()}


def _carry_out(campaign: Campaign, event: Answer | Undo | Correction, by: str) -> Json:
    """What came of one event, or why it can never be carried out. Any other error is raised: then the page
    keeps the event and sends it again."""
    pair: Pair | None
    more: Json = {}
    try:
        if isinstance(event, Undo):
            pair = campaign.undo(by, key=event.key, undoes=event.undoes)
            more = _undone(campaign, event)
        elif isinstance(event, Correction):
            pair = campaign.correct(event.of, NUMBERS[event.verdict], by, key=event.key)
        else:
            pair = (event.a, event.b)
            asked = None if event.asked is None else event.asked / 1000
            number = NUMBERS[event.verdict]
            guess = None if event.guess is None else NUMBERS[event.guess]
            campaign.answer(
                *pair,
                number,
                by,
                key=event.key,
                asked=asked,
                looked=event.looked,
                sheet=event.sheet,
                guess=guess,
            )
    except UsageError as error:
        return {"key": event.key, "error": str(error)}
    a, b = pair or (None, None)
    verdict = "none" if isinstance(event, Undo) else event.verdict
    return {"key": event.key, "a": a, "b": b, "verdict": verdict, **more}


def _undone(campaign: Campaign, event: Undo) -> Json:
    """The verdict that an undo took back, as ``was``; nothing if there was none."""
    log = campaign.log()
    undo = log.sent(event.key)
    act = None if undo is None or undo.undoes is None else log.row(undo.undoes)
    return {} if act is None or act.verdict == UNKNOWN else {"was": WORDS[act.verdict]}


@router.get("/api/answers")
def answers(
    desk: SharedDesk,
    verdict: Word | Literal[""] = "",
    annotator: Text = "",
    pair: Text = "",
    doubtful: bool = False,
    offset: Number = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Json:
    """Answers, newest first. With ``doubtful`` only those that the serving model disagrees with, strongest
    first. The verdict ``none`` lists withdrawn answers."""
    page = slice(offset, offset + limit)
    with desk.lock:
        log = desk.campaign.log()
        rows = log.withdrawn() if verdict == "none" else log.standing()
        people = sorted({row.annotator for row in rows})
        wanted = [
            row
            for row in reversed(rows)
            if (not verdict or WORDS[row.verdict] == verdict)
            and (not annotator or row.annotator == annotator)
            and (not pair or _is_about(desk, row, pair))
        ]
        if doubtful:
            shown = [row for row in _rows(desk, wanted) if row["doubt"] is not None and row["doubt"] > 0]
            shown.sort(key=lambda row: -row["doubt"])
            return {"total": len(shown), "annotators": people, "answers": shown[page]}
        return {"total": len(wanted), "annotators": people, "answers": _rows(desk, wanted[page])}


@router.get("/api/contradictions")
def contradictions(desk: SharedDesk) -> list[Json]:
    """Sets of answers that cannot all be true."""
    with desk.lock:
        return [{"answers": _rows(desk, rows)} for rows in desk.campaign.contradictions()]


@router.post("/api/again")
def again(desk: SharedDesk, wanted: Again) -> dict[str, int]:
    """Withdraw these answers and ask their pairs again."""
    with desk.lock:
        return {"asked": desk.campaign.again(wanted.ids, wanted.annotator)}


@router.get("/api/progress")
def how_good(desk: SharedDesk) -> Json:
    """How good each model is by the held-out answers, what the answers cost, and who gave them."""
    campaign = desk.campaign
    with desk.lock:
        answered = progress.standing(campaign).heldout
        return {
            "models": [_model(model, answered > 0) for model in desk.models()],
            "heldout": answered,
            "standing": asdict(progress.standing(campaign)),
            "machine": progress.machine(campaign),
            "advice": desk.advice(),
            "serving": campaign.rounds.serving,
            "refusal": heldout.refusal(campaign),
            "shares": progress.shares(campaign),
            "aim": progress.aim(campaign),
            "people": progress.people(campaign),
            "agreement": progress.agreement(campaign),
        }


def _is_about(desk: Desk, row: Row, wanted: str) -> bool:
    """Whether a row is about an image with this id, or with this text in its path."""
    if wanted.isdecimal():
        return int(wanted) in row.pair
    return any(wanted.casefold() in desk.archive.paths[image].casefold() for image in row.pair)


def _rows(desk: Desk, rows: Sequence[Row]) -> list[Json]:
    """Answers as the page shows them. ``score`` is the similarity in the serving model, ``doubt`` how far it
    lies on the wrong side of the cutoff; negative on the right side."""
    if not rows:
        return []
    rounds = desk.campaign.rounds
    scores = pairwise(rounds.vectors(), answers_of(rows).pairs).tolist()
    cutoff = desk.cutoff(rounds.serving)
    shown = []
    for row, score in zip(rows, scores, strict=True):
        sign = SIGNS.get(row.verdict)
        doubt = None if cutoff is None or sign is None else round(sign * (cutoff - score), 4)
        about = {name: getattr(row, name) for name in SHOWN}
        names = [printable(desk.archive.paths[image]) for image in row.pair]
        about |= {"names": names, "verdict": WORDS[row.verdict], "score": round(score, 4), "doubt": doubt}
        shown.append(about)
    return shown


def _model(model: Model, measured: bool) -> Json:
    cost = {name: getattr(model, name) for name in ("round", "answers", "bits", "minutes")}
    shown: dict[str, float | None] = {"p5": None, "low": None, "high": None}
    if measured and not guidance.is_vague(model.p5):
        value, low, high = astuple(model.p5)
        shown = {"p5": round(value, 4), "low": round(low, 4), "high": round(high, 4)}
    return {**cost, **shown}
