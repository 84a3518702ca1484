"""On real images, where there are any: UC-Merced, and the paper's weights."""

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
def real(data: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest of ten classes, 24 images each."""
    root = data / "UCMerced"
    folders = sorted(folder for folder in root.iterdir() if folder.is_dir())[::2][:10]
    lines = [f"{path},{folder.name}" for folder in folders for path in sorted(folder.glob("*.jpg"))[:24]]
    manifest = tmp_path_factory.mktemp("real") / "manifest.csv"
    manifest.write_text("path,class\n" + "\n".join(lines) + "\n")
    return manifest


def test_uc_merced_is_read_whole_and_its_duplicate_found(data: Path, cache: Path) -> None:
    archive = open_archive(data / "UCMerced", 16, cache)
    assert len(archive) == 2100
    assert len(set(archive.labels)) == 21
    assert archive.skipped == ()
    twins = [[archive.paths[i] for i in group] for group in archive.duplicates]
    assert twins == [["airplane/airplane01.jpg", "airplane/airplane02.jpg"]]


@pytest.mark.parametrize("name", ["efficientnet-lite0", "weights/resnet-18"])
def test_a_short_campaign_from_no_labels_beats_the_frozen_features(
    real: Path, data: Path, cache: Path, tmp_path: Path, name: str
) -> None:
    folder = str(data.parent / name) if "/" in name else name
    plan = Plan(backbone=folder, px=96, per_round=60, seed=1)
    stage = Stage.of(open_archive(real, plan.px, cache), backbones.load(folder), plan)
    rows = play.simulate(stage, Simulation(plan, ("place",), rounds=3, trials=2), tmp_path)
    about = json.loads((tmp_path / "run.json").read_text())
    frozen = sum(scores["map5_min"] for scores in about["frozen"]) / 2
    last = sum(row["map5_min"] for row in rows if row["round"] == 3) / 2
    assert last > frozen + 0.05
