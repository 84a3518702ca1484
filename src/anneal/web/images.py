"""Pictures and names of the archive's images. A JPEG is made once and kept beside the campaign."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Response
from numpy.typing import NDArray
from PIL import Image

from anneal.errors import ArchiveError
from anneal.web.desk import FOREVER, Desk, SharedDesk

Pixels = NDArray[np.uint8]
LARGE = 1024  # pixels: the longer side of a picture to judge by
SMALL = 160  # pixels: the side of a picture in a grid

router = APIRouter()


@router.get("/api/images/{image}", response_class=Response)
def large(desk: SharedDesk, image: int) -> Response:
    """A JPEG to judge by, in the image's own proportions. If the file is gone it shows the stored pixels."""
    desk.check(image)
    try:
        data = _kept(desk, "large", image, lambda: desk.archive.picture(image, LARGE), 90)
        return Response(data, media_type="image/jpeg", headers=FOREVER)
    except ArchiveError:
        data = jpeg(desk.archive.pixels[image])
        return Response(data, media_type="image/jpeg", headers={"cache-control": "no-store"})


@router.get("/api/thumbs/{image}", response_class=Response)
def small(desk: SharedDesk, image: int) -> Response:
    """A small square JPEG."""
    desk.check(image)
    data = _kept(desk, "small", image, lambda: _shrunk(desk.archive.pixels[image]), 80)
    return Response(data, media_type="image/jpeg", headers=FOREVER)


@router.get("/api/names")
def names(
    desk: SharedDesk, offset: int = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 200
) -> dict[str, Any]:
    """Paths of the images, in the order of their ids."""
    first = max(offset, 0)
    return {"total": desk.campaign.size, "names": desk.archive.paths[first : first + limit]}


def _kept(desk: Desk, kind: str, image: int, make: Callable[[], Pixels], quality: int) -> bytes:
    folder = desk.campaign.folder / "cache" / "pictures" / kind
    path = folder / f"{image // 1000:04d}" / f"{image}.jpg"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        data = jpeg(make(), quality)
    with suppress(OSError):  # the disk may be full: the image is shown all the same
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.urandom(8).hex()}.tmp")
        part.write_bytes(data)
        part.replace(path)
    return data


def _shrunk(pixels: Pixels) -> Pixels:
    return np.asarray(Image.fromarray(np.asarray(pixels)).resize((SMALL, SMALL), Image.Resampling.LANCZOS))


def jpeg(pixels: Pixels, quality: int = 90) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.asarray(pixels)).save(file, "JPEG", quality=quality)
    return file.getvalue()
