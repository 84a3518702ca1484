"""Image files for the tests of this room: noise, scenes bright on the left, and damaged or deep files."""

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from PIL import Image
from rasterio.errors import NotGeoreferencedWarning

PX = 32
Pixels = NDArray[np.uint8]


def noise(seed: int, side: int = 16) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def put(path: Path, seed: int = 0) -> Path:
    """Write an image file of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise(seed)).save(path)
    return path


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def resized(path: Path, px: int) -> Pixels:
    """The pixels of a file, by Pillow alone."""
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize((px, px), Image.Resampling.BILINEAR))


def left_bright(dtype: Any, low: float, high: float, side: int = 64) -> NDArray[Any]:
    """(side, side): dark on the right, bright on the left, with noise of a tenth of the range."""
    scene = np.random.default_rng(5).uniform(low, low + (high - low) / 10, (side, side))
    scene[:, : side // 2] += 0.9 * (high - low)
    return scene.astype(dtype)


def raster(bands: NDArray[Any], **options: Any) -> bytes:
    """A GeoTIFF of (count, height, width)."""
    count, height, width = bands.shape
    shape = {"count": count, "height": height, "width": width, "dtype": bands.dtype}
    with warnings.catch_warnings(), rasterio.MemoryFile() as file:
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with file.open(driver="GTiff", **shape, **options) as out:
            out.write(bands)
        return bytes(file.read())


def bands(count: int, dtype: Any, low: float, high: float, nodata: float | None = None) -> NDArray[Any]:
    """Bright on the left; the upper quarter has no data."""
    scene = np.stack([left_bright(dtype, low, high)] * count)
    if nodata is not None:
        scene[:, :16] = nodata
    return scene


def colour() -> Image.Image:
    """Bright and reddish on the left."""
    scene = left_bright(np.float64, 10, 230)
    return Image.fromarray(np.stack([scene, scene * 0.9, scene * 0.8], axis=2).astype(np.uint8))


def veiled() -> Image.Image:
    """The same scene, a little more transparent to the left."""
    image = colour().convert("RGBA")
    image.putalpha(Image.fromarray(np.tile(np.linspace(200, 255, 64).astype(np.uint8), (64, 1))))
    return image


PLAIN: dict[str, Callable[[], bytes]] = {
    "JPEG": lambda: encoded(colour(), "JPEG"),
    "JPEG gray": lambda: encoded(colour().convert("L"), "JPEG"),
    "JPEG CMYK": lambda: encoded(colour().convert("CMYK"), "JPEG"),
    "JPEG 2000": lambda: encoded(colour(), "JPEG2000"),
    "PNG": lambda: encoded(colour(), "PNG"),
    "PNG RGBA": lambda: encoded(veiled(), "PNG"),
    "PNG gray and alpha": lambda: encoded(veiled().convert("LA"), "PNG"),
    "PNG palette": lambda: encoded(colour().quantize(16), "PNG"),
    "PNG palette, one colour clear": lambda: encoded(colour().quantize(16), "PNG", transparency=0),
    "PNG palette, half clear": lambda: encoded(colour().quantize(4), "PNG", transparency=b"\0\x80\xff\xff"),
    "PNG one bit": lambda: encoded(colour().convert("1"), "PNG"),
    "PNG 16-bit gray": lambda: encoded(Image.fromarray(left_bright(np.uint16, 500, 3000)), "PNG"),
    "GIF": lambda: encoded(colour().quantize(16), "GIF"),
    "WebP": lambda: encoded(colour(), "WEBP"),
    "BMP": lambda: encoded(colour(), "BMP"),
    "TIFF": lambda: encoded(colour(), "TIFF"),
    "TIFF LZW": lambda: encoded(colour(), "TIFF", compression="tiff_lzw"),
}
"""Files of every format that Pillow reads."""

RASTERS: dict[str, Callable[[], bytes]] = {
    "GeoTIFF 8-bit × 3": lambda: raster(bands(3, np.uint8, 10, 230)),
    "GeoTIFF 8-bit × 5, nodata": lambda: raster(bands(5, np.uint8, 10, 230, 0), nodata=0),
    "GeoTIFF 16-bit × 1": lambda: raster(bands(1, np.uint16, 500, 3000)),
    "GeoTIFF 16-bit × 1, nodata": lambda: raster(bands(1, np.uint16, 500, 3000, 65535), nodata=65535),
    "GeoTIFF 16-bit × 2": lambda: raster(bands(2, np.uint16, 500, 3000)),
    "GeoTIFF 16-bit × 3": lambda: raster(bands(3, np.uint16, 500, 3000)),
    "GeoTIFF 16-bit × 3, RGB": lambda: raster(bands(3, np.uint16, 500, 3000), photometric="RGB"),
    "GeoTIFF 16-bit × 4": lambda: raster(bands(4, np.uint16, 500, 3000)),
    "GeoTIFF 16-bit × 4, RGB": lambda: raster(bands(4, np.uint16, 500, 3000), photometric="RGB"),
    "GeoTIFF 16-bit × 4, nodata": lambda: raster(bands(4, np.uint16, 500, 3000, 0), nodata=0),
    "GeoTIFF 16-bit × 13": lambda: raster(bands(13, np.uint16, 500, 3000)),
    "GeoTIFF 16-bit × 4, tiled": lambda: raster(
        bands(4, np.uint16, 500, 3000),
        tiled=True,
        blockxsize=32,
        blockysize=32,
        compress="deflate",
        predictor=2,
    ),
    "GeoTIFF signed × 1, nodata": lambda: raster(bands(1, np.int16, -300, 3000, -32768), nodata=-32768),
    "GeoTIFF float × 1": lambda: raster(bands(1, np.float32, 0.02, 0.6)),
    "GeoTIFF float × 1, nodata": lambda: raster(bands(1, np.float32, 0.02, 0.6, -9999), nodata=-9999),
    "GeoTIFF float × 1, nodata NaN": lambda: raster(bands(1, np.float32, 0.02, 0.6, np.nan), nodata=np.nan),
    "GeoTIFF float × 1, infinite": lambda: raster(bands(1, np.float32, 0.02, 0.6, -np.inf)),
    "GeoTIFF float × 4, nodata": lambda: raster(bands(4, np.float32, 0.02, 0.6, -9999), nodata=-9999),
    "GeoTIFF double × 3": lambda: raster(bands(3, np.float64, 0.02, 0.6)),
    "GeoTIFF complex × 1": lambda: raster(bands(1, np.complex64, 0.02, 0.6)),
    "BigTIFF 16-bit × 4": lambda: raster(bands(4, np.uint16, 500, 3000), BIGTIFF="YES"),
}
"""GeoTIFFs of every depth, number of bands and kind of missing data."""


def assert_bright_on_the_left(pixels: Pixels, px: int) -> None:
    assert (pixels.shape, pixels.dtype.name) == ((px, px, 3), "uint8")
    valid = pixels[px // 4 + 2 :].astype(float)  # the upper quarter may hold no data
    half = px // 2
    left = valid[:, : half - 2].mean(axis=(0, 1))
    right = valid[:, half + 2 :].mean(axis=(0, 1))
    assert (left - right > 100).all(), (left, right)
    assert right.max() < 60
