"""What stands, what waits and what was given, against a naive recomputation from all rows."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anneal.campaign.log import PAUSE, Log, is_given
from anneal.campaign.store import MACHINE, Purpose, Row
from anneal.pairs import UNKNOWN, Pair, Verdict

SIMILAR, DISSIMILAR, UNSURE = Verdict
PAIRS: list[Pair] = [(0, 1), (0, 2), (1, 2)]
PEOPLE = ["ann", "bob", "carl"]
ROUNDS = range(5)


# -- the rules, one by one ---------------------------------------------------------------------------


class Teller:
    """Adds rows to a log, numbered from 1."""

    def __init__(self) -> None:
        self.log = Log()

    def __call__(
        self,
        pair: Pair,
        verdict: int,
        by: str = "ann",
        *,
        purpose: str = Purpose.CHOSEN,
        round: int = 0,
        entered: str | None = None,
    ) -> Row:
        number = self.log.newest + 1
        row = Row(*pair, verdict, by, "mgue", round, purpose, entered=entered, id=number)
        self.log.extend([row])
        return row

    def undo(self, row: Row) -> None:
        number = self.log.newest + 1
        self.log.extend([replace(row, verdict=UNKNOWN, undoes=row.id, id=number)])

    def standing(self) -> list[tuple[Pair, int]]:
        return [(row.pair, row.verdict) for row in self.log.standing()]


@pytest.fixture
def tell() -> Teller:
    return Teller()


def test_an_empty_log_has_nothing() -> None:
    log = Log()
    assert (log.rows, log.newest, log.looked, log.given, log.waiting) == ([], 0, 0, 0, {})
    assert (log.standing(), log.latest(9), log.since(0), log.withdrawn()) == ([], [], [], [])
    assert (log.news(0), log.overturned(9), log.doubted(), log.doubted(9)) == (0, 0, frozenset(), frozenset())
    assert (log.row(1), log.last_by("ann"), log.last_purpose((0, 1))) == (None, None, None)


def test_the_last_answer_of_each_person_stands_in_the_order_given(tell: Teller) -> None:
    tell((4, 5), SIMILAR)
    tell((0, 9), DISSIMILAR)
    tell((4, 5), UNSURE)  # it moves to the end
    tell((0, 9), SIMILAR, "bob")
    assert tell.standing() == [((0, 9), DISSIMILAR), ((4, 5), UNSURE), ((0, 9), SIMILAR)]
    assert [row.annotator for row in tell.log.standing_on((0, 9))] == ["ann", "bob"]


def test_a_withdrawn_answer_does_not_stand_and_nothing_before_it_does(tell: Teller) -> None:
    tell((0, 1), SIMILAR)
    tell((0, 1), DISSIMILAR)
    tell((0, 1), SIMILAR, "bob")
    tell((0, 1), UNKNOWN)
    assert tell.standing() == [((0, 1), SIMILAR)]
    assert [row.pair for row in tell.log.withdrawn()] == [(0, 1)]
    tell((0, 1), UNSURE)
    assert tell.standing() == [((0, 1), SIMILAR), ((0, 1), UNSURE)]
    assert tell.log.withdrawn() == []


def test_an_undo_restores_what_was_said_before_in_its_old_position(tell: Teller) -> None:
    verdicts = [SIMILAR, DISSIMILAR, UNKNOWN, UNSURE, SIMILAR]  # the third withdraws
    rows = [tell((0, 1), verdicts[0])]
    tell((2, 3), UNSURE)
    rows += [tell((0, 1), verdict) for verdict in verdicts[1:]]
    for row in reversed(rows[1:]):
        tell.undo(row)
        before = verdicts[rows.index(row) - 1]
        assert [verdict for pair, verdict in tell.standing() if pair == (0, 1)] == [before] * bool(before)
    assert tell.standing() == [((0, 1), SIMILAR), ((2, 3), UNSURE)]
    tell.undo(rows[0])
    assert tell.standing() == [((2, 3), UNSURE)]


def test_undoing_a_row_twice_or_undoing_an_undo_changes_nothing(tell: Teller) -> None:
    row = tell((0, 1), SIMILAR)
    tell.undo(row)
    given_before = tell.log.given
    tell.undo(row)
    tell.undo(tell.log.rows[1])
    assert (tell.standing(), tell.log.given, given_before) == ([], 0, 0)


def test_a_pair_waits_when_its_last_act_withdraws_it_to_be_asked_again(tell: Teller) -> None:
    tell((0, 1), SIMILAR)
    tell((2, 3), SIMILAR)
    tell((2, 3), UNKNOWN)  # withdrawn, but nobody wants to ask again
    again = tell((0, 1), UNKNOWN, purpose=Purpose.AGAIN)
    assert tell.log.waiting == {(0, 1): again}
    answer = tell((0, 1), DISSIMILAR, "bob", purpose=Purpose.AGAIN)  # by whom it was does not matter
    assert tell.log.waiting == {}
    tell.undo(answer)
    assert tell.log.waiting == {(0, 1): again}
    tell.undo(again)
    assert tell.log.waiting == {}
    assert tell.standing() == [((0, 1), SIMILAR)]


def test_news_are_answers_after_a_row_and_undos_of_what_came_before_it(tell: Teller) -> None:
    first = tell((0, 1), SIMILAR)
    second = tell((0, 2), SIMILAR, purpose=Purpose.HELD_OUT)
    assert [tell.log.news(number) for number in (0, 1, 2)] == [2, 1, 0]
    tell((0, 2), SIMILAR, purpose=Purpose.RELEASED, entered=MACHINE)  # the machine's acts are no news
    tell((0, 1), UNKNOWN, purpose=Purpose.AGAIN, entered=MACHINE)
    assert tell.log.news(2) == 0
    tell.undo(first)
    assert tell.log.news(2) == 1
    third = tell((1, 2), UNSURE)
    assert tell.log.news(2) == 2
    tell.undo(third)
    assert tell.log.news(2) == 1
    tell.undo(second)
    assert [tell.log.news(number) for number in (0, 2)] == [0, 2]


def test_the_last_act_of_a_person_is_the_last_one_that_person_typed(tell: Teller) -> None:
    own = tell((0, 1), SIMILAR)
    corrected = tell((0, 1), DISSIMILAR, entered="bob")  # bob corrects ann's answer
    assert tell.log.last_by("ann") == own
    assert tell.log.last_by("bob") == corrected
    tell.undo(corrected)
    assert tell.log.last_by("bob") is None
    assert tell.standing() == [((0, 1), SIMILAR)]


def test_the_last_purpose_of_a_pair_is_that_of_its_last_answer_even_if_undone(tell: Teller) -> None:
    heldout = tell((0, 1), SIMILAR, purpose=Purpose.HELD_OUT)
    tell((0, 1), UNKNOWN, purpose=Purpose.AGAIN)
    assert tell.log.last_purpose((0, 1)) == Purpose.HELD_OUT
    tell.undo(heldout)
    assert tell.log.last_purpose((0, 1)) == Purpose.HELD_OUT
    tell((0, 1), SIMILAR, purpose=Purpose.IMPORTED)
    assert tell.log.last_purpose((0, 1)) == Purpose.IMPORTED


def test_answers_that_changed_when_asked_again_are_counted(tell: Teller) -> None:
    def doubt(b: int, round: int, by: str = "ann") -> None:
        tell((0, b), UNKNOWN, by, purpose=Purpose.AGAIN, round=round, entered=MACHINE)

    for b in (1, 2, 3, 4):
        tell((0, b), SIMILAR)
    tell((0, 3), DISSIMILAR)  # ann corrects herself …
    tell((0, 4), DISSIMILAR, "bob")  # … and bob has another opinion
    for b in (1, 2, 3):
        doubt(b, 1)
    doubt(4, 1, "bob")
    log = tell.log
    assert log.doubted() == {(0, b) for b in (1, 2, 3, 4)}
    assert log.overturned(9) == 0
    tell((0, 3), DISSIMILAR, round=1)
    tell((0, 4), DISSIMILAR, "bob", round=1)
    assert log.overturned(9) == 0
    tell((0, 1), DISSIMILAR, round=1)
    tell((0, 2), DISSIMILAR, round=2)
    doubt(2, 2)
    assert [log.overturned(before) for before in (0, 1, 2, 3)] == [0, 0, 1, 2]
    tell((0, 2), SIMILAR, round=3)  # the first answer was right
    assert [log.overturned(before) for before in (2, 3, 4)] == [1, 2, 1]
    tell((0, 4), UNSURE, "bob", round=4)
    assert log.overturned(9) == 2
    assert [len(log.doubted(before)) for before in (1, 2)] == [0, 4]


def test_looking_longer_than_a_minute_counts_as_a_minute() -> None:
    looked = [None, 0, 900, PAUSE, PAUSE + 1, 3_600_000]
    log = Log()
    log.extend(Row(0, 1, SIMILAR, "ann", "", 0, looked=ms, id=1 + i) for i, ms in enumerate(looked))
    assert log.looked == 900 + 3 * PAUSE


# -- against a naive recomputation -------------------------------------------------------------------

Step = tuple[str, Pair, int, str, int, str | None, int, int, int | None]
steps = st.lists(
    st.tuples(
        st.sampled_from(PEOPLE),
        st.sampled_from(PAIRS),
        st.integers(0, 3),
        st.sampled_from(list(Purpose)),
        st.integers(0, 3),  # the round
        st.sampled_from([None, None, "bob", MACHINE]),  # who typed it
        st.integers(1, 3),  # to the next row number
        st.integers(0, 2 * PAUSE),
        st.none() | st.integers(0, 99),  # an undo, of which row
    ),
    max_size=30,
)


def rows_of(history: list[Step]) -> list[Row]:
    """Rows as a store gives them. An undo may name any earlier row, even an undo or an undone one."""
    rows: list[Row] = []
    number = 0
    for annotator, pair, verdict, purpose, round, entered, gap, looked, undo in history:
        number += gap
        row = Row(
            *pair, verdict, annotator, "mgue", round, purpose, looked=looked, entered=entered, id=number
        )
        if undo is not None and rows:
            undone = rows[undo % len(rows)]
            row = replace(undone, verdict=UNKNOWN, looked=None, undoes=undone.id, id=number)
        rows.append(row)
    return rows


def naive_acts(rows: Iterable[Row]) -> list[Row]:
    undone = {row.undoes for row in rows}
    return [row for row in rows if row.undoes is None and row.id not in undone]


def last_of_each(acts: list[Row], key: Callable[[Row], object]) -> list[Row]:
    """The last act of each key, in the order of the rows."""
    return [row for row in acts if row is [act for act in acts if key(act) == key(row)][-1]]


def pair_and_person(row: Row) -> tuple[Pair, str]:
    return row.pair, row.annotator


def naive_standing(acts: list[Row]) -> list[Row]:
    return [row for row in last_of_each(acts, pair_and_person) if row.verdict]


def is_doubt(row: Row) -> bool:
    return row.verdict == UNKNOWN and row.entered == MACHINE


def naive_overturned(acts: list[Row]) -> int:
    """For each person and pair: the last verdict against the last before the machine's first withdrawal."""
    count = 0
    for pair in PAIRS:
        for person in PEOPLE:
            own = [act for act in acts if pair_and_person(act) == (pair, person)]
            doubts = [act.id for act in own if is_doubt(act)]
            earlier = [act.verdict for act in own if doubts and act.verdict and act.id < doubts[0]]
            later = [act.verdict for act in own if doubts and act.verdict and act.id > doubts[0]]
            if earlier and later and earlier[-1] != later[-1]:
                count += 1
    return count


