"""A small archive of drawn scenes, so that the demo needs no data.

The pictures are not real imagery, and a score on them says nothing about real imagery. A person tells the
kinds apart at a glance. A kind varies widely, and kinds share parts: a river runs through fields or houses.
"""

import zlib
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw, ImageFilter

from anneal.experiments.canvas import GROUND, LEAF, ROOF, SHADOW, TAR, WHITE, Canvas, box, noise, shade, tone

CROP = (*GROUND, (176, 164, 104), (120, 90, 66), (96, 132, 62), (150, 112, 84), (188, 178, 140))
WATER = ((44, 74, 92), (58, 88, 84), (84, 94, 72), (34, 56, 70), (82, 108, 124))
SAND = ((206, 190, 152), (190, 172, 136), (222, 210, 184), (172, 156, 128))


def _spans(canvas: Canvas, rng: Generator, mean: float) -> list[tuple[float, float]]:
    """Centres and lengths of uneven pieces from one edge of the canvas to the other."""
    lengths = mean * rng.uniform(0.5, 1.5, int(3 * canvas.half / mean) + 4)
    ends = np.cumsum(lengths) - canvas.half - 1.5 * mean
    ends = ends[ends < canvas.half + 1.5 * mean]
    return [((a + b) / 2, b - a) for a, b in pairwise(ends.tolist())]


def _fields(canvas: Canvas, rng: Generator) -> None:
    """Plots or strips of crops in rows, sometimes with a hedge, a lane or a farm."""
    canvas.ground(rng)
    wide, tall = canvas.half * rng.uniform(0.2, 0.7, 2)
    gap = rng.choice([0.5, 2, 4])
    for x, width in _spans(canvas, rng, wide):
        for y, height in _spans(canvas, rng, tall):
            crop = tone(rng, CROP)
            step = canvas.half * rng.uniform(0.02, 0.06)
            canvas.shape(box(complex(x, y), 1, width - gap, height - gap), crop)
            row = (*shade(crop, rng.uniform(0.55, 0.85)), int(rng.choice([0, 70, 150, 255])))
            way, long, deep = (1, width, height) if rng.random() < 0.5 else (1j, height, width)
            for off in np.arange(step - deep / 2, deep / 2 - step / 2, step).tolist():
                canvas.shape(box(complex(x, y) + 1j * way * off, way, long - gap, step * 0.4), row)
    if rng.random() < 0.4:
        canvas.trees(rng, canvas.path(rng, 0.1, 0.6)[:: rng.integers(2, 5)], 3.5)
    if rng.random() < 0.4:
        canvas.street(rng, canvas.path(rng, 0.1, 0.6), 6)
    if rng.random() < 0.3:
        canvas.houses(rng, canvas.scatter(rng, 3) / 3)


def _orchard(canvas: Canvas, rng: Generator) -> None:
    """Trees on a lattice with gaps, over soil or grass, with a track between them."""
    canvas.ground(rng, CROP)
    step = canvas.half * rng.uniform(0.07, 0.15)
    x = np.arange(-canvas.half, canvas.half, step)
    y = np.arange(-canvas.half, canvas.half, step * rng.uniform(1, 1.8))
    kept = rng.uniform(0.7, 1)
    places = (x[None, :] + 1j * y[:, None]).ravel()
    places = places[rng.random(places.size) < kept]
    strip = (*tone(rng, GROUND), 90)
    for row in np.unique(places.imag).tolist():
        canvas.line([1j * row - canvas.half, 1j * row + canvas.half], step * 0.6, strip)
    places += canvas.scatter(rng, len(places)) * 0.06 * step / canvas.half
    track = canvas.half * rng.uniform(-0.7, 0.7)
    canvas.trees(rng, places[np.abs(places.real - track) > step], step * rng.uniform(0.25, 0.5))
    if rng.random() < 0.3:
        canvas.street(rng, 1j * canvas.path(rng, 0, 0) + track, 5)


