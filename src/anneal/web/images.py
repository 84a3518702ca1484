"""Images: their pictures and names, and the search by an image of the archive or by an uploaded one."""

import hashlib
import io
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import numpy as np
from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from numpy.typing import NDArray
from PIL import Image

from anneal.archive.decode import UNREADABLE, decode
from anneal.campaign import progress, store
from anneal.campaign.rounds import FROZEN
from anneal.errors import ArchiveError
from anneal.pairs import Floats
from anneal.search import nearest_images, refined
from anneal.web.bounds import ImageId, ManyIds, Number, Text
from anneal.web.desk import Desk, Json, SharedDesk

LARGE = 1024  # pixels: the longer side of a picture to judge by
SMALL = 160  # pixels: the side of a picture in a grid
UPLOADED = 100_000_000  # pixels of an uploaded image, at most
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}

router = APIRouter()


@router.get("/api/images/{image}", response_class=Response)
def large(desk: SharedDesk, image: int) -> Response:
    """A JPEG to judge by, in the image's own proportions. If the file is gone it shows the stored pixels."""
    desk.check(image)
    try:
        data = _kept(desk, "large", image, lambda: _jpeg(desk.archive.picture(image, LARGE)))
        return Response(data, media_type="image/jpeg", headers=FOREVER)
    except ArchiveError:
        data = _jpeg(desk.archive.pixels[image])
        return Response(data, media_type="image/jpeg", headers={"cache-control": "no-store"})


@router.get("/api/thumbs/{image}", response_class=Response)
def small(desk: SharedDesk, image: int) -> Response:
    """A small square JPEG."""
    desk.check(image)
    data = _kept(desk, "small", image, lambda: _jpeg(desk.archive.pixels[image], SMALL, 80))
    return Response(data, media_type="image/jpeg", headers=FOREVER)


@router.get("/api/names")
def names(desk: SharedDesk, offset: Number = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 200) -> Json:
    """Paths of the images, in the order of their ids."""
    return {"total": desk.campaign.size, "names": desk.archive.paths[offset : offset + limit]}


@router.get("/api/search")
def search(
    desk: SharedDesk,
    image: ImageId | None = None,
    query: Text | None = None,
    plus: ManyIds = "",
    minus: ManyIds = "",
    k: Annotated[int, Query(ge=1, le=1000)] = 60,
) -> Json:
    """The images most similar to one of the archive, or to an uploaded one (``query``); more like ``plus``
    and less like ``minus`` (ids, with commas between). ``threshold`` is the cutoff of the model."""
    more = _ids(plus, desk.campaign.size)
    less = _ids(minus, desk.campaign.size)
    if image is not None:
        desk.check(image)
        more.insert(0, image)
    wanted: list[Floats] = []
    with desk.lock:
        model = desk.campaign.rounds.serving
        if query is not None:
            vector, model = _vector(desk, query)
            wanted.append(vector)
        vectors = desk.campaign.rounds.vectors(model)
        index = desk.campaign.rounds.index(model)
        cutoff = desk.cutoff(model)
    wanted += [np.asarray(vectors[i]) for i in more]
    if not wanted:
        raise HTTPException(422, "Say what to look for: image=ID, query=ID or plus=IDS.")
    target = refined(wanted, [np.asarray(vectors[i]) for i in less])
    ids, scores = nearest_images(vectors, target, k, more + less, index)
    results = [
        {"id": i, "name": desk.archive.paths[i], "score": round(score, 4)}
        for i, score in zip(ids.tolist(), scores.tolist(), strict=True)
    ]
    return {"round": None if model == FROZEN else model, "threshold": cutoff, "results": results}


@router.post("/api/queries", status_code=202)
async def upload(desk: SharedDesk, request: Request) -> dict[str, str]:
    """Upload an image file to search with: its bytes are the body."""
    data = await request.body()
    async with desk.decoding:
        return {"id": await run_in_threadpool(_keep, desk, data)}


@router.get("/api/queries/{name}")
def uploaded(desk: SharedDesk, name: str) -> dict[str, str]:
    """Whether the machine has encoded an uploaded image."""
    with desk.lock:
        query = _query(desk, name)
        machine = progress.machine(desk.campaign)
    if query.error is not None:
        return {"state": "failed", "text": query.error}
    text = "The machine is not running: start it with anneal label." if machine["state"] == "absent" else ""
    return {"state": "waiting" if query.vector is None else "ready", "text": text}


@router.get("/api/queries/{name}/image", response_class=Response)
def uploaded_image(desk: SharedDesk, name: str) -> Response:
    """An uploaded image as the machine sees it."""
    with desk.lock:
        query = _query(desk, name)
    px = desk.campaign.settings.px
    pixels = np.frombuffer(query.pixels, dtype=np.uint8).reshape(px, px, 3)
    return Response(_jpeg(pixels), media_type="image/jpeg", headers=FOREVER)


def _kept(desk: Desk, kind: str, image: int, make: Callable[[], bytes]) -> bytes:
    """A file that is made once and kept beside the campaign."""
    path = desk.campaign.folder / "cache" / "pictures" / kind / f"{image // 1000:04d}" / f"{image}.jpg"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        data = make()
    with suppress(OSError):  # the disk may be full: the image is shown all the same
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.urandom(8).hex()}.tmp")
        part.write_bytes(data)
        part.replace(path)
    return data


def _jpeg(pixels: NDArray[np.uint8], side: int | None = None, quality: int = 90) -> bytes:
    picture = Image.fromarray(np.asarray(pixels))
    if side is not None:
        picture = picture.resize((side, side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return file.getvalue()


def _keep(desk: Desk, data: bytes) -> str:
    """Store an image file for the machine to encode; returns its id."""
    try:
        pixels = decode(data, desk.campaign.settings.px, UPLOADED)
    except UNREADABLE as error:
        raise HTTPException(422, f"That file cannot be read as an image: {error}.") from error
    name = hashlib.blake2b(data, digest_size=12).hexdigest()
    with desk.lock:
        desk.campaign.mailbox.add_query(name, pixels.tobytes())
    return name


def _query(desk: Desk, name: str) -> store.Query:
    query = desk.campaign.mailbox.query(name)
    if query is None:
        raise HTTPException(404, "That image is no longer here: drop it again.")
    return query


def _vector(desk: Desk, name: str) -> tuple[Floats, int]:
    """The vector of an uploaded image, and the model it is of, which may be older than the serving one."""
    query = _query(desk, name)
    if query.vector is None or query.round is None:
        raise HTTPException(409, query.error or "The machine has not encoded that image yet.")
    rounds = desk.campaign.rounds
    if query.round != rounds.serving and not rounds.files(query.round).has_vectors:
        raise HTTPException(409, "That image is being encoded for the newest model: try again.")
    return np.frombuffer(query.vector, dtype=np.float32), query.round


def _ids(text: str, size: int) -> list[int]:
    """Image ids out of "1,2,3"."""
    parts = [part for part in text.split(",") if part]
    if not all(part.isdecimal() and len(part) < 19 and int(part) < size for part in parts):
        raise HTTPException(422, f"Image ids are whole numbers below {size}, with commas between.")
    return [int(part) for part in parts]
