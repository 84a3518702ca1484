"""A stranger's campaign, and a stranger's folder: no code of theirs runs, no file outside the archive is
shown, no false number takes memory, nothing is downloaded."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Commands
from PIL import Image
from tiny import SETTINGS, campaign_in, pattern_archive, random_space

from anneal.archive.catalog import open_archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import take
from anneal.campaign.turn import create, turn
from anneal.errors import ArchiveError, BackboneError, CampaignError, UsageError
from anneal.network import backbones, encode
from anneal.settings import Settings
from served import label, page_of, wait_for


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of 30 images before the first answer. Copy it."""
    folder = tmp_path_factory.mktemp("made")
    archive = open_archive(pattern_archive(folder, kinds=6, each=5).root, 32, folder / "c" / "cache")
    settings = replace(SETTINGS, strategy="mgue", heldout=0.0)
    campaign_in(folder / "c", archive, settings, vectors=random_space(n=30)).close()
    return folder / "c"


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "c"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(capsys, monkeypatch)


def set_to(folder: Path, key: str, value: Any) -> None:
    """Write a setting as a stranger would."""
    with closing(sqlite3.connect(folder / "campaign.sqlite")) as db, db:
        db.execute("UPDATE settings SET value = ? WHERE key = ?", (json.dumps(value), key))


def change_setting(folder: Path, **values: Any) -> None:
    with closing(sqlite3.connect(folder / "campaign.sqlite")) as db:
        (saved,) = db.execute("SELECT value FROM settings WHERE key = 'settings'").fetchone()
    set_to(folder, "settings", {**json.loads(saved), **values})


# -- code from the current folder --------------------------------------------------------------------

TRAP = "import pathlib; pathlib.Path(__file__ + '.ran').write_text('ran')\n"


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with modules that note that they were imported."""
    folder = tmp_path / "downloaded"
    folder.mkdir()
    for name in ("filelock", "copy", "torch", "safetensors", "anneal", "joblib", "multiprocessing"):
        (folder / f"{name}.py").write_text(TRAP)
    monkeypatch.chdir(folder)
    yield folder
    assert [file.name for file in folder.glob("*.ran")] == []


def test_the_machine_takes_no_module_from_the_current_folder(folder: Path, trap: Path) -> None:
    script = Path(sys.executable).with_name("anneal")
    source = str(Path(__file__).parents[2] / "src")
    with label(folder, command=[str(script)], env={"PYTHONPATH": source}) as site:
        wait_for(lambda: site.get("/api/state")["machine"]["state"] == "idle")


def test_processes_that_a_command_starts_take_no_module_from_the_current_folder(
    run: Commands, folder: Path, trap: Path
) -> None:
    assert run(folder, "status").code == 0
    child = "import sys, copy; print('' in sys.path)"  # as loky and the resource tracker are started
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# -- a strategy of the campaign's own ----------------------------------------------------------------

OWN = """
import pathlib
import numpy as np
from anneal import Pairs
pathlib.Path(__file__).with_suffix(".ran").write_text("ran")
def first(snapshot, n, rng):
    pairs = [(i, j) for i in range(9) for j in range(i + 1, 9)][:n]
    return Pairs.from_list(pairs)
