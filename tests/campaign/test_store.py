"""The campaign's file: answers are only ever added, and are on disk when the call returns."""

import resource
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anneal.campaign.store import AUDIT, MACHINE, MIGRATIONS, Audit, Event, Query, Questions, Store
from anneal.errors import AnnealError, CampaignError, DiskError
from anneal.pairs import UNKNOWN, Pairs, Verdict

SIMILAR, DISSIMILAR, UNSURE = Verdict
Judged = list[tuple[int, int, int]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "campaign.sqlite", create=True)
    yield store
    store.close()


def say(store: Store, *answers: tuple[int, int, int], by: str = "me", round: int = 0) -> None:
    store.add(Event(a, b, verdict, by, "mgue", round) for a, b, verdict in answers)


def undo(store: Store, by: str = "me") -> tuple[int, int] | None:
    """As a campaign does it."""
    row = store.last_act(by)
    if row is None:
        return None
    store.add([Event(row.a, row.b, UNKNOWN, row.annotator, row.strategy, row.round, undoes=row.id)])
    return row.a, row.b


def questions(round: int, *pairs: tuple[int, int], strategy: str = "mgue") -> Questions:
    return Questions.of(Pairs.of(*np.array(pairs).reshape(-1, 2).T), round, strategy)


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
    assert (standing(store), store.events(), store.last_act("me")) == ([], 0, None)
    assert (store.labels(), store.rounds()) == ({}, [])
    assert (store.newest(), store.newest_label(), store.fresh(0)) == (0, 0, 0)
    assert (store.leases(), store.audits(), store.places(), store.levels()) == ([], [], {}, ([], []))
    assert (store.machine(), store.query("x"), store.waiting_query(9)) == ((0.0, {}), None, None)
    queue = store.questions()
    assert (list(queue.pairs), queue.round, queue.strategy) == ([], 0, "")


def test_answers_stand_in_the_order_they_were_given(store: Store) -> None:
    say(store, (4, 5, SIMILAR), (0, 9, DISSIMILAR))
    say(store, (1, 2, UNSURE))
    assert standing(store) == [(4, 5, SIMILAR), (0, 9, DISSIMILAR), (1, 2, UNSURE)]
    answers = store.answers()
    assert (answers.pairs.a.dtype, answers.verdicts.dtype) == (np.dtype(np.int64), np.dtype(np.int8))


def test_an_answer_says_who_when_and_of_which_round(store: Store) -> None:
    before = time.time()
    event = Event(1, 2, SIMILAR, "ann", "cold", 3, asked=17.5, looked=1234, key="k", entered="bob")
    (number,) = store.add([event])
    row = store.row(number)
    assert row is not None
    assert asdict(row) == {**asdict(event), "id": number, "answered": row.answered}
    assert before <= row.answered <= time.time()
    assert store.standing() == [row]
    assert (store.row_of("k"), store.row_of("l"), store.row(number + 1)) == (number, None, None)


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


def test_undo_walks_back_through_everything_one_did_and_no_further(store: Store) -> None:
    pairs = [(0, 1), (0, 2), (1, 2)]
    for a, b in pairs:
        say(store, (a, b, SIMILAR))
    say(store, (7, 8, SIMILAR), by="somebody else")
    for left in range(2, -1, -1):
        assert undo(store) == pairs[left]
        assert standing(store) == [*((a, b, SIMILAR) for a, b in pairs[:left]), (7, 8, SIMILAR)]
    assert undo(store) is None
    assert undo(store, "nobody") is None
    say(store, (3, 4, SIMILAR))  # and on it goes
    assert undo(store) == (3, 4)
    assert undo(store) is None
    assert undo(store, "somebody else") == (7, 8)
    assert standing(store) == []


def test_undo_of_a_correction_brings_back_what_was_said_before(store: Store) -> None:
    words = [SIMILAR, DISSIMILAR, UNKNOWN, UNSURE, SIMILAR]  # the third withdraws it
    for word in words:
        say(store, (0, 1, word))
    for word in reversed(words):
        assert standing(store) == ([(0, 1, word)] if word else [])
        assert undo(store) == (0, 1)
    assert (standing(store), undo(store)) == ([], None)


