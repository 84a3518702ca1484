"""A campaign that has learnt, on drawn scenes with footprints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anneal.archive.catalog import open_archive
from anneal.campaign import turn as machine
from anneal.campaign.campaign import Campaign
from anneal.campaign.groups import give_name
from anneal.experiments import scenes
from anneal.export.images import Catalogue
from anneal.network import backbones
from anneal.network.backbones import Backbone
from anneal.network.train import Fit
from anneal.pairs import Verdict
from anneal.settings import Settings
from export.located import NAMED, PER_KIND, locate


@pytest.fixture(scope="session")
def learnt(tmp_path_factory: pytest.TempPathFactory, shrunk: Backbone) -> Path:
    """40 images of 8 kinds. Image 39 has no footprint; each kind has a group of 3, one of them a name."""
    folder = tmp_path_factory.mktemp("learnt")
    scenes.draw_archive(folder / "images", per_kind=PER_KIND, seed=1, px=48)
    archive = open_archive(folder / "images", 32, folder / "c" / "cache")
    settings = Settings(backbone="random:resnet-18", px=32, views=2, per_round=16, heldout=0.1, recheck=0)
    with closing(machine.begin(folder / "c", archive, settings, backbone=shrunk)) as campaign:
        locate(archive.folder, without=39)
        for first in range(0, 40, PER_KIND):
            campaign.answer(first, first + 1, Verdict.SIMILAR, "ann")
            campaign.answer(first + 1, first + 2, Verdict.SIMILAR)
            campaign.answer(first, (first + PER_KIND) % 40, Verdict.DISSIMILAR)
        give_name(campaign, [1], NAMED)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Fit, "at", lambda depth, recipe, **more: Fit(steps=4, anchored_images=8, **more))
            machine.turn(campaign, shrunk)
    return folder / "c"


@pytest.fixture
def campaign(learnt: Path) -> Iterator[Campaign]:
    """To be read only."""
    with closing(Campaign.open(learnt)) as campaign:
        yield campaign


@pytest.fixture
def catalogue(campaign: Campaign) -> Catalogue:
    return Catalogue.of(campaign)


@pytest.fixture
def quick_network(shrunk: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network of the campaign above, whichever is named."""
    monkeypatch.setattr(backbones, "load", lambda name, device="auto": shrunk)