"""


@pytest.fixture
def own(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The campaign says that it asks by stolen:first. Returns the file that says that it was imported."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "stolen.py").write_text(OWN)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    change_setting(folder, strategy="stolen:first")
    yield tmp_path / "here" / "stolen.ran"
    sys.modules.pop("stolen", None)


def test_a_strategy_that_is_only_named_in_the_campaign_is_not_imported(
    run: Commands, folder: Path, own: Path, tmp_path: Path
) -> None:
    for command in ("label --no-browser --port 0", "round"):
        told = run(folder, *command.split())
        assert told.code == 2
        assert (
            "is code from outside anneal. If you trust it, give this command --strategy stolen:first"
            in told.text
        )
    for command in ("status", "search kind00/00.png", f"export {tmp_path / 'a.csv'}"):
        assert run(folder, *command.split()).code == 0
    with closing(Campaign.open(folder)) as campaign:
        assert campaign.answer(0, 1, 1) == 1
        with pytest.raises(UsageError, match="is code from outside anneal"):
            take(campaign, "me", "me", 1)
    assert not own.exists()


def test_a_strategy_that_a_person_names_is_imported(folder: Path, own: Path) -> None:
    with pytest.raises(UsageError, match="--strategy other:one: this campaign asks by stolen:first"):
        Campaign.open(folder, "other:one")
    with label(folder, "--strategy", "stolen:first") as site:
        assert len(site.get("/api/questions?holder=me")["questions"]) == 3
        wait_for(lambda: site.get("/api/state")["machine"]["state"] in ("idle", "failed"))
    assert own.exists()


# -- what a campaign says ----------------------------------------------------------------------------


def test_images_that_a_manifest_names_outside_its_folder_are_shown_from_their_files(
    drawn: Path, tmp_path: Path
) -> None:
    """They were named when the campaign was made: relative to the manifest, or by their whole paths."""
    files = sorted((drawn / "river").iterdir())[:4]
    (tmp_path / "lists").mkdir()
    shutil.copytree(drawn / "river", tmp_path / "beside")
    named = [f"../beside/{file.name}" for file in files[:2]] + [str(file.resolve()) for file in files[2:]]
    (tmp_path / "lists" / "images.csv").write_text("\n".join(["path", *named]), encoding="utf-8")
    settings = Settings(px=32, views=1, backbone="random:resnet-18")
    with closing(create(tmp_path / "lists" / "images.csv", tmp_path / "c", settings)) as campaign:
        archive = campaign.archive()
        for image, file in enumerate(files):
            with Image.open(file) as picture:
                assert archive.picture(image, 1000).shape[:2] == picture.size[::-1]


@pytest.mark.parametrize("path", ["../secret.png", "kind00/../../secret.png", "absolute"])
def test_a_file_outside_the_archive_is_not_shown(folder: Path, tmp_path: Path, path: str) -> None:
    secret = tmp_path / "secret.png"
    Image.new("RGB", (300, 300), (255, 0, 0)).save(secret)
    images = tmp_path / "images"
    (images / "kind00").mkdir(parents=True)
    set_to(folder, "archive", {"root": str(images), "folder": str(next((folder / "cache").iterdir()))})
    (listed,) = (folder / "cache").glob("*/pixels.jsonl")
    lines = listed.read_text().splitlines()
    shown = str(secret) if path == "absolute" else path
    lines[0] = json.dumps([shown, *json.loads(lines[0])[1:]])
    listed.write_text("\n".join(lines) + "\n" + " " * 200)
    with closing(Campaign.open(folder)) as campaign:
        with pytest.raises(ArchiveError, match="is not in the archive's folder"):
            campaign.archive().picture(0, 300)
        with page_of(campaign) as site:
            reply = site("GET", "/api/images/0")
    assert reply.status == 200
    (tmp_path / "shown.jpg").write_bytes(reply.body)
    with Image.open(tmp_path / "shown.jpg") as picture:
        assert picture.size == (32, 32)  # the stored pixels


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("size", 2**40),
        ("size", 31),
        ("size", -1),
        ("size", "many"),
        ("images", [0, 2**40]),
        ("images", [-1]),
        ("images", "all"),
        ("archive", "here"),
        ("settings", [1]),
    ],
)
def test_numbers_that_are_false_end_in_a_sentence(run: Commands, folder: Path, key: str, value: Any) -> None:
    set_to(folder, key, value)
    with pytest.raises((CampaignError, UsageError), match="anneal check"):
        Campaign.open(folder)
    assert run(folder, "status").is_plain()


@pytest.mark.parametrize(
    "values", [{"px": 2**40}, {"px": "32"}, {"lam": "3"}, {"views": True}, {"seed": -1}, {"backbone": 3}]
)
def test_settings_that_are_false_end_in_a_sentence(
    run: Commands, folder: Path, values: dict[str, Any]
) -> None:
    change_setting(folder, **values)
    assert run(folder, "status").is_plain()
    assert run(folder, "status").code == 2


@pytest.mark.parametrize(("a", "b"), [(0, 30), (0, 2**40), (-5, 3)])
def test_answers_about_images_that_are_not_there_are_refused(folder: Path, a: int, b: int) -> None:
    columns = "(a, b, verdict, annotator, answered, strategy, round)"
    with closing(sqlite3.connect(folder / "campaign.sqlite")) as db, db:
        db.execute(f"INSERT INTO answers {columns} VALUES (?, ?, 1, 'x', 0.0, '', 0)", (a, b))
    with pytest.raises(CampaignError, match="speaks of images that it does not have"):
        Campaign.open(folder)


def test_an_agenda_about_images_that_are_not_there_counts_as_lost(folder: Path) -> None:
    with closing(Campaign.open(folder)) as campaign:
        files = campaign.rounds.files(-1)
        agenda = files.agenda()
        assert agenda is not None
        files.save_agenda(replace(agenda, images=np.array([2**40])))
        assert campaign.rounds.agenda().last == -1
        assert take(campaign, "me", "me", 3) is not None


# -- networks ----------------------------------------------------------------------------------------


def test_a_campaign_does_not_download_a_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    asked: list[dict[str, Any]] = []

    def refuse(source: str, **options: Any) -> Any:
        asked.append(options)
        raise OSError("not in the cache")

    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", refuse)
    change_setting(folder, backbone="stranger/network")
    with closing(Campaign.open(folder)) as campaign:
        campaign.answer(0, 1, 1)
        with pytest.raises(BackboneError, match="If you trust it, give: anneal fetch stranger/network"):
            turn(campaign)
    assert asked == [{"local_files_only": True, "trust_remote_code": False}]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(BackboneError, match="cannot be loaded"):
        backbones.fetch("stranger/network")  # a person has named it
    assert asked[-1] == {"trust_remote_code": False}


@pytest.mark.parametrize("name", [backbones.DEFAULT, "random:efficientnet-lite0"])
def test_images_that_are_too_small_for_the_network_are_refused(
    run: Commands, tmp_path: Path, name: str
) -> None:
    archive = pattern_archive(tmp_path, kinds=2, each=2)
    refused = run(tmp_path / "new", "init", archive.root, "--backbone", name, "--px", "31")
    assert (refused.code, refused.is_plain()) == (2, True)
    assert f"--px 31 is too small for {name}: give 32 or more" in refused.text
    small = open_archive(archive.root, 16, tmp_path / "small")
    with pytest.raises(UsageError, match=r"cannot take images of 16 pixels .*: give a larger --px"):
        encode.inputs(small, backbones.load(name), "head")


def test_the_wheel_holds_no_test_data() -> None:
    """What setuptools finds below src is the package alone, with the page's files."""
    import tomllib

    from setuptools import find_packages  # type: ignore[import-untyped]

    root = Path(__file__).parents[2]
    about = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    (where,) = about["packages"]["find"]["where"]
    assert {name.split(".")[0] for name in find_packages(str(root / where))} == {"anneal"}
    assert set(about["package-data"]) == {"anneal"}
    kinds = {path.suffix for path in (root / where / "anneal").rglob("*") if path.is_file()} - {".pyc"}
    assert kinds <= {".py", ".typed", ".js", ".css", ".html", ".svg", ".json"}, os.fspath(root)


def test_bandit_finds_nothing_that_is_not_explained() -> None:
    pytest.importorskip("bandit")
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "bandit", "-q", "-c", "pyproject.toml", "-r", "src"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
