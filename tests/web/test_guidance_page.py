"""What the page, its interface and the command tell of a campaign: the same numbers, and what to do next."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from typer.testing import CliRunner

from anneal import cli
from anneal.campaign.campaign import Campaign
from anneal.campaign.store import MACHINE
from served import Site, answer, finish_round, wait_for

pytestmark = pytest.mark.xdist_group("processes")


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    wrong: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    context.close()
    assert wrong == []


def answered(site: Site, campaign: Campaign, n: int, start: int = 0) -> None:
    """The next n questions are answered truly; ``start`` is the number of the first event."""
    labels = campaign.archive().labels
    (question,) = site.get("/api/questions?holder=h&n=1")["questions"]
    for number in range(start, start + n):
        word = "similar" if labels[question["a"]] == labels[question["b"]] else "dissimilar"
        question = site.say(answer(number, question, word, looked=2000), n=1)["questions"][0]


def status(campaign: Campaign, *options: str) -> Any:
    done = CliRunner().invoke(cli.app, ["status", "--campaign", str(campaign.folder), "--json", *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_every_view_tells_the_same_numbers(site: Site, campaign: Campaign, page: Page) -> None:
    answered(site, campaign, 9)
    finish_round(campaign, cutoff=0.5)
    answered_row = campaign.log().standing()[-1]
    campaign.again([answered_row.id], by=MACHINE)
    state = site.get("/api/state")
    progress = site.get("/api/progress")
    command = status(campaign)
    standing = {**state["standing"], "share": state["share"]}
    assert standing == progress["standing"] == {name: command[name] for name in standing}
    assert (standing["answers"], standing["waiting"], standing["rounds"]) == (8, 1, 1)
    assert state["advice"] == progress["advice"] == command["advice"]
    assert progress["people"] == command["people"]
    (me,) = progress["people"]
    assert state["yours"] == {"answers": me["answers"], "per_minute": me["per_minute"]}
    page.goto(site.address)
    expect(page.locator("#tally")).to_have_text("8 answers, 1 asked again")
    expect(page.locator("#round")).to_have_text("round 1")
    expect(page.locator("#pace")).to_have_text(f"{me['per_minute']:.0f} a minute")
    expect(page.locator("#stop")).to_have_text(state["advice"]["text"])
    page.click("header [data-view=progress]")
    expect(page.locator("#advice")).to_have_text(state["advice"]["text"])
    row = page.locator("#people tbody tr")
    expect(row.locator("td").nth(0)).to_have_text("8")
    expect(row.locator("td").nth(1)).to_have_text(f"{me['per_minute']:.1f}")


def test_one_answer_is_one_answer(site: Site, campaign: Campaign, page: Page) -> None:
    answered(site, campaign, 1)
    page.goto(site.address)
    expect(page.locator("#tally")).to_have_text("1 answer")
    finish_round(campaign, cutoff=0.5)
    answered(site, campaign, 29, start=1)
    campaign.mailbox.set_machine(state="idle")
    assert site.get("/api/state")["machine"]["text"] == "The machine learns after 1 more answer."


def test_the_machine_is_asked_to_learn_when_there_is_something_new(
    site: Site, campaign: Campaign, page: Page
) -> None:
    refused = site("POST", "/api/learn")
    assert (refused.status, refused.json["detail"]) == (409, "There is no new answer to learn from.")
    page.goto(site.address + "#progress")
    button = page.locator("#progress .learn")
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(page.locator("#learn-status")).to_have_text("There is no new answer to learn from.")
    answered(site, campaign, 1)
    expect(button).to_have_attribute("aria-disabled", "false")
    button.click()
    expect(button).to_have_attribute("aria-disabled", "true")
    assert campaign.store.setting("learn_wanted", False) is True
    assert site.get("/api/state")["machine"]["wanted"] is True


def test_a_correction_is_something_new(site: Site, campaign: Campaign) -> None:
    answered(site, campaign, 2)
    finish_round(campaign, cutoff=0.5)
    assert site("POST", "/api/learn").status == 409
    campaign.correct(campaign.log().standing()[0].id, 0)  # withdrawn
    assert site("POST", "/api/learn").status == 202


def test_the_threshold_of_the_advice_is_set_on_the_page_and_by_the_command(
    site: Site, campaign: Campaign, page: Page
) -> None:
    page.goto(site.address + "#progress")
    field = page.locator("#stop-below")
    expect(field).to_have_value("0.5")
    field.fill("1.5")
    page.click("#stop-form button")
    wait_for(lambda: site.get("/api/state")["advice"]["below"] == 1.5)
    expect(field).to_have_value("1.5")
    assert status(campaign)["advice"]["below"] == 1.5
    assert status(campaign, "--stop-below", "0.2")["advice"]["below"] == 0.2
    assert site("PUT", "/api/stop", {"below": -1}).status == 422


def test_what_is_asked_again_says_why(site: Site, campaign: Campaign, page: Page) -> None:
    answered(site, campaign, 1)
    campaign.again([campaign.log().standing()[0].id])
    page.goto(site.address)
    body = page.locator("body")
    for _ in range(12):  # the pair whose images are loaded first is shown first
        expect(body).to_have_attribute("data-pair", re.compile(r"\d+-\d+"))
        if (page.text_content("#question") or "").startswith("Asked again"):
            break
        shown = page.get_attribute("body", "data-pair") or ""
        page.keyboard.press("Space")
        expect(body).not_to_have_attribute("data-pair", shown)
    asked = "Asked again, because somebody asked for it: are these two similar?"
    expect(page.locator("#question")).to_have_text(asked)


def test_where_no_question_is_left_the_page_says_what_to_do_next(site: Site, page: Page) -> None:
    words = """async (machine) => (await import("/static/label.js")).emptyWords(
        {others: 0, machine}, {kind: "up"}, true, false)"""
    page.goto(site.address)
    about = {"state": "idle", "text": "", "fresh": 3, "refusal": "", "wanted": False}
    title, text = page.evaluate(words, about)
    assert (title, "about to learn" in text) == ("No question is left", True)
    title, text = page.evaluate(words, {**about, "fresh": 0, "refusal": "There is no new answer."})
    assert (title, text) == (
        "Everything is settled",
        "No question is left. The machine has learnt from every answer. What now?",
    )
    links = page.locator("#empty .next a").evaluate_all("links => links.map(a => a.getAttribute('href'))")
    assert links == ["#search", "#groups", "#progress"]
