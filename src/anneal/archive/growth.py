"""What has happened to an archive since it was read: files that are new, changed, moved, gone or back.

An image keeps its id for ever, and an id stands for some bytes. A file that was moved takes its id along. A
file with other bytes is a new image. The image of a file that is gone is retired until the bytes are back.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from anneal.archive import safely
from anneal.archive.catalog import Archive, read_entries, scan
from anneal.archive.pixels import GrowingArray
from anneal.archive.reading import Entry, Reading, file_of
from anneal.errors import ArchiveError
from anneal.watch import Progress, silent


class Stat(NamedTuple):
    """By which a file is known to be unchanged without being read."""

    size: int
    mtime: int  # nanoseconds


@dataclass(frozen=True)
class Held:
    """The images that were read from one file: one, or its tiles."""

    file: str
    digest: str  # of the file's bytes
    ids: tuple[int, ...]
    gone: bool  # retired because the file was gone, or had other bytes


@dataclass(frozen=True)
class Changes:
    """Ids are those of images. An image can be both moved and returned."""

    new: list[str] = field(default_factory=list)  # files to read
    changed: list[int] = field(default_factory=list)  # whose file has other bytes now
    moved: dict[int, str] = field(default_factory=dict)  # image → its path now
    removed: list[int] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)
    seen: dict[str, Stat] = field(default_factory=dict)  # of files that were hashed


def files_of(archive: Archive) -> list[str]:
    """The file that each image is in: a tile's path has its place in the file too."""
    about = zip(archive.paths, archive.about, strict=True)
    return [file_of(path, known.window) for path, known in about]


def tiled(archive: Archive) -> list[str]:
    """The files that were cut into tiles, in order."""
    about = zip(files_of(archive), archive.about, strict=True)
    return list(dict.fromkeys(file for file, known in about if known.window is not None))


def tiles_of(archive: Archive) -> list[str]:
    """What follows the file in each image's path: the place of a tile, or nothing."""
    return [path[len(file) :] for path, file in zip(archive.paths, files_of(archive), strict=True)]


def held(archive: Archive, gone: Iterable[int], digests: Mapping[str, str]) -> list[Held]:
    """The images of an archive by their files, in the order of their ids. ``digests`` are those of tiled
    files: a tile's own is of its pixels."""
    retired = set(gone)
    ids: dict[tuple[str, str, bool], list[int]] = defaultdict(list)
    for i, file in enumerate(files_of(archive)):
        digest = archive.digests[i] if archive.about[i].window is None else digests.get(file, "")
        ids[file, digest, i in retired].append(i)
    return [Held(file, digest, tuple(some), back) for (file, digest, back), some in ids.items()]


def compare(
    known: Sequence[Held],
    unread: Iterable[str],
    noted: Mapping[str, Stat],
    scanned: Mapping[str, Stat],
    digest: Callable[[str], str],
    tiles: Sequence[str] = (),
) -> Changes:
    """What has happened, when these files are ``scanned`` now. A file that is as it was ``noted`` is not
    read. Of others ``digest`` gives the hash, or nothing if it cannot be read now: then its image stays as it
    is. ``unread`` files could not be read as an image before. ``tiles`` has what follows the file in the path
    of each image."""
    changes = Changes()
    present = {one.file: one for one in known if not one.gone}
    failed = set(unread)
    missing = [one for file, one in present.items() if file not in scanned]
    strange: dict[str, str] = {}  # file → the hash of bytes that were not there before
    for file, stat in scanned.items():
        here = present.get(file)
        if noted.get(file) == stat and (here is not None or file in failed):
            continue
        found = digest(file)
        if found or here is None:
            changes.seen[file] = stat
        if here is not None and found and found != here.digest:
            missing.append(here)
        if here is None or (found and found != here.digest):
            strange[file] = found
    back = _match(strange, [*missing, *(one for one in known if one.gone)])
    for file, one in back.items():
        if file != one.file:
            changes.moved.update({i: file + (tiles[i] if tiles else "") for i in one.ids})
        if one.gone:
            changes.returned.extend(one.ids)
    claimed = {one.ids for one in back.values()}
    for one in missing:
        if one.ids not in claimed:
            (changes.changed if one.file in scanned else changes.removed).extend(one.ids)
    changes.new.extend(file for file in strange if file not in back)
    return changes


def _match(strange: Mapping[str, str], pool: Sequence[Held]) -> dict[str, Held]:
    """For files whose bytes are known, the images they belong to. A file at its old place comes first."""
    by_digest: dict[str, list[Held]] = defaultdict(list)
    for one in sorted(pool, key=lambda one: one.ids):
        by_digest[one.digest].append(one)
    matched: dict[str, Held] = {}
    for same_place in (True, False):
        for file, digest in strange.items():
            fitting = [one for one in by_digest[digest] if not same_place or one.file == file]
            if fitting and digest and file not in matched:
                matched[file] = fitting[0]
                by_digest[digest].remove(fitting[0])
    return matched


# -- on disk ---------------------------------------------------------------------------------------


def scan_sources(
    root: Path, sources: Sequence[str], reading: Reading, without: Path
) -> dict[str, list[Entry]]:
    """The files of all sources, each with what is to be read from it. A source is a folder or a manifest, as
    a path relative to the root or an absolute one; a file outside the root has an absolute path. The folder
    ``without``, a campaign's own, is left out."""
    entries: dict[str, list[Entry]] = {}
    for source in sources:
        place = root / source
        if not place.exists():
            raise ArchiveError(
                f"{place} is gone: put it back, or say with anneal relocate where it is. Nothing was changed."
            )
        base, some = scan(place, reading)
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in some if base == root else _based(some, base.resolve(), root.resolve()):
            found[entry.file].append(entry)
        entries = {**found, **entries}  # what two sources hold is that of the first
    own = f"{without.resolve()}{os.sep}"
    where = str(root.resolve())
    return {file: some for file, some in entries.items() if not os.path.join(where, file).startswith(own)}


def _based(entries: Iterable[Entry], base: Path, root: Path) -> Iterator[Entry]:
    """Entries of another folder as entries of the root. Below the root, the first folder names the class."""
    for entry in entries:
        path = base / entry.path
        if root in path.parents:
            inside = path.relative_to(root)
            label = inside.parts[0] if len(inside.parts) > 1 else ""
            yield entry._replace(path=inside.as_posix(), label=label)
        else:
            yield entry._replace(path=path.as_posix())


def stats(root: Path, files: Iterable[str]) -> dict[str, Stat]:
    """Those of the files that are there."""
    found = {}
    for file in files:
        try:
            stat = (root / file).stat()
        except OSError:
            continue
        found[file] = Stat(stat.st_size, stat.st_mtime_ns)
    return found


def digest_of(path: Path) -> str:
    """The hash of a file's bytes, as the catalog has it; empty if it cannot be read."""
    try:
        return safely.digest_of(path)
    except (OSError, ValueError):
        return ""


def read_new(archive: Archive, entries: list[Entry], progress: Progress = silent) -> None:
    """Append images to the stored pixels and to the list of files. Those that are there stay as they are."""
    row = archive.pixels.shape[1:]
    pixels = GrowingArray(archive.folder / "pixels", np.uint8, row)
    with pixels.writing():
        read_entries(archive.root, entries, pixels, archive.reading, progress, os.cpu_count() or 1)
