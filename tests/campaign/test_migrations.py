"""Files of earlier versions are brought up to date and keep everything that people said.

The campaigns in ``fixtures/version-2`` were made by the code of file version 2, on 48 images. Their model
files are left out.
"""

import json
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal.campaign import heldout, progress, questions
from anneal.campaign.campaign import Campaign
from anneal.campaign.log import Log
from anneal.campaign.migrations import MIGRATIONS
from anneal.campaign.rounds import FROZEN, Record
from anneal.campaign.store import MACHINE, Event, Purpose, Store
from anneal.campaign.turn import turn
from anneal.errors import CampaignError, DiskError
from anneal.pairs import UNKNOWN, Pair, Pairs, Verdict
from full_disk import no_file_over

SIMILAR, DISSIMILAR, UNSURE = Verdict
FIXTURES = Path(__file__).parent.parent / "fixtures" / "version-2"
CAMPAIGNS = ("place", "mgue", "simulation")
every_campaign = pytest.mark.parametrize("name", CAMPAIGNS)
both_strategies = pytest.mark.parametrize("name", ["place", "mgue"])

Open = Callable[[str], Campaign]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens a copy of a fixture."""
    with ExitStack() as stack:

        def open_copy(name: str) -> Campaign:
            campaign = Campaign.open(copy_of(name, tmp_path))
            stack.callback(campaign.close)
            return campaign

        yield open_copy


def copy_of(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / name, folder / name))


def raw(path: Path, sql: str, *values: Any) -> list[Any]:
    """What another program's SQLite sees in the file."""
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(sql, values).fetchall()


def old_rows(name: str, tmp_path: Path, sql: str) -> list[Any]:
    """What a fixture's file holds before it is opened."""
    file = shutil.copy(FIXTURES / name / "campaign.sqlite", tmp_path / f"before {name}.sqlite")
    return raw(Path(file), sql)


# -- version 2: what people said -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "events", "expected"),
    [
        ("place", 59, {"similar": 3, "dissimilar": 45, "unsure": 4, "heldout": 9, "implied": 18}),
        ("mgue", 60, {"similar": 5, "dissimilar": 43, "unsure": 4, "heldout": 10, "implied": 14}),
        ("simulation", 41, {"similar": 6, "dissimilar": 33, "unsure": 0, "heldout": 0, "implied": 36}),
    ],
)
def test_an_older_campaign_stands_where_it_stood(
    opened: Open, name: str, events: int, expected: dict[str, int]
) -> None:
    campaign = opened(name)
    standing = progress.standing(campaign)
    assert len(campaign.log().rows) == events
    assert {key: getattr(standing, key) for key in expected} == expected
    assert standing.answers == sum(expected[verdict] for verdict in ("similar", "dissimilar", "unsure"))
    assert (standing.images, standing.rounds, standing.contradictions) == (48, 2, 0)
    assert campaign.rounds.serving == 1


@every_campaign
def test_every_row_keeps_its_number_and_what_was_said(opened: Open, tmp_path: Path, name: str) -> None:
    columns = "id, a, b, verdict, annotator, asked, answered, round, looked, key, undoes, entered"
    before = old_rows(name, tmp_path, f"SELECT {columns} FROM answers ORDER BY id")
    campaign = opened(name)
    assert raw(campaign.store.path, f"SELECT {columns} FROM answers ORDER BY id") == before


@every_campaign
def test_what_stood_before_stands_now(opened: Open, tmp_path: Path, name: str) -> None:
    before = old_rows(name, tmp_path, "SELECT id FROM standing ORDER BY id")  # a view of version 2
    standing = opened(name).log().standing()
    assert [(row.id,) for row in standing] == before


