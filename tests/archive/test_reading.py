"""How values become bytes and images become squares: stretch, masks, transparency, rotation and shape."""

import json
import os
import socket
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray
from PIL import Image, ImageOps
from rasterio import Affine
from samples import PX, colour, encoded, noise, put, raster, resized

from anneal.archive.catalog import open_archive, reopen
from anneal.archive.decode import decode, read_image
from anneal.archive.reading import Reading
from anneal.archive.stretch import NO_DATA
from anneal.errors import UsageError
from anneal.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


def flat(path: Path, *values: float, side: int = 16, **options: Any) -> Path:
    """A deep file whose bands have one value each, with noise of ± 10."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(path.name))
    bands = np.stack([rng.uniform(value - 10, value + 10, (side, side)) for value in values])
    path.write_bytes(raster(bands.astype(np.uint16), **options))
    return path


# -- stretch ----------------------------------------------------------------------------------------


def test_all_images_of_an_archive_share_one_stretch(tmp_path: Path) -> None:
    for i, value in enumerate((1000, 2000, 3000)):
        flat(tmp_path / "in" / f"{i}.tif", value)
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    means = archive.pixels.mean(axis=(1, 2, 3))
    assert means[0] < 3
    assert means[1] == pytest.approx(127, abs=3)
    assert means[2] > 252
    alone = open_archive(tmp_path / "in", PX, tmp_path / "cache", reading=Reading(stretch="image"))
    assert np.ptp(alone.pixels.mean(axis=(1, 2, 3))) < 5
    fixed = open_archive(tmp_path / "in", PX, tmp_path / "cache", reading=Reading(stretch="0,4000"))
    assert fixed.pixels.mean(axis=(1, 2, 3)) == pytest.approx([63.5, 127, 191], abs=1.5)


def test_bands_are_stretched_one_by_one_or_as_one(tmp_path: Path) -> None:
    for i in range(3):
        flat(tmp_path / "in" / f"{i}.tif", 1000 + i, 2000 + i, 3000 + i)
    each = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    assert each.pixels.mean(axis=(0, 1, 2)) == pytest.approx([127] * 3, abs=8)
    joint = open_archive(tmp_path / "in", PX, tmp_path / "cache", reading=Reading(stretch_by="joint"))
    low, middle, high = joint.pixels.mean(axis=(0, 1, 2))
    assert (low < 3, middle == pytest.approx(127, abs=3), high > 252) == (True, True, True)


def test_the_limits_are_kept_and_used_for_an_image_that_comes_later(tmp_path: Path) -> None:
    for i, value in enumerate((1000, 3000)):
        flat(tmp_path / "in" / f"{i}.tif", value)
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    ((name, low, high),) = archive.reading.limits
    assert name == "1"
    assert low == pytest.approx(990, abs=5)
    assert high == pytest.approx(3009, abs=5)
    again = reopen(tmp_path / "in", archive.folder, PX)
    assert again.reading == archive.reading
    later = read_image(flat(tmp_path / "later.tif", 2000), PX, again.reading)
    assert later.pixels is not None
    assert later.pixels.mean() == pytest.approx(127, abs=2)


def test_eight_bit_values_stay_unless_a_stretch_is_asked_for(tmp_path: Path) -> None:
    dim = (noise(1) // 4 + 20).astype(np.uint8)
    for name in ("a.png", "b.tif"):
        (tmp_path / "in").mkdir(exist_ok=True)
        Image.fromarray(dim).save(tmp_path / "in" / name)
    plain = open_archive(tmp_path / "in", 16, tmp_path / "cache")
    np.testing.assert_array_equal(plain.pixels[0], dim)
    np.testing.assert_array_equal(plain.pixels[1], dim)
    wide = open_archive(tmp_path / "in", 16, tmp_path / "cache", reading=Reading(stretch="archive"))
    assert (wide.pixels.min(), wide.pixels.max()) == (0, 255)
    np.testing.assert_array_equal(wide.pixels[0], wide.pixels[1])


def test_a_reading_of_an_earlier_version_squeezed_and_stretched_each_image(tmp_path: Path) -> None:
    reading = Reading.load(tmp_path)
    assert (reading.fit, reading.stretch, reading.channels) == ("squash", "auto", 3)


# -- no data ----------------------------------------------------------------------------------------


def masked(values: NDArray[Any], mask: NDArray[Any], **options: Any) -> bytes:
    """A GeoTIFF with a mask of its own."""
    count, height, width = values.shape
    shape = {"count": count, "height": height, "width": width, "dtype": values.dtype}
    with warnings.catch_warnings(), rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.MemoryFile() as file:
        warnings.simplefilter("ignore")
        with file.open(driver="GTiff", **shape, **options) as out:
            out.write(values)
            out.write_mask(mask)
        return bytes(file.read())


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_nodata_masks_and_alpha_become_grey_and_do_not_count(dtype: str, tmp_path: Path) -> None:
    values = np.random.default_rng(0).uniform(100, 200, (3, 16, 16)).astype(dtype)
    there = np.full((16, 16), 255, np.uint8)
    there[:8] = 0
    files = {
        "mask.tif": masked(np.where(there > 0, values, 0).astype(dtype), there),
        "nodata.tif": raster(np.where(there > 0, values, 7).astype(dtype), nodata=7),
        "alpha.tif": raster(
            np.concatenate([values, there[None].astype(dtype)]), photometric="RGB", ALPHA="YES"
        ),
    }
    if dtype == "float32":
        del files["alpha.tif"]  # GDAL knows alpha in whole numbers only
        files["nan.tif"] = raster(np.where(there > 0, values, np.nan).astype(dtype))
    for name, data in files.items():
        pixels = decode(data, 16)
        assert (pixels[:8] == NO_DATA).all(), name
        below = pixels[8:].astype(int)
        if dtype == "uint8":
            np.testing.assert_array_equal(below, np.moveaxis(values[:, 8:], 0, -1), err_msg=name)
        else:
            assert (below.min(), below.max()) == (0, 255), name


def test_what_is_transparent_is_shown_as_no_data() -> None:
    image = Image.new("RGBA", (16, 16), (200, 0, 0, 255))
    image.paste((0, 255, 0, 0), (0, 0, 8, 16))
    image.paste((255, 255, 255, 128), (8, 0, 16, 8))
    for kind in ("PNG", "WEBP", "TIFF"):
        pixels = decode(encoded(image, kind, **({"lossless": True} if kind == "WEBP" else {})), 16)
        assert (pixels[:, :8] == NO_DATA).all(), kind
        assert pixels[12, 12].tolist() == [200, 0, 0], kind
        assert pixels[4, 12].tolist() == pytest.approx([191] * 3, abs=2), kind


def test_an_image_without_data_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "empty.tif").write_bytes(raster(np.zeros((3, 8, 8), np.uint8), nodata=0))
    Image.new("RGBA", (8, 8)).save(tmp_path / "clear.png")
    for name in ("empty.tif", "clear.png"):
        assert read_image(tmp_path / name, PX).reason == "it holds no data"


# -- kinds of files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_shown_as_the_camera_was_held(tmp_path: Path, orientation: int) -> None:
    scene = Image.fromarray(np.repeat(np.repeat(noise(3, 4), 16, axis=0), 8, axis=1))  # 32 wide, 64 high
    exif = Image.Exif()
    exif[274] = orientation
    scene.save(tmp_path / "x.jpg", exif=exif, quality=95)
    with Image.open(tmp_path / "x.jpg") as saved:
        upright = ImageOps.exif_transpose(saved)
        expected = np.asarray(upright.resize((16, 16), Image.Resampling.BILINEAR), int)
    read = read_image(tmp_path / "x.jpg", 16, Reading(fit="squash"))
    assert read.pixels is not None
    assert np.abs(read.pixels - expected).mean() < 8  # the wrong way up it is about 80
    assert read.about.size == ((32, 64) if orientation < 5 else (64, 32))


def test_palette_and_cmyk_keep_their_colours(tmp_path: Path) -> None:
    expected = np.asarray(colour().convert("RGB"), int)
    palette = colour().quantize(32)
    table = np.zeros((256, 3), np.uint8)
    table[:32] = np.array(palette.getpalette() or [], np.uint8)[: 32 * 3].reshape(-1, 3)
    data = np.asarray(palette)[None]
    with rasterio.MemoryFile() as file:
        with file.open(driver="GTiff", count=1, height=64, width=64, dtype="uint8", nodata=255) as out:
            out.write(data)
            out.write_colormap(1, {i: (*row, 255) for i, row in enumerate(table.tolist())})
        mapped = bytes(file.read())
    for data_ in (mapped, encoded(colour().convert("CMYK"), "TIFF"), encoded(palette, "TIFF")):
        assert np.abs(decode(data_, 64).astype(int) - expected).mean() < 12


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of rasterio when it writes
def test_jpeg_2000_of_sixteen_bits_and_cogs_are_read(tmp_path: Path) -> None:
    ramp = np.tile(np.linspace(1000, 5000, 256), (256, 1))
    shape = {"count": 3, "height": 256, "width": 256, "dtype": "uint16"}
    place = Affine(10, 0, 500_000, 0, -10, 5_200_000)
    with rasterio.open(
        tmp_path / "x.jp2", "w", driver="JP2OpenJPEG", crs="EPSG:32632", transform=place, REVERSIBLE="YES",
        QUALITY="100", **shape,
    ) as out:  # fmt: skip
        out.write(np.stack([ramp] * 3).astype(np.uint16))
    with rasterio.MemoryFile() as file:
        with file.open(driver="COG", crs="EPSG:32632", transform=place, **shape) as out:
            out.write(np.stack([ramp] * 3).astype(np.uint16))
        (tmp_path / "cog.tif").write_bytes(file.read())
    for name in ("x.jp2", "cog.tif"):
        read = read_image(tmp_path / name, 32)
        assert read.pixels is not None, read.reason
        assert np.diff(read.pixels[16, 1:-1, 0].astype(int)).min() > 0
        assert read.about.footprint[0] == pytest.approx((9.0, 46.9535), abs=1e-3)


# -- shape ------------------------------------------------------------------------------------------


def test_an_image_is_cropped_padded_or_squeezed_to_a_square(tmp_path: Path) -> None:
    wide = np.zeros((32, 96, 3), np.uint8)
    wide[:, 32:64] = 200  # the middle
    Image.fromarray(wide).save(tmp_path / "x.png")
    fits = ("crop", "pad", "squash")
    pixels = {fit: read_image(tmp_path / "x.png", 24, Reading(fit=fit)).pixels for fit in fits}
    assert pixels["crop"] is not None
    assert (pixels["crop"] == 200).all()
    assert pixels["pad"] is not None
    assert (pixels["pad"][:8] == NO_DATA).all()
    assert (pixels["pad"][16:] == NO_DATA).all()
    assert pixels["pad"][12, [2, 12, 21], 0].tolist() == [0, 200, 0]
    np.testing.assert_array_equal(pixels["squash"], resized(tmp_path / "x.png", 24))


@pytest.mark.parametrize("fit", ["crop", "pad", "squash"])
def test_a_square_image_is_the_same_in_every_fit(tmp_path: Path, fit: str) -> None:
    for kind in ("jpg", "png", "tif"):
        Image.fromarray(noise(2, 80)).save(tmp_path / f"x.{kind}")
        read = read_image(tmp_path / f"x.{kind}", 64, Reading(fit=fit))
        np.testing.assert_array_equal(read.pixels, resized(tmp_path / f"x.{kind}", 64))
        assert read.about.size is None


# -- what is not a file -----------------------------------------------------------------------------


def test_pipes_sockets_and_devices_are_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "in"
    put(folder / "a.png")
    os.mkfifo(folder / "pipe.png")
    (folder / "zero.png").symlink_to("/dev/zero")
    monkeypatch.chdir(folder)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.tif")
        archive = open_archive(folder, PX, tmp_path / "cache")
    assert archive.paths == ("a.png",)
    assert dict(archive.skipped) == {
        "pipe.png": "a pipe, not a file",
        "socket.tif": "a socket, not a file",
        "zero.png": "a device, not a file",
    }
    listed = archive.list_skipped(tmp_path).read_text().splitlines()
    assert listed[:2] == ["path,reason", 'pipe.png,"a pipe, not a file"']


def test_a_linked_folder_is_followed_once_and_loops_end(tmp_path: Path) -> None:
    put(tmp_path / "in" / "real" / "a.png", 1)
    put(tmp_path / "far" / "b.png", 2)
    (tmp_path / "in" / "link").symlink_to(tmp_path / "far")
    (tmp_path / "in" / "again").symlink_to(tmp_path / "in" / "real")
    (tmp_path / "far" / "loop").symlink_to(tmp_path / "in")
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    assert archive.paths == ("link/b.png", "real/a.png")


# -- settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"bands": "4,,2"}, "--bands '4,,2': give a list"),
        ({"bands": "nir,red"}, "--bands 'nir,red': give one band, or three or more"),
        ({"stretch": "wide"}, "--stretch 'wide': give auto, archive, image or MIN,MAX"),
        ({"stretch": "5,1"}, "--stretch '5,1'"),
        ({"fit": "bend"}, "--fit 'bend': choose one of crop, pad, squash"),
        ({"tile": 3}, "--tile 3: a tile has 16 to 8192"),
        ({"tile_overlap": 8}, "--overlap 8: give 0 to half a tile"),
    ],
)
def test_a_setting_that_fits_no_archive_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Settings(**settings)


def test_the_reading_is_saved_as_json_and_is_part_of_the_name(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.png")
    one = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    other = open_archive(tmp_path / "in", PX, tmp_path / "cache", reading=Reading(fit="pad"))
    assert one.folder != other.folder
    assert json.loads((other.folder / "reading.json").read_text())["fit"] == "pad"


@pytest.mark.parametrize("name", ["x.png", "x.jpg"])
def test_a_plain_image_is_stretched_between_its_own_percentiles_if_asked(tmp_path: Path, name: str) -> None:
    """All of it has data."""
    ramp = np.tile(np.linspace(50, 150, 64), (64, 1)).astype(np.uint8)
    Image.fromarray(np.dstack([ramp] * 3)).save(tmp_path / name, quality=95)
    read = read_image(tmp_path / name, 64, Reading(stretch="image"))
    assert read.pixels is not None
    assert read.pixels[:, 0].max() == 0
    assert read.pixels[:, -1].min() == 255
    assert abs(int(read.pixels[:, 32].mean()) - 128) < 8
