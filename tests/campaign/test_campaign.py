"""The person's turn: which pair comes next, what an answer and an undo do, how far the campaign is."""

import math
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from anneal.archive.catalog import Archive, open_archive
from anneal.campaign import judging, progress
from anneal.campaign.campaign import FROZEN, Campaign, label_pairs
from anneal.campaign.store import AUDIT, Audit, Event, Questions, Store
from anneal.errors import AnnealError, ArchiveError, CampaignError, UsageError
from anneal.method.estimate import Estimate
from anneal.method.neighbours import unit
from anneal.pairs import UNKNOWN, Pairs, Verdict
from anneal.settings import Plan

SIMILAR, DISSIMILAR, UNSURE = Verdict
PLAN = Plan(px=32, strategy="mgue", recheck=0)
Pair = tuple[int, int]


@pytest.fixture
def archive(drawn: Path, cache: Path) -> Archive:
    return open_archive(drawn, 32, cache)


Closed = Callable[[Campaign], Campaign]


@pytest.fixture
def closed() -> Iterator[Closed]:
    """Whatever is passed through here is closed when the test is over."""
    with ExitStack() as stack:

        def close_later(campaign: Campaign) -> Campaign:
            stack.callback(campaign.store.close)
            return campaign

        yield close_later


@pytest.fixture
def campaign(tmp_path: Path, archive: Archive, closed: Closed) -> Campaign:
    return closed(Campaign.create(tmp_path / "campaign", archive, PLAN, np.arange(len(archive))))


def of(*pairs: Pair) -> Pairs:
    return Pairs.of(*np.array(pairs, dtype=np.int64).reshape(-1, 2).T)


def ask(campaign: Campaign, *pairs: Pair, round: int = 0, audit: tuple[Pair, ...] = ()) -> None:
    """Queue these, of which some were drawn by lot."""
    strategies = tuple(AUDIT if pair in audit else "mgue" for pair in pairs)
    campaign.store.queue(Questions(of(*pairs), round, strategies))


def place(campaign: Campaign, vectors: Any = None, model: int = FROZEN) -> None:
    """Give the campaign a metric space: random, unless told."""
    folder = campaign.round_folder(model)
    folder.mkdir(parents=True, exist_ok=True)
    random = unit(np.random.default_rng(3).normal(size=(campaign.size, 4)))
    np.save(folder / "vectors.npy", random if vectors is None else vectors)


def finish(campaign: Campaign, number: int, about: dict[str, Any] | None = None, *pairs: Pair) -> None:
    campaign.store.finish_round(number, about or {}, Questions.of(of(*pairs), number + 1, "mgue"))


def later(campaign: Campaign, seconds: float) -> None:
    """So long ago were all leases given."""
    with closing(sqlite3.connect(campaign.store.path)) as db, db:
        db.execute("UPDATE leases SET until = until - ?", (seconds,))


def events(campaign: Campaign) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(campaign.store.path)) as db:
        return db.execute(
            "SELECT a, b, verdict, annotator, strategy, round FROM answers ORDER BY id"
        ).fetchall()


def evidence(campaign: Campaign, upto: int | None = None) -> list[tuple[int, int, int]]:
    found = campaign.evidence(upto)
    return [(a, b, int(v)) for (a, b), v in zip(found.pairs, found.verdicts, strict=True)]


def planned(campaign: Campaign, folder: Path, **changes: Any) -> Campaign:
    """Another campaign on the same archive with another plan."""
    return Campaign.create(folder, campaign.archive(), replace(campaign.plan, **changes), campaign.images)


# -- the next pair ---------------------------------------------------------------------------------


def test_questions_come_in_the_order_of_the_queue_until_there_are_none(campaign: Campaign) -> None:
    assert campaign.next_pair() is None
    asked = [(7, 8), (0, 1), (30, 99)]
    ask(campaign, *asked)
    for pair in asked:
        assert campaign.next_pair() == pair
        assert campaign.next_pair() == pair  # asking changes nothing
        campaign.answer(*pair, DISSIMILAR)
    assert campaign.next_pair() is None
    ask(campaign, (7, 9), round=1)
    assert campaign.next_pair() == (7, 9)


