"""Campaigns of any size without image files: features in clusters stand for encoded images.

Features of the default network's size are written to disk as reading and encoding would. Everything else is
done by the product: ``begin`` plans the first questions, answers go through the store, ``turn`` learns.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from anneal.archive.catalog import Archive, reopen
from anneal.archive.pixels import GrowingArray
from anneal.campaign.campaign import Campaign
from anneal.campaign.store import Event
from anneal.campaign.turn import begin
from anneal.network.encode import file_name
from anneal.pairs import Floats, Ids, Pair, Verdict
from anneal.settings import Settings

CLUSTERS = 60
DIMENSION = 624  # of the default network's features
LATENT = 48  # dimensions in which the clusters lie
SPREAD = 0.6  # of a cluster, beside a distance of about √2 between two of them: some neighbours are wrong
BLOCK = 10_000  # images that are made at once
PX = 32  # of pixels that nothing looks at
SETTINGS = Settings(px=PX)


def clusters(n: int) -> Ids:
    """The cluster of each image."""
    return np.random.default_rng(0).integers(CLUSTERS, size=n)


def verdict(pair: Pair, cluster: Ids) -> Verdict:
    a, b = pair
    return Verdict.SIMILAR if cluster[a] == cluster[b] else Verdict.DISSIMILAR


def make(folder: Path, n: int) -> Campaign:
    """A new campaign on n images."""
    return begin(folder, _archive(folder / "cache" / "synthetic", clusters(n)), SETTINGS)


def _archive(cache: Path, cluster: Ids) -> Archive:
    """An archive as it lies on disk after reading and encoding."""
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(CLUSTERS, LATENT)).astype(np.float32)
    mixing = rng.normal(size=(LATENT, DIMENSION)).astype(np.float32)
    pixels = GrowingArray(cache / "pixels", np.uint8, (PX, PX, 3))
    name = file_name(SETTINGS.backbone, "head", SETTINGS.views)
    features = GrowingArray(cache / name, np.float32, (DIMENSION,))
    lines = b""
    for start in range(0, len(cluster), BLOCK):
        own = cluster[start : start + BLOCK]
        noise = rng.normal(size=(len(own), LATENT)).astype(np.float32)
        latent: Floats = centres[own] + SPREAD * noise
        features.append(np.maximum(latent @ mixing, 0))
        pixels.append(np.zeros((len(own), PX, PX, 3), dtype=np.uint8))
        images = range(start, start + len(own))
        lines += b"".join(json.dumps([f"{i:07d}.jpg", "", "", f"{i:x}", ""]).encode() + b"\n" for i in images)
    features.finish()
    (cache / "pixels.jsonl").write_bytes(lines)
    pixels.finish({"files": len(cluster), "bytes": len(lines)})
    return reopen(cache, cache, PX)


def answer(campaign: Campaign, number: int, seed: int = 0) -> None:
    """Give a number of answers at once, such as ``place`` gives: an image beside the first one of its own
    cluster, or of another one in a quarter of the cases. One answer in fifty is unsure."""
    rng = np.random.default_rng(seed)
    cluster = clusters(campaign.size)
    founders = np.unique(cluster, return_index=True)[1]
    images = rng.choice(np.setdiff1d(np.arange(campaign.size), founders), number, replace=False)
    wrong = rng.random(number) < 0.25
    tried = np.where(wrong, rng.integers(CLUSTERS, size=number), cluster[images])
    events = []
    for image, group in zip(images.tolist(), tried.tolist(), strict=True):
        a, b = sorted((image, int(founders[group])))
        said = Verdict.UNSURE if rng.random() < 0.02 else verdict((a, b), cluster)
        events.append(Event(a, b, int(said), "me", "place", campaign.rounds.current, looked=1200))
    campaign.store.add(events)
