"""The nearest neighbours of every image by the frozen features. They stay the same, so they are stored."""

import numpy as np

from anneal.campaign.campaign import Campaign
from anneal.campaign.intact import UNREADABLE
from anneal.campaign.rounds import FROZEN, Round
from anneal.files import replacing
from anneal.method.groups import neighbour_count, neighbour_table
from anneal.method.neighbours import Ranking
from anneal.pairs import Floats, Ids


def by_frozen(campaign: Campaign, frozen: Floats, images: Ids) -> Ranking:
    """The nearest of these images, distinct and sorted, as ``groups.neighbour_table`` finds them in centred
    features: what all aerial images share says nothing about their groups. They are stored only while all
    images are looked at: of too many, others are drawn for every round."""
    files = campaign.rounds.files(FROZEN)
    stored = _load(files, images)
    if stored is not None:
        return stored
    found = neighbour_table(frozen, images, centred=True)
    if len(images) == len(campaign.images):
        with replacing(files.neighbours) as out:
            np.savez(out, images=images, rows=found.ids.astype(np.int32), scores=found.scores)
    return found


def _load(files: Round, images: Ids) -> Ranking | None:
    """What was stored of exactly these images; None if it is of others, or cannot be read."""
    shape = (len(images), neighbour_count(len(images)))
    try:
        with files.neighbours.open("rb") as opened, np.load(opened) as saved:
            if not np.array_equal(saved["images"], images):
                return None
            rows = saved["rows"].astype(np.int64)
            ranking = Ranking(rows, saved["scores"].astype(np.float32))
    except UNREADABLE:
        return None
    inside = (rows >= 0) & (rows < len(images))
    return ranking if rows.shape == shape and inside.all() and np.isfinite(ranking.scores).all() else None