def test_what_the_answers_imply_is_not_asked(campaign: Campaign) -> None:
    ask(campaign, (0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (3, 4), (1, 4))
    for pair, verdict in (((0, 1), SIMILAR), ((1, 2), SIMILAR), ((2, 3), DISSIMILAR), ((3, 4), DISSIMILAR)):
        assert campaign.next_pair() == pair
        campaign.answer(*pair, verdict)
    assert campaign.next_pair() == (1, 4)  # dissimilar + dissimilar implies nothing


@pytest.mark.parametrize(
    ("closure", "first"), [("none", (0, 2)), ("single", (0, 3)), ("full", (8, 9))]
)  # of two steps apart, three steps apart, and unrelated
def test_the_plan_says_how_far_implication_goes(
    campaign: Campaign, tmp_path: Path, closed: Closed, closure: str, first: tuple[int, int]
) -> None:
    other = closed(planned(campaign, tmp_path / closure, closure=closure))
    other.answer_all(Pairs.of([0, 1, 2], [1, 2, 3]), [SIMILAR] * 3)
    ask(other, (0, 1), (0, 2), (0, 3), (8, 9))
    assert other.next_pair() == first


def test_an_unsure_pair_is_not_asked_again_and_implies_nothing(campaign: Campaign) -> None:
    ask(campaign, (0, 1), (1, 2), (0, 2))
    campaign.answer(0, 1, UNSURE)
    campaign.answer(1, 2, SIMILAR)
    assert campaign.next_pair() == (0, 2)
    campaign.answer(0, 2, UNSURE)
    assert campaign.next_pair() is None


def test_a_pair_two_annotators_disagree_on_is_not_asked_again(campaign: Campaign) -> None:
    ask(campaign, (0, 1), (2, 3))
    campaign.answer(0, 1, SIMILAR, "ann")
    campaign.answer(0, 1, DISSIMILAR, "bob")
    assert campaign.next_pair() == (2, 3)


def naively_known(n: int, answers: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """The closure, a step at a time until nothing is new."""
    known = {frozenset(pair): verdict for pair, verdict in answers.items()}
    while True:
        new = {
            frozenset((a, c)): max(one, other)
            for b in range(n)
            for a, c in combinations(set(range(n)) - {b}, 2)
            if (one := known.get(frozenset((a, b)), 0)) and (other := known.get(frozenset((b, c)), 0))
            if SIMILAR in (one, other) and frozenset((a, c)) not in known
        }
        if not new:
            return {(min(pair), max(pair)): verdict for pair, verdict in known.items()}
        known |= new


def test_a_person_who_knows_the_classes_is_asked_exactly_what_does_not_follow(
    campaign: Campaign, tmp_path: Path, closed: Closed, rng: np.random.Generator
) -> None:
    campaign = closed(planned(campaign, tmp_path / "unsteered", share=0.0))
    classes = [0, 1, 2, 0, 1, 0, 0, 2, 1]
    queue = rng.permutation(np.array(list(combinations(range(9), 2))))
    ask(campaign, *queue)
    answered: dict[tuple[int, int], int] = {}
    while (pair := campaign.next_pair()) is not None:
        known = naively_known(9, answered)
        assert pair == next((a, b) for a, b in queue.tolist() if (a, b) not in known)
        answered[pair] = SIMILAR if classes[pair[0]] == classes[pair[1]] else DISSIMILAR
        campaign.answer(*pair, Verdict(answered[pair]))
    every = Pairs.of(*queue.T)
    truth = [SIMILAR if classes[a] == classes[b] else DISSIMILAR for a, b in every]
    assert campaign.closure().relations.of(every).tolist() == truth
    assert len(answered) < len(queue)


# -- answer, correct, undo -------------------------------------------------------------------------


def test_an_answer_is_kept_with_its_annotator_and_its_questions_round_and_strategy(
    campaign: Campaign,
) -> None:
    ask(campaign, (2, 5), round=3)
    campaign.answer(5, 2, SIMILAR, "ann")
    campaign.answer(7, 9, UNSURE)
    assert events(campaign) == [(2, 5, SIMILAR, "ann", "mgue", 3), (7, 9, UNSURE, "me", "mgue", 3)]


def test_many_answers_are_kept_in_one_step_or_not_at_all(campaign: Campaign) -> None:
    campaign.answer_all(Pairs.of([0, 3], [1, 2]), [SIMILAR, DISSIMILAR], "oracle")
    assert evidence(campaign) == [(0, 1, SIMILAR), (2, 3, DISSIMILAR)]
    with pytest.raises(ValueError, match="shorter"):
        campaign.answer_all(Pairs.of([4, 6], [5, 7]), [SIMILAR])
    assert campaign.store.events() == 2


def test_a_correction_replaces_the_answer_and_its_consequences(campaign: Campaign) -> None:
    ask(campaign, (0, 2))
    campaign.answer_all(Pairs.of([0, 1], [1, 2]), [SIMILAR, SIMILAR])
    assert campaign.next_pair() is None
    campaign.answer(1, 2, UNSURE)
    assert campaign.next_pair() == (0, 2)
    assert evidence(campaign) == [(0, 1, SIMILAR), (1, 2, UNSURE)]
    assert campaign.store.events() == 3


def test_undo_takes_back_one_answer_after_another_and_its_consequences(campaign: Campaign) -> None:
    asked = [(0, 1), (1, 2), (0, 2), (3, 4)]
    ask(campaign, *asked)
    for pair in ((0, 1), (1, 2), (3, 4)):
        campaign.answer(*pair, SIMILAR)
    assert campaign.next_pair() is None
    for pair in ((3, 4), (1, 2), (0, 1)):
        assert campaign.undo() == pair
        assert campaign.next_pair() == pair  # to be asked again
    assert evidence(campaign) == []
    assert campaign.store.events() == 6
    assert campaign.undo() is None
    assert campaign.store.events() == 6


def test_undo_takes_back_nobody_elses_answer(campaign: Campaign) -> None:
    campaign.answer(0, 1, SIMILAR, "ann")
    campaign.answer(0, 1, SIMILAR, "bob")
    campaign.answer(2, 3, SIMILAR, "bob")
    assert campaign.undo("ann") == (0, 1)
    assert campaign.undo("ann") is None
    assert evidence(campaign) == [(0, 1, SIMILAR), (2, 3, SIMILAR)]


@pytest.mark.parametrize(
    ("a", "b", "verdict"), [(0, 120, 1), (-1, 3, 1), (3, 3, 1), (0, 1, 4), (0, 1, -1)]
)  # of 120 images and three verdicts
def test_an_answer_on_what_is_no_pair_or_with_no_verdict_is_refused_and_not_kept(
    campaign: Campaign, a: int, b: int, verdict: int
) -> None:
    ask(campaign, (0, 1))
    with pytest.raises((AnnealError, ValueError)):
        campaign.answer_all(Pairs.of([5, a], [6, b]), [SIMILAR, verdict])
    assert campaign.store.events() == 0
    assert campaign.next_pair() == (0, 1)


def test_a_pair_once_asked_keeps_the_round_and_the_strategy_that_asked_it(campaign: Campaign) -> None:
    ask(campaign, (0, 1), (2, 3), audit=((0, 1),))
    finish(campaign, 0, {}, (4, 5))  # while (0, 1) and (2, 3) were on somebody's screen
    for pair in ((0, 1), (2, 3), (8, 9)):
        campaign.answer(*pair, SIMILAR)
    assert events(campaign) == [
        (0, 1, SIMILAR, "me", AUDIT, 0),
        (2, 3, SIMILAR, "me", "mgue", 0),
        (8, 9, SIMILAR, "me", "mgue", 1),
    ]


def test_an_event_sent_again_is_heard_once(campaign: Campaign) -> None:
    numbers = [campaign.answer(0, 1, SIMILAR, key="a", asked=1.5, looked=900) for _ in range(3)]
    campaign.answer(2, 3, SIMILAR, key="b")
    assert len(set(numbers)) == 1
    row = campaign.store.row(numbers[0])
    assert row is not None
    assert (row.asked, row.looked, row.key) == (1.5, 900, "a")
    for _ in range(3):
        assert campaign.undo(key="c") == (2, 3)
        assert campaign.correct(numbers[0], UNSURE, key="d") == (0, 1)
    assert evidence(campaign) == [(0, 1, UNSURE)]
    assert campaign.store.events() == 4


def test_undo_by_key_takes_back_that_one_wherever_it_lies(campaign: Campaign) -> None:
    for n, pair in enumerate(((0, 1), (2, 3), (4, 5))):
        campaign.answer(*pair, SIMILAR, key=f"{n}")
    assert campaign.undo(undoes="1", key="x") == (2, 3)
    assert campaign.undo(undoes="unheard of") is None
    assert evidence(campaign) == [(0, 1, SIMILAR), (4, 5, SIMILAR)]
    assert campaign.undo() == (4, 5)
    assert campaign.undo() == (0, 1)
    assert campaign.undo() is None


def test_undo_of_a_correction_brings_the_earlier_verdict_and_its_consequences_back(
    campaign: Campaign,
) -> None:
    campaign.answer_all(of((0, 1), (1, 2)), [SIMILAR, SIMILAR])
    campaign.answer(1, 2, DISSIMILAR)
    campaign.answer(1, 2, UNSURE)
    both = of((0, 2), (1, 2))
    for verdicts in ([UNKNOWN, UNSURE], [DISSIMILAR, DISSIMILAR], [SIMILAR, SIMILAR]):
        assert campaign.closure().relations.of(both).tolist() == verdicts
        campaign.undo()


def test_a_correction_by_another_keeps_the_annotator_and_notes_who_typed_it(campaign: Campaign) -> None:
    number = campaign.answer(0, 1, SIMILAR, "ann")
    assert campaign.correct(number, DISSIMILAR, "bob") == (0, 1)
    (row,) = campaign.store.standing()
    assert (row.annotator, row.entered, row.verdict) == ("ann", "bob", DISSIMILAR)
    assert campaign.correct(row.id, UNSURE, "ann") == (0, 1)
    assert campaign.store.standing()[0].entered is None
    assert campaign.undo("bob") == (0, 1)
    assert evidence(campaign) == [(0, 1, UNSURE)]  # hers came later
    assert campaign.undo("ann") == (0, 1)
    assert evidence(campaign) == [(0, 1, SIMILAR)]
    with pytest.raises(UsageError, match="There is no answer 99"):
        campaign.correct(99, SIMILAR)
    with pytest.raises(UsageError, match="A verdict is 1"):
        campaign.correct(number, 7)


def test_a_correction_to_nothing_withdraws_the_answer_and_asks_again(campaign: Campaign) -> None:
    ask(campaign, (0, 1))
    number = campaign.answer(0, 1, SIMILAR)
    assert campaign.next_pair() is None
    campaign.correct(number, UNKNOWN)
    assert (evidence(campaign), campaign.next_pair()) == ([], (0, 1))
    campaign.undo()
    assert evidence(campaign) == [(0, 1, SIMILAR)]


def test_an_unsure_pair_comes_back_before_all_others_once_it_is_to_be_asked_again(campaign: Campaign) -> None:
    ask(campaign, (0, 1), (2, 3), (4, 5), audit=((2, 3),))
    rows = [campaign.answer(*pair, UNSURE) for pair in ((0, 1), (2, 3))]
    finish(campaign, 0, {}, (6, 7))
    assert campaign.take("me", "h", 1) == [(6, 7)]
    assert campaign.again([*rows, 99]) == 2
    assert campaign.take("me", "other", 2) == [(0, 1), (2, 3)]
    campaign.answer(2, 3, SIMILAR)
    assert events(campaign)[-1] == (2, 3, SIMILAR, "me", AUDIT, 1)  # held back, as it was


def test_a_pair_asked_again_in_its_own_round_is_asked_once(campaign: Campaign) -> None:
    place(campaign)
    ask(campaign, (0, 1), (2, 3))
    assert campaign.again([campaign.answer(0, 1, UNSURE, who) for who in ("ann", "bob")]) == 1
    assert campaign.take("me", "h", 2) == [(0, 1), (2, 3)]
    assert progress.standing(campaign).queued == 2


# -- several people, several screens ---------------------------------------------------------------


def test_what_a_screen_has_taken_stays_and_keeps_its_order(campaign: Campaign) -> None:
    asked = [(8, 9), (0, 1), (6, 7), (2, 3), (4, 5)]
    ask(campaign, *asked)
    assert campaign.take("me", "h", 3) == asked[:3]
    ask(campaign, *reversed(asked))
    assert campaign.take("me", "h", 5) == [*asked[:3], (4, 5), (2, 3)]
    campaign.answer(0, 1, SIMILAR)
    assert campaign.take("me", "h", 4) == [(8, 9), (6, 7), (4, 5), (2, 3)]
    assert campaign.take("me", "h", 1) == [(8, 9)]


def test_what_has_become_implied_is_taken_from_the_screen(campaign: Campaign) -> None:
    ask(campaign, (0, 1), (1, 2), (0, 2), (3, 4))
    assert campaign.take("me", "h", 4) == [(0, 1), (1, 2), (0, 2), (3, 4)]
    campaign.answer(0, 1, SIMILAR)
    campaign.answer(1, 2, DISSIMILAR, "somebody else")
    assert campaign.take("me", "h", 1) == [(3, 4)]
    campaign.undo("somebody else")
    place(campaign)
    assert set(campaign.take("me", "h", 3)) == {(3, 4), (1, 2), (0, 2)}


def test_leases_run_out_after_five_minutes(campaign: Campaign) -> None:
    ask(campaign, (0, 1), (2, 3))
    assert campaign.take("me", "one", 1) == [(0, 1)]
    later(campaign, 290)
    assert campaign.take("you", "two", 1) == [(2, 3)]
    later(campaign, 20)
    assert campaign.take("you", "three", 1) == [(0, 1)]


@pytest.mark.parametrize("overlap", [0.0, 0.5])
def test_no_two_screens_ever_show_the_same_pair(
    campaign: Campaign, rng: np.random.Generator, overlap: float
) -> None:
    place(campaign)
    campaign.store.set(overlap=overlap)
    ask(campaign, *list(combinations(range(9), 2)))
    screens = {"one": "ann", "two": "ann", "three": "bob", "four": "carl"}
    shown: dict[str, list[Pair]] = {screen: [] for screen in screens}
    for _ in range(60):
        screen = str(rng.choice(list(screens)))
        act = rng.choice(["take", "answer", "undo"], p=[0.5, 0.4, 0.1])
        if act == "take":
            shown[screen] = campaign.take(screens[screen], screen, int(rng.integers(1, 5)))
        elif act == "answer" and shown[screen]:
            pair = shown[screen].pop(0)
            campaign.answer(*pair, SIMILAR if pair[0] % 3 == pair[1] % 3 else DISSIMILAR, screens[screen])
        elif act == "undo":
            campaign.undo(screens[screen])
        every = [pair for pairs in shown.values() for pair in pairs]
        assert len(every) == len(set(every)), shown


def test_screens_that_take_at_the_same_moment_take_different_pairs(campaign: Campaign) -> None:
    """Each in a thread with the file open for itself, as two processes would."""
    ask(campaign, *list(combinations(range(20), 2)))
    for attempt in range(5):
        taken: dict[int, list[Pair]] = {}
        start = threading.Barrier(4)

        def take(number: int, attempt: int = attempt, start: Any = start, taken: Any = taken) -> None:
            with closing(Campaign.open(campaign.folder)) as own:
                start.wait()
                taken[number] = own.take(f"annotator {number}", f"{attempt} {number}", 6)

        threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        every = [pair for pairs in taken.values() for pair in pairs]
        assert len(every) == len(set(every)) == 24


def everybody_answers(campaign: Campaign, people: list[str], turns: int) -> dict[Pair, list[str]]:
    """All say the same, a pair at a time, until they are asked nothing that was in the queue; who said it."""
    queue = set(campaign.store.questions().pairs)
    said: dict[Pair, list[str]] = {pair: [] for pair in queue}
    for turn in range(turns):
        who = people[turn % len(people)]
        for pair in campaign.take(who, f"screen of {who}", 1):
            campaign.answer(*pair, UNSURE, who)  # implies nothing
            if pair in queue:
                said[pair].append(who)
    return said


def test_without_overlap_nobody_judges_what_another_did(campaign: Campaign) -> None:
    place(campaign)
    ask(campaign, *list(combinations(range(8), 2)))
    said = everybody_answers(campaign, ["ann", "bob", "carl"], 40)
    assert {len(people) for people in said.values()} == {1}


@pytest.mark.parametrize("overlap", [0.2, 0.5, 1.0])
def test_overlap_gives_its_share_of_the_pairs_to_exactly_two_people(
    campaign: Campaign, overlap: float
) -> None:
    place(campaign)
    campaign.store.set(overlap=overlap)
    ask(campaign, *list(combinations(range(14), 2)))  # 91
    said = everybody_answers(campaign, ["ann", "bob", "carl"], 260)
    assert {len(people) for people in said.values()} <= {1, 2}
    assert all(len(set(people)) == len(people) for people in said.values())
    twice = sum(len(people) == 2 for people in said.values()) / len(said)
    assert twice == pytest.approx(overlap, abs=0.12)


def test_somebody_who_corrects_herself_does_not_bring_in_a_third(campaign: Campaign) -> None:
    place(campaign)
    campaign.store.set(overlap=1.0)
    ask(campaign, (0, 1))
    campaign.answer(0, 1, UNSURE, "ann")
    assert (0, 1) in campaign.take("bob", "two", 1)
    campaign.answer(0, 1, SIMILAR, "ann")
    assert (0, 1) not in campaign.take("carl", "three", 6)


def test_a_queue_that_has_run_dry_is_filled_with_pairs_nobody_knows(campaign: Campaign) -> None:
    place(campaign)
    ask(campaign, (0, 1), (2, 3))
    campaign.answer_all(of((0, 1), (2, 3)), [SIMILAR, DISSIMILAR])
    seen: list[Pair] = []
    for _ in range(30):
        (pair,) = campaign.take("me", "h", 1)
        assert campaign.closure().relations.of(of(pair)).tolist() == [UNKNOWN]
        seen.append(pair)
        campaign.answer(*pair, UNSURE)
    assert len(set(seen)) == 30
    assert {strategy for *_, strategy, _ in events(campaign)[2:]} == {"cold"}
    assert {number for *_, number in events(campaign)} == {0}


def test_when_every_pair_is_known_there_is_nothing_left_to_take(
    tmp_path: Path, archive: Archive, closed: Closed
) -> None:
    small = closed(Campaign.create(tmp_path / "small", archive, PLAN, np.array([3, 5, 8])))
    place(small)
    said: list[Pair] = []
    while taken := small.take("me", "h", 6):
        said += taken[:1]
        small.answer(*taken[0], UNSURE)
    assert sorted(said) == [(3, 5), (3, 8), (5, 8)]


# -- steering --------------------------------------------------------------------------------------

LINE = np.stack(
    [np.cos(np.linspace(0, 3, 120)), np.sin(np.linspace(0, 3, 120))], axis=1
)  # 0 is farthest from 119
NEAR, FAR, DRAWN = [(50, 51), (60, 62), (70, 73)], [(0, 80), (1, 95), (2, 110)], [(10, 119), (20, 21)]
MIXED = [NEAR[0], DRAWN[0], FAR[0], NEAR[1], DRAWN[1], FAR[1], NEAR[2], FAR[2]]


@pytest.mark.parametrize(
    ("similar", "expected"),
    [
        (5, MIXED),  # of ten: as it should be
        (8, [FAR[0], DRAWN[0], FAR[1], FAR[2], DRAWN[1], NEAR[0], NEAR[1], NEAR[2]]),
        (2, [NEAR[0], DRAWN[0], NEAR[1], NEAR[2], DRAWN[1], FAR[0], FAR[1], FAR[2]]),
    ],
)
def test_less_similar_pairs_come_first_while_too_many_are_similar_and_the_other_way_round(
    campaign: Campaign, similar: int, expected: list[Pair]
) -> None:
    place(campaign, LINE)
    for i in range(10):
        campaign.answer(100 + i, 110 + i, SIMILAR if i < similar else DISSIMILAR)
    assert campaign.share() == similar / 10
    ask(campaign, *MIXED, audit=tuple(DRAWN))
    assert campaign.take("me", "h", 8) == expected  # what was drawn by lot keeps its place


def test_a_share_is_that_of_the_last_fifty_chosen_questions(campaign: Campaign) -> None:
    ask(campaign, *((i, 100) for i in range(100)), audit=tuple((i, 100) for i in range(90, 100)))
    for i in range(90):
        assert campaign.share() == (
            None if i < 10 else pytest.approx(sum(j >= 40 for j in range(max(i - 50, 0), i)) / min(i, 50))
        )
        campaign.answer(i, 100, SIMILAR if i >= 40 else DISSIMILAR)
    for i in range(90, 100):
        campaign.answer(i, 100, DISSIMILAR)  # held back
    campaign.answer(0, 1, UNSURE)
    assert campaign.share() == 1.0


@pytest.mark.parametrize(
    ("share", "aim"),
    [(0.5, (0.3, 0.7)), (0.4, (0.2, 0.6)), (0.1, (0.05, 0.3)), (0.9, (0.7, 0.95)), (0.0, None)],
)
def test_the_aim_is_around_the_plans_share(
    campaign: Campaign, tmp_path: Path, closed: Closed, share: float, aim: tuple[float, float] | None
) -> None:
    assert closed(planned(campaign, tmp_path / "other", share=share)).aim == aim


def answered_at_levels(campaign: Campaign, middle: float, n: int = 60) -> None:
    """The first round: questions at all levels, similar above ``middle``."""
    levels = np.exp(np.random.default_rng(0).uniform(np.log(1e-3), 0, n))
    pairs = of(*list(combinations(range(12), 2))[:n])
    campaign.store.queue(Questions.of(pairs, 0, "cold", levels.tolist()))
    noisy = levels * np.exp(np.random.default_rng(1).normal(size=n) / 2) < middle
    campaign.answer_all(pairs, np.where(noisy, SIMILAR, DISSIMILAR).tolist())


def test_the_first_lean_is_from_the_threshold_to_where_enough_are_dissimilar(campaign: Campaign) -> None:
    answered_at_levels(campaign, 0.1)
    reached = [level * math.exp(campaign.lean(level)) for level in (1e-4, 1e-3, 1e-2)]
    assert reached == pytest.approx([reached[0]] * 3)  # wherever the threshold lies
    assert 0.03 < reached[0] < 0.1
    assert campaign.lean(0.1) == 0.0  # in the middle it is well
    assert campaign.lean(math.nan) == 0.0


@pytest.mark.parametrize("level", [0.001, 0.05, 0.3, 0.9])
def test_a_lean_is_never_negative(campaign: Campaign, level: float) -> None:
    answered_at_levels(campaign, 0.1)
    assert campaign.lean(level) >= 0
    for before in (0.0, 0.5, 3.0):
        finish(campaign, 0, {"lean": before})
        assert campaign.lean(level) >= 0
        with closing(Campaign.open(campaign.folder)) as other:
            other.answer_all(of(*((i, 90) for i in range(20, 40))), [DISSIMILAR] * 20)
            assert other.lean(level) >= 0


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.7, 0.8, 0.9])
def test_a_lean_is_a_number_whatever_the_plan_aims_at(
    campaign: Campaign, tmp_path: Path, closed: Closed, share: float
) -> None:
    other = closed(planned(campaign, tmp_path / "other", share=share))
    answered_at_levels(other, 0.1)
    assert math.isfinite(other.lean(0.05))


