"""Files with many bands or deep values become pictures, with rasterio and without."""

import logging
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from samples import PLAIN, RASTERS, assert_bright_on_the_left, encoded, raster

from anneal.archive import decode as decoding
from anneal.archive import rasters, safely
from anneal.archive.decode import decode, read_image


@pytest.mark.parametrize("px", [32, 100])
@pytest.mark.parametrize("kind", RASTERS)
def test_every_raster_keeps_its_bright_left_half(
    kind: str, px: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert_bright_on_the_left(decode(RASTERS[kind](), px), px)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_colours_stay_in_their_channels(tmp_path: Path) -> None:
    red, green, blue = np.zeros((3, 64, 64))
    red[:, :32] = 200
    green[:32] = 200
    blue[:, 32:] = 200
    scene = np.stack([red, green, blue]).astype(np.uint8)
    files = {
        "rgb.png": encoded(Image.fromarray(np.moveaxis(scene, 0, -1)), "PNG"),
        "5.tif": raster(np.concatenate([scene, scene[:2]])),
        "14.tif": raster(np.concatenate([scene, *[scene] * 3, scene[:2]]).astype(np.uint16) * 20),
    }
    for name, data in files.items():
        pixels = decode(data, 64)
        bright = pixels > 100
        np.testing.assert_array_equal(bright, np.moveaxis(scene > 0, 0, -1), err_msg=name)


def test_deep_images_are_stretched_between_their_2nd_and_98th_percentile() -> None:
    ramp = np.linspace(1000, 3000, 64 * 64).reshape(64, 64)
    expected = np.clip((ramp - 1040) / (2960 - 1040), 0, 1) * 255
    for data in (raster(ramp[None].astype(np.float32)), raster(np.stack([ramp] * 3).astype(np.uint16))):
        pixels = decode(data, 64)
        np.testing.assert_allclose(pixels[..., 0], expected, atol=1.5)
        assert (pixels == pixels[..., :1]).all()


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("value", [7, np.nan, -9999])
def test_a_deep_image_of_one_value_is_flat_and_one_without_data_is_skipped(
    tmp_path: Path, count: int, value: float
) -> None:
    (tmp_path / "flat.tif").write_bytes(raster(np.full((count, 8, 8), value, np.float32), nodata=-9999))
    _, pixels, reason, _ = read_image(tmp_path / "flat.tif", 16)
    if value == 7:
        assert pixels is not None
        assert np.ptp(pixels) == 0
    else:
        assert (pixels, reason) == (None, "it holds no data")


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_a_file_that_pillow_reads_well_is_left_to_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safely, "inside", True)  # patches are of this process
    monkeypatch.setattr(decoding, "_by_rasterio", None)
    left = set()
    for kind, make in (PLAIN | RASTERS).items():
        with suppress(TypeError):  # rasterio was to read it
            decode(make(), 16)
            left.add(kind)
    assert left == set(PLAIN) - {"PNG 16-bit gray"} | {"GeoTIFF 8-bit × 3"}


def test_a_very_large_plain_tiff_is_read_by_rasterio(monkeypatch: pytest.MonkeyPatch) -> None:
    data = RASTERS["GeoTIFF 8-bit × 3"]()
    monkeypatch.setattr(safely, "inside", True)
    monkeypatch.setattr(rasters, "LARGE", 64 * 64)
    monkeypatch.setattr(decoding, "_by_pillow", None)
    assert_bright_on_the_left(decode(data, 16), 16)


@pytest.mark.parametrize(
    ("kind", "readable"),
    [
        ("TIFF", True),
        ("GeoTIFF 8-bit × 3", True),
        ("GeoTIFF 16-bit × 1", True),
        ("GeoTIFF 8-bit × 5, nodata", False),
        ("GeoTIFF 16-bit × 3", False),
        ("GeoTIFF 16-bit × 13", False),
        ("GeoTIFF float × 4, nodata", False),
    ],
)
def test_without_rasterio_only_files_that_pillow_cannot_show_are_refused(
    kind: str, readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safely, "inside", True)
    monkeypatch.setitem(sys.modules, "rasterio", None)
    data = (PLAIN | RASTERS)[kind]()
    if readable:
        assert_bright_on_the_left(decode(data, 32), 32)
    else:
        with pytest.raises(ValueError, match=r"needs rasterio: pip install 'anneal\[geo\]'"):
            decode(data, 32)
