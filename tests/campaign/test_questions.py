"""Which pair comes next, and for whom: the pure function, lists of pairs, several people, place, rounds."""

import math
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import combinations, count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import (
    SETTINGS,
    SHRUNK,
    answer_truly,
    campaign_in,
    end_round,
    pattern_archive,
    say,
    truth,
    verdict_of,
)

from anneal.archive.catalog import Archive
from anneal.campaign import progress, questions, turn
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import Askable, Question, arrange, next_question
from anneal.campaign.rounds import FROZEN
from anneal.campaign.store import Purpose
from anneal.method import placing
from anneal.method.snapshot import Agenda, Snapshot
from anneal.method.strategies import Strategy, batch, random
from anneal.network.train import Fit
from anneal.pairs import UNKNOWN, Pair, Pairs, Verdict
from anneal.settings import Settings, Stream

SIMILAR, DISSIMILAR, UNSURE = Verdict
CHOSEN, HELD_OUT, AGAIN = Purpose.CHOSEN, Purpose.HELD_OUT, Purpose.AGAIN
LIST = replace(SETTINGS, strategy="mgue", share=0.0, heldout=0.0)  # asks a list of pairs, unsteered
PLACE = replace(SETTINGS, strategy="place", per_round=60, heldout=0.1)
Make = Callable[..., Campaign]


# -- arrange ---------------------------------------------------------------------------------------


def asked_for(purpose: str, *pairs: Pair) -> list[Question]:
    return [Question(pair, purpose) for pair in pairs]


def first_of(pairs: list[Pair]) -> Callable[[int], list[Pair]]:
    """A strategy that wants these pairs, in this order."""
    return lambda n: pairs[:n]


def nothing(n: int) -> list[Pair]:
    return []


@st.composite
def situations(draw: st.DrawFn) -> tuple[Askable, list[Pair]]:
    """What waits, and what the strategy wants. Some held-out pairs are wanted too."""
    ids = iter(draw(st.permutations(range(1, 41))))

    def some(most: int) -> list[Pair]:
        return [(0, next(ids)) for _ in range(draw(st.integers(0, most)))]

    mine = asked_for(draw(st.sampled_from([CHOSEN, HELD_OUT])), *some(4))
    again = asked_for(AGAIN, *some(4))
    heldout = some(8)
    wanted = some(12) + draw(st.lists(st.sampled_from(heldout), unique=True) if heldout else st.just([]))
    answered = draw(st.lists(st.sampled_from([CHOSEN, HELD_OUT]), max_size=30))
    askable = Askable(
        mine + again[:1],  # one that is asked again is on the screen already
        asked_for(CHOSEN, *some(4)),
        again,
        asked_for(CHOSEN, *some(4)),
        heldout,
        [str(purpose) for purpose in answered],
    )
    return askable, draw(st.permutations(wanted))


shares = st.floats(0, 0.9)


@given(situations(), st.integers(0, 30), shares, shares)
def test_questions_are_arranged_by_the_rules(
    situation: tuple[Askable, list[Pair]], n: int, heldout: float, overlap: float
) -> None:
    askable, wanted = situation
    arranged = arrange(askable, first_of(wanted), n, heldout, overlap)
    pairs = [question.pair for question in arranged]
    assert len(pairs) == len(set(pairs))
    second = askable.second[: math.ceil(n * overlap)]
    first = dict.fromkeys(question.pair for question in (*askable.mine, *askable.again, *second))
    assert pairs[: len(first)] == list(first)[:n]
    every = {*first, *askable.heldout, *wanted}
    assert len(pairs) == min(n, len(every))  # fewer only if there are no more
    later = arranged[len(first) :]
    chosen = [question.pair for question in later if question.purpose == CHOSEN]
    assert chosen == wanted[: len(chosen)]
    random = [question.pair for question in later if question.purpose == HELD_OUT]
    assert random == [pair for pair in askable.heldout if pair in random]
    assert len(chosen) + len(random) == len(later)
    assert not set(random) & set(chosen)


