"""Search by example: one function for the page, the command line and the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from anneal.archive.catalog import Archive
from anneal.archive.decode import read_image
from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import FROZEN
from anneal.errors import UsageError
from anneal.method.neighbours import nearest, unit
from anneal.pairs import Floats, Ids
from anneal.watch import Progress, silent

if TYPE_CHECKING:  # these load torch
    from anneal.network.backbones import Backbone
    from anneal.network.model import Depth

LESS = 0.5  # weight of the images to be less like (Rocchio)


@dataclass(frozen=True)
class Results:
    """A query and what was found, best first."""

    query: str
    pixels: NDArray[np.uint8]
    ids: list[int]
    paths: list[str]
    scores: list[float]


def search(
    campaign: Campaign, images: Sequence[Path | str], k: int = 10, progress: Progress = silent
) -> list[Results]:
    """The k images most similar to each of these, in the serving model's space. An image of the archive does not
    find itself. Only images from outside the archive load the network."""
    archive = campaign.archive()
    model = campaign.rounds.serving
    vectors = campaign.rounds.vectors(model)
    paths = [Path(image) for image in images]
    ids = [archive.find(path) for path in paths]
    outside = {path: read_pixels(path, archive.px) for path, i in zip(paths, ids, strict=True) if i is None}
    encoded = (
        dict(zip(outside, encode(campaign, np.stack([*outside.values()]), model), strict=True))
        if outside
        else {}
    )
    every = []
    for number, (path, i) in enumerate(zip(paths, ids, strict=True)):
        if i is None:
            results = _found(archive, vectors, str(path), outside[path], encoded[path], k, [])
        else:
            results = _found(archive, vectors, archive.paths[i], archive.pixels[i], vectors[i], k, [i])
        every.append(results)
        progress(number + 1, len(paths))
    return every


def _found(
    archive: Archive,
    vectors: Floats,
    name: str,
    pixels: NDArray[np.uint8],
    vector: Floats,
    k: int,
    left_out: Sequence[int],
) -> Results:
    ids, scores = similar_to(vectors, np.asarray(vector), k, left_out)
    return Results(name, pixels, ids.tolist(), [archive.paths[i] for i in ids.tolist()], scores.tolist())


def similar_to(vectors: Floats, wanted: Floats, k: int, left_out: Sequence[int] = ()) -> tuple[Ids, Floats]:
    """The k images nearest to a unit vector, and their similarities; some may be left out."""
    others = np.setdiff1d(np.arange(len(vectors)), np.asarray(left_out, dtype=np.int64))
    ranking = nearest(vectors, others, wanted[None], k)
    return ranking.ids[0], ranking.scores[0]


def refined(more: Sequence[Floats], less: Sequence[Floats] = ()) -> Floats:
    """A unit vector like all of ``more`` and unlike ``less``: the mean of the first minus half the mean of the
    others (Rocchio)."""
    wanted: Floats = np.mean(more, axis=0)
    if len(less):
        wanted = wanted - LESS * np.mean(less, axis=0)
    return np.asarray(unit(np.asarray(wanted, dtype=np.float32)[None])[0])


def read_pixels(path: Path, px: int) -> NDArray[np.uint8]:
    """An image file that need not be in the archive."""
    if not path.is_file():
        raise UsageError(f"{path} is neither an image of the archive nor a file: check the path.")
    _, pixels, why = read_image(path, px)
    if pixels is None:
        raise UsageError(f"{path} could not be read as an image: {why}.")
    return pixels


def encode(
    campaign: Campaign, pixels: NDArray[np.uint8], model: int, backbone: Backbone | None = None
) -> Floats:
    """(m, px, px, 3) images from outside → (m, d) vectors in the space of a model."""
    from anneal.network import backbones
    from anneal.network import encode as network
    from anneal.network import model as saved

    settings = campaign.settings
    backbone = backbone or backbones.load(settings.backbone)
    encoder = None if model == FROZEN else saved.load(campaign.rounds.files(model).folder, backbone)
    depth = cast("Depth", settings.depth)
    vectors: Floats = network.query(pixels, backbone, depth, encoder, settings.views)
    return vectors
