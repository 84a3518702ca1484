"""A small archive of drawn aerial-like scenes, so the demo runs with no real data at hand.

These pictures are drawn by this module; they are not real imagery, and nothing measured on them
says anything about real imagery. They only have what a retrieval campaign needs: kinds a person
tells apart at a glance, wide variety within a kind, and look-alikes between kinds (a freeway
runs through houses, a river through fields, a wood borders an orchard).

Lengths are metres and points are complex numbers about the centre of the picture, so that
turning is a multiplication. Everything is drawn on a square wide enough to be turned by any angle.
"""

import zlib
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

Colour = tuple[int, ...]
Floats = NDArray[np.floating[Any]]
Points = NDArray[np.complexfloating[Any, Any]]

GROUND = ((92, 110, 66), (116, 124, 76), (74, 92, 60), (142, 134, 92), (156, 140, 108))
LEAF = ((58, 82, 44), (44, 70, 46), (78, 92, 48), (96, 88, 48), (66, 78, 60))
CROP = (*GROUND, (176, 164, 104), (120, 90, 66), (96, 132, 62), (150, 112, 84), (188, 178, 140))
WATER = ((44, 74, 92), (58, 88, 84), (84, 94, 72), (34, 56, 70), (82, 108, 124))
SAND = ((206, 190, 152), (190, 172, 136), (222, 210, 184), (172, 156, 128))
TAR = ((92, 92, 94), (118, 116, 114), (74, 76, 80), (142, 138, 132))
ROOF = ((150, 86, 66), (122, 70, 58), (112, 108, 106), (84, 84, 90), (168, 154, 138))
CAR = ((236, 236, 236), (40, 42, 46), (150, 152, 156), (140, 38, 36), (44, 66, 116))
BICUBIC = Image.Resampling.BICUBIC
WHITE = (228, 226, 216)
SHADOW = (8, 12, 24, 120)


class Sheet(NamedTuple):
    """The ground being drawn on, twice as fine as the picture it becomes."""

    image: Image.Image
    pen: ImageDraw.ImageDraw
    unit: float  # pixels per metre
    half: float  # metres from the centre to an edge
    sun: complex  # where the shadow of something one metre high falls


def _noise(rng: Generator, side: int, cells: float, octaves: int = 4) -> Floats:
    """Smooth random relief of unit spread: each octave twice as fine and half as strong."""
    sizes = [min(side, round(cells * 2**octave)) for octave in range(octaves)]
    relief = np.zeros((sizes[0], sizes[0]), np.float32)
    for octave, (n, finer) in enumerate(pairwise([*sizes, side])):
        relief += rng.standard_normal((n, n), np.float32) / 2**octave
        relief = np.array(Image.fromarray(relief).resize((finer, finer), BICUBIC))
    return np.asarray(relief / relief.std())


def _tone(rng: Generator, palette: tuple[Colour, ...], spread: float = 9) -> Colour:
    """A colour near one of the palette's."""
    near = np.array(palette[rng.integers(len(palette))]) + spread * rng.standard_normal()
    return tuple(int(c) for c in np.clip(near + spread / 3 * rng.standard_normal(3), 0, 255))


def _shade(colour: Colour, by: float) -> Colour:
    return tuple([min(255, int(c * by)) for c in colour])


def _pixels(sheet: Sheet, points: Iterable[complex]) -> list[tuple[float, float]]:
    half, unit = sheet.half, sheet.unit
    return [((p.real + half) * unit, (p.imag + half) * unit) for p in points]


def _shape(sheet: Sheet, points: Iterable[complex], fill: Colour) -> None:
    sheet.pen.polygon(_pixels(sheet, points), fill=fill)


def _disc(sheet: Sheet, at: complex, radius: float, fill: Colour) -> None:
    reach = radius * (1 + 1j)
    sheet.pen.ellipse(_pixels(sheet, (at - reach, at + reach)), fill=fill)


def _line(sheet: Sheet, path: Iterable[complex], width: float, fill: Colour, dashed: bool = False) -> None:
    """A line along the path; one thinner than a pixel is faint instead."""
    wide, dots = width * sheet.unit, _pixels(sheet, path)
    ink = fill if wide >= 1 else (*fill[:3], int(255 * wide))
    for part in [dots[i : i + 2] for i in range(0, len(dots) - 1, 3)] if dashed else [dots]:
        sheet.pen.line(part, ink, max(1, round(wide)), "curve")


