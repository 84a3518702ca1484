"""``anneal label photos/``: from a folder of images to the first question with one command."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from anneal import cli_label
from anneal.campaign.campaign import Campaign
from anneal.errors import UsageError
from served import PATIENCE, Site, label, wait_for

pytestmark = pytest.mark.xdist_group("processes")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with closing(browser.new_context(viewport={"width": 360, "height": 740})) as context:
        context.set_default_timeout(1000 * PATIENCE)
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
        assert errors == []


@pytest.fixture
def photos(drawn: Path, tmp_path: Path) -> Path:
    """Fifteen images."""
    return Path(shutil.copytree(drawn / "river", tmp_path / "photos"))


def no_violations(page: Page) -> None:
    report = Axe().run(page)
    assert [(one["id"], one["nodes"][0]["html"]) for one in report.response["violations"]] == []


def child_of(process: subprocess.Popen[str]) -> int:
    lists = Path(f"/proc/{process.pid}/task").glob("*/children")  # of each thread
    (child,) = [int(pid) for one in lists for pid in one.read_text().split()]
    return child


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_one_command_leads_from_images_to_the_first_question(
    photos: Path, tmp_path: Path, page: Page
) -> None:
    """The server is killed when the images are read. The same command goes on, and the page that was open
    becomes the other one."""
    folder = tmp_path / "c"
    with label(folder, str(photos), "--criterion", "same kind") as site:
        child = child_of(site.process)
        os.kill(child, signal.SIGSTOP)
        page.goto(site.address)
        expect(page.locator("#making-title")).to_contain_text("Reading")
        assert site("GET", "/api/state").status == 503
        no_violations(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        os.kill(child, signal.SIGCONT)
        wait_for(lambda: any(folder.glob("cache/*/efficientnet*")))  # it encodes
        site.process.kill()
        site.process.wait()
        wait_for(lambda: not is_running(child))  # it ends with the process that started it
    (pixels,) = folder.glob("cache/*/pixels.bin")
    read = pixels.stat().st_mtime_ns
    port = int(site.address.rstrip("/").rpartition(":")[2])
    with label(folder, str(photos), "--criterion", "same kind", port=port) as site:
        page.wait_for_selector('body:not([data-pair=""])[data-pair]')
        expect(page.locator("#criterion")).to_contain_text("same kind")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#tally")).to_have_text("1 answer")
        wait_for(lambda: site.get("/api/state")["standing"]["answers"] == 1)
    assert pixels.stat().st_mtime_ns == read  # no image was read twice


def test_what_is_wrong_is_said_on_the_page_and_in_the_terminal(tmp_path: Path, page: Page) -> None:
    (tmp_path / "empty").mkdir()
    words = f"label {tmp_path / 'empty'} --campaign {tmp_path / 'c'} --no-browser --port 0"
    with subprocess.Popen(
        [sys.executable, "-m", "anneal", *words.split()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "400"},
    ) as process:
        assert process.stdout is not None
        page.goto(process.stdout.readline().split()[4])
        expect(page.locator("#making-error")).to_contain_text("empty holds no image file")
        no_violations(page)
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "empty holds no image file" in said
    assert "Traceback" not in said
    expect(page.locator("#making-error")).to_contain_text("empty holds no image file")  # it stays


def test_a_campaign_is_made_where_there_is_none(
    photos: Path, tmp_path: Path, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody can be asked, naming the images is enough."""
    with open(os.devnull) as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        assert not cli_label.is_to_be_made(None, tmp_path / "new", yes=True)
        assert cli_label.is_to_be_made(photos, tmp_path / "new", yes=False)
        assert not cli_label.is_to_be_made(campaign.root, campaign.folder, yes=False)  # there it is
        with pytest.raises(UsageError, match=r"holds a campaign on .*give another --campaign"):
            cli_label.is_to_be_made(photos, campaign.folder, yes=True)
        with pytest.raises(UsageError, match="with anneal init first"):
            cli_label.is_to_be_made(photos, tmp_path / "new", yes=True, strategy="mine:closest")
        with pytest.raises(UsageError, match="does not exist"):
            cli_label.is_to_be_made(tmp_path / "nowhere", tmp_path / "new", yes=True)


def test_a_person_at_a_terminal_is_asked_first(photos: Path, tmp_path: Path) -> None:
    person, terminal = pty.openpty()
    command = [sys.executable, "-m", "anneal", "label", str(photos), "--campaign", str(tmp_path / "new")]
    os.write(person, b"n\n")
    run = subprocess.run(command, stdin=terminal, capture_output=True, text=True, timeout=PATIENCE)
    os.close(person)
    os.close(terminal)
    assert run.returncode == 2
    assert "and begin one there? [Y/n]" in run.stdout
    assert "Nothing was made." in run.stderr
    assert not (tmp_path / "new").exists()


def test_a_token_is_needed_while_a_campaign_is_made_too(photos: Path, tmp_path: Path) -> None:
    with label(tmp_path / "c", str(photos), "--token", "secret") as site:
        plain = Site(site.address.partition("?")[0])
        assert plain("GET", "/api/making").status == 401
        assert plain("GET", "/api/making", headers={"authorization": "Bearer secret"}).status in (200, 404)