@given(shares, st.integers(1, 150), st.integers(1, 6), st.integers(0, 6))
def test_the_share_of_held_out_questions_is_kept_within_one(
    share: float, steps: int, ahead: int, other_ahead: int
) -> None:
    """One or two people answer. Each has a fixed number of questions on the screen."""
    ids = count(1)
    heldout = [(0, next(ids)) for _ in range(steps + 12)]
    screens: list[list[Question]] = [[], []]
    answered: list[str] = []
    for step in range(steps):
        number = step % 2 if other_ahead else 0
        others = screens[1 - number]
        closed = {question.pair for question in others}
        left = [pair for pair in heldout if pair not in closed]
        askable = Askable(screens[number], others, [], [], left, answered)
        n = (ahead, other_ahead)[number]
        arranged = arrange(askable, lambda n: [(0, next(ids)) for _ in range(n)], n, share, 0.0)
        every = answered + [question.purpose for question in (*others, *arranged)]
        assert abs(every.count(HELD_OUT) - share * len(every)) <= 1
        answer, *screens[number] = arranged
        answered.append(answer.purpose)
        heldout = [pair for pair in heldout if pair != answer.pair]


def test_held_out_questions_are_mixed_in_evenly() -> None:
    heldout = [(90, 91), (92, 93), (94, 95)]
    wanted = [(0, i) for i in range(1, 30)]
    askable = Askable([], [], [], [], heldout, [])
    arranged = arrange(askable, first_of(wanted), 14, 0.25, 0.0)
    assert [i for i, question in enumerate(arranged) if question.purpose == HELD_OUT] == [2, 6, 10]
    behind = replace(askable, answered=[CHOSEN] * 40)  # none was asked so far
    assert arrange(behind, first_of(wanted), 2, 0.25, 0.0) == asked_for(HELD_OUT, *heldout[:2])
    assert arrange(askable, first_of(wanted), 3, 0.0, 0.0) == asked_for(CHOSEN, *wanted[:3])
    assert arrange(askable, nothing, 9, 0.1, 0.0) == asked_for(HELD_OUT, *heldout)  # nothing else is left
    assert arrange(Askable([], [], [], [], [], []), nothing, 9, 0.1, 0.0) == []


def test_a_pair_that_is_picked_and_held_out_counts_as_chosen_and_leaves_no_gap() -> None:
    both = (0, 1)
    askable = Askable([], [], [], [], [both], [CHOSEN] * 9)  # a held-out question is due
    arranged = arrange(askable, first_of([both, (0, 2), (0, 3)]), 3, 0.3, 0.0)
    assert arranged == asked_for(CHOSEN, both, (0, 2), (0, 3))


# -- a list of pairs -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return pattern_archive(tmp_path_factory.mktemp("patterns"))


@pytest.fixture
def make(archive: Archive, tmp_path: Path) -> Iterator[Make]:
    """Makes campaigns that ask a list of pairs; they are closed after the test."""
    numbers = count()
    with ExitStack() as stack:

        def made(*listed: Pair, settings: Settings = LIST, **options: Any) -> Campaign:
            folder = tmp_path / f"campaign{next(numbers)}"
            campaign = campaign_in(folder, archive, settings, listed=listed, **options)
            return stack.enter_context(closing(campaign))

        yield made


def take(
    campaign: Campaign, n: int, who: str = "me", screen: str = "", shown: tuple[Pair, ...] = ()
) -> list[Pair]:
    return [question.pair for question in questions.take(campaign, who, screen or who, n, shown)]


def is_unknown(campaign: Campaign, pair: Pair) -> bool:
    return bool(campaign.known().of(Pairs.from_list([pair]))[0] == UNKNOWN)


def test_questions_come_in_the_order_of_the_list(make: Make) -> None:
    listed = [(7, 8), (0, 1), (30, 99)]
    campaign = make(*listed)
    for pair in listed:
        assert take(campaign, 1) == [pair]
        assert take(campaign, 1) == [pair]  # to ask changes nothing
        campaign.answer(*pair, DISSIMILAR)
    end_round(campaign, (7, 9))
    assert take(campaign, 1) == [(7, 9)]


