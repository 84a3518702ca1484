"""A whole campaign in the browser by a scripted person who slips, with sheets and without: what it takes.

    python bench/page.py [SLIPS]

304 drawn images of eight kinds, seed 1, the product's defaults. It goes on until nothing is left to ask.
Chromium is needed. The last column is the share of pairs of images whose verdict is known and right.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from anneal.archive.catalog import open_archive
from anneal.campaign import turn
from anneal.campaign.campaign import Campaign
from anneal.experiments import scenes
from anneal.pairs import Verdict
from anneal.settings import Settings
from scripted import Person
from served import has_learnt, label, wait_for


def right(campaign: Campaign) -> float:
    """The share of all pairs that are known and as the classes say."""
    classes = campaign.archive().classes
    images = np.arange(len(classes))
    known = campaign.evidence().closure.relations.among(images, images)
    true = np.where(classes[:, None] == classes[None, :], Verdict.SIMILAR, Verdict.DISSIMILAR)
    upper = np.triu_indices(len(classes), 1)
    return float((known == true)[upper].mean())


def main() -> None:
    slips = float(sys.argv[1]) if len(sys.argv) > 1 else 0.02
    program = shutil.which("chromium") or shutil.which("google-chrome")
    print("| page | answers | acts | sheets | tiles | rounds | right |\n|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as scratch, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        scenes.draw_archive(Path(scratch) / "photos", per_kind=38, seed=1, px=96)
        for name, most in (("sheets", 20), ("one by one", 0)):
            settings = Settings(px=96, sheets=most)
            folder = Path(scratch) / name
            archive = open_archive(Path(scratch) / "photos", settings.px, Path(scratch) / "cache")
            turn.begin(folder, archive, settings).close()
            with label(folder) as site:
                page = browser.new_page()
                page.goto(site.address)
                me = Person(page, [str(one) for one in archive.labels], slips)
                while me.wait():
                    me.act()
                    wait_for(lambda: has_learnt(site))  # a person is slower than the machine
                page.close()
            campaign = Campaign.open(folder)
            log = campaign.log()
            tiles = [row.sheet for row in log.standing() if row.sheet is not None]
            counts = (log.given, log.effort.presses, len(set(tiles)), len(tiles), campaign.rounds.current)
            print(f"| {name} | {' | '.join(map(str, counts))} | {right(campaign):.3f} |", flush=True)
            campaign.close()


if __name__ == "__main__":
    main()
