"""The page in a real browser, Chromium, used as a person uses it."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Page, expect

from anneal.archive.catalog import reopen
from anneal.archive.pixels import GrowingArray
from anneal.campaign import progress
from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import FROZEN, Round
from anneal.errors import CampaignError, UsageError
from anneal.method.neighbours import unit
from anneal.settings import Settings
from served import Site, label, page_of, stored, wait_for

pytestmark = [
    pytest.mark.xdist_group("processes"),  # each test starts several: one after another
    pytest.mark.timeout(900),
]

PER_ROUND = 12
KEYS = {"similar": "ArrowRight", "dissimilar": "ArrowLeft", "unsure": "Space"}
UNSENT = "() => Object.keys(localStorage).filter(key => key.startsWith('anneal.out/')).length"
HIGHEST = "slider => { slider.value = slider.max; slider.dispatchEvent(new Event('input', {bubbles: true})) }"
Pair = tuple[int, int]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, drawn: Path) -> Path:
    folder = tmp_path_factory.mktemp("page") / "campaign"
    words = (
        f"init {drawn} --campaign {folder} --px 64 --views 1 --per-round {PER_ROUND} --recheck 0 --sheets 0"
    )
    command = [sys.executable, "-m", "anneal", *words.split(), "--criterion", "same kind of <scene>"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "campaign"))


@contextmanager
def page_at(folder: Path) -> Iterator[Site]:
    """The page without a machine: quicker to start than ``label``."""
    campaign = Campaign.open(folder)
    with page_of(campaign) as site:
        yield site
    campaign.close()


class Person:
    """Somebody at the keyboard who knows the right answers. ``said`` has the answers that should stand."""

    def __init__(self, page: Page, folder: Path) -> None:
        self.page = page
        campaign = Campaign.open(folder)
        self.truth = campaign.archive().labels
        campaign.close()
        self.said: list[tuple[Pair, str]] = []

    def pair(self) -> Pair:
        self.page.wait_for_selector('body:not([data-pair=""])')
        a, b = (self.page.get_attribute("body", "data-pair") or "").split("-")
        return int(a), int(b)

    def answer(self, n: int, verdict: str | None = None) -> None:
        for _ in range(n):
            a, b = self.pair()
            word = verdict or ("similar" if self.truth[a] == self.truth[b] else "dissimilar")
            self.page.keyboard.press(KEYS[word])
            self.said.append(((a, b), word))
            expect(self.page.locator("body")).not_to_have_attribute("data-pair", f"{a}-{b}")

    def undo(self, n: int) -> None:
        for _ in range(n):
            (a, b), _ = self.said.pop()
            self.page.keyboard.press("Backspace")
            expect(self.page.locator("body")).to_have_attribute("data-pair", f"{a}-{b}")

    def view(self, name: str) -> None:
        self.page.click(f"header [data-view={name}]")

    def sent(self) -> None:
        """Wait until the server has confirmed everything."""
        expect(self.page.locator("#banner")).to_have_text("")
        wait_for(lambda: self.page.evaluate(UNSENT) == 0)


def answers_in(folder: Path) -> dict[Pair, str]:
    campaign = Campaign.open(folder)
    rows = stored(campaign)
    campaign.close()
    answers = {(a, b): verdict for a, b, verdict in rows}
    assert len(answers) == len(rows)
    return answers


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_a_whole_campaign_by_keyboard(
    folder: Path, opened: Callable[..., Page], capsys: pytest.CaptureFixture[str]
) -> None:
    """Forty answers with the machine's turns between them. Some are undone or corrected, the page is
    reloaded, the server is killed and started again: the store holds exactly what was answered."""
    port = free_port()
    with label(folder, port=port) as site:
        page = opened(site.address)
        me = Person(page, folder)
        expect(page.locator("#criterion")).to_contain_text("same kind of <scene>")
        me.answer(14)
        expect(page.locator("#round")).to_have_text("round 1")  # the machine has taken its turn
        me.answer(6)
        me.undo(5)
        me.answer(3)
        me.answer(1, "unsure")
        page.reload()
        me.answer(4)
        me.sent()
        assert answers_in(folder) == dict(me.said)

        pair, _ = me.said[0]
        me.view("review")
        page.fill("#filters [name=pair]", str(pair[0]))
        row = page.locator(f".answer:has(img[src*='/{pair[0]}?']):has(img[src*='/{pair[1]}?'])")
        row.locator("[data-verdict=unsure]").click()
        me.sent()
        me.said = [*me.said[1:], (pair, "unsure")]
        assert answers_in(folder) == dict(me.said)

        me.view("label")
        me.pair()
        expect(page.locator("body")).to_have_attribute("data-ahead", "2")
        site.process.kill()
        site.process.wait()
        me.answer(3)  # the pair that is shown, and two that were loaded ahead
        expect(page.locator("#banner")).to_contain_text("3 answers are kept in this browser")
        assert answers_in(folder) == dict(me.said[:-3])
    with label(folder, port=port):
        me.sent()
        assert answers_in(folder) == dict(me.said)
        me.answer(14)
        me.sent()
        assert answers_in(folder) == dict(me.said)
        assert len(me.said) == 40
        expect(page.locator("#tally")).to_have_text("40 answers")
        painted = page.evaluate("window.annealPaint")
        with capsys.disabled():
            slow = f"{np.percentile(painted, 95):.0f} ms at the 95th percentile of {len(painted)}"
            print(f"\nkey press to next image painted: {np.median(painted):.0f} ms, {slow}")


def test_search_by_click_by_dropped_file_and_by_more_examples(
    folder: Path, drawn: Path, opened: Callable[..., Page]
) -> None:
    with label(folder) as site:
        page = opened(site.address + "#search")
        page.click("#grid [data-image='3']")
        results = page.locator("#results [data-image]")
        expect(results.first).to_be_visible()
        campaign = Campaign.open(folder)
        vectors = campaign.rounds.vectors()
        nearest = [int(i) for i in np.argsort(-(vectors[3] @ vectors.T), kind="stable")[1:4]]
        campaign.close()
        shown = [int(results.nth(i).get_attribute("data-image") or "") for i in range(3)]
        assert shown == nearest
        results.nth(1).locator("[data-refine=minus]").click()
        expect(page.locator("#chips li")).to_have_count(1)
        expect(page.locator(f"#results [data-image='{nearest[1]}']")).to_have_count(0)
        count = results.count()
        page.locator("#cutoff").evaluate(HIGHEST)
        assert page.locator("#results [data-image]:visible").count() < count
        page.go_back()

        with Image.open(drawn / "beach" / "beach_003.jpg") as image:
            file = io.BytesIO()
            image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(file, "PNG")
        dropped = page.evaluate_handle(
            """text => { const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
            const data = new DataTransfer();
            data.items.add(new File([bytes], 'mine.png', {type: 'image/png'})); return data }""",
            base64.b64encode(file.getvalue()).decode(),
        )
        page.dispatch_event("#search", "drop", {"dataTransfer": dropped})
        expect(page.locator("#query-name")).to_have_text("mine.png")
        expect(results.first).to_have_attribute("data-image", "3")  # its mirror image
        page.set_input_files(
            "#drop input[type=file]", {"name": "x.txt", "mimeType": "text/plain", "buffer": b"no"}
        )
        expect(
            page.locator("#notice, #search-status").filter(has_text=re.compile("cannot be read"))
        ).to_be_visible()


def test_two_people_at_once_are_never_asked_the_same(folder: Path, opened: Callable[..., Page]) -> None:
    with page_at(folder) as site:
        people = [Person(opened(site.address), folder) for _ in range(2)]
        for _ in range(10):
            for person in people:
                person.answer(1)
        for person in people:
            person.sent()
        pairs = [pair for person in people for pair, _ in person.said]
        assert len(set(pairs)) == len(pairs) == 20
        assert answers_in(folder) == dict(said for person in people for said in person.said)


def test_a_contradiction_is_settled_where_it_is_shown(folder: Path, opened: Callable[..., Page]) -> None:
    with page_at(folder) as site:
        triangle = {(0, 1): "similar", (1, 2): "similar", (0, 2): "dissimilar"}
        site.say(
            *({"key": f"key{a}-{b}-{w}", "a": a, "b": b, "verdict": w} for (a, b), w in triangle.items())
        )
        page = opened(site.address)
        page.click("#contradicting")
        card = page.locator(".contradiction")
        expect(card).to_have_count(1)
        expect(card.locator("img")).to_have_count(6)
        card.locator("[data-verdict=similar]").last.click()
        expect(card).to_have_count(0)
        Person(page, folder).sent()
    assert answers_in(folder) == {**triangle, (0, 2): "similar"}


def test_the_page_says_why_there_is_no_question(folder: Path, opened: Callable[..., Page]) -> None:
    words = """async ([others, machine]) => (await import("/static/label.js")).emptyWords(
        {others, machine: {state: machine, text: ""}}, {kind: "up"}, true, false)[0]"""
    with page_at(folder) as site:
        page = opened(site.address)
        assert page.evaluate(words, [2, "idle"]) == "No question for you right now"
        assert page.evaluate(words, [0, "learning"]) == "The machine is learning from your answers"
        assert page.evaluate(words, [0, "idle"]) == "Everything is settled"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible(folder: Path, opened: Callable[..., Page], scheme: str) -> None:
    """axe-core finds no violation, contrast included."""
    with page_at(folder) as site:
        page = opened(site.address, color_scheme=scheme)
        me = Person(page, folder)
        me.answer(2)
        for view in ("label", "search", "review", "progress"):
            me.view(view)
            page.wait_for_load_state("networkidle")
            violations = Axe().run(page).response["violations"]
            assert [(wrong["id"], wrong["nodes"][0]["html"]) for wrong in violations] == [], view


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_without_a_question_is_accessible(
    folder: Path, opened: Callable[..., Page], scheme: str
) -> None:
    with page_at(folder) as site:
        page = opened(site.address, color_scheme=scheme)
        page.route("**/api/questions?*", lambda route: route.fulfill(json={"questions": []}))
        page.reload()
        expect(page.locator("#empty-title")).to_have_text("Everything is settled")
        expect(page.locator("#empty-title")).to_be_visible()
        violations = Axe().run(page).response["violations"]
        assert [(wrong["id"], wrong["nodes"][0]["html"]) for wrong in violations] == []


def test_a_phone_has_buttons_and_keys_do_nothing_while_help_is_open(
    folder: Path, opened: Callable[..., Page]
) -> None:
    with page_at(folder) as site:
        page = opened(site.address, has_touch=True)
        me = Person(page, folder)
        page.set_viewport_size({"width": 390, "height": 780})
        first = me.pair()
        left, right = (page.locator(f"#label-{side} img").bounding_box() for side in ("left", "right"))
        assert left is not None
        assert right is not None
        assert left["y"] + left["height"] <= right["y"] + 1  # stacked
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.tap("#label [data-verdict=similar]")
        second = me.pair()
        assert second != first
        page.keyboard.press("?")
        expect(page.locator("#help")).to_be_visible()
        page.keyboard.press("ArrowRight")  # not an answer while the help is open
        page.keyboard.press("Escape")
        assert me.pair() == second
        me.sent()
        assert answers_in(folder) == {first: "similar"}


def test_a_grid_of_a_hundred_thousand_images_is_paged_through(
    tmp_path: Path, opened: Callable[..., Page]
) -> None:
    """Only the visible part is in the page, at every scroll position."""
    n = 100_000
    pixels = GrowingArray(tmp_path / "kept" / "pixels", np.uint8, (8, 8, 3))
    colours = np.random.default_rng(0).integers(0, 255, (n, 1, 1, 3), dtype=np.uint8)
    rows = [[f"strip {i // 1000:02d}/tile-{i:06d}.jpg", "", "", str(i)] for i in range(n)]
    pixels.append(np.broadcast_to(colours, (n, 8, 8, 3)), {"images": rows, "skipped": []})
    pixels.finish()
    archive = reopen(tmp_path, tmp_path / "kept", 8)
    vectors = unit(colours.reshape(n, 3).astype(np.float32) - 128)
    Round.of(tmp_path / "large", FROZEN).save_space(vectors, np.arange(6)[None])
    campaign = Campaign.create(tmp_path / "large", archive, Settings(px=8), np.arange(n))
    with page_of(campaign) as site:
        page = opened(site.address + "#search")
        cells = page.locator("#grid [data-image]")
        expect(page.locator("#grid [data-image='0']")).to_be_visible()
        for end in ("End", "Home"):
            page.locator("#grid [data-image]").first.focus()
            page.locator("#grid").evaluate(
                "(grid, end) => { grid.scrollTop = end === 'End' ? grid.scrollHeight : 0 }", end
            )
            last = page.locator(f"#grid [data-image='{n - 1 if end == 'End' else 0}']")
            expect(last).to_be_visible()
            assert cells.count() < 500
        page.locator("#grid").evaluate("grid => { grid.scrollTop = grid.scrollHeight / 2 }")
        page.wait_for_selector("#grid [data-image^='50']")
        middle = int(cells.nth(cells.count() // 2).get_attribute("data-image") or "")
        assert 40_000 < middle < 60_000
        page.click(f"#grid [data-image='{middle}']")
        ranking = np.argsort(-(vectors[middle] @ vectors.T), kind="stable")
        expected = next(int(i) for i in ranking if i != middle)
        expect(page.locator("#results [data-image]").first).to_have_attribute("data-image", str(expected))
    campaign.close()


def test_new_images_are_taken_in_on_request_while_people_answer(
    drawn: Path, tmp_path: Path, opened: Callable[..., Page]
) -> None:
    """The machine's process does it; neither the page nor the server is started again."""
    photos = Path(shutil.copytree(drawn / "river", tmp_path / "photos" / "river")).parent
    shutil.copytree(drawn / "forest", photos / "forest")
    words = f"init {photos} --campaign {tmp_path / 'c'} --px 32 --views 1 --backbone random:resnet-18"
    subprocess.run([sys.executable, "-m", "anneal", *words.split()], check=True, capture_output=True)
    rivers = sorted((photos / "river").iterdir())
    with label(tmp_path / "c") as site:
        page = opened(site.address)
        me = Person(page, tmp_path / "c")
        me.answer(2)
        me.view("progress")
        expect(page.locator("#archive-count")).to_have_text("30 images can be asked about and found.")
        shutil.copytree(drawn / "harbour", photos / "harbour")
        rivers[0].unlink()
        rivers[1].rename(photos / "river" / "renamed.jpg")
        page.click("#update")
        expect(page.locator("#archive-lines")).to_contain_text("15 new, 1 moved, 1 removed")
        expect(page.locator("#archive-count")).to_have_text("44 images can be asked about and found.")
        expect(page.locator("#update")).to_be_enabled()
        me.view("search")
        expect(page.locator("#grid .cell").first).to_have_attribute("aria-setsize", "44")
        (gone,) = site.get("/api/retired")
        cells = page.locator("#grid [data-image]")
        shown = [int(cell.get_attribute("data-image") or "") for cell in cells.all()]
        assert sorted(shown) == [image for image in range(45) if image != gone][: len(shown)]
        cells.first.focus()
        page.keyboard.press("End")
        page.click("#grid [data-image='44']")
        results = page.locator("#results [data-image]")
        expect(results).to_have_count(43)
        me.view("label")
        me.truth = Campaign.open(tmp_path / "c").archive().labels
        me.answer(2)


