"""The map of a report: lines of the grid, and where footprints are drawn."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from anneal.export.chart import APART, HEIGHT, WIDTH, degrees, svg, ticks
from anneal.export.geo import ring

lon = st.floats(-180, 180)
lat = st.floats(-89, 89)


@given(lon, st.floats(0, 360), st.floats(0, 900))
def test_grid_lines_are_round_few_and_inside(low: float, span: float, pixels: float) -> None:
    found = ticks(low, low + span, pixels)
    assert all(low - 1e-6 <= one <= low + span + 1e-6 for one in found)
    assert len(found) <= max(pixels / APART, 1) + 1
    assert found == sorted(set(found))


@given(st.lists(st.tuples(lon, lat), min_size=1, max_size=5))
def test_every_footprint_is_inside_the_picture(corners: list[tuple[float, float]]) -> None:
    squares = [((x, y), (x, y + 0.01), (x + 0.01, y + 0.01), (x + 0.01, y)) for x, y in corners]
    drawn = svg([(square, 0, "<name>") for square in squares])
    assert "<name>" not in drawn
    for points in re.findall(r'points="([^"]*)"', drawn):
        for point in points.split():
            across, down = map(float, point.split(","))
            assert -1 <= across <= WIDTH + 1
            assert -1 <= down <= HEIGHT + 1


def test_coordinates_are_written_as_people_do() -> None:
    assert [degrees(12.5, "EW"), degrees(-0.25, "NS"), degrees(0, "NS")] == ["12.5°E", "0.25°S", "0°N"]


def test_a_ring_is_closed_and_counterclockwise_whichever_way_the_corners_run() -> None:
    square = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))
    assert ring(square) == [*square, square[0]]
    assert ring(square[::-1]) == [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.0, 0.0)]
