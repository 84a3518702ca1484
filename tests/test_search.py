"""Search by example: images of the archive, files from outside, and refined queries."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from anneal.archive.catalog import Archive
from anneal.campaign import turn
from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import FROZEN
from anneal.errors import UsageError
from anneal.method.neighbours import Index, Ranking, build_index, unit
from anneal.network import backbones
from anneal.network.backbones import Backbone
from anneal.pairs import Floats, Ids, Verdict
from anneal.search import find_similar, nearest_images, read_pixels, refined
from anneal.settings import Settings


@pytest.fixture
def campaign(
    small_archive: Archive, shrunk: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Campaign]:
    monkeypatch.setattr(backbones, "load", lambda name: shrunk)
    settings = Settings(px=32, per_round=5, heldout=0.0)
    with closing(turn.begin(tmp_path / "c", small_archive, settings, backbone=shrunk)) as campaign:
        yield campaign


def test_an_image_of_the_archive_finds_the_nearest_others(campaign: Campaign, drawn: Path) -> None:
    vectors = np.array(campaign.rounds.vectors(FROZEN))
    order = np.argsort(-(vectors @ vectors[7]), kind="stable")
    expected = [i for i in order.tolist() if i != 7][:4]
    told: list[tuple[int, int]] = []
    paths: list[Path | str] = [Path("beach/beach_007.jpg"), str(drawn / "beach" / "beach_007.jpg")]
    every = find_similar(campaign, paths, k=4, progress=lambda done, total: told.append((done, total)))
    for results in every:
        assert results.query == "beach/beach_007.jpg"
        assert results.ids == expected
        assert results.paths == [campaign.archive().paths[i] for i in expected]
        assert results.scores == pytest.approx((vectors[expected] @ vectors[7]).tolist(), abs=1e-6)
        assert results.pixels.shape == (32, 32, 3)
    assert told == [(1, 2), (2, 2)]


def test_only_a_file_from_outside_needs_the_network(
    campaign: Campaign, drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = Path(shutil.copy(drawn / "river" / "river_004.jpg", tmp_path / "stranger.jpg"))
    inside, outside = find_similar(campaign, ["river/river_004.jpg", stranger], k=3)
    assert outside.query == str(stranger)
    assert outside.paths[0] == "river/river_004.jpg", "its copy; an image of the archive does not find itself"
    assert outside.scores[0] == pytest.approx(1, abs=1e-4)
    assert outside.ids[1:] == inside.ids[:2]

    def no_network(name: str) -> Backbone:
        raise AssertionError("the network was loaded")

    monkeypatch.setattr(backbones, "load", no_network)
    assert find_similar(campaign, ["river/river_004.jpg"], k=3)[0].ids == inside.ids


@pytest.mark.usefixtures("few_steps")
def test_the_serving_model_is_searched(campaign: Campaign) -> None:
    campaign.answer(0, 1, Verdict.SIMILAR)
    campaign.answer(0, 119, Verdict.DISSIMILAR)
    turn.turn(campaign)
    (results,) = find_similar(campaign, ["beach/beach_000.jpg"], k=2)
    vectors = campaign.rounds.vectors(0)
    assert results.scores == pytest.approx((vectors[results.ids] @ vectors[0]).tolist(), abs=1e-6)


def test_a_query_that_is_no_image_is_refused(campaign: Campaign, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither an image of the archive nor a file"):
        find_similar(campaign, [tmp_path / "no.jpg"])
    (tmp_path / "x.jpg").write_text("no")
    with pytest.raises(UsageError, match="could not be read as an image"):
        read_pixels(tmp_path / "x.jpg", 32)


def test_images_can_be_left_out() -> None:
    vectors = np.eye(4, dtype=np.float32)
    vectors[1] = vectors[0]
    ids, scores = nearest_images(vectors, vectors[0], 2)
    assert sorted(ids.tolist()) == [0, 1]
    assert scores.tolist() == [1, 1]
    assert nearest_images(vectors, vectors[0], 1, [0])[0].tolist() == [1]
    assert len(nearest_images(vectors, vectors[0], 10, [0])[0]) == 3, "fewer if there are no more"


@pytest.mark.parametrize("left_out", [[], [0], [0, 5, 5, 2]])
def test_an_index_leaves_out_the_same_images(left_out: list[int], rng: np.random.Generator) -> None:
    vectors = unit(rng.normal(size=(600, 4))).astype(np.float32)
    wanted = refined([vectors[0]])
    exact_ids, exact_scores = nearest_images(vectors, wanted, 7, left_out)
    ids, scores = nearest_images(vectors, wanted, 7, left_out, build_index(vectors))
    assert ids.tolist() == exact_ids.tolist()
    assert not set(ids.tolist()) & set(left_out)
    assert scores == pytest.approx(exact_scores, abs=1e-6)


@pytest.mark.usefixtures("few_steps")
def test_a_large_archive_is_searched_by_an_index_from_its_first_day(
    small_archive: Archive, shrunk: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backbones, "load", lambda name: shrunk)
    monkeypatch.setattr("anneal.campaign.rounds.EXACT", 100)  # there are 120 images
    asked: list[int] = []
    search = Index.nearest

    def noted(index: Index, vectors: Floats, queries: Floats, k: int, without: Ids) -> Ranking:
        asked.append(len(index))
        return search(index, vectors, queries, k, without=without)

    monkeypatch.setattr(Index, "nearest", noted)
    settings = Settings(px=32, per_round=5, heldout=0.0)
    with closing(turn.begin(tmp_path / "large", small_archive, settings, backbone=shrunk)) as campaign:
        for number in (FROZEN, 0):
            (results,) = find_similar(campaign, ["beach/beach_000.jpg"], k=3)
            vectors = np.array(campaign.rounds.vectors(number))
            expected = nearest_images(vectors, vectors[0], 3, [0])[0]
            assert results.ids == expected.tolist()
            if number == FROZEN:
                campaign.answer(0, 1, Verdict.SIMILAR)
                campaign.answer(0, 119, Verdict.DISSIMILAR)
                turn.turn(campaign)
    assert asked == [120, 120]


def test_a_refined_query_is_the_mean_of_more_minus_half_the_mean_of_less(rng: np.random.Generator) -> None:
    a, b, c, d = rng.normal(size=(4, 5)).astype(np.float32)
    expected = (a + b) / 2 - (c + d) / 4
    assert refined([a, b], [c, d]) == pytest.approx(expected / np.linalg.norm(expected), abs=1e-6)
    assert refined([a]) == pytest.approx(a / np.linalg.norm(a), abs=1e-6)


@pytest.mark.parametrize("indexed", [False, True])
def test_retired_images_are_not_found_however_many_there_are(indexed: bool) -> None:
    vectors = unit(np.random.default_rng(0).normal(size=(2000, 8))).astype(np.float32)
    retired = np.random.default_rng(1).choice(2000, 1500, replace=False)
    index = build_index(vectors) if indexed else None
    ids, scores = nearest_images(vectors, vectors[7], 20, [], index, np.sort(retired))
    live = np.setdiff1d(np.arange(2000), retired)
    order = live[np.argsort(-(vectors[live] @ vectors[7]), kind="stable")[:20]]
    assert not set(ids.tolist()) & set(retired.tolist())
    assert len(set(ids.tolist()) & set(order.tolist())) >= (17 if indexed else 20)
    np.testing.assert_allclose(scores, vectors[ids] @ vectors[7], rtol=1e-5)