@given(steps)
def test_what_a_log_says_of_all_rows(history: list[Step]) -> None:
    rows = rows_of(history)
    log = Log()
    log.extend(rows)
    acts = naive_acts(rows)
    assert log.rows == rows
    assert log.newest == (rows[-1].id if rows else 0)
    standing = naive_standing(acts)
    assert log.standing() == standing
    assert [row for row in rows if log.is_standing(row)] == standing
    taught = [row for row in standing if row.purpose != Purpose.HELD_OUT]
    assert [log.latest(n) for n in (0, 2, 99)] == [[], taught[-2:], taught]
    last_on_pair = last_of_each(acts, lambda row: row.pair)
    asked_again = [row for row in last_on_pair if not row.verdict and row.purpose == Purpose.AGAIN]
    assert log.waiting == {row.pair: row for row in asked_again}
    assert log.given == sum(bool(row.verdict) and row.entered != MACHINE for row in acts)
    assert log.looked == sum(min(row.looked or 0, PAUSE) for row in rows)
    assert log.withdrawn() == [row for row in last_of_each(acts, pair_and_person) if not row.verdict]
    assert log.doubted() == {row.pair for row in acts if is_doubt(row)}


@given(steps)
def test_what_a_log_says_of_a_person_or_a_pair(history: list[Step]) -> None:
    rows = rows_of(history)
    log = Log()
    log.extend(rows)
    acts = naive_acts(rows)
    for person in (*PEOPLE, MACHINE, "nobody"):
        typed = [row for row in acts if (row.entered or row.annotator) == person]
        assert log.last_by(person) == (typed[-1] if typed else None)
    for pair in PAIRS:
        own = [row for row in acts if row.pair == pair]
        answers = [row.purpose for row in rows if row.pair == pair and row.verdict and row.undoes is None]
        assert log.acts(pair) == own
        assert sorted(log.standing_on(pair), key=lambda row: row.id) == naive_standing(own)
        assert log.verdicts(pair) == [row.verdict for row in own if is_given(row)]
        assert log.is_doubted(pair) == any(map(is_doubt, own))
        assert log.last_purpose(pair) == (answers[-1] if answers else None)
    for row in rows:
        assert log.row(row.id) == row
        assert log.is_act(row) == (row in acts)
    assert log.row(0) is None
    assert log.row(log.newest + 1) is None