def _forest(canvas: Canvas, rng: Generator) -> None:
    """Dense trees of a few species, with a clearing or a track."""
    canvas.ground(rng, LEAF)
    radius = canvas.half * rng.uniform(0.04, 0.08)
    places = canvas.scatter(rng, int((canvas.half / radius) ** 2 * rng.uniform(1, 1.9)))
    clearing = np.abs(places - canvas.scatter(rng, 1)[0] / 1.5)
    places = places[clearing > rng.choice([0, 0, 0.2, 0.35]) * canvas.half]
    if rng.random() < 0.4:
        path = canvas.path(rng, 0.3)
        canvas.street(rng, path, 5)
        off = places.imag - np.interp(places.real, path.real, path.imag)
        places = places[np.abs(off) > 4 + radius]
    for species in np.array_split(places, rng.integers(1, 4)):
        canvas.trees(rng, species, radius * rng.uniform(0.8, 1.2))


def _dense_houses(canvas: Canvas, rng: Generator) -> None:
    """Streets with houses close together on both sides."""
    canvas.ground(rng)
    apart = rng.uniform(14, 24)
    deep = rng.uniform(36, 52)
    for y in np.arange(-canvas.half + deep * rng.random(), canvas.half + deep, deep):
        canvas.street(rng, canvas.path(rng, 0, 0) + 1j * y, rng.uniform(6, 9))
        for side in (-1, 1):
            x = np.arange(-canvas.half + apart * rng.random(), canvas.half, apart)
            plots = x + 1j * (y + side * (12 + rng.uniform(-2, 2, x.size)))
            canvas.trees(rng, plots[rng.random(x.size) < 0.5] + (apart / 2 + side * 5j), 3)
            canvas.houses(rng, plots[rng.random(x.size) < 0.9])
    if rng.random() < 0.5:
        canvas.street(rng, 1j * canvas.path(rng), 8)


def _sparse_houses(canvas: Canvas, rng: Generator) -> None:
    """A few houses far apart among trees and lawns, each with a drive."""
    canvas.ground(rng)
    path = canvas.path(rng, 0.2)
    apart = rng.uniform(30, 55)
    canvas.trees(rng, canvas.scatter(rng, int(rng.integers(10, 150))), rng.uniform(2.5, 4.5))
    for side in (-1, 1):
        x = np.arange(-canvas.half + 10, canvas.half, apart)
        gates = x + 1j * np.interp(x, path.real, path.imag)
        places = gates + 10 * rng.uniform(-1, 1, x.size) + side * 1j * rng.uniform(16, 34, x.size)
        for drive in np.stack([gates, places], axis=1):
            canvas.line(drive, 3, tone(rng, TAR + SAND))
        canvas.houses(rng, places, complex(np.exp(1j * rng.uniform(-0.5, 0.5))))
    canvas.street(rng, path, 6)


def _river(canvas: Canvas, rng: Generator) -> None:
    """A winding river with ragged banks, sometimes with a bridge."""
    path = canvas.path(rng, rng.uniform(0.1, 0.6))
    wide = rng.uniform(11, 36)
    off = np.abs(canvas.beyond(path)) + rng.uniform(1, 6) * noise(rng, canvas.image.width, 6)
    canvas.cover(tone(rng, SAND + GROUND), (wide + rng.choice([2, 6, 15]) - off) / 4)
    canvas.cover(tone(rng, WATER), (wide - off) / 2)
    canvas.cover(tone(rng, WATER), 0.6 - off / wide)
    if rng.random() < 0.35:
        canvas.street(rng, 1j * canvas.path(rng), 9)