def _box(at: complex, turn: complex, length: float, width: float) -> list[complex]:
    """The corners of a rectangle, its length along `turn`."""
    a, b = turn * length / 2, 1j * turn * width / 2
    return [at - a - b, at + a - b, at + a + b, at - a + b]


def _cover(sheet: Sheet, colour: Colour, mask: Floats) -> None:
    """Lay a colour over the ground, as thick as the mask."""
    thick = Image.fromarray((255 * np.clip(mask, 0, 1)).astype(np.uint8))
    sheet.image.paste(colour, (0, 0, *sheet.image.size), thick)


def _scatter(rng: Generator, sheet: Sheet, count: int) -> Points:
    return rng.uniform(-sheet.half, sheet.half, 2 * count).view(np.complex128)


def _lattice(rng: Generator, reach: complex, step: complex, keep: float) -> Points:
    """Points `step` apart each way as far out as `reach`, of which some are missing."""
    x = np.arange(-reach.real, reach.real, step.real)
    y = np.arange(-reach.imag, reach.imag, step.imag)
    points = (x[None, :] + 1j * y[:, None]).ravel()
    return points[rng.random(points.size) < keep]


def _path(rng: Generator, sheet: Sheet, bend: float = 0, off: float = 0.3) -> Points:
    """A way across the sheet from left to right, passing within `off` of the centre."""
    x = np.arange(-1.1 * sheet.half, 1.1 * sheet.half, 3.0)
    waves = np.sin(x / sheet.half * rng.uniform(1, 3.5) + 2 * np.pi * rng.random())
    return x + 1j * sheet.half * (off * rng.uniform(-1, 1) + bend * rng.uniform(-1, 1) * waves)


def _beyond(sheet: Sheet, path: Points) -> Floats:
    """How far every pixel lies beyond the path."""
    along = np.linspace(-sheet.half, sheet.half, sheet.image.width)
    return along[:, None] - np.interp(along, path.real, path.imag)[None, :]


def _beside(path: Points, by: float) -> Points:
    ahead = np.gradient(path)
    return path + 1j * by * ahead / np.abs(ahead)


def _ground(rng: Generator, sheet: Sheet, palette: tuple[Colour, ...] = GROUND) -> None:
    """Bare ground, patched between two tones."""
    sheet.image.paste(_tone(rng, palette), (0, 0, *sheet.image.size))
    patches = _noise(rng, sheet.image.width, rng.uniform(2, 9), 5)
    _cover(sheet, _tone(rng, palette), 0.5 + 0.35 * patches)


def _trees(rng: Generator, sheet: Sheet, places: Points, radius: float) -> None:
    """Round crowns, lit on the side away from their shadows; none where no turn brings them in."""
    leaf, places = _tone(rng, LEAF), places[np.abs(places) < sheet.half]
    crowns = [(_shade(leaf, by), _shade(leaf, by * 1.3)) for by in rng.uniform(0.75, 1.25, 9)]
    pick, radii = rng.integers(9, size=len(places)), radius * rng.uniform(0.6, 1.3, len(places))
    for at, i, r in zip(places.tolist(), pick.tolist(), radii.tolist(), strict=True):
        crown, lit = crowns[i]
        _disc(sheet, at + sheet.sun * r * 1.6, r, SHADOW)
        _disc(sheet, at, r, crown)
        _disc(sheet, at - sheet.sun * r * 0.4, r * 0.55, lit)


def _houses(rng: Generator, sheet: Sheet, places: Points, turn: complex = 1) -> None:
    """Houses of one builder: like roofs, each slope of them as bright as it faces the sun."""
    roofs, hip = [_tone(rng, ROOF) for _ in range(rng.integers(1, 4))], 8 * rng.integers(2)
    for at in places[np.abs(places) < sheet.half + 9].tolist():
        way = turn * (1j if rng.random() < 0.3 else 1)
        length, width = rng.uniform(11, 19), rng.uniform(8, 11)
        roof = roofs[rng.integers(len(roofs))]
        a, b, c, d = _box(at, way, length, width)
        p, q = at - way * (length - hip) / 2, at + way * (length - hip) / 2
        lit, end = 0.35 * (sheet.sun / way).imag, 0.35 * (sheet.sun / way).real
        _shape(sheet, _box(at + sheet.sun * 5, way, length, width), SHADOW)
        _shape(sheet, (a, b, q, p), _shade(roof, 1 + lit))
        _shape(sheet, (c, d, p, q), _shade(roof, 1 - lit))
        _shape(sheet, (b, c, q), _shade(roof, 1 - end))
        _shape(sheet, (d, a, p), _shade(roof, 1 + end))


