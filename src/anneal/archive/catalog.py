"""A folder of images as ids: an image's id is its row. Rows follow the order of the paths; images that come
later (``growth``) are appended.

Each file is read once: hashed to find duplicates, decoded to the network's size and kept on disk.
"""

import csv
import hashlib
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anneal.archive import rasters, thumbnails
from anneal.archive.bands import NoBandError
from anneal.archive.decode import UNREADABLE, Facts, Outcome, facts, read_image, shown, within
from anneal.archive.listing import scan as scan
from anneal.archive.pixels import GrowingArray
from anneal.archive.reading import FILE, NOTHING, Reading, Window, file_of
from anneal.archive.reading import About as About
from anneal.archive.reading import Entry as Entry
from anneal.archive.safely import head
from anneal.archive.sampling import decide
from anneal.errors import ArchiveError, UsageError
from anneal.files import explain_disk_errors, write_text
from anneal.pairs import Ids
from anneal.watch import Progress, silent

DEEP = {".tif", ".tiff", ".jp2", ".png"}  # may be deeper than Pillow reads
DEFAULT = Reading()
SHOWN = 8  # images that a notebook shows of an archive
BATCH = 256  # files between two saves: few enough for memory, enough to share among threads


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
    reading: Reading
    folders: tuple[str, ...] = ()  # outside the root, that belong to it too

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
        names = [os.path.normpath(name) for name in (str(path), relative, resolved, str(path.resolve()))]
        return next((self._rows[name] for name in names if name in self._rows), None)

    @cached_property
    def _rows(self) -> dict[str, int]:
        """The id of each path."""
        return {os.path.normpath(name): i for i, name in enumerate(self.paths)}

    def file(self, image: int) -> Path:
        """The file that an image is in."""
        return self.root / file_of(self.paths[image], self.about[image].window)

    def _own_file(self, image: int) -> Path:
        """The same, unless it is outside the archive: a stranger's campaign may name any file."""
        path = self.file(image)
        if not is_inside(self.paths[image], self.folders):
            raise ArchiveError(f"{path} is not in the archive's folder: only what is stored of it is shown.")
        return path

    def shown(self, image: int) -> NDArray[np.uint8]:
        """(px, px, 3) of the stored pixels, for a person."""
        return self.reading.for_a_person(self.pixels[image])

    def picture(
        self, image: int, most: int, bands: str | None = None, box: Window | None = None
    ) -> NDArray[np.uint8]:
        """(h, w, 3) from the image's file, in its own proportions, no side longer than ``most``: all of it,
        or a ``box`` (x, y, width, height) of its own pixels. ``bands`` shows others than the archive does."""
        path = self._own_file(image)
        reading = self.reading if bands is None else replace(self.reading, bands=bands, channels=3)
        try:
            return shown(path, within(most), reading, self.about[image].window, box)
        except NoBandError as error:
            raise UsageError(f"{path.name} cannot be shown with bands {reading.bands}: {error}.") from error
        except UNREADABLE as error:
            raise ArchiveError(f"{path} can no longer be read ({error}): put it back.") from error

    def facts(self, image: int) -> Facts:
        """The size of an image in its file, and the names of the file's bands."""
        path = self._own_file(image)
        try:
            return facts(path, self.about[image].window)
        except UNREADABLE as error:
            raise ArchiveError(f"{path} can no longer be read ({error}): put it back.") from error

    def list_skipped(self, folder: Path) -> Path:
        """Write ``skipped.csv``, path and reason of every file that is left out. Returns its path."""
        text = io.StringIO(newline="")
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(("path", "reason"))
        rows.writerows(self.skipped)
        write_text(folder / "skipped.csv", text.getvalue())
        return folder / "skipped.csv"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        classes = len({*self.labels} - {""})
        text = f"{len(self)} images in {self.root}" + (f", {classes} classes" if classes else "")
        some = np.linspace(0, len(self) - 1, min(SHOWN, len(self)), dtype=np.int64).tolist()
        return thumbnails.page(text, [(self.shown(image), self.paths[image]) for image in some])

    def missing(self) -> list[str]:
        """Paths of files that are gone from the disk. Their kept pixels still work."""
        there = lru_cache(maxsize=1)(Path.exists)  # tiles of a file follow one another
        return [path for i, path in enumerate(self.paths) if not there(self.file(i))]


