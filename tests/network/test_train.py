"""Training: what a batch holds, that the seed determines the result, that the networks learn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from anneal.errors import UsageError
from anneal.method.relations import full, none
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
    assert Fit.at("head").length(known) == Fit.at("head").steps
    assert Fit.at("head").times(3).length(known) == 3 * Fit.at("head").steps


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