def _car(rng: Generator, sheet: Sheet, at: complex, turn: complex) -> None:
    length, paint = rng.uniform(4.2, 5.4), CAR[rng.integers(len(CAR))]
    _shape(sheet, _box(at + sheet.sun * 1.2, turn, length, 2), SHADOW)
    _shape(sheet, _box(at, turn, length, 2), paint)
    _shape(sheet, _box(at - 0.1 * length * turn, turn, length * 0.45, 1.6), _shade(paint, 0.7))


def _traffic(rng: Generator, sheet: Sheet, lane: Points, flow: float) -> None:
    for i in np.flatnonzero(rng.random(len(lane) - 1) < flow):
        ahead = complex(lane[i + 1] - lane[i])
        _car(rng, sheet, complex(lane[i]), ahead / abs(ahead))


def _street(rng: Generator, sheet: Sheet, path: Points, width: float) -> None:
    """A two-way road with a little traffic."""
    _line(sheet, path, width, _tone(rng, TAR))
    _line(sheet, path, 0.3, WHITE, dashed=True)
    for side in (-1, 1):
        _traffic(rng, sheet, _beside(path, side * width / 4), 0.02)


def _spans(rng: Generator, sheet: Sheet, mean: float) -> list[tuple[float, float]]:
    """Middles and lengths of uneven pieces from one edge of the sheet to the other."""
    lengths = mean * rng.uniform(0.5, 1.5, int(3 * sheet.half / mean) + 4)
    ends = np.cumsum(lengths) - sheet.half - 1.5 * mean
    ends = ends[ends < sheet.half + 1.5 * mean]
    return [((a + b) / 2, b - a) for a, b in pairwise(ends.tolist())]


def _fields(rng: Generator, sheet: Sheet) -> None:
    """Plots or strips of different crops with their rows, a hedge, a lane, sometimes a farm."""
    _ground(rng, sheet)
    wide, tall = sheet.half * rng.uniform(0.2, 0.7, 2)
    gap = rng.choice([0.5, 2, 4])
    for x, width in _spans(rng, sheet, wide):
        for y, height in _spans(rng, sheet, tall):
            crop, step = _tone(rng, CROP), sheet.half * rng.uniform(0.02, 0.06)
            _shape(sheet, _box(complex(x, y), 1, width - gap, height - gap), crop)
            row = (*_shade(crop, rng.uniform(0.55, 0.85)), int(rng.choice([0, 70, 150, 255])))
            way, long, deep = (1, width, height) if rng.random() < 0.5 else (1j, height, width)
            for off in np.arange(step - deep / 2, deep / 2 - step / 2, step).tolist():
                mid = complex(x, y) + 1j * way * off
                _shape(sheet, _box(mid, way, long - gap, step * 0.4), row)
    if rng.random() < 0.4:
        _trees(rng, sheet, _path(rng, sheet, 0.1, 0.6)[:: rng.integers(2, 5)], 3.5)
    if rng.random() < 0.4:
        _street(rng, sheet, _path(rng, sheet, 0.1, 0.6), 6)
    if rng.random() < 0.3:
        _houses(rng, sheet, _scatter(rng, sheet, 3) / 3)


def _orchard(rng: Generator, sheet: Sheet) -> None:
    """Crowns on a lattice, some missing, over soil or grass, with a track between them."""
    _ground(rng, sheet, CROP)
    step, apart = sheet.half * rng.uniform(0.07, 0.15), complex(1, rng.uniform(1, 1.8))
    places = _lattice(rng, sheet.half * (1 + 1j), step * apart, rng.uniform(0.7, 1))
    strip = (*_tone(rng, GROUND), 90)
    for y in np.unique(places.imag).tolist():
        _line(sheet, [1j * y - sheet.half, 1j * y + sheet.half], step * 0.6, strip)
    places += _scatter(rng, sheet, len(places)) * 0.06 * step / sheet.half
    track = sheet.half * rng.uniform(-0.7, 0.7)
    _trees(rng, sheet, places[np.abs(places.real - track) > step], step * rng.uniform(0.25, 0.5))
    if rng.random() < 0.3:
        _street(rng, sheet, 1j * _path(rng, sheet, 0, 0) + track, 5)