def _beach(canvas: Canvas, rng: Generator) -> None:
    """A shore: land, sand, lines of foam, and water that gets deeper."""
    rough = noise(rng, canvas.image.width, 5)
    off = canvas.beyond(canvas.path(rng, 0.12, 0.4)) + rng.uniform(1, 4) * rough
    sand = tone(rng, SAND)
    water = tone(rng, WATER)
    canvas.cover(sand, (off + rng.uniform(14, 60)) / 4)
    canvas.cover(shade(sand, 0.75), (off + 5) / 5)
    canvas.cover(shade(water, 1.4), off / 5)
    canvas.cover(water, off / rng.uniform(20, 80))
    crests = np.cumsum(rng.uniform(3, 14, rng.integers(2, 5))) - 4
    foam = [1 - np.abs(off - crest) / rng.uniform(1.2, 3) for crest in crests.tolist()]
    canvas.cover(WHITE, np.clip(np.max(foam, axis=0), 0, 1) * (0.8 + 0.5 * rough))


def _harbour(canvas: Canvas, rng: Generator) -> None:
    """A quay with jetties, and boats on both sides of each jetty."""
    quay = canvas.half * rng.uniform(-0.4, 0.3)
    reach = canvas.half * rng.uniform(0.3, 1)
    apron = rng.choice([5, 20])
    sea = tone(rng, WATER)
    for back, colour in ((apron, tone(rng, TAR)), (2, WHITE), (0, sea)):
        canvas.shape(box(1j * (quay - back + canvas.half), 1, 3 * canvas.half, 2 * canvas.half), colour)
    hull = np.array([-0.5 - 0.13j, 0.15 - 0.15j, 0.5, 0.15 + 0.15j, -0.5 + 0.13j])
    long = rng.uniform(8, 18)
    full = rng.uniform(0.3, 1)
    plank = tone(rng, SAND + TAR)
    for x in np.arange(-canvas.half, canvas.half, 2 * long + rng.uniform(8, 30)):
        jetty = x + 1j * np.array([quay, quay + reach])
        canvas.line(jetty + canvas.sun, 2.5, SHADOW)
        canvas.line(jetty, 2.5, plank)
        berths = np.arange(quay + 5, quay + reach, long * rng.uniform(0.32, 0.45))
        for side in (-1, 1):
            for y in berths[rng.random(berths.size) < full]:
                length = long * rng.uniform(0.6, 1)
                at = x + 1j * y + side * (2 + length / 2)
                boat = side * length * hull
                canvas.shape(at + boat + canvas.sun, SHADOW)
                canvas.shape(at + boat, WHITE)
                canvas.shape(at + boat / 2, ROOF[rng.integers(len(ROOF))])


Subject = Callable[[Canvas, Generator], None]
LAND: tuple[Subject, ...] = (Canvas.ground, _fields, _orchard, _forest, _dense_houses, _sparse_houses)


def _photograph(subject: Subject, metres: float, rng: Generator, px: int) -> Image.Image:
    """A subject and other land. A subject that is land itself ends at a border, others lie on the land."""
    side = int(2 * px * 1.42) + 2  # a picture at any rotation fits in
    unit = 2 * px / (metres * rng.uniform(0.7, 1.4))
    image = Image.new("RGB", (side, side))
    sun = complex(rng.uniform(0.25, 0.9) * np.exp(2j * np.pi * rng.random()))
    canvas = Canvas(image, ImageDraw.Draw(image, "RGBA"), unit, side / unit / 2, sun)
    LAND[rng.integers(len(LAND))](canvas, rng)
    other = image.copy()
    subject(canvas, rng)
    if subject in LAND:
        edge = canvas.path(rng, 0.2, 0)
        edge += 1j * (canvas.half * rng.uniform(0.15, 0.7) + edge.real * rng.uniform(-0.6, 0.6))
        beyond = canvas.beyond(edge) + 3 * noise(rng, side, 6)
        image.paste(other, mask=Image.fromarray((beyond > 0).astype(np.uint8) * 255))
    return _develop(rng, image, px)


