"""Image files with changed bytes. Each must become pixels or a reason, within the limits."""

from __future__ import annotations

import io
import resource
import struct
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import rasterio
from PIL import Image

from anneal.archive import safely
from anneal.archive.decode import Outcome, read_image

PX = 32
SIDE = 48  # pixels of a whole image
THREADS = 2
BASE = 1 << 30  # bytes that a process has beside what it decodes, at most
HUGE = (0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)  # for fields of a header

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def run(count: int, seconds: float = 10) -> str:
    """Decode so many; no one may take longer than ``seconds``, nor the memory of a decoder."""
    wholes = list(samples().values())
    told: Counter[str] = Counter()
    usual, safely.SECONDS = safely.SECONDS, seconds
    try:
        with TemporaryDirectory() as folder, ThreadPoolExecutor(THREADS) as pool:

            def read(number: int) -> tuple[Outcome, float]:
                rng = np.random.default_rng(number)
                file = Path(folder) / str(number)
                file.write_bytes(mutated(wholes[number % len(wholes)], rng))
                start = time.monotonic()
                made = read_image(file, PX)
                file.unlink()
                return made, time.monotonic() - start

            for made, took in pool.map(read, range(count)):
                told[kind(made)] += 1
                assert took < THREADS * (seconds + safely.STARTING), f"it hung for {took:.0f} s"
    finally:
        safely.SECONDS = usual
        safely.end_all()
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    assert memory < safely.MEMORY + BASE, f"a decoder took {memory / 2**30:.1f} GB"
    parts = ", ".join(f"{number:,} {what}" for what, number in told.most_common())
    return f"{count:,} images: {parts}; 0 crashes, 0 hangs, at most {memory / 2**30:.1f} GB"


def kind(made: Outcome) -> str:
    """What came of a file. A reason is a line of plain text."""
    if made.pixels is not None:
        assert (made.pixels.shape, made.pixels.dtype.name, made.reason) == ((PX, PX, 3), "uint8", "")
        return "decoded"
    assert made.reason, "no reason is given"
    assert len(made.reason.splitlines()) == 1
    if made.reason.startswith("it takes more than"):
        return "refused for their time"
    if made.reason.startswith("it needs more than"):
        return "refused for their memory"
    return "that ended a decoder" if made.reason.startswith("it ends the decoder") else "refused"


def mutated(whole: bytes, rng: np.random.Generator) -> bytes:
    """Bytes are changed, cut out or put in, or a number of the header is enlarged."""
    data = bytearray(whole)
    for _ in range(int(rng.choice([1, 1, 1, 4]))):
        reach = max(min(len(data), int(rng.choice([64, 600, 10**9]))), 1)
        at = int(rng.integers(reach))
        match rng.choice(["flip", "cut", "insert", "field", "field"]):
            case "flip":
                data[at : at + 1] = bytes([int(rng.integers(256))])
            case "cut":
                del data[at : at + int(rng.integers(1, 200))]
            case "insert":
                data[at:at] = rng.bytes(int(rng.integers(1, 200)))
            case _:
                order = rng.choice(["<", ">"])
                form = rng.choice(["H", "I"])
                most = 2 ** (8 * struct.calcsize(form)) - 1
                field = struct.pack(f"{order}{form}", min(int(rng.choice(HUGE)), most))
                data[at : at + len(field)] = field
    return bytes(data[: int(rng.integers(1, len(data) + 1))] if rng.random() < 0.1 else data)


def samples() -> dict[str, bytes]:
    """A whole file of each kind."""
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))
    deep = Image.fromarray(rng.integers(0, 4000, (SIDE, SIDE), dtype=np.uint16))

    def saved(form: str, one: Image.Image = image, **options: Any) -> bytes:
        file = io.BytesIO()
        one.save(file, form, **options)
        return file.getvalue()

    makers: dict[str, Callable[[], bytes]] = {
        "JPEG": lambda: saved("JPEG"),
        "JPEG, progressive": lambda: saved("JPEG", progressive=True),
        "PNG": lambda: saved("PNG"),
        "PNG, palette": lambda: saved("PNG", image.quantize(16)),
        "PNG, 16 bits": lambda: saved("PNG", deep),
        "TIFF": lambda: saved("TIFF", compression="tiff_lzw"),
        "TIFF, palette": lambda: saved("TIFF", image.quantize(16)),
        "TIFF, tiled": lambda: geotiff(rng, "uint8", 3, tiled=True, blockxsize=16, blockysize=16),
        "TIFF, 16 bits": lambda: geotiff(rng, "uint16", 4, compress="deflate", predictor=2),
        "JPEG 2000": lambda: saved("JPEG2000"),
        "WebP": lambda: saved("WEBP"),
        "GIF": lambda: saved("GIF", image.quantize(16)),
        "BMP": lambda: saved("BMP"),
    }
    return {name: make() for name, make in makers.items()}


def geotiff(rng: np.random.Generator, dtype: str, count: int, **options: Any) -> bytes:
    shape = {"width": SIDE, "height": SIDE, "count": count, "dtype": dtype}
    place = rasterio.Affine(10, 0, 500_000, 0, -10, 5_000_000)
    with warnings.catch_warnings(action="ignore"), rasterio.MemoryFile() as file:
        with file.open(driver="GTiff", crs="EPSG:32632", transform=place, **shape, **options) as out:
            out.write(rng.integers(0, 250, (count, SIDE, SIDE)).astype(dtype))
        return bytes(file.read())


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
