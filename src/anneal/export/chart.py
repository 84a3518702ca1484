"""A plain map of footprints as SVG: longitude to the right, latitude up, a grid, no background."""

import html
import math
from collections.abc import Sequence

from anneal.export.geo import Footprint

WIDTH = 900
HEIGHT = 500
MARGIN = 40
APART = 90  # pixels between two lines of the grid, at least
LEAST = 1e-4  # degrees: a single image still has a surrounding
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8a6d00", "#5b4bb5")


def svg(footprints: Sequence[tuple[Footprint, int, str]]) -> str:
    """A map of images: (footprint, number of its class, its name) each; −1 is grey."""
    xs = [x for footprint, _, _ in footprints for x, _ in footprint]
    ys = [y for footprint, _, _ in footprints for _, y in footprint]
    left = min(xs)
    right = max(xs)
    low = min(ys)
    high = max(ys)
    squeeze = max(math.cos(math.radians((low + high) / 2)), 0.05)  # a degree of longitude is shorter
    width = max((right - left) * squeeze, LEAST)
    height = max(high - low, LEAST)
    scale = min((WIDTH - 2 * MARGIN) / width, (HEIGHT - 2 * MARGIN) / height)

    across = (right - left) * squeeze * scale
    up = (high - low) * scale

    def place(x: float, y: float) -> tuple[float, float]:
        return (WIDTH - across) / 2 + (x - left) * squeeze * scale, (HEIGHT + up) / 2 - (y - low) * scale

    lines = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Map of the images">']
    for x in ticks(left, right, across):
        at, _ = place(x, low)
        lines.append(f'<path d="M{at:.1f} 0V{HEIGHT - MARGIN / 2}" class="grid"/>')
        lines.append(f'<text x="{at:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{degrees(x, "EW")}</text>')
    for y in ticks(low, high, up):
        _, at = place(left, y)
        lines.append(f'<path d="M{MARGIN / 2} {at:.1f}H{WIDTH}" class="grid"/>')
        lines.append(f'<text x="2" y="{at - 3:.1f}">{degrees(y, "NS")}</text>')
    for footprint, number, name in footprints:
        points = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in footprint)
        colour = "#888888" if number < 0 else COLOURS[number % len(COLOURS)]
        title = f"<title>{html.escape(name)}</title>"
        shape = f'fill="{colour}" stroke="{colour}" fill-opacity="0.4"'
        lines.append(f'<polygon points="{points}" {shape}>{title}</polygon>')
    return "\n".join([*lines, "</svg>"])


def ticks(low: float, high: float, pixels: float) -> list[float]:
    """Round numbers from low to high, so far apart that their labels fit."""
    span = max(high - low, LEAST)
    most = max(pixels / APART, 1)
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if span / (factor * power) <= most)
    first = math.ceil(low / step)
    return [round(i * step, 10) for i in range(first, math.floor(high / step) + 1)]


def degrees(value: float, letters: str) -> str:
    """A coordinate as a person writes it: 12.5°E."""
    letter = letters[0] if value >= 0 else letters[1]
    return f"{abs(value):g}°{letter}"
