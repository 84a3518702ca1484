"""The campaign's file: answers are only ever added, and are on disk when the call returns."""

import resource
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal.errors import AnnealError, CampaignError, DiskError
from anneal.pairs import UNKNOWN, Pairs, Verdict
from anneal.store import Store

SIMILAR, DISSIMILAR, UNSURE = Verdict
Judged = list[tuple[int, int, int]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "campaign.sqlite", create=True)
    yield store
    store.close()


def say(store: Store, *answers: tuple[int, int, int], by: str = "me", round: int = 0) -> None:
    store.add_answers(answers, annotator=by, strategy="mgue", round=round)


def standing(store: Store, upto: int | None = None, since: int = 0) -> Judged:
    answers = store.answers(upto, since)
    return [(a, b, int(v)) for (a, b), v in zip(answers.pairs, answers.verdicts, strict=True)]


def raw(path: Path, sql: str, *values: Any) -> list[Any]:
    """What somebody else's SQLite sees in the file."""
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(sql, values).fetchall()


# -- answers ---------------------------------------------------------------------------------------


def test_a_new_file_is_empty(store: Store) -> None:
    assert store.settings() == {}
    assert (standing(store), store.events(), store.last_answer("me")) == ([], 0, None)
    assert (store.labels(), store.rounds()) == ({}, [])
    questions = store.questions()
    assert (list(questions.pairs), questions.round, questions.strategy) == ([], 0, "")


def test_answers_stand_in_the_order_they_were_given(store: Store) -> None:
    say(store, (4, 5, SIMILAR), (0, 9, DISSIMILAR))
    say(store, (1, 2, UNSURE))
    assert standing(store) == [(4, 5, SIMILAR), (0, 9, DISSIMILAR), (1, 2, UNSURE)]
    answers = store.answers()
    assert (answers.pairs.a.dtype, answers.verdicts.dtype) == (np.dtype(np.int64), np.dtype(np.int8))


def test_an_answer_says_who_when_and_of_which_round(store: Store) -> None:
    before = time.time()
    store.add_answers([(1, 2, SIMILAR)], annotator="ann", strategy="cold", round=3, asked=17.5)
    ((*row, answered),) = raw(
        store.path, "SELECT a, b, verdict, annotator, asked, strategy, round, answered FROM answers"
    )
    assert row == [1, 2, SIMILAR, "ann", 17.5, "cold", 3]
    assert before <= answered <= time.time()


def test_the_last_word_on_a_pair_counts_and_takes_the_later_place(store: Store) -> None:
    say(store, (0, 1, SIMILAR), (2, 3, SIMILAR))
    say(store, (0, 1, DISSIMILAR))
    assert standing(store) == [(2, 3, SIMILAR), (0, 1, DISSIMILAR)]


def test_a_verdict_taken_back_does_not_stand(store: Store) -> None:
    say(store, (0, 1, SIMILAR), (2, 3, SIMILAR))
    say(store, (0, 1, UNKNOWN))
    assert standing(store) == [(2, 3, SIMILAR)]
    say(store, (0, 1, UNSURE))
    assert standing(store) == [(2, 3, SIMILAR), (0, 1, UNSURE)]


def test_two_annotators_on_one_pair_both_stand(store: Store) -> None:
    say(store, (0, 1, SIMILAR), by="ann")
    say(store, (0, 1, DISSIMILAR), by="bob")
    assert standing(store) == [(0, 1, SIMILAR), (0, 1, DISSIMILAR)]
    say(store, (0, 1, UNKNOWN), by="ann")
    assert standing(store) == [(0, 1, DISSIMILAR)]


def test_the_last_answer_walks_back_through_undos(store: Store) -> None:
    pairs = [(0, 1), (0, 2), (1, 2)]
    for a, b in pairs:
        say(store, (a, b, SIMILAR))
    say(store, (7, 8, SIMILAR), by="somebody else")
    for a, b in reversed(pairs):
        assert store.last_answer("me") == (a, b)
        say(store, (a, b, UNKNOWN))
    assert store.last_answer("me") is None
    assert store.last_answer("somebody else") == (7, 8)
    assert store.last_answer("nobody") is None


