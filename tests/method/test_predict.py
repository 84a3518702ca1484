"""The predicted class of images: by a loop written from the formula, and against the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from anneal.method import predict as module
from anneal.method.neighbours import unit
from anneal.method.predict import NEAREST, NO_CLASS, SLOPE, SPREAD, predict
from anneal.pairs import Floats, Ids


def space(
    rng: np.random.Generator, classes: int = 5, each: int = 40, noise: float = 0.6
) -> tuple[Floats, Ids]:
    """Unit vectors around a centre for each class, and the class of each."""
    truth = np.repeat(np.arange(classes), each)
    centres = rng.normal(size=(classes, 8))
    return unit(centres[truth] + noise * rng.normal(size=(len(truth), 8))).astype(np.float32), truth


def by_hand(
    vectors: Floats, image: int, settled: Ids, column: Ids, apart: set[int], cutoff: float
) -> tuple[int, float]:
    """The formula, one image at a time."""
    votes = [
        (float(vectors[image] @ vectors[one]), int(own)) for one, own in zip(settled, column, strict=True)
    ]
    votes = sorted((vote for vote in votes if vote[1] not in apart), reverse=True)[:NEAREST]
    weights: dict[int, float] = {}
    for similarity, own in votes:
        weights[own] = weights.get(own, 0) + math.exp(similarity / SPREAD)
    best = max(weights, key=lambda own: weights[own])
    near_enough = 1 / (1 + math.exp(-(votes[0][0] - cutoff) / SLOPE))
    return best, near_enough * weights[best] / sum(weights.values())


def test_it_is_the_formula(rng: np.random.Generator) -> None:
    vectors, truth = space(rng, noise=1.5)
    settled = np.sort(rng.choice(len(truth), 60, replace=False))
    others = np.setdiff1d(np.arange(len(truth)), settled)
    apart = {int(others[3]): [0, 2], int(others[8]): [int(truth[others[8]])]}
    told: list[tuple[int, int]] = []
    found = predict(vectors, others, settled, truth[settled], apart, 0.4, lambda *at: told.append(at))
    for image, column, score in zip(others.tolist(), found.column, found.score, strict=True):
        expected = by_hand(vectors, image, settled, truth[settled], set(apart.get(image, ())), 0.4)
        assert column == expected[0]
        assert score == pytest.approx(expected[1], abs=1e-5)
    assert told[-1] == (len(others), len(others))


def test_a_class_that_answers_rule_out_is_never_predicted(rng: np.random.Generator) -> None:
    vectors, truth = space(rng)
    settled = np.arange(0, 200, 4)
    found = predict(vectors, np.array([1, 2]), settled, truth[settled], {1: [0], 2: [0, 1, 2, 3, 4]})
    assert found.column[0] not in (0, NO_CLASS)
    assert (found.column[1], found.score[1]) == (NO_CLASS, 0)


def test_an_image_far_from_every_class_is_unsure(rng: np.random.Generator) -> None:
    vectors = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2]]
    found = predict(vectors, np.array([4]), np.arange(4), np.array([0, 0, 1, 1]), {}, 0.5)
    assert found.score[0] < 0.01


def test_the_score_is_about_the_share_of_right_ones(rng: np.random.Generator) -> None:
    """On classes that overlap; ``bench/classes.py`` does the same on real images."""
    vectors, truth = space(rng, classes=8, each=250, noise=0.9)
    settled = np.sort(rng.choice(len(truth), 200, replace=False))
    others = np.setdiff1d(np.arange(len(truth)), settled)
    found = predict(vectors, others, settled, truth[settled], {}, 0.5)
    right = found.column == truth[others]
    assert 0.7 < right.mean() < 0.99
    assert found.score.mean() == pytest.approx(right.mean(), abs=0.12)
    order = np.argsort(found.score)
    thirds = [float(right[part].mean()) for part in np.array_split(order, 3)]
    assert thirds == sorted(thirds)


def test_a_large_class_leaves_room_for_small_ones(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, truth = space(rng, classes=4, each=50, noise=0.2)
    settled = np.concatenate([np.arange(50), [60, 61, 110, 160]])
    monkeypatch.setattr(module, "EXEMPLARS", 12)
    voters, classes = module._exemplars(settled, truth[settled])
    assert np.bincount(classes).tolist() == [3, 2, 1, 1]
    found = predict(vectors, np.array([70, 120, 170]), settled, truth[settled], {})
    assert found.column.tolist() == [1, 2, 3]
    assert set(voters) <= set(settled)
