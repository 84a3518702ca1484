"""The HTTP interface: the person's turn, search, review, progress. It never trains and loads no torch."""

from __future__ import annotations

import asyncio
import hashlib
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field, model_validator

from anneal import __version__
from anneal.archive.catalog import UNREADABLE, decode
from anneal.campaign import judging, progress
from anneal.campaign.campaign import FROZEN, Campaign, Pair
from anneal.campaign.judging import Model
from anneal.campaign.store import Row
from anneal.errors import AnnealError, UsageError
from anneal.method import estimate
from anneal.method.mining import pairwise
from anneal.method.neighbours import nearest
from anneal.pairs import UNKNOWN, Floats, Pairs, Verdict
from anneal.search import refined
from anneal.web.access import Guard
from anneal.web.pictures import Pictures, jpeg

STATIC = Path(__file__).parent / "static"
PIXELS = 100_000_000  # of an image that is brought to search with
AHEAD = 3  # questions to load ahead where each depends on the answers before it
VAGUE = 0.8  # an interval as wide as this says nothing and is not shown
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
WORDS: dict[int, str] = {UNKNOWN: "none"} | {int(verdict): verdict.name.lower() for verdict in Verdict}
NUMBERS = {word: number for number, word in WORDS.items()}

Name = Annotated[str, Field(min_length=1, max_length=200)]
Word = Literal["similar", "dissimilar", "unsure", "none"]
ImageId = Annotated[int, Field(ge=0)]


class Event(BaseModel):
    """An answer (``a``, ``b``, ``verdict``), an undo (``undoes``: the key of an answer, or null for the last
    one) or the correction of an answer (``of``, ``verdict``). The key is the sender's own
    name for the event, which counts once however often it is sent."""

    model_config = ConfigDict(extra="forbid")

    key: Annotated[str, Field(min_length=8, max_length=80)]
    a: ImageId | None = None
    b: ImageId | None = None
    verdict: Word | None = None
    asked: float | None = None  # milliseconds since 1970
    looked: Annotated[int, Field(ge=0)] | None = None  # milliseconds
    undoes: str | None = None
    of: int | None = None

    @model_validator(mode="after")
    def one_of_three(self) -> Self:
        answer = self.a is not None and self.b is not None and self.verdict is not None
        correction = self.of is not None and self.verdict is not None
        if answer + correction + ("undoes" in self.model_fields_set) != 1:
            raise ValueError("an event is an answer, an undo or a correction")
        return self


class Events(BaseModel):
    campaign: str = ""  # the id that /api/state told: answers to one campaign are never taken for another's
    annotator: Name = "me"
    holder: Name
    n: Annotated[int, Field(ge=1, le=20)] = 6
    events: Annotated[list[Event], Field(max_length=200)]


class Again(BaseModel):
    annotator: Name = "me"
    ids: Annotated[list[int], Field(max_length=10_000)]


class Criterion(BaseModel):
    text: Annotated[str, Field(max_length=200)]


