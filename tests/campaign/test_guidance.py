"""How far a campaign is, and whether to stop: the line that is told, and when it changes."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny import SETTINGS, campaign_in, pattern_archive, random_space, say

from anneal.archive.catalog import Archive
from anneal.campaign import guidance, heldout
from anneal.campaign.campaign import Campaign
from anneal.campaign.guidance import Guidance
from anneal.campaign.rounds import FROZEN, Record
from anneal.campaign.store import Purpose
from anneal.errors import UsageError
from anneal.pairs import Verdict

SIMILAR, DISSIMILAR, _ = Verdict
FLAT = [0.9] * 12
RISING = [0.5 + 0.03 * i for i in range(12)]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return pattern_archive(tmp_path_factory.mktemp("patterns"))


@pytest.fixture
def campaign(archive: Archive, tmp_path: Path) -> Iterator[Campaign]:
    settings = replace(SETTINGS, heldout=0.1)
    with closing(campaign_in(tmp_path / "c", archive, settings, vectors=random_space())) as made:
        frozen = made.rounds.files(FROZEN)
        frozen.save_nearest(heldout.query_results(random_space(), made.images, np.random.default_rng(0)))
        say(made, [(0, 60)], [SIMILAR], Purpose.HELD_OUT)
        yield made


def learn(campaign: Campaign, values: list[float], width: float = 0.04) -> Guidance:
    """Rounds with these estimates, as if their files had been removed; those of the last but its results are
    there. Then it is decided."""
    results = campaign.rounds.files(FROZEN).nearest()
    assert results is not None
    for number, value in enumerate(values):
        p5 = (value, value - width / 2, min(value + width / 2, 1.0))
        campaign.rounds.save(Record(number, campaign.log().newest, number, answers=41 * (number + 1), p5=p5))
    last = campaign.rounds.files(len(values) - 1)
    last.save_space(np.array(campaign.rounds.vectors(FROZEN)), results)
    (last.folder / "top.npy").unlink()
    guidance.decide(campaign)
    return told(campaign)


def told(campaign: Campaign) -> Guidance:
    return guidance.guide(campaign, heldout.models(campaign))


def test_at_first_it_is_too_early_to_tell(campaign: Campaign) -> None:
    assert told(campaign).text.startswith("Too early to tell how much search finds")
    assert "Too early to tell what more answers would bring." in told(campaign).text
    assert told(campaign).stop is False


def test_a_vague_estimate_is_not_told_as_a_fact(campaign: Campaign) -> None:
    text = learn(campaign, FLAT, width=0.3).text
    assert "somewhere from 75 to 100 of 100" in text
    assert "Search finds" not in text
    assert not told(campaign).stop  # however flat


def test_a_rising_curve_tells_how_many_answers_bring_a_point(campaign: Campaign) -> None:
    advice = learn(campaign, RISING)
    assert advice.text.startswith("Search finds 83 of 100 (81–85). About 20 more answers would bring +1.")
    assert not advice.stop
    assert advice.gain is not None
    assert 0.02 < advice.gain.value < 0.05


def test_the_advice_is_to_stop_when_little_is_to_be_gained(campaign: Campaign) -> None:
    advice = learn(campaign, FLAT)
    assert advice.stop
    assert (
        "Search finds 90 of 100 (88–92). You can stop: 50 more answers would bring about +0." in advice.text
    )
    assert "less than +0.5." in advice.text


def test_where_search_finds_everything_nothing_more_is_to_be_gained(campaign: Campaign) -> None:
    text = learn(campaign, [1.0] * 12, width=0.0).text
    assert text == "Search finds 100 of 100. There is nothing more to gain."


def test_the_threshold_is_the_person_s_own(campaign: Campaign) -> None:
    assert learn(campaign, FLAT).stop
    guidance.set_stop_below(campaign, 0)
    advice = told(campaign)
    assert (advice.stop, advice.below) == (False, 0)
    assert "Go on after all: you have set the least gain to +0." in advice.text
    guidance.set_stop_below(campaign, 0.5)
    assert told(campaign).stop
    with pytest.raises(UsageError, match="give 0 to 100"):
        guidance.set_stop_below(campaign, -1)


def test_the_advice_to_stop_stays_without_a_reason_to_go_on(campaign: Campaign) -> None:
    assert learn(campaign, FLAT).stop
    later = learn(campaign, [*FLAT[:-2], 0.88, 0.91])
    assert later.stop
    dip = learn(campaign, [value - 0.03 * (11 - i) / 11 for i, value in enumerate(FLAT)])  # rises a little
    assert dip.stop


def test_corrected_answers_are_a_reason_to_go_on(campaign: Campaign) -> None:
    campaign.answer(1, 2, SIMILAR)
    assert learn(campaign, FLAT).stop
    campaign.answer(1, 2, DISSIMILAR)
    advice = learn(campaign, [0.5 + 0.035 * i for i in range(12)])
    assert not advice.stop
    assert "Go on after all: 1 answer was corrected." in advice.text


def test_a_quality_that_was_not_thought_possible_is_a_reason_to_go_on(campaign: Campaign) -> None:
    assert learn(campaign, [0.7] * 12).stop
    advice = learn(campaign, RISING)
    assert not advice.stop
    assert "Go on after all: search finds 83 of 100, more than was thought possible." in advice.text


def test_new_images_are_a_reason_to_go_on(campaign: Campaign) -> None:
    assert learn(campaign, FLAT).stop
    noted = campaign.store.setting("advice", {})
    campaign.store.set(advice={**noted, "images": noted["images"] - 7})
    assert "Go on after all: 7 images were added." in learn(campaign, RISING).text


def test_a_full_sort_is_told_when_it_is_near(campaign: Campaign) -> None:
    assert guidance.sorted_so_far(campaign) == ""
    n = len(campaign.images)
    say(campaign, [(i, i + 1) for i in range(n - 3)], [SIMILAR] * (n - 3))
    assert guidance.sorted_so_far(campaign) == f"2 of {n} images have no group yet."
    campaign.answer(n - 3, n - 2, SIMILAR)
    assert guidance.sorted_so_far(campaign) == f"1 of {n} images has no group yet."
    campaign.answer(n - 2, n - 1, SIMILAR)
    assert guidance.sorted_so_far(campaign) == f"All {n} images have a group."