@both_strategies
def test_settings_get_their_new_names(opened: Open, name: str) -> None:
    campaign = opened(name)
    settings = campaign.settings
    assert (settings.strategy, settings.backbone, settings.seed) == (name, "random:resnet-18", 5)
    assert settings.per_round == 8  # a third of 24: a turn came after a third of a round
    assert (settings.heldout, settings.pseudo_labels, settings.recheck) == (0.2, 0.3, 0.15)
    assert campaign.store.setting("criterion", "") == "same kind of scene"
    assert campaign.store.setting("overlap", 0.0) == 0.25
    assert "plan" not in campaign.store.settings()
    assert len(campaign.id) == 32


def purposes(campaign: Campaign, verdict: int | None = None) -> dict[str, set[int]]:
    """Purpose → the numbers of its rows that are no undos; of all, or of those with this verdict."""
    numbers: dict[str, set[int]] = {}
    for row in campaign.log().rows:
        if row.undoes is None and verdict in (None, row.verdict):
            numbers.setdefault(row.purpose, set()).add(row.id)
    return numbers


@every_campaign
def test_heldout_answers_are_those_of_the_old_strategy_audit(opened: Open, tmp_path: Path, name: str) -> None:
    sql = "SELECT id FROM answers WHERE strategy = 'audit' AND undoes IS NULL"
    audited = {number for (number,) in old_rows(name, tmp_path, sql)}
    campaign = opened(name)
    assert purposes(campaign).get(Purpose.HELD_OUT, set()) == audited
    assert {row.strategy for row in campaign.log().rows} <= {"place", "mgue", "cold", ""}


def test_each_answer_has_its_purpose(opened: Open) -> None:
    place = purposes(opened("place"))
    assert place[Purpose.AGAIN] == {59}  # a person wants to be asked once more
    assert set(place) == {Purpose.CHOSEN, Purpose.HELD_OUT, Purpose.AGAIN}
    mgue = purposes(opened("mgue"))
    assert mgue[Purpose.RELEASED] == {52}  # held out until the strategy wanted it
    assert mgue[Purpose.AGAIN] == {60}
    assert set(mgue) == {Purpose.CHOSEN, Purpose.HELD_OUT, Purpose.AGAIN, Purpose.RELEASED}
    simulation = purposes(opened("simulation"))
    assert simulation[Purpose.AGAIN] == {21, 22}  # the machine asked again, and the second answer


@pytest.mark.parametrize(("name", "pair"), [("place", (18, 41)), ("mgue", (15, 32))])
def test_the_answer_that_a_person_wants_to_be_asked_again_waits(opened: Open, name: str, pair: Pair) -> None:
    campaign = opened(name)
    assert list(campaign.log().waiting) == [pair]
    first = questions.take(campaign, "ann", "screen", 1)
    assert first == [questions.Question(pair, Purpose.AGAIN)]
    campaign.answer(*pair, SIMILAR, "ann")
    assert campaign.log().waiting == {}
    assert campaign.log().rows[-1].purpose == Purpose.AGAIN


def test_a_correction_and_an_undo_of_the_old_campaign_can_be_undone(opened: Open) -> None:
    campaign = opened("place")
    corrected = campaign.log().row(26)
    assert corrected is not None
    assert (corrected.verdict, corrected.entered) == (SIMILAR, "bob")
    assert campaign.undo("bob") == corrected.pair
    assert [row.verdict for row in campaign.log().standing_on(corrected.pair)] == [DISSIMILAR]
    campaign.undo("ann")  # the withdrawal
    assert campaign.log().waiting == {}
    assert [row.verdict for row in campaign.log().standing_on((18, 41))] == [DISSIMILAR]


# -- version 2: what comes next ------------------------------------------------------------------------


def test_the_next_questions_of_place_are_about_open_pairs(opened: Open) -> None:
    campaign = opened("place")
    taken = questions.take(campaign, "ann", "screen", 12)
    assert len(taken) == len({question.pair for question in taken}) == 12
    new = [question.pair for question in taken if question.purpose != Purpose.AGAIN]
    assert not campaign.known().of(Pairs.from_list(new)).any()
    assert (12, 23) in new  # from the old agenda: its files are read as they are


