"""Training: what a batch holds, that seeds decide, that the three depths learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from anneal.archive.catalog import open_archive
from anneal.campaign import turn
from anneal.errors import CampaignError, UsageError
from anneal.method.groups import spread
from anneal.method.neighbours import unit
from anneal.method.relations import full, none
from anneal.network import backbones, encode, model, train
from anneal.network.backbones import Backbone
from anneal.network.losses import held_back, pair_bce
from anneal.network.model import Encoder, PairClassifier, Shape
from anneal.network.train import Fit, batch, class_probabilities, fit
from anneal.pairs import Answers, Floats, Pairs, Verdict
from anneal.settings import Plan

PLAIN = Backbone("none", torch.nn.Identity(), torch.nn.Identity(), (0.0,), (1.0,))
QUICK = Fit(steps=60, batch=32, held=16)


def blobs(rng: np.random.Generator, kinds: int = 4, each: int = 12) -> tuple[Floats, np.ndarray]:
    """Features in which two of every three directions are noise, so that there is something to learn."""
    classes = np.repeat(np.arange(kinds), each)
    centres = rng.normal(size=(kinds, 8))
    noise = rng.normal(size=(len(classes), 16)) * 3
    features = np.concatenate([centres[classes] + 0.3 * rng.normal(size=(len(classes), 8)), noise], axis=1)
    return features.astype(np.float32), classes


def answered(classes: np.ndarray, pairs: Pairs) -> Answers:
    same = classes[pairs.a] == classes[pairs.b]
    return Answers.of(pairs, np.where(same, Verdict.SIMILAR, Verdict.DISSIMILAR))


def some_answers(classes: np.ndarray, rng: np.random.Generator, n: int = 120) -> Answers:
    i, j = rng.integers(len(classes), size=(2, n))
    return answered(classes, Pairs.of(i[i != j], j[i != j]))


def separation(vectors: Floats, classes: np.ndarray) -> float:
    """Mean similarity within classes minus between them."""
    s, same = vectors @ vectors.T, classes[:, None] == classes[None, :]
    return float(s[same].mean() - s[~same].mean())


def test_a_batch_holds_every_known_image_while_they_are_few(rng: np.random.Generator) -> None:
    known = full(10, answered(np.array([0, 0, 1, 1, 0, 0, 0, 0, 0, 0]), Pairs.of([0, 2], [1, 1]))).relations
    assert batch(known, 384, rng).tolist() == [0, 1, 2]


def test_a_large_batch_brings_similar_partners(rng: np.random.Generator) -> None:
    """400 groups of two: drawn evenly, 64 images would hold two or three similar pairs."""
    known = full(800, Answers.of(Pairs.of(np.arange(400), np.arange(400) + 400), np.ones(400))).relations
    drawn = batch(known, 64, rng)
    assert len(drawn) == len(set(drawn.tolist())) <= 64
    assert all((i + 400) % 800 in drawn for i in drawn)


@pytest.mark.parametrize("loss", ["mix", "contrastive", "ntxent"])
@pytest.mark.parametrize("anchored", [True, False])
def test_training_separates_what_was_answered(rng: np.random.Generator, loss: str, anchored: bool) -> None:
    features, classes = blobs(rng)
    known = full(len(classes), some_answers(classes, rng)).relations
    settings = replace(QUICK, loss=loss, lr=3e-3)
    fitted = fit(PLAIN, "head", features, known, settings, rng, shape=Shape(32, 16, anchored))
    vectors = headed(fitted.encoder, PLAIN, features)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    before = features / np.linalg.norm(features, axis=1, keepdims=True)
    assert separation(vectors, classes) > separation(before, classes) + 0.2


def headed(encoder: Encoder, backbone: Backbone, kept: NDArray[Any]) -> Floats:
    """Every image as the head sees it."""
    return encode.vectors(encoder, backbone, kept, ["head"])["head"]


def test_the_seed_decides_the_weights(rng: np.random.Generator) -> None:
    features, classes = blobs(rng)
    known = full(len(classes), some_answers(classes, rng)).relations

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
    known = full(len(classes), some_answers(classes, rng)).relations
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit(PLAIN, "head", features, known, replace(QUICK, steps=2), rng)
    assert torch.equal(torch.rand(3), expected)


def test_an_anchored_head_starts_from_the_frozen_geometry(rng: np.random.Generator) -> None:
    features, _ = blobs(rng)
    encoder = Encoder(PLAIN, "head", 24, Shape(32, 24))
    encoder.settle(torch.from_numpy(features))
    near = headed(encoder, PLAIN, features)
    torch.nn.init.zeros_(encoder.head[2].weight)  # type: ignore[arg-type]
    torch.nn.init.zeros_(encoder.head[2].bias)  # type: ignore[arg-type]
    vectors = headed(encoder, PLAIN, features)
    rows = features / np.linalg.norm(features, axis=1, keepdims=True)
    rows = rows - rows.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors @ vectors.T, rows @ rows.T, atol=1e-5)
    assert np.corrcoef((near @ near.T).ravel(), (rows @ rows.T).ravel())[0, 1] > 0.5


def test_holding_keeps_images_nobody_asked_about_where_they_were(rng: np.random.Generator) -> None:
    features, classes = blobs(rng)
    known = full(48, answered(classes, Pairs.of([0, 1, 12, 24], [1, 12, 13, 25]))).relations

    def moved(hold: float) -> float:
        settings = replace(QUICK, hold=hold, lr=3e-3, noise=0.0)
        encoder = fit(PLAIN, "head", features, known, settings, np.random.default_rng(0)).encoder
        with torch.no_grad():
            x = torch.from_numpy(features)
            return float(held_back(encoder(x)[1], encoder.anchor(x)))

    assert moved(10.0) < moved(0.0) / 3


def test_who_knows_few_images_holds_the_rest_more_firmly() -> None:
    def hold(known: int, of: int) -> float:
        return Fit(hold=2.0).knowing(known, of).hold

    assert [hold(m, 5000) for m in (40, 80, 160, 5000)] == [32, 8, 2, 2]
    assert [hold(m, 100) for m in (10, 25, 50, 100)] == [50, 8, 2, 2]  # a small archive: half of it is a lot
    assert hold(0, 100) < np.inf
    assert Fit.at("full", "paper").knowing(1, 5000).hold == 0


def test_a_first_round_leaves_the_kinds_nobody_was_asked_about_nearer_to_where_they_were(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, classes = blobs(rng, kinds=8, each=40)
    asked = answered(classes, Pairs.of([0, 1, 40, 80], [1, 40, 41, 81]))

    def moved() -> float:
        taught = turn.learn(
            PLAIN, features, np.arange(320), asked, Plan(presume=0.0), np.random.default_rng(0)
        )
        with torch.no_grad():
            anchor = taught.fitted.encoder.anchor(torch.from_numpy(features))
        return float(held_back(torch.from_numpy(taught.vectors), anchor))

    firmly = moved()
    monkeypatch.setattr(train, "FEW", 0)
    assert firmly < moved() / 2


def test_what_the_frozen_features_tell_of_groups_is_handed_on_to_whoever_orders_images(
    rng: np.random.Generator,
) -> None:
    features, classes = blobs(rng)
    asked, frozen = answered(classes, Pairs.of([0, 1, 12, 24], [1, 12, 13, 25])), unit(features)

    def learnt(strategy: str) -> turn.Learned:
        plan = Plan(strategy=strategy, presume=0.0)
        return turn.learn(PLAIN, features, np.arange(48), asked, plan, rng, frozen=frozen)

    snapshot = learnt("place").snapshot
    assert snapshot.likely is not None
    expected = spread(frozen, np.arange(48), snapshot.known).share
    np.testing.assert_array_equal(snapshot.likely.share, expected)
    assert learnt("mgue").snapshot.likely is None  # nobody needs it


def test_nothing_known_is_said_in_a_sentence(rng: np.random.Generator) -> None:
    unsure = none(48, Answers.of(Pairs.of([0], [1]), [Verdict.UNSURE])).relations
    with pytest.raises(UsageError, match="no pair has been judged"):
        fit(PLAIN, "head", blobs(rng)[0], unsure, QUICK, rng)


def test_the_pair_classifier_is_order_free_and_its_scorer_agrees(rng: np.random.Generator) -> None:
    torch.manual_seed(0)
    classifier = PairClassifier(6, (5, 4))
    z = torch.randn(7, 6)
    i, j = torch.triu_indices(7, 7, 1)
    there, back = classifier(z, i, j), classifier(z, j, i)
    torch.testing.assert_close(there, back)
    naive = []
    for u, v in zip(z[i], z[j], strict=True):
        logits = [
            classifier.last(torch.relu(classifier.second(torch.relu(classifier.first(pair * 6**0.5)))))
            for pair in (torch.cat([u, v]), torch.cat([v, u]))
        ]
        naive.append(torch.stack(logits).mean())
    torch.testing.assert_close(there, torch.stack(naive))
    probability = classifier.scorer(z.numpy())(np.arange(7), np.arange(7))
    np.testing.assert_allclose(probability[i, j], torch.sigmoid(there).detach().numpy(), atol=1e-6)


def test_the_classifier_learns_what_was_answered(rng: np.random.Generator) -> None:
    features, classes = blobs(rng)
    known = full(len(classes), some_answers(classes, rng)).relations
    fitted = fit(PLAIN, "head", features, known, replace(QUICK, lr=3e-3), rng, pair_classifier=True)
    assert fitted.classifier is not None
    vectors = headed(fitted.encoder, PLAIN, features)
    every = np.arange(len(classes))
    probability = fitted.classifier.scorer(vectors)(every, every)
    same = classes[:, None] == classes[None, :]
    assert ((probability > 0.5) == same).mean() > 0.9


def test_the_softmax_learns_the_classes_it_was_given(rng: np.random.Generator) -> None:
    features, classes = blobs(rng)
    given = np.where(np.arange(48) % 2, classes, -1)
    known = full(48, answered(classes, Pairs.of(np.arange(1, 46, 2), np.arange(3, 48, 2)))).relations
    fitted = fit(PLAIN, "head", features, known, replace(QUICK, lr=3e-3), rng, classes=given)
    projected = headed(fitted.encoder, PLAIN, features)
    probability = class_probabilities(fitted, projected)
    np.testing.assert_allclose(probability.sum(axis=1), 1, atol=1e-5)
    assert (probability.argmax(axis=1) == classes)[given >= 0].all()


@pytest.mark.parametrize("depth", ["head", "last", "full"])
@pytest.mark.parametrize("name", ["random:resnet-18", "random:efficientnet-lite0"])
def test_every_depth_trains_and_comes_back_from_disk(
    drawn: Path, cache: Path, tmp_path: Path, depth: model.Depth, name: str, rng: np.random.Generator
) -> None:
    archive = open_archive(drawn, 32, cache)
    backbone = backbones.load(name)
    kept = encode.inputs(archive, backbone, depth)
    answers = answered(archive.classes, Pairs.of(rng.integers(0, 60, 40), rng.integers(60, 120, 40)))
    known = full(len(archive), answers).relations
    settings = replace(Fit.at(depth), steps=3, batch=12)
    before = {k: v.clone() for k, v in backbone.upper.state_dict().items()}
    encoder = fit(backbone, depth, kept, known, settings, rng).encoder
    for key, value in backbone.upper.state_dict().items():
        assert torch.equal(value, before[key]), "training must not touch the pretrained weights"
    space = model.searched(depth)
    vectors = encode.vectors(encoder, backbone, kept[:8], [space])[space]
    model.save(tmp_path, encoder, {"note": "x"})
    assert {f.name for f in tmp_path.iterdir()} == {"model.safetensors", "model.json"}
    again = encode.vectors(model.load(tmp_path, backbone), backbone, kept[:8], [space])[space]
    np.testing.assert_allclose(again, vectors, atol=1e-6)
    outside = encode.query(archive.pixels[:8], backbone, depth, encoder)
    np.testing.assert_allclose(outside, vectors, atol=2e-3)  # `last` keeps half precision
    assert vectors.shape[1] == (encoder.dim if depth == "full" else 256)


def test_a_model_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="run a round first"):
        model.load(tmp_path, PLAIN)


def test_the_frozen_part_is_computed_once_and_resumed(drawn: Path, cache: Path, tmp_path: Path) -> None:
    archive = replace(open_archive(drawn, 32, cache), folder=tmp_path)
    calls: list[int] = []

    class Counting(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(len(x))
            if sum(calls) > 150:
                raise KeyboardInterrupt
            return x.mean(dim=(2, 3))

    backbone = Backbone("counted", None, Counting(), (0.0,) * 3, (1.0,) * 3)
    with pytest.raises(KeyboardInterrupt):
        encode.inputs(archive, backbone, "head")
    assert calls == [1, 64, 64, 56]  # one image to learn the shape, two views of a batch, half of another
    calls.clear()
    kept = encode.inputs(archive, backbone, "head")
    assert calls == [1, 56, 56]
    calls.clear()
    np.testing.assert_array_equal(encode.inputs(archive, backbone, "head"), kept)
    assert calls == [1]
    expected = np.asarray(archive.pixels, dtype=np.float32).mean(axis=(1, 2)) / 255
    np.testing.assert_allclose(kept, expected, atol=1e-4)


def test_bce_is_balanced_and_has_its_minus() -> None:
    logits, similar = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([True, False, False])
    p = torch.sigmoid(logits)
    expected = (-p[0].log() + (-(1 - p[1]).log() - (1 - p[2]).log()) / 2) / 2
    torch.testing.assert_close(pair_bce(logits, similar), expected)


class Left(torch.nn.Module):
    """Sees only the left half: a quarter turn changes what it says."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :, :, : x.shape[3] // 2].mean(dim=(2, 3))