def is_inside(path: str, folders: Sequence[str] = ()) -> bool:
    """Whether a path of a campaign, perhaps a stranger's, stays in the archive's folder, or in one of the
    other ``folders`` that belong to it."""
    if not os.path.isabs(path) and ".." not in Path(path).parts:
        return True
    return any(_is_below(Path(os.path.normpath(path)), Path(folder)) for folder in folders)


def _is_below(path: Path, folder: Path) -> bool:
    """Whether a normal path leads into a folder. Both may begin with .., and ../.. is not below .. then."""
    if path.is_absolute() != folder.is_absolute():
        return False
    depth = len(folder.parts)
    return path.parts[:depth] == folder.parts and path.parts[depth : depth + 1] not in ((), ("..",))


def folders_outside(files: Iterable[str]) -> list[str]:
    """The folders of files that are not in the archive's own, as a manifest may name them."""
    return sorted({os.path.dirname(os.path.normpath(file)) for file in files if not is_inside(file)})


def open_archive(
    source: Path,
    px: int,
    cache: Path,
    progress: Progress = silent,
    workers: int | None = None,
    reading: Reading = DEFAULT,
    skip_unreadable: bool = False,
) -> Archive:
    """Read the images that ``scan`` finds to ``px`` × ``px``. An interrupted read is continued. Files that
    need rasterio where it is missing are an error, unless ``skip_unreadable``."""
    if not 8 <= px <= 2048:
        raise UsageError(f"--px {px} is not a size for a network: give 8 to 2048, for example 224.")
    root, entries = scan(source, reading)
    folder = cache / fingerprint(root, entries, px, reading)
    if (folder / FILE).exists():
        reading = Reading.load(folder)
    else:
        check_installed(root, entries, skip_unreadable)
        reading = decide(root, entries, reading)
        with explain_disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            reading.save(folder)
    pixels = GrowingArray(folder / "pixels", np.uint8, (px, px, reading.channels))
    if not _is_read(pixels):
        with pixels.writing():
            done = pixels.note.get("files", 0) if _has_list(pixels) else 0
            read_entries(root, entries[done:], pixels, reading, progress, workers or os.cpu_count() or 1)
    return reopen(root, folder, px)


def reopen(root: Path, folder: Path, px: int, size: int | None = None, *, and_more: bool = False) -> Archive:
    """An archive that was read before, from its kept pixels. The image files may be gone. With a ``size`` it
    has only the images with smaller ids, unless ``and_more``: the pixels may be growing."""
    reading = Reading.load(folder)
    pixels = GrowingArray(folder / "pixels", np.uint8, (px, px, reading.channels))
    if not _is_read(pixels) and not (size and pixels.rows >= size and _has_list(pixels)):
        raise ArchiveError(f"Pixels in {folder} are gone or incomplete: restore them or make a new campaign.")
    images: list[tuple[str, str, str, str, About]] = []
    skipped: dict[str, str] = {}
    for path, label, split, digest, reason, *more in _listed(pixels):
        if digest:
            # A class or a split stands in many lines and is held once.
            known = about_of(more[0]) if more else NOTHING
            images.append((path, sys.intern(label), sys.intern(split), digest, known))
            skipped.pop(path, None)
        else:
            skipped[path] = reason
    if not and_more:
        images = images[:size]
    if not images:
        first = "; ".join(f"{path}: {reason}" for path, reason in list(skipped.items())[:3])
        raise ArchiveError(f"None of the files in {root} could be read as an image ({first}).")
    paths, labels, splits, digests, about = zip(*images, strict=True)
    columns = (paths, labels, splits, digests)
    array = pixels.array()[: len(images)]
    return Archive(root, *columns, array, tuple(skipped.items()), folder, about, reading)


def with_paths(archive: Archive, moved: Mapping[int, str]) -> Archive:
    """The archive with some images at other paths."""
    if not moved:
        return archive
    paths = tuple(moved.get(i, path) for i, path in enumerate(archive.paths))
    return replace(archive, paths=paths)


# -- the list of files ------------------------------------------------------------------------------
# ``pixels.jsonl`` has a line for every file: a JSON list of path, class, split, digest, reason and, where
# there is something to say, an object of About's fields. A file that could not be read has a reason and no
# digest. The list only grows. The note of the pixels says how many ``files`` count and how many ``bytes``
# they take; what a killed reader left after them does not count.


def _list_file(pixels: GrowingArray) -> Path:
    return pixels.path.with_name("pixels.jsonl")


def _has_list(pixels: GrowingArray) -> bool:
    """Whether the list is as long as the note says."""
    file = _list_file(pixels)
    return "files" in pixels.note and file.exists() and file.stat().st_size >= pixels.note["bytes"]


