"""Stored pixels that were damaged are read again from the images. An image keeps its id."""

import json
import math
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from anneal.archive.catalog import about_of, fingerprint, open_archive, scan
from anneal.archive.decode import read_image
from anneal.archive.pixels import GrowingArray
from anneal.archive.reading import Reading, file_of
from anneal.errors import AnnealError, ArchiveError
from anneal.files import write_text
from anneal.watch import Progress, silent

BATCH = 256  # images between two saves
Line = list[Any]  # of the list of files: path, class, split, digest, reason and perhaps more


def read_again(
    root: Path,
    folder: Path,
    px: int,
    size: int,
    reading: Reading,
    moved: Mapping[int, str],
    progress: Progress = silent,
) -> list[str]:
    """Read those of the ``size`` images of an archive's folder again that are no longer stored. The list of
    files tells which image has which id; without it the files in ``root`` must be as they were. Returns the
    paths of images that are gone or have changed: they are black. ``moved`` are images whose path is another
    one now."""
    listed = _lines(folder, size)
    if sum(bool(line[3]) for line in listed) == size:
        return _by_list(root, folder, px, listed, reading, moved, progress)
    remedy = "Put the images back as they were, or restore a backup that was made with --all."
    try:
        _, entries = scan(root, reading)
    except AnnealError:
        raise ArchiveError(
            f"The list of files in {folder} is lost, and {root} has no images. {remedy}"
        ) from None
    if fingerprint(root, entries, px, reading) != folder.name:
        raise ArchiveError(
            f"The list of files in {folder} is lost, and the files in {root} are not those of then: which "
            f"image had which number is not known. {remedy}"
        )
    for file in folder.glob("pixels.*"):
        file.unlink()
    open_archive(root, px, folder.parent, progress, reading=reading)
    return []


def _lines(folder: Path, size: int) -> list[Line]:
    """The lines of the list of files, until there are ``size`` images or a line is damaged."""
    try:
        note = json.loads((folder / "pixels.json").read_bytes())["note"]
        if "images" in note:  # earlier versions kept the list there
            skipped = [[path, "", "", "", reason] for path, reason in note["skipped"]]
            return [[*image, ""] for image in note["images"]] + skipped
    except (OSError, ValueError, KeyError, TypeError):
        note = {}
    lines: list[Line] = []
    images = 0
    try:
        with (folder / "pixels.jsonl").open("rb") as file:
            for text in islice(file, note.get("files")):
                line = json.loads(text)
                if images == size and not note:
                    break
                lines.append(line)
                images += bool(line[3])
    except (OSError, ValueError, IndexError, TypeError):
        pass
    return lines


def _by_list(
    root: Path,
    folder: Path,
    px: int,
    listed: list[Line],
    reading: Reading,
    moved: Mapping[int, str],
    progress: Progress,
) -> list[str]:
    """Go on after the last whole row that is stored."""
    images = [line for line in listed if line[3]]
    row = (px, px, reading.channels)
    binary = folder / "pixels.bin"
    rows = min(binary.stat().st_size // math.prod(row) if binary.exists() else 0, len(images))
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in listed)
    note = {"files": len(listed), "bytes": len(lines)}
    state = {"dtype": "uint8", "row": list(row), "rows": rows, "complete": False, "note": note}
    write_text(folder / "pixels.jsonl", lines.decode())
    write_text(folder / "pixels.json", json.dumps(state))
    pixels = GrowingArray(folder / "pixels", np.uint8, row)
    gone = []
    with pixels.writing():
        for i in range(rows, len(images), BATCH):
            batch = images[i : i + BATCH]
            block = np.zeros((len(batch), *row), np.uint8)
            for at, line in enumerate(batch):
                path = moved.get(i + at, str(line[0]))
                window = about_of(line[5]).window if len(line) > 5 else None
                made = read_image(root / file_of(path, window), px, reading, window)
                if made.pixels is None or made.digest != line[3]:
                    gone.append(path)
                else:
                    block[at] = made.pixels
            pixels.append(block, note)
            progress(pixels.rows, len(images))
        pixels.finish()
    return gone