def test_what_the_answers_imply_is_not_asked(make: Make) -> None:
    campaign = make((0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (3, 4), (1, 4))
    for pair, verdict in (((0, 1), SIMILAR), ((1, 2), SIMILAR), ((2, 3), DISSIMILAR), ((3, 4), DISSIMILAR)):
        assert take(campaign, 1) == [pair]
        campaign.answer(*pair, verdict)
    assert take(campaign, 1) == [(1, 4)]  # dissimilar + dissimilar implies nothing


@pytest.mark.parametrize(("closure", "first"), [("none", (0, 2)), ("single", (0, 3)), ("full", (8, 9))])
def test_the_closure_says_what_is_implied(make: Make, closure: str, first: Pair) -> None:
    campaign = make((0, 1), (0, 2), (0, 3), (8, 9), settings=replace(LIST, closure=closure))
    say(campaign, [(0, 1), (1, 2), (2, 3)], [SIMILAR] * 3)
    assert take(campaign, 1) == [first]


def test_an_unsure_pair_is_not_asked_again_and_implies_nothing(make: Make) -> None:
    campaign = make((0, 1), (1, 2), (0, 2), (5, 6))
    campaign.answer(0, 1, UNSURE)
    campaign.answer(1, 2, SIMILAR)
    assert take(campaign, 1) == [(0, 2)]
    campaign.answer(0, 2, UNSURE)
    assert take(campaign, 1) == [(5, 6)]


def test_a_pair_on_which_two_people_disagree_is_not_asked_again(make: Make) -> None:
    campaign = make((0, 1), (2, 3))
    campaign.answer(0, 1, SIMILAR, "ann")
    campaign.answer(0, 1, DISSIMILAR, "bob")
    assert take(campaign, 1) == [(2, 3)]


def naively_known(n: int, answers: dict[Pair, int]) -> dict[Pair, int]:
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
    make: Make, rng: np.random.Generator
) -> None:
    classes = [0, 1, 2, 0, 1, 0, 0, 2, 1]
    listed = [(a, b) for a, b in rng.permutation(list(combinations(range(9), 2))).tolist()]
    campaign = make(*listed, images=np.arange(9))
    answered: dict[Pair, int] = {}
    while pairs := take(campaign, 1):
        known = naively_known(9, answered)
        assert pairs[0] == next(pair for pair in listed if pair not in known)
        a, b = pairs[0]
        answered[a, b] = SIMILAR if classes[a] == classes[b] else DISSIMILAR
        campaign.answer(a, b, answered[a, b])
    expected = [SIMILAR if classes[a] == classes[b] else DISSIMILAR for a, b in listed]
    assert campaign.known().of(Pairs.from_list(listed)).tolist() == expected
    assert len(answered) < len(listed)


def test_when_the_list_is_used_up_pairs_are_asked_that_nobody_knows(make: Make) -> None:
    campaign = make((0, 1), (2, 3))
    asked: list[Pair] = []
    for _ in range(30):
        (pair,) = take(campaign, 1)
        assert is_unknown(campaign, pair)
        asked.append(pair)
        campaign.answer(*pair, UNSURE)
    assert asked[:2] == [(0, 1), (2, 3)]
    assert len(set(asked)) == 30


def test_when_every_pair_is_answered_nothing_is_asked(make: Make) -> None:
    campaign = make((3, 5), images=np.array([3, 5, 8]))
    asked: list[Pair] = []
    while pairs := take(campaign, 6):
        asked += pairs[:1]
        campaign.answer(*pairs[0], UNSURE)
    assert sorted(asked) == [(3, 5), (3, 8), (5, 8)]
    assert next_question(campaign) is None


NEAR, FAR, RANDOM = [(50, 51), (60, 62), (70, 73)], [(0, 80), (1, 95), (2, 110)], [(10, 119), (20, 21)]


@pytest.mark.parametrize(
    ("similar", "expected"),
    [
        (5, [NEAR[0], FAR[0], RANDOM[0], NEAR[1], FAR[1], RANDOM[1], NEAR[2], FAR[2]]),  # as it should be
        (8, [FAR[0], FAR[1], RANDOM[0], FAR[2], NEAR[0], RANDOM[1], NEAR[1], NEAR[2]]),  # too many similar
        (2, [NEAR[0], NEAR[1], RANDOM[0], NEAR[2], FAR[0], RANDOM[1], FAR[1], FAR[2]]),
    ],
)
def test_a_list_is_steered_and_held_out_questions_are_not(
    make: Make, similar: int, expected: list[Pair]
) -> None:
    angle = np.linspace(0, 3, 120)
    listed = [NEAR[0], FAR[0], NEAR[1], FAR[1], NEAR[2], FAR[2]]
    settings = replace(LIST, share=0.5, heldout=0.3)
    line = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    campaign = make(*listed, settings=settings, heldout=RANDOM, vectors=line)
    pairs = [(100 + i, 110 + i) for i in range(10)]
    say(campaign, pairs, [SIMILAR] * similar + [DISSIMILAR] * (10 - similar))
    end_round(campaign, *listed)
    assert take(campaign, 8) == expected


