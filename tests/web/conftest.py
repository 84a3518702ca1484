"""A campaign on the drawn archive, and the page that serves it without a machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from anneal.archive.catalog import open_archive
from anneal.campaign import turn
from anneal.campaign.campaign import Campaign
from anneal.settings import Settings
from served import PATIENCE, Site, page_of

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("a browser: install Chromium (Debian: apt-get install chromium) to test the page")
    expect.set_options(timeout=1000 * PATIENCE)
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, args=FLAGS)
        yield chromium
        chromium.close()


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


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page in a browser profile of its own. An error in its scripts fails the test."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def open_(address: str, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(1000 * PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert wrong == []
