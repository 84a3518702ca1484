"""Small things of the page that once misled a person, each in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from anneal.campaign.campaign import Campaign
from served import PATIENCE, Site, answer, finish_round, stored, wait_for

pytestmark = pytest.mark.xdist_group("processes")

UNSENT = "() => Object.keys(localStorage).filter(key => key.startsWith('anneal.out/')).length"
KEYS = "async action => (await import('/static/keys.js')).keysOf(action)"
LONG = "same-kind-of-ground-cover-without-a-single-blank-" * 4
VIEWS = {
    "label": "#label-left img",
    "search": "#grid [data-image]",
    "search/3?plus=4&minus=5": "#results [data-image]",
    "groups": ".group",
    "review": ".contradiction",
    "progress": "#charts figure",
}  # and what is there when the view is drawn


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with closing(browser.new_context(viewport={"width": 1280, "height": 800})) as context:
        context.set_default_timeout(1000 * PATIENCE)
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(site.address)
        page.wait_for_selector('body:not([data-pair=""])')
        yield page
        assert errors == []


def no_violations(page: Page) -> None:
    report = Axe().run(page)
    assert [(one["id"], one["nodes"][0]["html"]) for one in report.response["violations"]] == []


def confirmed(page: Page) -> None:
    """Wait until the server has confirmed everything."""
    wait_for(lambda: page.evaluate(UNSENT) == 0)


def shown(page: Page) -> str:
    return page.get_attribute("body", "data-pair") or ""


def open_view(page: Page, view: str) -> None:
    page.evaluate("view => { location.hash = view }", view)


# -- help and keys -----------------------------------------------------------------------------------


def test_help_and_enter_change_no_key(page: Page) -> None:
    for key in ("?", "Enter", "Space", "Escape"):
        page.keyboard.press(key)
    expect(page.locator("#help")).to_be_hidden()
    assert page.evaluate(KEYS, "similar") == ["ArrowRight", "a", "y"]
    assert page.evaluate("localStorage.getItem('anneal.keys')") is None


def test_a_key_in_use_is_moved_only_if_the_person_says_so(page: Page) -> None:
    page.keyboard.press("?")
    row = page.locator("#keys [data-action=undo]")
    add = row.get_by_role("button", name="Add a key for Undo")
    add.click()
    page.keyboard.press("a")
    expect(page.locator("#keys-status")).to_have_text("A means Similar now.")
    expect(row.get_by_role("button", name="Leave it")).to_be_focused()
    no_violations(page)
    page.keyboard.press("Enter")
    expect(page.locator("#keys-status")).to_have_text("Nothing changed")
    assert page.evaluate(KEYS, "similar") == ["ArrowRight", "a", "y"]
    add.click()
    page.keyboard.press("a")
    row.get_by_role("button", name="Use A here instead").click()
    assert page.evaluate(KEYS, "similar") == ["ArrowRight", "y"]
    assert page.evaluate(KEYS, "undo") == ["Backspace", "Ctrl+z", "a"]
    add.click()
    page.keyboard.press("w")  # a free key asks nothing
    assert page.evaluate(KEYS, "undo") == ["Backspace", "Ctrl+z", "a", "w"]
    page.get_by_role("button", name="Reset keys to defaults").click()
    expect(page.locator("#keys-status")).to_have_text("All keys are the defaults again")
    assert page.evaluate(KEYS, "undo") == ["Backspace", "Ctrl+z"]
    page.reload()
    assert page.evaluate(KEYS, "similar") == ["ArrowRight", "a", "y"]


# -- undo --------------------------------------------------------------------------------------------


def test_undo_says_what_was_undone_and_shows_it(page: Page, campaign: Campaign) -> None:
    question = page.locator("#question")
    first = shown(page)
    page.keyboard.press("ArrowLeft")
    expect(page.locator("body")).not_to_have_attribute("data-pair", first)
    expect(question).to_have_text("Are these two similar?")
    page.keyboard.press("Backspace")
    expect(page.locator("body")).to_have_attribute("data-pair", first)
    expect(question).to_have_text("Undone: your “dissimilar”. Are these two similar?")
    expect(page.locator("#label .was")).to_have_attribute("data-verdict", "dissimilar")
    no_violations(page)
    page.keyboard.press("Space")
    expect(question).to_have_text("Are these two similar?")
    confirmed(page)
    page.reload()  # now the server says what was undone
    page.wait_for_selector('body:not([data-pair=""])')
    page.keyboard.press("Backspace")
    expect(page.locator("body")).to_have_attribute("data-pair", first)
    expect(question).to_have_text("Undone: your “unsure”. Are these two similar?")
    page.keyboard.press("Backspace")
    expect(question).to_have_text("There is nothing to undo. Are these two similar?")
    assert stored(campaign) == []


# -- review ------------------------------------------------------------------------------------------


@pytest.fixture
def doubted(site: Site, campaign: Campaign, page: Page) -> Page:
    """The page of a campaign with three answers. The model disagrees with the first."""
    vectors = np.array(campaign.rounds.vectors())
    near = int(np.argsort(-(vectors[0] @ vectors.T))[1])
    finish_round(campaign, cutoff=float(vectors[0] @ vectors[near]) - 0.001)
    site.say(answer(1, {"a": 0, "b": near}, "dissimilar"))
    site.say(answer(2, {"a": 50, "b": 51}, "unsure"), answer(3, {"a": 60, "b": 61}, "unsure"))
    open_view(page, "review")
    expect(page.locator(".answer")).to_have_count(3)
    return page


def test_answers_are_corrected_by_keyboard_and_the_flag_goes(doubted: Page, campaign: Campaign) -> None:
    page = doubted
    flag = page.locator(".answer strong:visible", has_text="the model disagrees")
    expect(flag).to_have_count(1)
    for _ in range(3):
        page.keyboard.press("ArrowDown")  # the newest comes first
    last = page.locator(".answer").last
    expect(last).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(last.locator("[aria-pressed=true]")).to_have_text("Similar")
    expect(flag).to_have_count(0)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Delete")
    confirmed(page)
    assert [verdict for *_, verdict in stored(campaign)] == ["unsure", "similar"]
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    expect(page.locator("#review-status")).to_have_text("Undone: similar. It is dissimilar again.")
    expect(last.locator("[aria-pressed=true]")).to_have_text("Dissimilar")
    expect(flag).to_have_count(1)
    confirmed(page)
    assert sorted(verdict for *_, verdict in stored(campaign)) == ["dissimilar", "unsure", "unsure"]
    no_violations(page)


def test_images_of_an_answer_are_large_and_larger_on_request(doubted: Page) -> None:
    page = doubted
    box = page.locator(".answer .thumb").first.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) >= 160
    page.keyboard.press("j")
    page.keyboard.press("e")
    large = page.locator("#large")
    expect(large).to_be_visible()
    names = page.locator(".answer").first.locator(".thumb")
    expect(page.locator("#large-name")).to_have_text(names.nth(0).get_attribute("title") or "")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#large-name")).to_have_text(names.nth(1).get_attribute("title") or "")
    expect(page.locator("#large-place")).to_have_text("2 of 2")
    no_violations(page)


# -- search ------------------------------------------------------------------------------------------


def test_results_are_enlarged_one_after_another(page: Page) -> None:
    open_view(page, "search/3")
    results = page.locator("#results [data-image]")
    expect(results).to_have_count(60)
    names = [results.nth(i).get_attribute("data-name") or "" for i in range(3)]
    page.get_by_role("button", name=f"Enlarge {names[1]}").click()
    expect(page.locator("#large-name")).to_have_text(names[1])
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#large-name")).to_have_text(names[2])
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")  # it stays at the first
    expect(page.locator("#large-name")).to_have_text(names[0])
    expect(page.locator("#large-previous")).to_have_attribute("aria-disabled", "true")
    expect(page.locator("#large-place")).to_have_text("1 of 60")


def test_search_says_plainly_what_is_above_the_threshold(page: Page, campaign: Campaign) -> None:
    note = page.locator("#results-note")
    open_view(page, "search/3")
    expect(note).to_contain_text("The model has no threshold yet")
    vectors = np.array(campaign.rounds.vectors())
    scores = np.sort(vectors[3] @ vectors.T)[::-1][1:]
    finish_round(campaign, cutoff=float(scores[4] + scores[5]) / 2)
    open_view(page, "search")
    open_view(page, "search/3")
    expect(note).to_contain_text("5 of 60 have a score above the model’s threshold")
    finish_round(campaign, cutoff=0.9999)
    open_view(page, "search")
    open_view(page, "search/3")
    expect(note).to_have_text(
        "No result is above the model’s threshold, 1.00: it takes none of these for similar. "
        f"The best has {scores[0]:.2f}."
    )
    page.locator("#cutoff").press("End")
    expect(note).to_contain_text("Nothing is shown: no result has a score of 1.00 or more")
    expect(page.locator("#results [data-image]:visible")).to_have_count(0)
    no_violations(page)


def test_a_refined_search_teaches_nothing_until_it_is_told_to(page: Page, campaign: Campaign) -> None:
    open_view(page, "search/3")
    first = page.locator("#results [data-image]").first
    other = int(first.get_attribute("data-image") or "")
    first.locator("[data-refine=minus]").click()
    chip = page.locator("#chips li")
    expect(chip.locator("b")).to_have_text("−")
    expect(page.locator("#teaching")).to_contain_text("They refine this search only")
    assert stored(campaign) == []
    chip.get_by_role("button", name="Teach that").click()
    expect(chip.get_by_role("button", name="Taught: dissimilar")).to_be_focused()
    confirmed(page)
    assert stored(campaign) == [(min(3, other), max(3, other), "dissimilar")]
    no_violations(page)
    page.keyboard.press("Enter")
    expect(chip.get_by_role("button", name="Teach that")).to_have_attribute("aria-pressed", "false")
    confirmed(page)
    assert stored(campaign) == []


def test_images_are_found_by_name_from_everywhere_in_the_view(page: Page) -> None:
    open_view(page, "search/3")
    expect(page.locator("#results [data-image]")).to_have_count(60)
    page.get_by_label("Find by name").fill("harbour_00")
    expect(page.locator("#found li")).to_have_count(10)
    expect(page.locator("#nearest")).to_be_hidden()
    expect(page.get_by_label("Find by name")).to_be_focused()
    page.get_by_label("Find by name").fill("nowhere")
    expect(page.locator("#search-status")).to_have_text("No image has “nowhere” in its name or folder")


def test_the_name_of_an_uploaded_image_is_shown(page: Page, drawn: Path) -> None:
    open_view(page, "search")
    page.set_input_files("#drop input[type=file]", drawn / "beach" / "beach_003.jpg")
    expect(page.locator("#query-name")).to_have_text("beach_003.jpg")
    page.reload()
    expect(page.locator("#query-name")).to_have_text("beach_003.jpg")
    expect(page).to_have_title(re.compile("Search: beach_003.jpg"))


# -- a phone -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["same land use " * 14, LONG])
def test_no_view_is_wider_than_a_phone(site: Site, page: Page, criterion: str) -> None:
    assert site("PUT", "/api/criterion", {"text": criterion[:200]}).status == 200
    page.evaluate("name => localStorage.setItem('anneal.annotator', name)", LONG[:60])
    page.reload()
    page.wait_for_selector('body:not([data-pair=""])')
    said = {(0, 1): "similar", (1, 2): "similar", (0, 2): "dissimilar", (20, 21): "similar"}
    for number, ((a, b), word) in enumerate(said.items()):
        site.say(answer(number, {"a": a, "b": b}, word))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Backspace")  # the longest heading
    expect(page.locator("#question")).to_contain_text("Undone")
    for width in (360, 390, 430):
        page.set_viewport_size({"width": width, "height": 740})
        for view in VIEWS:
            open_view(page, view)
            expect(page.locator(VIEWS[view]).first).to_be_visible()
            assert wider_than_its_place(page) == [], (width, view)
        for dialog in ("help", "large", "prompt"):
            page.evaluate("name => document.getElementById(name).showModal()", dialog)
            page.evaluate("name => { document.getElementById('large-name').textContent = name }", LONG)
            assert wider_than_its_place(page) == [], (width, dialog)
            page.evaluate("name => document.getElementById(name).close()", dialog)


WIDER = """() => {
    const places = "html, body, main, .view, dialog, header";
    const scrolls = (node) => node.scrollWidth > node.clientWidth
        && getComputedStyle(node).overflowX !== "visible" && !node.matches(places);
    const inside = (node) => node && (scrolls(node) || inside(node.parentElement));
    const reaches = ({ right, width }) => width > 1 && right > innerWidth + 1;
    const out = [...document.querySelectorAll("body *")]
        .filter((node) => reaches(node.getBoundingClientRect()) && !inside(node.parentElement));
    const wide = [...document.querySelectorAll(places)]
        .filter((node) => node.clientWidth && node.scrollWidth > node.clientWidth + 1);
    return [...new Set([...out, ...wide])].map((node) => `${node.tagName}#${node.id}.${node.className}`);
}"""


def wider_than_its_place(page: Page) -> list[str]:
    """What reaches past the window's right edge, except in a part that is cut or scrolled by itself."""
    return list(page.evaluate(WIDER))
