"""Search by example: an image of the archive, or any image file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from anneal.archive.catalog import Archive, Progress, read_image, silent
from anneal.campaign.campaign import FROZEN, Campaign
from anneal.errors import UsageError
from anneal.method.neighbours import nearest, unit
from anneal.pairs import Floats

if TYPE_CHECKING:  # these load torch
    from anneal.network.backbones import Backbone
    from anneal.network.model import Depth


@dataclass(frozen=True)
class Found:
    """A query and its results, best first."""

    name: str
    pixels: NDArray[np.uint8]
    ids: list[int]
    scores: list[float]


def search(
    campaign: Campaign, archive: Archive, images: Sequence[Path], k: int, progress: Progress = silent
) -> list[Found]:
    """The k images most similar to each, in the metric space in service; never the image itself."""
    vectors = campaign.vectors()
    ids = [archive.find(path) for path in images]
    outside = {path: pixels_of(path, archive.px) for path, i in zip(images, ids, strict=True) if i is None}
    encoded = encode(campaign, np.stack(list(outside.values()))) if outside else np.empty((0, 0))
    place = {path: row for row, path in enumerate(outside)}
    found = []
    for number, (path, i) in enumerate(zip(images, ids, strict=True)):
        others = np.arange(len(archive))
        if i is not None:
            others = np.delete(others, i)
        query = encoded[place[path]] if i is None else np.asarray(vectors[i])
        ranking = nearest(vectors, others, query[None], k)
        name, pixels = (str(path), outside[path]) if i is None else (archive.paths[i], archive.pixels[i])
        found.append(Found(name, pixels, ranking.ids[0].tolist(), ranking.scores[0].tolist()))
        progress(number + 1, len(images))
    return found


def pixels_of(path: Path, px: int) -> NDArray[np.uint8]:
    """An image file that need not be in the archive."""
    if not path.is_file():
        raise UsageError(f"{path} is neither an image of the archive nor a file: check the path.")
    _, pixels, why = read_image(path, px)
    if pixels is None:
        raise UsageError(f"{path} could not be read as an image: {why}.")
    return pixels


def refined(plus: Sequence[Floats], minus: Sequence[Floats] = ()) -> Floats:
    """What is like all of ``plus`` and unlike ``minus``: the mean of the ones less half the mean of the
    others (Rocchio), as a unit vector."""
    wanted: Floats = np.mean(plus, axis=0)
    if len(minus):
        wanted = wanted - 0.5 * np.mean(minus, axis=0)
    (sought,) = unit(np.asarray(wanted, dtype=np.float32)[None])
    return np.asarray(sought)


def encode(campaign: Campaign, pixels: NDArray[np.uint8], backbone: Backbone | None = None) -> Floats:
    """(m, px, px, 3) images from outside as vectors of the model in service; only they need the network."""
    from anneal.network import backbones, encode, model

    plan, number = campaign.plan, campaign.serving()
    network = backbone or backbones.load(plan.backbone)
    encoder = None if number == FROZEN else model.load(campaign.round_folder(number), network)
    found: Floats = encode.query(pixels, network, cast("Depth", plan.depth), encoder, plan.views)
    return found
