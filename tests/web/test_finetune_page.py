"""The button that fine-tunes the network: what it says, what it asks for, and that it stops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from anneal.campaign import tuning
from anneal.campaign.campaign import Campaign
from served import Site, finish_round

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


def test_the_button_says_why_it_cannot_begin_and_then_begins_and_stops(
    site: Site, campaign: Campaign, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.goto(site.address + "#progress")
    button = page.locator("#finetune")
    status = page.locator("#finetune-status")
    expect(status).to_contain_text("No model serves yet")
    expect(button).to_have_attribute("aria-disabled", "true")
    finish_round(campaign, cutoff=0.5)
    expect(status).to_contain_text("answer more questions")
    monkeypatch.setattr(tuning, "LEAST", 0)
    expect(button).to_have_attribute("aria-disabled", "false")
    button.click()
    expect(button).to_have_text("Stop fine-tuning")
    assert tuning.wanted(campaign) == "last"

    tuning.begin(campaign)  # as the machine's process does
    campaign.mailbox.set_machine(state="learning", step="tuning", done=30, total=120)
    expect(status).to_have_text("The machine is tuning…")
    expect(page.locator("#finetune-bar")).to_have_attribute("max", "120")
    button.click()
    expect(status).to_have_text("The machine is stopping…")
    assert tuning.is_stopped(campaign)
    tuning.end(campaign, tuning.STOPPED)
    expect(status).to_have_text(tuning.STOPPED)
    expect(button).to_have_text("Fine-tune the network")
