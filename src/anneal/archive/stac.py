"""STAC items as a manifest: an ItemCollection in one file, or a folder of items. Assets are local files."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from anneal.archive.reading import SPLITS, SUFFIXES, Entry, Footprint
from anneal.archive.safely import regular
from anneal.errors import UsageError

ROLES = ("visual", "data")  # of the asset that is the image, the best first


def is_catalogue(folder: Path) -> bool:
    """Whether a folder holds STAC items: its first JSON file says so."""
    first = min((path for path in folder.rglob("*.json") if not path.name.startswith(".")), default=None)
    if first is None or not first.is_file():
        return False
    try:
        found = _parsed(first)
    except UsageError:
        return False
    return isinstance(found, dict) and "stac_version" in found


def entries(source: Path) -> list[Entry]:
    """An entry for each item that has an image, in the order of the items; its geometry is the footprint."""
    root = source if source.is_dir() else source.parent
    made: list[Entry] = []
    seen = set()
    for file, item in _items(source):
        href = _asset(item)
        if href is None:
            continue
        path = _local(href, file)
        name = Path(os.path.relpath(path, root)).as_posix() if path.is_relative_to(root) else str(path)
        if name in seen:
            raise UsageError(f"{file} names {name}, which an earlier item has: list each image once.")
        seen.add(name)
        about = item.get("properties") or {}
        split = about.get("split")
        label = str(about.get("class") or about.get("label") or "")
        made.append(Entry(name, label, split if split in SPLITS else "", footprint=_footprint(item)))
    if not made:
        raise UsageError(f"{source} holds no STAC item with an image: an asset has the role visual or data.")
    return made


def _items(source: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """(file, item) of every item."""
    files = (
        sorted(source.rglob("*.json")) + sorted(source.rglob("*.geojson")) if source.is_dir() else [source]
    )
    for file in files:
        found = _parsed(file)
        if not isinstance(found, dict):
            raise UsageError(f"{file} is not a STAC item or an ItemCollection.")
        if found.get("type") == "FeatureCollection":
            every = found.get("features")
        else:
            every = [found] if found.get("type") == "Feature" else []
        if not isinstance(every, list) or (not every and file == source):
            raise UsageError(f"{file} is not a STAC item or an ItemCollection: it has no features.")
        yield from ((file, item) for item in every if isinstance(item, dict))


def _parsed(file: Path) -> Any:
    try:
        regular(file)
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} is not JSON in UTF-8 ({error}).") from None


def _asset(item: dict[str, Any]) -> str | None:
    """The address of the asset that is the image. One without roles counts if nothing better is there."""
    assets = item.get("assets")
    if not isinstance(assets, dict):
        return None
    images = []
    for key, asset in assets.items():
        href = asset.get("href") if isinstance(asset, dict) else None
        if not isinstance(href, str) or Path(urlparse(href).path).suffix.lower() not in SUFFIXES:
            continue
        roles = asset.get("roles") or [key]
        ranks = [ROLES.index(role) for role in roles if role in ROLES]
        if ranks or not asset.get("roles"):
            images.append((min(ranks, default=len(ROLES)), href))
    return min(images, key=lambda one: one[0])[1] if images else None


def _local(href: str, file: Path) -> Path:
    """The file that an address means, relative to the item's own file."""
    parts = urlparse(href)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme and len(parts.scheme) > 1:
        raise UsageError(f"{file} points to {href}: download the assets first and give their local paths.")
    return Path(os.path.normpath(file.parent / href))


def _footprint(item: dict[str, Any]) -> Footprint:
    """The outer ring of the geometry, or the corners of the bounding box."""
    geometry = item.get("geometry") or {}
    try:
        ring = geometry["coordinates"][0] if geometry["type"] == "Polygon" else geometry["coordinates"][0][0]
        corners = tuple((float(point[0]), float(point[1])) for point in ring)
        return corners[:-1] if corners[:1] == corners[-1:] else corners
    except (KeyError, TypeError, ValueError, IndexError):
        pass
    box = item.get("bbox")
    if not isinstance(box, list) or len(box) not in (4, 6):
        return ()
    west = float(box[0])
    south = float(box[1])
    east = float(box[len(box) // 2])  # with heights there are six numbers
    north = float(box[len(box) // 2 + 1])
    return (west, north), (east, north), (east, south), (west, south)
