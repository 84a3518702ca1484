"""An archive that grows, moves and loses files, under a campaign that goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import SETTINGS, SHRUNK, answer_truly, pattern_archive

from anneal.archive.catalog import open_archive
from anneal.campaign import turn
from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import FROZEN
from anneal.campaign.update import Report, update
from anneal.network import encode
from anneal.network.train import Fit

EIGHT = replace(SETTINGS, per_round=8, heldout=0.25)


@pytest.fixture(scope="module")
def patterns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """72 images of six kinds. Copy them."""
    folder = tmp_path_factory.mktemp("patterns")
    pattern_archive(folder, kinds=6, each=12)
    return folder / "images"


@pytest.fixture
def photos(patterns: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(patterns, tmp_path / "photos"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fit, "length", lambda settings, known: 5)


def begun(photos: Path, folder: Path) -> Campaign:
    return turn.begin(folder, open_archive(photos, 32, folder / "cache"), EIGHT, backbone=SHRUNK)


@pytest.fixture
def campaign(photos: Path, tmp_path: Path) -> Iterator[Campaign]:
    """A campaign without the last two images of each kind, which wait in another folder, after one round."""
    for path in sorted(photos.glob("*/1[01].png")):
        aside = tmp_path / "aside" / path.parent.name
        aside.mkdir(parents=True, exist_ok=True)
        path.rename(aside / path.name)
    with closing(begun(photos, tmp_path / "c")) as made:
        answer_truly(made, 8)
        turn.turn(made, SHRUNK)
        yield made


def grow(campaign: Campaign) -> Report:
    return update(campaign, backbone=SHRUNK)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each run of the frozen part encodes, from now on."""
    runs: list[int] = []
    block = encode._block

    def noted(run: Any, pixels: Any, views: int, part: slice) -> Any:
        rows = block(run, pixels, views, part)
        runs.append(len(rows))
        return rows

    monkeypatch.setattr(encode, "_block", noted)
    return runs


def test_new_images_are_appended_and_nothing_else_is_encoded(
    campaign: Campaign, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (campaign.size, campaign.rounds.kept()) == (60, [FROZEN, 0])
    before = [np.array(campaign.rounds.vectors(model)) for model in (FROZEN, 0)]
    paths = campaign.archive().paths
    answers = campaign.log().standing()
    shutil.copytree(tmp_path / "aside", photos, dirs_exist_ok=True)
    runs = counted(monkeypatch)
    assert grow(campaign) == Report(new=12)
    assert sum(runs) == 12
    assert campaign.size == len(campaign.images) == 72
    assert campaign.archive().paths[:60] == paths
    for model, old in zip((FROZEN, 0), before, strict=True):
        vectors = campaign.rounds.vectors(model)
        np.testing.assert_array_equal(vectors[:60], old)
        pixels = np.asarray(campaign.archive().pixels[60:])
        np.testing.assert_allclose(
            vectors[60:], turn.encode_images(campaign, pixels, model, SHRUNK), atol=1e-6
        )
    assert campaign.log().standing() == answers
    assert grow(campaign) == Report()
    assert sum(runs) == 12
