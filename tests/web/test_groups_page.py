"""The Groups view, and what can be done with hits: over HTTP, and in the real browser."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from anneal.campaign.campaign import Campaign
from anneal.campaign.groups import settled_classes
from anneal.pairs import Verdict
from served import Site, page_of, stored

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(900)]


def locate(campaign: Campaign) -> None:
    """Give the first 60 images a footprint. The list of files is this campaign's own."""
    listed = campaign.archive_folder / "pixels.jsonl"
    lines: list[list[Any]] = [json.loads(line) for line in listed.read_text().splitlines()]
    for image, line in enumerate(lines[:60]):
        x = 10 + image % 10 / 50
        y = -5 + image // 10 / 50
        line[5:] = [{"footprint": [[x, y], [x, y + 0.01], [x + 0.01, y + 0.01], [x + 0.01, y]]}]
    listed.write_text("".join(json.dumps(line) + "\n" for line in lines))


def group(campaign: Campaign) -> None:
    """Images 0, 1, 2, 3 in a chain; 15, 16; and 30, 31."""
    for a, b in ((0, 1), (1, 2), (2, 3), (15, 16), (30, 31)):
        campaign.answer(a, b, Verdict.SIMILAR)


def titles(campaign: Campaign) -> dict[str, list[int]]:
    return {one.title: one.images.tolist() for one in settled_classes(campaign)}


# -- over HTTP -----------------------------------------------------------------------------------------


def test_groups_are_listed_with_examples_and_predicted_members(site: Site, campaign: Campaign) -> None:
    assert site.get("/api/groups")["total"] == 0
    group(campaign)
    reply = site.get("/api/groups?limit=2")
    assert (reply["total"], reply["images"], reply["settled"]) == (3, 120, 8)
    assert reply["predicted"] == 112
    assert [one["title"] for one in reply["groups"]] == ["group 0", "group 15"]
    first = reply["groups"][0]
    assert [image["id"] for image in first["examples"]] == [0, 1, 2, 3]
    scores = [image["score"] for image in first["surest"]]
    assert scores == sorted(scores, reverse=True)
    assert [one["title"] for one in site.get("/api/groups?offset=2")["groups"]] == ["group 30"]
    none = site.get("/api/groups?least=1")
    assert none["predicted"] <= reply["predicted"]
    inside = site.get("/api/groups/15")
    assert [image["id"] for image in inside["settled"]] == [15, 16]
    assert len(inside["predicted"]) == reply["groups"][1]["predicted"]
    assert site("GET", "/api/groups/7").status == 404


def test_a_group_is_named_merged_and_split_by_events(site: Site, campaign: Campaign) -> None:
    group(campaign)
    named = site("PUT", "/api/groups/name", {"images": [0], "name": " dunes ", "annotator": "ann"})
    assert named.json == {"name": "dunes"}
    assert site.get("/api/groups")["groups"][0]["name"] == "dunes"
    plan = site("POST", "/api/groups/split", {"images": [1]}).json
    assert plan == {"withdrawn": 2, "leaving": [1], "staying": [2, 1]}
    assert len(stored(campaign)) == 5, "a plan changes nothing"
    site("POST", "/api/groups/split", {"images": [3], "plan": False})
    assert titles(campaign)["dunes"] == [0, 1, 2]
    assert (0, 3, "dissimilar") in stored(campaign)
    site("POST", "/api/groups/merge", {"one": 15, "other": 30, "annotator": "ann"})
    assert titles(campaign)["group 15"] == [15, 16, 30, 31]
    assert campaign.log().rows[-1].annotator == "ann"
    assert site("POST", "/api/groups/split", {"images": [0, 15]}).status == 422
    assert site("PUT", "/api/groups/name", {"images": [999], "name": "x"}).status == 422


def test_images_are_found_by_name_and_downloaded(site: Site, campaign: Campaign) -> None:
    group(campaign)
    found = site.get("/api/find?name=HARBOUR_00&limit=4")
    assert found["total"] == 10
    assert [hit["name"] for hit in found["results"]] == [f"harbour/harbour_00{i}.jpg" for i in range(4)]
    assert site.get("/api/find?name=%25")["total"] == 0
    reply = site("GET", "/api/listing.csv?ids=0,50&least=1")
    assert "attachment" in reply.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(reply.body.decode())))
    assert [row["how"] for row in rows] == ["settled", ""]
    paths = site.get("/api/paths?ids=0,50")
    assert all(Path(path).is_file() for path in paths)
    assert site.get("/api/listing.geojson") == {"type": "FeatureCollection", "features": []}
    assert site.get("/api/map") == {"total": 0, "images": [], "titles": ["group 0", "group 15", "group 30"]}
    assert site("GET", "/api/listing.csv?ids=0,x").status == 422


