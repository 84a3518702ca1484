"""Files that would take all the memory or all the time, and things that are no files."""

import os
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rasterio
from PIL import Image
from samples import PLAIN, PX, RASTERS, bands, encoded, noise, put, raster

from anneal.archive import safely
from anneal.archive.catalog import open_archive
from anneal.archive.decode import decode, facts, read_image
from anneal.archive.growth import digest_of
from anneal.archive.listing import scan
from anneal.archive.reading import Reading
from anneal.errors import ArchiveError, UsageError
from anneal.search import read_pixels
from torture import images


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def header(width: int, height: int) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))


def empty_png(side: int, first: bytes = b"") -> bytes:
    """A black PNG, which takes a thousandth of its pixels."""
    rows = zlib.compress(bytes((1 + 3 * side) * side), 9)
    return safely.PNG + first + header(side, side) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


# -- limits -----------------------------------------------------------------------------------------


def test_a_file_that_needs_too_much_memory_is_left_out_and_the_next_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safely, "MEMORY", 1 << 28)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(empty_png(9000))  # 80 million pixels in 240 KB
    (tmp_path / "in" / "b.tif").write_bytes(RASTERS["GeoTIFF 16-bit × 4"]())
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    assert archive.paths == ("b.tif",)
    assert archive.skipped == (("a.png", "it needs more than 0.25 GB to decode"),)
    with pytest.raises(ValueError, match=r"it needs more than 0\.25 GB to decode"):
        decode((tmp_path / "in" / "a.png").read_bytes(), PX)  # as an upload


def test_a_file_that_takes_too_long_is_given_up_and_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.tif"
    file.write_bytes(raster(np.zeros((4, 3000, 3000), np.uint16), compress="deflate"))
    monkeypatch.setattr(safely, "SECONDS", 0.01)
    assert read_image(file, PX).reason == "it takes more than 0.01 s to decode"
    monkeypatch.setattr(safely, "_decoder", None)  # nobody is asked
    assert read_image(file, PX).reason == "it takes more than 0.01 s to decode"


def test_a_large_raster_is_read_by_windows_in_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 million pixels would take 800 MB."""
    file = tmp_path / "large.tif"
    shape = {"width": 20_000, "height": 20_000, "count": 1, "dtype": "uint16", "tiled": True}
    place = {"crs": "EPSG:32632", "transform": rasterio.Affine(10, 0, 0, 0, -10, 0)}
    with rasterio.open(file, "w", driver="GTiff", SPARSE_OK=True, **shape, **place) as out:
        out.write(np.full((256, 256), 77, np.uint16), 1, window=((0, 256), (0, 256)))
    monkeypatch.setattr(safely, "MEMORY", 1 << 29)
    assert facts(file).size == (20_000, 20_000)
    assert read_image(file, PX).reason == ""
    part = read_image(file, PX, Reading(stretch="0,100"), (0, 0, 256, 256))
    assert part.pixels is not None
    assert set(part.pixels.ravel().tolist()) == {77 * 255 // 100}


def test_a_decoder_that_was_killed_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.tif"
    file.write_bytes(raster(bands(4, np.uint16, 500, 3000)))
    assert read_image(file, PX).reason == ""
    for decoder in safely._idle:
        decoder.process.kill()
        decoder.process.wait()
    assert read_image(file, PX).reason == ""


def test_a_file_may_not_be_larger_than_the_cap(tmp_path: Path) -> None:
    for name in ("a.png", "a.tif", "a.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(safely.LARGEST + 1)  # a sparse file takes no room
    assert read_image(tmp_path / "a.png", PX).reason == "it is larger than 64 GB"
    assert read_image(tmp_path / "a.tif", PX).reason == "it is larger than 64 GB"
    assert digest_of(tmp_path / "a.png") == ""
    with pytest.raises(UsageError, match="it is larger than 64 GB"):
        scan(tmp_path / "a.json")


# -- what is decoded where --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PLAIN | RASTERS)
def test_only_plain_images_are_decoded_in_this_process(kind: str) -> None:
    plain = {"JPEG", "JPEG gray", "JPEG CMYK"} | {name for name in PLAIN if name.startswith("PNG")}
    assert safely.is_harmless((PLAIN | RASTERS)[kind]()) == (kind in plain - {"PNG 16-bit gray"})


def test_a_large_or_progressive_image_is_not_harmless() -> None:
    image = Image.fromarray(noise(0, 2001))
    for form in ("JPEG", "PNG"):
        assert not safely.is_harmless(encoded(image, form))
        assert safely.is_harmless(encoded(image.crop((0, 0, 2000, 2000)), form))
    assert not safely.is_harmless(encoded(Image.fromarray(noise(0)), "JPEG", progressive=True))
    assert not safely.is_harmless(b"")
    assert not safely.is_harmless(safely.PNG)


def test_a_png_that_gives_two_sizes_is_refused() -> None:
    with pytest.raises(ValueError, match="its header gives two sizes"):
        decode(empty_png(3000, header(10, 10)), PX)


# -- what is not a file -----------------------------------------------------------------------------


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


KINDS: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a socket": make_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_takes_a_files_place_later_is_never_waited_for(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "in"
    names = ("a.png", "b.tif")
    put(folder / "a.png")
    (folder / "b.tif").write_bytes(RASTERS["GeoTIFF 16-bit × 4"]())
    archive = open_archive(folder, PX, tmp_path / "cache")
    for i, name in enumerate(names):
        (folder / name).unlink()
        KINDS[kind](folder / name)
        reason = f"{kind}, not a file"
        assert read_image(folder / name, PX).reason == reason
        assert read_image(folder / name, PX, Reading(), (0, 0, 9, 9)).reason == reason
        assert digest_of(folder / name) == ""
        for look in (lambda i=i: archive.picture(i, 100), lambda i=i: archive.facts(i)):
            with pytest.raises(ArchiveError, match=reason):
                look()
        with pytest.raises(UsageError, match="nor a file"):
            read_pixels(folder / name, PX)
    if kind != "a folder":
        assert [entry.path for entry in scan(folder, Reading(tile=16))[1]] == [*names]


def test_a_pipe_beside_a_raster_costs_the_time_of_a_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GDAL reads what is beside a file too."""
    (tmp_path / "a.tif").write_bytes(raster(bands(4, np.uint16, 500, 3000)))
    os.mkfifo(tmp_path / "a.tif.aux.xml")
    monkeypatch.setattr(safely, "SECONDS", 0.5)
    assert read_image(tmp_path / "a.tif", PX).reason in ("", "it takes more than 0.5 s to decode")


def test_a_pipe_among_stac_items_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "a.png")
    (tmp_path / "a.json").write_text('{"stac_version": "1.0.0", "type": "Feature"}')
    os.mkfifo(tmp_path / "b.json")
    with pytest.raises(UsageError, match=r"b.json is not JSON in UTF-8 \(a pipe, not a file\)"):
        scan(tmp_path)


# -- anything ---------------------------------------------------------------------------------------


def test_files_with_changed_bytes_become_pixels_or_a_reason() -> None:
    told = images.run(300)
    assert told.startswith("300 images: ")
    assert "decoded" in told
    assert "refused" in told
