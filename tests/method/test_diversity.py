"""Diversity: one pair per cluster."""

import numpy as np
import pytest

from anneal.method.diversity import (
    DIVERSITIES,
    best_per_cluster,
    kmeans,
    none,
    pair_vectors,
    representatives,
)
from anneal.method.mining import Mined
from anneal.pairs import Floats, Pairs


def seed(number: int) -> np.random.Generator:
    return np.random.default_rng(number)


def test_a_pair_vector_is_the_sum_and_the_absolute_difference() -> None:
    vectors = np.array([[1.0, -2.0], [4.0, 0.5], [0.0, 3.0]])
    pairs = pair_vectors(vectors[[0, 1]], vectors[[1, 2]])
    assert pairs.tolist() == [[5.0, -1.5, 3.0, 2.5], [4.0, 3.5, 4.0, 2.5]]


def test_a_pair_vector_does_not_depend_on_the_order_of_the_images() -> None:
    u, v = seed(0).normal(size=(2, 6, 3))
    np.testing.assert_array_equal(pair_vectors(u, v), pair_vectors(v, u))


def far_clusters(rng: np.random.Generator, n: int) -> tuple[list[int], Floats, Floats]:
    """The cluster, the point and the score of each row, best score first. The n clusters are far apart."""
    cluster = [*range(n), *rng.integers(0, n, int(rng.integers(0, 40))).tolist()]
    rng.shuffle(cluster)
    centres = 1000.0 * np.eye(n)
    points = centres[cluster] + rng.normal(size=(len(cluster), n))
    scores = -np.sort(rng.random(len(cluster)))
    return cluster, points, scores


def test_each_cluster_gives_its_most_uncertain_row_best_first() -> None:
    rng = seed(1)
    for _ in range(60):
        cluster, points, scores = far_clusters(rng, int(rng.integers(1, 9)))
        best: dict[int, int] = {}
        for row, label in enumerate(cluster):
            if label not in best or scores[row] > scores[best[label]]:
                best[label] = row
        expected = sorted(best.values(), key=lambda row: -float(scores[row]))
        assert best_per_cluster(points, scores, len(best), rng).tolist() == expected


def test_a_cluster_is_represented_by_a_known_point_or_by_the_one_nearest_to_its_centre() -> None:
    rng = seed(4)
    for _ in range(40):
        labels, points, _ = far_clusters(rng, int(rng.integers(2, 9)))
        cluster = np.asarray(labels)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        known = rng.random(len(points)) < 0.2
        chosen, sizes = representatives(points, len(set(labels)), known, rng)
        assert sorted(cluster[chosen].tolist()) == sorted(set(labels))
        for row, size in zip(chosen.tolist(), sizes.tolist(), strict=True):
            rows = np.flatnonzero(cluster == cluster[row])
            assert size == len(rows)
            some = rows[known[rows]] if known[rows].any() else rows
            assert row in some
            similarity = points @ points[rows].mean(axis=0)
            assert similarity[row] == pytest.approx(similarity[some].max(), abs=1e-12)


def test_kmeans_takes_the_most_uncertain_pair_of_each_cluster_of_pairs() -> None:
    # Images 0-2, 3-5 and 6-8 are three clusters, so the pairs within and between them are six clusters.
    vectors = np.repeat(np.eye(3), 3, axis=0) + 0.01 * seed(2).normal(size=(9, 3))
    pairs = Pairs.of([0, 1, 3, 0, 4, 0, 1, 6], [1, 2, 4, 3, 2, 6, 7, 5])
    mined = Mined(pairs, -np.arange(8) / 10)
    chosen = kmeans(vectors, mined, 5, seed(0))
    assert list(chosen) == [(0, 1), (3, 4), (0, 3), (0, 6), (5, 6)]


def test_none_takes_the_most_uncertain_pairs() -> None:
    mined = Mined(Pairs.of([5, 1, 0], [6, 2, 9]), np.array([3.0, 2.0, 1.0]))
    assert list(none(np.ones((10, 2)), mined, 2, seed(0))) == [(5, 6), (1, 2)]
    assert list(none(np.ones((10, 2)), mined, 5, seed(0))) == [(5, 6), (1, 2), (0, 9)]


@pytest.mark.parametrize("n", [1, 2, 5, 17, 29, 30, 31])
def test_there_are_n_distinct_rows_in_order_of_score_and_the_first_is_the_best_of_all(n: int) -> None:
    points = seed(3).normal(size=(30, 4))
    scores = -np.sort(seed(4).random(30))
    rows = best_per_cluster(points, scores, n, seed(5)).tolist()
    assert len(set(rows)) == len(rows) == min(n, 30)
    assert rows == sorted(rows)
    assert rows[0] == 0
    assert set(rows) <= set(range(30))


def test_if_points_coincide_the_best_of_the_others_fill_up_the_rows() -> None:
    points = np.repeat(np.array([[0.0, 0.0], [9.0, 9.0]]), [4, 3], axis=0)
    scores = -np.arange(7.0)
    assert best_per_cluster(points, scores, 5, seed(0)).tolist() == [0, 1, 2, 3, 4]
    assert best_per_cluster(points[::-1], scores, 2, seed(0)).tolist() == [0, 3]
    assert best_per_cluster(np.zeros((6, 2)), -np.arange(6.0), 4, seed(0)).tolist() == [0, 1, 2, 3]


def test_without_points_there_are_no_rows() -> None:
    assert best_per_cluster(np.empty((0, 3)), np.empty(0), 4, seed(0)).tolist() == []
    empty = Mined(Pairs.none(), np.empty(0))
    assert list(kmeans(np.ones((3, 2)), empty, 2, seed(0))) == []


def test_the_seed_determines_the_rows_and_the_arguments_do_not_change() -> None:
    points = seed(6).normal(size=(60, 3))
    scores = -np.sort(seed(7).random(60))
    before = (points.tobytes(), scores.tobytes())
    every = [best_per_cluster(points, scores, 10, seed(s)).tolist() for s in (0, 0, 1, 2, 3)]
    assert every[0] == every[1]
    assert any(rows != every[0] for rows in every[2:])
    assert (points.tobytes(), scores.tobytes()) == before


def test_diversities_have_names() -> None:
    assert (DIVERSITIES["kmeans"], DIVERSITIES["none"]) == (kmeans, none)
    assert list(DIVERSITIES) == ["kmeans", "kmeans-sum", "kmeans-product", "none"]


@pytest.mark.parametrize("name", DIVERSITIES)
def test_no_diversity_depends_on_the_order_of_the_images(name: str) -> None:
    vectors = seed(0).normal(size=(12, 3))
    pairs = Pairs.of(np.arange(6), np.arange(6, 12))
    swapped = Pairs.of(11 - pairs.a, 11 - pairs.b)  # the same images in the reversed archive, b before a
    for n in (2, 4):
        chosen = DIVERSITIES[name](vectors, Mined(pairs, -np.arange(6.0)), n, seed(1))
        other = DIVERSITIES[name](vectors[::-1], Mined(swapped, -np.arange(6.0)), n, seed(1))
        assert sorted(zip(11 - other.b, 11 - other.a, strict=True)) == sorted(chosen)