def test_the_last_answer_is_the_pair_judged_last_not_the_one_asked_last(store: Store) -> None:
    say(store, (0, 1, SIMILAR), (2, 3, SIMILAR))
    say(store, (0, 1, DISSIMILAR))
    assert store.last_answer("me") == (0, 1)
    say(store, (0, 1, UNKNOWN))
    assert store.last_answer("me") == (2, 3)


def test_rows_are_added_and_never_changed(store: Store) -> None:
    def rows() -> list[Any]:
        return raw(store.path, "SELECT * FROM answers ORDER BY id")

    history = rows()
    for answer in ((0, 1, SIMILAR), (0, 1, DISSIMILAR), (0, 1, UNKNOWN), (0, 1, UNKNOWN), (0, 1, SIMILAR)):
        say(store, answer)
        assert rows()[:-1] == history
        history = rows()
        assert history[-1][1:4] == answer
        assert store.events() == len(history)
    assert store.events() == 5


def test_answers_can_be_asked_for_by_round(store: Store) -> None:
    for round in range(4):
        say(store, (round, 9, SIMILAR), round=round)
    assert standing(store, upto=1) == [(0, 9, SIMILAR), (1, 9, SIMILAR)]
    assert standing(store, since=2) == [(2, 9, SIMILAR), (3, 9, SIMILAR)]
    assert standing(store, upto=2, since=2) == [(2, 9, SIMILAR)]
    assert standing(store, upto=-1) == []


@pytest.mark.parametrize("bad", [(2, 1, SIMILAR), (3, 3, SIMILAR), (0, 1, 4), (0, 1, -1)])
def test_the_file_itself_refuses_what_is_no_answer_and_then_keeps_none_of_the_batch(
    store: Store, bad: tuple[int, int, int]
) -> None:
    say(store, (5, 6, SIMILAR))
    with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed"):
        say(store, (0, 9, SIMILAR), bad)
    assert standing(store) == [(5, 6, SIMILAR)]
    say(store, (7, 8, SIMILAR))  # and it goes on
    assert standing(store) == [(5, 6, SIMILAR), (7, 8, SIMILAR)]


def test_an_interrupted_batch_leaves_nothing(store: Store) -> None:
    def half() -> Iterator[tuple[int, int, int]]:
        yield (0, 1, SIMILAR)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.add_answers(half(), annotator="me", strategy="mgue", round=0)
    assert store.events() == 0
    say(store, (0, 1, SIMILAR))
    assert store.events() == 1


# -- labels, settings, questions, rounds -----------------------------------------------------------


def test_the_last_label_of_an_image_counts_up_to_a_round(store: Store) -> None:
    for round, labels in enumerate(([(3, "river"), (1, "forest")], [(3, "lake")], [(8, "beach")])):
        store.add_labels(labels, annotator="me", strategy="cal", round=round)
    assert store.labels(0) == {3: "river", 1: "forest"}
    assert store.labels(1) == {3: "lake", 1: "forest"}
    assert store.labels() == store.labels(2) == {3: "lake", 1: "forest", 8: "beach"}
    assert store.labels(-1) == {}


def test_settings_are_json_and_replaced_by_name(store: Store) -> None:
    store.set(plan={"px": 224, "lam": 3.0}, images=[0, 1], name="Äcker")
    store.set(images=[5])
    expected = {"plan": {"px": 224, "lam": 3.0}, "images": [5], "name": "Äcker"}
    assert store.settings() == expected
    with closing(Store(store.path)) as again:
        assert again.settings() == expected


