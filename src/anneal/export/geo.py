"""Tables with a footprint in each row, for maps: GeoJSON, GeoPackage or GeoParquet, in WGS 84.

A block has the columns of a schema and ``footprint``: the corners of each image as (longitude, latitude).
Rows without one are left out.
"""

import json
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from anneal.errors import UsageError
from anneal.export.tables import Block, Schema, needed, write_parquet
from anneal.files import explain_disk_errors, replacing

Footprint = tuple[tuple[float, float], ...]

GEO = {
    "version": "1.0.0",
    "primary_column": "geometry",
    "columns": {"geometry": {"encoding": "WKB", "geometry_types": ["Polygon"]}},  # without a CRS: WGS 84
}
WKB_POLYGON = 3
SUFFIXES = (".geojson", ".gpkg", ".parquet")


def write(file: Path, schema: Schema, blocks: Iterable[Block]) -> int:
    """Write the rows that have a footprint, in the format of the file's name; returns how many."""
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(f"{file}: name it {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}.")
    located = _located(schema, blocks)
    if suffix == ".geojson":
        return _write_geojson(file, schema, located)
    if suffix == ".gpkg":
        return _write_geopackage(file, schema, located)
    typed = {**schema, "geometry": "binary"}
    with_geometry = ({**block, "geometry": [wkb(one) for one in block["footprint"]]} for block in located)
    return write_parquet(file, typed, with_geometry, {"geo": json.dumps(GEO)})


def ring(footprint: Footprint) -> list[tuple[float, float]]:
    """The corners as a closed ring, counterclockwise as RFC 7946 wants."""
    corners = list(footprint)
    following = corners[1:] + corners[:1]
    turned = sum(x * v - u * y for (x, y), (u, v) in zip(corners, following, strict=True))
    if turned < 0:
        corners.reverse()
    return [*corners, corners[0]]


def feature(footprint: Footprint, properties: dict[str, Any]) -> dict[str, Any]:
    """A GeoJSON feature."""
    geometry = {"type": "Polygon", "coordinates": [ring(footprint)]}
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def wkb(footprint: Footprint) -> bytes:
    """The polygon as well-known binary, little-endian."""
    points = ring(footprint)
    numbers = [number for point in points for number in point]
    return struct.pack(f"<BIII{len(numbers)}d", 1, WKB_POLYGON, 1, len(points), *numbers)


def as_text(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same blocks with footprints as well-known text, for a plain table; None where there is none."""
    for block in blocks:
        yield {**block, "footprint": [wkt(one) if len(one) > 2 else None for one in block["footprint"]]}


def wkt(footprint: Footprint) -> str:
    """The polygon as well-known text."""
    points = ", ".join(f"{x!r} {y!r}" for x, y in ring(footprint))
    return f"POLYGON (({points}))"


def _located(schema: Schema, blocks: Iterable[Block]) -> Iterator[Block]:
    """The rows that have a footprint."""
    for block in blocks:
        rows = [i for i, footprint in enumerate(block["footprint"]) if len(footprint) > 2]
        if rows:
            yield {name: [block[name][i] for i in rows] for name in (*schema, "footprint")}


def _write_geojson(file: Path, schema: Schema, blocks: Iterable[Block]) -> int:
    count = 0
    with replacing(file) as out:
        out.write(b'{"type": "FeatureCollection", "features": [')
        for block in blocks:
            for row, footprint in enumerate(block["footprint"]):
                properties = {name: block[name][row] for name in schema}
                text = json.dumps(feature(footprint, properties), ensure_ascii=False)
                out.write((",\n" if count else "\n").encode() + text.encode())
                count += 1
        out.write(b"\n]}\n")
    return count


def _write_geopackage(file: Path, schema: Schema, blocks: Iterable[Block]) -> int:
    raw = needed("pyogrio.raw")
    kinds = {"string": object, "float": np.float64, "int64": np.int64}
    count = 0
    fresh = file.with_name(f".{file.stem}.{os.getpid()}.gpkg")
    with explain_disk_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            for block in blocks:
                shapes = np.array([wkb(one) for one in block["footprint"]], dtype=object)
                columns = [np.array(block[name], dtype=kinds[kind]) for name, kind in schema.items()]
                raw.write(
                    fresh,
                    geometry=shapes,
                    field_data=columns,
                    fields=list(schema),
                    layer="images",
                    driver="GPKG",
                    geometry_type="Polygon",
                    crs="EPSG:4326",
                    append=count > 0,
                )
                count += len(shapes)
            if count:
                fresh.replace(file)
        finally:
            fresh.unlink(missing_ok=True)
    if not count:
        raise UsageError("No image has a footprint, so there is nothing to put on a map.")
    return count
