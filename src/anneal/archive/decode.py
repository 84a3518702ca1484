"""One image file → pixels. A file that cannot be read gives a reason, or an error of UNREADABLE."""

import hashlib
import io
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from anneal.archive.rasters import Fit, decode_raster, stretch

FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "WEBP", "GIF", "JPEG2000")
"""The formats Pillow may read, under any file name. None of their readers starts a program."""
UNREADABLE = (OSError, ValueError, SyntaxError, OverflowError, struct.error, Image.DecompressionBombError)
"""The errors that a damaged file can raise in a decoder."""

Outcome = tuple[str, NDArray[np.uint8] | None, str]
"""(digest, pixels, "") of a file or, if it cannot be read, ("", None, reason)."""


def read_image(path: Path, px: int) -> Outcome:
    """One image file → its digest and its pixels, (px, px, 3), or a reason."""
    try:
        data = path.read_bytes()
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        return digest, decode(data, px), ""
    except UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return "", None, reason.replace(str(path), path.name)


def decode(data: bytes, px: int, limit: int | None = None) -> NDArray[np.uint8]:
    """The bytes of an image file → (px, px, 3): the whole image, resized to a square. An image of more than
    ``limit`` pixels is refused before it is decoded."""

    def fit(width: int, height: int) -> tuple[int, int]:
        if limit is not None and width * height > limit:
            raise ValueError(f"{width} × {height} pixels are more than {limit // 10**6} million")
        return px, px

    return decode_to(data, fit)


def within(most: int) -> Fit:
    """Every image in its own proportions, no side longer than ``most``; never enlarged."""

    def fit(width: int, height: int) -> tuple[int, int]:
        scale = min(1.0, most / max(width, height))
        return max(round(width * scale), 1), max(round(height * scale), 1)

    return fit


_lock = threading.Lock()
_active = 0  # decoders at work now, in all threads
_filters = ExitStack()


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore the warnings of decoders. Python's filters are global, so the first active thread changes them
    and the last one restores them."""
    global _active
    with _lock:
        _active += 1
        if _active == 1:
            _filters.enter_context(warnings.catch_warnings(action="ignore"))
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            if not _active:
                _filters.close()


@_quiet()
def decode_to(data: bytes, fit: Fit) -> NDArray[np.uint8]:
    """The bytes of an image file → uint8 of the size that ``fit`` gives. Eight-bit images keep their values.
    Deeper ones are stretched between their 2nd and 98th percentile, band by band."""
    raster = decode_raster(data, fit)
    if raster is not None:
        return raster
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            size = fit(*image.size)
            if image.mode.startswith(("I", "F")):
                return stretch(np.asarray(image, dtype=np.float32)[..., None], size)
            image.draft("RGB", size)  # a JPEG is decoded no finer than needed
            plain = image.convert("RGBA") if "transparency" in image.info else image
            return np.asarray(plain.convert("RGB").resize(size, Image.Resampling.BILINEAR))
    except UnidentifiedImageError:
        raise ValueError("not an image that can be read") from None
