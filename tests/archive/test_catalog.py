"""Archives: which files become images, what their pixels are, and what is kept of them."""

import io
import logging
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from rasterio.errors import NotGeoreferencedWarning

from anneal.archive.catalog import (
    UNREADABLE,
    Archive,
    Entry,
    decode,
    open_archive,
    read_image,
    reopen,
    scan,
    within,
)
from anneal.errors import AnnealError, ArchiveError, UsageError

PX = 32
Pixels = NDArray[np.uint8]


def noise(seed: int, side: int = 16) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def put(path: Path, seed: int = 0) -> Path:
    """An image file of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise(seed)).save(path)
    return path


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def resized(path: Path, px: int) -> Pixels:
    """The pixels of a file, decoded without any help of ours."""
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize((px, px), Image.Resampling.BILINEAR))


def assert_same(one: Archive, other: Archive) -> None:
    for column in ("paths", "labels", "splits", "digests", "skipped"):
        assert getattr(one, column) == getattr(other, column), column
    np.testing.assert_array_equal(one.pixels, other.pixels)


# -- which files -----------------------------------------------------------------------------------


def test_a_folder_is_scanned_recursively_in_the_order_of_paths(tmp_path: Path) -> None:
    names = ["b/z.png", "a/2.jpg", "top.tif", "a/deep/er/1.PNG", "a/10.jpeg"]
    for seed, name in enumerate(names):
        put(tmp_path / "in" / name, seed)
    (tmp_path / "in" / "a" / "notes.txt").write_text("no image")
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    assert archive.paths == ("a/10.jpeg", "a/2.jpg", "a/deep/er/1.PNG", "b/z.png", "top.tif")
    assert archive.labels == ("a", "a", "a", "b", "")  # the first folder below the root, if any
    assert archive.splits == ("",) * 5
    assert archive.classes.tolist() == [0, 0, 0, 1, -1]
    assert (len(archive), archive.px, archive.skipped) == (5, PX, ())


def test_hidden_files_and_folders_are_ignored(tmp_path: Path) -> None:
    for name in ("a/seen.png", "a/.hidden.png", ".git/x.png", "a/.thumbs/y.png", "._z.png"):
        put(tmp_path / name)
    assert scan(tmp_path) == (tmp_path, [Entry("a/seen.png", "a")])


def test_a_missing_or_imageless_source_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere does not exist: give a folder"):
        scan(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("no image")
    with pytest.raises(UsageError, match=r"empty holds no image file \(.*\.tif"):
        scan(tmp_path / "empty")


@pytest.mark.parametrize("px", [-1, 0, 7, 2049])
def test_a_size_no_network_wants_is_a_usage_error(tmp_path: Path, px: int) -> None:
    put(tmp_path / "in" / "a.png")
    with pytest.raises(UsageError, match=f"--px {px} is not a size"):
        open_archive(tmp_path / "in", px, tmp_path / "cache")


# -- manifests -------------------------------------------------------------------------------------


def listed(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    """A manifest beside three images."""
    for seed, name in enumerate(("a.png", "b.png", "sub/c.png")):
        put(folder / name, seed)
    (folder / "list.csv").write_bytes(text.encode(encoding))
    return folder / "list.csv"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_manifest_gives_order_classes_and_splits(tmp_path: Path, encoding: str, newline: str) -> None:
    lines = ["path,class,split", "sub/c.png,Äcker,train", 'a.png,"b, c",test', "b.png,,", ""]
    archive = open_archive(listed(tmp_path, newline.join(lines), encoding), PX, tmp_path / "cache")
    assert archive.root == tmp_path
    assert archive.paths == ("sub/c.png", "a.png", "b.png")
    assert archive.labels == ("Äcker", "b, c", "")
    assert archive.splits == ("train", "test", "")
    np.testing.assert_array_equal(archive.pixels[0], resized(tmp_path / "sub" / "c.png", PX))


def test_a_manifest_needs_no_column_but_path(tmp_path: Path) -> None:
    source = listed(tmp_path, f"size,path\n3,b.png\n4,{tmp_path}/sub/c.png\n")
    assert scan(source)[1] == [Entry("b.png"), Entry(f"{tmp_path}/sub/c.png")]
    archive = open_archive(source, PX, tmp_path / "cache")
    assert (len(archive), archive.skipped) == (2, ())
    assert archive.find(tmp_path / "sub" / "c.png") == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no column 'path': a manifest is"),
        ("file,class\na.png,x\n", "has no column 'path': a manifest is"),
        ("path;class\na.png;x\n", "has no column 'path': a manifest is"),
        ("path,class\n", "lists no image"),
        ("path\na.png\nb.png\na.png\n", "lists a.png twice"),
        (
            "path,split\na.png,train\nb.png,training\n",
            "gives b.png the split 'training': use train, val, test",
        ),
    ],
)
def test_a_manifest_that_cannot_be_meant_is_a_usage_error(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=f"list.csv {sentence}"):
        scan(listed(tmp_path, text))


@pytest.mark.parametrize("text", ["class,path\nx,a.png\ny\n", "path,class\na.png,x\n,y\n"])
def test_a_manifest_line_without_a_path_is_a_usage_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="path"):
        scan(listed(tmp_path, text))


def test_a_manifest_that_is_not_utf8_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"list\.csv"):
        scan(listed(tmp_path, "path,class\na.png,Äcker\n", "latin-1"))
    with pytest.raises(UsageError, match=r"a\.png"):  # an image where a folder or a manifest is wanted
        scan(tmp_path / "a.png")


def test_a_listed_file_that_is_not_there_is_skipped_and_named(tmp_path: Path) -> None:
    archive = open_archive(listed(tmp_path, "path\ngone.png\nb.png\n"), PX, tmp_path / "cache")
    assert archive.paths == ("b.png",)
    ((path, why),) = archive.skipped
    assert path == "gone.png"
    assert "No such file" in why


# -- pixels and what is kept of them ---------------------------------------------------------------


def test_pixels_are_what_pillow_decodes_and_resizes(drawn: Path, tmp_path: Path) -> None:
    for file in drawn.glob("*/*_000.jpg"):
        shutil.copy(file, tmp_path / file.name)
    Image.fromarray(noise(7, 256)).resize((500, 256)).save(tmp_path / "wide.png")
    archive = open_archive(tmp_path, 224, tmp_path / "cache")
    assert (archive.pixels.shape, archive.pixels.dtype.name) == ((13, 224, 224, 3), "uint8")
    for i, path in enumerate(archive.paths):
        np.testing.assert_array_equal(archive.pixels[i], resized(tmp_path / path, 224), err_msg=path)


def test_a_large_jpeg_is_decoded_no_coarser_than_it_is_shown(tmp_path: Path) -> None:
    busy = Image.fromarray(noise(4, 40)).resize((300, 270), Image.Resampling.BICUBIC)
    busy.save(tmp_path / "large.jpg", quality=95)
    ours = decode((tmp_path / "large.jpg").read_bytes(), 64).astype(int)
    assert np.abs(ours - resized(tmp_path / "large.jpg", 64)).mean() < 12  # at half of it, more than 20


def test_reading_tells_how_far_it_is(drawn: Path, tmp_path: Path) -> None:
    said: list[tuple[int, int]] = []
    open_archive(drawn, PX, tmp_path, lambda done, total: said.append((done, total)))
    assert said == [(120, 120)]


def test_ids_are_the_same_whoever_reads_with_however_many_threads(drawn: Path, tmp_path: Path) -> None:
    one = open_archive(drawn, PX, tmp_path / "one", workers=1)
    assert_same(one, open_archive(drawn, PX, tmp_path / "many", workers=7))
    assert_same(one, open_archive(drawn, PX, tmp_path / "one"))
    assert_same(one, reopen(drawn, one.folder, PX))


def test_a_second_open_decodes_nothing(tmp_path: Path) -> None:
    """The file is given other pixels behind a stat that tells no difference: only a decoder would notice."""
    file = tmp_path / "in" / "a.bmp"
    put(file, 1)
    first = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    before, kept = file.stat(), first.folder / "pixels.bin"
    written = kept.stat().st_mtime_ns
    put(file, 2)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert_same(first, open_archive(tmp_path / "in", PX, tmp_path / "cache"))
    assert kept.stat().st_mtime_ns == written


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.png", 1)
    put(tmp_path / "in" / "b.png", 2)
    first = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    stat = put(tmp_path / "in" / "b.png", 3).stat()
    os.utime(tmp_path / "in" / "b.png", ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    second = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    assert second.folder != first.folder
    np.testing.assert_array_equal(second.pixels[1], resized(tmp_path / "in" / "b.png", PX))
    assert second.digests[0] == first.digests[0]
    assert second.digests[1] != first.digests[1]


def test_another_file_another_size_and_another_class_are_read_anew(tmp_path: Path) -> None:
    source = listed(tmp_path, "path,class\na.png,x\n")
    first = open_archive(source, PX, tmp_path / "cache")
    assert open_archive(source, 8, tmp_path / "cache").pixels.shape == (1, 8, 8, 3)
    source.write_text("path,class\na.png,y\n")
    assert open_archive(source, PX, tmp_path / "cache").labels == ("y",)
    source.write_text("path,class\na.png,x\nb.png,y\n")
    assert open_archive(source, PX, tmp_path / "cache").paths == ("a.png", "b.png")
    assert reopen(tmp_path, first.folder, PX).paths == ("a.png",)


def test_the_folder_may_go_once_it_is_read(tmp_path: Path) -> None:
    put(tmp_path / "in" / "x" / "a.png", 1)
    put(tmp_path / "in" / "x" / "b.png", 2)
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    pixels = archive.pixels.copy()
    assert archive.missing() == []
    (tmp_path / "in" / "x" / "b.png").unlink()
    assert archive.missing() == ["x/b.png"]
    shutil.rmtree(tmp_path / "in")
    again = reopen(tmp_path / "in", archive.folder, PX)
    assert_same(again, archive)
    np.testing.assert_array_equal(again.pixels, pixels)
    assert again.missing() == ["x/a.png", "x/b.png"]


def test_pixels_cannot_be_written_to(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.png")
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    with pytest.raises(ValueError, match="read-only"):
        archive.pixels[0, 0, 0, 0] = 1


def spoil(folder: Path, how: str) -> None:
    if how == "all gone":
        shutil.rmtree(folder)
    elif how == "pixels gone":
        (folder / "pixels.bin").unlink()
    else:
        os.truncate(folder / "pixels.bin", PX * PX)


@pytest.mark.parametrize("how", ["all gone", "pixels gone", "pixels cut short"])
def test_what_was_kept_and_spoilt_is_named_on_reopening_and_read_again_on_opening(
    tmp_path: Path, how: str
) -> None:
    put(tmp_path / "in" / "a.png")
    folder = open_archive(tmp_path / "in", PX, tmp_path / "cache").folder
    spoil(folder, how)
    with pytest.raises(ArchiveError, match=f"{folder.name} are gone or incomplete"):
        reopen(tmp_path / "in", folder, PX)
    again = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    np.testing.assert_array_equal(again.pixels[0], resized(tmp_path / "in" / "a.png", PX))


# -- looking up ------------------------------------------------------------------------------------


def test_an_image_is_found_by_any_path_that_means_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, name in enumerate(("x/a.png", "x/b.png", "y/a.png")):
        put(tmp_path / "in" / name, seed)
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    assert archive.find(tmp_path / "in" / "x" / "b.png") == 1
    assert archive.find(Path("x/b.png")) == 1
    assert archive.find(tmp_path / "in" / "x" / ".." / "y" / "a.png") == 2
    monkeypatch.chdir(tmp_path / "in" / "y")
    assert archive.find(Path("a.png")) == 2
    (tmp_path / "way").symlink_to(tmp_path / "in")
    assert archive.find(tmp_path / "way" / "x" / "a.png") == 0
    (tmp_path / "other.png").symlink_to(tmp_path / "in" / "x" / "b.png")
    assert archive.find(tmp_path / "other.png") == 1


def test_a_stranger_is_not_found(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.png")
    put(tmp_path / "in" / ".b.png")
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    strangers = (tmp_path / "a.png", Path("b.png"), tmp_path / "in" / ".b.png", Path("/"), Path("."))
    assert [archive.find(path) for path in strangers] == [None] * 5


def test_a_linked_image_is_found_by_its_own_path(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere.png")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link.png").symlink_to(tmp_path / "elsewhere.png")
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    assert archive.find(Path("link.png")) == 0
    assert archive.find(tmp_path / "in" / "link.png") == 0


def test_an_image_listed_with_a_leading_dot_is_found(tmp_path: Path) -> None:
    """As ``find . -name '*.png'`` writes it."""
    archive = open_archive(listed(tmp_path, "path\n./a.png\n./sub/c.png\n"), PX, tmp_path / "cache")
    assert archive.find(tmp_path / "sub" / "c.png") == 1
    assert archive.find(Path("sub/c.png")) == 1


def test_files_of_the_same_content_are_duplicates(tmp_path: Path) -> None:
    for seed, name in enumerate(("a.png", "b.png", "c.png", "d.png")):
        put(tmp_path / "in" / name, seed)
    shutil.copy(tmp_path / "in" / "b.png", tmp_path / "in" / "z1.png")
    shutil.copy(tmp_path / "in" / "a.png", tmp_path / "in" / "z2.png")
    shutil.copy(tmp_path / "in" / "b.png", tmp_path / "in" / "z3.png")
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    assert archive.duplicates == [[0, 5], [1, 4, 6]]


# -- files that cannot be read ---------------------------------------------------------------------


def test_unreadable_files_are_named_and_skipped_and_the_others_keep_their_order(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for seed, name in enumerate(("a.png", "c.png", "e.png")):
        put(folder / name, seed)
    whole = encoded(Image.fromarray(noise(9, 64)), "JPEG")
    (folder / "b.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "d1.jpg").write_text("not an image at all")
    (folder / "d2.png").write_bytes(b"")
    (folder / "d3.tif").write_bytes(b"II*\0" + bytes(50))
    (folder / "d4.png").symlink_to(tmp_path / "gone.png")
    archive = open_archive(folder, PX, tmp_path / "cache")
    assert archive.paths == ("a.png", "c.png", "e.png")
    for i, path in enumerate(archive.paths):
        np.testing.assert_array_equal(archive.pixels[i], resized(folder / path, PX))
    why = dict(archive.skipped)
    assert list(why) == ["b.jpg", "d1.jpg", "d2.png", "d3.tif", "d4.png"]
    assert "truncated" in why["b.jpg"]
    assert why["d1.jpg"] == why["d2.png"] == "not an image that can be read"
    assert why["d3.tif"].startswith("not a TIFF that can be read")
    assert "No such file" in why["d4.png"]
    assert all("\n" not in reason for reason in why.values())


def test_nothing_readable_is_an_archive_error_each_time(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / name).write_text("no")
    for _ in range(2):
        with pytest.raises(
            ArchiveError, match=r"None of the files in .*a\.jpg: not an image that can be read"
        ):
            open_archive(tmp_path, PX, tmp_path / "cache")


def test_a_file_that_lacked_rasterio_is_read_once_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason given says what to install; having done so must help."""
    put(tmp_path / "in" / "a.png")
    (tmp_path / "in" / "b.tif").write_bytes(raster(np.stack([left_bright(np.uint16, 500, 3000)] * 4)))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "rasterio", None)
        ((path, why),) = open_archive(tmp_path / "in", PX, tmp_path / "cache").skipped
    assert path == "b.tif"
    assert "pip install 'anneal[geo]'" in why
    assert open_archive(tmp_path / "in", PX, tmp_path / "cache").paths == ("a.png", "b.tif")