def _forest(rng: Generator, sheet: Sheet) -> None:
    """Crowns upon crowns of a few species, with a clearing or a track through them."""
    _ground(rng, sheet, LEAF)
    radius = sheet.half * rng.uniform(0.04, 0.08)
    places = _scatter(rng, sheet, int((sheet.half / radius) ** 2 * rng.uniform(1, 1.9)))
    clearing = np.abs(places - _scatter(rng, sheet, 1)[0] / 1.5)
    places = places[clearing > rng.choice([0, 0, 0.2, 0.35]) * sheet.half]
    if rng.random() < 0.4:
        path = _path(rng, sheet, 0.3)
        _street(rng, sheet, path, 5)
        off = places.imag - np.interp(places.real, path.real, path.imag)
        places = places[np.abs(off) > 4 + radius]
    for species in np.array_split(places, rng.integers(1, 4)):
        _trees(rng, sheet, species, radius * rng.uniform(0.8, 1.2))


def _dense_houses(rng: Generator, sheet: Sheet) -> None:
    """Streets lined on both sides with houses hardly apart."""
    _ground(rng, sheet)
    lot, deep = rng.uniform(14, 24), rng.uniform(36, 52)
    for y in np.arange(-sheet.half + deep * rng.random(), sheet.half + deep, deep):
        _street(rng, sheet, _path(rng, sheet, 0, 0) + 1j * y, rng.uniform(6, 9))
        for side in (-1, 1):
            x = np.arange(-sheet.half + lot * rng.random(), sheet.half, lot)
            lots = x + 1j * (y + side * (12 + rng.uniform(-2, 2, x.size)))
            _trees(rng, sheet, lots[rng.random(x.size) < 0.5] + (lot / 2 + side * 5j), 3)
            _houses(rng, sheet, lots[rng.random(x.size) < 0.9])
    if rng.random() < 0.5:
        _street(rng, sheet, 1j * _path(rng, sheet), 8)


def _sparse_houses(rng: Generator, sheet: Sheet) -> None:
    """A few houses far apart among trees and lawns, each with its drive."""
    _ground(rng, sheet)
    path, apart = _path(rng, sheet, 0.2), rng.uniform(30, 55)
    _trees(rng, sheet, _scatter(rng, sheet, int(rng.integers(10, 150))), rng.uniform(2.5, 4.5))
    for side in (-1, 1):
        x = np.arange(-sheet.half + 10, sheet.half, apart)
        gates = x + 1j * np.interp(x, path.real, path.imag)
        places = gates + 10 * rng.uniform(-1, 1, x.size) + side * 1j * rng.uniform(16, 34, x.size)
        for drive in np.stack([gates, places], axis=1):
            _line(sheet, drive, 3, _tone(rng, TAR + SAND))
        _houses(rng, sheet, places, complex(np.exp(1j * rng.uniform(-0.5, 0.5))))
    _street(rng, sheet, path, 6)


def _river(rng: Generator, sheet: Sheet) -> None:
    """Water winding between ragged banks, now and then under a bridge."""
    path, wide = _path(rng, sheet, rng.uniform(0.1, 0.6)), rng.uniform(11, 36)
    ragged = rng.uniform(1, 6) * _noise(rng, sheet.image.width, 6)
    off = np.abs(_beyond(sheet, path)) + ragged
    _cover(sheet, _tone(rng, SAND + GROUND), (wide + rng.choice([2, 6, 15]) - off) / 4)
    _cover(sheet, _tone(rng, WATER), (wide - off) / 2)
    _cover(sheet, _tone(rng, WATER), 0.6 - off / wide)
    if rng.random() < 0.35:
        _street(rng, sheet, 1j * _path(rng, sheet), 9)


