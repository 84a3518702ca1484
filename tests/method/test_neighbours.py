"""Nearest neighbours, checked against a full sort."""

import numpy as np
import pytest

from anneal.method.neighbours import Ranking, nearest, unit
from anneal.pairs import Floats, Ids


def brute(vectors: Floats, images: list[int], query: Floats, k: int) -> list[tuple[int, float]]:
    """Best first; of equal ones the smaller id first."""
    scored = [(-sum(x * y for x, y in zip(vectors[i], query, strict=True)), i) for i in set(images)]
    return [(i, -float(negative)) for negative, i in sorted(scored)][:k]


@pytest.mark.parametrize("strip", [1, 3, 256])
@pytest.mark.parametrize("block", [1, 2, 5, 65536])
def test_nearest_equals_brute_force_including_ties(strip: int, block: int) -> None:
    rng = np.random.default_rng(0)
    for k in (1, 2, 4, 9, 30, 31, 100):
        vectors = rng.integers(-1, 2, (40, 3)).astype(np.float32)  # exact products, many ties
        queries = rng.integers(-1, 2, (7, 3)).astype(np.float32)
        images = rng.permutation(40)[:30]
        ranking = nearest(vectors, images, queries, k, strip=strip, block=block)
        assert ranking.ids.shape == ranking.scores.shape == (7, min(k, 30))
        for row, query in enumerate(queries):
            expected = brute(vectors, images.tolist(), query, k)
            results = zip(ranking.ids[row].tolist(), ranking.scores[row].tolist(), strict=True)
            assert list(results) == expected


def test_nearest_orders_real_vectors_by_cosine_similarity() -> None:
    rng = np.random.default_rng(1)
    vectors = unit(rng.normal(size=(200, 16)))
    queries = unit(rng.normal(size=(9, 16)))
    ranking = nearest(vectors, np.arange(200), queries, 10, strip=4, block=33)
    for row, query in enumerate(queries):
        expected = brute(vectors, list(range(200)), query, 10)
        assert ranking.ids[row].tolist() == [i for i, _ in expected]
        assert ranking.scores[row].tolist() == pytest.approx([s for _, s in expected], abs=1e-6)


def test_an_image_given_twice_is_found_once() -> None:
    vectors = np.eye(4)
    ranking = nearest(vectors, np.array([3, 1, 3, 1, 1]), vectors[[1]], 5)
    assert ranking.ids.tolist() == [[1, 3]]
    assert ranking.scores.tolist() == [[1.0, 0.0]]


def test_of_equally_similar_images_the_smaller_id_comes_first() -> None:
    vectors = np.ones((8, 1))
    ranking = nearest(vectors, np.array([7, 5, 6, 2]), np.ones((1, 1)), 3, block=2)
    assert ranking.ids.tolist() == [[2, 5, 6]]


def test_without_images_or_queries_there_are_no_results() -> None:
    vectors = np.eye(3)
    assert nearest(vectors, np.empty(0, dtype=np.int64), vectors, 5).ids.shape == (3, 0)
    assert nearest(vectors, np.arange(3), np.empty((0, 3)), 2).ids.shape == (0, 2)


def test_a_ranking_must_have_its_best_result_first() -> None:
    ids = np.array([[4, 7, 1]])
    ranking = Ranking(ids, np.array([[0.9, 0.5, 0.5]]))
    assert ranking.ids.tolist() == [[4, 7, 1]]
    with pytest.raises(ValueError, match="best result first"):
        Ranking(ids, np.array([[0.9, 0.4, 0.5]]))


@pytest.mark.parametrize(
    ("ids", "scores"),
    [(np.zeros((1, 2), dtype=np.int64), np.zeros((1, 3))), (np.zeros(2, dtype=np.int64), np.zeros(2))],
    ids=["uneven", "one-dimensional"],
)
def test_a_ranking_of_wrong_shape_is_refused(ids: Ids, scores: Floats) -> None:
    with pytest.raises(ValueError, match="ids are"):
        Ranking(ids, scores)


def test_unit_scales_rows_to_length_one_and_leaves_zeros() -> None:
    scaled = unit(np.array([[3.0, 4.0], [0.0, 0.0], [-0.5, 0.0]]))
    np.testing.assert_allclose(scaled, [[0.6, 0.8], [0.0, 0.0], [-1.0, 0.0]], rtol=1e-12)