@pytest.mark.parametrize(
    "side", [40, 60]
)  # of 1000 allowed pixels: Pillow warns, and past the double refuses
def test_an_image_past_pillows_bomb_limit_does_not_stop_the_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: int
) -> None:
    put(tmp_path / "in" / "a.png", 1)
    Image.fromarray(noise(2, side)).save(tmp_path / "in" / "b.png")
    put(tmp_path / "in" / "c.png", 3)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    if side == 40:
        assert (archive.paths, archive.skipped) == (("a.png", "b.png", "c.png"), ())
    else:
        assert archive.paths == ("a.png", "c.png")
        assert [path for path, _ in archive.skipped] == ["b.png"]


# -- formats ---------------------------------------------------------------------------------------


def left_bright(dtype: Any, low: float, high: float, side: int = 64) -> NDArray[Any]:
    """(side, side): dark on the right, bright on the left, with a grain of a tenth of the range."""
    scene = np.random.default_rng(5).uniform(low, low + (high - low) / 10, (side, side))
    scene[:, : side // 2] += 0.9 * (high - low)
    return scene.astype(dtype)


def raster(bands: NDArray[Any], **options: Any) -> bytes:
    """A GeoTIFF of (count, height, width)."""
    count, height, width = bands.shape
    shape = {"count": count, "height": height, "width": width, "dtype": bands.dtype}
    with warnings.catch_warnings(), rasterio.MemoryFile() as file:
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with file.open(driver="GTiff", **shape, **options) as out:
            out.write(bands)
        return bytes(file.read())


def bands(count: int, dtype: Any, low: float, high: float, nodata: float | None = None) -> NDArray[Any]:
    """Bright on the left; the upper quarter has no data."""
    scene = np.stack([left_bright(dtype, low, high)] * count)
    if nodata is not None:
        scene[:, :16] = nodata
    return scene


def colour() -> Image.Image:
    """Bright and reddish on the left."""
    scene = left_bright(np.float64, 10, 230)
    return Image.fromarray(np.stack([scene, scene * 0.9, scene * 0.8], axis=2).astype(np.uint8))


def veiled() -> Image.Image:
    """As ``colour``, more and more transparent to the left."""
    image = colour().convert("RGBA")
    image.putalpha(Image.fromarray(np.tile(np.linspace(0, 255, 64).astype(np.uint8), (64, 1))))
    return image


FORMATS: dict[str, Callable[[], bytes]] = {
    "JPEG": lambda: encoded(colour(), "JPEG"),
    "JPEG gray": lambda: encoded(colour().convert("L"), "JPEG"),
    "JPEG CMYK": lambda: encoded(colour().convert("CMYK"), "JPEG"),
    "JPEG 2000": lambda: encoded(colour(), "JPEG2000"),
    "PNG": lambda: encoded(colour(), "PNG"),
    "PNG RGBA": lambda: encoded(veiled(), "PNG"),
    "PNG gray and alpha": lambda: encoded(veiled().convert("LA"), "PNG"),
    "PNG palette": lambda: encoded(colour().quantize(16), "PNG"),
    "PNG palette, one colour clear": lambda: encoded(colour().quantize(16), "PNG", transparency=0),
    "PNG palette, half clear": lambda: encoded(colour().quantize(4), "PNG", transparency=b"\0\x80\xff\xff"),
    "PNG one bit": lambda: encoded(colour().convert("1"), "PNG"),
    "PNG 16-bit gray": lambda: encoded(Image.fromarray(left_bright(np.uint16, 500, 3000)), "PNG"),
    "GIF": lambda: encoded(colour().quantize(16), "GIF"),
    "WebP": lambda: encoded(colour(), "WEBP"),
    "BMP": lambda: encoded(colour(), "BMP"),
    "TIFF": lambda: encoded(colour(), "TIFF"),
    "TIFF LZW": lambda: encoded(colour(), "TIFF", compression="tiff_lzw"),
    "GeoTIFF 8-bit × 3": lambda: raster(bands(3, np.uint8, 10, 230)),
    "GeoTIFF 8-bit × 5, nodata": lambda: raster(bands(5, np.uint8, 10, 230, 0), nodata=0),
    "GeoTIFF 16-bit × 1": lambda: raster(bands(1, np.uint16, 500, 3000)),
    "GeoTIFF 16-bit × 1, nodata": lambda: raster(bands(1, np.uint16, 500, 3000, 65535), nodata=65535),
    "GeoTIFF 16-bit × 2": lambda: raster(bands(2, np.uint16, 500, 3000)),
    "GeoTIFF 16-bit × 3": lambda: raster(bands(3, np.uint16, 500, 3000)),
    "GeoTIFF 16-bit × 3, RGB": lambda: raster(bands(3, np.uint16, 500, 3000), photometric="RGB"),
    "GeoTIFF 16-bit × 4": lambda: raster(bands(4, np.uint16, 500, 3000)),
    "GeoTIFF 16-bit × 4, RGB": lambda: raster(bands(4, np.uint16, 500, 3000), photometric="RGB"),
    "GeoTIFF 16-bit × 4, nodata": lambda: raster(bands(4, np.uint16, 500, 3000, 0), nodata=0),
    "GeoTIFF 16-bit × 13": lambda: raster(bands(13, np.uint16, 500, 3000)),
    "GeoTIFF 16-bit × 4, tiled": lambda: raster(
        bands(4, np.uint16, 500, 3000),
        tiled=True,
        blockxsize=32,
        blockysize=32,
        compress="deflate",
        predictor=2,
    ),
    "GeoTIFF signed × 1, nodata": lambda: raster(bands(1, np.int16, -300, 3000, -32768), nodata=-32768),
    "GeoTIFF float × 1": lambda: raster(bands(1, np.float32, 0.02, 0.6)),
    "GeoTIFF float × 1, nodata": lambda: raster(bands(1, np.float32, 0.02, 0.6, -9999), nodata=-9999),
    "GeoTIFF float × 1, nodata NaN": lambda: raster(bands(1, np.float32, 0.02, 0.6, np.nan), nodata=np.nan),
    "GeoTIFF float × 1, infinite": lambda: raster(bands(1, np.float32, 0.02, 0.6, -np.inf)),
    "GeoTIFF float × 4, nodata": lambda: raster(bands(4, np.float32, 0.02, 0.6, -9999), nodata=-9999),
    "GeoTIFF double × 3": lambda: raster(bands(3, np.float64, 0.02, 0.6)),
    "GeoTIFF complex × 1": lambda: raster(bands(1, np.complex64, 0.02, 0.6)),
    "BigTIFF 16-bit × 4": lambda: raster(bands(4, np.uint16, 500, 3000), BIGTIFF="YES"),
}


@pytest.mark.parametrize("px", [32, 100])
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_comes_out_bright_on_the_left(
    kind: str, px: int, caplog: pytest.LogCaptureFixture
) -> None:
    pixels = decode(FORMATS[kind](), px)
    assert (pixels.shape, pixels.dtype.name) == ((px, px, 3), "uint8")
    valid = pixels[px // 4 + 2 :].astype(float)  # below what may hold no data
    half = px // 2
    left, right = valid[:, : half - 2].mean(axis=(0, 1)), valid[:, half + 2 :].mean(axis=(0, 1))
    assert (left - right > 100).all(), (left, right)
    assert right.max() < 60
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_colours_stay_in_their_channels(tmp_path: Path) -> None:
    red, green, blue = np.zeros((3, 64, 64))
    red[:, :32], green[:32], blue[:, 32:] = 200, 200, 200
    scene = np.stack([red, green, blue]).astype(np.uint8)
    files = {
        "rgb.png": encoded(Image.fromarray(np.moveaxis(scene, 0, -1)), "PNG"),
        "5.tif": raster(np.concatenate([scene, scene[:2]])),
        "13.tif": raster(np.concatenate([scene, *[scene] * 3, scene[:1]]).astype(np.uint16) * 20),
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
def test_a_deep_image_of_one_value_or_none_is_flat_or_skipped(
    tmp_path: Path, count: int, value: float
) -> None:
    (tmp_path / "flat.tif").write_bytes(raster(np.full((count, 8, 8), value, np.float32), nodata=-9999))
    _, pixels, why = read_image(tmp_path / "flat.tif", 16)
    assert bool(why) == (pixels is None)
    assert pixels is None or np.ptp(pixels) == 0


def test_no_damage_to_a_file_does_more_than_leave_it_out(tmp_path: Path, rng: np.random.Generator) -> None:
    """Bytes changed at random and files cut short: an image comes out, or a reason why not."""
    whole = [np.frombuffer(make(), np.uint8) for make in FORMATS.values()]
    file = tmp_path / "damaged"
    outcomes = set()
    for _ in range(400):
        data = whole[rng.integers(len(whole))].copy()
        reach = min(len(data), int(rng.choice([60, 600, 10**9])))
        places = rng.integers(0, reach, int(rng.choice([1, 2, 8])))
        data[places] = rng.choice([0, 255, int(rng.integers(256))], len(places))
        if rng.random() < 0.3:
            data = data[: rng.integers(len(data))]
        file.write_bytes(data.tobytes())
        digest, pixels, why = read_image(file, 16)
        if pixels is None:
            assert why
        else:
            assert (pixels.shape, pixels.dtype.name, why, len(digest)) == ((16, 16, 3), "uint8", "", 32)
        outcomes.add(pixels is None)
    assert outcomes == {True, False}


def test_reading_in_many_threads_leaves_the_warning_filters_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    data = raster(bands(4, np.uint16, 500, 3000))
    for i in range(64):
        (tmp_path / "in" / f"{i}.tif").write_bytes(data)
    before = list(warnings.filters)
    open_archive(tmp_path / "in", PX, tmp_path / "cache", workers=8)
    assert list(warnings.filters) == before


# -- for a person to look at, and from strangers ---------------------------------------------------


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.integers(1, 2_000))
def test_a_picture_is_no_larger_than_asked_for_and_keeps_its_proportions(
    width: int, height: int, most: int
) -> None:
    w, h = within(most)(width, height)
    assert 1 <= w <= min(width, most)
    assert 1 <= h <= min(height, most)
    if max(width, height) <= most:
        assert (w, h) == (width, height)  # never enlarged
    else:
        assert max(w, h) == most
        scale = most / max(width, height)
        assert abs(w - width * scale) <= 1
        assert abs(h - height * scale) <= 1


def test_a_picture_is_the_file_in_its_own_proportions(tmp_path: Path) -> None:
    wide = np.repeat(np.arange(0, 240, dtype=np.uint8)[None], 60, axis=0)[..., None].repeat(3, axis=2)
    (tmp_path / "in").mkdir()
    Image.fromarray(wide).save(tmp_path / "in" / "wide.png")
    Image.fromarray(wide.swapaxes(0, 1)).save(tmp_path / "in" / "high.png")
    (tmp_path / "in" / "deep.tif").write_bytes(raster(wide[None, ..., 0].astype(np.uint16) * 100))
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    deep, high, wider = (archive.picture(i, 120) for i in range(3))
    assert (wider.shape, high.shape, deep.shape) == ((30, 120, 3), (120, 30, 3), (30, 120, 3))
    assert {picture.dtype.name for picture in (deep, high, wider)} == {"uint8"}
    np.testing.assert_array_equal(archive.picture(2, 1000), wide)
    for picture in (deep, high.swapaxes(0, 1), wider):  # bright on the right
        assert (np.diff(picture[15, ::10, 0].astype(int)) > 0).all()


@pytest.mark.parametrize("damage", ["gone", "spoilt"])
def test_a_file_that_can_no_longer_be_read_is_named(tmp_path: Path, damage: str) -> None:
    path = put(tmp_path / "in" / "a.png")
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"no image")
    with pytest.raises(ArchiveError, match=r"a\.png can no longer be read"):
        archive.picture(0, 500)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "GeoTIFF"])
