"""A scene as a grid of windows."""

from collections.abc import Iterator
from pathlib import Path

from anneal.archive import rasters
from anneal.archive.decode import UNREADABLE
from anneal.archive.rasters import quiet
from anneal.archive.reading import Entry, Window
from anneal.archive.safely import Source, limited


def starts(length: int, tile: int, overlap: int) -> list[int]:
    """Where tiles begin along a side of a scene. The last one ends at the edge, so it may share more than
    ``overlap`` pixels with the one before it."""
    if length <= tile:
        return [0]
    return [*range(0, length - tile, tile - overlap), length - tile]


def windows(width: int, height: int, tile: int, overlap: int) -> Iterator[Window]:
    """The tiles of a scene, row by row. A side that is shorter than a tile is not cut."""
    for y in starts(height, tile, overlap):
        for x in starts(width, tile, overlap):
            yield x, y, min(tile, width), min(tile, height)


def cut(root: Path, entries: list[Entry], tile: int, overlap: int) -> list[Entry]:
    """Every file as its tiles. A file that is no larger than a tile, or cannot be read, stays as it is."""
    tiles: list[Entry] = []
    for entry in entries:
        width, height = _size(root / entry.path)
        if width <= tile and height <= tile:
            tiles.append(entry)
            continue
        for window in windows(width, height, tile, overlap):
            name = f"{entry.path}@{window[0]},{window[1]}"
            tiles.append(entry._replace(path=name, window=window, footprint=()))
    return tiles


def _size(path: Path) -> tuple[int, int]:
    try:
        return _extent(path)
    except UNREADABLE:
        return 0, 0


@limited
@quiet()
def _extent(source: Source) -> tuple[int, int]:
    with rasters.opened(source) as raster:
        return raster.width, raster.height
