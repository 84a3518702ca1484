"""Groups and their names: what answers give, what people call it, merge and split, and where the rest is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tiny import SETTINGS, campaign_in, end_round, pattern_archive

from anneal.archive.catalog import Archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.groups import Classes, classify, give_name, merge, plan_split, settled_classes, split_off
from anneal.errors import UsageError
from anneal.method.neighbours import unit
from anneal.pairs import Floats, Verdict
from anneal.settings import Settings

SIMILAR, DISSIMILAR, UNSURE = Verdict


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return pattern_archive(tmp_path_factory.mktemp("patterns"), kinds=4, each=6)


def by_kind(archive: Archive) -> Floats:
    """Each kind around a corner of its own."""
    rng = np.random.default_rng(1)
    return unit(np.eye(4)[archive.classes] + 0.1 * rng.normal(size=(len(archive), 4))).astype(np.float32)


@pytest.fixture
def campaign(tmp_path: Path, archive: Archive) -> Iterator[Campaign]:
    """24 images of 4 kinds: 0–5, 6–11, 12–17, 18–23."""
    with closing(campaign_in(tmp_path / "c", archive, SETTINGS, vectors=by_kind(archive))) as made:
        yield made


def members(campaign: Campaign) -> dict[str, list[int]]:
    return {one.title: one.images.tolist() for one in settled_classes(campaign)}


def say(campaign: Campaign, *pairs: tuple[int, int], verdict: Verdict = SIMILAR, who: str = "me") -> None:
    for a, b in pairs:
        campaign.answer(a, b, verdict, who)


def test_groups_are_what_similar_answers_connect(campaign: Campaign) -> None:
    say(campaign, (6, 7), (0, 1), (1, 3))
    say(campaign, (0, 6), (12, 13), verdict=DISSIMILAR)
    assert members(campaign) == {"group 0": [0, 1, 3], "group 6": [6, 7]}


@pytest.mark.parametrize("closure", ["none", "single", "full"])
def test_groups_do_not_depend_on_the_closure(tmp_path: Path, archive: Archive, closure: str) -> None:
    settings = Settings(px=32, closure=closure, strategy="mgue")
    with closing(campaign_in(tmp_path / "c", archive, settings, vectors=by_kind(archive))) as campaign:
        say(campaign, (0, 1), (1, 2), (2, 3), (3, 4))
        assert members(campaign) == {"group 0": [0, 1, 2, 3, 4]}
        assert classify(campaign).column[5] == 0


def test_a_name_stays_with_its_images(campaign: Campaign) -> None:
    say(campaign, (0, 1), (6, 7))
    give_name(campaign, [1], " harbour ")
    assert members(campaign) == {"harbour": [0, 1], "group 6": [6, 7]}
    say(campaign, (1, 2))
    assert members(campaign)["harbour"] == [0, 1, 2]
    give_name(campaign, [7], "port")
    say(campaign, (2, 6))
    assert members(campaign) == {"port": [0, 1, 2, 6, 7]}, "merged groups take the latest name"
    give_name(campaign, [0], "")
    assert members(campaign) == {"group 0": [0, 1, 2, 6, 7]}


def test_groups_of_one_name_are_one_class_and_a_named_image_is_settled(campaign: Campaign) -> None:
    say(campaign, (0, 1), (3, 4))
    give_name(campaign, [0, 4, 5], "river")
    (river,) = settled_classes(campaign)
    assert (river.images.tolist(), river.groups, river.number) == ([0, 1, 3, 4, 5], [0, 3, 5], 0)
    give_name(campaign, river.groups, "stream")
    assert members(campaign) == {"stream": [0, 1, 3, 4, 5]}


def test_class_labels_give_names(campaign: Campaign) -> None:
    campaign.label([(0, "field"), (1, "field"), (2, "forest"), (3, "forest")])
    assert members(campaign) == {"field": [0, 1], "forest": [2, 3]}
    give_name(campaign, [2], "wood")
    assert members(campaign) == {"field": [0, 1], "wood": [2, 3]}


@pytest.mark.parametrize("name", ["x" * 201, "two\nlines", "bell\a"])
def test_a_name_that_is_not_one_short_line_is_refused(campaign: Campaign, name: str) -> None:
    with pytest.raises(UsageError, match="one line of 200 letters"):
        give_name(campaign, [0], name)
    with pytest.raises(UsageError, match="from 0 to 23"):
        give_name(campaign, [24], "harbour")
    assert campaign.store.names() == []


# -- the rest ------------------------------------------------------------------------------------------


def check_consistent(campaign: Campaign, classes: Classes) -> None:
    for place, one in enumerate(classes.every):
        assert (classes.column[one.images] == place).all()
        assert classes.settled[one.images].all()
    assert classes.settled.sum() == sum(len(one.images) for one in classes.every)
    assert (classes.score[classes.settled] == 1).all()
    assert ((classes.score >= 0) & (classes.score <= 1)).all()


def test_every_other_image_is_placed_with_a_score(campaign: Campaign, archive: Archive) -> None:
    assert classify(campaign).column.tolist() == [-1] * 24
    say(campaign, (0, 1), (6, 7), (12, 13), (18, 19))
    end_round(campaign, cutoff=0.5)
    classes = classify(campaign)
    check_consistent(campaign, classes)
    assert classes.column.tolist() == archive.classes.tolist()
    assert (classes.score[~classes.settled] > 0.9).all()
    assert classes.at_least(0.9999).column[~classes.settled].tolist() == [-1] * 16
    assert (classes.at_least(0.9999).column >= 0).sum() == 8, "settled ones stay"


def test_a_prediction_never_contradicts_an_answer(campaign: Campaign) -> None:
    say(campaign, (0, 1), (6, 7))
    say(campaign, (1, 2), verdict=DISSIMILAR)
    classes = classify(campaign)
    assert classes.of(3) is classes.every[0]
    assert classes.of(2) is classes.every[1]
    say(campaign, (2, 7), verdict=DISSIMILAR)
    assert classify(campaign).of(2) is None


def test_only_images_that_may_be_asked_about_are_placed(tmp_path: Path, archive: Archive) -> None:
    images = np.arange(12)
    space = by_kind(archive)
    with closing(campaign_in(tmp_path / "c", archive, SETTINGS, vectors=space, images=images)) as campaign:
        say(campaign, (0, 1), (6, 7), (18, 19))
        classes = classify(campaign)
        assert [one.number for one in classes.every] == [0, 6]
        assert (classes.column[:12] >= 0).all()
        assert (classes.column[12:] == -1).all()


# -- merge and split -----------------------------------------------------------------------------------


def test_merging_is_a_similar_answer_and_keeps_the_first_name(campaign: Campaign) -> None:
    say(campaign, (0, 1), (6, 7))
    give_name(campaign, [0], "harbour")
    give_name(campaign, [6], "port")
    number = merge(campaign, 0, 6, "ann")
    row = campaign.log().row(number)
    assert row is not None
    assert (row.pair, row.verdict, row.annotator) == ((0, 6), SIMILAR, "ann")
    assert members(campaign) == {"harbour": [0, 1, 6, 7]}
    with pytest.raises(UsageError, match="two groups"):
        merge(campaign, 3, 3)


def test_images_that_are_split_off_leave_with_what_connects_them(campaign: Campaign) -> None:
    say(campaign, (0, 1), (1, 2), (2, 3), (3, 4))
    say(campaign, (1, 2), who="ann")
    give_name(campaign, [3], "harbour")
    plan = plan_split(campaign, [3, 2])
    assert [row.pair for row in plan.rows] == [(1, 2), (3, 4), (1, 2)]
    assert (plan.leaving, plan.staying) == ([[2, 3]], [[0, 1], [4]])
    assert len(campaign.log().rows) == 5, "a plan changes nothing"
    assert split_off(campaign, [2, 3], "bob") == plan
    assert members(campaign) == {"harbour": [0, 1], "group 2": [2, 3]}
    assert campaign.known().among(np.array([0]), np.array([2])).tolist() == [[DISSIMILAR]]
    assert campaign.contradictions() == []


def test_a_split_that_means_nothing_is_refused(campaign: Campaign) -> None:
    say(campaign, (0, 1), (6, 7))
    campaign.label([(12, "a"), (13, "a")])
    for images, why in (([0, 6], "not of one group"), ([0, 1], "leave at least one"), ([12], "class label")):
        with pytest.raises(UsageError, match=why):
            split_off(campaign, images)
    with pytest.raises(UsageError, match="from 0 to 23"):
        split_off(campaign, [])
    assert len(campaign.log().rows) == 2
