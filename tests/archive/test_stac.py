"""STAC items name images on this disk."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rasterio import Affine
from samples import bands, put, raster

from anneal.archive.catalog import open_archive, scan
from anneal.errors import UsageError

RING = [[7.0, 46.0], [8.0, 46.0], [8.0, 47.0], [7.0, 47.0], [7.0, 46.0]]


def item(name: str, **assets: Any) -> dict[str, Any]:
    return {
        "type": "Feature",
        "stac_version": "1.0.0",
        "id": name,
        "geometry": {"type": "Polygon", "coordinates": [RING]},
        "properties": {"class": "field"},
        "assets": assets,
    }


def asset(href: str, *roles: str) -> dict[str, Any]:
    return {"href": href, "roles": list(roles)}


def test_an_item_collection_is_a_manifest(tmp_path: Path) -> None:
    put(tmp_path / "images" / "a.png", 1)
    put(tmp_path / "images" / "b c.png", 2)
    put(tmp_path / "images" / "thumb.png", 3)
    second = (tmp_path / "images" / "b c.png").as_uri()
    items = [
        item("a", thumb=asset("images/thumb.png", "thumbnail"), image=asset("./images/a.png", "data")),
        item("b", image=asset(second, "data"), meta=asset("x.xml", "data")),
    ]
    file = tmp_path / "items.geojson"
    file.write_text(json.dumps({"type": "FeatureCollection", "features": items}))
    archive = open_archive(file, 16, tmp_path / "cache")
    assert archive.paths == ("images/a.png", "images/b c.png")
    assert archive.labels == ("field", "field")
    assert archive.about[0].footprint == tuple((x, y) for x, y in RING[:-1])


def test_a_folder_of_items_is_a_manifest_and_a_files_own_footprint_comes_first(tmp_path: Path) -> None:
    folder = tmp_path / "catalogue"
    place = {"crs": "EPSG:32632", "transform": Affine(10, 0, 500_000, 0, -10, 5_200_000)}
    for name in ("one", "two"):
        (folder / name).mkdir(parents=True)
        data = raster(bands(3, np.uint8, 10, 230), **(place if name == "two" else {}))
        (folder / name / "visual.tif").write_bytes(data)
        (folder / name / "all.tif").write_bytes(data)
        assets = {"all": asset("all.tif", "data"), "visual": asset("visual.tif", "visual")}
        (folder / name / "item.json").write_text(json.dumps(item(name, **assets)))
    (folder / "catalog.json").write_text(json.dumps({"type": "Catalog", "stac_version": "1.0.0", "id": "x"}))
    archive = open_archive(folder, 16, tmp_path / "cache")
    assert archive.paths == ("one/visual.tif", "two/visual.tif")
    assert archive.about[0].footprint == tuple((x, y) for x, y in RING[:-1])
    assert archive.about[1].footprint[0] == pytest.approx((9.0, 46.9535), abs=1e-3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a STAC item"),
        ('{"type": "FeatureCollection"}', "has no features"),
        (json.dumps(item("a", x=asset("https://far/a.tif", "data"))), "download the assets first"),
        (json.dumps(item("a", x=asset("a.xml", "data"))), "holds no STAC item with an image"),
    ],
)
def test_a_file_that_names_no_local_image_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "items.json").write_text(text)
    with pytest.raises(UsageError, match=sentence):
        scan(tmp_path / "items.json")