def test_a_lean_follows_the_share_where_two_rounds_missed_it_to_the_same_side(campaign: Campaign) -> None:
    rounds = [of(*((i, 100 + number) for i in range(20))) for number in (0, 1)]

    def lean(similar: tuple[int, int], before: float) -> float:
        finish(campaign, 0, {"lean": before}, *rounds[1])
        for number, (pairs, n) in enumerate(zip(rounds, similar, strict=True)):
            said = zip(pairs, [SIMILAR] * n + [DISSIMILAR] * (20 - n), strict=True)
            campaign.store.add(Event(a, b, v, "me", "mgue", number) for (a, b), v in said)
        return campaign.lean(0.01)

    assert lean((10, 10), 0.0) == 0.0
    assert lean((10, 10), 1.0) == 0.5  # it fades where the share is as it should be
    assert 0 < lean((17, 17), 0.0) < lean((20, 20), 0.0) <= 0.5
    assert lean((20, 17), 0.0) == lean((17, 20), 0.0) == lean((17, 17), 0.0)  # by the one that missed it less
    assert lean((1, 20), 1.0) == lean((10, 20), 1.0) == lean((20, 10), 1.0) == 0.5
    assert lean((1, 1), 1.0) < 0.5
    assert lean((0, 0), 0.2) == 0.0


