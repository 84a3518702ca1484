"""The model, Qdrant and the report: what users of each find there."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import rasterio
import torch
from qdrant_client import QdrantClient
from rasterio import Affine
from transformers import AutoModel

from anneal.campaign import turn as machine
from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import FROZEN
from anneal.errors import AnnealError, UsageError
from anneal.export import model, qdrant
from anneal.export.images import Catalogue
from anneal.export.report import write_report
from anneal.network import backbones, encode
from anneal.network import model as networks
from anneal.network.backbones import Backbone
from anneal.network.train import Fit
from anneal.settings import Settings
from export.located import NAMED, footprint


def run(file: Path, campaign: Campaign) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"pixels": np.array(campaign.archive().pixels[:6])})
    return np.asarray(found)


@pytest.mark.usefixtures("quick_network")
def test_the_onnx_model_gives_the_campaign_s_vectors(
    campaign: Campaign, shrunk: Backbone, tmp_path: Path
) -> None:
    written = model.write_model(campaign, tmp_path)
    assert written == ["model.safetensors", "model.json", "network.onnx", "transformers"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(written)
    vectors = np.array(campaign.rounds.vectors()[:6])
    assert np.abs(run(tmp_path / "network.onnx", campaign) - vectors).max() < 1e-4
    about = json.loads((tmp_path / "model.json").read_text())
    assert (about["backbone"], about["px"], about["views"]) == ("random:resnet-18", 32, 2)
    assert about["space"] == "head"
    loaded = networks.load(tmp_path, shrunk)
    pixels = np.array(campaign.archive().pixels[:6])
    assert encode.query(pixels, shrunk, "head", loaded, views=2) == pytest.approx(vectors, abs=1e-4)


def test_a_model_of_many_bands_takes_as_many(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    (tmp_path / "images").mkdir()
    for number in range(6):
        bands = rng.integers(0, 3000, (5, 32, 32)).astype(np.uint16)
        profile = {"driver": "GTiff", "width": 32, "height": 32, "count": 5, "dtype": "uint16"}
        profile |= {"crs": "EPSG:4326", "transform": Affine(1e-4, 0, 10, 0, -1e-4, 50)}
        with rasterio.open(tmp_path / "images" / f"{number}.tif", "w", **profile) as file:
            file.write(bands)
    settings = Settings(backbone="random:resnet-18", px=32, views=1, bands="all")
    with closing(machine.create(tmp_path / "images", tmp_path / "c", settings)) as campaign:
        written = model.write_model(campaign, tmp_path / "model")
        assert written == ["model.json", "network.onnx"]  # no folder of transformers: it takes three bands
        assert campaign.archive().pixels.shape == (6, 32, 32, 5)
        found = run(tmp_path / "model" / "network.onnx", campaign)
        assert np.abs(found - campaign.rounds.vectors(FROZEN)[:6]).max() < 1e-4


def test_a_trained_last_stage_is_in_the_transformers_folder(learnt: Path, tmp_path: Path) -> None:
    with closing(Campaign.open(learnt)) as first:
        settings = replace(first.settings, depth="last", views=1)
        archive = first.archive()
    with closing(machine.begin(tmp_path / "c", archive, settings)) as campaign:
        for a, b, verdict in ((0, 1, 1), (5, 6, 1), (0, 5, 2)):
            campaign.answer(a, b, verdict)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Fit, "at", lambda depth, recipe, **more: Fit(steps=3, lr=0.01, **more))
            machine.turn(campaign)
        model.write_model(campaign, tmp_path / "out")
        vectors = np.array(campaign.rounds.vectors()[:6])
        assert np.abs(run(tmp_path / "out" / "network.onnx", campaign) - vectors).max() < 2e-3
        pixels = torch.from_numpy(np.array(archive.pixels[:2]))
    encoder = networks.load(tmp_path / "out", backbones.load("random:resnet-18"))
    backbone = backbones.load(str(tmp_path / "out" / "transformers"))
    trained = encoder.tail.state_dict()
    untrained = backbones.load("random:resnet-18").upper.state_dict()
    assert all(torch.equal(backbone.upper.state_dict()[name], trained[name]) for name in trained)
    assert any(not torch.equal(untrained[name], trained[name]) for name in trained)
    network = AutoModel.from_pretrained(tmp_path / "out" / "transformers").eval()
    with torch.inference_mode():
        normalised = backbone.normalise(pixels)
        features, _ = encoder(backbones.load("random:resnet-18").lower(normalised))  # type: ignore[misc]
        pooled = network(normalised).pooler_output.flatten(1)
    assert pooled.numpy() == pytest.approx(features.numpy(), abs=1e-4)


def test_the_last_stage_of_the_default_network_is_trained_and_exported(learnt: Path, tmp_path: Path) -> None:
    with closing(Campaign.open(learnt)) as first:
        settings = replace(first.settings, backbone=backbones.DEFAULT, depth="last", views=1)
        archive = first.archive()
    with closing(machine.begin(tmp_path / "c", archive, settings)) as campaign:
        for a, b, verdict in ((0, 1, 1), (5, 6, 1), (0, 5, 2)):
            campaign.answer(a, b, verdict)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Fit, "at", lambda depth, recipe, **more: Fit(steps=3, lr=0.01, **more))
            encoder = machine.turn(campaign).fitted.encoder
        assert encoder.dim == 624
        untrained = backbones.load(backbones.DEFAULT).upper.state_dict()
        trained = encoder.tail.state_dict()
        assert any(not torch.equal(untrained[name], trained[name]) for name in trained)
        written = model.write_model(campaign, tmp_path / "out")
        assert written == ["model.safetensors", "model.json", "network.onnx"]
        vectors = np.array(campaign.rounds.vectors()[:6])
        assert np.abs(run(tmp_path / "out" / "network.onnx", campaign) - vectors).max() < 2e-3


@pytest.mark.usefixtures("quick_network")
def test_before_the_first_round_the_frozen_network_is_exported(learnt: Path, tmp_path: Path) -> None:
    with closing(Campaign.open(shutil.copytree(learnt, tmp_path / "c"))) as campaign:
        campaign.store.db.execute("DELETE FROM rounds")
    with closing(Campaign.open(tmp_path / "c")) as campaign:
        assert campaign.rounds.serving == FROZEN
        assert "model.safetensors" not in model.write_model(campaign, tmp_path / "out")
        found = run(tmp_path / "out" / "network.onnx", campaign)
        assert np.abs(found - campaign.rounds.vectors()[:6]).max() < 1e-4


@pytest.mark.usefixtures("quick_network")
def test_a_model_that_gives_other_vectors_is_not_written(learnt: Path, tmp_path: Path) -> None:
    with closing(Campaign.open(shutil.copytree(learnt, tmp_path / "c"))) as campaign:
        files = campaign.rounds.files(campaign.rounds.serving)
        files.save_space(np.array(campaign.rounds.vectors())[::-1], np.empty((0, 6), dtype=np.int64))
    with closing(Campaign.open(tmp_path / "c")) as campaign:
        with pytest.raises(AnnealError, match="gives other vectors"):
            model.write_model(campaign, tmp_path / "out")
        assert not (tmp_path / "out" / "network.onnx").exists()


# -- Qdrant --------------------------------------------------------------------------------------------


def test_vectors_go_to_qdrant_and_can_be_sent_again(
    campaign: Campaign, catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qdrant, "BATCH", 7)
    space = campaign.rounds.vectors()
    address = f"qdrant://{tmp_path / 'db'}/scenes"
    told: list[int] = []

    def stop(done: int, total: int) -> None:
        told.append(done)
        if done > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        qdrant.send(catalogue, space, campaign.images, address, stop)
    assert told == [7, 14, 21]
    assert qdrant.send(catalogue, space, campaign.images, address) == 40
    with closing(QdrantClient(path=str(tmp_path / "db"))) as client:
        assert client.count("scenes").count == 40
        hits = client.query_points("scenes", query=space[7].tolist(), limit=6).points
        assert [hit.id for hit in hits] == np.argsort(-(space @ space[7]), kind="stable")[:6].tolist()
        (point,) = client.retrieve("scenes", [1], with_payload=True)
    assert point.payload is not None
    assert point.payload["path"] == campaign.archive().paths[1]
    assert (point.payload["group"], point.payload["how"]) == (NAMED, "settled")
    assert point.payload["footprint"] == footprint(1)
    assert point.payload["centre"]["lon"] == pytest.approx(10.025)


@pytest.mark.parametrize(
    "address", ["qdrant://", "http://host/c", "qdrant://host:x/c", "qdrant://host", "scenes"]
)
def test_a_wrong_address_is_a_sentence(catalogue: Catalogue, address: str) -> None:
    with pytest.raises(UsageError, match="is not an address"):
        qdrant.send(catalogue, np.eye(4), np.arange(4), address)


def test_a_collection_of_other_vectors_and_a_server_that_is_not_there_are_named(
    campaign: Campaign, catalogue: Catalogue, tmp_path: Path
) -> None:
    address = f"qdrant://{tmp_path / 'db'}/scenes"
    qdrant.send(catalogue, np.eye(4), np.arange(4), address)
    with pytest.raises(UsageError, match="holds other vectors"):
        qdrant.send(catalogue, campaign.rounds.vectors(), campaign.images, address)
    with pytest.raises(AnnealError, match="see that Qdrant runs"):
        qdrant.send(catalogue, np.eye(4), np.arange(4), "qdrant://127.0.0.1:9/scenes")


# -- the report ----------------------------------------------------------------------------------------


def test_the_report_stands_alone(campaign: Campaign, catalogue: Catalogue, tmp_path: Path) -> None:
    write_report(campaign, catalogue, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert re.findall(r'(?:src|href)="(?!data:image/jpeg;base64,)', text) == []
    assert "url(" not in text
    assert "<script" not in text
    assert NAMED in text
    assert text.count("data:image/jpeg") == 24
    assert text.count("<polygon") == 39
    assert "39 of 39 images with coordinates" in text
    assert len(text) < 200_000