def _beach(rng: Generator, sheet: Sheet) -> None:
    """Land, sand, lines of foam and deepening water along one shore."""
    rough = _noise(rng, sheet.image.width, 5)
    off = _beyond(sheet, _path(rng, sheet, 0.12, 0.4)) + rng.uniform(1, 4) * rough
    sand, water = _tone(rng, SAND), _tone(rng, WATER)
    _cover(sheet, sand, (off + rng.uniform(14, 60)) / 4)
    _cover(sheet, _shade(sand, 0.75), (off + 5) / 5)
    _cover(sheet, _shade(water, 1.4), off / 5)
    _cover(sheet, water, off / rng.uniform(20, 80))
    crests = np.cumsum(rng.uniform(3, 14, rng.integers(2, 5))) - 4
    foam = [1 - np.abs(off - crest) / rng.uniform(1.2, 3) for crest in crests.tolist()]
    _cover(sheet, WHITE, np.clip(np.max(foam, axis=0), 0, 1) * (0.8 + 0.5 * rough))


def _harbour(rng: Generator, sheet: Sheet) -> None:
    """Jetties out from a quay, boats moored on both sides of each."""
    quay, reach = sheet.half * rng.uniform(-0.4, 0.3), sheet.half * rng.uniform(0.3, 1)
    apron, sea = rng.choice([5, 20]), _tone(rng, WATER)
    for back, colour in ((apron, _tone(rng, TAR)), (2, WHITE), (0, sea)):
        middle = 1j * (quay - back + sheet.half)
        _shape(sheet, _box(middle, 1, 3 * sheet.half, 2 * sheet.half), colour)
    hull = np.array([-0.5 - 0.13j, 0.15 - 0.15j, 0.5, 0.15 + 0.15j, -0.5 + 0.13j])
    long, full, plank = rng.uniform(8, 18), rng.uniform(0.3, 1), _tone(rng, SAND + TAR)
    for x in np.arange(-sheet.half, sheet.half, 2 * long + rng.uniform(8, 30)):
        jetty = x + 1j * np.array([quay, quay + reach])
        _line(sheet, jetty + sheet.sun, 2.5, SHADOW)
        _line(sheet, jetty, 2.5, plank)
        berths = np.arange(quay + 5, quay + reach, long * rng.uniform(0.32, 0.45))
        for side in (-1, 1):
            for y in berths[rng.random(berths.size) < full]:
                length = long * rng.uniform(0.6, 1)
                at, boat = x + 1j * y + side * (2 + length / 2), side * length * hull
                _shape(sheet, at + boat + sheet.sun, SHADOW)
                _shape(sheet, at + boat, WHITE)
                _shape(sheet, at + boat / 2, ROOF[rng.integers(len(ROOF))])


def _freeway(rng: Generator, sheet: Sheet) -> None:
    """Two carriageways of several lanes either side of a median, sometimes under a bridge."""
    path, tar = _path(rng, sheet, 0.25), _tone(rng, TAR)
    lanes, median, flow = int(rng.integers(2, 5)), rng.uniform(2, 12), rng.uniform(0, 0.15)
    _line(sheet, path, median + lanes * 7.6 + rng.uniform(4, 24), _tone(rng, GROUND))
    for side in (-1, 1):
        _line(sheet, _beside(path, side * (median / 2 + lanes * 1.9)), lanes * 3.8 + 3, tar)
        for lane in range(lanes + 1):
            edge = _beside(path, side * (median / 2 + lane * 3.8))
            _line(sheet, edge, 0.45, WHITE, dashed=0 < lane < lanes)
        for lane in range(lanes):
            _traffic(rng, sheet, _beside(path, side * (median / 2 + lane * 3.8 + 1.9)), flow)
    if rng.random() < 0.35:
        over = 1j * _path(rng, sheet) * np.exp(1j * rng.uniform(-0.4, 0.4))
        _line(sheet, over + 4 * sheet.sun, 11, SHADOW)
        _street(rng, sheet, over, 11)