def test_without_an_aim_or_with_few_answers_there_is_no_lean(
    campaign: Campaign, tmp_path: Path, closed: Closed
) -> None:
    other = closed(planned(campaign, tmp_path / "other", share=0.0))
    for each in (campaign, other):
        assert each.lean(0.01) == 0.0
    answered_at_levels(other, 0.1)
    assert other.lean(1e-4) == 0.0
    finish(other, 0, {"lean": 2.0})
    assert other.lean(1e-4) == 0.0
    answered_at_levels(campaign, 0.1, 9)
    assert campaign.lean(1e-4) == 0.0


# -- held back -------------------------------------------------------------------------------------


def test_what_is_held_back_is_neither_learnt_from_nor_asked_again(campaign: Campaign) -> None:
    place(campaign)
    ask(campaign, (0, 1), (1, 2), (0, 2), audit=((0, 1),))
    campaign.answer(0, 1, SIMILAR)
    campaign.answer(1, 2, SIMILAR)
    assert evidence(campaign) == [(1, 2, SIMILAR)]
    assert campaign.take("me", "h", 1) == [(0, 2)]  # it does not follow
    standing = progress.standing(campaign)
    assert (standing.held_back, standing.implied, standing.answers) == (1, 0, 2)
    assert (progress.due(campaign)[0], campaign.store.fresh(0)) == (1, 1)
    ask(campaign, (0, 1), round=1)
    assert (0, 1) not in campaign.take("me", "h", 6)
    campaign.undo()
    campaign.undo()
    assert evidence(campaign) == []