class Desk:
    """An open campaign that several threads take turns at."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign, self.lock = campaign, threading.RLock()
        self.archive = campaign.archive()
        self.pictures = Pictures(self.archive, campaign.folder / "cache" / "pictures")
        self._models: tuple[Any, list[Model]] | None = None

    def models(self) -> list[Model]:
        """How good each model is, worked out again when there is a model or a held-back answer more: what
        the other answers add in between is not worth doing it after each of them."""
        version = (self.campaign.store.held_back(), self.campaign.newest())
        if self._models is None or self._models[0] != version:
            self._models = version, judging.models(self.campaign)
        return self._models[1]

    def advice(self) -> dict[str, Any] | None:
        if not self.campaign.plan.audit:
            return None
        stop, text = judging.advice(self.campaign, self.models())
        return {"stop": stop, "text": text}

    def state(self, annotator: str) -> dict[str, Any]:
        campaign = self.campaign
        standing = asdict(progress.standing(campaign))
        mine = next((who for who in progress.people(campaign) if who["annotator"] == annotator), None)
        return {
            "campaign": campaign.folder.resolve().name,
            "id": campaign.id,
            "criterion": campaign.criterion,
            "images": campaign.size,
            "standing": standing,
            "share": standing.pop("share"),
            "aim": campaign.aim,
            "yours": {
                "answers": mine["answers"] if mine else 0,
                "per_minute": mine["per_minute"] if mine else None,
            },
            "machine": progress.machine(campaign),
            "advice": self.advice(),
        }

    def questions(
        self, annotator: str, holder: str, n: int, shown: Sequence[Pair] = ()
    ) -> list[dict[str, int]]:
        """What to show now and load ahead. Where each question depends on the answers before it, few."""
        campaign = self.campaign
        taken = campaign.take(annotator, holder, min(n, AHEAD) if campaign.one_by_one else n, shown)
        doubted = campaign.store.doubted()
        return [{"a": a, "b": b, **({"again": True} if (a, b) in doubted else {})} for a, b in taken]

    def carry_out(self, event: Event, annotator: str) -> dict[str, Any]:
        """One event; its outcome, or why it can never be carried out. Whatever else goes wrong is raised:
        the page keeps the event then, and sends it again."""
        campaign, key = self.campaign, event.key
        try:
            if "undoes" in event.model_fields_set:
                return _done(key, campaign.undo(annotator, key=key, undoes=event.undoes), "none")
            assert event.verdict is not None  # one_of_three
            verdict = NUMBERS[event.verdict]
            if event.of is not None:
                return _done(key, campaign.correct(event.of, verdict, annotator, key=key), event.verdict)
            assert event.a is not None
            assert event.b is not None
            if event.a == event.b:
                raise UsageError("An image makes no pair with itself.")
            asked = None if event.asked is None else event.asked / 1000
            campaign.answer(event.a, event.b, verdict, annotator, key=key, asked=asked, looked=event.looked)
            return _done(key, (event.a, event.b), event.verdict)
        except UsageError as error:
            return {"key": key, "error": str(error)}

    def limit(self) -> float | None:
        """The similarity from which on the model in service calls a pair similar."""
        found = dict(self.campaign.store.rounds()).get(self.campaign.serving(), {}).get("limit", math.nan)
        return None if math.isnan(found) else round(float(found), 4)

    def rows(self, rows: list[Row]) -> list[dict[str, Any]]:
        """Answers as the page shows them, with what the model in service thinks of them."""
        if not rows:
            return []
        pairs = Pairs.of([row.a for row in rows], [row.b for row in rows])
        scores, limit = pairwise(self.campaign.vectors(), pairs), self.limit()
        return [self._row(row, float(s), limit) for row, s in zip(rows, scores, strict=True)]

    def _row(self, row: Row, score: float, limit: float | None) -> dict[str, Any]:
        sign = {int(Verdict.SIMILAR): 1, int(Verdict.DISSIMILAR): -1}.get(row.verdict)
        doubt = None if limit is None or sign is None else round(sign * (limit - score), 4)
        return {
            "id": row.id,
            "a": row.a,
            "b": row.b,
            "names": [self.archive.paths[row.a], self.archive.paths[row.b]],
            "verdict": WORDS[row.verdict],
            "annotator": row.annotator,
            "answered": row.answered,
            "looked": row.looked,
            "strategy": row.strategy,
            "round": row.round,
            "score": round(score, 4),
            "doubt": doubt,
        }

    def bring(self, data: bytes) -> str:
        """Keep an image file for the machine to encode; its name."""
        try:
            pixels = decode(data, self.campaign.plan.px, PIXELS)
        except UNREADABLE as error:
            raise HTTPException(422, f"That file cannot be read as an image: {error}.") from error
        name = hashlib.blake2b(data, digest_size=12).hexdigest()
        with self.lock:
            self.campaign.store.add_query(name, pixels.tobytes())
        return name

    def vector_of(self, name: str) -> tuple[Floats, int]:
        """The vector of an image that was brought, and the model it is of."""
        found = self.campaign.store.query(name)
        if found is None:
            raise HTTPException(404, "That image is no longer here: drop it again.")
        if found.vector is None or found.round is None:
            raise HTTPException(409, found.error or "The machine has not encoded that image yet.")
        return np.frombuffer(found.vector, dtype=np.float32), found.round


def _done(key: str, pair: tuple[int, int] | None, verdict: str) -> dict[str, Any]:
    a, b = pair or (None, None)
    return {"key": key, "a": a, "b": b, "verdict": verdict}


def _numbers(text: str, below: int) -> list[int]:
    """Ids out of "1,2,3"."""
    parts = [part for part in text.split(",") if part]
    if not all(part.isdecimal() and int(part) < below for part in parts):
        raise HTTPException(422, f"Image ids are whole numbers below {below}, with commas between.")
    return [int(part) for part in parts]


def create(campaign: Campaign, token: str = "") -> FastAPI:
    """The application that serves one campaign."""
    desk = Desk(campaign)
    app = FastAPI(
        title="anneal",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        description="Questions, answers, search and progress of one campaign.",
    )
    app.add_middleware(Guard, token=token)
    decoding = asyncio.Semaphore(1)

    @app.exception_handler(AnnealError)
    def sentence(request: Request, error: AnnealError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=422 if error.exit_code == 2 else 503)

    def locked(work: Callable[[], Any]) -> Any:
        with desk.lock:
            return work()

    # -- the page ----------------------------------------------------------------------------------

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/docs", include_in_schema=False)
    def docs() -> FileResponse:
        return FileResponse(STATIC / "docs.html", headers={"cache-control": "no-cache"})

    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    # -- label -------------------------------------------------------------------------------------

    @app.get("/api/state")
    def state(annotator: str = "me", holder: str = "") -> dict[str, Any]:
        """How far the campaign is, and what the machine is doing. What this screen has been asked stays its
        own for as long as it asks."""
        with desk.lock:
            if holder:
                campaign.renew(holder)
            return desk.state(annotator)

    @app.get("/api/questions")
    def questions(
        holder: str, annotator: str = "me", n: Annotated[int, Query(ge=1, le=20)] = 6
    ) -> dict[str, Any]:
        """The next pairs for this person at this screen, kept for it for five minutes."""
        return {"questions": locked(lambda: desk.questions(annotator, holder, n))}

    @app.post("/api/answers")
    def answers(said: Events) -> dict[str, Any]:
        """Answers, undos and corrections, in order; each is on disk when this returns, and counts once."""
        if said.campaign not in ("", campaign.id):
            raise HTTPException(409, "Another campaign is served here now: open the page again.")
        with desk.lock:
            done = [desk.carry_out(event, said.annotator) for event in said.events]
            undone = [event.key for event in said.events if "undoes" in event.model_fields_set]
            shown = [
                (one["a"], one["b"])
                for one in reversed(done)
                if one["key"] in undone and one["a"] is not None
            ]
            fresh = desk.questions(said.annotator, said.holder, said.n, shown)
            return {"done": done, "questions": fresh, "state": desk.state(said.annotator)}

    @app.put("/api/criterion")
    def criterion(wanted: Criterion) -> dict[str, str]:
        """What the owner means by similar."""
        locked(lambda: campaign.store.set(criterion=wanted.text.strip()))
        return {"criterion": wanted.text.strip()}

    # -- images ------------------------------------------------------------------------------------

    def known(image: int) -> int:
        if not 0 <= image < campaign.size:
            raise HTTPException(404, f"There is no image {image}: ids go from 0 to {campaign.size - 1}.")
        return image

    @app.get("/api/images/{image}", response_class=Response)
    def image(image: int) -> Response:
        """A JPEG to judge by, in the image's own proportions."""
        data, lasting = desk.pictures.large(known(image))
        headers = FOREVER if lasting else {"cache-control": "no-store"}
        return Response(data, media_type="image/jpeg", headers=headers)

    @app.get("/api/thumbs/{image}", response_class=Response)
    def thumb(image: int) -> Response:
        """A small square JPEG."""
        return Response(desk.pictures.small(known(image)), media_type="image/jpeg", headers=FOREVER)

    @app.get("/api/names")
    def names(offset: int = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 200) -> dict[str, Any]:
        """Paths of the images, in the order of their ids."""
        first = max(offset, 0)
        return {"total": campaign.size, "names": desk.archive.paths[first : first + limit]}

    # -- search ------------------------------------------------------------------------------------

    @app.get("/api/search")
    def search(
        image: int | None = None,
        query: str | None = None,
        plus: str = "",
        minus: str = "",
        k: Annotated[int, Query(ge=1, le=1000)] = 60,
    ) -> dict[str, Any]:
        """The images most like one of the archive, or one that was brought (``query``); more like ``plus``
        and less like ``minus``, ids with commas between."""
        more, less = _numbers(plus, campaign.size), _numbers(minus, campaign.size)
        own = [known(image)] if image is not None else []
        with desk.lock:
            number, wanted = campaign.serving(), []
            if query is not None:
                outside, number = desk.vector_of(query)
                wanted = [outside]
            vectors, threshold = campaign.vectors_of(number), desk.limit()
        wanted += [np.asarray(vectors[i]) for i in own + more]
        if not wanted:
            raise HTTPException(422, "Say what to look for: image=ID, query=ID or plus=IDS.")
        sought = refined(wanted, [np.asarray(vectors[i]) for i in less])
        others = np.setdiff1d(np.arange(campaign.size), own + more + less)
        found = nearest(vectors, others, sought[None], k)
        results = [
            {"id": i, "name": desk.archive.paths[i], "score": round(s, 4)}
            for i, s in zip(found.ids[0].tolist(), found.scores[0].tolist(), strict=True)
        ]
        return {"round": None if number == FROZEN else number, "threshold": threshold, "results": results}

    @app.post("/api/queries", status_code=202)
    async def bring(request: Request) -> dict[str, str]:
        """Bring an image file to search with: its bytes are the body."""
        data = await request.body()
        async with decoding:  # one at a time: a large one takes memory
            return {"id": await run_in_threadpool(desk.bring, data)}

    @app.get("/api/queries/{name}")
    def brought(name: str) -> dict[str, str]:
        """Whether the machine has encoded it."""
        found = locked(lambda: campaign.store.query(name))
        if found is None:
            raise HTTPException(404, "That image is no longer here: drop it again.")
        if found.error is not None:
            return {"state": "failed", "text": found.error}
        away = locked(lambda: progress.machine(campaign))["state"] == "absent"
        text = "The machine is not running: start it with anneal label." if away else ""
        return {"state": "waiting" if found.vector is None else "ready", "text": text}

    @app.get("/api/queries/{name}/image", response_class=Response)
    def brought_image(name: str) -> Response:
        found = locked(lambda: campaign.store.query(name))
        if found is None:
            raise HTTPException(404, "That image is no longer here: drop it again.")
        px = campaign.plan.px
        pixels = np.frombuffer(found.pixels, dtype=np.uint8).reshape(px, px, 3)
        return Response(jpeg(pixels), media_type="image/jpeg", headers=FOREVER)

    # -- review ------------------------------------------------------------------------------------

    @app.get("/api/answers")
    def listed(
        verdict: Word | Literal[""] = "",
        annotator: str = "",
        pair: str = "",
        doubtful: bool = False,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
    ) -> dict[str, Any]:
        """Answers, newest first; or those the model in service disagrees with, the strongest first."""
        with desk.lock:
            rows = campaign.store.withdrawn() if verdict == "none" else campaign.store.standing()
            people = sorted({row.annotator for row in rows})
            rows = [
                row
                for row in reversed(rows)
                if (not verdict or WORDS[row.verdict] == verdict)
                and (not annotator or row.annotator == annotator)
                and (not pair or _about(desk, row, pair))
            ]
            if doubtful:
                shown = [row for row in desk.rows(rows) if row["doubt"] is not None and row["doubt"] > 0]
                shown.sort(key=lambda row: -row["doubt"])
                return {"total": len(shown), "annotators": people, "answers": shown[offset : offset + limit]}
            shown = desk.rows(rows[offset : offset + limit])
            return {"total": len(rows), "annotators": people, "answers": shown}

    @app.get("/api/contradictions")
    def contradictions() -> list[dict[str, Any]]:
        """Sets of answers that cannot all be true."""
        with desk.lock:
            return [{"answers": desk.rows(rows)} for rows in campaign.contradictions()]

    @app.post("/api/again")
    def again(wanted: Again) -> dict[str, int]:
        """Withdraw these answers and ask their pairs anew."""
        return {"asked": locked(lambda: campaign.again(wanted.ids, wanted.annotator))}

    # -- progress ----------------------------------------------------------------------------------

    @app.get("/api/progress")
    def how_good() -> dict[str, Any]:
        """How good each model is by the answers that are held back, what they cost, and who gave them."""
        with desk.lock:
            held_back = progress.standing(campaign).held_back
            return {
                "models": [_model(model, held_back > 0) for model in desk.models()],
                "held_back": held_back,
                "advice": desk.advice(),
                "serving": campaign.serving(),
                "refusal": judging.refusal(campaign),
                "shares": progress.shares(campaign),
                "aim": campaign.aim,
                "people": progress.people(campaign),
                "agreement": progress.agreement(campaign),
            }

    return app


def _about(desk: Desk, row: Row, wanted: str) -> bool:
    if wanted.isdecimal():
        return int(wanted) in (row.a, row.b)
    names = (desk.archive.paths[row.a], desk.archive.paths[row.b])
    return any(wanted.casefold() in name.casefold() for name in names)


def _model(model: Model, measured: bool) -> dict[str, Any]:
    def spread(name: str, estimate: estimate.Estimate | None) -> dict[str, float | None]:
        low, high = ("low", "high") if name == "p5" else (f"{name}_low", f"{name}_high")
        if estimate is None or not measured or estimate.high - estimate.low > VAGUE:
            return {name: None, low: None, high: None}
        return {name: round(estimate.value, 4), low: round(estimate.low, 4), high: round(estimate.high, 4)}

    cost = {name: getattr(model, name) for name in ("round", "answers", "bits", "minutes")}
    return {**cost, **spread("p5", model.p5), **spread("precision", model.precision)}
