"""File names that are not UTF-8, or that a terminal would obey, from init to the page."""

from __future__ import annotations

import csv
import json
import os
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from anneal import cli
from anneal.campaign.campaign import Campaign
from anneal.errors import UsageError
from anneal.names import printable, visible
from anneal.pairs import Verdict
from served import page_of

NAMES = {
    b"caf\xe9.png": r"caf\xe9.png",
    b"f\xe9ld/\xff\xfe.png": r"f\xe9ld/\xff\xfe.png",
    b"new\nline.png": "new\nline.png",
    b"\x1b]0;title\x07\x1b[31m.png": "\x1b]0;title\x07\x1b[31m.png",
    "\u202egnp.exe.png".encode(): "\u202egnp.exe.png",
    b"[bold]x\\[red].png": "[bold]x\\[red].png",
    "\u00e9\u6f22.png".encode(): "\u00e9\u6f22.png",
    **{f"{i}.png".encode(): f"{i}.png" for i in range(7)},
}  # on disk → in a table


@given(st.text(st.characters(exclude_categories=())))
@example("\udce9\ud800")
def test_any_name_becomes_text_that_a_terminal_shows(name: str) -> None:
    printable(name).encode("utf-8")
    assert all(one.isprintable() or one in "\u00a0\u202f" for one in visible(name))
    assert str(UsageError(name)) == printable(name)
    if name.isprintable():
        assert visible(name) == printable(name) == name


@given(st.binary(max_size=30))
def test_a_name_in_utf_8_stays_as_it_is(name: bytes) -> None:
    try:
        assert printable(os.fsdecode(name)) == name.decode()
    except UnicodeDecodeError:
        assert "\\x" in printable(os.fsdecode(name))


class Commands:
    """Runs commands in this process and looks at every character that they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capsys = capsys
        self.monkeypatch = monkeypatch
        monkeypatch.setenv("COLUMNS", "200")

    def __call__(self, *words: str | Path, code: int = 0) -> str:
        self.monkeypatch.setattr(sys, "argv", ["anneal", *(str(word) for word in words)])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = "".join(self.capsys.readouterr())
        assert (ended.value.code or 0) == code, printed
        assert all(one.isprintable() for one in printed.replace("\n", "").replace("\r", ""))
        return printed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An archive of such names, with a copy of an image, a damaged file and a pipe."""
    root = os.fsencode(tmp_path / "in")
    for number, name in enumerate(NAMES):
        file = os.path.join(root, name)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        image = Image.effect_noise((40, 40), 20 + 10 * number).convert("RGB")
        with open(file, "wb") as out:
            image.save(out, "PNG")
    with open(os.path.join(root, b"caf\xe9.png"), "rb") as data:
        copied = data.read()
    for name, content in ((b"copy\xe8\x1b[2J.png", copied), (b"damaged\xe9\n.png", b"no image")):
        with open(os.path.join(root, name), "wb") as out:
            out.write(content)
    os.mkfifo(os.path.join(root, b"pipe\x9b\xe9.png"))
    return tmp_path / "in"


@pytest.mark.usefixtures("few_steps")
def test_names_never_break_a_command_nor_reach_a_terminal(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Commands(capsys, monkeypatch)
    made = tmp_path / "c"
    net = "--backbone random:resnet-18 --px 32 --per-round 4 --heldout 0 --recheck 0 --strategy mgue"
    told = run("init", folder, "--campaign", made, *net.split())
    assert r"damaged\xe9\n.png: not an image that can be read" in told
    assert r"pipe\x9b\xe9.png: a pipe, not a file" in told
    with (made / "skipped.csv").open(encoding="utf-8", newline="") as file:
        skipped = [row["path"] for row in csv.DictReader(file)]
    assert skipped == ["damaged\\xe9\n.png", r"pipe\x9b\xe9.png"]

    with closing(Campaign.open(made)) as campaign:
        images = campaign.images.tolist()
        for other in images[1:4]:
            campaign.answer(images[0], other, Verdict.SIMILAR)
        campaign.answer(images[4], images[5], Verdict.DISSIMILAR)
        shown = {printable(path) for path in campaign.archive().paths}
        assert {*NAMES.values()} <= shown
        first = campaign.archive().file(images[0])
    run("round", "--campaign", made)
    assert "\\x1b" in run("duplicates", "--campaign", made)
    run("duplicates", "--campaign", made, "--json")
    found = json.loads(run("search", first, "--campaign", made, "-k", "30", "--json"))
    assert {hit["path"] for hit in found[0]["results"]} < shown
    run("search", first, "--campaign", made)
    assert r"gone\x1b[2J\xe9 is neither" in run(
        "search", os.fsdecode(b"gone\x1b[2J\xe9"), "--campaign", made, code=2
    )

    for kind in ("csv", "jsonl"):
        run("export", tmp_path / f"answers.{kind}", "--campaign", made)
        run("classify", tmp_path / f"classes.{kind}", "--campaign", made)
    lines = (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4
    with (tmp_path / "classes.csv").open(encoding="utf-8", newline="") as file:
        assert {row["path"] for row in csv.DictReader(file)} <= shown
    run("import", tmp_path / "answers.csv", "--campaign", made)

    first.unlink()
    run("status", "--campaign", made)
    assert json.loads(run("status", "--campaign", made, "--json"))["missing"] == [
        printable(first.relative_to(folder).as_posix())
    ]
    run("update", "--campaign", made)
    run("check", "--campaign", made)


def test_the_page_gets_every_name(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Commands(capsys, monkeypatch)
    made = tmp_path / "c"
    run("init", folder, "--campaign", made, "--backbone", "random:resnet-18", "--px", "32")
    with closing(Campaign.open(made)) as campaign:
        images = campaign.images.tolist()
        campaign.answer(images[0], images[1], Verdict.SIMILAR)
        every = [printable(path) for path in campaign.archive().paths]
        gone = campaign.archive().file(images[2])
        gone.unlink()
        with page_of(campaign) as site:
            assert site("GET", "/api/names").json["names"] == every
            for place in ("answers", "groups", "find?name=.png", f"search?image={images[0]}", "state"):
                assert site("GET", f"/api/{place}").status == 200
            for image in images:
                told = site("GET", f"/api/images/{image}/about")
                assert told.status == (404 if image == images[2] else 200)
                assert every[image] in (told.json.get("name") or told.json["detail"])
                assert site("GET", f"/api/images/{image}").status == 200
            ids = ",".join(map(str, images))
            for place in ("paths", "listing.csv", "listing.geojson"):
                assert site("GET", f"/api/{place}?ids={ids}").status == 200
