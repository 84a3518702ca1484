"""Answers that are asked again: which ones, how often, and what becomes of them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import SETTINGS, campaign_in, end_round, pattern_archive, say

from anneal.archive.catalog import Archive
from anneal.campaign import questions
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import take
from anneal.campaign.recheck import (
    SECOND,
    WORDS,
    doubtful_separations,
    earlier_suspects,
    reason,
    recheck_rate,
    withdraw_suspects,
)
from anneal.campaign.store import MACHINE, Purpose, Why
from anneal.method import suspects
from anneal.method.neighbours import unit
from anneal.pairs import Floats, Pair, Pairs, Verdict

SIMILAR, DISSIMILAR, UNSURE = Verdict
Make = Callable[..., Campaign]


def line() -> Floats:
    """Images 0 to 60 are ever farther from image 0; all others are where image 60 is."""
    angle = np.full(120, np.pi / 2)
    angle[:61] = np.linspace(0, np.pi / 2, 61)
    return unit(np.stack([np.cos(angle), np.sin(angle)], axis=1))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return pattern_archive(tmp_path_factory.mktemp("patterns"))


@pytest.fixture
def make(archive: Archive, tmp_path: Path) -> Iterator[Make]:
    """Makes a campaign with recheck; it is closed after the test."""
    with ExitStack() as stack:

        def made(vectors: Floats | None = None, **settings: Any) -> Campaign:
            changed = replace(SETTINGS, **{"recheck": 0.15, "heldout": 0.0, "per_round": 100, **settings})
            space = line() if vectors is None else vectors
            return stack.enter_context(closing(campaign_in(tmp_path / "c", archive, changed, vectors=space)))

        yield made


@pytest.fixture
def campaign(make: Make) -> Campaign:
    return make()


def answer_sixty(campaign: Campaign, *wrong: int, purpose: str = Purpose.CHOSEN) -> None:
    """Image 0 beside 1 to 60: the nearer half is similar. The answers with these partners are wrong."""
    verdicts = [SIMILAR if i <= 30 else DISSIMILAR for i in range(1, 61)]
    for i in wrong:
        verdicts[i - 1] = SIMILAR if i > 30 else DISSIMILAR
    say(campaign, [(0, i) for i in range(1, 61)], verdicts, purpose)


def asked_again(campaign: Campaign) -> list[Pair]:
    """The pairs that wait to be asked again, with the suspects that are withdrawn now."""
    with campaign.transaction():
        withdraw_suspects(campaign)
    return list(campaign.log().waiting)


def standing(campaign: Campaign, pair: Pair) -> int | None:
    return next((row.verdict for row in campaign.log().standing() if row.pair == pair), None)


def row_of(campaign: Campaign, pair: Pair) -> int:
    return next(row.id for row in campaign.log().standing() if row.pair == pair)


# -- an unlikely verdict ---------------------------------------------------------------------------


@pytest.mark.parametrize("later", [(SIMILAR, SIMILAR), (SIMILAR, DISSIMILAR), (DISSIMILAR,)])
def test_an_unlikely_answer_is_asked_again_until_one_verdict_leads(
    campaign: Campaign, later: tuple[Verdict, ...]
) -> None:
    answer_sixty(campaign, 3)
    for verdict in later:  # after "dissimilar" by mistake
        assert asked_again(campaign) == [(0, 3)]
        assert asked_again(campaign) == [(0, 3)]  # it still waits
        assert standing(campaign, (0, 3)) is None  # it does not count meanwhile
        assert campaign.log().is_doubted((0, 3))
        campaign.answer(0, 3, verdict)
    assert asked_again(campaign) == []
    assert standing(campaign, (0, 3)) == later[-1]
    assert campaign.log().given == 60 + len(later)


def test_a_pair_that_is_asked_again_says_why(campaign: Campaign) -> None:
    answer_sixty(campaign, 3)
    assert asked_again(campaign) == [(0, 3)]
    assert reason(campaign.log(), (0, 3), "me") == WORDS[Why.MODEL]
    campaign.answer(0, 3, SIMILAR)
    assert asked_again(campaign) == [(0, 3)]
    assert reason(campaign.log(), (0, 3), "me") == WORDS[Why.CHANGED]
    campaign.answer(0, 3, SIMILAR)
    assert asked_again(campaign) == []
    assert reason(campaign.log(), (0, 3), "me") == ""
    assert reason(campaign.log(), (0, 3), "bob") == SECOND
    campaign.again([row_of(campaign, (0, 5))])
    assert reason(campaign.log(), (0, 5), "me") == WORDS[Why.REQUEST]
    assert set(WORDS) == set(Why)


def test_nothing_is_asked_again_while_there_are_few_answers(campaign: Campaign) -> None:
    pairs = [(0, i) for i in range(17, 17 + suspects.ENOUGH - 1)]
    verdicts = [SIMILAR if i <= 30 else DISSIMILAR for _, i in pairs]
    say(campaign, pairs, [DISSIMILAR, *verdicts[1:]])
    assert asked_again(campaign) == []


def test_a_person_who_corrects_an_answer_is_not_doubted(campaign: Campaign) -> None:
    answer_sixty(campaign)
    assert asked_again(campaign) == []
    campaign.answer(0, 3, DISSIMILAR)  # without being asked
    assert asked_again(campaign) == []
    assert standing(campaign, (0, 3)) == DISSIMILAR


def test_an_unsure_answer_is_not_doubted_and_ends_the_doubt(campaign: Campaign) -> None:
    answer_sixty(campaign, 3)
    campaign.answer(0, 4, UNSURE)
    assert asked_again(campaign) == [(0, 3)]
    campaign.answer(0, 3, UNSURE)
    assert asked_again(campaign) == []
    assert standing(campaign, (0, 3)) == UNSURE


def test_without_recheck_nothing_is_asked_again(make: Make) -> None:
    campaign = make(recheck=0.0)
    answer_sixty(campaign, 3)
    assert asked_again(campaign) == []
    assert standing(campaign, (0, 3)) == DISSIMILAR


@pytest.mark.parametrize("purpose", [Purpose.IMPORTED, Purpose.HELD_OUT])
def test_imported_and_held_out_answers_are_not_doubted(campaign: Campaign, purpose: str) -> None:
    answer_sixty(campaign, 3, purpose=purpose)
    assert asked_again(campaign) == []


def test_a_released_answer_is_doubted_like_a_chosen_one(campaign: Campaign) -> None:
    answer_sixty(campaign, 3, purpose=Purpose.RELEASED)
    assert asked_again(campaign) == [(0, 3)]


def test_an_undo_of_a_doubted_answer_removes_the_doubt(campaign: Campaign) -> None:
    answer_sixty(campaign)
    campaign.undo()  # the last of the sixty
    campaign.answer(0, 60, SIMILAR)
    assert asked_again(campaign) == [(0, 60)]
    assert campaign.undo() == (0, 60)
    assert not campaign.log().is_doubted((0, 60))
    campaign.answer(0, 60, DISSIMILAR)
    assert asked_again(campaign) == []
    assert standing(campaign, (0, 60)) == DISSIMILAR


# -- what is asked again comes first ------------------------------------------------------------------


def test_a_pair_that_is_asked_again_is_the_next_question(campaign: Campaign) -> None:
    answer_sixty(campaign, 3)
    for _ in range(2):
        (question,) = take(campaign, "me", "h", 1)
        assert (question.pair, question.purpose) == ((0, 3), Purpose.AGAIN)
        campaign.answer(0, 3, SIMILAR)
    (question,) = take(campaign, "me", "h", 1)
    assert question.pair != (0, 3)


def test_a_pair_that_waits_is_asked_again_in_the_next_round_too(campaign: Campaign) -> None:
    answer_sixty(campaign, 3)
    assert asked_again(campaign) == [(0, 3)]
    end_round(campaign)
    assert asked_again(campaign) == [(0, 3)]
    assert take(campaign, "me", "h", 1)[0].pair == (0, 3)
    campaign.answer(0, 3, SIMILAR)
    assert asked_again(campaign) == [(0, 3)]  # one of each: a third one decides
    campaign.answer(0, 3, SIMILAR)
    assert asked_again(campaign) == []


def test_a_step_that_fails_leaves_what_stands_as_it_was(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_sixty(campaign, 3)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(questions, "arrange", fail)
        with pytest.raises(OSError, match="disk full"):
            take(campaign, "me", "h", 1)
    assert standing(campaign, (0, 3)) == DISSIMILAR
    assert campaign.log().rows == campaign.store.events(0)
    assert take(campaign, "me", "h", 1)[0].pair == (0, 3)


# -- joins ---------------------------------------------------------------------------------------------


def test_an_answer_that_joins_two_large_groups_is_asked_again(campaign: Campaign) -> None:
    large = suspects.LARGE
    chains = [(i, i + 1) for start in (0, 20) for i in range(start, start + large - 1)]
    say(campaign, chains, [SIMILAR] * len(chains))
    end_round(campaign)
    campaign.answer(0, 40, SIMILAR)  # adds one image
    campaign.answer(1, 21, DISSIMILAR)  # joins nothing
    assert asked_again(campaign) == []
    campaign.undo()
    campaign.answer(0, 20, SIMILAR)
    assert asked_again(campaign) == [(0, 20)]
    campaign.answer(0, 20, SIMILAR)
    assert asked_again(campaign) == []  # twice the same


# -- contradictions --------------------------------------------------------------------------------------


def test_the_least_likely_answer_of_a_contradiction_is_asked_again(campaign: Campaign) -> None:
    answer_sixty(campaign)
    campaign.answer(1, 2, DISSIMILAR)  # 0 is similar to both
    assert len(campaign.contradictions()) == 1
    for _ in range(2):  # it is asked though the other two answers imply it
        assert take(campaign, "me", "h", 1)[0].pair == (1, 2)
        assert not campaign.contradictions()
        campaign.answer(1, 2, SIMILAR)
    assert asked_again(campaign) == []


def test_the_newest_answer_of_a_contradiction_is_asked_where_all_are_as_likely(campaign: Campaign) -> None:
    answer_sixty(campaign)
    end_round(campaign)  # the new round has too few answers to say how likely one was
    campaign.answer(1, 2, DISSIMILAR)  # 0 is similar to both
    assert asked_again(campaign) == [(1, 2)]


def test_a_contradiction_is_settled_though_the_wrong_answer_was_given_twice(campaign: Campaign) -> None:
    answer_sixty(campaign)
    campaign.answer(1, 2, DISSIMILAR)  # 0 is similar to both
    asked: list[Pair] = []
    while pairs := asked_again(campaign):
        (pair,) = pairs
        asked.append(pair)
        wrong = asked.count((1, 2)) == 1 and pair == (1, 2)
        campaign.answer(*pair, DISSIMILAR if wrong else SIMILAR)
    assert asked[0] == (1, 2)
    assert set(asked[1:3]) == {(0, 1), (0, 2)}
    assert standing(campaign, (1, 2)) == SIMILAR
    assert not campaign.contradictions()


@pytest.mark.parametrize("seed", range(3))
def test_a_person_who_answers_at_random_is_asked_a_limited_number_of_times(
    campaign: Campaign, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    answer_sixty(campaign)
    campaign.answer(1, 2, DISSIMILAR)  # 0 is similar to both
    times: dict[Pair, int] = {}
    while pairs := asked_again(campaign):
        for pair in pairs:
            times[pair] = times.get(pair, 1) + 1
            campaign.answer(*pair, int(rng.choice([SIMILAR, DISSIMILAR])))
    assert times[1, 2] > 1
    assert max(times.values()) <= 7  # twice a lead of three, and one


def test_nobody_is_asked_again_where_two_people_disagree(campaign: Campaign) -> None:
    answer_sixty(campaign)
    campaign.answer(0, 3, DISSIMILAR, "bob")
    assert len(campaign.contradictions()) == 1
    assert asked_again(campaign) == []  # they must settle it themselves


# -- what the frozen features speak against ------------------------------------------------------------


def test_earlier_answers_are_asked_again_one_at_a_time(campaign: Campaign) -> None:
    answer_sixty(campaign)
    end_round(campaign)
    campaign.rounds.files(0).save_suspects(Pairs.of([0, 0], [5, 7]))
    assert asked_again(campaign) == [(0, 5)]
    assert asked_again(campaign) == [(0, 5)]  # the other one is left alone while this one waits
    assert standing(campaign, (0, 5)) is None
    assert standing(campaign, (0, 7)) == SIMILAR
    campaign.answer(0, 5, SIMILAR)
    for _ in range(2):
        assert asked_again(campaign) == [(0, 7)]  # (0, 5) is settled: twice the same
        campaign.answer(0, 7, DISSIMILAR)
    assert asked_again(campaign) == []
    assert standing(campaign, (0, 7)) == DISSIMILAR


def two_places() -> Floats:
    frozen = np.zeros((120, 2), dtype=np.float32)
    frozen[:60, 0] = 1
    frozen[60:, 1] = 1
    return frozen


def twenty_strange_groups(campaign: Campaign) -> list[Pair]:
    """Twenty groups of four, each with two images in either place; returns the pairs that join the places."""
    joins = [(i, i + 60) for i in range(0, 40, 2)]
    pairs = [(i, i + 1) for start in (0, 60) for i in range(start, start + 40, 2)]
    say(campaign, pairs + joins, [SIMILAR] * 60)
    return joins


def ask_again(campaign: Campaign, pairs: list[Pair], verdict: Verdict) -> None:
    """The machine asks for these pairs again, and this is the answer."""
    campaign.again([row_of(campaign, pair) for pair in pairs], by=MACHINE)
    for pair in pairs:
        campaign.answer(*pair, verdict)


def test_a_careful_annotator_is_asked_again_less_and_less(make: Make) -> None:
    frozen = two_places()
    campaign = make(frozen)
    joins = twenty_strange_groups(campaign)
    assert recheck_rate(campaign, 1) == 1.0
    assert sorted(earlier_suspects(campaign, frozen, 1.0)) == joins
    rates = [1.0]
    for start in range(0, 15, 5):
        ask_again(campaign, joins[start : start + 5], SIMILAR)
        rates.append(recheck_rate(campaign, 1))
    assert rates == [1.0, 1 / 2, 1 / 3, 1 / 4]
    left = list(earlier_suspects(campaign, frozen, 1.0))
    assert sorted(left) == joins[15:]  # what was asked again is not asked a third time
    assert list(earlier_suspects(campaign, frozen, 0.1)) == left[:3]  # a tenth of a quarter of a round
    assert recheck_rate(campaign, 0) == 1.0  # nothing was asked again before round 0


def test_a_careless_annotator_is_asked_again_in_full(make: Make) -> None:
    campaign = make(two_places())
    joins = twenty_strange_groups(campaign)
    ask_again(campaign, joins[:8], SIMILAR)
    ask_again(campaign, joins[8:10], DISSIMILAR)
    assert recheck_rate(campaign, 1) == 1.0  # every fifth was a mistake


def test_once_a_mistake_was_found_groups_that_several_answers_separate_are_doubted(make: Make) -> None:
    frozen = two_places()
    campaign = make(frozen)
    say(campaign, [(0, 1), (1, 2), (3, 4), (4, 5), (10, 70)], [SIMILAR] * 5)
    say(campaign, [(0, 3), (1, 4)], [DISSIMILAR] * 2)
    ask_again(campaign, [(10, 70)], SIMILAR)
    assert list(earlier_suspects(campaign, frozen, 1.0)) == []
    say(campaign, [(11, 71)], [SIMILAR])
    ask_again(campaign, [(11, 71)], DISSIMILAR)
    assert list(earlier_suspects(campaign, frozen, 1.0)) == [(0, 3)]


@pytest.mark.parametrize(("closure", "doubtful"), [("full", [(0, 3)]), ("single", [])])
def test_once_a_mistake_was_found_doubtful_separations_are_not_learnt(
    make: Make, closure: str, doubtful: list[Pair]
) -> None:
    frozen = two_places()
    campaign = make(frozen, strategy="mgue", closure=closure)
    say(campaign, [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (0, 70)], [SIMILAR] * 4 + [DISSIMILAR] * 2)
    assert doubtful_separations(campaign, frozen) == []
    say(campaign, [(11, 71)], [SIMILAR])
    ask_again(campaign, [(11, 71)], DISSIMILAR)
    assert doubtful_separations(campaign, frozen) == doubtful
    ask_again(campaign, [(0, 3)], DISSIMILAR)
    assert doubtful_separations(campaign, frozen) == []


@pytest.mark.parametrize(("rate", "expected"), [(1.0, [(0, 3), (0, 19)]), (0.2, [(0, 3)]), (0.05, [])])
def test_the_rate_of_the_last_round_says_how_unlikely_an_answer_must_be(
    campaign: Campaign, rate: float, expected: list[Pair]
) -> None:
    end_round(campaign, recheck_rate=rate)
    answer_sixty(campaign, 3, 19)  # probabilities of 2 % and 9 %
    assert asked_again(campaign) == expected


def test_without_vectors_nothing_is_asked_again(campaign: Campaign) -> None:
    answer_sixty(campaign, 3)
    (campaign.rounds.files(-1).folder / "vectors.npy").unlink()
    assert asked_again(campaign) == []