def test_the_queue_holds_the_newest_rounds_questions_in_their_order(store: Store) -> None:
    def queue() -> tuple[list[tuple[int, int]], int, str]:
        questions = store.questions()
        return list(questions.pairs), questions.round, questions.strategy

    store.queue(0, Pairs.of([9, 0, 4], [8, 1, 5]), "cold")
    assert queue() == ([(8, 9), (0, 1), (4, 5)], 0, "cold")
    store.queue(0, Pairs.of([3], [2]), "random")  # put up again: these instead
    assert queue() == ([(2, 3)], 0, "random")
    store.finish_round(0, {"alpha": 0.5}, Pairs.of([6, 1], [7, 2]), "mgue")
    assert queue() == ([(6, 7), (1, 2)], 1, "mgue")
    store.queue(0, Pairs.of([3], [4]), "cold")
    assert queue() == ([(6, 7), (1, 2)], 1, "mgue")


def test_rounds_come_in_their_order_and_can_be_finished_again(store: Store) -> None:
    for number in (0, 10, 2):
        store.finish_round(number, {"number": number}, Pairs.none(), "mgue")
    store.finish_round(2, {"number": 2, "again": True}, Pairs.none(), "mgue")
    assert store.rounds() == [(0, {"number": 0}), (2, {"number": 2, "again": True}), (10, {"number": 10})]


def test_a_round_is_finished_together_with_its_questions_or_not_at_all(store: Store) -> None:
    store.queue(0, Pairs.of([0], [1]), "cold")
    broken = Pairs.of([4, 2], [5, 3])
    broken.a[1] = 7  # behind the back of Pairs, which would refuse it
    with pytest.raises(sqlite3.IntegrityError):
        store.finish_round(0, {}, broken, "mgue")
    assert store.rounds() == []
    assert (list(store.questions().pairs), store.questions().round) == ([(0, 1)], 0)


# -- on disk ---------------------------------------------------------------------------------------


def test_the_file_is_written_ahead_and_synced_at_every_commit(store: Store) -> None:
    assert raw(store.path, "PRAGMA journal_mode") == [("wal",)]
    assert store._db.execute("PRAGMA synchronous").fetchall() == [(2,)]  # FULL
    with closing(Store(store.path)) as again:
        assert again._db.execute("PRAGMA synchronous").fetchall() == [(2,)]


def test_everything_is_found_again_by_the_next_to_open_the_file(store: Store) -> None:
    say(store, (0, 1, SIMILAR))
    store.add_labels([(3, "river")], annotator="me", strategy="cal", round=0)
    store.finish_round(0, {"alpha": 0.5}, Pairs.of([4], [5]), "mgue")
    for _ in range(2):  # beside the first, and after it
        again = Store(store.path)
        assert standing(again) == [(0, 1, SIMILAR)]
        assert (again.labels(), again.rounds()) == ({3: "river"}, [(0, {"alpha": 0.5})])
        assert list(again.questions().pairs) == [(4, 5)]
        again.close()
        store.close()


ANSWER_FOR_EVER = """
import sys
from pathlib import Path
from anneal.store import Store
store = Store(Path(sys.argv[1]), create=True)
print(store.events(), flush=True)
while True:
    n = store.events()
    store.add_answers([(n, n + 1 + n % 7, 1 + n % 3)], annotator="me", strategy="mgue", round=n)
    print(n + 1, flush=True)
"""


