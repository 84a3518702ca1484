"""Scenes are cut into tiles by windows, in bounded memory, and every tile knows where it is."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rasterio
import rasterio.warp
from hypothesis import given
from hypothesis import strategies as st
from rasterio import Affine
from rasterio.windows import Window

from anneal.archive.catalog import open_archive, reopen, scan
from anneal.archive.reading import Entry, Reading
from anneal.archive.tiling import starts, windows
from anneal.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of rasterio
PLACE = Affine(10, 0, 500_000, 0, -10, 5_200_000)


def scene(path: Path, width: int, height: int, empty: int = 0) -> Path:
    """A scene whose value says where a pixel is: band 1 has x, band 2 has y, band 3 their sum. ``empty``
    columns on the left hold no data."""
    path.parent.mkdir(parents=True, exist_ok=True)
    y, x = np.mgrid[:height, :width].astype(np.uint16)
    values = np.stack([x, y, x + y]) + 1
    values[:, :, :empty] = 0
    shape = {"count": 3, "height": height, "width": width, "dtype": "uint16", "nodata": 0}
    with rasterio.open(path, "w", driver="GTiff", crs="EPSG:32632", transform=PLACE, **shape) as out:
        out.write(values.astype(np.uint16))
    return path


@given(st.integers(1, 3000), st.integers(16, 600), st.data())
def test_tiles_cover_a_side_and_end_at_its_edge(length: int, tile: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, (tile - 1) // 2))
    places = starts(length, tile, overlap)
    assert places[0] == 0
    if length <= tile:
        assert places == [0]
        return
    assert places[-1] == length - tile
    steps = np.diff(places)
    assert (steps > 0).all()
    assert (steps <= tile - overlap).all()


def test_a_side_shorter_than_a_tile_is_not_cut() -> None:
    assert list(windows(100, 40, 64, 0)) == [(0, 0, 64, 40), (36, 0, 64, 40)]


def test_every_tile_is_an_image_of_its_own_with_its_footprint(tmp_path: Path) -> None:
    path = scene(tmp_path / "scene.tif", 160, 96)
    reading = Reading(tile=64, stretch="0,256")
    assert scan(path, reading)[1][1] == Entry("scene.tif@64,0", window=(64, 0, 64, 64))
    archive = open_archive(path, 64, tmp_path / "cache", reading=reading)
    assert archive.paths == tuple(f"scene.tif@{x},{y}" for y in (0, 32) for x in (0, 64, 96))
    assert [about.window for about in archive.about][-1] == (96, 32, 64, 64)
    np.testing.assert_array_equal(archive.pixels[4][:, 0, 1], (np.arange(32, 96) + 1) * 255 // 256)
    assert archive.pixels[4][0, :, 0].tolist() == ((np.arange(64, 128) + 1) * 255 // 256).tolist()
    whole = archive.about[0].footprint + archive.about[-1].footprint
    with rasterio.open(path) as raster:
        west, south, east, north = rasterio.warp.transform_bounds(raster.crs, "EPSG:4326", *raster.bounds)
    longitudes, latitudes = zip(*whole, strict=True)
    assert min(longitudes) == pytest.approx(west, abs=1e-4)
    assert max(longitudes) == pytest.approx(east, abs=1e-4)
    assert min(latitudes) == pytest.approx(south, abs=1e-4)
    assert max(latitudes) == pytest.approx(north, abs=1e-4)
    assert archive.picture(4, 64).shape == (64, 64, 3)
    np.testing.assert_array_equal(archive.picture(4, 64), archive.pixels[4])
    corner = archive.picture(4, 64, box=(32, 0, 32, 32))
    np.testing.assert_array_equal(corner, archive.pixels[4][:32, 32:])
    again = reopen(tmp_path, archive.folder, 64)
    assert again.about == archive.about
    assert again.missing() == []
    assert again.find(tmp_path / "scene.tif@64,32") == 4
    path.unlink()
    assert len(again.missing()) == 6


def test_tiles_without_data_are_left_out_and_small_files_stay_whole(tmp_path: Path) -> None:
    scene(tmp_path / "in" / "a" / "scene.tif", 256, 64, empty=100)
    scene(tmp_path / "in" / "a" / "small.tif", 50, 64)
    archive = open_archive(tmp_path / "in", 32, tmp_path / "cache", reading=Reading(tile=64))
    assert archive.paths == ("a/scene.tif@128,0", "a/scene.tif@192,0", "a/small.tif")
    assert archive.labels == ("a", "a", "a")
    assert dict(archive.skipped) == {
        "a/scene.tif@0,0": "it holds no data",
        "a/scene.tif@64,0": "56% of it holds no data",
    }


def test_one_scene_needs_a_tile_size(tmp_path: Path) -> None:
    path = scene(tmp_path / "scene.tif", 100, 100)
    with pytest.raises(UsageError, match="is one image: give a folder, or cut the scene with --tile 256"):
        scan(path)


CHILD = """
import resource, sys
from pathlib import Path
from anneal.archive.catalog import open_archive
from anneal.archive.reading import Reading
folder = Path(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
reading = Reading(tile=int(sys.argv[2]))
archive = open_archive(folder / "scene.tif", 64, folder / "cache", workers=2, reading=reading)
print(len(archive), len(archive.skipped), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_scene_is_cut_by_windows_without_being_held_whole(tmp_path: Path) -> None:
    """8 000 × 8 000 × 3 values of 16 bits are 384 MB. Most blocks of the file are sparse."""
    shape = {"count": 3, "height": 8_000, "width": 8_000, "dtype": "uint16", "nodata": 0}
    made = {"tiled": True, "blockxsize": 256, "blockysize": 256, "SPARSE_OK": True, "compress": "deflate"}
    rng = np.random.default_rng(0)
    with rasterio.open(
        tmp_path / "scene.tif", "w", driver="GTiff", crs="EPSG:32632", transform=PLACE, **shape, **made
    ) as out:
        for place in (0, 5_120):
            block = rng.integers(1, 5000, (3, 1024, 1024), dtype=np.uint16)
            out.write(block, window=Window(place, place, 1024, 1024))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), "512"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    images, skipped, kilobytes = (int(word) for word in done.stdout.split())
    assert (images, images + skipped) == (8, 16 * 16)
    assert kilobytes < 300_000
