"""On real images, if they are there: UC-Merced, and the paper's weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from anneal.archive.catalog import open_archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import FROZEN
from anneal.campaign.turn import begin
from anneal.campaign.update import update
from anneal.experiments.oracle import Oracle, score, split_of
from anneal.experiments.play import Player, play
from anneal.network import backbones
from anneal.settings import Settings


@pytest.fixture(scope="session")
def real(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest of ten classes with 24 images each."""
    root = data / "UCMerced"
    folders = sorted(folder for folder in root.iterdir() if folder.is_dir())[::2][:10]
    lines = ["path,class"]
    for folder in folders:
        lines.extend(f"{path},{folder.name}" for path in sorted(folder.glob("*.jpg"))[:24])
    manifest = tmp_path_factory.mktemp("real") / "manifest.csv"
    manifest.write_text("\n".join(lines) + "\n")
    return manifest


def test_uc_merced_is_read_whole_with_its_one_duplicate(data: Path, cache: Path) -> None:
    archive = open_archive(data / "UCMerced", 16, cache)
    assert len(archive) == 2100
    assert len(set(archive.labels)) == 21
    assert archive.skipped == ()
    duplicates = [[archive.paths[i] for i in group] for group in archive.duplicates]
    assert duplicates == [["airplane/airplane01.jpg", "airplane/airplane02.jpg"]]


@pytest.mark.parametrize("name", [backbones.DEFAULT, "weights/resnet-18"])
def test_a_short_campaign_without_labels_beats_the_frozen_features(
    real: Path, data: Path, cache: Path, tmp_path: Path, name: str
) -> None:
    weights = str(data.parent / name) if "/" in name else name
    settings = Settings(backbone=weights, px=96, per_round=60, seed=1)
    archive = open_archive(real, settings.px, cache)
    backbone = backbones.load(weights)
    split = split_of(archive, settings.seed)
    player = Player(settings, rounds=2)
    campaign = player.open(tmp_path, archive, split, backbone)
    records = list(play(campaign, player, Oracle.of(archive), split, backbone))
    frozen = score(campaign.rounds.vectors(FROZEN), split, archive.classes)
    assert records[-1].curve is not None
    assert records[-1].curve["map5_min"] > frozen["map5_min"] + 0.08
    campaign.close()


def test_files_that_are_added_one_by_one_have_the_vectors_they_have_at_once(
    data: Path, tmp_path: Path
) -> None:
    folders = [data / "UCMerced" / kind for kind in ("beach", "forest", "harbor")]
    files = [path for folder in folders for path in sorted(folder.iterdir())[:4]]
    photos = tmp_path / "photos"
    backbone = backbones.load(backbones.DEFAULT)
    settings = Settings(px=96, per_round=8)

    def begun(folder: Path) -> Campaign:
        return begin(folder, open_archive(photos, 96, folder / "cache"), settings, backbone=backbone)

    for number, file in enumerate(files):
        (photos / file.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, photos / file.parent.name)
        if number == 4:
            grown = begun(tmp_path / "grown")
        if number > 4:
            assert update(grown, backbone=backbone).new == 1
    whole = begun(tmp_path / "whole")
    order = [whole.archive().paths.index(path) for path in grown.archive().paths]
    np.testing.assert_allclose(grown.rounds.vectors(), whole.rounds.vectors()[order], atol=1e-5)
    assert len(grown.images) == len(files)
    grown.close()
    whole.close()
