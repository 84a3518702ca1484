"""Training: what a batch holds, that the seed determines the result, that the networks learn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from anneal.errors import UsageError
from anneal.method.relations import full, none
from anneal.network import train
from anneal.network.losses import anchor_loss
from anneal.network.model import Shape
from anneal.network.train import Fit, batch, class_probabilities, fit
from anneal.pairs import Answers, Floats, Ids, Pairs, Verdict
from blobs import PLAIN, QUICK, answered, blobs, head_vectors, some_known


def separation(vectors: Floats, classes: Ids) -> float:
    """Mean similarity within classes minus mean similarity between them."""
    s = vectors @ vectors.T
    same = classes[:, None] == classes[None, :]
    return float(s[same].mean() - s[~same].mean())


# ---- batches


def test_a_batch_holds_every_known_image_while_they_are_few(rng: np.random.Generator) -> None:
    classes = np.array([0, 0, 1, 1, 0, 0, 0, 0, 0, 0])
    known = full(10, answered(classes, Pairs.of([0, 2], [1, 1]))).relations
    assert batch(known, 384, rng).tolist() == [0, 1, 2]


def test_a_batch_out_of_many_images_holds_similar_partners(rng: np.random.Generator) -> None:
    """400 groups of two: 64 images drawn evenly would hold two or three similar pairs."""
    pairs = Pairs.of(np.arange(400), np.arange(400) + 400)
    known = full(800, Answers.of(pairs, np.ones(400))).relations
    drawn = batch(known, 64, rng)
    assert len(drawn) == len(set(drawn.tolist())) <= 64
    assert all((i + 400) % 800 in drawn for i in drawn)


def test_a_batch_of_the_papers_recipe_holds_both_kinds(rng: np.random.Generator) -> None:
    """A ring of 300 images: neighbours are similar, opposites are dissimilar, nothing is implied."""
    i = np.arange(300)
    pairs = Pairs.of(np.concatenate([i, i[:150]]), np.concatenate([(i + 1) % 300, i[:150] + 150]))
    verdicts = np.repeat([Verdict.SIMILAR, Verdict.DISSIMILAR], [300, 150])
    known = none(300, Answers.of(pairs, verdicts)).relations
    drawn = batch(known, 63, rng, Fit.at("full", "paper").partners)
    among = np.triu(known.among(drawn, drawn), 1)
    assert len(drawn) <= 63
    assert (among == Verdict.SIMILAR).sum() >= 15
    assert (among == Verdict.DISSIMILAR).sum() >= 15


# ---- settings


def test_the_papers_recipe() -> None:
    paper = Fit.at("full", "paper", loss="contrastive")
    assert (paper.epochs, paper.lr, paper.weight_decay, paper.loss) == (15, 1e-4, 0.0, "contrastive")
    assert not paper.decay
    chain = Answers.of(Pairs.of(np.arange(0, 299), np.arange(1, 300)), np.ones(299))
    known = full(300, chain).relations
    assert paper.length(known) == 15 * -(-8 * 300 // 128), "44850 implied pairs, but at most eight per image"
    few = none(300, chain).relations
    assert paper.length(few) == 15 * 3, "299 pairs, 128 a step"
    assert not paper.narrow


def test_more_known_images_take_more_steps_up_to_a_limit() -> None:
    def length(settings: Fit, images: int) -> int:
        chain = Pairs.of(np.arange(images - 1), np.arange(1, images))
        return settings.length(full(images, Answers.of(chain, np.ones(images - 1))).relations)

    head = Fit(steps=100, passes=10, most=300, batch=256)
    assert [length(head, images) for images in (50, 1280, 2560, 3840, 50_000)] == [100, 100, 200, 300, 300]
    assert [length(head.times(3), images) for images in (50, 2560, 50_000)] == [300, 600, 900]
    assert length(Fit(steps=500), 50_000) == 500, "steps are the least"
    assert length(Fit.at("last"), 50_000) == 150


def test_hold_is_larger_while_few_images_are_known() -> None:
    def hold(known: int, of: int) -> float:
        return Fit(hold=2.0).knowing(known, of).hold

    assert [hold(m, 5000) for m in (40, 80, 160, 5000)] == [32, 8, 2, 2]
    assert [hold(m, 100) for m in (10, 25, 50, 100)] == [50, 8, 2, 2]  # half of a small archive is enough
    assert hold(0, 100) < np.inf
    assert Fit.at("full", "paper").knowing(1, 5000).hold == 0


# ---- fit


@pytest.mark.parametrize("loss", ["mix", "contrastive", "ntxent"])
@pytest.mark.parametrize("anchored", [True, False])
def test_training_separates_the_classes(rng: np.random.Generator, loss: str, anchored: bool) -> None:
    features, classes = blobs(rng)
    known = some_known(classes, rng)
    settings = replace(QUICK, loss=loss, lr=3e-3)
    fitted = fit(PLAIN, "head", features, known, settings, rng, shape=Shape(32, 16, anchored))
    vectors = head_vectors(fitted.encoder, features)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    before = features / np.linalg.norm(features, axis=1, keepdims=True)
    assert separation(vectors, classes) > separation(before, classes) + 0.2


def test_the_seed_determines_the_weights(rng: np.random.Generator) -> None:
    features, classes = blobs(rng)
    known = some_known(classes, rng)

    def weights(seed: int) -> torch.Tensor:
        torch.rand(seed + 1)  # the global generator must not matter
        seeded = np.random.default_rng(seed)
        fitted = fit(PLAIN, "head", features, known, replace(QUICK, steps=5), seeded, pair_classifier=True)
        assert fitted.classifier is not None
        parts = [*fitted.encoder.parameters(), *fitted.classifier.parameters()]
        return torch.cat([p.flatten() for p in parts])

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


def test_training_leaves_the_global_generator_alone(rng: np.random.Generator) -> None:
    features, classes = blobs(rng)
    known = some_known(classes, rng)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit(PLAIN, "head", features, known, replace(QUICK, steps=2), rng)
    assert torch.equal(torch.rand(3), expected)


def test_the_anchor_loss_keeps_other_images_near_their_frozen_position(rng: np.random.Generator) -> None:
    features, classes = blobs(rng)
    known = full(48, answered(classes, Pairs.of([0, 1, 12, 24], [1, 12, 13, 25]))).relations

    def moved(hold: float) -> float:
        settings = replace(QUICK, hold=hold, lr=3e-3, noise=0.0)
        encoder = fit(PLAIN, "head", features, known, settings, np.random.default_rng(0)).encoder
        with torch.no_grad():
            x = torch.from_numpy(features)
            return float(anchor_loss(encoder(x)[1], encoder.anchor(x)))

    assert moved(10.0) < moved(0.0) / 3


def test_without_a_judged_pair_the_error_says_so(rng: np.random.Generator) -> None:
    features, _ = blobs(rng)
    unsure = none(48, Answers.of(Pairs.of([0], [1]), [Verdict.UNSURE])).relations
    with pytest.raises(UsageError, match="no pair has been judged"):
        fit(PLAIN, "head", features, unsure, QUICK, rng)


def test_the_classifier_learns_the_answers(rng: np.random.Generator) -> None:
    features, classes = blobs(rng)
    known = some_known(classes, rng)
    fitted = fit(PLAIN, "head", features, known, replace(QUICK, lr=3e-3), rng, pair_classifier=True)
    assert fitted.classifier is not None
    vectors = head_vectors(fitted.encoder, features)
    every = np.arange(len(classes))
    probability = fitted.classifier.scorer(vectors)(every, every)
    same = classes[:, None] == classes[None, :]
    assert ((probability > 0.5) == same).mean() > 0.9


def test_the_softmax_learns_the_given_classes(rng: np.random.Generator) -> None:
    features, classes = blobs(rng)
    given = np.where(np.arange(48) % 2, classes, -1)
    known = full(48, answered(classes, Pairs.of(np.arange(1, 46, 2), np.arange(3, 48, 2)))).relations
    fitted = fit(PLAIN, "head", features, known, replace(QUICK, lr=3e-3), rng, classes=given)
    probability = class_probabilities(fitted, head_vectors(fitted.encoder, features))
    np.testing.assert_allclose(probability.sum(axis=1), 1, atol=1e-5)
    assert (probability.argmax(axis=1) == classes)[given >= 0].all()


def test_without_the_metric_loss_the_verdicts_make_no_difference(rng: np.random.Generator) -> None:
    """CAL as in the paper: only the classes are learnt."""
    features, classes = blobs(rng)
    pairs = Pairs.of(np.arange(0, 46), np.arange(2, 48))
    short = replace(QUICK, steps=3, batch=64)
    vectors = []
    for verdict in (Verdict.SIMILAR, Verdict.DISSIMILAR):
        known = none(48, Answers.of(pairs, np.full(len(pairs), verdict))).relations
        seeded = np.random.default_rng(5)
        fitted = fit(PLAIN, "head", features, known, short, seeded, classes=classes, metric=False)
        vectors.append(head_vectors(fitted.encoder, features))
    np.testing.assert_array_equal(vectors[0], vectors[1])


def test_a_warm_start_begins_at_the_given_weights(rng: np.random.Generator) -> None:
    features, classes = blobs(rng)
    known = some_known(classes, rng)
    before = fit(PLAIN, "head", features, known, QUICK, rng).encoder
    still = replace(QUICK, steps=1, lr=0.0)
    warm = fit(PLAIN, "head", features, known, still, rng, start=before).encoder
    np.testing.assert_array_equal(head_vectors(warm, features), head_vectors(before, features))
    cold = fit(PLAIN, "head", features, known, still, rng).encoder
    assert np.abs(head_vectors(cold, features) - head_vectors(before, features)).max() > 0.1


def test_the_loop_makes_every_tensor_on_the_device_of_the_networks(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tensor that the loop makes without a device would be on ``meta`` here, and fail beside the others."""
    features, classes = blobs(rng)
    known = some_known(classes, rng)
    loop = train._train

    def elsewhere(*arguments: Any) -> list[float]:
        with torch.device("meta"):
            return loop(*arguments)

    monkeypatch.setattr(train, "_train", elsewhere)
    short = replace(QUICK, steps=2)
    fitted = fit(PLAIN, "head", features, known, short, rng, pair_classifier=True, classes=classes)
    assert np.isfinite(fitted.losses).all()
    with torch.device("meta"):
        vectors = head_vectors(fitted.encoder, features)
    assert np.isfinite(vectors).all()


