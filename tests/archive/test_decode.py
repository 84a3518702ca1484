"""One file becomes pixels, or a reason why not."""

import logging
import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from samples import (
    PLAIN,
    PX,
    RASTERS,
    assert_bright_on_the_left,
    bands,
    encoded,
    noise,
    put,
    raster,
    resized,
)

from anneal.archive.decode import UNREADABLE, Outcome, decode, read_image, shown, within
from anneal.archive.reading import Reading


@pytest.mark.parametrize("px", [32, 100])
@pytest.mark.parametrize("kind", PLAIN)
def test_every_format_keeps_its_bright_left_half(
    kind: str, px: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert_bright_on_the_left(decode(PLAIN[kind](), px), px)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_large_jpeg_is_decoded_as_finely_as_it_is_shown(tmp_path: Path) -> None:
    busy = Image.fromarray(noise(4, 40)).resize((300, 270), Image.Resampling.BICUBIC)
    busy.save(tmp_path / "large.jpg", quality=95)
    ours = decode((tmp_path / "large.jpg").read_bytes(), 64, reading=Reading(fit="squash")).astype(int)
    difference = np.abs(ours - resized(tmp_path / "large.jpg", 64)).mean()
    assert difference < 12  # decoded at half the size, it is more than 20


def test_a_file_that_is_not_an_image_gives_its_reason_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "postscript.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    for name in ("text.png", "postscript.png"):
        assert read_image(tmp_path / name, PX) == Outcome("", None, "not an image that can be read")
    digest, pixels, reason, _ = read_image(tmp_path / "gone.png", PX)
    assert (digest, pixels) == ("", None)
    assert reason == "[Errno 2] No such file or directory: 'gone.png'"


def test_a_damaged_file_gives_an_image_or_a_reason(tmp_path: Path, rng: np.random.Generator) -> None:
    """Bytes are changed at random, and files are cut short."""
    whole = [np.frombuffer(make(), np.uint8) for make in (PLAIN | RASTERS).values()]
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
        digest, pixels, reason, _ = read_image(file, 16)
        if pixels is None:
            assert reason
        else:
            assert (pixels.shape, pixels.dtype.name, reason, len(digest)) == ((16, 16, 3), "uint8", "", 32)
        outcomes.add(pixels is None)
    assert outcomes == {True, False}


def test_many_threads_leave_the_warning_filters_as_they_were(tmp_path: Path) -> None:
    """The deep file makes rasterio warn, the plain one does not warn."""
    deep = tmp_path / "deep.tif"
    deep.write_bytes(raster(bands(4, np.uint16, 500, 3000)))
    plain = put(tmp_path / "plain.png")
    before = list(warnings.filters)
    with warnings.catch_warnings():  # other tests keep their filters if this one fails
        with ThreadPoolExecutor(8) as pool:
            readings = list(pool.map(lambda i: read_image((deep, plain)[i % 2], PX), range(128)))
            files = [plain.read_bytes(), deep.read_bytes()] * 200
            pictures = list(pool.map(lambda data: shown(data, within(16), Reading()), files))
        assert list(warnings.filters) == before
    assert {outcome.reason for outcome in readings} == {""}
    assert {picture.shape for picture in pictures} == {(16, 16, 3)}


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
    """A header that claims 900 million pixels, in a file of 60 bytes."""
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    chunk = (
        struct.pack(">I", len(header)) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    )
    bomb = (
        b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    )
    with pytest.raises(UNREADABLE):
        decode(bomb, PX, limit=50_000_000)
