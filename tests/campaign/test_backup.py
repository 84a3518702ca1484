"""A backup is of one moment, whatever is written meanwhile, and can be put back."""

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from commands import Commands
from tiny import SETTINGS, answer_truly, campaign_in, end_round, pattern_archive, random_space

from anneal.archive.catalog import open_archive
from anneal.campaign.backup import backup, restore
from anneal.campaign.campaign import Campaign
from anneal.errors import CampaignError, DiskError, UsageError
from full_disk import no_file_over


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A campaign of 30 images with one round and some answers."""
    archive = open_archive(pattern_archive(tmp_path, kinds=6, each=5).root, 32, tmp_path / "c" / "cache")
    with closing(campaign_in(tmp_path / "c", archive, SETTINGS, vectors=random_space(n=30))) as campaign:
        answer_truly(campaign, 6)
        end_round(campaign)
        answer_truly(campaign, 3)
    return tmp_path / "c"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(capsys, monkeypatch)


def rows(folder: Path) -> list[tuple[int, int, int]]:
    with closing(Campaign.open(folder)) as campaign:
        return [(row.a, row.b, row.verdict) for row in campaign.log().rows]


def test_a_file_holds_what_people_said_and_the_rest_is_named(
    run: Commands, folder: Path, tmp_path: Path
) -> None:
    before = rows(folder)
    told = run(folder, "backup", tmp_path / "kept.sqlite")
    assert told.code == 0
    assert f"{len(before)} events are in" in told.text
    assert "anneal check --repair" in told.text
    with closing(Campaign.open(folder)) as campaign:
        answer_truly(campaign, 2)
    refused = run(folder, "restore", tmp_path / "kept.sqlite")
    assert (refused.code, "give --replace" in refused.text) == (2, True)
    assert run(folder, "restore", tmp_path / "kept.sqlite", "--replace").code == 0
    assert rows(folder) == before
    (kept,) = folder.glob("campaign.sqlite.*")
    with closing(sqlite3.connect(kept)) as db:
        assert db.execute("SELECT count(*) FROM answers").fetchone() == (len(before) + 2,)


def test_a_whole_campaign_goes_on_elsewhere(folder: Path, tmp_path: Path) -> None:
    backup(folder, tmp_path / "copy", everything=True)
    restore(tmp_path / "copy", tmp_path / "elsewhere")
    before = rows(folder)
    shutil.rmtree(folder)
    assert rows(tmp_path / "elsewhere") == before
    with closing(Campaign.open(tmp_path / "elsewhere")) as campaign:
        assert len(campaign.archive()) == 30
        assert campaign.rounds.serving == 0
        answer_truly(campaign, 2)


ANSWER_FOR_EVER = """
import sys
from anneal.campaign.campaign import Campaign
campaign = Campaign.open(sys.argv[1])
for number in range(100000):
    campaign.answer(number % 29, 29, 1 + number % 3, f"person {number % 4}")
    print(number + 1, flush=True)
"""


def test_every_answer_that_was_acknowledged_before_is_in_a_backup_taken_under_fire(
    folder: Path, tmp_path: Path
) -> None:
    before = len(rows(folder))
    with subprocess.Popen(
        [sys.executable, "-c", ANSWER_FOR_EVER, str(folder)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for number in range(5):
            acknowledged = int(writer.stdout.readline())
            target = tmp_path / f"{number}.sqlite"
            made = backup(folder, target)
            assert made.events >= before + acknowledged
            with closing(sqlite3.connect(target)) as db:
                assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                ids = [i for (i,) in db.execute("SELECT id FROM answers ORDER BY id")]
            assert ids == list(range(1, made.events + 1))  # none is missing in between
            restore(target, tmp_path / f"restored-{number}")
            shutil.copytree(folder / "cache", tmp_path / f"restored-{number}" / "cache")
            assert len(rows(tmp_path / f"restored-{number}")) == made.events
        writer.kill()


def test_what_goes_wrong_is_a_sentence_and_nothing_is_replaced(folder: Path, tmp_path: Path) -> None:
    before = rows(folder)
    (tmp_path / "old").write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        backup(folder, tmp_path / "old")
    assert (tmp_path / "old").read_text() == "mine"
    with no_file_over(40_000), pytest.raises(DiskError):
        backup(folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(CampaignError, match="is not a"):
        restore(tmp_path / "old", folder, replace=True)
    with pytest.raises(UsageError, match="give what anneal backup wrote"):
        restore(tmp_path / "nothing", folder, replace=True)
    assert rows(folder) == before
    assert not list(folder.glob("campaign.sqlite.*"))
