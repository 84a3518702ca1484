"""The network: its first geometry, the pair classifier, every depth trained, saved and loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from anneal.archive.catalog import open_archive
from anneal.errors import CampaignError
from anneal.method.relations import full
from anneal.network import backbones, encode, model
from anneal.network.model import Encoder, PairClassifier, Shape
from anneal.network.train import Fit, fit
from anneal.pairs import Pairs
from blobs import PLAIN, answered, blobs, head_vectors


def test_an_anchored_head_starts_from_the_frozen_geometry(rng: np.random.Generator) -> None:
    features, _ = blobs(rng)
    encoder = Encoder(PLAIN, "head", 24, Shape(32, 24))
    encoder.settle(torch.from_numpy(features))
    near = head_vectors(encoder, features)
    torch.nn.init.zeros_(encoder.head[2].weight)  # type: ignore[arg-type]
    torch.nn.init.zeros_(encoder.head[2].bias)  # type: ignore[arg-type]
    vectors = head_vectors(encoder, features)
    rows = features / np.linalg.norm(features, axis=1, keepdims=True)
    rows = rows - rows.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors @ vectors.T, rows @ rows.T, atol=1e-5)
    assert np.corrcoef((near @ near.T).ravel(), (rows @ rows.T).ravel())[0, 1] > 0.5


def test_a_narrow_twin_and_its_wide_encoder_agree(rng: np.random.Generator) -> None:
    torch.manual_seed(0)
    features = torch.from_numpy(rng.normal(size=(40, 600)).astype(np.float32))
    encoder = Encoder(PLAIN, "head", 600, Shape(8, 256))
    encoder.settle(features)
    both = model.narrowed(encoder)
    assert both is not None
    twin, basis = both
    torch.testing.assert_close(basis.T @ basis, torch.eye(256), atol=1e-5, rtol=0)
    for parameter in twin.parameters():
        parameter.data.add_(0.01 * torch.randn_like(parameter))
    model.widen(twin, basis, encoder)
    on_basis = twin((features - encoder.mean) / encoder.std @ basis, 0.0, encoder.anchor(features))[1]
    torch.testing.assert_close(encoder(features)[1], on_basis, atol=1e-5, rtol=0)
    assert encoder.state_dict().keys() == twin.state_dict().keys()


def test_only_a_head_much_wider_than_its_anchor_is_narrowed() -> None:
    assert model.narrowed(Encoder(PLAIN, "head", 511, Shape(8, 256))) is None
    assert model.narrowed(Encoder(PLAIN, "head", 600, Shape(8, 16))) is None
    assert model.narrowed(Encoder(PLAIN, "head", 600, Shape(8, 256, anchored=False))) is None


def test_vectors_go_into_arrays_that_are_given(rng: np.random.Generator, tmp_path: Path) -> None:
    features, _ = blobs(rng, each=2000)
    encoder = Encoder(PLAIN, "head", 24, Shape(32, 16))
    encoder.settle(torch.from_numpy(features))
    on_disk = np.memmap(tmp_path / "head", dtype=np.float32, mode="w+", shape=(8000, 16))
    given = encode.vectors(encoder, PLAIN, features, ["head", "backbone"], out={"head": on_disk})
    assert given["head"] is on_disk
    made = encode.vectors(encoder, PLAIN, features, ["head"])
    np.testing.assert_array_equal(on_disk, made["head"])
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(given["backbone"], unit, atol=1e-6)


def test_the_pair_classifier_does_not_depend_on_order_and_its_scorer_agrees() -> None:
    torch.manual_seed(0)
    classifier = PairClassifier(6, (5, 4))
    z = torch.randn(7, 6)
    i, j = torch.triu_indices(7, 7, 1)
    logits = classifier(z, i, j)
    torch.testing.assert_close(logits, classifier(z, j, i))
    naive = []
    for u, v in zip(z[i], z[j], strict=True):
        both = []
        for pair in (torch.cat([u, v]), torch.cat([v, u])):
            hidden = torch.relu(classifier.first(pair * 6**0.5))
            both.append(classifier.last(torch.relu(classifier.second(hidden))))
        naive.append(torch.stack(both).mean())
    torch.testing.assert_close(logits, torch.stack(naive))
    probability = classifier.scorer(z.numpy())(np.arange(7), np.arange(7))
    np.testing.assert_allclose(probability[i, j], torch.sigmoid(logits).detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("depth", ["head", "last", "full"])
@pytest.mark.parametrize(
    "name", ["random:resnet-18", "random:efficientnet-lite0", f"random:{backbones.DEFAULT}"]
)
def test_every_depth_trains_and_loads_again_as_it_was_saved(
    drawn: Path, cache: Path, tmp_path: Path, depth: model.Depth, name: str, rng: np.random.Generator
) -> None:
    archive = open_archive(drawn, 32, cache)
    backbone = backbones.load(name)
    stored = encode.inputs(archive, backbone, depth)
    answers = answered(archive.classes, Pairs.of(rng.integers(0, 60, 40), rng.integers(60, 120, 40)))
    known = full(len(archive), answers).relations
    settings = replace(Fit.at(depth), steps=3, passes=0, batch=12)
    before = {key: value.clone() for key, value in backbone.upper.state_dict().items()}
    encoder = fit(backbone, depth, stored, known, settings, rng).encoder
    for key, value in backbone.upper.state_dict().items():
        assert torch.equal(value, before[key]), "training must not change the pretrained weights"
    space = encoder.space
    vectors = encode.vectors(encoder, backbone, stored[:8], [space])[space]
    assert vectors.shape[1] == (encoder.dim if depth == "full" else 256)
    model.save(tmp_path, encoder, {"note": "x"})
    assert {file.name for file in tmp_path.iterdir()} == {"model.safetensors", "model.json"}
    assert set(model.MODEL_FILES) == {"model.safetensors", "model.json"}
    again = encode.vectors(model.load(tmp_path, backbone), backbone, stored[:8], [space])[space]
    np.testing.assert_allclose(again, vectors, atol=1e-6)
    outside = encode.query(archive.pixels[:8], backbone, depth, encoder)
    np.testing.assert_allclose(outside, vectors, atol=2e-3)  # depth `last` stores half precision


def test_retrieval_drops_the_head_where_the_shape_says_so(drawn: Path, cache: Path) -> None:
    archive = open_archive(drawn, 32, cache)
    backbone = backbones.load("random:resnet-18")
    torch.manual_seed(0)
    encoder = model.Encoder(backbone, "last", 512, model.Shape(dropped=True)).eval()
    outside = encode.query(archive.pixels[:3], backbone, "last", encoder)
    expected = encode.query(archive.pixels[:3], backbone, "head", None, views=1)  # nothing was trained
    np.testing.assert_allclose(outside, expected, atol=1e-5)


def test_without_a_model_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="run a round first"):
        model.load(tmp_path, PLAIN)