def test_features_are_the_mean_over_quarter_turns(drawn: Path, cache: Path, tmp_path: Path) -> None:
    archive = replace(open_archive(drawn, 32, cache), folder=tmp_path)
    backbone = Backbone("left", None, Left(), (0.0,) * 3, (1.0,) * 3)
    images = np.asarray(archive.pixels, dtype=np.float64) / 255
    once = images[:, :, :16].mean(axis=(1, 2))
    turned = np.rot90(images, 1, axes=(1, 2))[:, :, :16].mean(axis=(1, 2))
    assert np.abs(once - turned).max() > 0.1
    np.testing.assert_allclose(encode.inputs(archive, backbone, "head", views=1), once, atol=1e-5)
    both = encode.inputs(archive, backbone, "head", views=2)
    np.testing.assert_allclose(both, (once + turned) / 2, atol=1e-5)
    asked = encode.query(archive.pixels[:3], backbone, "head", None, views=2)
    np.testing.assert_allclose(asked, both[:3] / np.linalg.norm(both[:3], axis=1, keepdims=True), atol=1e-5)


def test_a_classifier_alone_learns_nothing_from_pairs(rng: np.random.Generator) -> None:
    """CAL as the paper has it: what pairs say about the same images makes no difference."""
    features, classes = blobs(rng)
    pairs = Pairs.of(np.arange(0, 46), np.arange(2, 48))
    seen = []
    for verdict in (Verdict.SIMILAR, Verdict.DISSIMILAR):
        known = none(48, Answers.of(pairs, np.full(len(pairs), verdict))).relations
        alike, short = np.random.default_rng(5), replace(QUICK, steps=3, batch=64)
        fitted = fit(PLAIN, "head", features, known, short, alike, classes=classes, metric=False)
        seen.append(headed(fitted.encoder, PLAIN, features))
    np.testing.assert_array_equal(seen[0], seen[1])


