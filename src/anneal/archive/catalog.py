"""A folder of images as ids.

An image's id is its row, given once in the order of the paths. Each file is read once: its bytes are
hashed (which finds duplicates), decoded to the network's size and kept as uint8 on disk, memory-mapped,
so that no epoch decodes again and a network that trains needs no folder.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import io
import json
import os
import struct
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from anneal.archive.pixels import Kept
from anneal.errors import ArchiveError, UsageError
from anneal.pairs import Ids

SUFFIXES = {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".gif", ".jp2"}
FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "WEBP", "GIF", "JPEG2000")
"""What Pillow may read: no format whose reader starts a program, whatever the file is called."""
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
LARGE = 50_000_000  # pixels: from here on GDAL's decimated read is far quicker than a whole decode
UNREADABLE = (OSError, ValueError, SyntaxError, OverflowError, struct.error, Image.DecompressionBombError)
SPLITS = ("train", "val", "test")
Reading = tuple[str, NDArray[np.uint8] | None, str]
"""(digest of a file, its pixels, why not): pixels or a reason, never both."""
Progress = Callable[[int, int], None]
"""Called with (done, all) as work goes on."""


def silent(done: int, total: int) -> None:
    """The progress of somebody who does not watch."""


@dataclass(frozen=True)
class Entry:
    """A file that is to be an image."""

    path: str  # relative to the root, with forward slashes
    label: str = ""  # its class; empty if it has none
    split: str = ""  # train, val or test; empty if it has none


@dataclass(frozen=True)
class Archive:
    """Images by id: row i of every column is image i."""

    root: Path
    paths: tuple[str, ...]
    labels: tuple[str, ...]  # classes; all empty if there are none
    splits: tuple[str, ...]
    digests: tuple[str, ...]  # of the files' content
    pixels: NDArray[np.uint8]  # (n, px, px, 3), memory-mapped
    skipped: tuple[tuple[str, str], ...]  # (path, why) of files that could not be read
    folder: Path  # where pixels and all that is computed from them are kept

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def px(self) -> int:
        return int(self.pixels.shape[1])

    @property
    def classes(self) -> Ids:
        """(n,) the class of each image as a number, in the order of the names; −1 without one."""
        names = sorted({label for label in self.labels if label})
        number = {name: i for i, name in enumerate(names)}
        return np.array([number.get(label, -1) for label in self.labels], dtype=np.int64)

    @property
    def duplicates(self) -> list[list[int]]:
        """Groups of images whose files have the same content."""
        groups: dict[str, list[int]] = {}
        for i, digest in enumerate(self.digests):
            groups.setdefault(digest, []).append(i)
        return [group for group in groups.values() if len(group) > 1]

    def find(self, path: Path) -> int | None:
        """The id of a file of this archive, given as a path on disk or relative to the root."""
        rows = {os.path.normpath(name): i for i, name in enumerate(self.paths)}
        root = self.root
        ways = (path, os.path.relpath(path, root), os.path.relpath(path.resolve(), root.resolve()))
        names = [os.path.normpath(str(way)) for way in ways]
        return next((rows[name] for name in names if name in rows), None)

    def picture(self, image: int, most: int) -> NDArray[np.uint8]:
        """The image for a person to look at: (h, w, 3), in its own proportions, no side longer than
        ``most``. An ArchiveError where its file can no longer be read."""
        path = self.root / self.paths[image]
        try:
            with _quiet():
                return _decode(path.read_bytes(), within(most))
        except UNREADABLE as error:
            raise ArchiveError(f"{path} can no longer be read ({error}): put it back.") from error

    def missing(self) -> list[str]:
        """Paths that are gone from the disk; what was kept of them still serves."""
        return [path for path in self.paths if not (self.root / path).exists()]


def open_archive(
    source: Path, px: int, cache: Path, progress: Progress = silent, workers: int | None = None
) -> Archive:
    """Read a folder of images, or a CSV manifest, to ``px`` × ``px``; go on where it stopped."""
    if not 8 <= px <= 2048:
        raise UsageError(f"--px {px} is not a size for a network: give 8 to 2048, for example 224.")
    root, entries = scan(source)
    folder = cache / _fingerprint(root, entries, px)
    kept = Kept(folder / "pixels", np.uint8, (px, px, 3))
    if not kept.complete:
        with kept.writing(), _quiet():
            _read_all(root, entries, px, kept, progress, workers or os.cpu_count() or 1)
    return _archive(root, kept, folder)


def reopen(root: Path, folder: Path, px: int) -> Archive:
    """An archive that was read before, from what was kept of it: the files need not be there."""
    kept = Kept(folder / "pixels", np.uint8, (px, px, 3))
    if not kept.complete:
        raise ArchiveError(
            f"The images kept in {folder} are gone or incomplete: put them back, or make a new campaign."
        )
    return _archive(root, kept, folder)


def _archive(root: Path, kept: Kept, folder: Path) -> Archive:
    note = kept.note
    if not kept.rows:
        first = "; ".join(f"{path}: {why}" for path, why in note["skipped"][:3])
        raise ArchiveError(f"None of the files in {root} could be read as an image ({first}).")
    columns = zip(*note["images"], strict=True)
    paths, labels, splits, digests = (tuple(column) for column in columns)
    skipped = tuple((path, why) for path, why in note["skipped"])
    pixels = kept.array()
    return Archive(root, paths, labels, splits, digests, pixels, skipped, folder)


def _read_all(
    root: Path, entries: list[Entry], px: int, kept: Kept, progress: Progress, workers: int
) -> None:
    images: list[list[str]] = kept.note.get("images", [])
    skipped: list[list[str]] = kept.note.get("skipped", [])
    done = len(images) + len(skipped)
    with ThreadPoolExecutor(workers) as pool:
        for start in range(done, len(entries), 256):  # few enough to be held, many enough to share
            some = entries[start : start + 256]
            rows = []
            for entry, (digest, image, why) in zip(
                some, pool.map(lambda e: _read(root / e.path, px), some), strict=True
            ):
                if image is None:
                    skipped.append([entry.path, why])
                else:
                    images.append([entry.path, entry.label, entry.split, digest])
                    rows.append(image)
            block = np.stack(rows) if rows else np.empty((0, px, px, 3), dtype=np.uint8)
            kept.append(block, {"images": images, "skipped": skipped})
            progress(start + len(some), len(entries))
    if not kept.complete:
        kept.finish({"images": images, "skipped": skipped})


def read_image(path: Path, px: int) -> Reading:
    """One image file, in or out of an archive."""
    with _quiet():
        return _read(path, px)


_silence = threading.Lock()
_readers = 0
_filters = warnings.catch_warnings()


@contextmanager
def _quiet() -> Iterator[None]:
    """Odd files make decoders warn; what matters is said in a reading. Filters are global: the first of
    those who read at once silences them, the last puts them back."""
    global _readers, _filters
    with _silence:
        _readers += 1
        if _readers == 1:
            _filters = warnings.catch_warnings()
            _filters.__enter__()
            warnings.simplefilter("ignore")
    try:
        yield
    finally:
        with _silence:
            _readers -= 1
            if not _readers:
                _filters.__exit__(None, None, None)


def _read(path: Path, px: int) -> Reading:
    try:
        data = path.read_bytes()
        return hashlib.blake2b(data, digest_size=16).hexdigest(), _decode(data, square(px)), ""
    except UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return "", None, reason.replace(str(path), path.name)


Fit = Callable[[int, int], tuple[int, int]]
"""(width, height) of a file → those of the picture that is made of it."""


def square(px: int) -> Fit:
    return lambda width, height: (px, px)


def within(most: int) -> Fit:
    """In its own proportions, no side longer than ``most``; never enlarged."""

    def fit(width: int, height: int) -> tuple[int, int]:
        scale = min(1.0, most / max(width, height))
        return max(round(width * scale), 1), max(round(height * scale), 1)

    return fit


def decode(data: bytes, px: int, limit: int | None = None) -> NDArray[np.uint8]:
    """The bytes of an image file as (px, px, 3) uint8: the whole image, squeezed to a square. One of more
    than ``limit`` pixels is refused before it is decoded.

    Eight-bit images are taken as they are. Deeper ones are stretched between their 2nd and 98th
    percentile, band by band; of many bands the first three are shown, of one or two the first.
    """

    def fit(width: int, height: int) -> tuple[int, int]:
        if limit is not None and width * height > limit:
            raise ValueError(f"{width} × {height} pixels are more than {limit // 10**6} million")
        return px, px

    with _quiet():
        return _decode(data, fit)


def _decode(data: bytes, fit: Fit) -> NDArray[np.uint8]:
    if data[:4] in TIFF or (data[:4] == b"\x89PNG" and data[24:25] == b"\x10"):  # a PNG of 16 bits
        raster = _decode_raster(data, fit)
        if raster is not None:
            return raster
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            size = fit(*image.size)
            if image.mode.startswith(("I", "F")):
                return _stretch(np.asarray(image, dtype=np.float32)[..., None], size)
            image.draft("RGB", size)  # JPEG: decode no finer than needed
            plain = image.convert("RGBA") if "transparency" in image.info else image
            return np.asarray(plain.convert("RGB").resize(size, Image.Resampling.BILINEAR))
    except UnidentifiedImageError:
        raise ValueError("not an image that can be read") from None


def _decode_raster(data: bytes, fit: Fit) -> NDArray[np.uint8] | None:
    """A TIFF with bands, depths or a size that Pillow does not do justice to; None for any other."""
    try:
        import rasterio  # noqa: F401 - the package as a whole, as find_spec sees it
        from rasterio.errors import RasterioError
        from rasterio.io import MemoryFile
    except ImportError:
        bits = _bits(data)
        if len(bits) > 1 and (max(bits) > 8 or len(bits) > 4):
            raise ValueError("a multiband or 16-bit TIFF needs rasterio: pip install 'anneal[geo]'") from None
        return None
    try:
        with MemoryFile(data) as file, file.open() as raster:
            plain = raster.dtypes[0] == "uint8" and raster.count in (1, 3, 4)
            if plain and raster.width * raster.height < LARGE:
                return None
            bands, size = [1, 2, 3] if raster.count > 2 else [1], fit(raster.width, raster.height)
            read = raster.read(bands, out_shape=(len(bands), size[1], size[0]), masked=True)
            values = np.abs(read) if np.iscomplexobj(read) else read
            values = np.moveaxis(np.ma.filled(values.astype(np.float32), np.nan), 0, -1)
            if raster.dtypes[0] == "uint8":
                return _colour(np.nan_to_num(values).astype(np.uint8))
            return _stretch(values, size)
    except RasterioError as error:
        raise ValueError(f"not a TIFF that can be read: {error}") from error


def _bits(data: bytes) -> tuple[int, ...]:
    """Bits of each band, by the TIFF's own header."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            return tuple(getattr(image, "tag_v2", {}).get(258, (8,)))
    except UnidentifiedImageError:
        return (16, 16)  # Pillow knows no way to show it


