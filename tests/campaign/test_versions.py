"""A campaign of every released version opens and says what it said; a migration is done whole or not at all.

``fixtures/version-3`` was written by the code of file version 3: its file as SQL, and the answers that stood.
"""

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import pattern_archive

from anneal.campaign import turn
from anneal.campaign.campaign import Campaign
from anneal.campaign.migrations import MIGRATIONS
from anneal.campaign.rounds import FROZEN
from anneal.search import find_similar
from anneal.settings import Settings

FIXTURES = Path(__file__).parent.parent / "fixtures"
COLUMNS = "id, a, b, verdict, annotator, answered, round"


@pytest.fixture
def version_3(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "campaign.sqlite")) as db:
        db.executescript((FIXTURES / "version-3" / "campaign.sql").read_text(encoding="utf-8"))
    return tmp_path


def rows(folder: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "campaign.sqlite")) as db:
        return db.execute(f"SELECT {COLUMNS} FROM answers ORDER BY id").fetchall()


def version(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "campaign.sqlite")) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def test_a_campaign_of_version_3_says_what_it_said(version_3: Path) -> None:
    before = rows(version_3)
    expected = json.loads((FIXTURES / "version-3" / "standing.json").read_text(encoding="utf-8"))
    for _ in range(2):  # brought up to date, and opened again
        with closing(Campaign.open(version_3)) as campaign:
            standing = [
                [row.id, row.a, row.b, row.verdict, row.annotator] for row in campaign.log().standing()
            ]
            assert standing == expected
            assert campaign.size == 30
            assert campaign.rounds.current == 2
            assert campaign.store.setting("criterion", "") == "same kind of scene"
            assert campaign.store.labels() == {3: "river"}
    assert rows(version_3) == before
    assert version(version_3) == len(MIGRATIONS)


def test_a_campaign_on_the_features_of_its_time_goes_on_with_them(tmp_path: Path) -> None:
    """Campaigns that were made with the default of their time keep their network beside those of today."""
    archive = pattern_archive(tmp_path, kinds=3, each=8)
    made = Settings(px=32, per_round=4)
    widths = []
    for name in ("efficientnet-lite0", "efficientnet-lite0-512", made.backbone):
        settings = replace(made, backbone=name)
        folder = tmp_path / settings.backbone
        turn.begin(folder, archive, settings).close()
        with closing(Campaign.open(folder)) as campaign:
            for pair, verdict in (((0, 1), 1), ((9, 10), 1), ((0, 9), 2)):
                campaign.answer(*pair, verdict)
            encoder = turn.turn(campaign).fitted.encoder
            widths.append((campaign.rounds.vectors(FROZEN).shape[1], encoder.dim))
            outside = tmp_path / "outside.png"
            shutil.copy(archive.file(20), outside)
            (found,) = find_similar(campaign, [outside], k=1)
            assert (found.ids, round(found.scores[0], 3)) == ([20], 1.0)
    assert widths == [(1280, 1280), (512, 512), (624, 624)]


KILLED = """
import os, signal, sys
from pathlib import Path
from anneal.campaign import database
from anneal.campaign.store import Store
steps = list(database.MIGRATIONS)
def killed(db):
    steps[2](db)
    os.kill(os.getpid(), signal.SIGKILL)
database.MIGRATIONS[2] = killed
Store(Path(sys.argv[1]))
"""


def test_a_process_that_is_killed_in_a_migration_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURES / "version-2" / "place", tmp_path / "c"))
    before = rows(folder)
    command = [sys.executable, "-c", KILLED, str(folder / "campaign.sqlite")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -9
    assert version(folder) == 2
    assert rows(folder) == before
    with closing(Campaign.open(folder)) as campaign:
        assert [row.id for row in campaign.log().rows] == [row[0] for row in before]
    assert version(folder) == len(MIGRATIONS)