# -- held out, again -------------------------------------------------------------------------------


def test_a_held_out_answer_is_not_learnt_from_and_its_pair_is_not_asked_again(make: Make) -> None:
    campaign = make((1, 2), (0, 2), settings=replace(LIST, heldout=0.5), heldout=[(0, 1)])
    assert take(campaign, 2) == [(1, 2), (0, 1)]
    campaign.answer(0, 1, SIMILAR)
    campaign.answer(1, 2, SIMILAR)
    assert list(campaign.evidence().answers.pairs) == [(1, 2)]
    assert take(campaign, 1) == [(0, 2)]  # it does not follow
    assert (0, 1) not in take(campaign, 12)
    assert progress.standing(campaign).heldout == 1


def test_a_held_out_answer_that_the_strategy_wants_is_released_and_nobody_is_asked(make: Make) -> None:
    campaign = make((4, 5), (2, 3), (6, 7), settings=replace(LIST, heldout=0.1), heldout=[(2, 3), (8, 9)])
    say(campaign, [(2, 3), (8, 9)], [DISSIMILAR, SIMILAR], HELD_OUT, "ann")
    assert take(campaign, 1) == [(4, 5)]
    assert len(campaign.evidence().answers) == 0  # not wanted yet
    campaign.answer(4, 5, SIMILAR)
    assert take(campaign, 1) == [(6, 7)]
    assert list(campaign.evidence().answers.pairs) == [(4, 5), (2, 3)]
    row = campaign.log().standing()[-1]
    assert (row.pair, row.verdict, row.annotator, row.purpose) == ((2, 3), DISSIMILAR, "ann", "released")
    assert (row.entered, row.strategy, row.round) == ("machine", "mgue", 0)
    assert campaign.log().given == 3  # the release is no answer
    assert progress.standing(campaign).heldout == 1  # (8, 9) measures


def test_a_strategy_that_wants_a_known_pair_does_not_stop_the_campaign(
    archive: Archive, tmp_path: Path
) -> None:
    always = Pairs.from_list([(2, 3)])
    stubborn = Strategy("stubborn", lambda *_: Agenda(), lambda *_: always)
    campaign_in(tmp_path / "c", archive, LIST, heldout=[(2, 3)]).close()
    with closing(Campaign.open(tmp_path / "c", stubborn)) as campaign:
        say(campaign, [(2, 3)], [SIMILAR], HELD_OUT)
        assert take(campaign, 1) == [(2, 3)]
        assert [row.purpose for row in campaign.log().standing()] == ["released"]


def test_what_a_released_answer_implies_is_not_asked(make: Make) -> None:
    settings = replace(LIST, heldout=0.5)
    campaign = make((0, 1), (0, 2), (5, 6), settings=settings, heldout=[(0, 1), (1, 3)])
    say(campaign, [(0, 1)], [SIMILAR], HELD_OUT)
    say(campaign, [(1, 2), (0, 3)], [SIMILAR] * 2)
    asked = take(campaign, 12)  # (0, 1) is released and implies (0, 2) and (1, 3)
    assert asked[0] == (5, 6)
    assert not {(0, 1), (0, 2), (1, 3)} & set(asked)


def test_a_pair_that_is_listed_and_held_out_is_asked_once_and_learnt_from(make: Make) -> None:
    campaign = make((0, 1), (2, 3), settings=replace(LIST, heldout=0.5), heldout=[(0, 1)])
    asked = questions.take(campaign, "me", "h", 4)
    assert asked[:2] == asked_for(CHOSEN, (0, 1), (2, 3))
    assert len({question.pair for question in asked}) == 4
    campaign.answer(0, 1, SIMILAR)
    assert list(campaign.evidence().answers.pairs) == [(0, 1)]


