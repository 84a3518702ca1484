"""The whole thing on a small drawn archive: a campaign with an oracle, its curve, one retrieval picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anneal.archive.catalog import Archive, open_archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.turn import Watch, unwatched
from anneal.experiments import plots, scenes
from anneal.experiments.play import Simulation, Stage, Tell, replay, simulate, split_of, untold
from anneal.method.neighbours import nearest, unit
from anneal.network import backbones
from anneal.pairs import Floats, Ids
from anneal.settings import Plan

PER_KIND, PX = 40, 128


def run(folder: Path, seed: int, watch: Watch = unwatched, tell: Tell = untold) -> None:
    """Draw the archive (once), play place against random, draw ``curve.png`` and ``retrieval.png``."""
    source = scenes.drawn(folder / "archive", PER_KIND, seed, PX)
    archive = open_archive(source, PX, folder / "cache", watch("reading"))
    plan = Plan(px=PX, per_round=90, seed=seed)
    simulation = Simulation(plan, ("place", "random"), rounds=5)
    stage = Stage.of(archive, backbones.load(plan.backbone), plan, watch)
    simulate(stage, simulation, folder, watch, tell)

    campaign = Campaign.open(folder / "trials" / "place-0")
    trained = replay(stage, campaign, simulation.rounds).vectors
    never_asked = split_of(archive, seed).val
    queries = np.random.default_rng(seed).choice(never_asked, 3, replace=False)
    spaces = {"before": unit(stage.frozen), "after": trained}
    _panel(archive, spaces, queries, folder / "retrieval.png")


def _panel(archive: Archive, spaces: dict[str, Floats], queries: Ids, path: Path) -> None:
    """Each query twice, in the space before training and after it, searched in all other images."""
    heads, results = [], []
    for query in queries.tolist():
        for when, vectors in spaces.items():
            others = np.delete(np.arange(len(archive)), query)
            ranking = nearest(vectors, others, vectors[query][None], 8)
            heads.append((archive.pixels[query], f"{archive.labels[query]}\n{when}"))
            results.append(
                [
                    (archive.pixels[i], archive.labels[i], archive.labels[i] == archive.labels[query])
                    for i in ranking.ids[0].tolist()
                ]
            )
    plots.panel(heads, results, path, "drawn scenes: the query, then its 8 nearest; wrong ones framed red")
