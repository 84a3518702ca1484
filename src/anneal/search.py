"""Search by example: one function for the page, the command line and the library."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anneal.archive.decode import DEFAULT, read_image
from anneal.archive.reading import Reading
from anneal.campaign.campaign import Campaign
from anneal.errors import UsageError
from anneal.method.neighbours import Index, nearest, unit
from anneal.pairs import Floats, Ids
from anneal.watch import Progress, silent

LESS = 0.5  # weight of the images to be less like (Rocchio)


@dataclass(frozen=True)
class Results:
    """A query and what was found, best first."""

    query: str
    pixels: NDArray[np.uint8]
    ids: list[int]
    paths: list[str]
    scores: list[float]


def find_similar(
    campaign: Campaign, images: Sequence[Path | str], k: int = 10, progress: Progress = silent
) -> list[Results]:
    """The k images most similar to each of these, in the serving model's space. An image of the archive does
    not find itself. Only images from outside the archive load the network."""
    archive = campaign.archive()
    model = campaign.rounds.serving
    retired = campaign.retired()
    vectors = campaign.rounds.vectors(model)
    index = campaign.rounds.index(model)
    paths = [Path(image) for image in images]
    ids = [archive.find(path) for path in paths]
    outside = {
        path: read_pixels(path, archive.px, archive.reading)
        for path, i in zip(paths, ids, strict=True)
        if i is None
    }
    encoded: dict[Path, Floats] = {}
    if outside:
        from anneal.campaign.turn import encode_images  # loads torch

        pixels = np.stack(list(outside.values()))
        encoded = dict(zip(outside, encode_images(campaign, pixels, model), strict=True))
    every = []
    for number, (path, i) in enumerate(zip(paths, ids, strict=True)):
        query = str(path) if i is None else archive.paths[i]
        shown = archive.reading.for_a_person(outside[path]) if i is None else archive.shown(i)
        vector = encoded[path] if i is None else vectors[i]
        own = [] if i is None else [i]
        near, scores = nearest_images(vectors, np.asarray(vector), k, own, index, retired)
        near_paths = [archive.paths[one] for one in near.tolist()]
        every.append(Results(query, shown, near.tolist(), near_paths, scores.tolist()))
        progress(number + 1, len(paths))
    return every


def nearest_images(
    vectors: Floats,
    wanted: Floats,
    k: int,
    left_out: Sequence[int] = (),
    index: Index | None = None,
    retired: Ids | None = None,
) -> tuple[Ids, Floats]:
    """The k images nearest to a unit vector, and their similarities; some may be left out, and any number may
    be ``retired``. With an index of the vectors it is quick for a million of them, and may miss a few."""
    more = k + len(set(left_out))
    if index is None:
        images = np.arange(len(vectors))
        if retired is not None and len(retired):
            images = np.setdiff1d(images, retired, assume_unique=True)
        ranking = nearest(vectors, images, wanted[None], more)
    else:
        ranking = index.nearest(vectors, wanted[None], more, without=retired)
    kept = ~np.isin(ranking.ids[0], left_out)
    return ranking.ids[0][kept][:k], ranking.scores[0][kept][:k]


def refined(more: Sequence[Floats], less: Sequence[Floats] = ()) -> Floats:
    """A unit vector like ``more`` and unlike ``less``: the mean of the first less half that of the others."""
    wanted: Floats = np.mean(more, axis=0)
    if len(less):
        wanted = wanted - LESS * np.mean(less, axis=0)
    return np.asarray(unit(np.asarray(wanted, dtype=np.float32)[None])[0])


def read_pixels(path: Path, px: int, reading: Reading = DEFAULT) -> NDArray[np.uint8]:
    """An image file that need not be in the archive, read as the archive is."""
    if not path.is_file():
        raise UsageError(f"{path} is neither an image of the archive nor a file: check the path.")
    read = read_image(path, px, reading)
    if read.pixels is None:
        raise UsageError(f"{path} could not be read as an image: {read.reason}.")
    return read.pixels