def test_a_pair_that_is_asked_again_comes_first_with_its_purpose(make: Make) -> None:
    campaign = make((0, 1), (4, 5), settings=replace(LIST, heldout=0.5), heldout=[(2, 3)])
    rows = say(campaign, [(0, 1)], [UNSURE]) + say(campaign, [(2, 3)], [UNSURE], HELD_OUT)
    end_round(campaign, (6, 7))
    assert take(campaign, 1) == [(6, 7)]
    assert campaign.again([*rows, 99]) == 2
    asked = questions.take(campaign, "me", "other", 2)
    assert asked == asked_for(AGAIN, (0, 1)) + asked_for(HELD_OUT, (2, 3))
    campaign.answer(2, 3, SIMILAR)
    assert [(row.pair, row.purpose) for row in campaign.log().standing()] == [((2, 3), HELD_OUT)]


def test_a_pair_that_waits_to_be_asked_again_is_asked_once(make: Make) -> None:
    campaign = make((0, 1), (2, 3), (4, 5))
    assert campaign.again([campaign.answer(0, 1, UNSURE, who) for who in ("ann", "bob")]) == 1
    assert take(campaign, 3) == [(0, 1), (2, 3), (4, 5)]  # though the list has it too


def test_a_pair_that_is_shown_after_an_undo_comes_first(make: Make) -> None:
    campaign = make((0, 1), (2, 3), (4, 5), settings=replace(LIST, heldout=0.5), heldout=[(6, 7)])
    assert take(campaign, 2) == [(0, 1), (6, 7)]
    campaign.answer(0, 1, SIMILAR)
    campaign.answer(6, 7, SIMILAR)
    assert take(campaign, 2)[0] == (2, 3)
    assert campaign.undo() == (6, 7)
    assert take(campaign, 3, shown=((6, 7),))[:2] == [(6, 7), (2, 3)]
    assert questions.take(campaign, "me", "me", 1) == asked_for(HELD_OUT, (6, 7))  # still held out
    campaign.answer(6, 7, DISSIMILAR)
    assert len(campaign.evidence().answers) == 1
    assert (6, 7) not in take(campaign, 9, shown=((6, 7),))  # it is answered


def test_without_vectors_only_held_out_questions_are_asked(make: Make) -> None:
    campaign = make((4, 5), settings=replace(LIST, heldout=0.1), heldout=[(0, 1), (2, 3)])
    (campaign.rounds.files(FROZEN).folder / "vectors.npy").unlink()
    assert take(campaign, 20) == [(0, 1), (2, 3)]


# -- several people, several screens ---------------------------------------------------------------


def wait(campaign: Campaign, seconds: float) -> None:
    """All leases were given this long ago."""
    with closing(sqlite3.connect(campaign.store.path)) as db, db:
        db.execute("UPDATE leases SET until = until - ?", (seconds,))


def test_a_screen_keeps_its_questions_in_their_order(make: Make) -> None:
    listed = [(8, 9), (0, 1), (6, 7), (2, 3), (4, 5)]
    campaign = make(*listed)
    assert take(campaign, 3) == listed[:3]
    end_round(campaign, *reversed(listed))
    assert take(campaign, 5) == [*listed[:3], (4, 5), (2, 3)]
    campaign.answer(0, 1, SIMILAR)
    assert take(campaign, 4) == [(8, 9), (6, 7), (4, 5), (2, 3)]
    assert take(campaign, 1) == [(8, 9)]


def test_a_pair_that_became_implied_leaves_the_screen(make: Make) -> None:
    campaign = make((0, 1), (1, 2), (0, 2), (3, 4))
    assert take(campaign, 4) == [(0, 1), (1, 2), (0, 2), (3, 4)]
    campaign.answer(0, 1, SIMILAR)
    campaign.answer(1, 2, DISSIMILAR, "somebody else")
    assert take(campaign, 1) == [(3, 4)]
    campaign.undo("somebody else")
    assert take(campaign, 3) == [(3, 4), (1, 2), (0, 2)]