def _stretch(bands: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.uint8]:
    """(h, w, c) of any range → a picture of that width and height in uint8, each band between its 2nd and
    98th percentile; black where there is no data."""
    bands = np.where(np.isfinite(bands), bands, np.nan)
    if np.isnan(bands).all(axis=(0, 1)).any():
        raise ValueError("a band of it holds no data")
    low, high = np.nanpercentile(bands, (2, 98), axis=(0, 1))
    scaled = np.clip((bands - low) / np.maximum(high - low, 1e-6), 0, 1) * 255
    image = _colour(np.nan_to_num(scaled).astype(np.uint8))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR))


def _colour(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image


def scan(source: Path) -> tuple[Path, list[Entry]]:
    """The files to read, in the order of their paths: (root, entries)."""
    if not source.exists():
        raise UsageError(f"{source} does not exist: give a folder of images or a CSV manifest.")
    if source.is_file():
        return source.parent, _manifest(source)
    entries = [Entry(path, _class_of(path)) for path in sorted(_walk(source))]
    if not entries:
        kinds = " ".join(sorted(SUFFIXES))
        raise UsageError(f"{source} holds no image file ({kinds}): give another folder.")
    return source, entries


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if Path(name).suffix.lower() in SUFFIXES and not name.startswith("."):
                yield (Path(folder) / name).relative_to(root).as_posix()


def _class_of(path: str) -> str:
    """ImageFolder: the first folder below the root names the class."""
    return path.split("/", 1)[0] if "/" in path else ""


def _manifest(path: Path) -> list[Entry]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a CSV manifest in UTF-8: path[,class][,split].") from None
    rows = csv.DictReader(io.StringIO(text, newline=""))
    if "path" not in (rows.fieldnames or []):
        raise UsageError(f"{path} has no column 'path': a manifest is path[,class][,split].")
    entries = [Entry(row["path"] or "", row.get("class") or "", row.get("split") or "") for row in rows]
    if not all(entry.path for entry in entries):
        raise UsageError(f"{path} has a line without a path: each line names one image.")
    if not entries:
        raise UsageError(f"{path} lists no image.")
    names = [entry.path for entry in entries]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{path} lists {twice} twice: each image stands once.")
    for entry in entries:
        if entry.split and entry.split not in SPLITS:
            known = ", ".join(SPLITS)
            raise UsageError(f"{path} gives {entry.path} the split {entry.split!r}: use {known}.")
    return entries


def _fingerprint(root: Path, entries: list[Entry], px: int) -> str:
    """Changes when a file is added, removed or written again; reads none of them."""
    tiff = any(entry.path.lower().endswith((".tif", ".tiff")) for entry in entries)
    rasterio = tiff and importlib.util.find_spec("rasterio") is not None  # reads what Pillow cannot
    listing: list[Any] = [px, str(root.resolve()), rasterio]
    for entry in entries:
        try:
            seen = (root / entry.path).stat()
            listing.append([entry.path, entry.label, entry.split, seen.st_size, seen.st_mtime_ns])
        except OSError:
            listing.append([entry.path, entry.label, entry.split, None, None])
    return hashlib.blake2b(json.dumps(listing).encode(), digest_size=12).hexdigest()
