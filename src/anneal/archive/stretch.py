"""Values of any range → eight bits, by limits from a sample of the archive, each image or a person."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anneal.archive.rasters import Values
from anneal.archive.reading import Reading
from anneal.settings import stretch_range

NO_DATA = 128
"""What a pixel without data becomes, in the stored pixels and in pictures. After a network's scaling it is
about 0, which is also what a convolution sees beyond the edge of an image."""
LOWEST = 2  # percentile that becomes black
HIGHEST = 98  # percentile that becomes white
COMPONENT = "component"  # what the limits of the principal components are named
Limits = NDArray[np.float64]
"""(bands, 2): the values that become 0 and 255."""


def is_kept(values: NDArray[Any], reading: Reading) -> bool:
    """Whether values stay as they are: eight bits, and nobody asked for a stretch."""
    return values.dtype == np.uint8 and reading.stretch == "auto"


def percentiles(values: NDArray[Any], joint: bool) -> Limits:
    """(m, bands) values with data → their limits, for each band or for all as one. NaN is left out."""
    finite = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
    if np.isnan(finite).all(axis=0).any():
        raise ValueError("one of its bands holds no data")
    if joint:
        both = np.nanpercentile(finite, (LOWEST, HIGHEST))
        return np.tile(both, (finite.shape[1], 1))
    return np.asarray(np.nanpercentile(finite, (LOWEST, HIGHEST), axis=0).T)


def known_limits(names: Sequence[str], reading: Reading) -> Limits | None:
    """The limits for these bands by what was chosen or decided; None if each image has its own."""
    given = stretch_range(reading.stretch)
    if given is not None:
        return np.tile(np.array(given), (len(names), 1))
    if reading.stretch == "image" or not reading.limits:
        return None
    decided = {name: (low, high) for name, low, high in reading.limits}
    widest = (min(low for low, _ in decided.values()), max(high for _, high in decided.values()))
    return np.array([decided.get(name, widest) for name in names])


def scaled(values: NDArray[Any], limits: Limits) -> NDArray[np.float32]:
    """(…, bands) → 0 to 1 between the limits of each band. What is no number becomes 0."""
    low = limits[:, 0].astype(np.float32)
    span = np.maximum(limits[:, 1] - limits[:, 0], 1e-6).astype(np.float32)
    between = np.clip((values.astype(np.float32) - low) / span, 0, 1)
    return np.asarray(np.nan_to_num(between, nan=0.0))


def projected(values: NDArray[np.float32], reading: Reading) -> NDArray[np.float32]:
    """(…, bands) from 0 to 1 → (…, 3) principal components."""
    return values @ np.array(reading.components, dtype=np.float32).T


def component_limits(reading: Reading) -> Limits:
    """The limits of the principal components."""
    limits = known_limits([f"{COMPONENT} {i}" for i in range(3)], replace(reading, stretch="archive"))
    assert limits is not None, "a projection is decided with its limits"
    return limits


def eight_bit(part: Values, limits: Limits | None) -> NDArray[np.uint8]:
    """(h, w, bands) as bytes; without limits the values are bytes already."""
    if limits is None:
        image = part.values.astype(np.uint8)
    else:
        image = (scaled(part.values, limits) * 255).astype(np.uint8)
    return np.where(part.valid[..., None], image, np.uint8(NO_DATA))


def resized(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """(h, w, bands) → ``size``, which is (width, height). Each band by itself."""
    if (image.shape[1], image.shape[0]) == size:
        return image
    bands = [
        np.asarray(
            Image.fromarray(np.ascontiguousarray(image[..., i])).resize(size, Image.Resampling.BILINEAR)
        )
        for i in range(image.shape[2])
    ]
    return np.stack(bands, axis=2)


def coloured(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """One band becomes three equal ones."""
    return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image
