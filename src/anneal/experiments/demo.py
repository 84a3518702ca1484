"""A whole campaign on a small drawn archive: an oracle answers, a curve and a retrieval picture come out."""

from pathlib import Path

import numpy as np

from anneal.archive.catalog import Archive, open_archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import FROZEN
from anneal.experiments import plots, reported, scenes
from anneal.experiments.curves import Row
from anneal.experiments.oracle import split_of
from anneal.experiments.paper import simulate
from anneal.experiments.play import Player
from anneal.experiments.runner import Tell, untold
from anneal.pairs import Floats, Ids
from anneal.search import nearest_images
from anneal.settings import Settings
from anneal.watch import Watch, unwatched

PER_KIND = 50
PX = 128
ROUNDS = 4


def run(folder: Path, seed: int, watch: Watch = unwatched, tell: Tell = untold) -> list[Row]:
    """Draw the archive (once), play place against random, draw ``curve.png`` and ``retrieval.png``."""
    source = scenes.drawn(folder / "archive", PER_KIND, seed, PX)
    archive = open_archive(source, PX, folder / "cache", watch("reading"))
    players = {}
    for name in ("place", "random"):
        players[name] = Player(Settings(px=PX, per_round=60, seed=seed, strategy=name, heldout=0.0), ROUNDS)
    log = folder / reported.NAME  # drawn scenes: nothing is chosen by them
    rows = simulate(archive, players, folder, trials=1, jobs=len(players), watch=watch, tell=tell, report=log)

    campaign = Campaign.open(folder / "trials" / "place-0")
    spaces = {"before": campaign.rounds.vectors(FROZEN), "after": campaign.rounds.vectors()}
    never_asked = split_of(archive, seed).val
    queries = np.random.default_rng(seed).choice(never_asked, 3, replace=False)
    _panel(archive, spaces, queries, folder / "retrieval.png")
    campaign.close()
    return [row for row in rows if row["player"] in players]


def _panel(archive: Archive, spaces: dict[str, Floats], queries: Ids, path: Path) -> None:
    """Each query twice, in the space before training and after it, searched in all other images."""
    heads = []
    results = []
    for query in queries.tolist():
        for when, vectors in spaces.items():
            ids, _ = nearest_images(vectors, np.asarray(vectors[query]), 8, [query])
            own = archive.labels[query]
            heads.append((archive.pixels[query], f"{own}\n{when}"))
            labels = [(i, archive.labels[i]) for i in ids.tolist()]
            results.append([(archive.pixels[i], label, label == own) for i, label in labels])
    plots.panel(heads, results, path, "drawn scenes: the query, then its 8 nearest; wrong ones framed red")
