"""The campaign's file: rows are added and never changed, and are on disk when the call returns."""

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anneal.campaign.store import MACHINE, Event, HeldOut, Lease, Mailbox, Purpose, Query, Store
from anneal.errors import AnnealError, CampaignError, DiskError
from anneal.pairs import UNKNOWN, Pair, Verdict
from full_disk import no_file_over

SIMILAR, DISSIMILAR, UNSURE = Verdict
Said = list[tuple[int, int, int]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path / "campaign.sqlite", create=True)) as store:
        yield store


@pytest.fixture
def mailbox(store: Store) -> Mailbox:
    return Mailbox(store)


def event(a: int, b: int, verdict: int = SIMILAR, key: str | None = None) -> Event:
    return Event(a, b, verdict, "me", "mgue", 0, key=key)


def say(store: Store, *answers: tuple[int, int, int]) -> None:
    store.add(event(*answer) for answer in answers)


def said(store: Store) -> Said:
    return [(row.a, row.b, row.verdict) for row in store.events(0)]


def raw(path: Path, sql: str, *values: Any) -> list[Any]:
    """What another program's SQLite sees in the file."""
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(sql, values).fetchall()


# -- answers ---------------------------------------------------------------------------------------


def test_a_new_file_is_empty(store: Store, mailbox: Mailbox) -> None:
    assert store.settings() == {}
    assert (store.events(0), store.labels(), store.newest_label()) == ([], {}, 0)
    assert (store.rounds(), store.heldout(), store.ranks(), store.leases()) == ([], [], {}, [])
    assert store.leased_for((0, 1)) is None
    assert (mailbox.machine(), mailbox.query("x"), mailbox.waiting_query(9)) == ((0.0, {}), None, None)


def test_rows_come_in_the_order_they_were_added_and_from_any_row_on(store: Store) -> None:
    numbers = store.add([event(4, 5), event(0, 9), event(1, 2)])
    assert numbers == sorted(numbers)
    assert [row.id for row in store.events(0)] == numbers
    assert [row.pair for row in store.events(0)] == [(4, 5), (0, 9), (1, 2)]
    assert [row.pair for row in store.events(numbers[0])] == [(0, 9), (1, 2)]
    assert store.events(numbers[-1]) == []


names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
events = st.builds(
    Event,
    a=st.integers(0, 9),
    b=st.integers(10, 2**62),
    verdict=st.integers(0, 3),
    annotator=names,
    strategy=names,
    round=st.integers(0, 2**40),
    purpose=st.sampled_from(list(Purpose)),
    asked=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    looked=st.none() | st.integers(0, 2**40),
    undoes=st.none() | st.integers(1, 2**40),
    entered=st.none() | names,
)


def test_every_column_of_an_event_comes_back_as_it_was(store: Store) -> None:
    @given(st.lists(events, max_size=4))
    @settings(max_examples=50, deadline=None)
    def check(added: list[Event]) -> None:
        last = max((row.id for row in store.events(0)), default=0)
        before = time.time()
        numbers = store.add(added)
        rows = other.events(last)
        assert [row.id for row in rows] == numbers
        for row, one in zip(rows, added, strict=True):
            assert asdict(row) == {**asdict(one), "id": row.id, "answered": row.answered}
            assert before <= row.answered <= time.time()

    with closing(Store(store.path)) as other:
        check()


def test_an_event_with_a_known_key_is_not_added_again(store: Store) -> None:
    first = event(0, 1, key="one")
    (number,) = store.add([first])
    more = [replace(first, a=4, b=5), event(2, 3, UNSURE, key="two"), replace(first, a=6, b=7)]
    assert store.add(more) == [number, number + 1, number]
    assert store.add([Event(2, 3, UNSURE, "you", "mgue", 9, key="two")]) == [number + 1]
    assert said(store) == [(0, 1, SIMILAR), (2, 3, UNSURE)]


def test_rows_are_added_and_never_changed(store: Store) -> None:
    def rows() -> list[Any]:
        return raw(store.path, "SELECT * FROM answers ORDER BY id")

    history = rows()
    for answer in ((0, 1, SIMILAR), (0, 1, DISSIMILAR), (0, 1, UNKNOWN), (0, 1, UNKNOWN), (0, 1, SIMILAR)):
        say(store, answer)
        assert rows()[:-1] == history
        history = rows()
        assert history[-1][1:4] == answer
    store.add([replace(event(0, 1, UNKNOWN), undoes=1, entered=MACHINE)])
    assert rows()[:-1] == history