# -- in the browser ------------------------------------------------------------------------------------


@pytest.fixture
def located(campaign: Campaign) -> Iterator[Site]:
    """The page of a campaign whose images have footprints."""
    kept = campaign.archive_folder / "pixels.jsonl"
    before = kept.read_bytes()
    group(campaign)
    locate(campaign)
    try:
        with closing(Campaign.open(campaign.folder)) as again, page_of(again) as site:
            yield site
    finally:
        kept.write_bytes(before)


@pytest.fixture
def page(browser: Browser, located: Site) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 360, "height": 740}, accept_downloads=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=located.address.rstrip("/"))
    with closing(context):
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(located.address)
        yield page
        assert errors == []


def no_violations(page: Page) -> None:
    report = Axe().run(page)
    assert [(one["id"], one["nodes"][0]["html"]) for one in report.response["violations"]] == []


def test_a_person_names_splits_and_merges_groups_by_keyboard(page: Page, campaign: Campaign) -> None:
    page.get_by_role("link", name="Groups").click()
    name = page.get_by_label("Name of group 0")
    name.fill("dunes")
    name.press("Enter")
    expect(page.get_by_label("Name of dunes")).to_be_focused()
    first = page.locator(".group").first
    first.locator("summary").press("Enter")
    first.get_by_label("Tick beach/beach_003.jpg").press("Space")
    first.get_by_role("button", name="Split off").press("Enter")
    expect(first.locator(".plan")).to_contain_text("1 answer is withdrawn. What leaves becomes a group of 1")
    expect(page.get_by_role("button", name="Do it")).to_be_focused()
    no_violations(page)
    page.keyboard.press("Enter")
    expect(page.locator(".group").first).to_contain_text("3 settled")
    assert titles(campaign)["dunes"] == [0, 1, 2]
    first.locator("summary").press("Enter")
    first.get_by_label("Group to merge dunes with").select_option("15")
    first.get_by_role("button", name="Merge").press("Enter")
    expect(page.locator(".group").first).to_contain_text("5 settled")
    assert titles(campaign) == {"dunes": [0, 1, 2, 15, 16], "group 30": [30, 31]}
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_cut_off_the_map_and_the_downloads_of_the_view(page: Page) -> None:
    page.get_by_role("link", name="Groups").click()
    expect(page.locator("#groups-status")).to_contain_text("3 groups: 8 images settled")
    page.locator("#least").press("End")
    expect(page.locator("#groups-status")).to_contain_text("0 predicted, 112 left out")
    page.locator("#groups-map summary").click()
    expect(page.locator("#groups-map polygon")).to_have_count(60)
    expect(page.locator("#groups-map text", has_text="10.1°E")).to_have_count(1)
    no_violations(page)
    for kind, rows in (("CSV", 121), ("GeoJSON", 62)):
        with page.expect_download() as download:
            page.get_by_role("link", name=f"Download {kind}").click()
        assert len(download.value.path().read_text().splitlines()) in (rows, 1)


def test_hits_are_selected_copied_downloaded_and_mapped(page: Page, campaign: Campaign) -> None:
    page.get_by_role("link", name="Search", exact=True).click()
    page.get_by_label("Find by name").fill("beach_00")
    expect(page.locator("#found li")).to_have_count(10)
    no_violations(page)
    page.locator("#found .thumb").nth(2).click()
    expect(page.locator("#results li")).to_have_count(60)
    ticks = page.locator("#results .tick input")
    ticks.nth(0).check()
    ticks.nth(3).check()
    expect(page.locator("#selected-count")).to_have_text("2 images selected")
    ids = [int(page.locator("#results li").nth(i).get_attribute("data-image") or "") for i in (0, 3)]
    page.get_by_role("button", name="Copy paths").click()
    expect(page.locator("#selected-count")).to_have_text("2 paths copied")
    copied = page.evaluate("() => navigator.clipboard.readText()").split("\n")
    assert copied == [str(campaign.archive().file(image).absolute()) for image in ids]
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV", exact=True).click()
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert [row["path"] for row in rows] == [campaign.archive().paths[image] for image in ids]
    page.locator("#hits-map summary").click()
    assert page.locator("#hits-map polygon").count() > 10
    page.get_by_role("button", name="Select all shown").click()
    expect(page.locator("#selected-count")).to_have_text("60 images selected")
    no_violations(page)