def test_what_is_held_back_contradicts_nothing(campaign: Campaign) -> None:
    ask(campaign, (0, 2), (0, 1), (1, 2), audit=((0, 2),))
    for pair, verdict in (((0, 2), DISSIMILAR), ((0, 1), SIMILAR), ((1, 2), SIMILAR)):
        campaign.answer(*pair, verdict)
    assert campaign.contradictions() == []
    assert campaign.closure().relations.of(of((0, 2))).tolist() == [SIMILAR]


def test_a_contradiction_names_the_rows_behind_it(campaign: Campaign) -> None:
    ask(campaign, (8, 9), (0, 1), audit=((8, 9),))
    campaign.answer(8, 9, SIMILAR)  # held back: its row must not shift the others
    campaign.answer(5, 6, SIMILAR)
    rows = [
        campaign.answer(0, 1, SIMILAR, "ann"),
        campaign.answer(1, 2, SIMILAR, "bob"),
        campaign.answer(0, 2, DISSIMILAR, "carl"),
    ]
    campaign.answer(0, 3, SIMILAR)
    (found,) = campaign.contradictions()
    assert [(row.id, row.annotator) for row in found] == list(zip(rows, ("ann", "bob", "carl"), strict=True))
    campaign.correct(rows[2], SIMILAR)
    assert campaign.contradictions() == []


def test_a_contradiction_with_labels_shows_the_answers_in_it(campaign: Campaign) -> None:
    campaign.label([(0, "x"), (1, "x")])
    number = campaign.answer(0, 1, DISSIMILAR)
    assert [[row.id for row in rows] for rows in campaign.contradictions()] == [[number]]


def test_the_closure_is_made_anew_when_anything_is_said_by_anybody(
    campaign: Campaign, closed: Closed
) -> None:
    other = closed(Campaign.open(campaign.folder))
    before = campaign.closure()
    assert campaign.closure() is before
    other.answer(0, 1, SIMILAR)
    assert campaign.closure().relations.of(of((0, 1))).tolist() == [SIMILAR]
    other.undo()
    assert campaign.closure().relations.of(of((0, 1))).tolist() == [UNKNOWN]
    other.label([(4, "x"), (5, "x")])
    assert campaign.closure().relations.of(of((4, 5))).tolist() == [SIMILAR]


# -- how good, how much, how alike -----------------------------------------------------------------


def test_cost_is_answers_bits_and_minutes_without_the_pauses(campaign: Campaign) -> None:
    assert progress.cost(campaign) == {"answers": 0, "bits": 0.0, "minutes": 0.0}
    campaign.answer(0, 1, SIMILAR, looked=30_000)
    campaign.answer(2, 3, SIMILAR, looked=3_600_000)  # counts as a minute
    campaign.answer(4, 5, UNSURE)
    campaign.label((i, "wxyz"[i % 4]) for i in range(10))
    assert progress.cost(campaign) == {"answers": 3, "bits": 3 + 10 * 2, "minutes": 1.5}


def test_a_turn_is_due_when_a_third_of_a_round_is_new(campaign: Campaign) -> None:
    assert progress.due(campaign) == (0, 34)
    campaign.answer_all(of((0, 1), (2, 3), (4, 5)), [SIMILAR] * 3)
    assert progress.due(campaign) == (3, 34)
    finish(campaign, 0, {"row": 2})
    assert progress.due(campaign) == (1, 34)  # one came in while the machine learnt


def test_people_are_listed_with_how_much_and_how_fast(campaign: Campaign) -> None:
    for i in range(30):
        campaign.answer(i, 99, UNSURE if i % 3 == 0 else SIMILAR, "bob", looked=60_000 if i < 10 else 3_000)
    campaign.answer(0, 1, SIMILAR, "ann")
    assert progress.people(campaign) == [
        {"annotator": "ann", "answers": 1, "unsure": 0, "per_minute": None},
        {"annotator": "bob", "answers": 30, "unsure": 10, "per_minute": 20.0},
    ]


