"""Questions drawn by lot: what is drawn, what of it is asked, and where it is noted to stand."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anneal.archive.catalog import Archive, open_archive
from anneal.campaign import heldout, progress
from anneal.campaign.campaign import FROZEN, Campaign
from anneal.campaign.store import AUDIT, Questions
from anneal.method import estimate
from anneal.method.neighbours import unit
from anneal.method.relations import Relations, full
from anneal.pairs import Answers, Floats, Pairs, Verdict
from anneal.settings import Plan

SIMILAR, DISSIMILAR, UNSURE = Verdict
PLAN = Plan(px=32, strategy="mgue", per_round=40, audit=0.25)  # ten of them


def space(seed: int, n: int = 120) -> Floats:
    return unit(np.random.default_rng(seed).normal(size=(n, 4)))


def known(n: int, *rows: tuple[int, int, int]) -> Relations:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return full(n, Answers.of(Pairs.of(columns[:, 0], columns[:, 1]), columns[:, 2])).relations


def parted(n: int) -> Relations:
    """Two groups of which everything is known, and the rest."""
    return known(120, *((i, i + 2, SIMILAR) for i in range(n - 2)), (0, 1, DISSIMILAR))


@pytest.fixture
def archive(drawn: Path, cache: Path) -> Archive:
    return open_archive(drawn, 32, cache)


@pytest.fixture
def campaign(tmp_path: Path, archive: Archive) -> Iterator[Campaign]:
    with closing(Campaign.create(tmp_path / "campaign", archive, PLAN, np.arange(len(archive)))) as campaign:
        yield campaign


def turn(campaign: Campaign, number: int, vectors: Floats) -> heldout.Lot:
    """What the machine does of it in a round."""
    relations = campaign.closure().relations
    lot = heldout.draw(campaign, vectors, relations, number)
    folder = campaign.round_folder(number)
    folder.mkdir(parents=True)
    np.save(folder / "vectors.npy", vectors)
    questions = Questions.of(lot.asked, number + 1, AUDIT)
    campaign.store.finish_round(number, {}, questions, lot.kept)
    return lot


# -- the draw --------------------------------------------------------------------------------------


def test_as_many_are_asked_as_the_plan_says_in_the_order_they_were_drawn() -> None:
    lot = heldout.first(space(0), np.arange(120), known(120), PLAN)
    assert len(lot.asked) == len(set(lot.asked)) == 10
    drawn = list(estimate.draw(space(0), np.arange(120), 96, PLAN.rng(6, 0)))
    numbers = [number for _, number, _, _ in lot.kept.draws]
    assert numbers == list(range(len(numbers)))  # nothing was known, so none was passed over
    assert [(a, b) for _, _, a, b in lot.kept.draws] == drawn[: len(numbers)]
    assert list(lot.asked) == list(dict.fromkeys(drawn[: len(numbers)]))
    assert {model for model, *_ in lot.kept.draws} == {FROZEN}


@pytest.mark.parametrize("share", [0.0, 0.012])
def test_where_the_plan_wants_none_none_are_drawn(share: float) -> None:
    lot = heldout.first(space(0), np.arange(120), known(120), replace(PLAN, audit=share))
    assert (list(lot.asked), lot.kept.draws, lot.kept.places) == ([], [], [])


@pytest.mark.parametrize("images", [[], [7]])
def test_of_fewer_than_two_images_none_are_drawn(images: list[int]) -> None:
    lot = heldout.first(space(0), np.array(images, dtype=np.int64), known(120), PLAN)
    assert (list(lot.asked), lot.kept.draws) == ([], [])


def test_what_is_settled_is_passed_over_but_the_draws_are_counted() -> None:
    relations = parted(100)
    lot = heldout.first(space(0), np.arange(120), relations, PLAN)
    drawn = list(estimate.draw(space(0), np.arange(120), 96, PLAN.rng(6, 0)))
    open_ = [number for number, (a, b) in enumerate(drawn) if b >= 100]
    numbers = [number for _, number, _, _ in lot.kept.draws]
    assert numbers == open_[: len(numbers)] != list(range(len(numbers)))
    assert list(lot.asked) == list(dict.fromkeys(drawn[number] for number in numbers))
    assert len(lot.asked) == 10


def test_what_was_judged_before_is_drawn_and_not_asked(campaign: Campaign) -> None:
    before = heldout.draw(campaign, space(0), known(120), 0)
    judged = list(before.asked)[:4]
    for (a, b), verdict in zip(judged, (SIMILAR, DISSIMILAR, UNSURE, SIMILAR), strict=True):
        campaign.answer(a, b, verdict)
    lot = heldout.draw(campaign, space(0), known(120), 0)
    assert set(judged).isdisjoint(lot.asked)
    assert lot.kept.draws[: len(before.kept.draws)] == before.kept.draws
    assert len(lot.asked) == 10


def test_a_lot_depends_on_the_plans_seed_and_the_model_alone(campaign: Campaign) -> None:
    def draws(seed: int) -> list[tuple[int, int, int, int]]:
        return heldout.first(space(0), np.arange(120), known(120), replace(PLAN, seed=seed)).kept.draws

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)
    lots = [heldout.draw(campaign, space(0), known(120), number) for number in (0, 0, 1)]
    assert list(lots[0].asked) == list(lots[1].asked)
    assert list(lots[0].asked) != list(lots[2].asked)


def test_only_images_that_may_be_asked_about_are_drawn() -> None:
    images = np.arange(0, 120, 3)
    lot = heldout.first(space(0), images, known(120), PLAN)
    assert len(lot.asked) == 10
    assert {image for pair in lot.asked for image in pair} <= set(images.tolist())
    assert max(max(row[3:5]) for row in lot.kept.places) < len(images)  # ranks among them


# -- where they stand ------------------------------------------------------------------------------


def test_every_drawn_pair_is_noted_in_every_model(campaign: Campaign) -> None:
    spaces = {FROZEN: space(0), 0: space(1), 1: space(2)}
    first = heldout.first(spaces[FROZEN], campaign.images, known(120), PLAN)
    campaign.store.add_audit(first.kept)
    campaign.round_folder(FROZEN).mkdir(parents=True)
    np.save(campaign.round_folder(FROZEN) / "vectors.npy", spaces[FROZEN])
    for number in (0, 1):
        turn(campaign, number, spaces[number])
    drawn = {(a, b) for _, _, a, b in campaign.store.audits()}
    assert len(drawn) > 25
    noted = campaign.store.places()
    assert set(noted) == {(model, a, b) for model in spaces for a, b in drawn}
    pairs = Pairs.of(*zip(*drawn, strict=True))
    for model, vectors in spaces.items():
        at = estimate.places(vectors, campaign.images, pairs)
        rows = [noted[model, a, b] for a, b in pairs]
        assert [row[:2] for row in rows] == list(zip(at.ab.tolist(), at.ba.tolist(), strict=True))
        assert [row[2] for row in rows] == pytest.approx(at.score.tolist())


def test_a_model_whose_vectors_are_lost_is_passed_over(campaign: Campaign) -> None:
    turn(campaign, 0, space(1))
    (campaign.round_folder(0) / "vectors.npy").unlink()
    lot = turn(campaign, 1, space(2))
    assert {model for model, *_ in lot.kept.places} == {1}
    assert {(a, b) for _, _, a, b in campaign.store.audits()} == {row[1:3] for row in lot.kept.places}


def test_a_campaigns_lots_never_ask_what_is_settled_or_was_asked_before(campaign: Campaign) -> None:
    asked: list[tuple[int, int]] = []
    for number in range(4):
        lot = turn(campaign, number, space(number % 2))
        assert not set(lot.asked) & set(asked)
        assert campaign.closure().relations.of(lot.asked).tolist() == [0] * len(lot.asked)
        asked += list(lot.asked)
        for n, pair in enumerate(lot.asked):
            campaign.answer(*pair, SIMILAR if n % 2 else DISSIMILAR)
        campaign.answer_all(Pairs.of([number], [number + 50]), [SIMILAR], strategy="mgue")
    assert len(asked) == 40
    assert progress.standing(campaign).held_back == 40


# -- among the others ------------------------------------------------------------------------------


def chosen(n: int, levels: bool = False) -> Questions:
    pairs = Pairs.of(np.zeros(n, dtype=np.int64), np.arange(1, n + 1))
    return Questions.of(pairs, 3, "mgue", [i / n for i in range(n)] if levels else ())


def lot(n: int, first: int = 500) -> Pairs:
    return Pairs.of(np.full(n, first), np.arange(first + 1, first + n + 1))


@given(st.integers(0, 30), st.integers(0, 30), st.booleans())
def test_drawn_questions_take_the_place_of_as_many_chosen_ones_evenly_spread(
    n: int, m: int, levels: bool
) -> None:
    before, drawn = chosen(n, levels), lot(m)
    found = heldout.mixed(before, drawn)
    assert (len(found), found.round, found.audit.sum()) == (max(n, m), 3, m)
    pairs = np.array(list(found.pairs)).reshape(-1, 2)
    assert [tuple(pair) for pair in pairs[found.audit].tolist()] == list(drawn)
    assert [tuple(pair) for pair in pairs[~found.audit].tolist()] == list(before.pairs)[: max(n - m, 0)]
    for i, place in enumerate(np.flatnonzero(found.audit).tolist()):  # each in its own m-th of the queue
        assert abs(place + 0.5 - (i + 0.5) * len(found) / m) <= 1
    if levels:
        kept = [level for level, drawn_ in zip(found.levels, found.audit, strict=True) if not drawn_]
        assert kept == list(before.levels)[: max(n - m, 0)]
        assert {level for level, drawn_ in zip(found.levels, found.audit, strict=True) if drawn_} <= {None}


def test_a_question_that_was_chosen_and_drawn_is_asked_once_and_learnt_from() -> None:
    before = chosen(10)
    found = heldout.mixed(before, before.pairs[[2, 9]])
    assert list(found.pairs) == list(before.pairs)
    assert found.strategies == before.strategies


def test_a_held_back_answer_is_released_once_its_pair_is_chosen(campaign: Campaign) -> None:
    """Else what measures would be just those pairs that nobody cared to ask."""
    campaign.store.queue(Questions(Pairs.of([0, 2], [1, 3]), 0, (AUDIT, AUDIT)))
    campaign.answer(0, 1, SIMILAR, "ann")
    campaign.answer(2, 3, DISSIMILAR, "ann")
    assert (progress.standing(campaign).held_back, len(campaign.evidence())) == (2, 0)
    campaign.release(Questions.of(Pairs.of([2, 5], [3, 6]), 1, "mgue"))
    assert (progress.standing(campaign).held_back, progress.standing(campaign).answers) == (1, 2)
    assert list(campaign.evidence().pairs) == [(2, 3)]
    row = campaign.store.standing()[-1]
    assert (row.verdict, row.annotator, row.strategy, row.round, row.entered) == (
        DISSIMILAR, "ann", "mgue", 1, "machine",
    )  # fmt: skip


# -- the five nearest ------------------------------------------------------------------------------


def test_the_five_nearest_of_every_image_are_kept_and_never_the_image_itself(
    rng: np.random.Generator,
) -> None:
    vectors, images = space(0), np.arange(0, 120, 2)
    vectors[40:60] = vectors[40]  # alike: the image itself need not come first
    found = heldout.top(vectors, images, rng)
    assert found.shape == (60, 6)
    assert found[:, 0].tolist() == images.tolist()
    for query, *others in found.tolist():
        rest = [i for i in images.tolist() if i != query]
        expected = sorted(rest, key=lambda i: (-np.float32(vectors[query] @ vectors[i]), i))[:5]
        assert query not in others
        assert len(set(others)) == 5
        np.testing.assert_allclose(
            vectors[others] @ vectors[query], vectors[expected] @ vectors[query], atol=1e-6
        )


@pytest.mark.parametrize("n", [2, 5, 6, 7])
def test_a_small_archive_has_as_many_as_there_are(n: int, rng: np.random.Generator) -> None:
    found = heldout.top(space(0), np.arange(n), rng)
    assert found.shape == (n, min(n, 6))
    assert all(query not in others for query, *others in found.tolist())


def test_of_many_images_some_are_looked_at_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "QUERIES", 50)
    one, other = (heldout.top(space(seed), np.arange(120), PLAN.rng(5)) for seed in (0, 1))
    assert one.shape == (50, 6)
    assert one[:, 0].tolist() == other[:, 0].tolist() == sorted(set(one[:, 0].tolist()))