def _runway(rng: Generator, sheet: Sheet) -> None:
    """One broad marked strip through cleared grass, its threshold in sight, with a taxiway."""
    wide, tar, end = rng.uniform(24, 44), _tone(rng, TAR), sheet.half * rng.uniform(-0.6, 0.1)
    path = _path(rng, sheet)
    axis, strip = complex(0, path[0].imag), path[path.real > end]
    taxiway = 1j * rng.choice([-1, 1]) * (wide / 2 + rng.uniform(25, 60))
    _line(sheet, path, wide + rng.uniform(10, 160), _tone(rng, GROUND))
    if rng.random() < 0.7:
        for way in (path + taxiway, end + 14 + axis + np.array([0, taxiway])):
            _line(sheet, way, 14, tar)
            _line(sheet, way, 0.7, (200, 170, 60))
    _line(sheet, strip, wide, tar)
    for x in rng.uniform(end + 30, sheet.half, 12):
        rubber = axis + complex(x, rng.uniform(-4, 4))
        _shape(sheet, _box(rubber, 1, rng.uniform(20, 60), 1), (20, 20, 20, 50))
    _line(sheet, strip[16::2], 1.2, WHITE, dashed=True)
    for side in (-1j, 1j):
        _line(sheet, strip + side * wide * 0.45, 0.9, WHITE)
        for y in np.arange(2, wide * 0.42, 3.4):
            _shape(sheet, _box(axis + end + 16 + side * y, 1, 20, 1.8), WHITE)
        _shape(sheet, _box(axis + end + 90 + side * wide / 5, 1, 26, 4), WHITE)
    wing = np.array([16, 13 + 2j, 4 + 2j, -3 + 15j, -6 + 15j, -3 + 2j, -12 + 1j, -16 + 6j])
    craft = rng.choice([-1, 1]) * np.concatenate([wing, wing.conj()[::-1]])
    for x in rng.uniform(-sheet.half, sheet.half, rng.integers(0, 3)):
        _shape(sheet, axis + taxiway + x + 4 * sheet.sun + craft, SHADOW)
        _shape(sheet, axis + taxiway + x + craft, WHITE)


def _lot(rng: Generator, sheet: Sheet, least: float) -> tuple[complex, float, float]:
    """A kerbed yard near the centre: its middle, length and width."""
    at = complex(_scatter(rng, sheet, 1)[0]) / 4
    length, width = sheet.half * rng.uniform(least, 2, 2)
    _shape(sheet, _box(at, 1, length + 2, width + 2), _tone(rng, TAR + SAND))
    _shape(sheet, _box(at, 1, length, width), _tone(rng, TAR + SAND[3:]))
    return at, length, width


def _tanks(rng: Generator, sheet: Sheet) -> None:
    """Round tanks in rows, shaded as drums, within bunds and joined by pipes."""
    yard, length, width = _lot(rng, sheet, 1.0)
    pitch, bund, floating = rng.uniform(22, 46), _tone(rng, TAR + SAND + GROUND), rng.random() < 0.5
    paint, widest = _tone(rng, (*SAND, WHITE, CAR[2], ROOF[1])), pitch * rng.uniform(0.25, 0.42)
    reach = complex(length - pitch, width - pitch) / 2 + 0.01 * (1 + 1j)
    places = (yard + _lattice(rng, reach, pitch * (1 + 1j), rng.uniform(0.5, 1))).tolist()
    for at in places:
        _shape(sheet, _box(at, 1, pitch * 0.95, pitch * 0.95), bund)
        _shape(sheet, _box(at, 1, pitch * 0.88, pitch * 0.88), _shade(bund, 0.85))
        _line(sheet, [at, at + pitch * rng.choice([1, 1j])], 1.2, _shade(paint, 0.8))
    for at in places:
        radius = widest * rng.uniform(0.6, 1)
        for height in (2, 4, 6, 8):
            _disc(sheet, at + sheet.sun * height, radius, (*SHADOW[:3], 60))
        _disc(sheet, at, radius, _shade(paint, 0.8))
        _disc(sheet, at - sheet.sun * radius * 0.06, radius * 0.94, paint)
        if floating:
            _disc(sheet, at, radius * 0.7, _shade(paint, 0.9))


def _car_park(rng: Generator, sheet: Sheet) -> None:
    """Marked bays in double rows, filled more or less, some with trees between."""
    lot, length, width = _lot(rng, sheet, 0.8)
    full, slant = rng.uniform(0.2, 0.98), complex(1j * np.exp(1j * rng.choice([0, 0, 0.35])))
    bays = np.arange(4 - length / 2, length / 2 - 3, 2.9) + lot
    for y in np.arange(7 - width / 2, width / 2 - 6, rng.uniform(17, 20)):
        for row in (bays + 1j * (y - 2.7), bays + 1j * (y + 2.7)):
            for at in row.tolist():
                _line(sheet, [at - 1.45 - 2.6 * slant, at - 1.45 + 2.6 * slant], 0.3, WHITE)
                if rng.random() < full:
                    _car(rng, sheet, at, slant)
        if rng.random() < 0.4:
            _trees(rng, sheet, bays[::5] + 1j * y, 2.2)


