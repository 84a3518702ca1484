"""Images: their pictures and names, and the search by an image of the archive or by an uploaded one."""

import hashlib
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import numpy as np
from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from anneal.archive.bands import choices as band_choices
from anneal.archive.decode import UNREADABLE, decode
from anneal.archive.thumbnails import jpeg
from anneal.campaign import progress, store
from anneal.campaign.rounds import FROZEN
from anneal.errors import ArchiveError, UsageError
from anneal.names import printable
from anneal.pairs import Floats
from anneal.search import nearest_images, refined
from anneal.web.bounds import LARGEST, ManyIds, Name, Number, Text
from anneal.web.desk import Desk, Json, SharedDesk

LARGE = 1024  # pixels: the longer side of a picture to judge by
SMALL = 160  # pixels: the side of a picture in a grid
UPLOADED = 100_000_000  # pixels of an uploaded image, at most
WIDEST = 2048  # pixels: the longer side of a part of an image
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}

Bands = Annotated[str | None, Query(pattern=r"^[A-Za-z0-9]+(,[A-Za-z0-9]+)*$", max_length=60)]
_regions = threading.BoundedSemaphore(2)  # a part of a large PNG takes the memory of all of it

Size = Annotated[int, Query(ge=1, le=LARGEST)]

router = APIRouter()


@router.get("/api/reading")
def reading(desk: SharedDesk) -> Json:
    """How the files became pixels, in words, and bands to choose for display: those that the first image's
    file has."""
    told = desk.archive.reading.told
    try:
        return {"told": told, "choices": band_choices(desk.archive.facts(0).bands)}
    except ArchiveError:
        return {"told": told, "choices": []}


@router.get("/api/images/{image}", response_class=Response)
def large(desk: SharedDesk, image: int, bands: Bands = None) -> Response:
    """A JPEG to judge by, in the image's own proportions. ``bands``, such as 8,4,3, shows others than the
    archive is read with. If the file is gone it shows the stored pixels."""
    desk.check(image)
    kind = "large" if bands is None else f"large-{bands.lower()}"
    try:
        data = _kept(desk, kind, image, lambda: jpeg(desk.archive.picture(image, LARGE, bands)))
        return Response(data, media_type="image/jpeg", headers=FOREVER)
    except UsageError as error:
        raise HTTPException(422, str(error)) from error
    except ArchiveError:
        data = jpeg(desk.archive.shown(image))
        return Response(data, media_type="image/jpeg", headers={"cache-control": "no-store"})


@router.get("/api/images/{image}/about")
def about(desk: SharedDesk, image: int) -> Json:
    """An image's name, its width and height in its file, the file's bands and where it is on Earth."""
    desk.check(image)
    try:
        facts = desk.archive.facts(image)
    except ArchiveError as error:
        raise HTTPException(404, str(error)) from error
    return {
        "name": printable(desk.archive.paths[image]),
        "width": facts.size[0],
        "height": facts.size[1],
        "bands": facts.bands,
        "footprint": desk.archive.about[image].footprint,
    }


@router.get("/api/images/{image}/region", response_class=Response)
def region(
    desk: SharedDesk,
    image: int,
    x: Number,
    y: Number,
    w: Size,
    h: Size,
    width: Annotated[int, Query(ge=1, le=WIDEST)] = LARGE,
    bands: Bands = None,
) -> Response:
    """A part of an image as a JPEG, from its file: w × h of its pixels from (x, y) on, no side longer than
    ``width``. Only that part is read, from the overviews if there are any."""
    desk.check(image)
    try:
        full = desk.archive.facts(image).size
        if x + w > full[0] or y + h > full[1]:
            raise HTTPException(422, f"That is outside the image, which has {full[0]} × {full[1]} pixels.")
        with _regions:
            data = jpeg(desk.archive.picture(image, width, bands, (x, y, w, h)))
    except UsageError as error:
        raise HTTPException(422, str(error)) from error
    except ArchiveError as error:
        raise HTTPException(404, str(error)) from error
    return Response(data, media_type="image/jpeg", headers=FOREVER)


@router.get("/api/thumbs/{image}", response_class=Response)
def small(desk: SharedDesk, image: int) -> Response:
    """A small JPEG: square, or in the proportions of the image."""
    desk.check(image)
    data = _kept(desk, "small", image, lambda: _thumb(desk, image))
    return Response(data, media_type="image/jpeg", headers=FOREVER)


@router.get("/api/names")
def names(desk: SharedDesk, offset: Number = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 200) -> Json:
    """Paths of the images, in the order of their ids."""
    if offset + limit > len(desk.archive):
        desk.look()
    paths = desk.archive.paths[offset : offset + limit]
    return {"total": len(desk.archive), "names": [printable(path) for path in paths]}


@router.get("/api/retired")
def retired(desk: SharedDesk) -> list[int]:
    """Ids of images that are not shown in search: their files are gone, or another one shows the same."""
    with desk.lock:
        return [int(image) for image in desk.campaign.retired()]


@router.get("/api/find")
def find(
    desk: SharedDesk,
    name: Name,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Json:
    """Images with this text in their path, in the order of their ids, and how many there are."""
    wanted = name.casefold()
    paths = desk.archive.paths
    found = [i for i in desk.campaign.images.tolist() if wanted in printable(paths[i]).casefold()]
    results = [{"id": i, "name": printable(paths[i])} for i in found[:limit]]
    return {"total": len(found), "results": results}


@router.get("/api/search")
def search(
    desk: SharedDesk,
    image: int | None = None,
    query: Text | None = None,
    plus: ManyIds = "",
    minus: ManyIds = "",
    k: Annotated[int, Query(ge=1, le=1000)] = 60,
) -> Json:
    """The images most similar to one of the archive, or to an uploaded one (``query``); more like ``plus``
    and less like ``minus`` (ids, with commas between). ``threshold`` is the cutoff of the model."""
    desk.look()
    more = _ids(plus, len(desk.archive))
    less = _ids(minus, len(desk.archive))
    if image is not None:
        desk.check(image)
        more.insert(0, image)
    wanted: list[Floats] = []
    with desk.lock:
        model = desk.campaign.rounds.serving
        if query is not None:
            vector, model = _vector(desk, query)
            wanted.append(vector)
        retired = desk.campaign.retired()
        vectors = desk.campaign.rounds.vectors(model)
        index = desk.campaign.rounds.index(model)
        cutoff = desk.cutoff(model)
    wanted += [np.asarray(vectors[i]) for i in more]
    if not wanted:
        raise HTTPException(422, "Say what to look for: image=ID, query=ID or plus=IDS.")
    target = refined(wanted, [np.asarray(vectors[i]) for i in less])
    ids, scores = nearest_images(vectors, target, k, more + less, index, retired)
    results = [
        {"id": i, "name": printable(desk.archive.paths[i]), "score": round(score, 4)}
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
    pixels = np.frombuffer(query.pixels, dtype=np.uint8).reshape(px, px, -1)
    return Response(jpeg(desk.archive.reading.for_a_person(pixels)), media_type="image/jpeg", headers=FOREVER)


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


def _thumb(desk: Desk, image: int) -> bytes:
    if desk.archive.about[image].size is not None:
        with suppress(ArchiveError):
            return jpeg(desk.archive.picture(image, 2 * SMALL), quality=80)
    return jpeg(desk.archive.shown(image), SMALL, 80)


def _keep(desk: Desk, data: bytes) -> str:
    """Store an image file for the machine to encode; returns its id."""
    try:
        pixels = decode(data, desk.campaign.settings.px, UPLOADED, desk.archive.reading)
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