def test_an_image_of_more_pixels_than_the_limit_is_refused(kind: str) -> None:
    image = noise(0, 100)
    data = (
        raster(image[None, ..., 0].astype(np.uint16))
        if kind == "GeoTIFF"
        else encoded(Image.fromarray(image), kind)
    )
    assert decode(data, PX, limit=10_000).shape == (PX, PX, 3)
    np.testing.assert_array_equal(decode(data, PX, limit=10_000), decode(data, PX))
    with pytest.raises(ValueError, match="100 × 100 pixels are more than"):
        decode(data, PX, limit=9_999)


def test_an_image_beyond_the_limit_is_refused_before_it_is_decoded() -> None:
    """By its header: 900 million pixels in a file of 60 bytes."""
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    chunk = (
        struct.pack(">I", len(header)) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    )
    bomb = (
        b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    )
    with pytest.raises(UNREADABLE):
        decode(bomb, PX, limit=50_000_000)


def test_pictures_made_in_many_threads_leave_the_warning_filters_as_they_were(tmp_path: Path) -> None:
    for i in range(8):
        put(tmp_path / "in" / f"{i}.png", i)
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    before = list(warnings.filters)
    with warnings.catch_warnings():  # so that no other test suffers
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: archive.picture(i % 8, 16), range(400)))
        assert list(warnings.filters) == before


