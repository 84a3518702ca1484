"""Damaged campaigns: every command ends in a sentence, check finds the damage, and --repair makes again what
can be made. The answers are what they were, unless the file that holds them is what was damaged."""

import csv
import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from commands import Commands
from PIL import Image
from tiny import SETTINGS, answer_truly, pattern_archive

from anneal.archive.catalog import open_archive
from anneal.campaign import check as checking
from anneal.campaign import progress, worker
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import take
from anneal.campaign.rounds import FROZEN
from anneal.campaign.store import Store
from anneal.campaign.turn import begin, turn
from anneal.files import save_array, write_text
from anneal.network import backbones
from anneal.network.train import Fit
from served import wait_for

Harm = Callable[[Path], None]
Standing = list[tuple[int, int, int]]
Look = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with two rounds, in a folder with its images. Copy it."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fit, "length", lambda settings, known: 5)
        images = pattern_archive(folder, kinds=6, each=5).root
        archive = open_archive(images, 32, folder / "c" / "cache")
        backbone = backbones.load(SETTINGS.backbone)
        with closing(begin(folder / "c", archive, SETTINGS, backbone=backbone)) as campaign:
            for _ in range(2):
                answer_truly(campaign, 12)
                turn(campaign, backbone)
            assert campaign.rounds.serving == 1
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the campaign. A turn takes little time."""
    monkeypatch.setattr(Fit, "length", lambda settings, known: 5)
    folder = Path(shutil.copytree(made / "c", tmp_path / "c"))
    (stored,) = (folder / "cache").iterdir()
    with closing(Store(folder / "campaign.sqlite")) as store:
        store.set(archive={"root": str(made / "images"), "folder": str(stored)})
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(capsys, monkeypatch)


def standing(folder: Path) -> Standing:
    with closing(Campaign.open(folder)) as campaign:
        return [(row.a, row.b, row.verdict) for row in campaign.log().standing()]


def cut(path: Path, share: float = 0.5) -> None:
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * share))


def overwrite(path: Path, value: bytes) -> None:
    path.write_bytes(value * (path.stat().st_size // len(value)))


def sql(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "campaign.sqlite")) as db, db:
        db.execute(statement)


def pixels(folder: Path, suffix: str) -> Path:
    (file,) = (folder / "cache").glob(f"*/pixels{suffix}")
    return file


OF_FILES: dict[str, Harm] = {
    "pixels missing": lambda c: pixels(c, ".bin").unlink(),
    "pixels truncated": lambda c: cut(pixels(c, ".bin")),
    "pixels' JSON torn": lambda c: cut(pixels(c, ".json")),
    "list torn": lambda c: cut(pixels(c, ".jsonl")),
    "vectors missing": lambda c: (c / "rounds/0001/vectors.npy").unlink(),
    "vectors torn": lambda c: cut(c / "rounds/0001/vectors.npy"),
    "vectors empty": lambda c: cut(c / "rounds/0001/vectors.npy", 0),
    "vectors of another shape": lambda c: save_array(c / "rounds/0001/vectors.npy", np.ones((7, 3), "f4")),
    "frozen vectors torn": lambda c: cut(c / "rounds/frozen/vectors.npy"),
    "model torn": lambda c: cut(c / "rounds/0001/model.safetensors"),
    "model changed": lambda c: overwrite(c / "rounds/0001/model.safetensors", b"\x07"),
    "model.json missing": lambda c: (c / "rounds/0001/model.json").unlink(),
    "model.json garbage": lambda c: overwrite(c / "rounds/0001/model.json", b"{"),
    "agenda torn": lambda c: cut(c / "rounds/0001/agenda.npz"),
    "index garbage": lambda c: write_text(c / "rounds/0001/index.faiss", "garbage" * 50),
    "rounds gone": lambda c: shutil.rmtree(c / "rounds"),
}
OF_DATABASE: dict[str, Harm] = {
    "truncated": lambda c: cut(c / "campaign.sqlite"),
    "zeroed": lambda c: overwrite(c / "campaign.sqlite", b"\0"),
    "garbage": lambda c: overwrite(c / "campaign.sqlite", b"garbage!"),
    "no table answers": lambda c: sql(c, "DROP TABLE answers"),
    "no table leases": lambda c: sql(c, "DROP TABLE leases"),
    "version 0": lambda c: sql(c, "PRAGMA user_version = 0"),
    "bad JSON in settings": lambda c: sql(c, "UPDATE settings SET value = '{' WHERE key = 'settings'"),
    "bad JSON in size": lambda c: sql(c, "UPDATE settings SET value = '[' WHERE key = 'size'"),
    "a setting of a wrong type": lambda c: sql(
        c, """UPDATE settings SET value = '{"px": "large"}' WHERE key = 'settings'"""
    ),
    "bad record": lambda c: sql(c, "UPDATE rounds SET about = '7' WHERE round = 1"),
}


def try_everything(run: Commands, folder: Path, tmp_path: Path) -> None:
    """Each command ends well or in a sentence."""
    for words in (("status",), ("search", "kind00/00.png"), ("export", tmp_path / "answers.csv")):
        done = run(folder, *words)
        assert done.is_plain(), (words, done)


@pytest.mark.parametrize("harm", OF_FILES.values(), ids=OF_FILES)
def test_a_damaged_file_is_found_and_made_again_and_no_answer_is_lost(
    run: Commands, folder: Path, tmp_path: Path, harm: Harm
) -> None:
    before = standing(folder)
    assert run(folder, "check").code == 0
    harm(folder)
    try_everything(run, folder, tmp_path)
    found = run(folder, "check")
    assert found.code == 1
    assert "--repair" in found.text
    assert standing(folder) == before
    mended = run(folder, "check", "--repair")
    assert (mended.code, "is in order" in mended.text) == (0, True), mended
    assert standing(folder) == before
    assert run(folder, "search", "kind00/00.png").code == 0
    with closing(Campaign.open(folder)) as campaign:
        assert len(take(campaign, "me", "me", 3)) == 3


@pytest.mark.parametrize(("name", "harm"), OF_DATABASE.items(), ids=OF_DATABASE)
def test_what_can_be_read_of_a_damaged_database_is_saved(
    run: Commands, folder: Path, tmp_path: Path, name: str, harm: Harm
) -> None:
    before = standing(folder)
    harm(folder)
    broken = (folder / "campaign.sqlite").read_bytes()
    try_everything(run, folder, tmp_path)
    assert run(folder, "round").is_plain()
    found = run(folder, "check")
    assert (found.code, "anneal restore" in found.text) == (1, True), found
    mended = run(folder, "check", "--repair")
    assert (mended.code, "is in order" in mended.text) == (0, True), mended
    saved = standing(folder)
    if name in ("zeroed", "garbage", "no table answers"):
        assert saved == []
        assert "0 events of people were saved" in mended.text
    elif name == "truncated":
        assert set(saved) <= set(before)
    else:
        assert saved == before
    assert (folder / "campaign.sqlite.damaged").read_bytes()[:1000] == broken[:1000]


def test_a_version_that_does_not_exist_is_left_alone(run: Commands, folder: Path, tmp_path: Path) -> None:
    sql(folder, "PRAGMA user_version = 99")
    before = (folder / "campaign.sqlite").read_bytes()
    try_everything(run, folder, tmp_path)
    told = run(folder, "check", "--repair")
    assert (told.code, "update anneal to open it" in told.text) == (1, True)
    assert (folder / "campaign.sqlite").read_bytes() == before


def test_from_the_answers_alone(run: Commands, folder: Path) -> None:
    """Pixels, features and models are gone. The images are where they were."""
    before = standing(folder)
    shutil.rmtree(folder / "rounds")
    shutil.rmtree(folder / "cache")
    mended = run(folder, "check", "--repair")
    assert mended.code == 0, mended
    for sentence in ("were read again", "were encoded again", "A new model was trained on all answers"):
        assert sentence in mended.text
    assert standing(folder) == before
    assert run(folder, "search", "kind00/00.png").code == 0


def test_images_that_have_changed_are_not_taken_for_those_of_then(
    run: Commands, made: Path, folder: Path, tmp_path: Path
) -> None:
    images = Path(shutil.copytree(made / "images", tmp_path / "images"))  # without the old times
    with closing(Campaign.open(folder)) as campaign:
        campaign.store.set(archive={**campaign.store.setting("archive", {}), "root": str(images)})
    (images / "kind00" / "00.png").unlink()
    shutil.rmtree(folder / "cache")
    told = run(folder, "check", "--repair")
    assert told.code == 1
    assert "which image had which number is not known" in told.text
    assert len(standing(folder)) > 0


def test_a_campaign_that_has_grown_is_in_order(
    run: Commands, made: Path, folder: Path, tmp_path: Path
) -> None:
    """An update writes some files of rounds anew: that is no damage."""
    images = Path(shutil.copytree(made / "images", tmp_path / "images"))
    with closing(Campaign.open(folder)) as campaign:
        campaign.store.set(archive={**campaign.store.setting("archive", {}), "root": str(images)})
    pixels = np.random.default_rng(5).integers(0, 255, (32, 32, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(images / "kind00" / "new.png")
    assert "1 new" in run(folder, "update").text
    told = run(folder, "check")
    assert (told.code, "is in order" in told.text) == (0, True), told
    cut(folder / "rounds/0001/vectors.npy", 0.98)  # the last rows are gone
    assert run(folder, "check").code == 1


# -- while it is used --------------------------------------------------------------------------------


def test_the_last_good_model_serves_and_the_page_says_so(folder: Path) -> None:
    cut(folder / "rounds/0001/vectors.npy", 0)
    with closing(Campaign.open(folder)) as campaign:
        assert campaign.rounds.serving == 0
        assert len(take(campaign, "me", "me", 3)) == 3
        number = campaign.answer(0, 1, 1)
        assert campaign.log().row(number) is not None
        told = progress.machine(campaign)["text"]
        assert "the vectors of round 1 cannot be read" in told
        assert "the last good model serves (round 0)" in told


@pytest.mark.parametrize("name", ["vectors empty", "model torn", "agenda torn", "model.json missing"])
def test_the_machine_learns_anew_by_itself_and_once(folder: Path, name: str) -> None:
    OF_FILES[name](folder)
    stop = threading.Event()
    with closing(Campaign.open(folder)) as campaign:
        thread = threading.Thread(target=worker._take_turns, args=(folder, stop))
        thread.start()
        try:
            wait_for(lambda: campaign.rounds.current == 3)
            wait_for(lambda: campaign.mailbox.machine()[1]["state"] == "idle")
        finally:
            stop.set()
            thread.join()
        assert campaign.rounds.current == 3
        assert checking.lost(campaign.rounds) == []
        assert campaign.rounds.is_whole(campaign.rounds.serving)


def test_frozen_features_that_are_lost_before_the_first_answer_are_made_again(
    made: Path, folder: Path
) -> None:
    shutil.rmtree(folder / "rounds")
    for table in ("rounds", "answers"):
        sql(folder, f"DELETE FROM {table}")
    stop = threading.Event()
    with closing(Campaign.open(folder)) as campaign:
        thread = threading.Thread(target=worker._take_turns, args=(folder, stop))
        thread.start()
        try:
            wait_for(lambda: not checking.lost(Campaign.open(folder).rounds))
        finally:
            stop.set()
            thread.join()
        expected = np.load(made / "c" / "rounds" / "frozen" / "vectors.npy")
        np.testing.assert_allclose(campaign.rounds.vectors(FROZEN), expected, atol=1e-6)
        assert len(take(campaign, "me", "me", 3)) == 3


def test_the_record_of_a_round_has_the_size_and_the_checksum_of_each_file(folder: Path) -> None:
    with closing(Campaign.open(folder)) as campaign:
        for record in campaign.rounds.records():
            files = campaign.rounds.files(record.number)
            assert {name: tuple(about) for name, about in record.files.items()} == files.checksums()
            assert {"vectors.npy", "agenda.npz", "model.safetensors", "model.json"} <= set(record.files)


# -- where nothing may be written --------------------------------------------------------------------

READ_ONLY = "mount --bind {0} {0} && mount -o remount,bind,ro {0} && test ! -w {0}/campaign.sqlite"
LOOK = """
import contextlib, io, json, sys
from anneal import cli
done = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["anneal", *words]
    out = io.StringIO()
    cli.out.file, cli.err.file = out, out
    with contextlib.suppress(SystemExit):
        cli.main()
    done.append(out.getvalue())