def test_a_lease_keeps_a_pair_from_others_for_five_minutes(make: Make) -> None:
    campaign = make((0, 1), (2, 3))
    assert take(campaign, 1, "me", "one") == [(0, 1)]
    wait(campaign, 290)
    assert take(campaign, 1, "you", "two") == [(2, 3)]
    wait(campaign, 20)
    assert take(campaign, 1, "you", "three") == [(0, 1)]


@pytest.mark.parametrize("overlap", [0.0, 0.5])
def test_no_two_screens_ever_show_the_same_pair(make: Make, rng: np.random.Generator, overlap: float) -> None:
    listed = list(combinations(range(9), 2))
    campaign = make(*listed, settings=replace(LIST, heldout=0.2), heldout=listed[::3])
    campaign.store.set(overlap=overlap)
    people = {"one": "ann", "two": "ann", "three": "bob", "four": "carl"}
    shown: dict[str, list[Pair]] = {screen: [] for screen in people}
    for _ in range(60):
        screen = str(rng.choice(list(people)))
        act = rng.choice(["take", "answer", "undo"], p=[0.5, 0.4, 0.1])
        if act == "take":
            shown[screen] = take(campaign, int(rng.integers(1, 5)), people[screen], screen)
        elif act == "answer" and shown[screen]:
            pair = shown[screen].pop(0)
            verdict = SIMILAR if pair[0] % 3 == pair[1] % 3 else DISSIMILAR
            campaign.answer(*pair, verdict, people[screen])
        elif act == "undo":
            campaign.undo(people[screen])
        every = [pair for pairs in shown.values() for pair in pairs]
        assert len(every) == len(set(every)), shown


