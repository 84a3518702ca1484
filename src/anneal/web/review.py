"""The review view: all answers, and those that contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from anneal.campaign.campaign import answers_of
from anneal.campaign.store import Row
from anneal.method.mining import pairwise
from anneal.pairs import Verdict
from anneal.web.desk import WORDS, Desk, SharedDesk
from anneal.web.label import Name, Word

SIGNS = {int(Verdict.SIMILAR): 1, int(Verdict.DISSIMILAR): -1}
SHOWN = ("id", "a", "b", "annotator", "answered", "looked", "strategy", "purpose", "round")

router = APIRouter()


class Again(BaseModel):
    annotator: Name = "me"
    ids: Annotated[list[int], Field(max_length=10_000)]


@router.get("/api/answers")
def answers(
    desk: SharedDesk,
    verdict: Word | Literal[""] = "",
    annotator: str = "",
    pair: str = "",
    doubtful: bool = False,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> dict[str, Any]:
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
def contradictions(desk: SharedDesk) -> list[dict[str, Any]]:
    """Sets of answers that cannot all be true."""
    with desk.lock:
        return [{"answers": _rows(desk, rows)} for rows in desk.campaign.contradictions()]


@router.post("/api/again")
def again(desk: SharedDesk, wanted: Again) -> dict[str, int]:
    """Withdraw these answers and ask their pairs again."""
    with desk.lock:
        return {"asked": desk.campaign.again(wanted.ids, wanted.annotator)}


def _is_about(desk: Desk, row: Row, wanted: str) -> bool:
    """Whether a row is about an image with this id, or with this text in its path."""
    if wanted.isdecimal():
        return int(wanted) in row.pair
    return any(wanted.casefold() in desk.archive.paths[image].casefold() for image in row.pair)


def _rows(desk: Desk, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Answers as the page shows them, each with the similarity in the serving model."""
    if not rows:
        return []
    rounds = desk.campaign.rounds
    scores = pairwise(rounds.vectors(), answers_of(rows).pairs).tolist()
    cutoff = desk.cutoff(rounds.serving)
    return [_row(desk, row, score, cutoff) for row, score in zip(rows, scores, strict=True)]


def _row(desk: Desk, row: Row, score: float, cutoff: float | None) -> dict[str, Any]:
    """``doubt``: how far the similarity lies on the wrong side of the cutoff; negative on the right side."""
    sign = SIGNS.get(row.verdict)
    doubt = None if cutoff is None or sign is None else round(sign * (cutoff - score), 4)
    about = {name: getattr(row, name) for name in SHOWN}
    names = [desk.archive.paths[image] for image in row.pair]
    return {**about, "names": names, "verdict": WORDS[row.verdict], "score": round(score, 4), "doubt": doubt}