def test_an_answer_that_the_server_fails_on_is_set_aside_and_the_rest_goes_on(
    folder: Path, opened: Callable[..., Page], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has an error for one pair, refuses another, and takes all others."""
    campaign = Campaign.open(folder)
    answer = Campaign.answer
    broken: dict[Pair, Exception] = {}

    def failing(self: Campaign, a: int, b: int, *args: Any, **options: Any) -> int:
        if (a, b) in broken:
            raise broken[a, b]
        return answer(self, a, b, *args, **options)

    monkeypatch.setattr(Campaign, "answer", failing)
    with page_of(campaign) as site:
        page = opened(site.address)
        me = Person(page, folder)
        first = me.pair()
        broken[first] = RuntimeError("a bug")
        page.keyboard.press(KEYS["similar"])
        expect(page.locator("body")).not_to_have_attribute("data-pair", "{}-{}".format(*first))
        me.answer(2)  # they wait behind it
        aside = page.locator("#aside")
        expect(aside).to_contain_text("1 answer was not saved: Something went wrong in the server")
        me.sent()
        assert answers_in(folder) == dict(me.said)
        me.answer(2)
        violations = Axe().run(page).response["violations"]
        assert [(wrong["id"], wrong["nodes"][0]["html"]) for wrong in violations] == []
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.set_viewport_size({"width": 1280, "height": 800})

        page.reload()  # it is kept
        expect(aside).to_contain_text("1 answer was not saved")
        expect(page.locator("#aside-discard")).to_be_hidden()
        with page.expect_download() as download:
            page.click("#aside-download")
        download.value.save_as(tmp_path / "not-saved.jsonl")
        (line,) = (tmp_path / "not-saved.jsonl").read_text(encoding="utf-8").splitlines()
        kept = json.loads(line)
        assert (kept["a"], kept["b"], kept["verdict"], kept["annotator"]) == (*first, "similar", "me")
        expect(page.locator("#aside-discard")).to_be_visible()
        broken.clear()
        page.focus("#aside-again")
        page.keyboard.press("Enter")
        expect(aside).to_be_hidden()
        me.sent()
        me.said.append((first, "similar"))
        assert answers_in(folder) == dict(me.said)

        second = me.pair()
        broken[second] = UsageError("That pair cannot be answered.")
        page.keyboard.press(KEYS["similar"])
        expect(aside).to_contain_text("1 answer was not saved: That pair cannot be answered.")
        page.click("#aside-download")
        page.click("#aside-discard")
        expect(aside).to_be_hidden()
        page.reload()
        expect(page.locator("#tally")).to_have_text("5 answers")
        expect(aside).to_be_hidden()
    campaign.close()


def test_a_saved_answer_without_a_next_question_says_so(
    folder: Path, opened: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_at(folder) as site:
        page = opened(site.address)
        me = Person(page, folder)
        me.pair()
        expect(page.locator("body")).to_have_attribute("data-ahead", "2")

        def torn(self: Campaign, known: object) -> list[Pair]:
            raise CampaignError("A file is torn: run anneal check.")

        with monkeypatch.context() as broken:
            broken.setattr(Campaign, "open_heldout", torn)
            me.answer(1)
            expect(page.locator("#banner")).to_contain_text("A file is torn: run anneal check.")
            broken.setattr(progress, "machine", torn)  # now there is no state either
            assert site("GET", "/api/state").status >= 500
            me.answer(1)
            wait_for(lambda: page.evaluate(UNSENT) == 0)
            assert answers_in(folder) == dict(me.said)
        me.answer(2)
        me.sent()
        assert answers_in(folder) == dict(me.said)


def test_what_people_write_is_shown_as_text(folder: Path, opened: Callable[..., Page]) -> None:
    """Names, the criterion and searches that are markup run nothing in any view."""
    markup = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
    with page_at(folder) as site:
        pairs = {(0, 1): "similar", (1, 2): "similar", (0, 2): "dissimilar"}
        events = [{"key": f"key{a}-{b}-x", "a": a, "b": b, "verdict": w} for (a, b), w in pairs.items()]
        site.say(*events, annotator=markup)
        assert site("PUT", "/api/criterion", {"text": markup}).status == 200
        page = opened(site.address)
        me = Person(page, folder)
        expect(page.locator("#criterion")).to_contain_text(markup)
        page.evaluate("name => localStorage.setItem('anneal.annotator', name)", markup)
        page.reload()
        me.answer(1)
        me.sent()
        expect(page.locator("#annotator")).to_have_text(markup)
        for view in ("search", "search/3?plus=4&minus=5", f"search/q-{markup}", "review", "progress", markup):
            page.evaluate("view => { location.hash = view }", view)
            page.wait_for_load_state("networkidle")
            assert page.locator("img[src=x]").count() == 0, view
            assert page.title() != "run", view
        page.goto(site.address + "#progress")
        expect(page.locator("#people")).to_contain_text(markup)
        page.goto(site.address + "#review")
        expect(page.locator(".answer").first).to_contain_text(markup)
        page.fill("#filters [name=pair]", markup)
        expect(page.locator(".answer")).to_have_count(0)
        assert page.title() != "run"