def test_agreement_is_cohens_on_the_pairs_two_people_share(
    campaign: Campaign, rng: np.random.Generator
) -> None:
    assert progress.agreement(campaign) == []
    pairs = of(*((i, 100) for i in range(40)))
    said = {who: rng.choice([1, 2, 3], 40, p=[0.6, 0.3, 0.1]) for who in ("ann", "bob")}
    for who, first, last in (("ann", 0, 30), ("bob", 10, 40)):
        campaign.answer_all(pairs[first:last], said[who][first:last].tolist(), who)
    campaign.answer(0, 1, SIMILAR, "carl")
    (found,) = progress.agreement(campaign)
    both = said["ann"][10:30], said["bob"][10:30]
    assert found == {
        "one": "ann",
        "other": "bob",
        "pairs": 20,
        "agreement": pytest.approx((both[0] == both[1]).mean()),
        "kappa": pytest.approx(cohen_kappa_score(*both)),
    }


def test_shares_are_those_of_each_rounds_chosen_questions(campaign: Campaign) -> None:
    ask(campaign, (0, 1), (2, 3), (4, 5), (6, 7), audit=((6, 7),))
    for pair, verdict in (((0, 1), SIMILAR), ((2, 3), DISSIMILAR), ((4, 5), UNSURE), ((6, 7), SIMILAR)):
        campaign.answer(*pair, verdict)
    finish(campaign, 0, {}, (8, 9))
    campaign.answer(8, 9, SIMILAR)
    assert progress.shares(campaign) == [
        {"round": 0, "answers": 2, "similar": 0.5},
        {"round": 1, "answers": 1, "similar": 1.0},
    ]


def audited(campaign: Campaign, *drawn: Pair, model: int = FROZEN) -> None:
    """These were drawn by lot, each of them the other's nearest, and are asked."""
    draws = [(model, number, a, b) for number, (a, b) in enumerate(drawn)]
    campaign.store.add_audit(Audit(draws, [(model, a, b, 0, 0, 0.9) for a, b in drawn]))
    top = np.array([[query, *range(query + 1, query + 6)] for query in range(0, 60, 6)])
    place(campaign, model=model)
    np.save(campaign.round_folder(model) / "top.npy", top)
    ask(campaign, *drawn, round=model + 1, audit=drawn)


def p5(campaign: Campaign) -> Estimate:
    (model,) = judging.models(campaign)
    assert (model.round, model.answers, model.precision) == (FROZEN, 0, None)
    return model.p5


def test_a_model_is_as_good_as_the_held_back_answers_say(campaign: Campaign) -> None:
    drawn = [(i, i + 60) for i in range(20)]
    audited(campaign, *drawn)
    assert p5(campaign) == Estimate(0.5, 0.0, 1.0)
    for n, pair in enumerate(drawn):
        campaign.answer(*pair, SIMILAR if n % 4 else DISSIMILAR)
    assert p5(campaign).value == pytest.approx(0.75)
    assert 0.5 < p5(campaign).low < 0.6 < 0.85 < p5(campaign).high < 0.92
    campaign.answer(0, 1, SIMILAR)  # 1 is among the results of 0: 1 of 50 is known
    assert p5(campaign).value == pytest.approx(0.02 + 0.98 * 0.75)


def test_an_answer_after_one_that_is_missing_does_not_count(campaign: Campaign) -> None:
    audited(campaign, (0, 60), (1, 61), (2, 62))
    campaign.answer(0, 60, SIMILAR)
    campaign.answer(2, 62, DISSIMILAR)
    assert p5(campaign).value == 1.0
    campaign.answer(1, 61, UNSURE)  # it is answered, and tells nothing
    assert p5(campaign).value == 0.5


def test_a_drawn_pair_that_others_answers_settle_ends_nothing(campaign: Campaign) -> None:
    audited(campaign, (0, 60), (1, 61), (2, 62))
    campaign.answer_all(of((1, 90), (61, 90)), [SIMILAR, SIMILAR])
    assert campaign.take("me", "h", 2) == [(0, 60), (2, 62)]
    campaign.answer(0, 60, SIMILAR)
    campaign.answer(2, 62, DISSIMILAR)
    assert p5(campaign).value == 0.5


def test_a_drawn_pair_that_was_called_unsure_before_ends_nothing(campaign: Campaign) -> None:
    ask(campaign, (1, 61))
    campaign.answer(1, 61, UNSURE)
    finish(campaign, 0)
    audited(campaign, (0, 60), (1, 61), (2, 62), model=0)
    ask(campaign, (0, 60), (2, 62), round=1, audit=((0, 60), (2, 62)))
    campaign.answer(0, 60, SIMILAR)
    campaign.answer(2, 62, DISSIMILAR)
    (model,) = judging.models(campaign)
    assert model.p5.value == 0.5


def test_models_are_listed_with_what_each_had_cost_and_its_precision(campaign: Campaign) -> None:
    cost = {"answers": 40, "bits": 41.5, "minutes": 3.25}
    audited(campaign, (0, 60), (1, 61))
    finish(campaign, 0, {**cost, "limit": 0.5}, (0, 60), (1, 61))
    audited(campaign, (2, 62), model=0)
    for pair in ((0, 60), (1, 61), (2, 62)):
        campaign.store.add_audit(Audit([], [(model, *pair, 0, 0, 0.9) for model in (FROZEN, 0)]))
        campaign.answer(*pair, SIMILAR)
    finish(campaign, 1)  # whose folder is lost
    first, second = judging.models(campaign)
    assert (first.round, first.answers, first.bits, first.minutes) == (FROZEN, 0, 0.0, 0.0)
    assert (second.round, second.answers, second.bits, second.minutes) == (0, 40, 41.5, 3.25)
    assert (first.precision, second.precision) == (None, second.p5)
    assert first.p5 == second.p5
    assert second.p5.value == 1.0
    assert judging.advice(campaign, [first, second])[0] is False


# -- standing --------------------------------------------------------------------------------------


def test_a_new_campaign_stands_at_nothing(campaign: Campaign) -> None:
    zeros = dict.fromkeys(asdict(progress.standing(campaign)), 0)
    assert asdict(progress.standing(campaign)) == {**zeros, "images": 120, "share": None}


def test_standing_counts_answers_what_they_imply_and_what_is_left(campaign: Campaign) -> None:
    ask(campaign, (0, 2), (1, 3), (6, 7), (8, 9), (0, 4))
    for a, b, verdict in (
        (0, 1, SIMILAR),
        (1, 2, SIMILAR),
        (2, 3, DISSIMILAR),
        (4, 5, SIMILAR),
        (6, 7, UNSURE),
    ):
        campaign.answer(a, b, verdict)
    expected = progress.Standing(
        images=120,
        answers=5,
        similar=3,
        dissimilar=1,
        unsure=1,
        held_back=0,
        labels=0,
        implied=3,  # 0 and 2 are similar, 3 is dissimilar to 0 and 1
        contradictions=0,
        rounds=0,
        queued=2,  # 8, 9 and 0, 4
        share=None,  # too few to say
    )
    assert progress.standing(campaign) == expected
    campaign.answer(0, 2, DISSIMILAR)  # against 0, 1, 2; what is contradicted implies nothing
    contradicted = replace(expected, answers=6, dissimilar=2, implied=0, contradictions=1, queued=3)
    assert progress.standing(campaign) == contradicted
    campaign.undo()
    assert progress.standing(campaign) == expected
    finish(campaign, 0, {}, (0, 3), (8, 9))
    assert progress.standing(campaign) == replace(expected, rounds=1, queued=1)