def _is_read(pixels: GrowingArray) -> bool:
    """Whether every file was read. Earlier versions kept the list in the note."""
    return pixels.complete and ("images" in pixels.note or _has_list(pixels))


def about_of(saved: dict[str, Any]) -> About:
    window = saved.get("window")
    footprint = tuple((x, y) for x, y in saved.get("footprint", ()))
    size = saved.get("size")
    return About(tuple(window) if window else None, footprint, tuple(size) if size else None)


def _line(entry: Entry, outcome: Outcome) -> bytes:
    said = {name: value for name, value in outcome.about._asdict().items() if value}
    line = [entry.path, entry.label, entry.split, outcome.digest, outcome.reason, *([said] if said else [])]
    return json.dumps(line).encode() + b"\n"


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


def _begin_list(pixels: GrowingArray) -> None:
    """Make the list's file if there is none: from the note, where earlier versions kept it, or empty."""
    if _has_list(pixels):
        return
    earlier = list(_listed(pixels)) if _is_read(pixels) else []
    if not earlier:
        pixels.clear()
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in earlier)
    _list_file(pixels).write_bytes(lines)
    pixels.append(np.empty((0, *pixels.row), np.uint8), {"files": len(earlier), "bytes": len(lines)})


def read_entries(
    root: Path,
    entries: list[Entry],
    pixels: GrowingArray,
    reading: Reading,
    progress: Progress = silent,
    workers: int = 1,
) -> None:
    """Append the pixels of these entries to those that are there, and their lines to the list. A batch is
    decoded while the one before it is written. The caller holds ``pixels.writing()``."""
    _begin_list(pixels)
    before = pixels.note["files"]
    done = 0
    with ThreadPoolExecutor(workers) as pool, _list_file(pixels).open("r+b") as lines:

        def read(entry: Entry) -> Outcome:
            path = root / entry.file
            return read_image(path, pixels.row[0], reading, entry.window, entry.footprint)

        def start(at: int) -> tuple[list[Entry], Iterable[Outcome]]:
            batch = entries[at : at + BATCH]
            return batch, pool.map(read, batch)

        lines.truncate(lines.seek(pixels.note["bytes"]))
        batch, outcomes = start(done)
        while batch:
            ahead = start(done + len(batch))
            rows = []
            for entry, outcome in zip(batch, outcomes, strict=True):
                lines.write(_line(entry, outcome))
                if outcome.pixels is not None:
                    rows.append(outcome.pixels)
            lines.flush()
            os.fsync(lines.fileno())
            done += len(batch)
            images = np.array(rows, dtype=np.uint8).reshape(-1, *pixels.row)
            pixels.append(images, {"files": before + done, "bytes": lines.tell()})
            progress(before + done, before + len(entries))
            batch, outcomes = ahead
    pixels.finish()


def check_installed(root: Path, entries: list[Entry], skip_unreadable: bool) -> None:
    """Refuse files that need rasterio where it is missing."""
    if skip_unreadable or rasters.is_installed():
        return
    suspects = [entry for entry in entries if Path(entry.file).suffix.lower() in DEEP]
    needing = [entry.path for entry in suspects if _needs_rasterio(root / entry.file)]
    if needing:
        raise UsageError(
            f"{len(needing)} of {len(entries)} files need rasterio, for example {needing[0]}: "
            "pip install 'anneal[geo]', or leave them out with --skip-unreadable."
        )


def _needs_rasterio(path: Path) -> bool:
    try:
        return rasters.is_raster(head(path)) and rasters.pillow_cannot(path)
    except UNREADABLE:
        return False


def fingerprint(root: Path, entries: list[Entry], px: int, reading: Reading = DEFAULT) -> str:
    """A name that changes when a file is added, removed or rewritten. It reads no file."""
    suffixes = {Path(entry.file).suffix.lower() for entry in entries}
    rasterio = bool(suffixes & DEEP) and rasters.is_installed()  # reads what Pillow cannot
    listing: list[Any] = [px, str(root.resolve()), rasterio, reading.chosen]
    stat_of = lru_cache(maxsize=1)(lambda file: (root / file).stat())  # tiles of a file follow one another
    for entry in entries:
        try:
            stat = stat_of(entry.file)
            listing.append([*entry, stat.st_size, stat.st_mtime_ns])
        except OSError:
            listing.append([*entry, None, None])
    return hashlib.blake2b(json.dumps(listing).encode(), digest_size=12).hexdigest()
