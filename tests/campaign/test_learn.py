"""Training within the machine's turn: how far images move, and what the strategy gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from anneal.archive.catalog import open_archive
from anneal.campaign import turn
from anneal.campaign.networks import Origin
from anneal.campaign.turn import Learned, Training
from anneal.method.groups import likely_groups, neighbour_table, spread_labels
from anneal.network import encode, train
from anneal.network.backbones import Backbone
from anneal.network.losses import anchor_loss
from anneal.network.train import Fit
from anneal.pairs import Pairs
from anneal.settings import Settings
from anneal.watch import unwatched
from blobs import answered

SHRUNK = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
BACKBONE = Backbone("shrunk", None, SHRUNK, (0.0,) * 3, (1.0,) * 3)


def learn(drawn: Path, cache: Path, folder: Path, strategy: str, training: Training | None = None) -> Learned:
    """The first round of a campaign, after four answers about six images of three classes."""
    archive = open_archive(drawn, 32, cache)
    settings = Settings(px=32, strategy=strategy, pseudo_labels=0.0)
    campaign = turn.begin(folder, archive, settings, backbone=BACKBONE)
    answers = answered(archive.classes, Pairs.of([0, 1, 15, 30], [1, 15, 16, 31]))
    for pair, verdict in zip(answers.pairs, answers.verdicts.tolist(), strict=True):
        campaign.answer(*pair, verdict)
    learned = turn.learn(campaign, Origin(BACKBONE, None), training or Training(), {}, unwatched)
    campaign.close()
    return learned


def test_a_first_round_keeps_other_classes_nearer_to_their_frozen_position(
    drawn: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fit, "length", lambda settings, known: 60)
    features = encode.inputs(open_archive(drawn, 32, cache), BACKBONE, "head")

    def moved(name: str) -> float:
        learned = learn(drawn, cache, tmp_path / name, "place")
        with torch.no_grad():
            anchor = learned.fitted.encoder.anchor(torch.from_numpy(np.array(features)))
        return float(anchor_loss(torch.from_numpy(np.array(learned.vectors)), anchor))

    firmly = moved("firmly")
    monkeypatch.setattr(train, "FEW", 0)
    assert firmly < moved("loosely") / 2


def test_a_strategy_that_needs_groups_gets_the_likely_groups_of_the_frozen_features(
    drawn: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fit, "length", lambda settings, known: 2)
    snapshot = learn(drawn, cache, tmp_path / "place", "place").snapshot
    assert snapshot.membership is not None
    assert snapshot.frozen is not None
    near = neighbour_table(snapshot.frozen, np.arange(120), centred=True)
    expected = likely_groups(snapshot.frozen, np.arange(120), snapshot.known, near).share
    np.testing.assert_array_equal(snapshot.membership.share, expected)
    alone = learn(drawn, cache, tmp_path / "alone", "place", Training(regression=False)).snapshot.membership
    assert alone is not None
    expected = spread_labels(snapshot.frozen, np.arange(120), snapshot.known, near).share
    np.testing.assert_array_equal(alone.share, expected)
    assert learn(drawn, cache, tmp_path / "mgue", "mgue").snapshot.membership is None  # mgue needs no groups
