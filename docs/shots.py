"""Takes the pictures of the page in README.md and the guide, of a campaign on real images.

    python docs/shots.py my-campaign docs/figures/page

The campaign has 300 to 1000 images in one folder per class. A scripted person answers until a sheet of pairs
comes, and then one of a group.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from anneal.campaign.campaign import Campaign
from scripted import Person
from served import Site, has_learnt, label, wait_for  # the page as the tests start it

PAIRS = 70  # answers at least, before the picture of a sheet of pairs …
ANSWERS = 160  # … and before that of a sheet of a group
PAIRS_SHOWN = 8  # on a sheet of pairs, at least …
TILES_SHOWN = 4  # … and on one of a group
LOOKS = 1200  # milliseconds, before each act: the page shows the pace
DESK = (1280, 760)
PHONE = (390, 760)


def shoot(page: Page, path: Path) -> None:
    page.wait_for_timeout(2500)
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(path, quality=85)


def teach(page: Page, site: Site, labels: list[str], out: Path) -> None:
    """Answer until a sheet of a group is on the screen. Takes the pictures of a pair and of both kinds of
    sheet."""
    me = Person(page, labels)
    me.wait()
    shoot(page, out / "label.jpg")
    to_sheet(me, site, "#sheet.of-pairs", PAIRS, PAIRS_SHOWN)
    shoot(page, out / "pairs.jpg")
    to_sheet(me, site, "#sheet:not(.of-pairs)", ANSWERS, TILES_SHOWN)
    me.mark(me.tiles())
    shoot(page, out / "sheet.jpg")


def to_sheet(me: Person, site: Site, kind: str, answers: int, least: int) -> None:
    """Answer until such a sheet is on the screen, after so many answers."""
    tiles = me.page.locator(f"{kind} .tile:visible")
    while not (me.answers >= answers and tiles.count() >= least):
        if not me.wait():
            raise SystemExit(f"No sheet came with {least} tiles: take more images.")
        me.page.wait_for_timeout(LOOKS)
        me.act()
        wait_for(lambda: has_learnt(site))


def main(folder: Path, out: Path, query: int = 290) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch:
        copy = Path(shutil.copytree(folder, Path(scratch) / folder.name))
        campaign = Campaign.open(copy)
        labels = [str(label) for label in campaign.archive().labels]
        campaign.close()
        with label(copy) as site, sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = opened(browser, site, DESK)
            teach(page, site, labels, out)
            for view in (f"search/{query}", "groups", "progress"):
                page.goto(f"{site.address}#{view}")
                shoot(page, out / f"{view.partition('/')[0]}.jpg")
            page.close()
            shoot(opened(browser, site, PHONE), out / "phone.jpg")
            shoot(opened(browser, site, DESK, "dark"), out / "dark.jpg")
            browser.close()


def opened(browser: Browser, site: Site, size: tuple[int, int], scheme: str = "light") -> Page:
    width, height = size
    page = browser.new_page(viewport={"width": width, "height": height})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(site.address)
    return page


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