LAND = (_ground, _fields, _orchard, _forest, _dense_houses, _sparse_houses)


def _photograph(
    subject: Callable[[Generator, Sheet], None], metres: float, rng: Generator, px: int
) -> Image.Image:
    """A subject among other land: what is not itself a land lies on it, a land borders on it."""
    side, unit = int(2 * px * 1.42) + 2, 2 * px / (metres * rng.uniform(0.7, 1.4))
    image = Image.new("RGB", (side, side))
    sun = complex(rng.uniform(0.25, 0.9) * np.exp(2j * np.pi * rng.random()))
    sheet = Sheet(image, ImageDraw.Draw(image, "RGBA"), unit, side / unit / 2, sun)
    LAND[rng.integers(len(LAND))](rng, sheet)
    other = image.copy()
    subject(rng, sheet)
    if subject in LAND:
        edge = _path(rng, sheet, 0.2, 0)
        edge += 1j * (sheet.half * rng.uniform(0.15, 0.7) + edge.real * rng.uniform(-0.6, 0.6))
        beyond = _beyond(sheet, edge) + 3 * _noise(rng, side, 6)
        image.paste(other, mask=Image.fromarray((beyond > 0).astype(np.uint8) * 255))
    return _develop(rng, image, px)


def _develop(rng: Generator, image: Image.Image, px: int) -> Image.Image:
    """What a camera makes of the ground: any heading, light, haze, focus and sensor noise."""
    turn, mid = np.exp(2j * np.pi * rng.random()), image.width / 2
    a, b = turn.real, turn.imag
    turned = image.transform(
        (2 * px, 2 * px),
        Image.Transform.AFFINE,
        (a, b, mid - (a + b) * px, -b, a, mid - (a - b) * px),
        Image.Resampling.BILINEAR,
    )
    frame = turned.reduce(2).filter(ImageFilter.GaussianBlur(rng.uniform(0, 0.9)))
    light = np.asarray(frame, np.float32) / 255 * (1 + 0.05 * _noise(rng, px, 12)[..., None])
    grey = light.mean(axis=2, keepdims=True)
    light = grey + rng.uniform(0.4, 1.25) * (light - grey)
    light *= rng.uniform(0.8, 1.3) * rng.uniform(0.94, 1.06, 3)
    haze = rng.uniform(0, 0.25)
    light = (1 - haze) * np.clip(light, 0, 1) ** rng.uniform(0.8, 1.25) + haze * 0.7
    light += rng.uniform(0.005, 0.045) * rng.standard_normal(light.shape, np.float32)
    return Image.fromarray((255 * np.clip(light, 0, 1)).astype(np.uint8))


KINDS: dict[str, Callable[[Generator, int], Image.Image]] = {
    "beach": partial(_photograph, _beach, 170),
    "car_park": partial(_photograph, _car_park, 100),
    "dense_houses": partial(_photograph, _dense_houses, 130),
    "fields": partial(_photograph, _fields, 220),
    "forest": partial(_photograph, _forest, 130),
    "freeway": partial(_photograph, _freeway, 130),
    "harbour": partial(_photograph, _harbour, 120),
    "orchard": partial(_photograph, _orchard, 120),
    "river": partial(_photograph, _river, 180),
    "runway": partial(_photograph, _runway, 190),
    "sparse_houses": partial(_photograph, _sparse_houses, 130),
    "tanks": partial(_photograph, _tanks, 150),
}


def draw_archive(folder: Path, per_kind: int, seed: int, px: int = 128) -> None:
    """Draw `per_kind` pictures of every kind; each depends on (seed, kind, index) alone."""
    for kind, draw in KINDS.items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for index in range(per_kind):
            rng = np.random.default_rng([seed, zlib.crc32(kind.encode()), index])
            draw(rng, px).save(folder / kind / f"{kind}_{index:03d}.jpg", quality=90)


def drawn(folder: Path, per_kind: int, seed: int, px: int) -> Path:
    """The archive in that folder; drawn if it is not there, and never half an archive."""
    if not folder.exists():
        part = folder.with_name(f"{folder.name}.part")
        draw_archive(part, per_kind, seed, px)
        part.rename(folder)
    return folder
