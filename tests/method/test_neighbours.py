"""Nearest neighbours, checked against a full sort and against faiss."""

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from anneal.method import neighbours
from anneal.method.neighbours import Index, Ranking, build_index, nearest, unit
from anneal.pairs import Floats, Ids


def brute(vectors: Floats, images: list[int], query: Floats, k: int) -> list[tuple[int, float]]:
    """Best first; of equal ones the smaller id first."""
    scored = [(-sum(x * y for x, y in zip(vectors[i], query, strict=True)), i) for i in set(images)]
    return [(i, -float(negative)) for negative, i in sorted(scored)][:k]


@pytest.mark.parametrize("strip", [1, 3, 256])
@pytest.mark.parametrize("block", [1, 20, 50, 65536])
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
    ranking = nearest(vectors, np.arange(200), queries, 10, strip=4, block=130)
    for row, query in enumerate(queries):
        expected = brute(vectors, list(range(200)), query, 10)
        assert ranking.ids[row].tolist() == [i for i, _ in expected]
        assert ranking.scores[row].tolist() == pytest.approx([s for _, s in expected], abs=1e-6)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_choice_of_images_equals_brute_force(data: st.DataObject) -> None:
    """Ranges are not copied, other choices are; some end in the middle of a block."""
    seed = data.draw(st.integers(0, 99))
    vectors = np.random.default_rng(seed).integers(-1, 2, (30, 2)).astype(np.float32)
    start = data.draw(st.integers(0, 29))
    ranges = st.integers(start, 30).map(lambda end: list(range(start, end)))
    images = data.draw(ranges | st.lists(st.integers(0, 29)))
    k = data.draw(st.integers(1, 12))
    block = data.draw(st.integers(1, 40))
    ranking = nearest(vectors, np.array(images, dtype=np.int64), vectors[:4], k, strip=3, block=block)
    for row in range(4):
        expected = brute(vectors, images, vectors[row], k)
        assert ranking.ids[row].tolist() == [i for i, _ in expected]
        assert ranking.scores[row].tolist() == [s for _, s in expected]


@pytest.mark.parametrize("strip", [7, 256])
def test_threads_share_the_work_and_leave_the_limit_as_it_was(
    strip: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share the queries, or the images if the queries are few."""
    monkeypatch.setattr(neighbours, "THREADED", 1)
    rng = np.random.default_rng(3)
    vectors = rng.integers(-2, 3, (500, 4)).astype(np.float32)  # exact products, many ties
    queries = vectors[:45]
    expected = [brute(vectors, list(range(500)), query, 6) for query in queries]
    for threads in (1, 2, 3):
        with threadpool_limits(threads, user_api="blas"):
            ranking = nearest(vectors, np.arange(500), queries, 6, strip=strip)
            limits = {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}
            assert limits == {threads}
        assert ranking.ids.tolist() == [[i for i, _ in row] for row in expected]
        assert nearest(vectors, np.arange(500), queries[:0], 6).ids.shape == (0, 6)


def test_images_that_follow_each_other_are_not_copied() -> None:
    vectors = np.arange(20.0).reshape(10, 2)
    for ids in (np.arange(10), np.arange(3, 8), np.array([4])):
        rows = neighbours.rows_of(vectors, ids)
        assert np.shares_memory(rows, vectors)
        np.testing.assert_array_equal(rows, vectors[ids])
    for ids in (np.array([1, 2, 4]), np.empty(0, dtype=np.int64)):
        np.testing.assert_array_equal(neighbours.rows_of(vectors, ids), vectors[ids])


def test_faiss_finds_the_same_neighbours() -> None:
    vectors = clustered(3000, 0)
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    for queries in (vectors[:1], clustered(40, 1)):
        scores, ids = flat.search(queries, 10)
        ranking = nearest(vectors, np.arange(3000), queries, 10, block=5000)
        np.testing.assert_array_equal(ranking.ids, ids)
        np.testing.assert_allclose(ranking.scores, scores, atol=1e-5)


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


# -- by an index -----------------------------------------------------------------------------------


def clustered(n: int, seed: int) -> Floats:
    """Unit vectors around twenty centres, like trained ones."""
    centres = np.random.default_rng(9).normal(size=(20, 32))
    rng = np.random.default_rng(seed)
    near = centres[rng.integers(0, 20, n)] + 0.5 * rng.normal(size=(n, 32))
    return unit(near).astype(np.float32)


def recall(ranking: Ranking, exact: Ranking) -> float:
    found = zip(ranking.ids.tolist(), exact.ids.tolist(), strict=True)
    return float(np.mean([len(set(row) & set(best)) / len(best) for row, best in found]))


@pytest.mark.parametrize("k", [1, 10, 200])
def test_an_index_finds_nearly_all_of_the_nearest_with_exact_scores(k: int) -> None:
    vectors = clustered(6000, 0)
    queries = clustered(50, 1)
    ranking = build_index(vectors).nearest(vectors, queries, k, probed=8)  # of 38 lists
    assert recall(ranking, nearest(vectors, np.arange(6000), queries, k)) > 0.95
    products = np.einsum("qkd,qd->qk", vectors[ranking.ids], queries)
    np.testing.assert_allclose(ranking.scores, products, atol=1e-6)
    assert all(len(set(row)) == k for row in ranking.ids.tolist())


def test_an_index_that_looks_into_every_list_equals_exact_search_including_ties() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.integers(-1, 2, (400, 3)).astype(np.float32)  # exact products, many ties
    queries = vectors[:30]
    ranking = build_index(vectors).nearest(vectors, queries, 400)
    exact = nearest(vectors, np.arange(400), queries, 400)
    np.testing.assert_array_equal(ranking.ids, exact.ids)
    np.testing.assert_array_equal(ranking.scores, exact.scores)


def test_where_the_lists_have_too_few_rows_every_row_is_compared() -> None:
    vectors = clustered(900, 0)
    index = build_index(vectors)
    ranking = index.nearest(vectors, vectors[:5], 900, probed=1)
    np.testing.assert_array_equal(ranking.ids, nearest(vectors, np.arange(900), vectors[:5], 900).ids)
    assert index.nearest(vectors, vectors[:5], 10**6).ids.shape == (5, 900)


def test_an_index_that_grows_row_by_row_finds_the_same_as_one_that_grows_at_once() -> None:
    vectors = clustered(1200, 0)
    at_once = build_index(vectors[:1000])
    one_by_one = build_index(vectors[:1000])
    at_once.add(vectors[1000:])
    for row in range(1000, 1200):
        one_by_one.add(vectors[row : row + 1])
    assert len(one_by_one) == len(at_once) == 1200
    one, other = (index.nearest(vectors, vectors[1000:], 10) for index in (one_by_one, at_once))
    np.testing.assert_array_equal(one.ids, other.ids)
    assert (one.ids[:, 0] == np.arange(1000, 1200)).all(), "each new row finds itself"
    assert recall(one, nearest(vectors, np.arange(1200), vectors[1000:], 10)) > 0.95


@pytest.mark.parametrize("n", [1, 2, 3, 30])
def test_few_vectors_have_an_index_too(n: int) -> None:
    vectors = clustered(n, 0)
    index = build_index(vectors)
    assert isinstance(index, Index)
    np.testing.assert_array_equal(index.nearest(vectors, vectors, 1).ids[:, 0], np.arange(n))


# -- values ----------------------------------------------------------------------------------------


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