def _develop(rng: Generator, image: Image.Image, px: int) -> Image.Image:
    """The ground as a camera sees it: with a heading, light, haze, focus and sensor noise."""
    turn = np.exp(2j * np.pi * rng.random())
    a = turn.real
    b = turn.imag
    mid = image.width / 2
    affine = (a, b, mid - (a + b) * px, -b, a, mid - (a - b) * px)
    turned = image.transform((2 * px, 2 * px), Image.Transform.AFFINE, affine, Image.Resampling.BILINEAR)
    frame = turned.reduce(2).filter(ImageFilter.GaussianBlur(rng.uniform(0, 0.9)))
    light = np.asarray(frame, np.float32) / 255 * (1 + 0.05 * noise(rng, px, 12)[..., None])
    grey = light.mean(axis=2, keepdims=True)
    light = grey + rng.uniform(0.4, 1.25) * (light - grey)
    light *= rng.uniform(0.8, 1.3) * rng.uniform(0.94, 1.06, 3)
    haze = rng.uniform(0, 0.25)
    light = (1 - haze) * np.clip(light, 0, 1) ** rng.uniform(0.8, 1.25) + haze * 0.7
    light += rng.uniform(0.005, 0.045) * rng.standard_normal(light.shape, np.float32)
    return Image.fromarray((255 * np.clip(light, 0, 1)).astype(np.uint8))


KINDS: dict[str, Callable[[Generator, int], Image.Image]] = {
    "beach": partial(_photograph, _beach, 170),
    "dense_houses": partial(_photograph, _dense_houses, 130),
    "fields": partial(_photograph, _fields, 220),
    "forest": partial(_photograph, _forest, 130),
    "harbour": partial(_photograph, _harbour, 120),
    "orchard": partial(_photograph, _orchard, 120),
    "river": partial(_photograph, _river, 180),
    "sparse_houses": partial(_photograph, _sparse_houses, 130),
}


def draw_archive(folder: Path, per_kind: int, seed: int, px: int = 128) -> None:
    """Draw ``per_kind`` pictures of every kind. A picture depends on (seed, kind, index) only."""
    for kind, draw in KINDS.items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for index in range(per_kind):
            rng = np.random.default_rng([seed, zlib.crc32(kind.encode()), index])
            draw(rng, px).save(folder / kind / f"{kind}_{index:03d}.jpg", quality=90)


def drawn(folder: Path, per_kind: int, seed: int, px: int) -> Path:
    """The archive in the folder. It is drawn if it is not there; the folder appears when it is complete."""
    if not folder.exists():
        part = folder.with_name(f"{folder.name}.part")
        draw_archive(part, per_kind, seed, px)
        part.rename(folder)
    return folder


def draw_infrared(folder: Path, per_kind: int, seed: int, px: int = 128) -> None:
    """16-bit GeoTIFFs of four bands, blue, green, red and nir, whose kinds differ in the infrared only: it
    shows a scene of the kind, and the colours show grass, bright or dark, which is the same in all."""
    import rasterio

    for kind, draw in KINDS.items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for index in range(per_kind):
            rng = np.random.default_rng([seed, zlib.crc32(kind.encode()), index])
            scene = np.asarray(draw(rng, px).convert("L"), np.float32)
            grass = (noise(rng, px, 12) + noise(rng, px, 4)) / 2
            grass += 5 * rng.standard_normal()
            light = (700 + 60 * grass, 900 + 90 * grass, 600 + 60 * grass, 500 + 14 * scene)
            bands = np.stack([np.asarray(band) for band in light]) + rng.normal(0, 15, (4, px, px))
            shape = {"count": 4, "height": px, "width": px, "dtype": "uint16"}
            place = rasterio.Affine(10, 0, 500_000 + 10 * px * index, 0, -10, 5_200_000)
            file = folder / kind / f"{kind}_{index:03d}.tif"
            with rasterio.open(file, "w", driver="GTiff", crs="EPSG:32632", transform=place, **shape) as out:
                out.write(np.clip(bands, 1, 65535).astype(np.uint16))
                out.descriptions = ("blue", "green", "red", "nir")