# -- killed, and in company ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """800 files in two classes, every 50th unreadable: four batches of reading."""
    folder = tmp_path_factory.mktemp("many")
    contents = [encoded(Image.fromarray(noise(seed, 96)), "PNG") for seed in range(17)]
    for i in range(800):
        path = folder / "xy"[i % 2] / f"{i:03}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"no image" if i % 50 == 7 else contents[i % 17])
    return folder


READ = """
import sys
from pathlib import Path
from anneal.archive.catalog import open_archive
tell = lambda done, total: print(done, flush=True)
open_archive(Path(sys.argv[1]), 32, Path(sys.argv[2]), tell, workers=1)
"""


def test_a_killed_reader_goes_on_and_ends_with_the_same_archive(
    many: Path, tmp_path: Path, rng: np.random.Generator
) -> None:
    said: list[list[int]] = []
    for _ in range(2):
        command = [sys.executable, "-c", READ, str(many), str(tmp_path / "killed")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            first = int(reader.stdout.readline())
            time.sleep(rng.uniform(0, 0.02))
            reader.kill()
            said.append([first, *map(int, reader.stdout.read().split("\n")[:-1])])
    assert said[0][0] == 256
    assert all(later[0] > earlier[-1] for earlier, later in pairwise(said))
    resumed = open_archive(many, PX, tmp_path / "killed")
    undisturbed = open_archive(many, PX, tmp_path / "undisturbed")
    assert_same(resumed, undisturbed)
    assert (len(resumed), len(resumed.skipped)) == (784, 16)
    assert len(resumed.duplicates) == 17


READ_AND_WATCH = """
import sys
from pathlib import Path
from select import select
import numpy as np
from anneal.archive.catalog import open_archive
pixels = open_archive(Path(sys.argv[1]), 32, Path(sys.argv[2])).pixels
before = np.array(pixels)
print("read", flush=True)
while not select([sys.stdin], [], [], 0)[0]:  # until it is closed
    assert np.array_equal(pixels, before), "the other reader changed my pixels"
"""


def test_two_readers_of_one_folder_do_not_take_each_others_pixels_away(many: Path, tmp_path: Path) -> None:
    """As when two commands are started at once on one archive, and the second overtakes the first."""
    slow, quick = (
        subprocess.Popen(
            [sys.executable, "-c", script, str(many), str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for script in (READ, f"import sys; sys.stdin.readline()\n{READ_AND_WATCH}")
    )
    with slow, quick:
        assert slow.stdout is not None
        assert quick.stdout is not None
        assert quick.stdin is not None
        assert slow.stdout.readline() == "256\n"
        slow.send_signal(signal.SIGSTOP)
        quick.stdin.write("go\n")
        quick.stdin.flush()
        select.select([quick.stdout], [], [], 3)  # it may also choose to wait for the first
        slow.send_signal(signal.SIGCONT)
        slow.communicate()
        quick.communicate()
    assert (slow.returncode, quick.returncode) == (0, 0)
    assert_same(open_archive(many, PX, tmp_path), open_archive(many, PX, tmp_path / "alone"))


def test_a_cache_that_is_a_file_is_said_in_a_sentence(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.png")
    (tmp_path / "cache").write_text("mine")
    with pytest.raises(AnnealError, match="cache"):
        open_archive(tmp_path / "in", PX, tmp_path / "cache")
