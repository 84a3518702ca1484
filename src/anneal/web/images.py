"""Images: their pictures and names, and a search for those like an image of the archive or an uploaded one."""

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
from anneal.web.desk import Desk, Json, SharedDesk

Pixels = NDArray[np.uint8]
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
        return _kept(desk, "large", image, lambda: desk.archive.picture(image, LARGE), 90)
    except ArchiveError:
        return _jpeg(desk.archive.pixels[image], {"cache-control": "no-store"})


@router.get("/api/thumbs/{image}", response_class=Response)
def small(desk: SharedDesk, image: int) -> Response:
    """A small square JPEG."""
    desk.check(image)
    return _kept(desk, "small", image, lambda: _shrunk(desk.archive.pixels[image]), 80)
