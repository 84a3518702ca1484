"""What a sample of the files decides for all: how many bands there are, and the limits of the stretch."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anneal.archive import bands, rasters, stretch
from anneal.archive.decode import UNREADABLE, render, squared
from anneal.archive.rasters import quiet
from anneal.archive.reading import Entry, Reading
from anneal.archive.safely import Source, head, limited
from anneal.errors import UsageError

FILES = 64  # of the sample
VALUES = 8_000_000  # of the sample, at most, all bands together
SIDE = 96  # pixels of a file, at most
SEED = 0  # the limits do not depend on a campaign's seed: the pixels are shared


class Sample(NamedTuple):
    """What one file of the sample holds."""

    path: str
    names: tuple[str, ...]  # of all its bands
    places: tuple[int, ...]  # of the bands that are read; empty if it does not have them
    values: NDArray[Any]  # (m, bands) of those of its bands that hold data
    why: str = ""  # it cannot be read in this way


def decide(root: Path, entries: list[Entry], reading: Reading) -> Reading:
    """``reading`` with what a sample of the files decides. Bands that none of them has are refused."""
    drawn = np.random.default_rng(SEED).permutation(len(entries))[:FILES]
    samples = [made for i in np.sort(drawn) if (made := _sample(root, entries[i], reading)) is not None]
    fitting = [one for one in samples if one.places]
    if samples and not fitting:
        first = samples[0]
        raise UsageError(
            f"--bands {reading.bands} does not fit {first.path}: {first.why}. Choose among them."
        )
    reading = _with_channels(fitting, reading)
    reading = _with_limits(fitting, reading)
    return _with_components(fitting, reading) if reading.bands == "pca" else reading


def _sample(root: Path, entry: Entry, reading: Reading) -> Sample | None:
    """None for a file that cannot be read at all: that is told when it is its turn."""
    path = root / entry.file
    try:
        raster = entry.window is not None or rasters.is_raster(head(path))
        if raster and rasters.is_installed():
            return _of_raster(path, entry, reading)
        return _of_image(path, entry, reading)
    except UNREADABLE:
        return None


@limited
@quiet()
def _of_raster(path: Source, entry: Entry, reading: Reading) -> Sample:
    with rasters.opened(path) as raster:
        names = rasters.names(raster)
        try:
            places = bands.chosen(reading.bands, names)
        except ValueError as error:
            return Sample(entry.path, names, (), np.empty((0, 0)), str(error))
        side = min(SIDE, int((VALUES / FILES / len(names)) ** 0.5)) // 2  # ``read`` gives twice as many
        area = entry.window or (0, 0, raster.width, raster.height)
        every = bands.data(names) if len(set(raster.dtypes)) == 1 else places
        every = tuple(sorted({*every, *places}))
        part = rasters.read(raster, every, area, (max(side, 1), max(side, 1)), averaged=False)
    kept = [names[place] for place in every]
    return Sample(entry.path, tuple(kept), tuple(every.index(place) for place in places), _valid(part))


def _of_image(path: Path, entry: Entry, reading: Reading) -> Sample:
    """Of an ordinary image, whose bands are its three colours."""
    try:
        places = bands.chosen(reading.bands, bands.COLOURS)
    except ValueError as error:
        return Sample(entry.path, bands.COLOURS, (), np.empty((0, 3)), str(error))
    plain = stretch.is_kept(np.empty(0, np.uint8), reading)
    if plain and reading.bands != "pca":
        return Sample(entry.path, bands.COLOURS, places, np.empty((0, 3), np.uint8))
    pixels = render(path, squared("squash", SIDE), Reading()).pixels
    return Sample(entry.path, bands.COLOURS, places, pixels.reshape(-1, 3))


def _valid(part: rasters.Values) -> NDArray[Any]:
    return part.values[part.valid]


def _with_channels(samples: list[Sample], reading: Reading) -> Reading:
    """How many bands are stored: as many as most of the files have."""
    if reading.bands == "pca" or not samples:
        return reading
    counts = Counter(len(one.places) for one in samples)
    count = max(counts, key=lambda number: (counts[number], number))
    if count in (1, 3):
        return reading
    first = next(one for one in samples if len(one.places) == count)
    names = [first.names[place] for place in first.places]
    shown = bands.colours(names) if reading.bands == "all" else (0, 1, 2)
    kernels = bands.kernels(names)
    return replace(reading, channels=count, shown=shown * 3 if len(shown) == 1 else shown, kernels=kernels)


def _with_limits(samples: list[Sample], reading: Reading) -> Reading:
    """The percentiles of each band over the files whose values do not stay as they are."""
    stretched = [one for one in samples if len(one.values) and not stretch.is_kept(one.values, reading)]
    if reading.bands == "pca":
        stretched = [one for one in samples if len(one.values)]
    elif reading.stretch not in ("auto", "archive"):
        return reading
    pooled: dict[str, list[NDArray[Any]]] = {}
    for one in stretched:
        for i, name in enumerate(one.names):
            values = one.values[:, i].astype(np.float64)
            pooled.setdefault(name, []).append(values[np.isfinite(values)])
    columns = {name: np.concatenate(parts) for name, parts in pooled.items()}
    columns = {name: values for name, values in columns.items() if len(values)}
    if reading.stretch_by == "joint" and columns and reading.bands != "pca":
        both = np.percentile(np.concatenate(list(columns.values())), (stretch.LOWEST, stretch.HIGHEST))
        found = dict.fromkeys(columns, both)
    else:
        wanted = (stretch.LOWEST, stretch.HIGHEST)
        found = {name: np.percentile(values, wanted) for name, values in columns.items()}
    limits = tuple((name, float(low), float(high)) for name, (low, high) in found.items())
    return replace(reading, limits=limits)


def _with_components(samples: list[Sample], reading: Reading) -> Reading:
    """The three directions in which the bands differ most, each with the sign that makes the sum of its
    weights positive, and the limits of the projections."""
    samples = [one for one in samples if len(one.values)]
    if not samples:
        return reading
    counts = Counter(len(one.places) for one in samples)
    count = counts.most_common(1)[0][0]
    if count < 3:
        raise UsageError(f"--bands pca needs three bands or more: the files have {count}. Use --bands auto.")
    rows = []
    for one in samples:
        if len(one.places) == count:
            names = [one.names[place] for place in one.places]
            limits = stretch.known_limits(names, replace(reading, stretch="archive"))
            assert limits is not None, "the sample has decided them"
            rows.append(stretch.scaled(one.values[:, list(one.places)], limits))
    every = np.concatenate(rows).astype(np.float64)
    vectors = np.linalg.eigh(np.cov(every.T)).eigenvectors[:, ::-1][:, :3].T  # (3, bands)
    vectors = vectors * np.where(vectors.sum(axis=1, keepdims=True) < 0, -1, 1)
    spans = stretch.percentiles(every @ vectors.T, joint=False)
    added = tuple(
        (f"{stretch.COMPONENT} {i}", float(low), float(high)) for i, (low, high) in enumerate(spans)
    )
    components = tuple(tuple(float(value) for value in row) for row in vectors)
    return replace(reading, limits=(*reading.limits, *added), components=components)