def test_the_next_questions_of_mgue_are_those_of_the_old_list_that_are_open(
    opened: Open, tmp_path: Path
) -> None:
    sql = "SELECT a, b FROM questions WHERE round = 2 AND strategy != 'audit' AND place >= 0 ORDER BY place"
    listed = old_rows("mgue", tmp_path, sql)
    campaign = opened("mgue")
    assert list(campaign.rounds.agenda().pairs) == listed
    known = campaign.known().of(Pairs.from_list(listed)).tolist()
    still_open = [pair for pair, verdict in zip(listed, known, strict=True) if verdict == UNKNOWN]
    assert 0 < len(still_open) < len(listed)
    taken = questions.take(campaign, "ann", "screen", 40)
    chosen = [question.pair for question in taken if question.purpose == Purpose.CHOSEN]
    assert set(chosen[: len(still_open)]) == set(still_open)


def test_how_far_mgue_leaned_is_kept(opened: Open) -> None:
    assert opened("mgue").rounds.agenda().lean == pytest.approx(1.0388973032493019)


@both_strategies
def test_rounds_keep_their_figures_under_their_new_names(opened: Open, tmp_path: Path, name: str) -> None:
    before = old_rows(name, tmp_path, "SELECT about FROM rounds ORDER BY round")
    records = opened(name).rounds.records()
    for number, ((about,), record) in enumerate(zip(before, records, strict=True)):
        old = json.loads(about)
        assert record == Record(
            number=number,
            seen=old["row"],
            serving=old["serves"],
            answers=old["answers"],
            bits=old["bits"],
            minutes=old["minutes"],
            threshold=old["alpha"],
            cutoff=old["limit"],
            loss=old["loss"],
            seconds=old["seconds"],
        )


@both_strategies
def test_heldout_pairs_and_their_ranks_are_kept(opened: Open, tmp_path: Path, name: str) -> None:
    drawn = old_rows(name, tmp_path, "SELECT model, draw, a, b FROM audits ORDER BY model, draw")
    ranks = old_rows(name, tmp_path, "SELECT model, a, b, ab, ba, score FROM places")
    campaign = opened(name)
    assert campaign.rounds.heldout_draws() == drawn
    assert campaign.store.ranks() == {row[:3]: row[3:] for row in ranks}
    models = heldout.models(campaign)
    assert [model.round for model in models] == [FROZEN, 0, 1]
    assert [model.answers for model in models] == [0, 24, 47]
    assert all(0 <= model.p5.low <= model.p5.value <= model.p5.high <= 1 for model in models)


@both_strategies
def test_the_machine_learns_from_an_older_campaign(opened: Open, name: str) -> None:
    campaign = opened(name)
    assert not campaign.rounds.files(1).has_model  # so training starts cold
    turn(campaign)
    record = campaign.rounds.records()[-1]
    assert (record.number, record.seen, campaign.rounds.current) == (2, campaign.log().newest, 3)
    assert campaign.rounds.files(2).has_model
    assert np.linalg.norm(campaign.rounds.files(2).vectors(), axis=1) == pytest.approx(np.ones(48), abs=1e-5)
    assert [model.round for model in heldout.models(campaign)] == [FROZEN, 0, 1, 2]
    campaign.store.set(sheets=0)
    assert len(questions.take(campaign, "ann", "screen", 6)) == 6


def test_a_simulation_keeps_its_curve(opened: Open, tmp_path: Path) -> None:
    before = old_rows("simulation", tmp_path, "SELECT about FROM rounds ORDER BY round")
    campaign = opened("simulation")
    records = campaign.rounds.records()
    assert [record.curve for record in records] == [json.loads(about)["row"] for (about,) in before]
    assert [(record.answers, record.bits) for record in records] == [(20, 20), (40, 40)]
    assert [record.seen for record in records] == [20, 41]
    assert campaign.images.tolist() != list(range(48))  # the part it may ask about
    assert progress.standing(campaign).answers == 39