@pytest.mark.parametrize("bad", [(2, 1, SIMILAR), (3, 3, SIMILAR), (0, 1, 4), (0, 1, -1)])
def test_the_file_itself_refuses_what_is_not_an_answer_and_keeps_nothing_of_the_batch(
    store: Store, bad: tuple[int, int, int]
) -> None:
    say(store, (5, 6, SIMILAR))
    with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed"):
        say(store, (0, 9, SIMILAR), bad)
    assert said(store) == [(5, 6, SIMILAR)]
    say(store, (7, 8, SIMILAR))
    assert said(store) == [(5, 6, SIMILAR), (7, 8, SIMILAR)]


def test_an_interrupted_batch_leaves_nothing(store: Store) -> None:
    def half() -> Iterator[Event]:
        yield event(0, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.add(half())
    assert said(store) == []
    say(store, (0, 1, SIMILAR))
    assert said(store) == [(0, 1, SIMILAR)]


def test_a_transaction_keeps_all_or_nothing_and_an_inner_one_is_part_of_it(store: Store) -> None:
    def fail() -> None:
        with store.transaction():
            say(store, (0, 1, SIMILAR))
            store.set(name="x")
            lease(store, "screen", (0, 1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (said(store), store.settings(), store.leases()) == ([], {}, [])
    with store.transaction():
        say(store, (0, 1, SIMILAR))
        store.set(name="x")
    assert (said(store), store.settings()) == ([(0, 1, SIMILAR)], {"name": "x"})


def test_nobody_else_writes_while_a_transaction_is_open(store: Store) -> None:
    with (
        store.transaction(),
        closing(sqlite3.connect(store.path, timeout=0.01)) as other,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("INSERT INTO settings VALUES ('theirs', '1')")
    assert store.settings() == {}


# -- labels, settings, rounds ----------------------------------------------------------------------


def test_the_last_label_of_an_image_counts(store: Store) -> None:
    batches = ([(3, "river"), (1, "forest")], [(3, "lake")], [(8, "beach")])
    for number, labels in enumerate(batches):
        before = store.newest_label()
        store.add_labels(labels, annotator="me", strategy="cal", round=number)
        assert store.newest_label() > before
    assert store.labels() == {3: "lake", 1: "forest", 8: "beach"}


def test_settings_are_json_and_replaced_by_name(store: Store) -> None:
    store.set(settings={"px": 224, "lam": 3.0}, images=[0, 1], name="Äcker")
    store.set(images=[5])
    expected = {"settings": {"px": 224, "lam": 3.0}, "images": [5], "name": "Äcker"}
    assert store.settings() == expected
    assert (store.setting("images", []), store.setting("not there", 7)) == ([5], 7)
    with closing(Store(store.path)) as again:
        assert again.settings() == expected


def test_rounds_come_in_order_and_a_record_can_be_replaced(store: Store) -> None:
    for number in (0, 10, 2):
        store.save_round({"number": number})
    store.save_round({"number": 2, "loss": float("inf")})
    assert store.rounds() == [{"number": 0}, {"number": 2, "loss": float("inf")}, {"number": 10}]


def test_the_version_of_the_rounds_changes_when_one_is_added_or_replaced(store: Store) -> None:
    versions = [store.rounds_version()]
    with closing(Store(store.path)) as other:
        for record in ({"number": 0}, {"number": 0, "p5": [1, 0, 1]}, {"number": 1}, {"number": 0}):
            other.save_round(record)
            versions.append(store.rounds_version())
            assert store.rounds_version() == versions[-1]
    assert len(set(versions)) == 5


def test_a_round_is_saved_with_its_heldout_pairs_or_not_at_all(store: Store) -> None:
    ranks = [(0, 1, 2, 3, 4, 0.5)]
    broken = HeldOut([(0, 0, 1, 2), (0, 1, 3, None)], ranks)  # type: ignore[list-item]
    with pytest.raises(sqlite3.IntegrityError):
        store.save_round({"number": 0}, broken)
    assert (store.rounds(), store.heldout(), store.ranks()) == ([], [], {})
    store.save_round({"number": 0}, HeldOut([(0, 0, 1, 2)], ranks))
    assert (store.rounds(), store.heldout()) == ([{"number": 0}], [(0, 0, 1, 2)])
    assert store.ranks() == {(0, 1, 2): (3, 4, 0.5)}


def test_heldout_pairs_come_in_the_order_drawn_and_a_later_rank_replaces_an_earlier_one(store: Store) -> None:
    store.add_heldout(HeldOut([(0, 3, 1, 2), (0, 0, 4, 5), (-1, 2, 6, 7)], [(0, 1, 2, 3, 4, 0.5)]))
    assert store.heldout() == [(-1, 2, 6, 7), (0, 0, 4, 5), (0, 3, 1, 2)]
    store.add_heldout(HeldOut([(0, 3, 1, 2)], [(0, 1, 2, 9, 9, 0.75), (1, 1, 2, 5, 6, 0.25)]))
    assert len(store.heldout()) == 3
    assert store.ranks() == {(0, 1, 2): (9, 9, 0.75), (1, 1, 2): (5, 6, 0.25)}


# -- the mailbox -------------------------------------------------------------------------------------


def test_the_machines_last_message_replaces_the_one_before(mailbox: Mailbox) -> None:
    before = time.time()
    mailbox.set_machine(state="learning", done=3)
    mailbox.set_machine(state="idle")
    at, about = mailbox.machine()
    assert about == {"state": "idle"}
    assert before <= at <= time.time()
    mailbox.beat()
    assert mailbox.machine()[1] == about
    assert mailbox.machine()[0] >= at


def test_a_query_waits_until_the_wanted_model_has_encoded_it(mailbox: Mailbox) -> None:
    mailbox.add_query("q", b"pixels")
    mailbox.add_query("q", b"others")  # the same name is the same image
    mailbox.add_query("r", b"second")
    assert mailbox.query("q") == mailbox.waiting_query(-1) == Query("q", b"pixels", None, None, None)
    mailbox.encoded("q", -1, b"vector", None)
    assert mailbox.query("q") == Query("q", b"pixels", -1, b"vector", None)
    mailbox.encoded("r", -1, None, "Not an image.")
    assert mailbox.waiting_query(-1) is None
    assert mailbox.waiting_query(0) == mailbox.query("q")  # a new model; what failed is not tried again


def test_a_query_is_removed_after_a_day(store: Store, mailbox: Mailbox) -> None:
    mailbox.add_query("old", b"1")
    raw(store.path, "UPDATE queries SET made = made - 86401")
    mailbox.add_query("new", b"2")
    assert mailbox.query("old") is None
    assert mailbox.query("new") is not None


# -- leases ----------------------------------------------------------------------------------------


def lease(store: Store, holder: str, *pairs: Pair, purpose: str = "chosen") -> None:
    store.lease((Lease(pair, holder, purpose) for pair in pairs), holder, 60)


def leased(store: Store) -> list[tuple[Pair, str]]:
    return [(one.pair, one.holder) for one in store.leases()]


def later(store: Store, seconds: float) -> None:
    raw(store.path, "UPDATE leases SET until = until - ?", seconds)


def test_a_holder_has_the_pairs_of_its_last_lease_and_no_others(store: Store) -> None:
    lease(store, "one", (4, 5), (0, 1))
    lease(store, "two", (6, 7))
    assert leased(store) == [((4, 5), "one"), ((0, 1), "one"), ((6, 7), "two")]
    lease(store, "one", (2, 3), (0, 1))
    assert leased(store) == [((6, 7), "two"), ((2, 3), "one"), ((0, 1), "one")]
    lease(store, "two")
    assert leased(store) == [((2, 3), "one"), ((0, 1), "one")]


def test_a_lease_says_what_the_pair_was_given_out_for(store: Store) -> None:
    leases = [Lease((0, 1), "one", Purpose.HELD_OUT), Lease((2, 3), "one", Purpose.AGAIN, "a sheet")]
    store.lease(leases, "one", 60)
    assert store.leases() == leases
    assert [store.leased_for(pair) for pair in ((0, 1), (2, 3), (4, 5))] == ["held-out", "again", None]
    lease(store, "two", (0, 1), purpose=Purpose.CHOSEN)
    assert store.leased_for((0, 1)) == "chosen"


def test_a_lease_runs_out(store: Store) -> None:
    lease(store, "one", (0, 1))
    later(store, 61)
    lease(store, "two", (2, 3))
    assert leased(store) == [((2, 3), "two")]
    assert raw(store.path, "SELECT holder FROM leases") == [("two",)]  # the old one is removed
    later(store, 59)
    assert leased(store) == [((2, 3), "two")]
    later(store, 1)
    assert leased(store) == []


def test_a_pair_has_one_holder_who_keeps_it_by_giving_a_sign_of_life(store: Store) -> None:
    lease(store, "one", (0, 1))
    say(store, (0, 1, SIMILAR))
    assert leased(store) == [((0, 1), "one")]
    store.renew("one", 60)
    assert raw(store.path, "SELECT until < ? FROM leases", time.time() + 60) == [(1,)]  # not due yet
    later(store, 31)
    store.renew("two", 60)
    store.renew("one", 60)
    assert raw(store.path, "SELECT until > ? FROM leases", time.time() + 50) == [(1,)]
    lease(store, "two", (0, 1))
    assert leased(store) == [((0, 1), "two")]


# -- on disk ---------------------------------------------------------------------------------------


def test_the_file_uses_a_write_ahead_log_and_syncs_every_commit(store: Store) -> None:
    assert raw(store.path, "PRAGMA journal_mode") == [("wal",)]
    for _ in range(2):
        with closing(Store(store.path)) as again:
            assert again.db.execute("PRAGMA synchronous").fetchall() == [(2,)]  # FULL


def test_everything_is_there_for_the_next_process_that_opens_the_file(store: Store) -> None:
    say(store, (0, 1, SIMILAR))
    store.add_labels([(3, "river")], annotator="me", strategy="cal", round=0)
    store.save_round({"number": 0, "loss": 0.5}, HeldOut([(0, 0, 4, 5)], []))
    for _ in range(2):  # beside the first, and after it
        again = Store(store.path)
        assert said(again) == [(0, 1, SIMILAR)]
        assert (again.labels(), again.rounds()) == ({3: "river"}, [{"number": 0, "loss": 0.5}])
        assert again.heldout() == [(0, 0, 4, 5)]
        again.close()
        store.close()


ANSWER_FOR_EVER = """
import sys
from pathlib import Path
from anneal.campaign.store import Event, Store
store = Store(Path(sys.argv[1]), create=True)
n = len(store.events(0))
print(n, flush=True)
while True:
    store.add([Event(n, n + 1 + n % 7, 1 + n % 3, "me", "mgue", n)])
    n += 1
    print(n, flush=True)
"""


def test_no_answer_of_a_killed_process_is_lost_once_it_was_taken(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    path = tmp_path / "campaign.sqlite"
    before = 0
    for _ in range(5):
        command = [sys.executable, "-c", ANSWER_FOR_EVER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert int(writer.stdout.readline()) == before
            time.sleep(rng.uniform(0.005, 0.03))
            writer.kill()
            taken = [int(line) for line in writer.stdout.read().split("\n")[:-1]]  # whole lines only
        with closing(Store(path)) as store:
            rows = said(store)
        assert len(rows) >= max(taken, default=before)
        assert rows == [(n, n + 1 + n % 7, 1 + n % 3) for n in range(len(rows))]
        assert raw(path, "PRAGMA integrity_check") == [("ok",)]
        before = len(rows)
    assert before > 0


# -- several at once -------------------------------------------------------------------------------


def together(work: Callable[[int], None], threads: int = 4) -> list[Exception]:
    """Do the work in threads that start at once; returns what went wrong."""
    wrong: list[Exception] = []
    start = threading.Barrier(threads)

    def one(number: int) -> None:
        start.wait()
        try:
            work(number)
        except Exception as error:
            wrong.append(error)

    running = [threading.Thread(target=one, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return wrong


def test_answers_given_at_the_same_time_are_all_kept(store: Store) -> None:
    def answer(number: int) -> None:
        with closing(Store(store.path)) as own:
            for i in range(10):
                say(own, (number, 100 + i, SIMILAR))

    assert together(answer) == []
    assert sorted(said(store)) == [(n, 100 + i, SIMILAR) for n in range(4) for i in range(10)]


def test_a_key_sent_by_several_at_the_same_time_is_taken_once(store: Store) -> None:
    rows: list[int] = []

    def send(number: int) -> None:
        with closing(Store(store.path)) as own:
            for i in range(10):
                rows.extend(own.add([event(number, 100 + i, key=f"key {i}")]))

    assert together(send) == []
    assert len(said(store)) == len(set(rows)) == 10
    assert len(rows) == 40


SEND = """
import sys
from pathlib import Path
from anneal.campaign.store import Event, Store
store = Store(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for n in range(50):
    store.add([Event(n, n + 1, 1, sys.argv[2], "mgue", 0, key=f"key {n}")])
"""


def test_a_key_sent_by_two_processes_is_taken_once(store: Store) -> None:
    senders = [
        subprocess.Popen(
            [sys.executable, "-c", SEND, str(store.path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("ann", "bob")
    ]
    for sender in senders:
        assert sender.stdout is not None
        assert sender.stdout.readline() == "ready\n"
    for sender in senders:
        assert sender.stdin is not None
        sender.stdin.write("go\n")
        sender.stdin.flush()
    for sender in senders:
        sender.communicate()
        assert sender.returncode == 0
    assert said(store) == [(n, n + 1, SIMILAR) for n in range(50)]


def test_several_may_open_a_new_file_at_the_same_time(tmp_path: Path) -> None:
    for attempt in range(5):
        path = tmp_path / f"{attempt}.sqlite"
        raw(path, "PRAGMA journal_mode = WAL")  # no tables yet: version 0

        def open_it(_: int, path: Path = path) -> None:
            Store(path).close()

        assert together(open_it) == []


def test_opening_waits_for_a_process_that_is_making_the_file(tmp_path: Path) -> None:
    path = tmp_path / "campaign.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")  # SQLite itself does not wait to switch such a file to WAL
        other.execute("CREATE TABLE theirs (x)")
        done = threading.Timer(0.2, other.execute, ("COMMIT",))
        done.start()
        with closing(Store(path)) as store:
            assert raw(path, "PRAGMA journal_mode") == [("wal",)]
            assert store.settings() == {}
        done.join()


def test_waiting_too_long_for_a_file_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anneal.campaign.database.PATIENCE", 0.1)
    path = tmp_path / "campaign.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE theirs (x)")
        with pytest.raises(CampaignError, match="database is locked"):
            Store(path)


# -- files that are not campaigns ------------------------------------------------------------------


def test_a_missing_file_is_not_made_and_the_error_names_init(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match=r"no campaign in .*nowhere: make one with\s+anneal init ARCHIVE"):
        Store(tmp_path / "nowhere" / "campaign.sqlite")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"an essay\n" * 999, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_not_a_database_is_named_and_not_changed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "campaign.sqlite"
    path.write_bytes(content)
    for create in (False, True):
        with pytest.raises(CampaignError, match=r"campaign\.sqlite is not a campaign file"):
            Store(path, create=create)
    assert path.read_bytes() == content


def test_a_folder_in_place_of_the_file_is_a_campaign_error(tmp_path: Path) -> None:
    (tmp_path / "campaign.sqlite").mkdir()
    with pytest.raises(CampaignError, match="is not a campaign file"):
        Store(tmp_path / "campaign.sqlite")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CampaignError, match="is not a campaign file"):
        Store(tmp_path / "file" / "campaign.sqlite", create=True)


# -- the disk refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 100_000])  # noticed at the commit; noticed before it
def test_a_full_disk_is_a_sentence_and_nothing_before_it_is_lost(store: Store, batch: int) -> None:
    first = [(0, 1, int(SIMILAR)), (2, 3, int(DISSIMILAR))]
    say(store, *first)
    written = store.path.with_name("campaign.sqlite-wal").stat().st_size
    with (
        no_file_over(written),
        pytest.raises(DiskError, match=r"could not be written .* Everything before it is safe"),
    ):
        say(store, *((4, 5 + i, SIMILAR) for i in range(batch)))
    assert said(store) == first
    say(store, (4, 5, SIMILAR))  # there is room again
    with closing(Store(store.path)) as again:
        assert said(again) == [*first, (4, 5, SIMILAR)]


def test_a_file_that_another_process_locks_is_a_sentence(store: Store) -> None:
    store.db.execute("PRAGMA busy_timeout = 10")  # instead of half a minute
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(AnnealError, match=r"campaign\.sqlite"):
            say(store, (0, 1, SIMILAR))
        other.execute("ROLLBACK")
    say(store, (0, 1, SIMILAR))
    assert said(store) == [(0, 1, SIMILAR)]


WRITER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
print("ready", flush=True)
while True:
    db.execute("BEGIN IMMEDIATE")
    some = [(bytes(2000),)] * 300
    db.executemany("INSERT INTO queries (id, made, pixels) VALUES (hex(randomblob(8)), 0, ?)", some)
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
"""


def test_a_file_opens_while_another_process_moves_its_log_into_it(tmp_path: Path) -> None:
    path = tmp_path / "campaign.sqlite"
    Store(path, create=True).close()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        for _ in range(200):
            with closing(Store(path)) as store:
                assert store.settings() == {}
    finally:
        writer.kill()
        writer.communicate()