print(json.dumps(done))
"""


def seen_read_only(folder: Path, *commands: str) -> list[str]:
    """What these commands print if the campaign's folder is on a read-only file system."""
    mount = READ_ONLY.format(folder)
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here")
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("a read-only file system cannot be mounted here")
    words = json.dumps([[*command.split(), "--campaign", str(folder)] for command in commands])
    script = [sys.executable, "-c", LOOK, words]
    argv = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", *script]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return [" ".join(text.split()) for text in json.loads(done.stdout)]


def leave_a_log(folder: Path, tmp_path: Path) -> None:
    """An answer that is in the write-ahead log only, as a killed process leaves it."""
    late = "(a, b, verdict, annotator, answered, strategy, round) VALUES (0, 29, 2, 'late', 1.0, 'place', 2)"
    files = ("campaign.sqlite", "campaign.sqlite-wal")
    with closing(sqlite3.connect(folder / files[0])) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        with db:
            db.execute(f"INSERT INTO answers {late}")
        for name in files:
            shutil.copy(folder / name, tmp_path / name)
    for name in files:
        shutil.copy(tmp_path / name, folder / name)
    assert (folder / files[1]).stat().st_size > 0


@pytest.mark.parametrize("kind", ["as it is", "with a log", "of version 2"])
def test_a_campaign_on_a_read_only_file_system_can_be_looked_at(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    given = len(standing(folder))
    if kind == "with a log":
        leave_a_log(folder, tmp_path)
        given += 1
    if kind == "of version 2":
        shutil.rmtree(folder)
        shutil.copytree(Path(__file__).parent.parent / "fixtures" / "version-2" / "mgue", folder)
        given = 52
    names = sorted(file.name for file in folder.iterdir())
    file = tmp_path / "out.csv"
    looks = ["status --json"] + ["search kind00/00.png --json -k 3", f"export {file}"] * (
        kind != "of version 2"
    )
    status, *others, learnt, served = seen_read_only(folder, *looks, "round", "label --no-browser --port 0")
    assert json.loads(status)["answers"] == given
    for told in (learnt, served):
        assert "may not be written" in told
    if others:
        assert len(json.loads(others[0])[0]["results"]) == 3
        rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
        assert sum(row["stands"] == "yes" for row in rows) == given
    assert sorted(file.name for file in folder.iterdir()) == names