def test_a_warm_start_begins_where_the_last_training_ended(rng: np.random.Generator) -> None:
    features, classes = blobs(rng)
    known = full(len(classes), some_answers(classes, rng)).relations
    before = fit(PLAIN, "head", features, known, QUICK, rng).encoder
    still = replace(QUICK, steps=1, lr=0.0)
    after = fit(PLAIN, "head", features, known, still, rng, start=before).encoder
    np.testing.assert_array_equal(headed(after, PLAIN, features), headed(before, PLAIN, features))
    afresh = fit(PLAIN, "head", features, known, still, rng).encoder
    assert np.abs(headed(afresh, PLAIN, features) - headed(before, PLAIN, features)).max() > 0.1


def test_the_paper_s_recipe_is_the_paper_s() -> None:
    paper = Fit.at("full", "paper", loss="contrastive")
    assert (paper.epochs, paper.lr, paper.weight_decay, paper.loss) == (15, 1e-4, 0.0, "contrastive")
    assert not paper.decay
    known = full(300, Answers.of(Pairs.of(np.arange(0, 299), np.arange(1, 300)), np.ones(299))).relations
    assert paper.length(known) == 15 * -(-8 * 300 // 128), "44850 pairs follow, but eight an image are enough"
    few = none(300, Answers.of(Pairs.of(np.arange(0, 299), np.arange(1, 300)), np.ones(299))).relations
    assert paper.length(few) == 15 * 3, "299 pairs, 128 a step"
    assert Fit.at("head").length(known) == Fit.at("head").steps
    assert Fit.at("head").times(3).length(known) == 3 * Fit.at("head").steps


def test_a_batch_of_the_paper_s_recipe_holds_both_kinds(rng: np.random.Generator) -> None:
    """A ring of 300 images, neighbours similar, opposites dissimilar, nothing implied."""
    i = np.arange(300)
    pairs = Pairs.of(np.concatenate([i, i[:150]]), np.concatenate([(i + 1) % 300, i[:150] + 150]))
    verdicts = np.repeat([Verdict.SIMILAR, Verdict.DISSIMILAR], [300, 150])
    known = none(300, Answers.of(pairs, verdicts)).relations
    drawn = batch(known, 63, rng, Fit.at("full", "paper").partners)
    among = np.triu(known.among(drawn, drawn), 1)
    assert len(drawn) <= 63
    assert (among == Verdict.SIMILAR).sum() >= 15
    assert (among == Verdict.DISSIMILAR).sum() >= 15