def test_what_was_withdrawn_is_listed_until_it_is_undone_or_said_anew(store: Store) -> None:
    say(store, (0, 1, SIMILAR), (2, 3, SIMILAR), (0, 1, UNKNOWN), (2, 3, UNKNOWN))
    assert [(row.a, row.b) for row in store.withdrawn()] == [(0, 1), (2, 3)]
    undo(store)
    say(store, (0, 1, UNSURE))
    assert store.withdrawn() == []
    assert standing(store) == [(2, 3, SIMILAR), (0, 1, UNSURE)]


def test_what_was_asked_again_and_turned_out_otherwise_is_counted(store: Store) -> None:
    def act(b: int, verdict: int, round: int, entered: str | None = None, who: str = "ann") -> None:
        store.add([Event(0, b, verdict, who, "place", round, entered=entered)])

    for b in (1, 2, 3, 4):
        act(b, SIMILAR, 0)
    act(3, DISSIMILAR, 0)  # a correction of one's own …
    act(4, DISSIMILAR, 0, who="bob")  # … and another opinion
    for b in (1, 2, 3):
        act(b, UNKNOWN, 1, MACHINE)
    act(4, UNKNOWN, 1, MACHINE, "bob")
    assert (set(store.doubted()), store.overturned()) == ({(0, b) for b in (1, 2, 3, 4)}, 0)
    act(3, DISSIMILAR, 1)
    act(4, DISSIMILAR, 1, who="bob")
    assert store.overturned() == 0
    act(1, DISSIMILAR, 1)
    act(2, DISSIMILAR, 2)
    act(2, UNKNOWN, 2, MACHINE)
    assert [store.overturned(before) for before in (0, 1, 2, 3)] == [0, 0, 1, 2]
    act(2, SIMILAR, 3)  # it was right at first
    assert [store.overturned(before) for before in (2, 3, 4)] == [1, 2, 1]
    act(4, UNSURE, 4, who="bob")
    assert store.overturned() == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ann", "bob"]),
            st.sampled_from([(0, 1), (0, 2)]),
            st.sampled_from([0, 1, 2, 3, 9]),
        )
    )
)
@settings(max_examples=50)
def test_what_stands_is_what_a_list_of_each_persons_words_says(
    acts: list[tuple[str, tuple[int, int], int]],
) -> None:
    """9 is an undo: it strikes out the last of this person's words."""
    with (
        TemporaryDirectory() as folder,
        closing(Store(Path(folder) / "campaign.sqlite", create=True)) as store,
    ):
        words: list[tuple[str, tuple[int, int], int]] = []
        for who, pair, act in acts:
            if act != 9:
                say(store, (*pair, act), by=who)
                words.append((who, pair, act))
                continue
            last = next((i for i in reversed(range(len(words))) if words[i][0] == who), None)
            assert undo(store, who) == (None if last is None else words.pop(last)[1])
        stands = {(who, pair): act for who, pair, act in words}
        assert {(row.annotator, (row.a, row.b)): row.verdict for row in store.standing()} == {
            key: act for key, act in stands.items() if act
        }
        assert sorted(standing(store)) == sorted((*pair, act) for (_, pair), act in stands.items() if act)


def test_an_undo_is_of_the_one_who_typed_it(store: Store) -> None:
    say(store, (0, 1, SIMILAR), by="ann")
    store.add([Event(0, 1, DISSIMILAR, "ann", "mgue", 0, entered="bob")])
    last = store.last_act("ann")
    assert last is not None
    assert last.verdict == SIMILAR  # her own, not what was typed for her
    assert undo(store, "bob") == (0, 1)
    assert standing(store) == [(0, 1, SIMILAR)]


