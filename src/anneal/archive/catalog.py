"""A folder of images as ids: an image's id is its row, and rows follow the order of the paths.

Each file is read once: hashed to find duplicates, decoded to the network's size and kept on disk.
"""

import csv
import hashlib
import importlib.util
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anneal.archive.decode import UNREADABLE, Reading, decode_to, read_image, within
from anneal.archive.pixels import GrowingArray
from anneal.errors import ArchiveError, UsageError
from anneal.pairs import Ids
from anneal.watch import Progress, silent

SUFFIXES = {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".gif", ".jp2"}
SPLITS = ("train", "val", "test")
BATCH = 256  # files between two saves: few enough for memory, enough to share among threads


class Entry(NamedTuple):
    """A file to read as an image."""

    path: str  # relative to the root, with forward slashes
    label: str = ""  # its class; empty if it has none
    split: str = ""  # train, val or test; empty if it has none


class About(NamedTuple):
    """What is known of an image beside its pixels."""

    window: tuple[int, int, int, int] | None = None  # x, y, width, height in its file; None: the whole file
    footprint: tuple[tuple[float, float], ...] = ()  # corners as (longitude, latitude) in WGS 84


NOTHING = About()


@dataclass(frozen=True)
class Archive:
    """Images by id: row i of every column is image i."""

    root: Path
    paths: tuple[str, ...]
    labels: tuple[str, ...]  # classes; all empty if there are none
    splits: tuple[str, ...]
    digests: tuple[str, ...]  # hashes of the files' bytes
    pixels: NDArray[np.uint8]  # (n, px, px, 3), memory-mapped
    skipped: tuple[tuple[str, str], ...]  # (path, reason) of files that could not be read
    folder: Path  # holds the pixels and everything computed from them
    about: tuple[About, ...]

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def px(self) -> int:
        return int(self.pixels.shape[1])

    @property
    def classes(self) -> Ids:
        """(n,) the class of each image as a number, in the order of the names; -1 without one."""
        number = {name: i for i, name in enumerate(sorted({*self.labels} - {""}))}
        return np.array([number.get(label, -1) for label in self.labels], dtype=np.int64)

    @property
    def duplicates(self) -> list[list[int]]:
        """Groups of images whose files have the same bytes."""
        groups: dict[str, list[int]] = {}
        for i, digest in enumerate(self.digests):
            groups.setdefault(digest, []).append(i)
        return [group for group in groups.values() if len(group) > 1]

    def find(self, path: Path) -> int | None:
        """The id of a file, given as a path on disk or relative to the root; None if it is not here."""
        relative = os.path.relpath(path, self.root)
        resolved = os.path.relpath(path.resolve(), self.root.resolve())
        names = [os.path.normpath(name) for name in (str(path), relative, resolved)]
        return next((self._rows[name] for name in names if name in self._rows), None)

    @cached_property
    def _rows(self) -> dict[str, int]:
        """The id of each path."""
        return {os.path.normpath(name): i for i, name in enumerate(self.paths)}

    def picture(self, image: int, most: int) -> NDArray[np.uint8]:
        """(h, w, 3) from the image's file, in its own proportions, no side longer than ``most``."""
        path = self.root / self.paths[image]
        if not is_inside(self.paths[image]):
            raise ArchiveError(f"{path} is not in the archive's folder: only what is stored of it is shown.")
        try:
            return decode_to(path.read_bytes(), within(most))
        except UNREADABLE as error:
            raise ArchiveError(f"{path} can no longer be read ({error}): put it back.") from error

    def missing(self) -> list[str]:
        """Paths of files that are gone from the disk. Their kept pixels still work."""
        return [path for path in self.paths if not (self.root / path).exists()]


def is_inside(path: str) -> bool:
    """Whether a path of a campaign, perhaps a stranger's, stays in the archive's folder."""
    return not os.path.isabs(path) and ".." not in Path(path).parts


def open_archive(
    source: Path, px: int, cache: Path, progress: Progress = silent, workers: int | None = None
) -> Archive:
    """Read a folder of images, or a CSV manifest, to ``px`` × ``px``. An interrupted read is continued."""
    if not 8 <= px <= 2048:
        raise UsageError(f"--px {px} is not a size for a network: give 8 to 2048, for example 224.")
    root, entries = scan(source)
    folder = cache / fingerprint(root, entries, px)
    pixels = GrowingArray(folder / "pixels", np.uint8, (px, px, 3))
    if not _is_read(pixels):
        with pixels.writing():
            _read(root, entries, pixels, progress, workers or os.cpu_count() or 1)
    return reopen(root, folder, px)


def reopen(root: Path, folder: Path, px: int) -> Archive:
    """An archive that was read before, from its kept pixels. The image files may be gone."""
    pixels = GrowingArray(folder / "pixels", np.uint8, (px, px, 3))
    if not _is_read(pixels):
        raise ArchiveError(f"Pixels in {folder} are gone or incomplete: restore them or make a new campaign.")
    images: list[tuple[str, str, str, str, About]] = []
    skipped: list[tuple[str, str]] = []
    for path, label, split, digest, reason, *more in _listed(pixels):
        if digest:
            # A class or a split stands in many lines and is held once.
            known = _about(more[0]) if more else NOTHING
            images.append((path, sys.intern(label), sys.intern(split), digest, known))
        else:
            skipped.append((path, reason))
    if not images:
        first = "; ".join(f"{path}: {reason}" for path, reason in skipped[:3])
        raise ArchiveError(f"None of the files in {root} could be read as an image ({first}).")
    paths, labels, splits, digests, about = zip(*images, strict=True)
    return Archive(root, paths, labels, splits, digests, pixels.array(), tuple(skipped), folder, about)


