"""The guard: a model that the held-back answers say is worse does not go into service."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal.archive.catalog import Archive, open_archive
from anneal.campaign import heldout, judging, turn
from anneal.campaign.campaign import FROZEN, Campaign
from anneal.campaign.store import AUDIT, Audit, Questions
from anneal.experiments import scenes
from anneal.method import estimate
from anneal.method.neighbours import unit
from anneal.method.relations import none
from anneal.network import backbones, model
from anneal.pairs import Answers, Floats, Pairs, Verdict
from anneal.settings import Plan

SIMILAR, DISSIMILAR, UNSURE = Verdict


def judged(n: int, quality_: float, seed: int = 0) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], Floats]:
    """n pairs, a third of them similar, and similarities that tell them apart as well as that."""
    rng = np.random.default_rng(seed)
    similar = np.arange(n) % 3 == 0
    return similar, quality_ * similar + rng.normal(size=n)


def test_a_model_is_worse_if_it_tells_the_judged_pairs_apart_less_well() -> None:
    similar, good = judged(90, 3.0)
    _, bad = judged(90, 0.5, seed=1)
    _, other = judged(90, 3.0, seed=2)
    assert estimate.worse(similar, bad, good)
    assert not estimate.worse(similar, good, bad)
    assert not estimate.worse(similar, other, good)
    assert not estimate.worse(similar, good, good)
    assert not estimate.worse(similar, np.exp(good), good)  # the order is all that counts
    few = np.r_[0:12]  # four similar ones
    assert not estimate.worse(similar[few], bad[few], good[few])


def test_of_two_equal_models_one_is_seldom_called_worse() -> None:
    refused = 0
    for seed in range(200):
        similar, one = judged(60, 1.5, seed)
        _, other = judged(60, 1.5, seed + 1000)
        refused += estimate.worse(similar, one, other)
    assert refused <= 14  # of 200: one in forty, and three deviations


def test_the_area_is_the_chance_that_a_similar_pair_is_more_similar() -> None:
    similar = np.array([True] * 5 + [False] * 5)
    old = np.arange(10.0, 0, -1)  # every similar pair above every other
    new = np.array([10, 9, 8, 7, 1, 6, 5, 4, 3, 2])  # one below all
    assert estimate.worse(similar, new - 100.0 * similar, old)
    assert not estimate.worse(similar, new, old)  # one of five: no more than two standard errors


# -- the decision, in spaces made up ---------------------------------------------------------------

PLAN = Plan(px=32, per_round=200, audit=0.9)
KIND = np.arange(120) // 10


def space(good: bool, seed: int = 0) -> Floats:
    """Images around the middles of their kinds, as far as that goes, or anywhere."""
    rng = np.random.default_rng(seed)
    middles = unit(rng.normal(size=(12, 16)))[KIND] if good else 0.0
    return unit(middles + (0.2 if good else 1.0) * rng.normal(size=(120, 16))).astype(np.float32)


@pytest.fixture
def campaign(tmp_path: Path, drawn: Path, cache: Path) -> Iterator[Campaign]:
    archive = open_archive(drawn, 32, cache)
    with closing(Campaign.create(tmp_path / "campaign", archive, PLAN, np.arange(120))) as campaign:
        yield campaign


def begin(campaign: Campaign, vectors: Floats) -> None:
    known = none(120, Answers.none()).relations
    lot = heldout.first(vectors, campaign.images, known, PLAN)
    campaign.store.add_audit(lot.kept)
    keep(campaign, FROZEN, vectors)
    campaign.store.queue(Questions.of(lot.asked, 0, AUDIT))


def keep(campaign: Campaign, number: int, vectors: Floats) -> None:
    top = heldout.top(vectors, campaign.images, PLAN.rng(5))
    turn.save(campaign.round_folder(number), vectors=vectors, top=top)


def answer(campaign: Campaign) -> None:
    """All that is in the queue, by kind."""
    for a, b in campaign.store.questions().pairs:
        campaign.answer(a, b, SIMILAR if KIND[a] == KIND[b] else DISSIMILAR)


def turn(campaign: Campaign, number: int, vectors: Floats) -> int:
    """What the machine does of it in a round; what serves then."""
    lot = heldout.draw(campaign, vectors, campaign.closure().relations, number)
    keep(campaign, number, vectors)
    serves = judging.decide(campaign, number, lot.kept)
    questions = Questions.of(lot.asked, number + 1, AUDIT)
    campaign.store.finish_round(number, {"serves": serves}, questions, lot.kept)
    return serves


def test_a_bad_model_stays_out_and_the_next_good_one_goes_in(campaign: Campaign) -> None:
    begin(campaign, space(good=True, seed=1))
    assert (campaign.serving(), campaign.newest(), judging.refusal(campaign)) == (FROZEN, FROZEN, "")
    for number, (good, serves) in enumerate([(False, FROZEN), (True, 1), (False, 1), (False, 1), (True, 4)]):
        answer(campaign)
        vectors = space(good, seed=1 if good else number)
        assert turn(campaign, number, vectors) == serves
        assert (campaign.serving(), campaign.newest()) == (serves, number)
        np.testing.assert_array_equal(campaign.vectors(), space(good=True, seed=1))
        assert (campaign.round_folder(number) / "vectors.npy").exists()  # kept all the same
        assert bool(judging.refusal(campaign)) is (serves != number)
    assert [campaign.serving(before=number) for number in range(6)] == [FROZEN, FROZEN, 1, 1, 1, 4]


def test_what_is_not_in_service_is_told_in_a_sentence(campaign: Campaign) -> None:
    campaign.store.finish_round(0, {"serves": FROZEN}, Questions.of(Pairs.none(), 1, "mgue"))
    assert "round 0, is not in service" in judging.refusal(campaign)
    assert "the frozen features stay" in judging.refusal(campaign)
    campaign.store.finish_round(1, {"serves": 1}, Questions.of(Pairs.none(), 2, "mgue"))
    assert judging.refusal(campaign) == ""
    campaign.store.finish_round(2, {"serves": 1}, Questions.of(Pairs.none(), 3, "mgue"))
    assert "round 2, is not in service" in judging.refusal(campaign)
    assert "that of round 1 stays" in judging.refusal(campaign)


def test_rounds_of_campaigns_made_before_the_guard_serve_themselves(campaign: Campaign) -> None:
    for number in (0, 1):
        campaign.store.finish_round(number, {}, Questions.of(Pairs.none(), number + 1, "mgue"))
    assert (campaign.serving(), judging.refusal(campaign)) == (1, "")


def test_where_nothing_is_held_back_the_new_model_serves(campaign: Campaign) -> None:
    begin(campaign, space(good=True, seed=1))
    keep(campaign, 0, space(good=False))
    assert judging.decide(campaign, 0, Audit([], [])) == 0  # nobody has answered
    answer(campaign)
    lot = heldout.draw(campaign, space(good=False), campaign.closure().relations, 0)
    assert judging.decide(campaign, 0, lot.kept) == FROZEN


def test_wrong_answers_do_not_speak_for_the_model_that_learnt_them(campaign: Campaign) -> None:
    """A model whose neighbours are just those that were wrongly called similar."""
    begin(campaign, space(good=True, seed=1))
    answer(campaign)
    strangers = [(i, (i + 10 * j) % 120) for i in range(10) for j in range(1, 12)]
    campaign.answer_all(Pairs.of(*np.array(strangers).T), [SIMILAR] * len(strangers), strategy="place")
    wrong = space(good=True, seed=1)[(np.arange(120) % 10) * 10]  # near are those with the same last digit
    wrong = unit(wrong + 0.05 * np.random.default_rng(0).normal(size=wrong.shape)).astype(np.float32)
    assert turn(campaign, 0, wrong) == FROZEN
    frozen, new = judging.models(campaign)
    assert new.p5.value > frozen.p5.value  # by all answers it looks better


# -- a whole campaign ------------------------------------------------------------------------------


def played(campaign: Campaign, n: int, inverted: bool = False) -> None:
    """A person answers n questions as the folders say, or says the opposite where it is learnt from."""
    kinds = campaign.archive().labels
    for _ in range(n):
        for a, b in campaign.take("me", "h", 1):
            asker: Any = campaign.store.question(a, b)
            similar = (kinds[a] == kinds[b]) is not (inverted and asker[1] != AUDIT)
            campaign.answer(a, b, SIMILAR if similar else DISSIMILAR)


def test_a_round_of_inverted_answers_does_not_reach_search(cache: Path, tmp_path: Path) -> None:
    scenes.draw_archive(tmp_path / "archive", per_kind=20, seed=1, px=48)  # more than two rounds can place
    archive: Archive = open_archive(tmp_path / "archive", 64, cache)
    plan = Plan(px=64, views=1, per_round=150, audit=0.5, recheck=0)
    backbone = backbones.load(plan.backbone)
    with closing(turn.begin(tmp_path / "c", archive, plan)) as campaign:
        for _ in range(2):
            played(campaign, 150)
            turn.turn(campaign, backbone)
        assert campaign.serving() == 1
        played(campaign, 150, inverted=True)
        turn.turn(campaign, backbone)
        assert (campaign.newest(), campaign.serving()) == (2, 1)
        assert dict(campaign.store.rounds())[2]["serves"] == 1
        good = np.load(campaign.round_folder(1) / "vectors.npy")
        np.testing.assert_array_equal(campaign.vectors(), good)
        assert (campaign.round_folder(2) / "model.json").exists()
        used = turn.started(campaign, backbone, 3)  # training goes on from the one in service
        assert used is not None
        kept = model.load(campaign.round_folder(1), backbone).state_dict()
        assert all((used.state_dict()[name] == value).all() for name, value in kept.items())

        for row in campaign.store.standing():  # the person sees it and mends it
            if row.round == 2 and row.strategy != AUDIT:
                similar = archive.labels[row.a] == archive.labels[row.b]
                campaign.correct(row.id, SIMILAR if similar else DISSIMILAR)
        turn.turn(campaign, backbone)
        assert (campaign.newest(), campaign.serving(), judging.refusal(campaign)) == (3, 3, "")
