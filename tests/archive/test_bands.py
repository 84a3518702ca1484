"""Which bands become red, green and blue: by the file's word, a list, or a sensor."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from PIL import Image
from rasterio.enums import ColorInterp
from samples import put

from anneal.archive import bands
from anneal.archive.catalog import open_archive
from anneal.archive.decode import decode, read_image
from anneal.archive.reading import Reading
from anneal.errors import ArchiveError, UsageError

LEVELS = (40, 90, 140, 190, 240, 20, 60, 100, 130, 170, 210, 230, 250)


def tinted(
    path: Path, count: int, names: tuple[str, ...] = (), colours: tuple[str, ...] = (), dtype: Any = "uint8"
) -> Path:
    """A file whose band i is LEVELS[i] everywhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.stack([np.full((16, 16), level) for level in LEVELS[:count]]).astype(dtype)
    shape = {"count": count, "height": 16, "width": 16, "dtype": dtype}
    with rasterio.open(path, "w", driver="GTiff", photometric="MINISBLACK", **shape) as out:
        out.write(values)
        if colours:
            out.colorinterp = [ColorInterp[colour] for colour in colours]
        if names:
            out.descriptions = names
    return path


def colour(path: Path, wanted: str) -> list[int]:
    """The colour of the picture that is made of a tinted file."""
    read = read_image(path, 8, Reading(bands=wanted, stretch="0,255"))
    assert read.pixels is not None, read.reason
    return [int(value) for value in read.pixels[4, 4]]


def levels(*numbers: int) -> list[int]:
    return [LEVELS[number - 1] for number in numbers]


pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


def test_the_files_own_word_decides_what_is_red(tmp_path: Path) -> None:
    said = tinted(tmp_path / "said.tif", 4, colours=("blue", "green", "red", "undefined"))
    assert colour(said, "auto") == colour(said, "rgb") == levels(3, 2, 1)
    named = tinted(tmp_path / "named.tif", 4, ("Near Infrared", "Red Edge", "Green", "Blue"))
    assert colour(named, "auto") == levels(1, 2, 3), "without red, the first three"
    full = tinted(tmp_path / "full.tif", 5, ("NIR", "red-edge", "Blue", "Green", "Red"))
    assert colour(full, "auto") == levels(5, 4, 3)
    assert colour(full, "nir,red,green") == levels(1, 5, 4)
    codes = tinted(tmp_path / "codes.tif", 13, (*(f"B{i:02d}" for i in range(1, 13)), "B8A"))
    assert colour(codes, "auto") == colour(codes, "sentinel2") == levels(4, 3, 2)
    assert colour(codes, "B8A,b11,B02") == levels(13, 11, 2)


@pytest.mark.parametrize(
    ("count", "wanted", "expected"),
    [
        (1, "auto", (1, 1, 1)),
        (2, "auto", (1, 1, 1)),
        (3, "auto", (1, 2, 3)),
        (5, "auto", (1, 2, 3)),
        (12, "auto", (4, 3, 2)),
        (13, "auto", (4, 3, 2)),
        (4, "sentinel2", (3, 2, 1)),
        (10, "sentinel2", (3, 2, 1)),
        (13, "sentinel2", (4, 3, 2)),
        (7, "landsat8", (4, 3, 2)),
        (4, "naip", (1, 2, 3)),
        (5, "4,3,2", (4, 3, 2)),
        (5, "5", (5, 5, 5)),
    ],
)
def test_unnamed_bands_are_chosen_by_their_places(
    tmp_path: Path, count: int, wanted: str, expected: tuple[int, ...]
) -> None:
    assert colour(tinted(tmp_path / "x.tif", count), wanted) == levels(*expected)


def test_an_ordinary_image_has_three_bands(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), (10, 100, 200)).save(tmp_path / "x.png")
    assert colour(tmp_path / "x.png", "blue,green,red") == [200, 100, 10]
    assert colour(tmp_path / "x.png", "2") == [100, 100, 100]
    reason = read_image(tmp_path / "x.png", 8, Reading(bands="nir,red,green")).reason
    assert reason == "it has no band nir: its bands are 1 red, 2 green, 3 blue"


