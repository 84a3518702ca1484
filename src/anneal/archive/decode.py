"""One image file → pixels. A file that cannot be read gives a reason, or an error of UNREADABLE."""

import hashlib
import io
import math
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from anneal.archive import bands, rasters, safely, stretch
from anneal.archive.rasters import Values, quiet
from anneal.archive.reading import NOTHING, About, Footprint, Reading, Window
from anneal.archive.safely import Source, digest_of, head, is_harmless, limited
from anneal.archive.stretch import NO_DATA, Limits

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "WEBP", "GIF", "JPEG2000")
"""The formats Pillow may read, under any file name. None of their readers starts a program."""
UNREADABLE = (OSError, ValueError, SyntaxError, OverflowError, struct.error, Image.DecompressionBombError)
"""The errors that a damaged file can raise in a decoder."""
DEFAULT = Reading()
SAMPLED = 256  # pixels a side by which an image's own percentiles are taken
LEAST = 0.5  # share of a tile that must hold data
ORIENTATION = 274  # the EXIF tag

Fit = Callable[[int, int], tuple[int, int]]
"""(width, height) of an image → (width, height) of the picture made from it."""


class Frame(NamedTuple):
    """The part of an image that a picture shows, and the picture's width and height."""

    box: Window
    size: tuple[int, int]


Framing = Callable[[int, int], Frame]
"""(width, height) of an image → its frame."""


class Outcome(NamedTuple):
    """What came of a file: a digest and pixels, or a reason."""

    digest: str
    pixels: NDArray[np.uint8] | None
    reason: str = ""
    about: About = NOTHING


class Picture(NamedTuple):
    """What ``render`` makes of an image."""

    pixels: NDArray[np.uint8]  # (h, w, bands)
    data: float  # share of the pixels that hold data
    size: tuple[int, int]  # width and height of the image in its file
    footprint: Footprint = ()


def read_image(
    path: Path,
    px: int,
    reading: Reading = DEFAULT,
    window: Window | None = None,
    footprint: Footprint = (),
) -> Outcome:
    """One image file, or a window of it → its digest and its pixels, (px, px, channels), or a reason. The
    digest of a file is of its bytes, that of a window of its pixels."""
    try:
        made = render(path, squared(reading.fit, px), reading, window)
        if not made.data:
            raise ValueError("it holds no data")
        if window is not None and made.data < LEAST:
            raise ValueError(f"{1 - made.data:.0%} of it holds no data")
        pixels = padded(made.pixels, px)
        if pixels.shape[2] != reading.channels:
            raise ValueError(f"it has {pixels.shape[2]} bands, the others have {reading.channels}")
        if window is None:
            digest = digest_of(path)
        else:
            digest = hashlib.blake2b(pixels.tobytes(), digest_size=16).hexdigest()
        size = made.size if made.size[0] != made.size[1] else None
        return Outcome(digest, pixels, "", About(window, made.footprint or footprint, size))
    except UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Outcome("", None, reason.replace(str(path), path.name))


def decode(data: bytes, px: int, limit: int | None = None, reading: Reading = DEFAULT) -> NDArray[np.uint8]:
    """The bytes of an image file → (px, px, channels), as an archive is read. An image of more than ``limit``
    pixels is refused before it is decoded."""
    framing = partial(_below, limit, squared(reading.fit, px))
    pixels = padded(render(data, framing, reading).pixels, px)
    if pixels.shape[2] != reading.channels:
        raise ValueError(f"it has {pixels.shape[2]} bands, the archive's images have {reading.channels}")
    return pixels


def shown(
    source: Source, fit: Fit, reading: Reading, window: Window | None = None, box: Window | None = None
) -> NDArray[np.uint8]:
    """(h, w, 3) for a person: an image, or a box of it, in the size that ``fit`` gives."""
    framing = partial(_part, fit, box)
    pixels = render(source, framing, replace(reading, bands=reading.displayed), window).pixels
    if pixels.shape[2] != 3:
        raise bands.NoBandError(f"{pixels.shape[2]} bands cannot be shown: choose one band, or three")
    return pixels


class Facts(NamedTuple):
    """What a file says of an image, without its pixels."""

    size: tuple[int, int]
    bands: tuple[str, ...]


def facts(source: Source, window: Window | None = None) -> Facts:
    """The size and the bands of an image."""
    if window is None and is_harmless(source):
        return _facts_by_pillow(source)
    return _facts_by_either(source, window)


@limited
@quiet()
def _facts_by_either(source: Source, window: Window | None) -> Facts:
    if rasters.is_installed() and (window is not None or rasters.is_raster(head(source))):
        with rasters.opened(source) as raster:
            return Facts(window[2:] if window else (raster.width, raster.height), rasters.names(raster))
    return _facts_by_pillow(source)


