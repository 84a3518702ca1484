"""The ground that a scene is drawn on, and what scenes have in common: trees, houses, cars, streets.

Lengths are metres. Points are complex numbers with the centre at 0, so a multiplication rotates them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from anneal.pairs import Floats

Points = NDArray[np.complexfloating[Any, Any]]
Colour = tuple[int, ...]  # red, green, blue, and for some an opacity, each from 0 to 255

GROUND = ((92, 110, 66), (116, 124, 76), (74, 92, 60), (142, 134, 92), (156, 140, 108))
LEAF = ((58, 82, 44), (44, 70, 46), (78, 92, 48), (96, 88, 48), (66, 78, 60))
TAR = ((92, 92, 94), (118, 116, 114), (74, 76, 80), (142, 138, 132))
ROOF = ((150, 86, 66), (122, 70, 58), (112, 108, 106), (84, 84, 90), (168, 154, 138))
CAR = ((236, 236, 236), (40, 42, 46), (150, 152, 156), (140, 38, 36), (44, 66, 116))
WHITE = (228, 226, 216)
SHADOW = (8, 12, 24, 120)


@dataclass(frozen=True)
class Canvas:
    """A square of ground. It has twice the resolution of the picture."""

    image: Image.Image
    pen: ImageDraw.ImageDraw
    unit: float  # pixels per metre
    half: float  # metres from the centre to an edge
    sun: complex  # the shadow of an object one metre high

    def _pixels(self, points: Iterable[complex]) -> list[tuple[float, float]]:
        return [((p.real + self.half) * self.unit, (p.imag + self.half) * self.unit) for p in points]

    def shape(self, points: Iterable[complex], fill: Colour) -> None:
        self.pen.polygon(self._pixels(points), fill=fill)

    def disc(self, at: complex, radius: float, fill: Colour) -> None:
        reach = radius * (1 + 1j)
        self.pen.ellipse(self._pixels((at - reach, at + reach)), fill=fill)

    def line(self, path: Iterable[complex], width: float, fill: Colour) -> None:
        """A line along the path. A line thinner than a pixel is one pixel wide and faint."""
        wide = width * self.unit
        ink = fill if wide >= 1 else (*fill[:3], int(255 * wide))
        self.pen.line(self._pixels(path), ink, max(1, round(wide)), "curve")

    def cover(self, colour: Colour, mask: Floats) -> None:
        """Lay a colour over the ground. The mask is its opacity at each pixel, clipped to 0 … 1."""
        opacity = Image.fromarray((255 * np.clip(mask, 0, 1)).astype(np.uint8))
        self.image.paste(colour, (0, 0, *self.image.size), opacity)

    def scatter(self, rng: Generator, count: int) -> Points:
        return rng.uniform(-self.half, self.half, 2 * count).view(np.complex128)

    def path(self, rng: Generator, bend: float = 0, off: float = 0.3) -> Points:
        """A path from the left edge to the right one. It passes the centre at up to ``off`` of a half."""
        x = np.arange(-1.1 * self.half, 1.1 * self.half, 3.0)
        waves = np.sin(x / self.half * rng.uniform(1, 3.5) + 2 * np.pi * rng.random())
        return x + 1j * self.half * (off * rng.uniform(-1, 1) + bend * rng.uniform(-1, 1) * waves)

    def beyond(self, path: Points) -> Floats:
        """How far each pixel is below the path; negative above it."""
        along = np.linspace(-self.half, self.half, self.image.width)
        return along[:, None] - np.interp(along, path.real, path.imag)[None, :]

    def ground(self, rng: Generator, palette: tuple[Colour, ...] = GROUND) -> None:
        """Bare ground with patches of a second tone."""
        self.image.paste(tone(rng, palette), (0, 0, *self.image.size))
        patches = noise(rng, self.image.width, rng.uniform(2, 9), 5)
        self.cover(tone(rng, palette), 0.5 + 0.35 * patches)

    def trees(self, rng: Generator, places: Points, radius: float) -> None:
        """Round crowns, lit on the side of the sun. Trees that no rotation brings into view are skipped."""
        leaf = tone(rng, LEAF)
        places = places[np.abs(places) < self.half]
        crowns = [(shade(leaf, by), shade(leaf, by * 1.3)) for by in rng.uniform(0.75, 1.25, 9)]
        pick = rng.integers(9, size=len(places))
        radii = radius * rng.uniform(0.6, 1.3, len(places))
        for at, i, r in zip(places.tolist(), pick.tolist(), radii.tolist(), strict=True):
            crown, lit = crowns[i]
            self.disc(at + self.sun * r * 1.6, r, SHADOW)
            self.disc(at, r, crown)
            self.disc(at - self.sun * r * 0.4, r * 0.55, lit)

    def houses(self, rng: Generator, places: Points, turn: complex = 1) -> None:
        """Houses with similar roofs. A slope that faces the sun is brighter."""
        roofs = [tone(rng, ROOF) for _ in range(rng.integers(1, 4))]
        hip = 8 * rng.integers(2)
        for at in places[np.abs(places) < self.half + 9].tolist():
            way = turn * (1j if rng.random() < 0.3 else 1)
            length = rng.uniform(11, 19)
            width = rng.uniform(8, 11)
            roof = roofs[rng.integers(len(roofs))]
            a, b, c, d = box(at, way, length, width)
            p = at - way * (length - hip) / 2
            q = at + way * (length - hip) / 2
            light = self.sun / way
            self.shape(box(at + self.sun * 5, way, length, width), SHADOW)
            self.shape((a, b, q, p), shade(roof, 1 + 0.35 * light.imag))
            self.shape((c, d, p, q), shade(roof, 1 - 0.35 * light.imag))
            self.shape((b, c, q), shade(roof, 1 - 0.35 * light.real))
            self.shape((d, a, p), shade(roof, 1 + 0.35 * light.real))

    def car(self, rng: Generator, at: complex, turn: complex) -> None:
        length = rng.uniform(4.2, 5.4)
        paint = CAR[rng.integers(len(CAR))]
        self.shape(box(at + self.sun * 1.2, turn, length, 2), SHADOW)
        self.shape(box(at, turn, length, 2), paint)
        self.shape(box(at - 0.1 * length * turn, turn, length * 0.45, 1.6), shade(paint, 0.7))

    def street(self, rng: Generator, path: Points, width: float) -> None:
        """A two-way road with a dashed line and a few cars."""
        self.line(path, width, tone(rng, TAR))
        for start in range(0, len(path) - 1, 3):
            self.line(path[start : start + 2], 0.3, WHITE)
        ahead = np.gradient(path)
        for side in (-1, 1):
            lane = path + 1j * (side * width / 4) * ahead / np.abs(ahead)
            for i in np.flatnonzero(rng.random(len(lane) - 1) < 0.02):
                turn = complex(lane[i + 1] - lane[i])
                self.car(rng, complex(lane[i]), turn / abs(turn))


def tone(rng: Generator, palette: tuple[Colour, ...]) -> Colour:
    """A colour near one of the palette."""
    near = np.array(palette[rng.integers(len(palette))]) + 9 * rng.standard_normal()
    return tuple(int(c) for c in np.clip(near + 3 * rng.standard_normal(3), 0, 255))


def shade(colour: Colour, by: float) -> Colour:
    """The colour, lighter if ``by`` is over 1."""
    return tuple([min(255, int(c * by)) for c in colour])


def noise(rng: Generator, side: int, cells: float, octaves: int = 4) -> Floats:
    """Smooth relief of unit deviation, (side, side). Each octave is twice as fine and half as strong."""
    sizes = [min(side, round(cells * 2**octave)) for octave in range(octaves)]
    relief = np.zeros((sizes[0], sizes[0]), np.float32)
    for octave, (n, finer) in enumerate(pairwise([*sizes, side])):
        relief += rng.standard_normal((n, n), np.float32) / 2**octave
        relief = np.array(Image.fromarray(relief).resize((finer, finer), Image.Resampling.BICUBIC))
    return np.asarray(relief / relief.std())


def box(at: complex, turn: complex, length: float, width: float) -> list[complex]:
    """The corners of a rectangle with its length along ``turn``."""
    a = turn * length / 2
    b = 1j * turn * width / 2
    return [at - a - b, at + a - b, at + a + b, at - a + b]