def test_no_answer_of_a_killed_process_is_lost_once_it_was_taken(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    path, before = tmp_path / "campaign.sqlite", 0
    for _ in range(5):
        command = [sys.executable, "-c", ANSWER_FOR_EVER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert int(writer.stdout.readline()) == before
            time.sleep(rng.uniform(0.005, 0.03))
            writer.kill()
            said = [int(line) for line in writer.stdout.read().split("\n")[:-1]]  # whole lines only
        with closing(Store(path)) as store:
            assert store.events() >= max(said, default=before)
            assert standing(store) == [(n, n + 1 + n % 7, 1 + n % 3) for n in range(store.events())]
            before = store.events()
        assert raw(path, "PRAGMA integrity_check") == [("ok",)]
    assert before > 0


def together(work: Callable[[int], None], threads: int) -> list[Exception]:
    """Do the work in threads that start at once; what went wrong."""
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


def test_many_who_answer_at_once_are_all_heard(store: Store) -> None:
    def answer(number: int) -> None:
        with closing(Store(store.path)) as own:
            for i in range(10):
                say(own, (number, 100 + i, SIMILAR), by=f"annotator {number}")

    assert together(answer, 4) == []
    assert sorted(standing(store)) == [(n, 100 + i, SIMILAR) for n in range(4) for i in range(10)]


def test_many_may_open_a_file_at_once_that_has_to_be_brought_up_to_date(tmp_path: Path) -> None:
    for attempt in range(5):
        path = tmp_path / f"{attempt}.sqlite"
        raw(path, "PRAGMA journal_mode = WAL")  # as yet without tables, version 0

        def bring(_: int, path: Path = path) -> None:
            Store(path).close()

        assert together(bring, 4) == []


# -- files that are none ---------------------------------------------------------------------------


def test_a_missing_file_is_not_made_but_names_init(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match=r"no campaign in .*nowhere: make one with\s+anneal init ARCHIVE"):
        Store(tmp_path / "nowhere" / "campaign.sqlite")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"an essay\n" * 999, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "campaign.sqlite"
    path.write_bytes(content)
    for create in (False, True):
        with pytest.raises(CampaignError, match=r"campaign\.sqlite is not a campaign file"):
            Store(path, create=create)
    assert path.read_bytes() == content


def test_a_folder_in_the_files_place_is_a_campaign_error(tmp_path: Path) -> None:
    (tmp_path / "campaign.sqlite").mkdir()
    with pytest.raises(CampaignError, match="is not a campaign file"):
        Store(tmp_path / "campaign.sqlite")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CampaignError, match="is not a campaign file"):
        Store(tmp_path / "file" / "campaign.sqlite", create=True)


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_file_of_a_newer_anneal_is_refused_and_left_as_it_was(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "campaign.sqlite"
    with closing(Store(path, create=True)) as store:
        say(store, (0, 1, SIMILAR))
    raw(path, f"PRAGMA journal_mode = {mode}")
    raw(path, "PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(CampaignError, match=r"newer anneal \(file version 99, .*: update anneal"):
        Store(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["campaign.sqlite"]


# -- the disk refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 100_000])  # noticed at the commit; noticed before it
def test_a_full_disk_is_said_in_a_sentence_and_nothing_before_it_is_lost(store: Store, batch: int) -> None:
    said = [(0, 1, SIMILAR), (2, 3, DISSIMILAR)]
    say(store, *said)
    log = store.path.with_name("campaign.sqlite-wal").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log, hard))  # full, for all SQLite can tell
    try:
        with pytest.raises(DiskError, match=r"could not be written .* Everything before it is safe"):
            say(store, *((4, 5 + i, SIMILAR) for i in range(batch)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert standing(store) == said
    say(store, (4, 5, SIMILAR))  # there is room again
    with closing(Store(store.path)) as again:
        assert standing(again) == [*said, (4, 5, SIMILAR)]


def test_a_file_that_somebody_holds_is_said_in_a_sentence(store: Store) -> None:
    store._db.execute("PRAGMA busy_timeout = 10")  # instead of half a minute
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(AnnealError, match=r"campaign\.sqlite"):
            say(store, (0, 1, SIMILAR))
        other.execute("ROLLBACK")
    say(store, (0, 1, SIMILAR))
    assert standing(store) == [(0, 1, SIMILAR)]


def test_a_round_that_asks_nothing_leaves_an_empty_queue(tmp_path: Path) -> None:
    store = Store(tmp_path / "campaign.sqlite", create=True)
    store.queue(0, Pairs.of([0], [1]), "cold")
    store.finish_round(0, {}, Pairs.none(), "mgue")
    queue = store.questions()
    assert (len(queue.pairs), queue.round) == (0, 1)
