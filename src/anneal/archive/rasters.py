"""Images with many bands, deep values or a very large size: rasterio and the stretch to eight bits."""

import io
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

Fit = Callable[[int, int], tuple[int, int]]
"""(width, height) of a file → (width, height) of the picture made from it."""

TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
LARGE = 50_000_000  # pixels; from here on GDAL's decimated read is much faster than a whole decode


def decode_raster(data: bytes, fit: Fit) -> NDArray[np.uint8] | None:
    """A TIFF or a 16-bit PNG as (h, w, 3) of its first three bands, or of its first if there are fewer than
    three. None for a file that Pillow reads well."""
    deep_png = data[:4] == b"\x89PNG" and data[24:25] == b"\x10"
    if not deep_png and data[:4] not in TIFF:
        return None
    try:
        import rasterio  # noqa: F401 - fails where find_spec finds nothing, even if a submodule is loaded
        from rasterio.errors import RasterioError
        from rasterio.io import MemoryFile
    except ImportError:
        depths = bits(data)
        if len(depths) > 1 and (max(depths) > 8 or len(depths) > 4):
            raise ValueError("a multiband or 16-bit TIFF needs rasterio: pip install 'anneal[geo]'") from None
        return None
    try:
        with MemoryFile(data) as file, file.open() as raster:
            eight_bit = raster.dtypes[0] == "uint8"
            if eight_bit and raster.count in (1, 3, 4) and raster.width * raster.height < LARGE:
                return None
            bands = [1, 2, 3] if raster.count > 2 else [1]
            width, height = fit(raster.width, raster.height)
            values = raster.read(bands, out_shape=(len(bands), height, width), masked=True)
    except RasterioError as error:
        raise ValueError(f"not a TIFF that can be read: {error}") from error
    if np.iscomplexobj(values):
        values = np.abs(values)
    filled = np.ma.filled(values.astype(np.float32), np.nan)
    image = np.moveaxis(filled, 0, -1)  # (h, w, bands)
    if eight_bit:
        return colour(np.nan_to_num(image).astype(np.uint8))
    return stretch(image, (width, height))


def bits(data: bytes) -> tuple[int, ...]:
    """Bits of each band, from the header of a TIFF."""
    try:
        with Image.open(io.BytesIO(data), formats=("TIFF", "PNG")) as image:
            return tuple(getattr(image, "tag_v2", {}).get(258, (8,)))
    except UnidentifiedImageError:
        return (16, 16)  # Pillow cannot show it


def stretch(bands: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.uint8]:
    """(h, w, bands) of any range → uint8 of ``size``, which is (width, height). Each band is scaled between
    its 2nd and 98th percentile. No data becomes black."""
    bands = np.where(np.isfinite(bands), bands, np.nan)
    if np.isnan(bands).all(axis=(0, 1)).any():
        raise ValueError("one of its bands holds no data")
    low, high = np.nanpercentile(bands, (2, 98), axis=(0, 1))
    scaled = np.clip((bands - low) / np.maximum(high - low, 1e-6), 0, 1) * 255
    image = colour(np.nan_to_num(scaled).astype(np.uint8))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR))


def colour(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(h, w, 1 or 3) → (h, w, 3)."""
    return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image
