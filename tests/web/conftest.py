"""A campaign on the drawn archive, and the page that serves it without a machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from anneal.archive.catalog import open_archive
from anneal.campaign import turn
from anneal.campaign.campaign import Campaign
from anneal.settings import Settings
from served import Site, page_of


@pytest.fixture(scope="session")
def made(drawn: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("web") / "campaign"
    settings = Settings(
        backbone="random:resnet-18", px=32, views=1, strategy="mgue", per_round=30, recheck=0, heldout=0.1
    )
    turn.begin(folder, open_archive(drawn, 32, cache), settings).close()
    return folder


@pytest.fixture
def campaign(made: Path, tmp_path: Path) -> Iterator[Campaign]:
    campaign = Campaign.open(Path(shutil.copytree(made, tmp_path / "c")))
    yield campaign
    campaign.close()


@pytest.fixture
def site(campaign: Campaign) -> Iterator[Site]:
    with page_of(campaign) as site:
        yield site
