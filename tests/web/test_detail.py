"""Rasters on the page: other bands, full detail by windows, and the proportions of small pictures."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rasterio
from axe_playwright_python.sync_playwright import Axe
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from anneal.archive.catalog import open_archive
from anneal.archive.reading import Reading
from anneal.campaign import turn
from anneal.campaign.campaign import Campaign
from anneal.settings import Settings
from served import PATIENCE, Site, page_of

pytestmark = pytest.mark.xdist_group("processes")
WIDE, HIGH = 2400, 1200


@pytest.fixture(scope="module")
def rasters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign on four scenes of five bands. In the infrared there are stripes of two pixels."""
    folder = tmp_path_factory.mktemp("rasters")
    y, x = np.mgrid[:HIGH, :WIDE]
    levels = (500 + x % 700, 800 + y % 500, 1000 + (x + y) % 900, 3000 + 1000 * (x // 2 % 2), 400 + x // 8)
    values = np.stack(levels).astype(np.uint16)
    values[:, :300, :300] = 0
    shape = {"count": 5, "height": HIGH, "width": WIDE, "dtype": "uint16", "nodata": 0, "tiled": True}
    place = rasterio.Affine(10, 0, 500_000, 0, -10, 5_200_000)
    (folder / "in").mkdir()
    for i in range(4):
        file = folder / "in" / f"{i}.tif"
        with rasterio.open(file, "w", driver="GTiff", crs="EPSG:32632", transform=place, **shape) as out:
            out.write(np.roll(values, 100 * i, axis=2))
            out.descriptions = ("blue", "green", "red", "nir", "swir")
    settings = Settings(
        backbone="random:resnet-18", px=32, views=1, strategy="mgue", per_round=5, recheck=0, heldout=0.0
    )
    reading = Reading.of(settings)
    archive = open_archive(folder / "in", 32, folder / "campaign" / "cache", reading=reading)
    turn.begin(folder / "campaign", archive, settings).close()
    return folder / "campaign"


@pytest.fixture
def site(rasters: Path) -> Iterator[Site]:
    campaign = Campaign.open(rasters)
    with page_of(campaign) as site:
        yield site
    campaign.close()


def picture(site: Site, path: str) -> NDArray[np.uint8]:
    reply = site("GET", path)
    assert reply.status == 200, reply.body
    with Image.open(io.BytesIO(reply.body)) as image:
        return np.asarray(image.convert("RGB"))


def test_a_region_is_read_from_the_source_at_full_detail(site: Site) -> None:
    about = site.get("/api/images/0/about")
    assert (about["width"], about["height"]) == (WIDE, HIGH)
    assert about["bands"] == ["blue", "green", "red", "nir", "swir"]
    assert len(about["footprint"]) == 4
    region = picture(site, "/api/images/0/region?x=1000&y=600&w=64&h=32&width=64&bands=nir")
    assert region.shape == (32, 64, 3)
    stripes = region[16, :, 0].astype(int).reshape(-1, 2).mean(axis=1)
    assert np.abs(np.diff(stripes)).min() > 100, "two pixels of the source are two pixels of the picture"
    assert picture(site, "/api/images/0/region?x=0&y=0&w=2400&h=1200&width=300").shape == (150, 300, 3)
    far = ("x=2390&y=0&w=64&h=32", "x=0&y=0&w=64&h=32&width=99999")
    for wrong in (*far, "x=-1&y=0&w=4&h=4", "x=0&y=0&w=0&h=1"):
        assert site("GET", f"/api/images/0/region?{wrong}").status == 422, wrong
    assert site("GET", "/api/images/9/region?x=0&y=0&w=4&h=4").status == 404


def test_other_bands_are_shown_on_demand_and_kept_apart(site: Site) -> None:
    natural = picture(site, "/api/images/1")
    infrared = picture(site, "/api/images/1?bands=nir,red,green")
    assert natural.shape == infrared.shape == (512, 1024, 3)
    assert np.abs(natural.astype(int) - infrared).mean() > 20
    np.testing.assert_array_equal(picture(site, "/api/images/1"), natural)
    refused = site("GET", "/api/images/1?bands=thermal")
    assert refused.status == 422
    assert "it has no band thermal: its bands are 1 blue, 2 green, 3 red" in refused.json["detail"]
    assert site("GET", "/api/images/1?bands=../x").status == 422
    texts = [one["text"] for one in site.get("/api/reading")["choices"]]
    assert texts[:2] == ["natural colour", "infrared, red, green"]


def test_thumbnails_keep_their_proportions_and_no_data_is_grey(site: Site) -> None:
    small = picture(site, "/api/thumbs/0")
    assert small.shape == (160, 320, 3)
    assert np.abs(small[5:30, 5:30].astype(int) - 128).max() < 8


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(site.address)
    page.wait_for_selector('body:not([data-pair=""])')
    yield page
    context.close()
    assert wrong == []


def sources(page: Page, selector: str) -> list[str]:
    return [str(image.get_attribute("src")) for image in page.query_selector_all(selector)]


def test_zooming_shows_the_source_at_full_detail(page: Page) -> None:
    for _ in range(8):
        page.keyboard.press("+")
    expect(page.locator(".pane .detail")).to_have_count(2)
    for address in sources(page, ".pane .detail"):
        assert "/region?" in address
        assert "&w=2400" not in address, "only what is seen is read"
    page.keyboard.press("0")
    expect(page.locator(".pane .detail")).to_have_count(0)


def test_a_person_chooses_other_bands(page: Page) -> None:
    before = sources(page, ".pane img")
    page.select_option("#bands", label="infrared, red, green")
    expect(page.locator("#stage")).not_to_have_class("loading")
    after = sources(page, ".pane img")
    assert [address.split("&bands=")[0] for address in after] == before
    assert all(address.endswith("&bands=4%2C3%2C2") for address in after)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.focus("#label")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tally")).to_have_attribute("data-answers", "1")
