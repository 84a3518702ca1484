"""Neighbours by the frozen features: found once, read back to the digit, never read for other images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import SETTINGS, campaign_in, pattern_archive

from anneal.archive.catalog import Archive
from anneal.campaign import neighbours
from anneal.campaign.campaign import Campaign
from anneal.campaign.neighbours import by_frozen
from anneal.campaign.rounds import FROZEN
from anneal.method.groups import neighbour_table
from anneal.method.neighbours import Ranking
from anneal.pairs import Ids

ASKED = np.delete(np.arange(120), [5, 40, 41])  # the images of the campaign


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return pattern_archive(tmp_path_factory.mktemp("patterns"))


@pytest.fixture
def campaign(archive: Archive, tmp_path: Path) -> Iterator[Campaign]:
    with closing(campaign_in(tmp_path / "c", archive, SETTINGS, images=ASKED)) as made:
        yield made


def found(campaign: Campaign, images: Ids) -> Ranking:
    return by_frozen(campaign, campaign.rounds.vectors(FROZEN), images)


def file_of(campaign: Campaign) -> Path:
    return campaign.rounds.files(FROZEN).neighbours


def assert_right(campaign: Campaign, images: Ids) -> None:
    ranking = found(campaign, images)
    expected = neighbour_table(campaign.rounds.vectors(FROZEN), images, centred=True)
    for one, other in ((ranking.ids, expected.ids), (ranking.scores, expected.scores)):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each search has, from now on."""
    sizes: list[int] = []

    def noted(vectors: Any, images: Ids, centred: bool) -> Ranking:
        sizes.append(len(images))
        return neighbour_table(vectors, images, centred)

    monkeypatch.setattr(neighbours, "neighbour_table", noted)
    return sizes


def test_neighbours_are_found_once_and_read_back_to_the_digit(
    campaign: Campaign, searches: list[int]
) -> None:
    for _ in range(3):
        assert_right(campaign, ASKED)
    assert searches == [117]


def test_of_other_images_they_are_found_anew_and_what_is_stored_stays(
    campaign: Campaign, searches: list[int]
) -> None:
    found(campaign, ASKED)
    before = file_of(campaign).read_bytes()
    assert_right(campaign, ASKED[3:])  # drawn out of too many, say
    assert searches == [117, 114]
    assert file_of(campaign).read_bytes() == before


def test_new_features_forget_the_neighbours_of_the_old_ones(campaign: Campaign) -> None:
    found(campaign, ASKED)
    rng = np.random.default_rng(1)
    campaign.rounds.files(FROZEN).save_features(rng.normal(size=(120, 6)).astype(np.float32))
    assert not file_of(campaign).exists()
    campaign.rounds.forget()
    assert_right(campaign, ASKED)


def test_few_images_have_few_neighbours(campaign: Campaign) -> None:
    assert found(campaign, ASKED[:4]).ids.shape == (4, 4)


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": np.full((117, 11), 117)},
        {"rows": np.full((117, 11), -1)},
        {"rows": np.zeros((117, 3), np.int64), "scores": np.zeros((117, 3))},
        {"scores": np.full((117, 11), np.nan)},
        {"scores": np.tile(np.arange(11.0), (117, 1))},
        {"scores": np.array([[{}] * 11] * 117)},
    ],
    ids=["past-the-end", "before-the-start", "narrow", "no-numbers", "worst-first", "objects"],
)
def test_a_table_that_cannot_be_right_is_not_read(campaign: Campaign, changed: dict[str, Any]) -> None:
    found(campaign, ASKED)
    with np.load(file_of(campaign)) as saved:
        whole = dict(saved)
    with file_of(campaign).open("wb") as out:
        np.savez(out, **{**whole, **changed})
    assert_right(campaign, ASKED)


def test_a_torn_file_is_not_read(campaign: Campaign) -> None:
    found(campaign, ASKED)
    file_of(campaign).write_bytes(file_of(campaign).read_bytes()[:500])
    assert_right(campaign, ASKED)
