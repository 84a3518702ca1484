"""New images in the space of every model whose files are kept. Nothing else is encoded."""

from functools import partial
from typing import cast

from anneal.archive.catalog import Archive
from anneal.campaign import heldout
from anneal.campaign.campaign import Campaign
from anneal.campaign.networks import network_of
from anneal.campaign.rounds import BLOCK, FROZEN
from anneal.campaign.turn import plan_again
from anneal.files import release
from anneal.method.neighbours import unit
from anneal.network import encode, model
from anneal.network.backbones import Backbone
from anneal.network.model import Depth
from anneal.pairs import Floats
from anneal.settings import Stream
from anneal.watch import Watch
from anneal.work import Workers


def extend(
    campaign: Campaign, archive: Archive, watch: Watch, backbone: Backbone | None, workers: Workers | None
) -> None:
    """Make the stored features and the vectors of every kept model as long as the archive. Each file is
    replaced in one step, so a stopped run goes on where it was. What is longer than the campaign's size does
    not count yet."""
    settings = campaign.settings
    depth = cast(Depth, settings.depth)
    pretrained = network_of(campaign, backbone)
    stored = partial(
        encode.inputs, archive, progress=watch("encoding"), views=settings.views, workers=workers
    )
    features = stored(pretrained, "head")
    inputs = {pretrained.name: features if depth == "head" else stored(pretrained, depth)}
    for number in campaign.rounds.kept():
        files = campaign.rounds.files(number)
        have = len(files.vectors())
        if have >= len(archive):
            continue
        with files.longer_vectors(len(archive)) as rows:
            if number == FROZEN:
                _scale(features, rows, have)
            else:
                network = network_of(campaign, backbone, number)  # a fine-tuned one has features of its own
                if network.name not in inputs:
                    inputs[network.name] = stored(network, depth)
                encoder = model.load(files.folder, network)
                out = {encoder.space: rows[have:]}
                new = inputs[network.name][have:]
                encode.vectors(encoder, network, new, [encoder.space], watch("embedding"), out)


def _scale(features: Floats, rows: Floats, have: int) -> None:
    for i in range(have, len(features), BLOCK):
        rows[i : i + BLOCK] = unit(features[i : i + BLOCK])
        release(features)
        release(rows)


def settle(campaign: Campaign, watch: Watch, workers: Workers | None) -> None:
    """What depends on which images there are: the indexes, the nearest of the queries, the ranks of held-out
    pairs, and the questions of this round."""
    rounds = campaign.rounds
    choosing = watch("choosing")
    kept = rounds.kept()
    for done, number in enumerate(kept):
        choosing(done, len(kept) + 1)
        files = rounds.files(number)
        if number in (FROZEN, rounds.serving):
            files.grow_index()
        queries = campaign.settings.rng(Stream.QUERIES)
        files.save_nearest(heldout.query_results(files.vectors(), campaign.images, queries))
    ranks = heldout.again(campaign)
    plan_again(campaign, workers)
    with campaign.transaction():
        campaign.store.add_heldout(ranks)
        campaign.store.set(settled=True)
        campaign.inventory.note_growth()
    choosing(1, 1)