def test_screens_that_take_at_the_same_moment_take_different_pairs(make: Make) -> None:
    campaign = make(*combinations(range(20), 2))
    taken: dict[int, list[Pair]] = {}
    start = threading.Barrier(4)

    def take_in_thread(number: int) -> None:
        with closing(Campaign.open(campaign.folder)) as own:  # the file opened again, as a process would
            for attempt in range(3):
                start.wait()
                taken[4 * attempt + number] = take(own, 6, f"person {number}", f"{attempt} {number}")

    threads = [threading.Thread(target=take_in_thread, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = [pair for pairs in taken.values() for pair in pairs]
    assert len(every) == len(set(every)) == 72


@pytest.mark.parametrize("overlap", [0.0, 0.2, 0.5, 1.0])
def test_the_overlap_is_the_share_of_pairs_that_exactly_two_people_answer(make: Make, overlap: float) -> None:
    listed = list(combinations(range(14), 2))  # 91
    campaign = make(*listed)
    campaign.store.set(overlap=overlap)
    answered: dict[Pair, list[str]] = {pair: [] for pair in listed}
    for step in range(260):
        who = ("ann", "bob", "carl")[step % 3]
        (pair,) = take(campaign, 1, who)
        campaign.answer(*pair, UNSURE, who)  # implies nothing
        answered.setdefault(pair, []).append(who)
    listed_by = [answered[pair] for pair in listed]
    assert {len(people) for people in listed_by} <= {1, 2}
    assert all(len(set(people)) == len(people) for people in answered.values())
    twice = sum(len(people) == 2 for people in listed_by) / len(listed)
    assert twice == pytest.approx(overlap, abs=0.12 if overlap else 0)


def test_a_person_who_corrects_an_answer_does_not_bring_in_a_third(make: Make) -> None:
    campaign = make((0, 1))
    campaign.store.set(overlap=1.0)
    campaign.answer(0, 1, UNSURE, "ann")
    assert take(campaign, 1, "bob") == [(0, 1)]
    campaign.answer(0, 1, SIMILAR, "ann")
    assert (0, 1) not in take(campaign, 6, "carl")


def test_people_who_answer_the_same_pairs_agree(make: Make) -> None:
    campaign = make(settings=PLACE)
    campaign.store.set(overlap=0.5)
    kinds = truth(campaign)
    for step in range(60):
        who = ("ann", "bob")[step % 2]
        pair = take(campaign, 2, who)[0]
        campaign.answer(*pair, verdict_of(kinds, pair), who)
    (both,) = progress.agreement(campaign)
    assert (both["one"], both["other"], both["agreement"]) == ("ann", "bob", 1.0)
    assert 10 <= both["pairs"] <= 25


# -- place: each question depends on the answers before it -------------------------------------------


@pytest.fixture(scope="module")
def made(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign that places images, before the first answer. Copy it."""
    folder = tmp_path_factory.mktemp("placing") / "campaign"
    turn.begin(folder, archive, PLACE, backbone=SHRUNK).close()
    return folder


@pytest.fixture
def campaign(made: Path, tmp_path: Path) -> Iterator[Campaign]:
    folder = Path(shutil.copytree(made, tmp_path / "copy"))
    with closing(Campaign.open(folder)) as opened:
        yield opened


def what_place_wants(campaign: Campaign) -> Pair:
    """The next pair, by the strategy alone."""
    rounds = campaign.rounds
    log = campaign.log()
    snapshot = Snapshot(rounds.vectors(), campaign.images, campaign.known())
    given = log.news(rounds.seen)
    rng = campaign.settings.rng(Stream.PICK, rounds.current, given)
    (pair,) = placing.pick(snapshot, rounds.agenda(), 1, rng)
    return pair


def test_every_question_is_what_the_strategy_wants_after_the_answers_so_far(campaign: Campaign) -> None:
    kinds = truth(campaign)
    purposes: list[str] = []
    retried = 0
    refused: int | None = None  # the image that the last group did not take
    for _ in range(50):
        wanted = what_place_wants(campaign)
        known = campaign.known()
        question, *_ = questions.take(campaign, "me", "h", 1)
        pair = question.pair
        purposes.append(question.purpose)
        verdict = verdict_of(kinds, pair)
        campaign.answer(*pair, verdict)
        if question.purpose == CHOSEN:
            assert pair == wanted
            retried += refused in pair
            alone = [image for image in pair if known.sizes[known.group[image]] == 1]
            refused = alone[0] if verdict == DISSIMILAR and alone else None
    assert purposes.count(CHOSEN) == 45
    assert retried >= 10  # after a refusal the image is tried with another group, at once
    rows = campaign.log().standing()
    assert {(row.strategy, row.round) for row in rows} == {("place", 0)}


def test_one_question_in_ten_is_held_out_until_the_held_out_pairs_are_used_up(campaign: Campaign) -> None:
    asked = answer_truly(campaign, 75)
    places = [i for i, question in enumerate(asked) if question.purpose == HELD_OUT]
    assert places == [5, 15, 25, 35, 45, 55]
    assert len({question.pair for question in asked}) == 75


def test_a_screen_that_looks_ahead_gets_as_many_as_it_wants(campaign: Campaign) -> None:
    kinds = truth(campaign)
    heldout = 0
    for _ in range(60):
        taken = questions.take(campaign, "me", "h", 6)
        assert len({question.pair for question in taken}) == 6
        assert questions.take(campaign, "me", "h", 6) == taken  # to ask again changes nothing
        heldout += taken[0].purpose == HELD_OUT
        pair = taken[0].pair
        campaign.answer(*pair, verdict_of(kinds, pair))
    assert heldout in (5, 6)


def test_reopening_the_campaign_changes_nothing(made: Path, tmp_path: Path, campaign: Campaign) -> None:
    asked = answer_truly(campaign, 30)
    folder = Path(shutil.copytree(made, tmp_path / "reopened"))
    again: list[Question] = []
    for _ in range(30):
        with closing(Campaign.open(folder)) as reopened:
            again += answer_truly(reopened, 1)
    assert again == asked


def test_no_two_people_are_asked_the_same_pair_or_place_the_same_image(
    campaign: Campaign, rng: np.random.Generator
) -> None:
    kinds = truth(campaign)
    founder = int(campaign.rounds.agenda().images[0])
    shown: dict[str, list[Question]] = {"ann": [], "bob": [], "carl": []}
    for _ in range(120):
        who = str(rng.choice(list(shown)))
        shown[who] = questions.take(campaign, who, who, int(rng.integers(1, 5)))
        assert shown[who]  # there is something to ask everybody
        every = [question for taken in shown.values() for question in taken]
        assert len({question.pair for question in every}) == len(every)
        seen = set(campaign.known().members.tolist()) or {founder}
        placed = [i for one in every if one.purpose == CHOSEN for i in one.pair if i not in seen]
        assert len(placed) == len(set(placed))
        if rng.random() < 0.7:
            pair = shown[who].pop(0).pair
            campaign.answer(*pair, verdict_of(kinds, pair), who)
    purposes = [row.purpose for row in campaign.log().standing()]
    assert purposes.count(CHOSEN) > 60
    assert set(purposes) == {CHOSEN, HELD_OUT}


def test_without_an_agenda_answering_goes_on(campaign: Campaign) -> None:
    (campaign.rounds.files(FROZEN).folder / "agenda.npz").unlink()
    asked = answer_truly(campaign, 30)
    assert len({question.pair for question in asked}) == 30


def test_when_every_pair_is_known_nothing_is_asked(make: Make) -> None:
    images = np.array([3, 5, 33, 38, 77])
    campaign = make(settings=PLACE, images=images)
    kinds = truth(campaign)
    asked: list[Pair] = []
    while pairs := take(campaign, 3):
        asked += pairs[:1]
        campaign.answer(*pairs[0], verdict_of(kinds, pairs[0]))
    assert len(asked) == len(set(asked))
    every = Pairs.from_list(combinations(images.tolist(), 2))
    assert UNKNOWN not in campaign.known().of(every)


# -- rounds ----------------------------------------------------------------------------------------


def test_after_a_turn_the_new_space_and_agenda_are_used(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fit, "length", lambda settings, known: 20)
    answer_truly(campaign, 40)
    before = campaign.rounds.agenda()
    turn.turn(campaign, SHRUNK)
    assert campaign.rounds.serving == 0
    known = campaign.known()
    agenda = campaign.rounds.agenda()
    assert (known.sizes[known.group[agenda.images]] == 1).all()  # only images without a group
    assert agenda.images.tolist() != before.images[: len(agenda.images)].tolist()
    kinds = truth(campaign)
    for _ in range(4):
        wanted = what_place_wants(campaign)
        assert take(campaign, 1) == [wanted]
        campaign.answer(*wanted, verdict_of(kinds, wanted))
    assert {(row.strategy, row.round) for row in campaign.log().standing()[-4:]} == {("place", 1)}


def test_there_is_no_next_question_exactly_when_the_answers_of_a_round_are_in(make: Make) -> None:
    campaign = make(settings=replace(LIST, per_round=5))
    for _ in range(5):
        question = next_question(campaign)
        assert question is not None
        assert next_question(campaign) == question
        campaign.answer(*question.pair, DISSIMILAR)
    assert next_question(campaign) is None
    assert len(take(campaign, 1)) == 1  # people go on while the machine learns
    campaign.undo()
    assert next_question(campaign) is not None
    say(campaign, [(0, 1)], [SIMILAR])
    end_round(campaign)
    assert next_question(campaign) is not None


def test_a_round_of_unsure_answers_is_not_over(make: Make) -> None:
    campaign = make(settings=replace(LIST, per_round=3))
    for _ in range(8):
        question = next_question(campaign)
        assert question is not None
        campaign.answer(*question.pair, UNSURE)
    campaign.answer(0, 1, SIMILAR)
    assert next_question(campaign) is None


def test_a_plain_function_is_a_strategy_through_the_whole_loop(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fit, "length", lambda settings, known: 5)
    planned: list[list[Pair]] = []

    def most_random(snapshot: Snapshot, n: int, rng: np.random.Generator) -> Pairs:
        pairs = random(snapshot, n, rng)
        planned.append(list(pairs))
        return pairs

    own = batch("own", most_random)
    settings = replace(SETTINGS, per_round=10)
    with closing(turn.begin(tmp_path / "c", archive, settings, strategy=own, backbone=SHRUNK)) as campaign:
        kinds = truth(campaign)
        for number in range(2):
            while question := next_question(campaign):
                campaign.answer(*question.pair, verdict_of(kinds, question.pair))
            turn.turn(campaign, SHRUNK)
            rows = [row for row in campaign.log().standing() if row.round == number]
            assert len(rows) == 10
            assert {row.strategy for row in rows} == {"own"}
            chosen = [row.pair for row in rows if row.purpose == CHOSEN]
            open_pairs = [pair for pair in planned[number] if pair in chosen]
            assert chosen == open_pairs  # the function's pairs, in its order
            assert len(chosen) == 8
    assert len(planned) == 3  # once before each round
