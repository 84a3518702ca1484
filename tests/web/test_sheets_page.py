"""Sheets in a real browser: by keyboard, mouse and touch, undone, one by one, and a whole campaign."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import APIResponse, Page, Route, expect

from anneal.archive.catalog import open_archive
from anneal.campaign import turn
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import next_question
from anneal.method import sheets
from anneal.network import backbones
from anneal.pairs import Verdict
from anneal.settings import Settings
from scripted import Person
from served import label, page_of, wait_for

pytestmark = [
    pytest.mark.xdist_group("processes"),  # each test starts several: one after another
    pytest.mark.timeout(900),
]

SETTINGS = Settings(px=64, views=1, per_round=25, heldout=0.1, recheck=0.0)
Say = Callable[..., Page]


@pytest.fixture(scope="module", params=["pairs", "group"])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """Sheets of one kind only: of pairs, or of groups, which come while many answers are not similar."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "group":
            patch.setattr(sheets, "PAIRS", 1)
        patch.setattr(sheets, "MANY", 0.5 if request.param == "group" else -1)
        yield request.param


@pytest.fixture(scope="module")
def taught(kind: str, drawn: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign in which a sheet comes soon. Copy it."""
    folder = tmp_path_factory.mktemp("sheets") / "campaign"
    campaign = turn.begin(folder, open_archive(drawn, SETTINGS.px, cache), SETTINGS)
    backbone = backbones.load(SETTINGS.backbone)
    classes = campaign.archive().labels
    for _ in range(8):
        while question := next_question(campaign, "somebody"):
            a, b = question.pair
            verdict = Verdict.SIMILAR if classes[a] == classes[b] else Verdict.DISSIMILAR
            if question.sheet is not None:
                campaign.close()
                return folder
            campaign.answer(a, b, verdict, "somebody")
        turn.turn(campaign, backbone)
    raise AssertionError("no sheet came")


@pytest.fixture
def campaign(taught: Path, tmp_path: Path) -> Any:
    campaign = Campaign.open(Path(shutil.copytree(taught, tmp_path / "c")))
    campaign.store.lease([], "somebody", 0.0)
    yield campaign
    campaign.close()


def to_sheet(page: Page, classes: list[str]) -> Person:
    me = Person(page, classes)
    for _ in range(SETTINGS.per_round):
        wait_for(lambda: bool(me.shown()))
        if page.locator("#sheet").is_visible():
            return me
        me.act()
    raise AssertionError("no sheet came")


def on_sheets(campaign: Campaign) -> list[tuple[int, int, int]]:
    return [(row.a, row.b, row.verdict) for row in campaign.log().standing() if row.sheet is not None]


def marks_of(page: Page) -> list[str]:
    return [
        str(mark) for mark in page.locator(".tile").evaluate_all("all => all.map((one) => one.dataset.mark)")
    ]


def changed(marks: list[str], *at: int) -> list[str]:
    """The marks after these tiles were clicked."""
    other = {"similar": "dissimilar", "dissimilar": "similar"}
    return [other[mark] if index in at else mark for index, mark in enumerate(marks)]


def given(campaign: Campaign) -> list[str]:
    """The verdicts on sheets, in words."""
    return sorted(Verdict(verdict).name.lower() for *_, verdict in on_sheets(campaign))


def test_a_sheet_is_answered_by_keys_undone_and_answered_again(
    kind: str, campaign: Campaign, opened: Say
) -> None:
    already = campaign.log().given
    with page_of(campaign) as site:
        page = opened(site.address)
        me = to_sheet(page, [str(label) for label in campaign.archive().labels])
        wait_for(lambda: campaign.log().given == already + me.answers)
        presses = campaign.log().effort.presses
        sheet = me.shown()
        guessed = marks_of(page)
        page.keyboard.press("2")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Space")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("u")
        wanted = changed(guessed, 1, 2)
        wanted[3] = "unsure"
        assert marks_of(page) == wanted
        similar = wanted.count("similar")
        others = "marked" if kind == "group" else "not"
        expect(page.locator("#confirm-words")).to_have_text(
            f"{similar} similar, {len(wanted) - similar} {others}"
        )
        page.keyboard.press("Enter")
        wait_for(lambda: given(campaign) == sorted(wanted))
        rows = [row for row in campaign.log().standing() if row.sheet is not None]
        assert len({row.looked for row in rows}) == 1  # the time is shared out
        assert sorted(Verdict(row.guess or 0).name.lower() for row in rows) == sorted(guessed)
        assert campaign.log().effort.presses == presses + 4

        page.keyboard.press("Backspace")
        expect(page.locator("#question")).to_contain_text("Undone")
        assert me.shown() == sheet
        wait_for(lambda: on_sheets(campaign) == [])
        assert campaign.log().effort.presses == presses
        assert marks_of(page) == wanted  # as they were marked
        page.keyboard.press("2")
        page.keyboard.press("Enter")
        wait_for(lambda: given(campaign) == sorted(changed(wanted, 1)))


def test_a_sheet_is_answered_by_mouse_and_stays_when_the_page_is_loaded_again(
    kind: str, campaign: Campaign, opened: Say
) -> None:
    with page_of(campaign) as site:
        page = opened(site.address)
        me = to_sheet(page, [str(label) for label in campaign.archive().labels])
        sheet = me.shown()
        guessed = marks_of(page)
        images = page.locator(".tile img").count()
        assert images == len(guessed) * (1 if kind == "group" else 2)
        assert page.locator("#prototype").is_visible() == (kind == "group")
        page.reload()
        wait_for(lambda: me.shown() == sheet)
        assert marks_of(page) == guessed
        assert Axe().run(page).response["violations"] == []
        page.locator(".tile").nth(len(guessed) - 1).click()
        page.click("#confirm")
        wait_for(lambda: given(campaign) == sorted(changed(guessed, len(guessed) - 1)))


def test_a_phone_shows_every_tile_and_takes_touches(campaign: Campaign, opened: Say) -> None:
    with page_of(campaign) as site:
        page = opened(site.address, has_touch=True, viewport={"width": 360, "height": 740})
        to_sheet(page, [str(label) for label in campaign.archive().labels])
        guessed = marks_of(page)
        images = page.locator(".tile img")
        for index in range(images.count()):
            box = images.nth(index).bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 360
            assert box["width"] > 30
            assert box["height"] > 30
            assert box["y"] + box["height"] <= 740
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
        page.locator(".tile").nth(0).tap()
        page.locator("#confirm").tap()
        wait_for(lambda: given(campaign) == sorted(changed(guessed, 0)))


def test_a_sheet_can_be_asked_one_by_one_and_sheets_switched_off(campaign: Campaign, opened: Say) -> None:
    before = campaign.log().given
    with page_of(campaign) as site:
        page = opened(site.address)
        me = to_sheet(page, [str(label) for label in campaign.archive().labels])
        page.click("#singly")
        expect(page.locator("#sheet")).to_be_hidden()
        me.act()
        me.act()
        wait_for(lambda: campaign.log().given == before + me.answers)
        assert on_sheets(campaign) == []
        expect(page.locator("#sheet")).to_be_hidden()
        page.uncheck("#sheets input")
        wait_for(lambda: campaign.store.setting("sheets", None) == 0)
        expect(page.locator("#sheets input")).not_to_be_checked()
        page.check("#sheets input")
        wait_for(lambda: campaign.store.setting("sheets", None) == SETTINGS.sheets)


def test_a_state_that_was_on_its_way_does_not_switch_sheets_back(campaign: Campaign, opened: Say) -> None:
    with page_of(campaign) as site:
        page = opened(site.address)
        to_sheet(page, [str(label) for label in campaign.archive().labels])
        late: list[tuple[Route, APIResponse]] = []
        page.route("**/api/state*", lambda route: late.append((route, route.fetch())))
        while not late:
            page.wait_for_timeout(50)  # the page's requests are handled meanwhile
        page.uncheck("#sheets input")
        wait_for(lambda: campaign.store.setting("sheets", None) == 0)
        route, response = late[0]
        assert response.json()["sheets"]
        route.fulfill(response=response)
        page.wait_for_timeout(500)
        expect(page.locator("#sheets input")).not_to_be_checked()


def test_a_campaign_through_sheets_with_the_machine_and_slips(
    drawn: Path, cache: Path, tmp_path: Path, opened: Say
) -> None:
    """Nothing that was answered is lost, and every key press is counted once."""
    folder = tmp_path / "c"
    settings = Settings(px=64, views=1, per_round=25, heldout=0.1)
    turn.begin(folder, open_archive(drawn, settings.px, cache), settings).close()
    with label(folder) as site:
        campaign = Campaign.open(folder)
        me = Person(opened(site.address), [str(label) for label in campaign.archive().labels], slips=0.02)
        while me.answers < 130 and me.wait():
            me.act()
        wait_for(lambda: campaign.log().given == me.answers)
        assert campaign.log().effort.presses == me.presses
        campaign.close()
