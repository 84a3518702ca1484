"""Takes the pictures of the page in README.md, of a campaign on real images.

    python docs/shots.py my-campaign docs/figures/page

The campaign's images must lie in one folder per class: an oracle answers a round of questions first.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from anneal.campaign.campaign import Campaign
from served import Site, label, wait_for  # the page as the tests start it


def answer(page: Page, labels: tuple[str, ...], n: int) -> None:
    for _ in range(n):
        page.wait_for_selector('body:not([data-pair=""])')
        pair = page.get_attribute("body", "data-pair") or ""
        a, b = (int(part) for part in pair.split("-"))
        page.wait_for_timeout(900)  # as fast as a quick person
        page.keyboard.press("ArrowRight" if labels[a] == labels[b] else "ArrowLeft")
        page.wait_for_selector(f'body:not([data-pair="{pair}"])')


def has_learnt(site: Site) -> bool:
    machine = site.get("/api/state")["machine"]
    return bool(machine["state"] == "idle" and machine["fresh"] < machine["needed"])


def main(folder: Path, out: Path, query: int = 1950) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch:
        copy = Path(shutil.copytree(folder, Path(scratch) / folder.name))
        campaign = Campaign.open(copy)
        labels = campaign.archive().labels
        per_round = campaign.settings.per_round
        campaign.close()
        with label(copy) as site, sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for scheme in ("light", "dark"):
                page = browser.new_page(
                    viewport={"width": 1280, "height": 760},
                    color_scheme="dark" if scheme == "dark" else "light",
                )
                page.goto(site.address)
                answer(page, labels, per_round)
                wait_for(lambda: has_learnt(site))
                for view in ("label", "search", "review", "progress"):
                    page.goto(f"{site.address}#{view}" + (f"/{query}" if view == "search" else ""))
                    page.wait_for_timeout(2500)
                    page.screenshot(path=out / f"{view}{'-dark' if scheme == 'dark' else ''}.png")
            browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
