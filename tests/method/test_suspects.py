"""Slips: which answers are asked again, and what becomes of them."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from anneal.archive.catalog import open_archive
from anneal.campaign import progress
from anneal.campaign.campaign import Campaign
from anneal.campaign.store import IMPORT, MACHINE, Questions
from anneal.method import suspects
from anneal.method.neighbours import unit
from anneal.method.relations import full
from anneal.pairs import Answers, Floats, Pairs, Verdict
from anneal.settings import Plan

SIMILAR, DISSIMILAR, UNSURE = Verdict


def on_a_line(n: int = 60) -> tuple[Floats, Answers]:
    """Image 0 beside images ever farther from it: the nearer half similar, the others not."""
    angle = np.linspace(0, np.pi / 2, n + 1)
    vectors = unit(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    verdicts = [SIMILAR if i <= n // 2 else DISSIMILAR for i in range(1, n + 1)]
    return vectors, Answers.of(Pairs.of([0] * n, range(1, n + 1)), verdicts)


def test_an_answer_that_the_model_would_hardly_have_thought_is_suspect() -> None:
    vectors, answers = on_a_line()
    flipped = answers.verdicts.copy()
    flipped[[2, 55]] = DISSIMILAR, SIMILAR
    told = Answers.of(answers.pairs, flipped)
    chance = suspects.chances(vectors, told, told)
    assert suspects.suspects(chance, np.zeros(60, dtype=bool), 0.15)[:2] in ([2, 55], [55, 2])
    assert set(suspects.suspects(chance, np.zeros(60, dtype=bool), 0.05)) <= {2, 55}


def test_nothing_is_suspect_while_too_little_is_known() -> None:
    vectors, answers = on_a_line()
    few = Answers.of(answers.pairs[: suspects.ENOUGH - 1], answers.verdicts[: suspects.ENOUGH - 1])
    assert suspects.chances(vectors, few, few).tolist() == [1.0] * len(few)
    one_kind = Answers.of(answers.pairs, [SIMILAR] * len(answers))
    assert (suspects.chances(vectors, one_kind, one_kind) == 1).all()


def test_who_is_unsure_makes_no_slip() -> None:
    vectors, answers = on_a_line()
    asked = Answers.of(Pairs.of([0], [1]), [UNSURE])
    assert suspects.chances(vectors, asked, answers).tolist() == [1.0]


def test_an_answer_that_joins_two_large_groups_is_suspect_and_one_that_adds_an_image_is_not() -> None:
    chain = [(i, i + 1) for start in (0, 10) for i in range(start, start + suspects.LARGE - 1)]
    a, b = zip(*chain, strict=True)
    before = full(20, Answers.of(Pairs.of(a, b), [SIMILAR] * len(chain))).relations
    fresh = Answers.of(Pairs.of([0, 0, 0, 0], [19, 15, 10, 11]), [SIMILAR, DISSIMILAR, SIMILAR, SIMILAR])
    assert suspects.joins(before, fresh).tolist() == [
        False,
        False,
        True,
        False,
    ]  # the last joins nothing more
    grown = Answers.of(Pairs.of([15, 15, 15, 15, 0], [16, 17, 18, 19, 15]), [SIMILAR] * 5)
    assert suspects.joins(before, grown).tolist() == [False] * 4 + [True]  # it grew while they were asked
    assert suspects.suspects(np.ones(5), suspects.joins(before, grown), 0.15) == [4]


def chained(*groups: range) -> list[tuple[int, int]]:
    return [(i, i + 1) for ids in groups for i in ids[:-1]]


def similar(*pairs: tuple[int, int]) -> Answers:
    a, b = zip(*pairs, strict=True)
    return Answers.of(Pairs.of(a, b), [SIMILAR] * len(pairs))


def test_a_bridge_is_an_answer_without_which_a_group_would_fall_in_two() -> None:
    answers = similar((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (2, 4), (7, 8))  # 2, 3 and 4 in a circle
    found = suspects.bridges(answers, full(9, answers).relations)
    assert sorted((row, sorted(part.tolist())) for row, part in found) == [(1, [0, 1])]
    twice = answers.then(similar((1, 2)))  # two people said so
    assert suspects.bridges(twice, full(9, twice).relations) == []


@pytest.mark.parametrize("seed", range(5))
def test_bridges_are_those_that_leaving_out_each_answer_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 30, (2, 34))
    answers = similar(*((int(i), int(j)) for i, j in zip(a, b, strict=True) if i != j))
    whole = full(30, answers).relations
    expected = []
    for row in range(len(answers)):
        left = np.arange(len(answers)) != row
        rest = full(30, Answers.of(answers.pairs[left], answers.verdicts[left])).relations
        parts = [
            np.flatnonzero(rest.group == rest.group[ids[row]]) for ids in (answers.pairs.a, answers.pairs.b)
        ]
        if set(parts[0]) != set(parts[1]) and min(map(len, parts)) >= suspects.FEW:
            expected.append((row, min(map(len, parts))))
    assert sorted((row, len(part)) for row, part in suspects.bridges(answers, whole)) == expected


def places() -> Floats:
    """Twenty images around each of three places."""
    rng = np.random.default_rng(3)
    middles = np.repeat(np.eye(8)[:3], 20, axis=0)
    return unit(middles + 0.05 * rng.normal(size=(60, 8)))


def test_the_frozen_features_speak_against_an_answer_that_joins_two_places() -> None:
    frozen = places()
    right = chained(range(10), range(10, 20), range(20, 40), range(40, 60))
    answers = similar(*right, (19, 20))  # half of a place is taken for another
    assert list(suspects.against(frozen, answers, full(60, answers).relations)) == [(19, 20)]
    answers = similar(*right, (9, 10))
    assert list(suspects.against(frozen, answers, full(60, answers).relations)) == []


def test_the_frozen_features_speak_against_an_answer_that_parts_one_place() -> None:
    frozen = places()
    right = similar(*chained(range(10), range(10, 20), range(20, 40)))
    told = right.then(Answers.of(Pairs.of([0, 0, 10], [10, 20, 20]), [DISSIMILAR] * 3))
    assert list(suspects.against(frozen, told, full(60, told).relations)) == [(0, 10)]
    told = told.then(Answers.of(Pairs.of([5], [15]), [DISSIMILAR]))  # said of two pairs, it is no slip
    assert list(suspects.against(frozen, told, full(60, told).relations)) == []


def test_where_nobody_outside_a_group_is_near_nothing_speaks_against_an_answer() -> None:
    middles = np.repeat(np.eye(8)[:4], 80, axis=0)
    frozen = unit(middles + 0.05 * np.random.default_rng(3).normal(size=(320, 8)))
    told = similar(*chained(*(range(80 * k, 80 * k + 80) for k in range(4))))
    a, b = zip(*((80 * j, 80 * k) for k in range(4) for j in range(k)), strict=True)
    told = told.then(Answers.of(Pairs.of(a, b), [DISSIMILAR] * 6))
    assert list(suspects.against(frozen, told, full(320, told).relations)) == []


def test_nothing_speaks_against_no_answers() -> None:
    assert list(suspects.against(places(), Answers.none(), full(60, Answers.none()).relations)) == []


@pytest.mark.parametrize(
    ("asked", "slipped", "share"),
    [
        (0, 0, 1),
        (5, 0, 1 / 2),
        (50, 0, 1 / 11),
        (500, 0, 1 / 101),
        (100, 9, 10 / 21),
        (100, 19, 20 / 21),
        (100, 20, 1),
        (10, 10, 1),
    ],
)
def test_answers_are_asked_again_as_far_as_it_pays(asked: int, slipped: int, share: float) -> None:
    assert suspects.paying(asked, slipped) == share


# -- in a campaign -----------------------------------------------------------------------------------


def campaign_in(folder: Path, drawn: Path, cache: Path, **plan: object) -> Campaign:
    archive = open_archive(drawn, 32, cache)
    return Campaign.create(folder, archive, Plan(px=32, **plan), np.arange(len(archive)))  # type: ignore[arg-type]


@pytest.fixture
def campaign(drawn: Path, cache: Path, tmp_path: Path) -> Iterator[Campaign]:
    made = campaign_in(tmp_path / "c", drawn, cache)
    yield made
    made.close()


def told(campaign: Campaign, *slipped: int) -> Floats:
    """Sixty answers, of which these rows are wrong; the space they were asked in."""
    line, answers = on_a_line()
    vectors = np.tile(line[-1], (campaign.size, 1))
    vectors[: len(line)] = line
    verdicts = [3 - v if row in slipped else v for row, v in enumerate(answers.verdicts.tolist())]
    campaign.answer_all(answers.pairs, verdicts)
    return vectors


def verdict_of(campaign: Campaign, pair: tuple[int, int]) -> int | None:
    return next((row.verdict for row in campaign.store.standing() if (row.a, row.b) == pair), None)


@pytest.mark.parametrize("said", [(SIMILAR, SIMILAR), (SIMILAR, DISSIMILAR), (DISSIMILAR,)])
def test_what_may_be_a_slip_is_asked_until_two_answers_agree(
    campaign: Campaign, said: tuple[Verdict, ...]
) -> None:
    vectors = told(campaign, 2)
    assert verdict_of(campaign, (0, 3)) == DISSIMILAR
    for verdict in said:  # after "dissimilar" by mistake
        assert campaign.second_look(vectors) == [(0, 3)]
        assert campaign.second_look(vectors) == [(0, 3)]  # still waiting
        assert verdict_of(campaign, (0, 3)) is None  # it does not count meanwhile
        assert (0, 3) in campaign.store.doubted()
        campaign.answer(0, 3, verdict)
    assert campaign.second_look(vectors) == []
    assert verdict_of(campaign, (0, 3)) == said[-1]
    assert campaign.store.given() == progress.cost(campaign)["answers"] == 60 + len(said)


def test_a_correction_of_ones_own_is_not_doubted(campaign: Campaign) -> None:
    vectors = told(campaign)
    assert campaign.second_look(vectors) == []
    campaign.answer(0, 3, DISSIMILAR)  # on second thoughts
    assert campaign.second_look(vectors) == []
    assert verdict_of(campaign, (0, 3)) == DISSIMILAR


def test_nothing_is_asked_again_where_every_word_is_taken(drawn: Path, cache: Path, tmp_path: Path) -> None:
    trusting = campaign_in(tmp_path / "c", drawn, cache, recheck=0)
    assert trusting.second_look(told(trusting, 2)) == []
    assert verdict_of(trusting, (0, 3)) == DISSIMILAR
    trusting.close()


def test_of_a_contradiction_the_least_likely_answer_is_asked_again(campaign: Campaign) -> None:
    vectors = told(campaign)
    campaign.answer(1, 2, DISSIMILAR)  # 0 is similar to both
    assert len(campaign.contradictions()) == 1
    assert campaign.second_look(vectors) == [(1, 2)]
    assert not campaign.contradictions()
    campaign.answer(1, 2, SIMILAR)
    assert campaign.second_look(vectors) == [(1, 2)]
    campaign.answer(1, 2, SIMILAR)
    assert campaign.second_look(vectors) == []


def test_what_is_asked_again_comes_first_to_whoever_answers(campaign: Campaign) -> None:
    vectors = told(campaign, 2)
    folder = campaign.round_folder(-1)
    folder.mkdir(parents=True)
    np.save(folder / "vectors.npy", vectors)
    assert campaign.take("me", "h", 1) == [(0, 3)]
    campaign.answer(0, 3, SIMILAR)
    assert campaign.take("me", "h", 1) == [(0, 3)]
    campaign.answer(0, 3, SIMILAR)
    assert campaign.take("me", "h", 1) != [(0, 3)]


def test_of_a_contradiction_what_is_asked_again_comes_though_the_others_imply_it(campaign: Campaign) -> None:
    vectors = told(campaign)
    folder = campaign.round_folder(-1)
    folder.mkdir(parents=True)
    np.save(folder / "vectors.npy", vectors)
    campaign.answer(1, 2, DISSIMILAR)  # 0 is similar to both
    for _ in range(2):
        assert campaign.take("me", "h", 1) == [(1, 2)]
        campaign.answer(1, 2, SIMILAR)
    assert not campaign.contradictions()
    assert campaign.take("me", "h", 1) != [(1, 2)]


def test_what_waits_to_be_asked_again_is_asked_in_the_next_round_too(campaign: Campaign) -> None:
    vectors = told(campaign, 2)
    assert campaign.second_look(vectors) == [(0, 3)]
    campaign.store.finish_round(0, {}, Questions.of(Pairs.none(), 1, "place"))
    assert campaign.second_look(vectors) == [(0, 3)]
    assert list(campaign.store.questions().pairs) == [(0, 3)]
    campaign.answer(0, 3, SIMILAR)
    assert campaign.second_look(vectors) == [(0, 3)]  # one of each: a third decides
    campaign.answer(0, 3, SIMILAR)
    assert campaign.second_look(vectors) == []


def test_of_a_contradiction_the_newest_answer_is_asked_first_where_nothing_tells_them_apart(
    campaign: Campaign,
) -> None:
    vectors = told(campaign)
    campaign.store.finish_round(0, {}, Questions.of(Pairs.none(), 1, "place"))
    campaign.answer(1, 2, DISSIMILAR)  # 0 is similar to both, as was said in the round before
    assert campaign.second_look(vectors) == [(1, 2)]


def test_what_was_known_in_a_round_stays_what_was_known_then(campaign: Campaign) -> None:
    vectors = told(campaign)
    before = campaign.evidence(0)
    campaign.store.finish_round(0, {}, Questions.of(Pairs.none(), 1, "place"))
    campaign.again([campaign.store.standing()[0].id], by=MACHINE)
    assert len(campaign.evidence()) == len(before) - 1
    assert list(campaign.evidence(0).pairs) == list(before.pairs)
    campaign.answer(0, 1, DISSIMILAR)
    assert campaign.evidence(0).verdicts.tolist() == before.verdicts.tolist()
    assert campaign.second_look(vectors)


def test_whoever_is_unsure_the_second_time_is_not_asked_a_third_time(campaign: Campaign) -> None:
    vectors = told(campaign, 2)
    assert campaign.second_look(vectors) == [(0, 3)]
    campaign.answer(0, 3, UNSURE)
    assert campaign.second_look(vectors) == []
    assert verdict_of(campaign, (0, 3)) == UNSURE


def test_undo_of_a_doubted_answer_takes_the_doubt_with_it(campaign: Campaign) -> None:
    vectors = told(campaign)
    campaign.undo()  # the last of the sixty
    campaign.answer(0, 60, SIMILAR)
    assert campaign.second_look(vectors) == [(0, 60)]
    assert campaign.undo() == (0, 60)
    assert (0, 60) not in campaign.store.doubted()
    campaign.answer(0, 60, DISSIMILAR)
    assert campaign.second_look(vectors) == []
    assert verdict_of(campaign, (0, 60)) == DISSIMILAR


def test_answers_from_elsewhere_are_not_doubted(campaign: Campaign) -> None:
    line, answers = on_a_line()
    flipped = answers.verdicts.copy()
    flipped[2] = DISSIMILAR
    campaign.answer_all(answers.pairs, flipped.tolist(), strategy=IMPORT)
    assert campaign.second_look(np.tile(line[:1], (campaign.size, 1))) == []


def test_what_the_frozen_features_speak_against_is_asked_again_rounds_later(campaign: Campaign) -> None:
    vectors = told(campaign)
    campaign.store.finish_round(0, {}, Questions.of(Pairs.none(), 1, "place"))
    odd = [(0, 5), (0, 7)]
    assert campaign.second_look(vectors, odd) == [(0, 5)]  # one at a time
    assert verdict_of(campaign, (0, 5)) is None
    assert verdict_of(campaign, (0, 7)) == SIMILAR
    campaign.answer(0, 5, SIMILAR)
    for _ in range(2):
        assert campaign.second_look(vectors, odd) == [(0, 7)]  # the first is settled: twice the same
        campaign.answer(0, 7, DISSIMILAR)
    assert campaign.second_look(vectors, odd) == []
    assert verdict_of(campaign, (0, 7)) == DISSIMILAR


def test_whoever_is_careful_is_hardly_asked_again(campaign: Campaign) -> None:
    """Two places; what was said makes twenty groups of four, each with a pair in either place."""
    frozen = np.zeros((campaign.size, 2), dtype=np.float32)
    frozen[:60, 0], frozen[60:, 1] = 1, 1
    a = np.r_[0:40:2, 60:100:2]
    campaign.answer_all(Pairs.of(a, a + 1), [SIMILAR] * 40)
    campaign.answer_all(Pairs.of(range(0, 40, 2), range(60, 100, 2)), [SIMILAR] * 20)
    told_, known = campaign.evidence(), campaign.closure().relations
    most = campaign.plan.per_round / 4
    odd = list(campaign.against(told_, known, frozen))
    assert len(odd) == 20 < most
    for pair in odd[:10]:
        campaign.again([row.id for row in campaign.said() if (row.a, row.b) == pair], by=MACHINE)
        campaign.answer(*pair, SIMILAR)
    left = list(campaign.against(told_, known, frozen))
    assert left == odd[10:][: math.ceil(most / 3)]
    assert len(left) < 10
    campaign.answer(*odd[0], DISSIMILAR)
    campaign.answer(*odd[1], DISSIMILAR)
    assert list(campaign.against(told_, known, frozen)) == odd[10:]


@pytest.mark.parametrize("said", [SIMILAR, DISSIMILAR])
def test_what_was_found_in_earlier_rounds_tells_how_strange_an_answer_must_be(
    campaign: Campaign, said: Verdict
) -> None:
    """Twenty answers about images of their own were asked again a round ago."""
    pairs = Pairs.of(range(70, 110, 2), range(71, 110, 2))
    campaign.answer_all(pairs, [SIMILAR] * 20)
    assert campaign.second_look(np.ones((campaign.size, 2), dtype=np.float32)) == []  # all alike
    campaign.again([row.id for row in campaign.said()], by=MACHINE)
    campaign.answer_all(pairs, [said] * 20)
    assert (campaign.store.overturned(), len(campaign.store.doubted())) == (20 * (said == DISSIMILAR), 20)
    campaign.store.finish_round(0, {"row": campaign.store.newest()}, Questions.of(Pairs.none(), 1, "place"))
    vectors, (strange, rather) = told(campaign, 2, 18), ((0, 3), (0, 19))  # a chance of 2 %, and of 9
    assert campaign.second_look(vectors) == ([strange] if said == SIMILAR else [strange, rather])


def test_whoever_says_another_thing_each_time_is_asked_so_often_and_no_more(campaign: Campaign) -> None:
    vectors = told(campaign)
    campaign.answer(1, 2, DISSIMILAR)  # 0 is similar to both
    times = 0
    while pairs := campaign.second_look(vectors):
        times += 1
        assert times < 30
        campaign.answer(*pairs[0], DISSIMILAR if times % 2 else SIMILAR)


def test_where_two_people_disagree_nobody_is_asked_again(campaign: Campaign) -> None:
    vectors = told(campaign)
    campaign.answer(0, 3, DISSIMILAR, "bob")
    assert len(campaign.contradictions()) == 1
    assert campaign.second_look(vectors) == []


def test_a_step_that_comes_to_nothing_leaves_what_stands_as_it_was(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = told(campaign, 2)
    folder = campaign.round_folder(-1)
    folder.mkdir(parents=True)
    np.save(folder / "vectors.npy", vectors)
    with monkeypatch.context() as patch:
        patch.setattr(campaign, "_open", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            campaign.take("me", "h", 1)
    assert campaign.said() == campaign.store.standing()
    assert verdict_of(campaign, (0, 3)) == DISSIMILAR
    assert campaign.take("me", "h", 1) == [(0, 3)]


def test_a_contradiction_of_settled_answers_is_settled_by_asking_them_again(campaign: Campaign) -> None:
    vectors = told(campaign)
    campaign.answer(1, 2, DISSIMILAR)  # 0 is similar to both
    asked = []
    while pairs := campaign.second_look(vectors):
        (pair,) = pairs
        asked.append(pair)
        wrong = asked.count((1, 2)) == 1  # the same slip twice
        campaign.answer(*pair, DISSIMILAR if wrong and pair == (1, 2) else SIMILAR)
    assert asked[:3] == [(1, 2), (0, 1), (0, 2)] or asked[:3] == [(1, 2), (0, 2), (0, 1)]
    assert verdict_of(campaign, (1, 2)) == SIMILAR
    assert not campaign.contradictions()