@given(steps, st.integers(0, 99))
def test_what_a_log_says_of_a_moment_or_a_round(history: list[Step], number: int) -> None:
    rows = rows_of(history)
    log = Log()
    log.extend(rows)
    acts = naive_acts(rows)
    since = [row for row in acts if row.id > number]
    undos = [row for row in rows if row.id > number and row.undoes is not None and row.undoes <= number]
    assert log.since(number) == since
    assert log.news(number) == len(undos) + sum(map(is_given, since))
    for round in ROUNDS:
        earlier = [row for row in acts if row.round < round]
        assert log.doubted(round) == {row.pair for row in earlier if is_doubt(row)}
        assert log.overturned(round) == naive_overturned(earlier)


@given(steps, st.lists(st.integers(0, 30), max_size=3))
def test_rows_may_be_added_in_any_number_of_steps(history: list[Step], cuts: list[int]) -> None:
    rows = rows_of(history)
    log = Log()
    for start, end in pairwise(sorted({0, *cuts, len(rows)})):
        log.extend(rows[start:end])
        at_once = Log()
        at_once.extend(rows[:end])
        assert log.standing() == at_once.standing()
        assert list(log.waiting.items()) == list(at_once.waiting.items())
        assert (log.given, log.looked, log.doubted()) == (at_once.given, at_once.looked, at_once.doubted())