@every_campaign
def test_an_older_campaign_is_brought_up_to_date_once(opened: Open, tmp_path: Path, name: str) -> None:
    first = opened(name)
    assert raw(first.store.path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    dump = raw(first.store.path, "SELECT * FROM settings, sqlite_master")
    with closing(Campaign.open(first.folder)) as second:
        assert second.log().rows == first.log().rows
        assert second.settings == first.settings
    assert raw(first.store.path, "SELECT * FROM settings, sqlite_master") == dump


# -- version 1 -----------------------------------------------------------------------------------------

VERSION_1: list[tuple[int, int, int, str]] = [
    (0, 1, SIMILAR, "ann"),
    (2, 3, DISSIMILAR, "ann"),
    (2, 3, SIMILAR, "bob"),
    (0, 1, UNKNOWN, "ann"),  # an undo, as version 1 had it
    (4, 5, SIMILAR, "ann"),
    (4, 5, DISSIMILAR, "ann"),
    (4, 5, UNKNOWN, "ann"),  # it took back everything about the pair
    (6, 7, SIMILAR, "bob"),
    (6, 7, UNKNOWN, "bob"),
    (6, 7, UNSURE, "bob"),
]
STANDING = [(2, 3, DISSIMILAR), (2, 3, SIMILAR), (6, 7, UNSURE)]


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    """A file of version 1 with something in every table."""
    path = tmp_path / "campaign.sqlite"
    plan = {"strategy": "mgue", "px": 32, "per_round": 100, "diversity": "kmeans-sum", "widths": [64, 32]}
    saved = {"plan": plan, "images": [0, 2, 3], "size": 12, "archive": {"root": "x", "folder": "y"}}
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        MIGRATIONS[0](db)
        db.executemany(
            "INSERT INTO answers (a, b, verdict, annotator, asked, answered, strategy, round) "
            "VALUES (?, ?, ?, ?, 1.5, 2.5, 'mgue', 3)",
            VERSION_1,
        )
        db.execute("INSERT INTO labels VALUES (1, 8, 'river', 'ann', 2.5, 'cal', 0)")
        asked = [(0, 0, 1, 2, "cold"), (1, 1, 8, 9, "mgue"), (1, 0, 0, 9, "mgue")]
        db.executemany("INSERT INTO questions VALUES (?, ?, ?, ?, ?)", asked)
        db.execute("INSERT INTO rounds VALUES (0, 2.5, '{\"alpha\": 0.5}')")
        db.executemany(
            "INSERT INTO settings VALUES (?, ?)", [(key, json.dumps(value)) for key, value in saved.items()]
        )
        db.execute("PRAGMA user_version = 1")
    return path


def standing(store: Store) -> list[tuple[int, int, int]]:
    log = Log()
    log.extend(store.events(0))
    return [(row.a, row.b, row.verdict) for row in log.standing()]


def test_a_file_of_version_1_keeps_every_row_and_what_stands(version_1: Path) -> None:
    columns = "id, a, b, verdict, annotator, asked, answered, strategy, round"
    before = raw(version_1, f"SELECT {columns} FROM answers")
    for _ in range(2):  # brought up to date, and opened again
        with closing(Store(version_1)) as store:
            assert standing(store) == STANDING
            rows = store.events(0)
            assert {(row.key, row.looked, row.undoes, row.entered) for row in rows} == {(None,) * 4}
            assert {row.purpose for row in rows} == {Purpose.CHOSEN}
            assert store.labels() == {8: "river"}
        assert raw(version_1, f"SELECT {columns} FROM answers") == before
        assert raw(version_1, "PRAGMA user_version") == [(len(MIGRATIONS),)]


def test_a_campaign_of_version_1_opens_and_goes_on(version_1: Path) -> None:
    with closing(Campaign.open(version_1.parent)) as campaign:
        settings = campaign.settings
        assert (settings.per_round, settings.diversity, settings.px) == (34, "kmeans", 32)
        assert (settings.recheck, settings.pseudo_labels) == (0.0, 0.0)  # there was no such thing
        assert list(campaign.rounds.agenda().pairs) == [(0, 9), (8, 9)]
        (record,) = campaign.rounds.records()
        assert (record.number, record.threshold, record.serving) == (0, 0.5, 0)
        assert campaign.log().waiting == {}  # nobody asked for a withdrawn pair to be asked again
        campaign.answer(2, 3, UNSURE, "ann")
        assert standing(campaign.store) == [*STANDING[1:], (2, 3, UNSURE)]
        assert campaign.undo("ann") == (2, 3)
        for _ in range(4):  # everything that bob did
            assert campaign.undo("bob") is not None
        assert campaign.undo("bob") is None
        assert standing(campaign.store) == STANDING[:1]


# -- what goes wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_file_of_a_newer_version_is_refused_and_not_changed(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "campaign.sqlite"
    with closing(Store(path, create=True)) as store:
        store.add([Event(0, 1, SIMILAR, "me", "mgue", 0)])
    raw(path, f"PRAGMA journal_mode = {mode}")
    raw(path, "PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(CampaignError, match=r"newer anneal \(file version 99, .*: update anneal"):
        Store(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["campaign.sqlite"]


@every_campaign
def test_a_disk_that_fills_up_leaves_the_old_version(tmp_path: Path, name: str) -> None:
    folder = copy_of(name, tmp_path)
    file = folder / "campaign.sqlite"
    rows = raw(file, "SELECT * FROM answers")
    questions_before = raw(file, "SELECT * FROM questions")
    with no_file_over(8192), pytest.raises((DiskError, CampaignError)):
        Campaign.open(folder)
    assert raw(file, "PRAGMA user_version") == [(2,)]
    assert raw(file, "SELECT * FROM answers") == rows
    assert raw(file, "SELECT * FROM questions") == questions_before
    with closing(Campaign.open(folder)) as campaign:  # there is room again
        assert len(campaign.log().rows) == len(rows)


def test_a_step_that_fails_leaves_the_old_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy_of("mgue", tmp_path)
    file = folder / "campaign.sqlite"

    def fail_at_the_end(db: sqlite3.Connection) -> None:
        MIGRATIONS[2](db)
        raise KeyboardInterrupt

    broken = [*MIGRATIONS[:2], fail_at_the_end]
    before = raw(file, "SELECT * FROM answers")
    with monkeypatch.context() as patch:
        patch.setattr("anneal.campaign.database.MIGRATIONS", broken)
        with pytest.raises(KeyboardInterrupt):
            Store(file)
    assert raw(file, "PRAGMA user_version") == [(2,)]
    assert raw(file, "SELECT * FROM answers") == before
    with closing(Store(file)) as store:
        assert len(store.events(0)) == len(before)


def test_several_may_open_an_older_campaign_at_the_same_time(tmp_path: Path) -> None:
    folder = copy_of("mgue", tmp_path)
    counts: list[int] = []
    start = threading.Barrier(4)

    def open_it() -> None:
        start.wait()
        with closing(Campaign.open(folder)) as campaign:
            counts.append(progress.standing(campaign).answers)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [52] * 4


def test_a_new_file_has_the_same_tables_as_one_brought_up_to_date(tmp_path: Path, version_1: Path) -> None:
    def tables(path: Path) -> set[str]:
        Store(path, create=True).close()
        return {sql for (sql,) in raw(path, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}

    new = tables(tmp_path / "new.sqlite")
    assert tables(version_1) == new
    for name in CAMPAIGNS:
        migrated = tables(copy_of(name, tmp_path) / "campaign.sqlite")
        assert {_without_comments(sql) for sql in migrated} == {_without_comments(sql) for sql in new}


def _without_comments(sql: str) -> str:
    lines = (line.partition("--")[0] for line in sql.splitlines())
    return " ".join(" ".join(lines).split())


def test_the_machine_is_still_the_machine(opened: Open) -> None:
    """Which answers were doubted and changed is as it was by the old rules."""
    log = opened("simulation").log()
    assert [row.id for row in log.rows if row.entered == MACHINE] == [21]
    assert log.doubted() == {(5, 38)}
    assert log.overturned(9) == 0
