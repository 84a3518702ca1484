"""Which group images are likely in, by the known groups of some of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anneal.method import groups
from anneal.method.groups import MAX_IMAGES, candidates, likely_groups, spread_labels, with_pseudo_labels
from anneal.method.neighbours import unit
from anneal.method.relations import Relations, full
from anneal.method.ridge import GroupRidge
from anneal.pairs import Answers, Floats, Pairs, Verdict

SIMILAR, DISSIMILAR, UNSURE = Verdict


def two_clusters(each: int = 15) -> Floats:
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(2, 8), each, axis=0)
    return unit(centres + 0.1 * rng.normal(size=(2 * each, 8)))


def relations(n: int, *answers: tuple[int, int, Verdict]) -> Relations:
    a, b, verdicts = zip(*answers, strict=True)
    return full(n, Answers.of(Pairs.of(a, b), verdicts)).relations


def test_an_image_is_likely_in_the_group_of_its_neighbours() -> None:
    known = relations(30, (0, 1, SIMILAR), (15, 16, SIMILAR), (0, 15, DISSIMILAR))
    membership = spread_labels(two_clusters(), np.arange(30), known)
    assert membership.groups.tolist() == sorted({int(known.group[0]), int(known.group[15])})
    np.testing.assert_allclose(membership.share.sum(axis=1), 1, rtol=1e-5)
    likeliest = membership.groups[membership.share.argmax(axis=1)]
    assert likeliest.tolist() == [known.group[0]] * 15 + [known.group[15]] * 15
    assert membership.disagreement(membership).max() < 0.25


def test_centred_neighbours_are_those_without_what_all_vectors_share() -> None:
    """Two kinds that differ a little beside a large common part: only centred vectors are far apart."""
    rng = np.random.default_rng(0)
    kinds = np.repeat([[0.1, 0.0], [0.0, 0.1]], 15, axis=0)
    vectors = unit(np.hstack([np.ones((30, 1)), kinds + 0.01 * rng.normal(size=(30, 2))]))
    plain = groups.neighbour_table(vectors, np.arange(30))
    centred = groups.neighbour_table(vectors, np.arange(30), centred=True)
    rows = vectors - vectors.mean(axis=0)
    similarity = unit(rows) @ unit(rows).T
    np.testing.assert_allclose(centred.scores, -np.sort(-similarity, axis=1)[:, :11], atol=1e-4)
    assert plain.scores.min() > 0.99
    assert (centred.ids[:15] < 15).all()
    assert similarity[:15, 15:].max() < -0.8


def test_two_groups_of_one_cluster_overlap_and_groups_of_different_clusters_do_not() -> None:
    known = relations(30, (0, 1, SIMILAR), (2, 3, SIMILAR), (15, 16, SIMILAR))
    membership = spread_labels(two_clusters(), np.arange(30), known)
    overlap = membership.overlap
    first, second, other = np.searchsorted(membership.groups, known.group[[0, 2, 15]])
    assert overlap[first, second] > 0.4
    assert max(overlap[first, other], overlap[second, other]) < 0.1
    np.testing.assert_allclose(np.diag(overlap), 1, rtol=1e-5)


def test_the_likely_group_is_by_the_mean_of_label_spreading_and_the_regression() -> None:
    vectors = two_clusters()
    known = relations(30, (0, 1, SIMILAR), (15, 16, SIMILAR), (0, 15, DISSIMILAR))
    near = groups.neighbour_table(vectors, np.arange(30), centred=True)
    both = likely_groups(vectors, np.arange(30), known, near)
    spread = spread_labels(vectors, np.arange(30), known, near)
    taught = np.array([0, 1, 15, 16])
    scores = GroupRidge(vectors[taught], taught, known.group[taught], groups.RIDGE).scores(vectors)
    weight = 2**scores  # e to the power of ln 2 times the score, for two groups
    by_regression = weight / weight.sum(1, keepdims=True)
    np.testing.assert_allclose(2 * both.share - spread.share, by_regression, atol=1e-5)
    assert both.groups.tolist() == spread.groups.tolist()
    assert both.groups[both.share.argmax(axis=1)].tolist() == [known.group[0]] * 15 + [known.group[15]] * 15


def test_likely_groups_do_not_depend_on_the_size_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = two_clusters()
    known = relations(30, (0, 1, SIMILAR), (15, 16, SIMILAR), (0, 15, DISSIMILAR))
    near = groups.neighbour_table(vectors, np.arange(30), centred=True)
    at_once = likely_groups(vectors, np.arange(30), known, near)
    monkeypatch.setattr(groups, "BLOCK", 7)
    in_blocks = likely_groups(vectors, np.arange(30), known, near)
    np.testing.assert_allclose(in_blocks.share, at_once.share, rtol=1e-5)


def test_the_regression_is_of_the_groups_that_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MAX_GROUPS", 1)
    vectors = two_clusters()
    known = relations(30, (0, 1, SIMILAR), (1, 2, SIMILAR), (15, 16, SIMILAR))
    near = groups.neighbour_table(vectors, np.arange(30), centred=True)
    both = likely_groups(vectors, np.arange(30), known, near)
    assert both.groups.tolist() == [known.group[0]]
    assert both.share.shape == (30, 1)


def test_an_image_that_no_label_reaches_is_the_most_uncertain_and_gets_no_pseudo_label() -> None:
    isolated = 31
    vectors = np.concatenate([two_clusters(), np.eye(2, 8, k=4)])  # the last two are like no other image
    known = relations(32, (0, 1, SIMILAR), (15, 16, SIMILAR), (0, 15, DISSIMILAR))
    membership = spread_labels(vectors, np.array([0, 1, 2, 15, 16, 17, isolated]), known)
    uncertainty = membership.disagreement(membership)
    assert uncertainty[-1] == uncertainty.max()
    taught = with_pseudo_labels(membership, known, 0.9)
    assert taught.sizes[taught.group[isolated]] == 1


def test_pseudo_labels_add_to_what_is_known_and_change_none_of_it() -> None:
    known = relations(30, (0, 1, SIMILAR), (15, 16, SIMILAR), (0, 15, DISSIMILAR), (14, 0, DISSIMILAR))
    taught = with_pseudo_labels(spread_labels(two_clusters(), np.arange(30), known), known, 0.5)
    every = np.arange(30)
    before = known.among(every, every)
    after = taught.among(every, every)
    settled = before != 0
    assert (after[settled] == before[settled]).all()
    assert after[5, 0] == SIMILAR
    assert after[5, 20] == DISSIMILAR
    assert after[14, 1] == DISSIMILAR  # image 14 has an answer, dissimilar: it keeps its own group
    assert taught.sizes[taught.group[14]] == 1


def test_two_spaces_disagree_about_the_images_that_change_clusters() -> None:
    one = two_clusters()
    other = two_clusters()
    other[[5, 20]] = other[[20, 5]]  # in the second space these two images are in each other's cluster
    known = relations(30, (0, 1, SIMILAR), (15, 16, SIMILAR), (0, 15, DISSIMILAR))
    membership_one, membership_other = (spread_labels(space, np.arange(30), known) for space in (one, other))
    disagreement = membership_one.disagreement(membership_other)
    assert sorted(np.argsort(-disagreement)[:2].tolist()) == [5, 20]
    assert disagreement[[5, 20]].min() > 0.8
    np.testing.assert_allclose(disagreement, membership_other.disagreement(membership_one))


def test_the_candidates_are_a_bounded_number_of_images_with_a_group_and_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n = MAX_IMAGES + 500
    known = relations(n, (0, 1, SIMILAR), (n - 1, 5, DISSIMILAR))
    images = candidates(np.arange(n), known, np.random.default_rng(0))
    assert len(images) == MAX_IMAGES + 4
    assert {0, 1, 5, n - 1} <= set(images.tolist())
    few = candidates(np.arange(100), relations(n, (0, 1, SIMILAR)), np.random.default_rng(0))
    assert few.tolist() == list(range(100))
    monkeypatch.setattr(groups, "MAX_IMAGES", 3)
    known = relations(20, *((0, i, SIMILAR) for i in range(1, 8)))
    drawn = candidates(np.arange(20), known, np.random.default_rng(0))
    assert ((drawn < 8).sum(), (drawn >= 8).sum()) == (3, 3)
    assert (np.diff(drawn) > 0).all()


def test_only_the_largest_groups_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(0, 1, SIMILAR), (1, 2, SIMILAR), (15, 16, SIMILAR), (0, 15, DISSIMILAR), (0, 29, DISSIMILAR)]
    known = relations(30, *answers)
    assert spread_labels(two_clusters(), np.arange(30), known).groups.tolist() == [0, 15, 29]
    monkeypatch.setattr(groups, "MAX_GROUPS", 2)
    membership = spread_labels(two_clusters(), np.arange(30), known)
    assert membership.groups.tolist() == [0, 15]
    assert membership.share.shape == (30, 2)
    assert membership.share[29].argmax() == 1  # it lies among the images of the second cluster


@given(st.integers(0, 2**32 - 1), st.integers(4, 40))
def test_the_shares_of_an_image_sum_to_one_or_to_zero(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = unit(rng.normal(size=(n, 5)))
    a, b = rng.permutation(n)[:2]
    known = relations(n, (int(a), int(b), Verdict(int(rng.integers(1, 3)))))
    membership = spread_labels(vectors, np.arange(n), known)
    total = membership.share.sum(axis=1)
    assert (np.isclose(total, 1, atol=1e-4) | (total == 0)).all()
    assert (membership.share >= 0).all()
    uncertainty = membership.disagreement(membership)
    assert ((uncertainty >= -1e-6) & (uncertainty <= 1)).all()


def test_the_neighbourhood_mean_is_over_the_nearest_images() -> None:
    angles = np.linspace(0, 1, 30)
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    membership = spread_labels(vectors, np.arange(30), relations(30, (0, 1, SIMILAR)))
    mean = membership.neighbourhood_mean(np.arange(30.0))
    assert mean[15] == np.arange(10, 21).mean()  # the image itself and five on each side
    assert mean[0] == np.arange(11).mean()