def test_what_two_annotators_agree_on_is_known_once(campaign: Campaign) -> None:
    for who in ("ann", "bob"):
        campaign.answer(0, 1, SIMILAR, who)
    campaign.answer(1, 2, SIMILAR, "ann")
    standing = progress.standing(campaign)
    assert (standing.answers, standing.similar, standing.contradictions) == (3, 3, 0)
    assert standing.implied == 1  # 0, 2


def test_a_disagreement_hides_nothing_implied_elsewhere(campaign: Campaign) -> None:
    campaign.answer(0, 1, SIMILAR, "ann")
    campaign.answer(0, 1, DISSIMILAR, "bob")
    campaign.answer(5, 6, SIMILAR)
    campaign.answer(6, 7, SIMILAR)
    standing = progress.standing(campaign)
    assert (standing.similar, standing.dissimilar, standing.contradictions) == (3, 1, 1)
    assert standing.implied == 1  # 5, 7


def test_pairs_that_labels_stand_for_are_implied(campaign: Campaign) -> None:
    labels = [(0, "x"), (1, "x"), (2, "x"), (3, "y"), (4, "y")]
    campaign.store.add_labels(labels, annotator="me", strategy="cal", round=0)
    standing = progress.standing(campaign)
    assert (standing.labels, standing.answers, standing.implied) == (5, 0, 10)
    ask(campaign, (0, 4), (1, 2), (4, 5))
    assert campaign.next_pair() == (4, 5)


# -- labels ----------------------------------------------------------------------------------------

SIZES = {"forest": 9, "river": 5, "beach": 3, "runway": 1}
LABELS = {
    3 * place + 2: name
    for place, name in enumerate(
        np.random.default_rng(3)
        .permutation([name for name, size in SIZES.items() for _ in range(size)])
        .tolist()
    )
}


def test_a_labelled_image_gets_four_partners_of_its_class_and_four_of_others() -> None:
    answers = label_pairs(LABELS, np.random.default_rng(0))
    rows = list(zip(answers.pairs, answers.verdicts.tolist(), strict=True))
    for image in sorted(LABELS):
        for verdict, there in (
            (SIMILAR, SIZES[LABELS[image]] - 1),
            (DISSIMILAR, len(LABELS) - SIZES[LABELS[image]]),
        ):
            own, rows = rows[: min(4, there)], rows[min(4, there) :]
            partners = {a + b - image for (a, b), _ in own if image in (a, b)}
            assert len(partners) == min(4, there)  # each has the image, and none comes twice
            assert {given for _, given in own} <= {verdict}
            assert {LABELS[i] == LABELS[image] for i in partners} <= {verdict == SIMILAR}
    assert rows == []


def test_partners_are_drawn_by_the_seed_alone() -> None:
    def pairs(seed: int, labels: dict[int, str] = LABELS) -> list[tuple[int, int]]:
        return list(label_pairs(labels, np.random.default_rng(seed)).pairs)

    assert pairs(1) == pairs(1, dict(reversed(LABELS.items())))
    assert pairs(1) != pairs(2)


@pytest.mark.parametrize("labels", [{}, {5: "alone"}])
def test_labels_without_a_partner_stand_for_no_pair(labels: dict[int, str]) -> None:
    assert len(label_pairs(labels, np.random.default_rng(0))) == 0


def test_evidence_is_the_answers_and_then_the_labels_up_to_a_round(campaign: Campaign) -> None:
    campaign.answer(7, 8, SIMILAR)
    campaign.store.add_labels([(0, "x"), (1, "x")], annotator="me", strategy="cal", round=1)
    ask(campaign, (0, 1), round=2)
    campaign.answer(5, 6, UNSURE)
    labelled = [(0, 1, SIMILAR)] * 2  # each the other's partner
    assert evidence(campaign, 0) == [(7, 8, SIMILAR)]
    assert evidence(campaign, 1) == [(7, 8, SIMILAR), *labelled]
    assert evidence(campaign) == evidence(campaign, 2) == [(7, 8, SIMILAR), (5, 6, UNSURE), *labelled]


def test_evidence_of_labels_is_drawn_by_the_plans_seed(
    campaign: Campaign, tmp_path: Path, closed: Closed
) -> None:
    others = [closed(planned(campaign, tmp_path / f"{seed}", seed=seed)) for seed in (0, 1)]
    for each in (campaign, *others):
        each.store.add_labels(LABELS.items(), annotator="me", strategy="cal", round=0)
    assert evidence(campaign) == evidence(campaign) == evidence(others[0])
    assert evidence(campaign) != evidence(others[1])


# -- making, opening, moving -----------------------------------------------------------------------


def test_a_campaign_is_found_again_as_it_was_made(tmp_path: Path, archive: Archive, closed: Closed) -> None:
    plan = Plan(px=32, depth="last", per_round=7, closure="single", lam=2.5, loss="ntxent", seed=9)
    made = closed(Campaign.create(tmp_path / "new" / "campaign", archive, plan, np.array([3, 5, 8])))
    ask(made, (3, 5))
    made.answer(3, 5, SIMILAR)
    opened = closed(Campaign.open(tmp_path / "new" / "campaign"))
    assert (opened.plan, opened.images.tolist(), opened.size) == (plan, [3, 5, 8], 120)
    assert evidence(opened) == [(3, 5, SIMILAR)]
    assert opened.archive().paths == archive.paths
    np.testing.assert_array_equal(opened.archive().pixels, archive.pixels)


def test_a_second_campaign_in_one_folder_is_refused_and_the_first_stays(
    campaign: Campaign, archive: Archive, closed: Closed
) -> None:
    campaign.answer(0, 1, SIMILAR)
    with pytest.raises(UsageError, match=r"campaign already holds a campaign: .*--campaign"):
        Campaign.create(campaign.folder, archive, Plan(px=32, seed=5), np.arange(3))
    opened = closed(Campaign.open(campaign.folder))
    assert (opened.plan, len(opened.images), evidence(opened)) == (PLAN, 120, [(0, 1, SIMILAR)])


def test_where_there_is_no_campaign_init_is_named(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="anneal init"):
        Campaign.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_campaign_whose_making_was_cut_short_can_be_made_again(
    tmp_path: Path, archive: Archive, closed: Closed
) -> None:
    Store(tmp_path / "campaign.sqlite", create=True).close()
    with pytest.raises(CampaignError, match="never finished being made: run init again"):
        Campaign.open(tmp_path)
    closed(Campaign.create(tmp_path, archive, PLAN, np.arange(3)))
    assert closed(Campaign.open(tmp_path)).plan == PLAN


