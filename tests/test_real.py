"""On real images, if they are there: UC-Merced, and the paper's weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anneal.archive.catalog import open_archive
from anneal.experiments import play
from anneal.experiments.play import Simulation, Stage
from anneal.network import backbones
from anneal.settings import Plan


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


@pytest.mark.parametrize("name", ["efficientnet-lite0", "weights/resnet-18"])
def test_a_short_campaign_without_labels_beats_the_frozen_features(
    real: Path, data: Path, cache: Path, tmp_path: Path, name: str
) -> None:
    backbone = str(data.parent / name) if "/" in name else name
    plan = Plan(backbone=backbone, px=64, per_round=70, seed=1)
    stage = Stage.of(open_archive(real, plan.px, cache), backbones.load(backbone), plan)
    rows = play.simulate(stage, Simulation(plan, ("place",), rounds=2, trials=1), tmp_path)
    about = json.loads((tmp_path / "run.json").read_text())
    frozen = about["frozen"][0]["map5_min"]
    last = next(row["map5_min"] for row in rows if row["round"] == 2)
    assert last > frozen + 0.08