# -- the list of files ------------------------------------------------------------------------------
# ``pixels.jsonl`` has a line for every file: a JSON list of path, class, split, digest, reason and, where
# there is something to say, an object of About's fields. A file that could not be read has a reason and no
# digest. The list only grows. The note of the pixels says how many
# ``files`` count and how many ``bytes`` they take; what a killed reader left after them does not count.


def _list_file(pixels: GrowingArray) -> Path:
    return pixels.path.with_name("pixels.jsonl")


def _has_list(pixels: GrowingArray) -> bool:
    """Whether the list is as long as the note says."""
    file = _list_file(pixels)
    return "files" in pixels.note and file.exists() and file.stat().st_size >= pixels.note["bytes"]


def _is_read(pixels: GrowingArray) -> bool:
    """Whether every file was read. Earlier versions kept the list in the note."""
    return pixels.complete and ("images" in pixels.note or _has_list(pixels))


def _about(saved: dict[str, Any]) -> About:
    window = saved.get("window")
    footprint = tuple((x, y) for x, y in saved.get("footprint", ()))
    return About(tuple(window) if window else None, footprint)


def _listed(pixels: GrowingArray) -> Iterator[list[Any]]:
    """(path, class, split, digest, reason[, about]) of every file."""
    note = pixels.note
    if "images" in note:
        yield from ([*image, ""] for image in note["images"])
        yield from ([path, "", "", "", reason] for path, reason in note["skipped"])
        return
    with _list_file(pixels).open("rb") as lines:
        for _ in range(note["files"]):
            try:
                path, label, split, digest, reason, *more = json.loads(lines.readline())
            except (ValueError, TypeError) as error:
                where = _list_file(pixels)
                raise ArchiveError(f"The list of files in {where} is damaged: run anneal check.") from error
            yield [str(path), str(label), str(split), str(digest), str(reason), *more]


def _read(root: Path, entries: list[Entry], pixels: GrowingArray, progress: Progress, workers: int) -> None:
    """Append the pixels of every file not yet read, and its line. A batch is decoded while the one before it
    is written."""
    if not _has_list(pixels):
        pixels.clear()
        _list_file(pixels).write_bytes(b"")
    done = pixels.note.get("files", 0)
    with ThreadPoolExecutor(workers) as pool, _list_file(pixels).open("r+b") as lines:

        def start(at: int) -> tuple[list[Entry], Iterable[Reading]]:
            batch = entries[at : at + BATCH]
            return batch, pool.map(lambda entry: read_image(root / entry.path, pixels.row[0]), batch)

        lines.truncate(lines.seek(pixels.note.get("bytes", 0)))
        batch, readings = start(done)
        while batch:
            ahead = start(done + len(batch))
            rows = []
            for entry, (digest, image, reason) in zip(batch, readings, strict=True):
                lines.write(json.dumps([*entry, digest, reason]).encode() + b"\n")
                if image is not None:
                    rows.append(image)
            lines.flush()
            os.fsync(lines.fileno())
            done += len(batch)
            images = np.array(rows, dtype=np.uint8).reshape(-1, *pixels.row)
            pixels.append(images, {"files": done, "bytes": lines.tell()})
            progress(done, len(entries))
            batch, readings = ahead
    pixels.finish()


def scan(source: Path) -> tuple[Path, list[Entry]]:
    """The files of a folder, or of a manifest, in the order of their ids: (root, entries). The first folder
    below the root names the class, as in ImageFolder."""
    if not source.exists():
        raise UsageError(f"{source} does not exist: give a folder of images or a CSV manifest.")
    if source.is_file():
        return source.parent, manifest(source)
    entries = []
    for folder, folders, files in os.walk(source):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if Path(name).suffix.lower() in SUFFIXES and not name.startswith("."):
                path = (Path(folder) / name).relative_to(source)
                entries.append(Entry(path.as_posix(), path.parts[0] if len(path.parts) > 1 else ""))
    if not entries:
        raise UsageError(f"{source} holds no image file ({' '.join(sorted(SUFFIXES))}): give another folder.")
    return source, sorted(entries, key=lambda entry: entry.path)


def manifest(path: Path) -> list[Entry]:
    """The entries of a CSV file with the columns path[,class][,split], in its order."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a CSV manifest in UTF-8: path[,class][,split].") from None
    rows = csv.DictReader(io.StringIO(text, newline=""))
    if "path" not in (rows.fieldnames or []):
        raise UsageError(f"{path} has no column 'path': a manifest is path[,class][,split].")
    entries = [Entry(row["path"] or "", row.get("class") or "", row.get("split") or "") for row in rows]
    if not entries:
        raise UsageError(f"{path} lists no image.")
    seen = set()
    for entry in entries:
        if not entry.path:
            raise UsageError(f"{path} has a line without a path: each line names one image.")
        if entry.path in seen:
            raise UsageError(f"{path} lists {entry.path} twice: list each image once.")
        if entry.split and entry.split not in SPLITS:
            raise UsageError(f"{path} gives {entry.path} the split {entry.split!r}: use {', '.join(SPLITS)}.")
        seen.add(entry.path)
    return entries


def fingerprint(root: Path, entries: list[Entry], px: int) -> str:
    """A name that changes when a file is added, removed or rewritten. It reads no file."""
    tiff = any(entry.path.lower().endswith((".tif", ".tiff")) for entry in entries)
    rasterio = tiff and importlib.util.find_spec("rasterio") is not None  # reads what Pillow cannot
    listing: list[Any] = [px, str(root.resolve()), rasterio]
    for entry in entries:
        try:
            stat = (root / entry.path).stat()
            listing.append([*entry, stat.st_size, stat.st_mtime_ns])
        except OSError:
            listing.append([*entry, None, None])
    return hashlib.blake2b(json.dumps(listing).encode(), digest_size=12).hexdigest()