@quiet()
def _facts_by_pillow(source: Source) -> Facts:
    try:
        with Image.open(_file(source), formats=FORMATS) as image:
            size = image.size[::-1] if _orientation(image) >= 5 else image.size
            return Facts(size, bands.COLOURS)
    except UnidentifiedImageError:
        raise ValueError("not an image that can be read") from None


# -- frames: they are pickled on their way to a decoder ---------------------------------------------


def within(most: int) -> Fit:
    """Every image in its own proportions, no side longer than ``most``; never enlarged."""
    return partial(_within, most)


def _within(most: int, width: int, height: int) -> tuple[int, int]:
    scale = min(1.0, most / max(width, height))
    return max(round(width * scale), 1), max(round(height * scale), 1)


def squared(fit: str, px: int) -> Framing:
    """How an image becomes a square: ``crop`` takes its middle, ``squash`` all of it, ``pad`` all of it in
    its own proportions, for ``padded`` to complete."""
    return partial(_square, fit, px)


def _square(fit: str, px: int, width: int, height: int) -> Frame:
    if fit == "crop":
        side = min(width, height)
        return Frame(((width - side) // 2, (height - side) // 2, side, side), (px, px))
    whole = (0, 0, width, height)
    if fit == "squash":
        return Frame(whole, (px, px))
    scale = px / max(width, height)
    return Frame(whole, (max(round(width * scale), 1), max(round(height * scale), 1)))


def _below(limit: int | None, framing: Framing, width: int, height: int) -> Frame:
    """The frame of an image that has no more pixels than ``limit``."""
    if limit is not None and width * height > limit:
        raise ValueError(f"{width} × {height} pixels are more than {limit // 10**6} million")
    return framing(width, height)


def _part(fit: Fit, box: Window | None, width: int, height: int) -> Frame:
    """A box of an image, or all of it, in the size that ``fit`` gives."""
    part = box or (0, 0, width, height)
    return Frame(part, fit(part[2], part[3]))


def padded(image: NDArray[np.uint8], px: int) -> NDArray[np.uint8]:
    """(h, w, bands) in the middle of a square without data."""
    height, width, count = image.shape
    if (height, width) == (px, px):
        return image
    square = np.full((px, px, count), NO_DATA, dtype=np.uint8)
    top = (px - height) // 2
    left = (px - width) // 2
    square[top : top + height, left : left + width] = image
    return square


# -- one image --------------------------------------------------------------------------------------


def render(source: Source, framing: Framing, reading: Reading, window: Window | None = None) -> Picture:
    """An image, or a window of a file, as bytes: (h, w, bands) of the frame's size. A plain small image is
    decoded here, any other by a decoder."""
    if window is None and is_harmless(source):
        with quiet():
            return _by_pillow(source, framing, reading)
    return _by_either(source, framing, reading, window)


@limited
@quiet()
def _by_either(source: Source, framing: Framing, reading: Reading, window: Window | None) -> Picture:
    """rasterio reads TIFF, JPEG 2000, deep PNG and windows, Pillow all else and what it reads as well."""
    footprint: Footprint = ()
    if window is not None or rasters.is_raster(head(source)):
        if rasters.is_installed():
            with rasters.opened(source) as raster:
                named_colours = reading.bands in ("auto", "rgb")
                if window is not None or not named_colours or not rasters.is_plain(raster):
                    return _by_rasterio(raster, framing, reading, window)
                footprint = rasters.footprint(raster)
        elif window is not None or rasters.pillow_cannot(source):
            raise ValueError(rasters.NEEDED)
    return _by_pillow(source, framing, reading)._replace(footprint=footprint)


def _by_rasterio(
    raster: "DatasetReader", framing: Framing, reading: Reading, window: Window | None
) -> Picture:
    area = window or (0, 0, raster.width, raster.height)
    (x, y, width, height), size = framing(area[2], area[3])
    names = rasters.names(raster)
    places = bands.chosen(reading.bands, names)
    part = rasters.read(raster, places, (area[0] + x, area[1] + y, width, height), size)

    def whole() -> Values:
        return rasters.read(raster, places, area, (SAMPLED, SAMPLED), averaged=False)

    image = _bytes(part, [names[place] for place in places], reading, whole)
    pixels = stretch.resized(stretch.coloured(image), size)
    footprint = rasters.footprint(raster, window) if part.valid.any() else ()  # an empty tile is left out
    return Picture(pixels, float(part.valid.mean()), area[2:], footprint)


def _bytes(
    part: Values, names: list[str], reading: Reading, whole: Callable[[], Values]
) -> NDArray[np.uint8]:
    """Values as bytes, by the limits of the archive or else of the ``whole`` image."""
    if reading.bands == "pca" and reading.components:
        limits = stretch.known_limits(names, replace(reading, stretch="archive"))
        if limits is None or len(limits) != len(reading.components[0]):
            raise ValueError(f"it has {len(names)} bands, the others have {len(reading.components[0])}")
        three = stretch.projected(stretch.scaled(part.values, limits), reading)
        return stretch.eight_bit(Values(three, part.valid), stretch.component_limits(reading))
    if stretch.is_kept(part.values, reading):
        return stretch.eight_bit(part, None)
    limits = stretch.known_limits(names, reading)
    return stretch.eight_bit(part, _own_limits(whole(), reading) if limits is None else limits)


def _own_limits(whole: Values, reading: Reading) -> Limits:
    if not whole.valid.any():
        raise ValueError("it holds no data")
    valid = np.broadcast_to(whole.valid, whole.values.shape[:2])
    return stretch.percentiles(whole.values[valid], reading.stretch_by == "joint")


def _by_pillow(source: Source, framing: Framing, reading: Reading) -> Picture:
    try:
        with Image.open(_file(source), formats=FORMATS) as image:
            if not safely.inside and image.width * image.height > safely.SMALL:
                raise ValueError("its header gives two sizes")
            sideways = _orientation(image) >= 5
            width, height = image.size[::-1] if sideways else image.size
            box, size = framing(width, height)
            if image.mode.startswith(("I", "F")):
                return _deep(image, box, size, reading)
            # A JPEG is decoded no finer than needed.
            finer = (math.ceil(size[0] * width / box[2]), math.ceil(size[1] * height / box[3]))
            image.draft("RGB", finer[::-1] if sideways else finer)
            upright = ImageOps.exif_transpose(image) if _orientation(image) > 1 else image
            colour, valid = _opaque(upright)
            across = colour.width / width
            down = colour.height / height
            left = round(box[0] * across)
            top = round(box[1] * down)
            right = left + max(round(box[2] * across), 1)
            bottom = top + max(round(box[3] * down), 1)
            part = colour.crop((left, top, right, bottom))
            picture = np.asarray(part.resize(size, Image.Resampling.BILINEAR))
    except UnidentifiedImageError:
        raise ValueError("not an image that can be read") from None
    places = bands.chosen(reading.bands, bands.COLOURS)
    pixels = picture[..., list(places)] if places != (0, 1, 2) else picture
    if reading.stretch != "auto":
        everywhere = np.ones(pixels.shape[:2], dtype=bool)
        every = Values(np.asarray(colour)[..., list(places)], valid)
        names = [bands.COLOURS[place] for place in places]
        pixels = _bytes(Values(pixels, everywhere), names, reading, lambda: every)
    return Picture(stretch.coloured(pixels), float(valid.mean()), (width, height))


def _file(source: Source) -> Path | io.BytesIO:
    return io.BytesIO(source) if isinstance(source, bytes) else source


def _orientation(image: Image.Image) -> int:
    """How a camera was held, 1 to 8. 1, upright, if the file does not say or says it wrong."""
    try:
        said = image.getexif().get(ORIENTATION, 1)
    except UNREADABLE:
        return 1
    return said if said in range(1, 9) else 1


def _opaque(image: Image.Image) -> tuple[Image.Image, NDArray[np.bool_]]:
    """An image without its alpha: what is transparent is mixed with the colour of no data. And where it is
    not quite transparent."""
    if "A" not in image.mode and "transparency" not in image.info:
        # A copy of a large image takes as much memory again.
        return image if image.mode == "RGB" else image.convert("RGB"), np.ones((1, 1), dtype=bool)
    clear = image.convert("RGBA")
    background = Image.new("RGBA", clear.size, (NO_DATA, NO_DATA, NO_DATA, 255))
    valid = np.asarray(clear)[..., 3] > 0
    return Image.alpha_composite(background, clear).convert("RGB"), valid


def _deep(image: Image.Image, box: Window, size: tuple[int, int], reading: Reading) -> Picture:
    """A deep grey image that Pillow can read, where there is no rasterio."""
    values = np.asarray(image, dtype=np.float32)[..., None]
    every = Values(values, np.isfinite(values[..., 0]))
    x, y, width, height = box
    part = Values(values[y : y + height, x : x + width], every.valid[y : y + height, x : x + width])
    pixels = _bytes(part, ["1"], reading, lambda: every)
    return Picture(stretch.resized(stretch.coloured(pixels), size), float(part.valid.mean()), image.size)