# ---- large archives


class Recorded:
    """An array that notes which rows were read."""

    def __init__(self, rows: Floats) -> None:
        self.rows = rows
        self.read: set[int] = set()
        self.most = 0
        self.shape = rows.shape
        self.dtype = rows.dtype

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> Floats:
        ids = np.arange(len(self))[key]
        self.read |= set(ids.tolist())
        self.most = max(self.most, len(ids))
        rows: Floats = self.rows[key]
        return rows


@pytest.mark.parametrize("dim", [24, 600])
def test_training_reads_the_known_images_and_a_sample_of_the_others(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, dim: int
) -> None:
    monkeypatch.setattr(train, "SAMPLE", 30)
    monkeypatch.setattr(train, "BLOCK", 8)
    features, classes = blobs(rng, each=100)
    wide = np.pad(features, ((0, 0), (0, dim - 24)), mode="wrap")
    stored = Recorded(wide)
    known = full(400, answered(classes, Pairs.of(np.arange(20), np.arange(1, 21)))).relations
    fit(PLAIN, "head", stored, known, replace(QUICK, steps=5), rng)  # type: ignore[arg-type]
    assert set(range(21)) <= stored.read
    assert len(stored.read) <= 1 + 21 + 30
    assert stored.most <= 21 + 30


@pytest.mark.parametrize("narrow", [True, False])
def test_a_narrow_head_learns_like_a_wide_one(rng: np.random.Generator, narrow: bool) -> None:
    """600 features that are turned blobs: 256 components hold all there is to see."""
    features, classes = blobs(rng)
    turned = (features @ rng.normal(size=(24, 600)) / 24).astype(np.float32)
    known = some_known(classes, rng)
    settings = replace(QUICK, lr=3e-3, narrow=narrow)
    fitted = fit(PLAIN, "head", turned, known, settings, rng)
    assert fitted.encoder.dim == 600
    assert fitted.encoder.first_layer.weight.shape == (512, 600)
    rank = int(torch.linalg.matrix_rank(fitted.encoder.first_layer.weight.detach()))
    assert rank == (256 if narrow else 512)
    before = turned / np.linalg.norm(turned, axis=1, keepdims=True)
    vectors = head_vectors(fitted.encoder, turned)
    assert separation(vectors, classes) > separation(before, classes) + 0.2