def test_a_choice_that_no_file_has_is_refused_with_the_bands_there_are(tmp_path: Path) -> None:
    for i in range(3):
        tinted(tmp_path / "in" / f"{i}.tif", 4, ("blue", "green", "red", "nir"))
    listed = "1 blue, 2 green, 3 red, 4 nir"
    sentence = f"--bands swir,red,green does not fit 0.tif: it has no band swir: its bands are {listed}"
    with pytest.raises(UsageError, match=sentence):
        open_archive(tmp_path / "in", 16, tmp_path / "cache", reading=Reading(bands="swir,red,green"))
    tinted(tmp_path / "five" / "0.tif", 5)
    with pytest.raises(UsageError, match="it does not look like landsat8: its bands are 1, 2, 3, 4, 5"):
        open_archive(tmp_path / "five", 16, tmp_path / "cache", reading=Reading(bands="landsat8"))


def test_a_file_without_the_bands_of_the_others_is_skipped(tmp_path: Path) -> None:
    tinted(tmp_path / "in" / "a.tif", 4, ("blue", "green", "red", "nir"))
    tinted(tmp_path / "in" / "b.tif", 4, ("blue", "green", "red", "nir"))
    put(tmp_path / "in" / "c.png")
    archive = open_archive(tmp_path / "in", 8, tmp_path / "cache", reading=Reading(bands="all"))
    assert archive.paths == ("a.tif", "b.tif")
    assert archive.skipped == (("c.png", "it has 3 bands, the others have 4"),)
    assert archive.pixels.shape == (2, 8, 8, 4)
    assert archive.pixels[0, 0, 0].tolist() == levels(1, 2, 3, 4)
    assert archive.shown(0)[0, 0].tolist() == levels(3, 2, 1)
    assert archive.picture(0, 100)[0, 0].tolist() == levels(3, 2, 1)
    assert archive.picture(0, 100, bands="nir,red,green")[0, 0].tolist() == levels(4, 3, 2)
    with pytest.raises(UsageError, match="it has no band swir: its bands are 1 blue"):
        archive.picture(0, 100, bands="swir")
    with pytest.raises(UsageError, match="4 bands cannot be shown: choose one band, or three"):
        archive.picture(0, 100, bands="all")
    (tmp_path / "in" / "a.tif").unlink()
    with pytest.raises(ArchiveError, match="can no longer be read"):
        archive.picture(0, 100)


def test_the_alpha_band_is_no_data_unless_it_is_chosen(tmp_path: Path) -> None:
    path = tinted(tmp_path / "x.tif", 4, colours=("red", "green", "blue", "alpha"))
    assert bands.data(("red", "green", "blue", "alpha")) == (0, 1, 2)
    assert colour(path, "4,1,2") == levels(4, 1, 2)


def test_what_can_be_chosen_for_display() -> None:
    assert bands.choices(("red", "green", "blue")) == []
    offered = {one["text"]: one["bands"] for one in bands.choices(("blue", "green", "red", "nir"))}
    assert offered["natural colour"] == "auto"
    assert offered["infrared, red, green"] == "4,3,2"
    assert offered["band nir"] == "4"
    unnamed = {one["text"]: one["bands"] for one in bands.choices([str(i) for i in range(1, 14)])}
    assert unnamed["infrared, red, green"] == "8,4,3"


def test_bands_take_the_kernels_of_the_colours_in_the_order_of_their_wavelengths() -> None:
    assert bands.kernels(("red", "green", "blue")) == (0, 1, 2)
    assert bands.kernels(("blue", "green", "red")) == (2, 1, 0)
    assert bands.kernels(("blue", "green", "red", "nir")) == (2, 2, 1, 0)
    assert bands.kernels(("red", "green", "blue", "nir")) == (1, 2, 2, 0)
    assert bands.kernels([str(i) for i in range(1, 13)]) == (2,) * 4 + (1,) * 4 + (0,) * 4


def test_an_upload_is_read_as_the_archive_is(tmp_path: Path) -> None:
    path = tinted(tmp_path / "x.tif", 4, ("blue", "green", "red", "nir"))
    reading = Reading(bands="nir,red,green", stretch="0,255")
    np.testing.assert_array_equal(
        decode(path.read_bytes(), 8, reading=reading), read_image(path, 8, reading).pixels
    )
