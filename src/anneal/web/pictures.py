"""JPEGs of the archive's images, made once and kept beside the campaign."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anneal.archive.catalog import Archive
from anneal.errors import ArchiveError

Make = Callable[[], NDArray[np.uint8]]
LARGE = 1024  # pixels: the longer side of a picture to judge by
SMALL = 160  # pixels: the side of a picture in a grid


class Pictures:
    def __init__(self, archive: Archive, folder: Path) -> None:
        self.archive = archive
        self.folder = folder

    def large(self, image: int) -> tuple[bytes, bool]:
        """The image from its file, in its own proportions, and True. Without the file: the stored pixels, and
        False; that JPEG is not kept."""
        try:
            return self._kept("large", image, lambda: self.archive.picture(image, LARGE), 90), True
        except ArchiveError:
            return jpeg(self.archive.pixels[image]), False

    def small(self, image: int) -> bytes:
        return self._kept("small", image, lambda: _shrunk(self.archive.pixels[image]), 80)

    def _kept(self, kind: str, image: int, make: Make, quality: int) -> bytes:
        path = self.folder / kind / f"{image // 1000:04d}" / f"{image}.jpg"
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


def _shrunk(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.asarray(Image.fromarray(np.asarray(pixels)).resize((SMALL, SMALL), Image.Resampling.LANCZOS))


def jpeg(pixels: NDArray[np.uint8], quality: int = 90) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.asarray(pixels)).save(file, "JPEG", quality=quality)
    return file.getvalue()
