"""Which files are images of an archive: a folder, a CSV manifest, a STAC catalogue or one scene."""

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path

from anneal.archive import rasters, stac, tiling
from anneal.archive.reading import SPLITS, SUFFIXES, Entry, Reading
from anneal.errors import UsageError


def scan(source: Path, reading: Reading = Reading()) -> tuple[Path, list[Entry]]:  # noqa: B008 - frozen
    """The images of a folder, of a manifest, of STAC items or of one scene, in the order of their ids: (root,
    entries). The first folder below the root names the class, as in ImageFolder. With ``reading.tile`` a
    scene becomes its tiles."""
    root, entries = _files(source, reading)
    if reading.tile:
        if not rasters.is_installed():
            raise UsageError(f"--tile: {rasters.NEEDED}.")
        entries = tiling.cut(root, entries, reading.tile, reading.overlap)
    return root, entries


def _files(source: Path, reading: Reading) -> tuple[Path, list[Entry]]:
    if not source.exists():
        raise UsageError(f"{source} does not exist: give a folder of images or a CSV manifest.")
    if source.is_dir():
        if stac.is_catalogue(source):
            return source, stac.entries(source)
        return source, _folder(source)
    if source.suffix.lower() in (".json", ".geojson"):
        return source.parent, stac.entries(source)
    if source.suffix.lower() in SUFFIXES:
        if not reading.tile:
            raise UsageError(f"{source} is one image: give a folder, or cut the scene with --tile 256.")
        return source.parent, [Entry(source.name)]
    return source.parent, manifest(source)


def _folder(source: Path) -> list[Entry]:
    entries = []
    for path in _walk(source):
        if path.suffix.lower() in SUFFIXES:
            inner = path.relative_to(source)
            entries.append(Entry(inner.as_posix(), inner.parts[0] if len(inner.parts) > 1 else ""))
    if not entries:
        raise UsageError(f"{source} holds no image file ({' '.join(sorted(SUFFIXES))}): give another folder.")
    return sorted(entries, key=lambda entry: entry.path)


def _walk(source: Path) -> Iterator[Path]:
    """Every file below a folder, without hidden ones. A folder behind a symbolic link is visited too, but no
    folder twice, so that a loop of links ends. Real folders come first: a link to one adds nothing."""
    seen = set()
    linked = [source]
    while linked:
        folders = [linked.pop(0)]
        while folders:
            folder = folders.pop()
            try:
                stat = folder.stat()
                inside = sorted(os.scandir(folder), key=lambda one: one.name)
            except OSError:
                continue
            if (stat.st_dev, stat.st_ino) in seen:
                continue
            seen.add((stat.st_dev, stat.st_ino))
            for one in inside:
                if one.name.startswith("."):
                    continue
                if not one.is_dir():
                    yield Path(one.path)
                elif one.is_symlink():
                    linked.append(Path(one.path))
                else:
                    folders.append(Path(one.path))


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
