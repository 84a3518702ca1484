"""Files that rasterio reads: bands, masks, windows and footprints. A file on disk is never read whole."""

import importlib.util
import io
import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from anneal.archive import bands
from anneal.archive.reading import Footprint, Window
from anneal.archive.safely import JPEG, PNG, Source, head

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
JPEG_2000 = (b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51")
LARGE = 50_000_000  # pixels; from here on GDAL's decimated read is much faster than a whole decode
SMALL = 4_000_000  # values of a window that is read as it is
BLOCKS = 128  # megabytes of decoded blocks that GDAL may keep
NEEDED = "it needs rasterio: pip install 'anneal[geo]'"
PLAIN = (
    ("gray",),
    ("palette",),
    ("red", "green", "blue"),
    ("red", "green", "blue", "alpha"),
    ("cyan", "magenta", "yellow", "black"),
)  # colour interpretations of eight-bit files that Pillow reads well


class Values(NamedTuple):
    """What a part of a file holds."""

    values: NDArray[Any]  # (h, w, bands), in the file's own type
    valid: NDArray[np.bool_]  # (h, w); False where there is no data


def is_installed() -> bool:
    return importlib.util.find_spec("rasterio") is not None


def is_raster(start: bytes) -> bool:
    """Whether rasterio should look at a file with these first bytes: a TIFF, JPEG 2000 or a 16-bit PNG."""
    deep_png = start.startswith(PNG) and start[24:25] == b"\x10"
    return deep_png or start[:4] in TIFF or start.startswith(JPEG_2000)


def driver(start: bytes) -> str:
    """GDAL's driver for a file with these first bytes. No other may look at it: some open other files."""
    if start.startswith(JPEG_2000):
        return "JP2OpenJPEG"
    drivers = {PNG: "PNG", JPEG: "JPEG", **dict.fromkeys(TIFF, "GTiff")}
    for first, name in drivers.items():
        if start.startswith(first):
            return name
    raise ValueError("not a raster that can be read")


def pillow_cannot(source: Source) -> bool:
    """Whether only rasterio can show this file, by its header."""
    try:
        with Image.open(source if isinstance(source, Path) else io.BytesIO(source)) as image:
            depths = getattr(image, "tag_v2", {}).get(258, (8,))
            return len(depths) > 1 and (max(depths) > 8 or len(depths) > 4)
    except UnidentifiedImageError:
        return True


_lock = threading.Lock()
_active = 0  # decoders at work now, in all threads
_filters = ExitStack()


@contextmanager
def quiet() -> Iterator[None]:
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


_kept = threading.local()
"""A thread's last file stays open: the next tile is in it, in blocks that are decoded already."""


@contextmanager
def opened(source: Source) -> "Iterator[DatasetReader]":
    """A file open in rasterio. Its errors become a ValueError."""
    import rasterio
    from rasterio._err import CPLE_BaseError  # of GDAL, where rasterio does not translate it
    from rasterio.errors import RasterioError
    from rasterio.io import MemoryFile

    try:
        with rasterio.Env(GDAL_CACHEMAX=BLOCKS, GDAL_DISABLE_READDIR_ON_OPEN="FALSE"):
            if isinstance(source, bytes):
                with MemoryFile(source) as file, file.open(driver=driver(head(source))) as raster:
                    yield raster
            else:
                yield _open_kept(source)
    except (RasterioError, CPLE_BaseError) as error:
        raise ValueError(f"not a raster that can be read: {error}") from error


def _open_kept(path: Path) -> "DatasetReader":
    import rasterio

    state = path.stat()
    key = (str(path), state.st_mtime_ns, state.st_size)
    if getattr(_kept, "key", None) != key:
        forget()
        _kept.raster = rasterio.open(path, driver=driver(head(path)))
        _kept.key = key
    raster: DatasetReader = _kept.raster
    return raster


def forget() -> None:
    """Close the file that this thread keeps open."""
    if getattr(_kept, "key", None) is not None:
        _kept.raster.close()
    _kept.key = None
    _kept.raster = None


def names(raster: "DatasetReader") -> tuple[str, ...]:
    """The names of the bands. A palette stands for three colours."""
    if is_palette(raster):
        return bands.COLOURS
    return bands.named(raster.descriptions, [one.name for one in raster.colorinterp])


def is_palette(raster: "DatasetReader") -> bool:
    return bool(raster.count == 1 and raster.colorinterp[0].name == "palette")


def is_plain(raster: "DatasetReader") -> bool:
    """Whether Pillow shows this file as well: eight bits, ordinary colours, everywhere data."""
    if any(dtype != "uint8" for dtype in raster.dtypes) or raster.width * raster.height >= LARGE:
        return False
    if any(raster.descriptions) or any(value is not None for value in raster.nodatavals):
        return False
    flags = {flag.name for every in raster.mask_flag_enums for flag in every}
    colours = tuple(one.name for one in raster.colorinterp)
    own_mask = "per_dataset" in flags and "alpha" not in flags
    return colours in PLAIN and not own_mask


def read(
    raster: "DatasetReader",
    places: tuple[int, ...],
    box: Window,
    size: tuple[int, int],
    averaged: bool = True,
) -> Values:
    """Some bands of a window, about as finely as a picture of ``size`` needs: overviews are used, and a large
    window is averaged while it is read, never held whole. For statistics it is not ``averaged``: means have
    a narrower range than values."""
    from rasterio.enums import Resampling
    from rasterio.windows import Window as Part

    x, y, width, height = box
    shape = (min(height, 2 * size[1]), min(width, 2 * size[0]))
    if averaged and width * height * len(places) <= SMALL:
        shape = (height, width)  # quicker than GDAL's mean
    part = Part(x, y, width, height)
    if is_palette(raster):
        return _palette(raster, part, shape, places)
    numbers = [place + 1 for place in places]
    smaller = shape != (height, width)
    how = {"window": part, "out_shape": (len(numbers), *shape)}
    resampling = Resampling.average if smaller and averaged else Resampling.nearest
    names_ = names(raster)
    alpha_is_data = bands.ALPHA in names_ and names_.index(bands.ALPHA) in places
    values = raster.read(numbers, masked=not alpha_is_data, resampling=resampling, **how)
    if np.iscomplexobj(values):
        values = np.abs(values)
    finite = np.isfinite(np.ma.getdata(values))
    valid = np.asarray((finite & ~np.ma.getmaskarray(values)).any(axis=0))
    return Values(np.moveaxis(np.ma.getdata(values), 0, -1), valid)


def _palette(raster: "DatasetReader", part: Any, shape: tuple[int, int], places: tuple[int, ...]) -> Values:
    indices = raster.read(1, window=part, out_shape=shape)
    table = np.zeros((65536 if indices.dtype == np.uint16 else 256, 4), np.uint8)
    for index, colour in raster.colormap(1).items():
        table[index] = colour
    mask = raster.read_masks(1, window=part, out_shape=shape) > 0
    coloured = table[indices]
    return Values(coloured[..., list(places)], mask & (coloured[..., 3] > 0))


def footprint(raster: "DatasetReader", window: Window | None = None) -> Footprint:
    """The corners of a window in WGS 84, from the upper left one clockwise; empty if the file does not say
    where it is."""
    from rasterio.errors import CRSError, RasterioError
    from rasterio.transform import from_gcps
    from rasterio.warp import transform

    crs = raster.crs
    affine = raster.transform
    points, points_crs = raster.gcps
    if points and crs is None:
        crs = points_crs
        affine = from_gcps(points)
    if crs is None or affine.is_identity:
        return ()
    x, y, width, height = window or (0, 0, raster.width, raster.height)
    corners = ((x, y), (x + width, y), (x + width, y + height), (x, y + height))
    easts = [affine.a * u + affine.b * v + affine.c for u, v in corners]
    norths = [affine.d * u + affine.e * v + affine.f for u, v in corners]
    with suppress(CRSError, RasterioError, ValueError):
        xs, ys = transform(crs, "EPSG:4326", easts, norths)
        if all(math.isfinite(value) for value in (*xs, *ys)):
            return tuple((round(lon, 7), round(lat, 7)) for lon, lat in zip(xs, ys, strict=True))
    return ()
