"""Held-out questions: what is drawn, how good each model is, which one serves, whose files are removed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import SETTINGS, SHRUNK, pattern_archive, random_space, say, truth

from anneal.archive.catalog import Archive
from anneal.campaign import heldout, progress
from anneal.campaign import turn as machine
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import take
from anneal.campaign.rounds import FROZEN, LAST, Record, Round
from anneal.campaign.store import HeldOut, Purpose
from anneal.method import estimate
from anneal.method.estimate import Estimate
from anneal.method.neighbours import unit
from anneal.method.relations import Relations, full, none
from anneal.network.train import Fit
from anneal.pairs import Answers, Floats, Ids, Pair, Pairs, Verdict
from anneal.settings import Settings, Stream

SIMILAR, DISSIMILAR, UNSURE = Verdict
TEN = replace(SETTINGS, strategy="mgue", per_round=40, heldout=0.25)  # ten held-out questions a round
MANY = replace(SETTINGS, strategy="mgue", per_round=200, heldout=0.9)
KIND = np.arange(120) // 10
EVERY = np.arange(120)
NOTHING_KNOWN = none(120, Answers.none()).relations
Make = Callable[..., Campaign]


def space(good: bool, seed: int = 0) -> Floats:
    """Images around the centres of their kinds, or anywhere."""
    rng = np.random.default_rng(seed)
    centres = unit(rng.normal(size=(12, 16)))[KIND] if good else 0.0
    return unit(centres + (0.2 if good else 1.0) * rng.normal(size=(120, 16))).astype(np.float32)


def known_of(*rows: tuple[int, int, int]) -> Relations:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return full(120, Answers.of(Pairs.of(columns[:, 0], columns[:, 1]), columns[:, 2])).relations


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return pattern_archive(tmp_path_factory.mktemp("patterns"))


@pytest.fixture
def make(archive: Archive, tmp_path: Path) -> Iterator[Make]:
    """Makes a campaign whose frozen features are these vectors; it is closed after the test."""
    numbers = count()
    with ExitStack() as stack:

        def made(
            settings: Settings, vectors: Floats, drawn: HeldOut | None = None, images: Ids = EVERY
        ) -> Campaign:
            folder = tmp_path / f"campaign{next(numbers)}"
            save(Round.of(folder, FROZEN), vectors, settings, images)
            if drawn is None:
                drawn = heldout.first(vectors, images, NOTHING_KNOWN, settings)
            return stack.enter_context(closing(Campaign.create(folder, archive, settings, images, drawn)))

        yield made


def save(files: Round, vectors: Floats, settings: Settings, images: Ids = EVERY) -> None:
    files.save_space(vectors, heldout.query_results(vectors, images, settings.rng(Stream.QUERIES)))


def end_round(campaign: Campaign, vectors: Floats, *, prune: bool = True, **figures: Any) -> HeldOut:
    """What the machine does about held-out questions after a round whose model has these vectors."""
    number = campaign.rounds.current
    drawn = heldout.more(campaign, vectors, campaign.known(), number)
    save(campaign.rounds.files(number), vectors, campaign.settings, campaign.images)
    serving = heldout.choose_serving(campaign, number, drawn)
    log = campaign.log()
    campaign.rounds.save(Record(number, log.newest, serving, log.given, **figures), drawn)
    if prune:
        heldout.prune(campaign)
    return drawn


def open_pairs(campaign: Campaign) -> list[Pair]:
    """The held-out pairs that are still to be asked."""
    return campaign.open_heldout(campaign.known())


def answer_open(campaign: Campaign) -> None:
    """Answer every held-out question, by kind."""
    pairs = open_pairs(campaign)
    verdicts = [SIMILAR if KIND[a] == KIND[b] else DISSIMILAR for a, b in pairs]
    say(campaign, pairs, verdicts, Purpose.HELD_OUT)


# -- drawing ---------------------------------------------------------------------------------------


def test_the_models_that_draw_are_the_frozen_one_0_1_3_7_and_so_on() -> None:
    assert [n for n in range(FROZEN, 70) if heldout.is_drawing(n)] == [FROZEN, 0, 1, 3, 7, 15, 31, 63]


def test_the_first_pairs_are_drawn_in_order_until_there_are_enough() -> None:
    vectors = random_space(0)
    first = heldout.first(vectors, EVERY, NOTHING_KNOWN, TEN)
    random = list(estimate.draw(vectors, EVERY, 96, TEN.rng(Stream.HELD_OUT, 0, 0)))
    pairs = [(a, b) for _, _, a, b in first.draws]
    assert pairs == random[: len(pairs)]
    assert [draw for _, draw, _, _ in first.draws] == list(range(len(pairs)))
    assert {model for model, *_ in first.draws} == {FROZEN}
    assert len(set(pairs)) == 10


@pytest.mark.parametrize("share", [0.0, 0.012])
def test_without_held_out_questions_nothing_is_drawn(share: float) -> None:
    assert heldout.first(random_space(), EVERY, NOTHING_KNOWN, replace(TEN, heldout=share)) == HeldOut([], [])


@pytest.mark.parametrize("images", [[], [7]])
def test_of_fewer_than_two_images_nothing_is_drawn(images: list[int]) -> None:
    ids: Ids = np.array(images, dtype=np.int64)
    assert heldout.first(random_space(), ids, NOTHING_KNOWN, TEN) == HeldOut([], [])


def test_a_known_pair_is_left_out_and_its_draw_is_counted() -> None:
    vectors = random_space(0)
    groups = [(i, i + 2, SIMILAR) for i in range(98)]
    known = known_of(*groups, (0, 1, DISSIMILAR))  # everything about the first 100 images
    first = heldout.first(vectors, EVERY, known, TEN)
    random = list(estimate.draw(vectors, EVERY, 96, TEN.rng(Stream.HELD_OUT, 0, 0)))
    unknown = [number for number, (_, b) in enumerate(random) if b >= 100]
    numbers = [number for _, number, _, _ in first.draws]
    assert numbers == unknown[: len(numbers)] != list(range(len(numbers)))
    assert [(a, b) for _, _, a, b in first.draws] == [random[number] for number in numbers]


def test_only_images_that_may_be_asked_about_are_drawn() -> None:
    images = EVERY[::3]
    first = heldout.first(random_space(0), images, NOTHING_KNOWN, TEN)
    assert {image for _, _, *pair in first.draws for image in pair} <= set(images.tolist())
    assert max(max(row[3:5]) for row in first.ranks) < len(images)  # ranks among them


def test_the_draws_depend_on_the_seed_and_the_round_alone(make: Make) -> None:
    def first(seed: int) -> HeldOut:
        return heldout.first(random_space(0), EVERY, NOTHING_KNOWN, replace(TEN, seed=seed))

    assert first(1) == first(1) != first(2)
    campaign = make(TEN, random_space(0))
    answer_open(campaign)
    one, same, other = (heldout.more(campaign, random_space(0), NOTHING_KNOWN, n) for n in (0, 0, 1))
    assert one == same
    assert [row[2:] for row in one.draws] != [row[2:] for row in other.draws]


def test_every_round_has_ten_open_pairs_and_none_that_was_answered(make: Make) -> None:
    campaign = make(TEN, random_space(0))
    asked: set[Pair] = set()
    for number in range(9):
        pairs = open_pairs(campaign)
        assert len(pairs) == 10
        answered = pairs[: 3 * (number % 4)]  # none, some or nearly all
        assert asked.isdisjoint(answered)
        asked |= set(answered)
        say(
            campaign, answered, [SIMILAR if i % 2 else UNSURE for i in range(len(answered))], Purpose.HELD_OUT
        )
        say(campaign, [(number, number + 50), (number, number + 70)], [SIMILAR, UNSURE])
        end_round(campaign, random_space(number % 2))
    assert progress.standing(campaign).heldout == len(asked)


def test_a_pair_that_is_drawn_twice_is_one_question(make: Make) -> None:
    campaign = make(TEN, random_space(0), images=EVERY[:14])  # 91 pairs: some are drawn again and again
    for number in range(5):
        pairs = open_pairs(campaign)
        assert len(pairs) == len(set(pairs)) == 10
        say(campaign, pairs[:4], [UNSURE] * 4, Purpose.HELD_OUT)
        end_round(campaign, random_space(number))
    draws = [pair for _, _, *pair in campaign.rounds.heldout_draws()]
    assert len(draws) > len(campaign.rounds.heldout_pairs()) + 5


def test_a_model_between_two_that_draw_leaves_it_to_the_earlier_one(make: Make) -> None:
    campaign = make(TEN, random_space(0))
    for number in range(6):
        answer_open(campaign)
        end_round(campaign, random_space(number + 1))
    draws = campaign.rounds.heldout_draws()
    assert {model for model, *_ in draws} == {FROZEN, 0, 1, 3}
    for model in (1, 3):
        numbers = [number for drawing, number, *_ in draws if drawing == model]
        assert numbers == list(range(len(numbers)))  # they go on where the round before stopped
        assert len({(a, b) for drawing, _, a, b in draws if drawing == model}) >= 20


def test_a_model_whose_vectors_are_lost_draws_no_more(make: Make) -> None:
    campaign = make(TEN, random_space(0))
    for number in range(2):
        answer_open(campaign)
        end_round(campaign, random_space(number + 1))
    answer_open(campaign)
    (campaign.rounds.files(1).folder / "vectors.npy").unlink()
    drawn = end_round(campaign, random_space(3))
    assert {model for model, *_ in drawn.draws} == {2}
    assert {row[0] for row in drawn.ranks} == {FROZEN, 0, 2}  # it is not ranked in the lost one


def test_every_pair_is_ranked_in_every_model(make: Make) -> None:
    spaces = {FROZEN: random_space(0), 0: random_space(1), 1: random_space(2)}
    campaign = make(TEN, spaces[FROZEN])
    for number in (0, 1):
        answer_open(campaign)
        end_round(campaign, spaces[number])
    pairs = Pairs.from_list(campaign.rounds.heldout_pairs())
    noted = campaign.store.ranks()
    assert set(noted) == {(model, a, b) for model in spaces for a, b in pairs}
    assert len(pairs) == 30
    for model, vectors in spaces.items():
        ranks = estimate.ranks(vectors.astype(np.float32), EVERY, pairs)
        rows = [noted[model, a, b] for a, b in pairs]
        assert [row[:2] for row in rows] == list(zip(ranks.ab.tolist(), ranks.ba.tolist(), strict=True))
        assert [row[2] for row in rows] == pytest.approx(ranks.score.tolist(), abs=1e-6)


# -- the five nearest ------------------------------------------------------------------------------


def test_the_five_nearest_of_every_image_never_include_the_image(rng: np.random.Generator) -> None:
    vectors = random_space(0)
    vectors[40:60] = vectors[40]  # all the same: the image itself need not come first
    images = EVERY[::2]
    results = heldout.query_results(vectors, images, rng)
    assert results.shape == (60, 6)
    assert results[:, 0].tolist() == images.tolist()
    for query, *others in results.tolist():
        rest = [i for i in images.tolist() if i != query]
        nearest = sorted(rest, key=lambda i: -float(vectors[query] @ vectors[i]))[:5]
        assert query not in others
        assert len(set(others)) == 5
        np.testing.assert_allclose(
            vectors[others] @ vectors[query], vectors[nearest] @ vectors[query], atol=1e-6
        )


@pytest.mark.parametrize("n", [2, 5, 6, 7])
def test_a_small_archive_has_fewer_results(n: int, rng: np.random.Generator) -> None:
    results = heldout.query_results(random_space(0), np.arange(n), rng)
    assert results.shape == (n, min(n, 6))
    assert all(query not in others for query, *others in results.tolist())


def test_of_many_images_the_same_few_are_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heldout, "QUERIES", 50)
    one, other = (
        heldout.query_results(random_space(seed), EVERY, TEN.rng(Stream.QUERIES)) for seed in (0, 1)
    )
    assert one.shape == (50, 6)
    assert one[:, 0].tolist() == other[:, 0].tolist() == sorted(set(one[:, 0].tolist()))


def test_the_number_of_queries_bounds_the_pairs_that_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert heldout.COMPARED // heldout.QUERIES == 100_000, "up to here it changes nothing"
    monkeypatch.setattr(heldout, "COMPARED", 120 * 30 + 119)
    results = heldout.query_results(random_space(0), EVERY, TEN.rng(Stream.QUERIES))
    assert results.shape == (30, 6)
    exact = heldout.query_results(random_space(0), EVERY[:60], TEN.rng(Stream.QUERIES))
    assert exact.shape == (60, 6), "fewer images have more queries"


# -- how good each model is ------------------------------------------------------------------------


def drawn_by_hand(*pairs: Pair, model: int = FROZEN) -> HeldOut:
    """These were drawn from a model in which each image of a pair is nearest to the other."""
    draws = [(model, number, a, b) for number, (a, b) in enumerate(pairs)]
    return HeldOut(draws, [(model, a, b, 0, 0, 0.9) for a, b in pairs])


@pytest.fixture
def by_hand(make: Make) -> Make:
    """Makes a campaign that drew these pairs; the results of each of ten queries are the five next images."""

    def made(*pairs: Pair) -> Campaign:
        campaign = make(TEN, random_space(), drawn_by_hand(*pairs))
        results = np.array([[query, *range(query + 1, query + 6)] for query in range(0, 60, 6)])
        campaign.rounds.files(FROZEN).save_space(random_space(), results)
        return campaign

    return made


def p5(campaign: Campaign) -> Estimate:
    (model,) = heldout.models(campaign)
    assert (model.round, model.answers) == (FROZEN, 0)
    return model.p5


def test_a_model_is_as_good_as_the_held_out_answers_say(by_hand: Make) -> None:
    drawn = [(i, i + 60) for i in range(20)]
    campaign = by_hand(*drawn)
    assert p5(campaign) == Estimate(0.5, 0.0, 1.0)
    for i, pair in enumerate(drawn):
        campaign.answer(*pair, SIMILAR if i % 4 else DISSIMILAR)
    assert p5(campaign).value == pytest.approx(0.75)
    assert 0.5 < p5(campaign).low < 0.6 < 0.85 < p5(campaign).high < 0.92
    campaign.answer(0, 1, SIMILAR)  # 1 is among the results of 0: 1 of 50 is known
    assert p5(campaign).value == pytest.approx(0.02 + 0.98 * 0.75)


def test_an_answer_after_a_missing_one_does_not_count(by_hand: Make) -> None:
    campaign = by_hand((0, 60), (1, 61), (2, 62))
    campaign.answer(0, 60, SIMILAR)
    campaign.answer(2, 62, DISSIMILAR)
    assert p5(campaign).value == 1.0
    campaign.answer(1, 61, UNSURE)  # an answer that tells nothing
    assert p5(campaign).value == 0.5


def test_a_drawn_pair_that_other_answers_settle_is_not_missing(by_hand: Make) -> None:
    campaign = by_hand((0, 60), (1, 61), (2, 62))
    say(campaign, [(1, 90), (61, 90)], [SIMILAR, SIMILAR])
    assert open_pairs(campaign) == [(0, 60), (2, 62)]
    campaign.answer(0, 60, SIMILAR)
    campaign.answer(2, 62, DISSIMILAR)
    assert p5(campaign).value == 0.5


def test_a_drawn_pair_that_was_unsure_before_is_not_missing(by_hand: Make) -> None:
    campaign = by_hand((0, 60), (1, 61), (2, 62))
    say(campaign, [(1, 61)], [UNSURE])
    campaign.answer(0, 60, SIMILAR)
    campaign.answer(2, 62, DISSIMILAR)
    assert p5(campaign).value == 0.5


def test_models_are_listed_with_their_costs(by_hand: Make) -> None:
    campaign = by_hand((0, 60), (1, 61))
    results = campaign.rounds.files(FROZEN).nearest()
    assert results is not None
    campaign.rounds.files(0).save_space(random_space(), results)
    both = [(model, *pair, 0, 0, 0.9) for model in (FROZEN, 0) for pair in ((0, 60), (1, 61), (2, 62))]
    drawn = HeldOut([(0, 0, 2, 62)], both)
    campaign.rounds.save(Record(0, 0, 0, answers=40, bits=41.5, minutes=3.25, cutoff=0.5), drawn)
    for pair in ((0, 60), (1, 61), (2, 62)):
        campaign.answer(*pair, SIMILAR)
    campaign.rounds.save(Record(1, 3, 1))  # its files are lost, and it has no estimate
    first, second = heldout.models(campaign)
    assert (first.round, first.answers, first.bits, first.minutes) == (FROZEN, 0, 0.0, 0.0)
    assert (second.round, second.answers, second.bits, second.minutes) == (0, 40, 41.5, 3.25)
    assert first.p5 == second.p5
    assert second.p5.value == 1.0


def true_p5(vectors: Floats) -> float:
    results = heldout.query_results(vectors, EVERY, np.random.default_rng(0))
    return float((KIND[results[:, 1:]] == KIND[results[:, :1]]).mean())


def test_the_interval_covers_the_true_precision(make: Make) -> None:
    covered = []
    errors = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        frozen = unit(space(good=True, seed=seed) + 0.3 * rng.normal(size=(120, 16))).astype(np.float32)
        campaign = make(replace(MANY, seed=seed, per_round=100), frozen)
        answer_open(campaign)
        learnt = unit(space(good=True, seed=seed) + 0.2 * rng.normal(size=(120, 16))).astype(np.float32)
        end_round(campaign, learnt)
        answer_open(campaign)
        for vectors, model in zip((frozen, learnt), heldout.models(campaign), strict=True):
            covered.append(model.p5.low <= true_p5(vectors) <= model.p5.high)
            errors.append(model.p5.value - true_p5(vectors))
            assert model.p5.high - model.p5.low < 0.3
    assert sum(covered) >= 17  # of 20, at 95 %
    assert abs(np.mean(errors)) < 0.03


# -- which model serves ----------------------------------------------------------------------------


def test_a_worse_model_stays_out_and_the_next_good_one_serves(make: Make) -> None:
    campaign = make(MANY, space(good=True, seed=1))
    assert (campaign.rounds.serving, heldout.refusal(campaign)) == (FROZEN, "")
    for number, (good, serving) in enumerate([(False, -1), (True, 1), (False, 1), (False, 1), (True, 4)]):
        answer_open(campaign)
        end_round(campaign, space(good, seed=1 if good else number))
        assert campaign.rounds.serving == serving
        np.testing.assert_array_equal(campaign.rounds.vectors(), space(good=True, seed=1))
        assert campaign.rounds.files(number).has_vectors  # saved all the same
        assert bool(heldout.refusal(campaign)) is (serving != number)
    assert [record.serving for record in campaign.rounds.records()] == [FROZEN, 1, 1, 1, 4]


def test_a_model_that_does_not_serve_is_reported_in_a_sentence(make: Make) -> None:
    campaign = make(TEN, random_space())
    campaign.rounds.save(Record(0, 0, serving=FROZEN))
    assert "The model of round 0 does not serve" in heldout.refusal(campaign)
    assert "the frozen features stay" in heldout.refusal(campaign)
    campaign.rounds.save(Record(1, 0, serving=1))
    assert heldout.refusal(campaign) == ""
    campaign.rounds.save(Record(2, 0, serving=1))
    assert "The model of round 2 does not serve" in heldout.refusal(campaign)
    assert "the model of round 1 stays" in heldout.refusal(campaign)


def test_without_held_out_answers_the_new_model_serves(make: Make) -> None:
    campaign = make(MANY, space(good=True, seed=1))
    save(campaign.rounds.files(0), space(good=False), MANY)
    assert heldout.choose_serving(campaign, 0, HeldOut([], [])) == 0
    answer_open(campaign)
    drawn = heldout.more(campaign, space(good=False), campaign.known(), 0)
    assert heldout.choose_serving(campaign, 0, drawn) == FROZEN


def test_wrong_answers_do_not_speak_for_the_model_that_learnt_them(make: Make) -> None:
    campaign = make(MANY, space(good=True, seed=1))
    answer_open(campaign)
    wrong = [(i, (i + 10 * j) % 120) for i in range(10) for j in range(1, 12)]
    say(campaign, wrong, [SIMILAR] * len(wrong))
    learnt = space(good=True, seed=1)[(EVERY % 10) * 10]  # near are those with the same last digit
    learnt = unit(learnt + 0.05 * np.random.default_rng(0).normal(size=learnt.shape)).astype(np.float32)
    end_round(campaign, learnt)
    assert campaign.rounds.serving == FROZEN
    frozen, new = heldout.models(campaign)
    assert new.p5.value > frozen.p5.value  # by all answers it looks better


def answer_as_asked(campaign: Campaign, n: int, inverted: bool = False) -> None:
    """A person answers n questions by kind, or says the opposite where it is learnt from."""
    kinds = truth(campaign)
    for _ in range(n):
        for question in take(campaign, "me", "h", 1):
            a, b = question.pair
            similar = (kinds[a] == kinds[b]) is not (inverted and question.purpose != Purpose.HELD_OUT)
            campaign.answer(a, b, SIMILAR if similar else DISSIMILAR)


def test_a_round_of_inverted_answers_does_not_reach_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fit, "length", lambda settings, known: 60)
    archive = pattern_archive(tmp_path, kinds=10, each=14)
    settings = replace(SETTINGS, strategy="place", per_round=80, heldout=0.5)
    with closing(machine.begin(tmp_path / "c", archive, settings, backbone=SHRUNK)) as campaign:
        rounds = campaign.rounds
        for _ in range(2):
            answer_as_asked(campaign, 80)
            machine.turn(campaign, SHRUNK)
        assert rounds.serving == 1
        answer_as_asked(campaign, 80, inverted=True)
        machine.turn(campaign, SHRUNK)
        assert (rounds.current, rounds.serving) == (3, 1)
        np.testing.assert_array_equal(rounds.vectors(), rounds.files(1).vectors())
        assert rounds.files(2).has_model
        for row in campaign.log().standing():  # the person sees it and corrects it
            if row.round == 2 and row.purpose != Purpose.HELD_OUT:
                similar = archive.labels[row.a] == archive.labels[row.b]
                campaign.correct(row.id, SIMILAR if similar else DISSIMILAR)
        machine.turn(campaign, SHRUNK)
        assert (rounds.current, rounds.serving, heldout.refusal(campaign)) == (4, 3, "")


# -- removing old files ----------------------------------------------------------------------------


def with_files(campaign: Campaign) -> set[int]:
    numbers = range(FROZEN, campaign.rounds.current)
    return {number for number in numbers if campaign.rounds.files(number).has_vectors}


def bytes_on_disk(campaign: Campaign) -> int:
    return sum(file.stat().st_size for file in (campaign.folder / "rounds").rglob("*") if file.is_file())


def test_only_the_last_rounds_the_serving_one_and_those_that_drew_keep_their_files(make: Make) -> None:
    campaign = make(TEN, space(good=False, seed=9))
    one_round = bytes_on_disk(campaign)
    for number in range(20):
        answer_open(campaign)
        end_round(campaign, space(good=True, seed=number), prune=False, cutoff=0.5)
        before = {model.round: model.p5 for model in heldout.models(campaign)}
        heldout.prune(campaign)
        drew = {model for model, *_ in campaign.rounds.heldout_draws()}
        last = set(range(number - LAST + 1, number + 1)) & set(range(number + 1))
        assert with_files(campaign) == {FROZEN, campaign.rounds.serving, *drew, *last}
        assert {model for model, _, _ in campaign.store.ranks()} == with_files(campaign)
        listed = {model.round: model.p5 for model in heldout.models(campaign)}
        assert list(listed) == list(range(FROZEN, number + 1))  # every round is listed, pruned or not
        for record in campaign.rounds.records():
            if record.number not in with_files(campaign):
                assert listed[record.number] == before[record.number]  # its last estimate stays
    assert drew == {FROZEN, 0, 1, 3, 7, 15}
    assert bytes_on_disk(campaign) <= (len(drew) + LAST + 1) * one_round * 1.1
    assert campaign.rounds.records()[5].p5 is not None
    assert campaign.rounds.records()[5].cutoff == 0.5  # the other figures stay


@given(st.integers(1, 2000))
def test_the_number_of_rounds_that_draw_grows_with_the_logarithm(rounds: int) -> None:
    assert sum(heldout.is_drawing(number) for number in range(rounds)) <= np.log2(rounds) + 1


def test_the_serving_model_keeps_its_files_however_old_it_is(make: Make) -> None:
    campaign = make(MANY, space(good=False, seed=9))
    for number in range(9):
        answer_open(campaign)
        end_round(campaign, space(good=number == 2, seed=number))
    assert campaign.rounds.serving == 2
    assert campaign.rounds.files(2).has_vectors
    assert not campaign.rounds.files(4).has_vectors
    np.testing.assert_array_equal(campaign.rounds.vectors(), space(good=True, seed=2))


def test_a_model_without_files_never_serves_again(make: Make) -> None:
    campaign = make(MANY, space(good=False, seed=9))
    for number in range(6):  # nobody answers held-out questions, so every model serves
        end_round(campaign, space(good=number == 2, seed=number))
        assert campaign.rounds.serving == number
    assert not campaign.rounds.files(2).has_vectors
    answer_open(campaign)  # now round 2 turns out to be the best
    end_round(campaign, space(good=False, seed=6))
    assert campaign.rounds.files(campaign.rounds.serving).has_vectors


def test_pinned_rounds_keep_their_files(make: Make) -> None:
    campaign = make(replace(TEN, heldout=0.0), random_space())
    for number in range(6):
        save(campaign.rounds.files(number), random_space(number), TEN)
        campaign.rounds.save(Record(number, 0, number))
        heldout.prune(campaign, pinned=(1,))
    assert with_files(campaign) == {FROZEN, 1, 3, 4, 5}
