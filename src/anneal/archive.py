"""A folder of images as ids.

An image's id is its row, given once in the order of the paths. Each file is read once: its bytes are
hashed (which finds duplicates), decoded to the network's size and kept as uint8 on disk, memory-mapped,
so that no epoch decodes again and a network that trains needs no folder.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from anneal.errors import ArchiveError, UsageError
from anneal.kept import Kept
from anneal.pairs import Ids

SUFFIXES = {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".gif", ".jp2"}
SPLITS = ("train", "val", "test")
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
        rows = {name: i for i, name in enumerate(self.paths)}
        if path.as_posix() in rows:
            return rows[path.as_posix()]
        try:
            return rows.get(path.resolve().relative_to(self.root.resolve()).as_posix())
        except ValueError:
            return None

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
        _read_all(root, entries, px, kept, progress, workers or os.cpu_count() or 1)
    return _archive(root, kept, folder)


def reopen(root: Path, folder: Path, px: int) -> Archive:
    """An archive that was read before, from what was kept of it: the files need not be there."""
    kept = Kept(folder / "pixels", np.uint8, (px, px, 3))
    if not kept.complete:
        raise ArchiveError(f"The images kept in {folder} are gone or incomplete: run init again.")
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
                some, pool.map(lambda e: read_image(root / e.path, px), some), strict=True
            ):
                if image is None:
                    skipped.append([entry.path, why])
                else:
                    images.append([entry.path, entry.label, entry.split, digest])
                    rows.append(image)
            block = np.stack(rows) if rows else np.empty((0, px, px, 3), dtype=np.uint8)
            kept.append(block, {"images": images, "skipped": skipped})
            progress(start + len(some), len(entries))
    kept.finish({"images": images, "skipped": skipped})


def read_image(path: Path, px: int) -> tuple[str, NDArray[np.uint8] | None, str]:
    """(digest of the file, pixels, why not): the pixels are None and the reason is given, or neither."""
    try:
        data = path.read_bytes()
        return hashlib.blake2b(data, digest_size=16).hexdigest(), decode(data, px), ""
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return "", None, reason.replace(str(path), path.name)


def decode(data: bytes, px: int) -> NDArray[np.uint8]:
    """The bytes of an image file as (px, px, 3) uint8: the whole image, squeezed to a square.

    Eight-bit images are taken as they are. Deeper ones are stretched between their 2nd and 98th
    percentile, band by band; of many bands the first three are shown, of one or two the first.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as image:
                if image.mode.startswith(("I", "F")):
                    return _stretch(np.asarray(image, dtype=np.float32)[..., None], px)
                image.draft("RGB", (px, px))  # JPEG: decode no finer than needed
                small = image.convert("RGB").resize((px, px), Image.Resampling.BILINEAR)
                return np.asarray(small)
    except UnidentifiedImageError:
        if data[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
            return _decode_raster(data, px)
        raise ValueError("not an image that can be read") from None


def _decode_raster(data: bytes, px: int) -> NDArray[np.uint8]:
    """A TIFF of many bands or of 16 bits and more, by rasterio."""
    try:
        import rasterio
        from rasterio.errors import NotGeoreferencedWarning, RasterioError
        from rasterio.io import MemoryFile
    except ImportError:
        raise ValueError("a multiband or 16-bit TIFF needs rasterio: pip install 'anneal[geo]'") from None
    try:
        with warnings.catch_warnings(), rasterio.Env(), MemoryFile(data) as file:
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            with file.open() as raster:
                bands = list(range(1, min(raster.count, 3) + 1)) if raster.count > 2 else [1]
                read = raster.read(bands, out_shape=(len(bands), px, px), masked=True)
                valid = np.ma.filled(read.astype(np.float32), np.nan)
                if raster.dtypes[0] == "uint8":
                    return _colour(np.nan_to_num(np.moveaxis(valid, 0, -1)).astype(np.uint8))
                return _stretch(np.moveaxis(valid, 0, -1), px)
    except RasterioError as error:
        raise ValueError(f"not a TIFF that can be read: {error}") from error


def _stretch(bands: NDArray[np.float32], px: int) -> NDArray[np.uint8]:
    """(h, w, c) of any range → (px, px, 3) uint8, each band between its 2nd and 98th percentile."""
    low, high = np.nanpercentile(bands, (2, 98), axis=(0, 1))
    scaled = np.clip((bands - low) / np.maximum(high - low, 1e-6), 0, 1) * 255
    image = _colour(np.nan_to_num(scaled).astype(np.uint8))
    if image.shape[:2] == (px, px):
        return image
    small = Image.fromarray(image).resize((px, px), Image.Resampling.BILINEAR)
    return np.asarray(small)


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
    with path.open(newline="", encoding="utf-8-sig") as lines:
        rows = csv.DictReader(lines)
        if "path" not in (rows.fieldnames or []):
            raise UsageError(f"{path} has no column 'path': a manifest is path[,class][,split].")
        entries = [Entry(row["path"], row.get("class") or "", row.get("split") or "") for row in rows]
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
    listing: list[Any] = [px, str(root.resolve())]
    for entry in entries:
        try:
            seen = (root / entry.path).stat()
            listing.append([entry.path, entry.label, entry.split, seen.st_size, seen.st_mtime_ns])
        except OSError:
            listing.append([entry.path, entry.label, entry.split, None, None])
    return hashlib.blake2b(json.dumps(listing).encode(), digest_size=12).hexdigest()