def test_the_same_key_is_never_taken_twice(store: Store) -> None:
    first = Event(0, 1, SIMILAR, "me", "mgue", 0, key="one")
    (number,) = store.add([first])
    again = [
        replace(first, a=4, b=5),
        Event(2, 3, UNSURE, "me", "mgue", 0, key="two"),
        replace(first, a=6, b=7),
    ]
    assert store.add(again) == [number, number + 1, number]
    assert store.add([Event(2, 3, UNSURE, "you", "mgue", 9, key="two")]) == [number + 1]
    assert standing(store) == [(0, 1, SIMILAR), (2, 3, UNSURE)]


def test_answers_that_are_held_back_can_be_left_out_or_had_alone(store: Store) -> None:
    say(store, (0, 1, SIMILAR))
    store.add([Event(2, 3, DISSIMILAR, "me", AUDIT, 1)])

    def pairs(**which: bool) -> list[tuple[int, int]]:
        return list(store.answers(**which).pairs)

    assert pairs() == [(0, 1), (2, 3)]
    assert pairs(held_back=False) == [(0, 1)]
    assert pairs(only_held_back=True) == [(2, 3)]
    assert (store.newest(), store.fresh(0), store.fresh(1)) == (2, 1, 0)
    say(store, (0, 1, UNSURE))
    assert (store.newest(), store.fresh(0), store.fresh(1), store.fresh(3)) == (3, 2, 1, 0)


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
    def half() -> Iterator[Event]:
        yield Event(0, 1, SIMILAR, "me", "mgue", 0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.add(half())
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
    assert (store.setting("images", []), store.setting("unheard of", 7)) == ([5], 7)
    with closing(Store(store.path)) as again:
        assert again.settings() == expected


def queue(store: Store) -> tuple[list[tuple[int, int]], int, str]:
    queue = store.questions()
    return list(queue.pairs), queue.round, queue.strategy


def test_the_queue_holds_the_newest_rounds_questions_in_their_order(store: Store) -> None:
    store.queue(questions(0, (9, 8), (0, 1), (4, 5), strategy="cold"))
    assert queue(store) == ([(8, 9), (0, 1), (4, 5)], 0, "cold")
    store.queue(questions(0, (3, 2), strategy="random"))  # put up again: these instead
    assert queue(store) == ([(2, 3)], 0, "random")
    store.finish_round(0, {"alpha": 0.5}, questions(1, (6, 7), (1, 2)))
    assert queue(store) == ([(6, 7), (1, 2)], 1, "mgue")
    store.queue(questions(0, (3, 4), strategy="cold"))
    assert queue(store) == ([(6, 7), (1, 2)], 1, "mgue")


def test_more_questions_go_behind_the_others_or_before_them(store: Store) -> None:
    store.queue_more(questions(1, (0, 1)))
    store.queue_more(questions(1, (2, 3), (4, 5)), first=True)
    store.queue_more(questions(1, (6, 7), (8, 9)))
    store.queue_more(questions(1), first=True)
    store.queue_more(questions(1, (0, 9)), first=True)
    assert queue(store)[0] == [(0, 9), (2, 3), (4, 5), (0, 1), (6, 7), (8, 9)]


def test_a_question_keeps_its_own_strategy_and_level(store: Store) -> None:
    asked = Questions(Pairs.of([0, 2, 4], [1, 3, 5]), 2, (AUDIT, "cold", "mgue"), (None, 0.25, None))
    store.queue(asked)
    found = store.questions()
    assert (found.strategies, found.levels, found.strategy) == (asked.strategies, asked.levels, "cold")
    assert found.audit.tolist() == [True, False, False]
    assert store.question(2, 3) == (2, "cold")
    assert store.question(0, 5) is None
    store.finish_round(2, {}, questions(3, (2, 3)))
    assert store.question(2, 3) == (3, "mgue")  # who asked it last
    assert (
        Questions.of(Pairs.none(), 0, "mgue").strategy == questions(0, (0, 1), strategy=AUDIT).strategy == ""
    )


def test_levels_are_told_of_questions_that_were_judged_one_way_or_the_other(store: Store) -> None:
    pairs = Pairs.of([0, 0, 0, 0, 0], [1, 2, 3, 4, 5])
    store.queue(Questions(pairs, 0, ("cold",) * 5, (0.1, 0.2, 0.3, None, 0.5)))
    say(store, (0, 1, SIMILAR), (0, 2, DISSIMILAR), (0, 3, UNSURE), (0, 4, SIMILAR), (0, 9, SIMILAR))
    say(store, (0, 5, SIMILAR), round=1)  # asked in another round
    assert store.levels() == ([0.1, 0.2], [SIMILAR, DISSIMILAR])
    undo(store)
    say(store, (0, 2, SIMILAR), (0, 1, UNKNOWN))
    assert store.levels() == ([0.2], [SIMILAR])


def test_rounds_come_in_their_order_and_can_be_finished_again(store: Store) -> None:
    for number in (0, 10, 2):
        store.finish_round(number, {"number": number}, questions(number + 1))
    store.finish_round(2, {"number": 2, "again": True}, questions(3))
    assert store.rounds() == [(0, {"number": 0}), (2, {"number": 2, "again": True}), (10, {"number": 10})]


def test_a_round_is_finished_together_with_its_questions_and_audit_or_not_at_all(store: Store) -> None:
    store.queue(questions(0, (0, 1), strategy="cold"))
    broken = Pairs.of([4, 2], [5, 3])
    broken.a[1] = 7  # behind the back of Pairs, which would refuse it
    audit = Audit([(0, 0, 1, 2)], [(0, 1, 2, 3, 4, 0.5)])
    with pytest.raises(sqlite3.IntegrityError):
        store.finish_round(0, {}, Questions.of(broken, 1, "mgue"), audit)
    assert (store.rounds(), store.audits(), queue(store)) == ([], [], ([(0, 1)], 0, "cold"))
    store.finish_round(0, {}, questions(1), audit)
    assert (len(store.rounds()), store.audits()) == (1, audit.draws)


def test_what_was_drawn_and_where_it_stands_is_kept_in_the_order_of_the_draws(store: Store) -> None:
    store.add_audit(Audit([(0, 3, 1, 2), (0, 0, 4, 5), (-1, 2, 6, 7)], [(0, 1, 2, 3, 4, 0.5)]))
    assert store.audits() == [(-1, 2, 6, 7), (0, 0, 4, 5), (0, 3, 1, 2)]
    store.add_audit(Audit([(0, 3, 1, 2)], [(0, 1, 2, 9, 9, 0.75), (1, 1, 2, 5, 6, 0.25)]))
    assert len(store.audits()) == 3
    assert store.places() == {(0, 1, 2): (9, 9, 0.75), (1, 1, 2): (5, 6, 0.25)}


def test_what_the_machine_says_replaces_what_it_said(store: Store) -> None:
    before = time.time()
    store.set_machine(state="learning", done=3)
    store.set_machine(state="idle")
    at, about = store.machine()
    assert about == {"state": "idle"}
    assert before <= at <= time.time()
    store.beat()
    assert store.machine()[1] == about
    assert store.machine()[0] >= at


def test_an_image_from_outside_waits_until_the_newest_model_has_encoded_it(store: Store) -> None:
    store.add_query("q", b"pixels")
    store.add_query("q", b"others")  # the same name is the same image
    store.add_query("r", b"second")
    waiting = Query("q", b"pixels", None, None, None)
    assert store.query("q") == store.waiting_query(-1) == waiting
    store.encoded("q", -1, b"vector", None)
    assert store.query("q") == Query("q", b"pixels", -1, b"vector", None)
    store.encoded("r", -1, None, "Not an image.")
    assert store.waiting_query(-1) is None
    found = store.waiting_query(0)  # a new model came; what failed is not tried again
    assert found is not None
    assert found.id == "q"


def test_an_image_from_outside_is_forgotten_after_a_day(store: Store) -> None:
    store.add_query("old", b"1")
    raw(store.path, "UPDATE queries SET made = made - 86401")
    store.add_query("new", b"2")
    assert (store.query("old"), store.query("new") is not None) == (None, True)


# -- leases ----------------------------------------------------------------------------------------


def test_a_lease_is_of_its_holder_and_replaced_as_a_whole(store: Store) -> None:
    store.lease([(4, 5), (0, 1)], "one", 60)
    store.lease([(6, 7)], "two", 60)
    assert store.leases() == [(4, 5, "one"), (0, 1, "one"), (6, 7, "two")]
    store.lease([(2, 3), (0, 1)], "one", 60)
    assert store.leases() == [(6, 7, "two"), (2, 3, "one"), (0, 1, "one")]
    store.lease([], "two", 60)
    assert store.leases() == [(2, 3, "one"), (0, 1, "one")]


def test_a_lease_runs_out(store: Store) -> None:
    store.lease([(0, 1)], "one", 60)
    raw(store.path, "UPDATE leases SET until = until - 61")  # a minute later
    store.lease([(2, 3)], "two", 60)
    assert store.leases() == [(2, 3, "two")]
    assert raw(store.path, "SELECT holder FROM leases") == [("two",)]  # it is swept away
    raw(store.path, "UPDATE leases SET until = until - 59")
    assert store.leases() == [(2, 3, "two")]
    raw(store.path, "UPDATE leases SET until = until - 1")
    assert store.leases() == []


def test_a_pair_is_one_holder_s_and_stays_its_own_while_it_is_there(store: Store) -> None:
    store.lease([(0, 1)], "one", 60)
    say(store, (0, 1, SIMILAR), by="somebody else")
    assert store.leases() == [(0, 1, "one")]
    store.renew("one", 60)
    assert raw(store.path, "SELECT until < ? FROM leases", time.time() + 60) == [(1,)]  # not due yet
    raw(store.path, "UPDATE leases SET until = until - 31")
    store.renew("two", 60)
    store.renew("one", 60)
    assert raw(store.path, "SELECT until > ? FROM leases", time.time() + 50) == [(1,)]
    store.lease([(0, 1)], "two", 60)  # whoever has it last
    assert store.leases() == [(0, 1, "two")]


# -- on disk ---------------------------------------------------------------------------------------


def test_the_file_is_written_ahead_and_synced_at_every_commit(store: Store) -> None:
    assert raw(store.path, "PRAGMA journal_mode") == [("wal",)]
    assert store._db.execute("PRAGMA synchronous").fetchall() == [(2,)]  # FULL
    with closing(Store(store.path)) as again:
        assert again._db.execute("PRAGMA synchronous").fetchall() == [(2,)]


def test_everything_is_found_again_by_the_next_to_open_the_file(store: Store) -> None:
    say(store, (0, 1, SIMILAR))
    store.add_labels([(3, "river")], annotator="me", strategy="cal", round=0)
    store.finish_round(0, {"alpha": 0.5}, questions(1, (4, 5)))
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
from anneal.campaign.store import Event, Store
store = Store(Path(sys.argv[1]), create=True)
print(store.events(), flush=True)
while True:
    n = store.events()
    store.add([Event(n, n + 1 + n % 7, 1 + n % 3, "me", "mgue", n)])
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


def test_of_many_who_send_the_same_key_at_once_one_is_heard(store: Store) -> None:
    rows: list[int] = []

    def send(number: int) -> None:
        with closing(Store(store.path)) as own:
            for i in range(10):
                rows.extend(own.add([Event(number, 100 + i, SIMILAR, "me", "mgue", 0, key=f"key {i}")]))

    assert together(send, 4) == []
    assert store.events() == len(set(rows)) == 10
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


def test_of_two_processes_that_send_the_same_keys_one_is_heard(store: Store) -> None:
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
    assert standing(store) == [(n, n + 1, SIMILAR) for n in range(50)]


def test_many_may_open_a_file_at_once_that_has_to_be_brought_up_to_date(tmp_path: Path) -> None:
    for attempt in range(5):
        path = tmp_path / f"{attempt}.sqlite"
        raw(path, "PRAGMA journal_mode = WAL")  # as yet without tables, version 0

        def bring(_: int, path: Path = path) -> None:
            Store(path).close()

        assert together(bring, 4) == []


def test_one_who_opens_a_file_that_another_is_just_making_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "campaign.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")  # SQLite itself refuses to turn such a file to WAL, at once
        other.execute("CREATE TABLE theirs (x)")
        done = threading.Timer(0.2, other.execute, ("COMMIT",))
        done.start()
        with closing(Store(path)) as store:
            assert raw(path, "PRAGMA journal_mode") == [("wal",)]
            assert store.settings() == {}
        done.join()