def test_a_plan_written_by_a_later_version_is_read_as_far_as_it_is_known(
    campaign: Campaign, closed: Closed
) -> None:
    campaign.store.set(plan={**asdict(PLAN), "per_round": 5, "unheard_of": True})
    assert closed(Campaign.open(campaign.folder)).plan == replace(PLAN, per_round=5)


def own_archive(folder: Path) -> Campaign:
    """A campaign that keeps its pixels in its own folder, as init makes it."""
    archive = open_archive(folder / "images", 32, folder / "campaign" / "cache")
    return Campaign.create(folder / "campaign", archive, PLAN, np.arange(len(archive)))


def test_a_campaign_may_be_moved_and_its_images_deleted(tmp_path: Path, drawn: Path, closed: Closed) -> None:
    shutil.copytree(drawn / "river", tmp_path / "images" / "river")
    campaign = closed(own_archive(tmp_path))
    pixels, paths = campaign.archive().pixels.copy(), campaign.archive().paths
    campaign.answer(0, 1, SIMILAR)
    campaign.store.close()
    (tmp_path / "else").mkdir()
    shutil.move(tmp_path / "campaign", tmp_path / "else" / "where")
    (tmp_path / "images" / "river" / "river_003.jpg").unlink()
    moved = closed(Campaign.open(tmp_path / "else" / "where"))
    np.testing.assert_array_equal(moved.archive().pixels, pixels)
    assert moved.archive().paths == paths
    assert moved.archive().missing() == ["river/river_003.jpg"]
    assert evidence(moved) == [(0, 1, SIMILAR)]
    shutil.rmtree(tmp_path / "images")
    np.testing.assert_array_equal(moved.archive().pixels, pixels)
    assert moved.archive().missing() == list(paths)


def test_lost_pixels_are_an_archive_error(tmp_path: Path, drawn: Path, closed: Closed) -> None:
    shutil.copytree(drawn / "river", tmp_path / "images" / "river")
    campaign = closed(own_archive(tmp_path))
    shutil.rmtree(tmp_path / "campaign" / "cache")
    with pytest.raises(ArchiveError, match="are gone or incomplete"):
        campaign.archive()


def test_vectors_are_the_newest_rounds(campaign: Campaign) -> None:
    def keep(folder: Path, value: float) -> None:
        folder.mkdir(parents=True)
        np.save(folder / "vectors.npy", np.full((120, 2), value))

    with pytest.raises(CampaignError, match="has lost its vectors"):
        campaign.vectors()
    keep(campaign.folder / "rounds" / "frozen", 0.5)
    assert np.unique(campaign.vectors()).tolist() == [0.5]
    for number in range(2):
        keep(campaign.round_folder(number), number)
        finish(campaign, number)
        assert np.unique(campaign.vectors()).tolist() == [number]
    finish(campaign, 2)
    with pytest.raises(CampaignError, match=r"0002 has lost its vectors: run anneal round again"):
        campaign.vectors()


# -- the plan --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "changes"),
    [
        ("--closure", {"closure": "transitive"}),
        ("--depth", {"depth": "deep"}),
        ("--diversity", {"diversity": "k-means"}),
        ("--loss", {"loss": "triplet"}),
        ("--lambda", {"lam": float("nan")}),
        ("--lambda", {"lam": float("inf")}),
        ("--lambda", {"lam": -float("inf")}),
        ("--per-round", {"per_round": 0}),
        ("--per-round", {"per_round": -5}),
        ("--seed", {"seed": -1}),
        ("--views", {"views": 5}),
        ("--share", {"share": -0.1}),
        ("--share", {"share": 1.0}),
        ("--audit", {"audit": 0.95}),
        ("--audit", {"audit": float("nan")}),
    ],
)
def test_a_plan_that_cannot_be_followed_names_the_option(option: str, changes: dict[str, Any]) -> None:
    (value,) = changes.values()
    shown = repr(value) if isinstance(value, str) else str(value)
    with pytest.raises(UsageError) as refused:
        Plan(**changes)
    assert str(refused.value).startswith(f"{option} {shown}")
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("option", "choices"),
    [
        ("closure", ("none", "single", "full")),
        ("depth", ("head", "last", "full")),
        ("diversity", ("kmeans", "kmeans-sum", "kmeans-product", "none")),
        ("loss", ("mix", "contrastive", "ntxent")),
        ("space", ("search", "backbone", "head")),
        ("recipe", ("anneal", "paper")),
        ("restart", ("cold", "warm")),
    ],
)
def test_a_refused_name_comes_with_those_to_choose_from(option: str, choices: tuple[str, ...]) -> None:
    for choice in choices:
        assert asdict(Plan(**{option: choice}))[option] == choice  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"choose one of {', '.join(choices)}"):
        Plan(**{option: ""})  # type: ignore[arg-type]


def test_a_plans_randomness_depends_on_seed_and_purpose_alone() -> None:
    def draw(seed: int, *purpose: int) -> int:
        return int(Plan(seed=seed).rng(*purpose).integers(2**62))

    purposes = [(0,), (1, 0), (1, 1), (2, 0), (2, 1), (3,), (4, 0, 1), (5,), (6, 0)]  # those in use
    drawn = [draw(seed, *purpose) for seed in (0, 1) for purpose in purposes]
    assert len(set(drawn)) == len(drawn)
    assert [draw(seed, *purpose) for seed in (0, 1) for purpose in purposes] == drawn
    plan = Plan(seed=1, per_round=3, strategy="random")  # whatever else it says, and was drawn before
    plan.rng(2, 1).random(100)
    assert int(plan.rng(2, 1).integers(2**62)) == draw(1, 2, 1)


def test_the_persons_turn_never_loads_torch() -> None:
    script = "import sys, anneal.campaign; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "transformers", "sklearn", "matplotlib", "rasterio"} & set(loaded.split())


@pytest.mark.parametrize("seed", range(2))
def test_what_stands_is_the_same_read_bit_by_bit_and_at_once(campaign: Campaign, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = list(combinations(range(6), 2))
    for _ in range(60):
        a, b = pairs[rng.integers(len(pairs))]
        who, act = ("ann", "bob")[rng.integers(2)], rng.random()
        rows = campaign.store.standing()
        if act < 0.6 or not rows:
            campaign.answer(a, b, Verdict(int(rng.integers(1, 4))), who)
        elif act < 0.75:
            campaign.undo(who)
        elif act < 0.85:
            campaign.correct(rows[rng.integers(len(rows))].id, int(rng.integers(0, 4)), "bob")
        elif act < 0.95:
            campaign.again([rows[rng.integers(len(rows))].id])
        else:
            many = of(*combinations(range(6, 18), 2))  # too many to be read one by one
            campaign.answer_all(many, rng.integers(1, 4, len(many)).tolist(), who)
        assert campaign.said() == campaign.store.standing()
