"""Training within the machine's turn: how firmly it holds, and what it hands on to the strategy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from blobs import PLAIN, answered, blobs

from anneal.campaign import turn
from anneal.method.groups import spread
from anneal.method.neighbours import unit
from anneal.network import train
from anneal.network.losses import anchor_loss
from anneal.pairs import Pairs
from anneal.settings import Plan


def test_a_first_round_keeps_unasked_classes_nearer_to_their_frozen_position(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, classes = blobs(rng, kinds=8, each=40)
    answers = answered(classes, Pairs.of([0, 1, 40, 80], [1, 40, 41, 81]))
    plan = Plan(presume=0.0)
    monkeypatch.setattr(train.Fit, "length", lambda settings, known: 60)

    def moved() -> float:
        learned = turn.learn(PLAIN, features, np.arange(320), answers, plan, np.random.default_rng(0))
        with torch.no_grad():
            anchor = learned.fitted.encoder.anchor(torch.from_numpy(features))
        return float(anchor_loss(torch.from_numpy(learned.vectors), anchor))

    firmly = moved()
    monkeypatch.setattr(train, "FEW", 0)
    assert firmly < moved() / 2


def test_likely_groups_in_the_frozen_features_reach_a_strategy_that_orders_images(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, classes = blobs(rng)
    answers = answered(classes, Pairs.of([0, 1, 12, 24], [1, 12, 13, 25]))
    frozen = unit(features)
    monkeypatch.setattr(train.Fit, "length", lambda settings, known: 2)

    def learned(strategy: str) -> turn.Learned:
        plan = Plan(strategy=strategy, presume=0.0)
        return turn.learn(PLAIN, features, np.arange(48), answers, plan, rng, frozen=frozen)

    snapshot = learned("place").snapshot
    assert snapshot.likely is not None
    expected = spread(frozen, np.arange(48), snapshot.known).share
    np.testing.assert_array_equal(snapshot.likely.share, expected)
    assert learned("mgue").snapshot.likely is None  # mgue does not use it