def test_one_who_waits_too_long_for_a_file_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anneal.store.PATIENCE", 0.1)
    path = tmp_path / "campaign.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE theirs (x)")
        with pytest.raises(CampaignError, match="database is locked"):
            Store(path)


# -- files of the version before -------------------------------------------------------------------

OLD: list[tuple[int, int, int, str]] = [
    (0, 1, SIMILAR, "ann"),
    (2, 3, DISSIMILAR, "ann"),
    (2, 3, SIMILAR, "bob"),
    (0, 1, UNKNOWN, "ann"),  # an undo, as it was
    (4, 5, SIMILAR, "ann"),
    (4, 5, DISSIMILAR, "ann"),
    (4, 5, UNKNOWN, "ann"),  # which took back all that was said of the pair
    (6, 7, SIMILAR, "bob"),
    (6, 7, UNKNOWN, "bob"),
    (6, 7, UNSURE, "bob"),
]
STANDS = [(2, 3, DISSIMILAR), (2, 3, SIMILAR), (6, 7, UNSURE)]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of version 1 with something in every table."""
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        MIGRATIONS[0](db)
        db.executemany(
            "INSERT INTO answers (a, b, verdict, annotator, asked, answered, strategy, round) "
            "VALUES (?, ?, ?, ?, 1.5, 2.5, 'mgue', 3)",
            OLD,
        )
        db.execute("INSERT INTO labels VALUES (1, 8, 'river', 'ann', 2.5, 'cal', 0)")
        db.execute(
            "INSERT INTO questions VALUES (0, 0, 1, 2, 'cold'), (4, 0, 8, 9, 'mgue'), (4, 1, 0, 9, 'mgue')"
        )
        db.execute("INSERT INTO rounds VALUES (3, 2.5, '{\"alpha\": 0.5}')")
        db.execute("INSERT INTO settings VALUES ('name', '\"x\"')")
        db.execute("PRAGMA user_version = 1")
    return path


def test_an_older_file_is_brought_up_to_date_and_keeps_every_row_and_what_stands(old: Path) -> None:
    columns = "a, b, verdict, annotator, asked, answered, strategy, round"
    before = raw(old, f"SELECT id, {columns} FROM answers")
    for _ in range(2):  # brought up to date, and opened again
        with closing(Store(old)) as store:
            assert standing(store) == STANDS
            assert (store.events(), store.newest()) == (10, 10)
            assert [(r.annotator, r.key, r.looked, r.undoes, r.entered) for r in store.standing()] == [
                (who, None, None, None, None) for who in ("ann", "bob", "bob")
            ]
            assert queue(store) == ([(8, 9), (0, 9)], 4, "mgue")
            assert store.questions().levels == (None, None)
            assert (store.labels(), store.rounds(), store.settings()) == (
                {8: "river"},
                [(3, {"alpha": 0.5})],
                {"name": "x"},
            )
        assert raw(old, f"SELECT id, {columns} FROM answers") == before
        assert raw(old, "PRAGMA user_version") == [(len(MIGRATIONS),)]


def test_an_older_files_answers_can_be_corrected_and_undone(old: Path) -> None:
    with closing(Store(old)) as store:
        say(store, (2, 3, UNSURE), by="ann")
        assert standing(store) == [*STANDS[1:], (2, 3, UNSURE)]
        assert undo(store, "ann") == (2, 3)
        assert standing(store) == STANDS
        for _ in range(4):  # all that bob did
            assert undo(store, "bob") is not None
        assert undo(store, "bob") is None
        assert standing(store) == STANDS[:1]


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


def test_a_round_that_asks_nothing_leaves_an_empty_queue(store: Store) -> None:
    store.queue(questions(0, (0, 1), strategy="cold"))
    store.finish_round(0, {}, questions(1))
    assert queue(store)[:2] == ([], 1)
