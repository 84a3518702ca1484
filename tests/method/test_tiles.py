"""Mining near a middle equals one sorted list of all unknown pairs, whatever the tiles and threads."""

import tracemalloc
from contextlib import AbstractContextManager, ExitStack
from itertools import combinations
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from anneal.method import similarity, tiles, uncertainty
from anneal.method.mining import Mined, best_of, new_salt
from anneal.method.neighbours import unit
from anneal.method.relations import CLOSURES, Relations, none
from anneal.method.similarity import MOST_SIMILAR, Bound, Found, Similarity, SimilarityTile
from anneal.method.tiles import Measure, merge, mine_near, mine_tile
from anneal.method.uncertainty import PairProbability
from anneal.pairs import UNKNOWN, Answers, Floats, Ids, Pairs
from anneal.work import blas_threads


def seed(number: int) -> np.random.Generator:
    return np.random.default_rng(number)


def some_known(n: int, closure: str, often: float, rng: np.random.Generator) -> Relations:
    """Random verdicts of all three kinds on a share of the pairs, and what follows."""
    a, b = np.triu_indices(n, k=1)
    asked = rng.random(len(a)) < often
    answers = Answers.of(Pairs.of(a[asked], b[asked]), rng.integers(1, 4, int(asked.sum())))
    return CLOSURES[closure](n, answers).relations


def some_vectors(n: int, d: int, kind: str, rng: np.random.Generator) -> Floats:
    if kind == "whole":  # many equal similarities, and equal vectors
        return rng.integers(-1, 2, (n, d)).astype(np.float32)
    if kind == "clustered":
        centres = rng.normal(size=(4, d))
        return unit(centres[rng.integers(4, size=n)] + 0.2 * rng.normal(size=(n, d))).astype(np.float32)
    return unit(rng.normal(size=(n, d)))  # in double precision


def some_classifier(n: int, rng: np.random.Generator) -> PairProbability:
    left, right = rng.normal(size=(2, n, 5)).astype(np.float32)
    second = rng.normal(size=(5, 3)).astype(np.float32)
    bias, last = rng.normal(size=(2, 3)).astype(np.float32)
    return PairProbability(left, right, second, bias, last, 0.3)


def by_one_list(measure: Measure, pairs: Pairs, known: Relations, p: int, salt: np.uint64) -> Mined:
    """The naive way: score every unknown pair and sort."""
    unknown = pairs[known.of(pairs) == UNKNOWN]
    return best_of(Mined(unknown, measure.scores(unknown)), p, salt)


def same(one: Mined, other: Mined) -> bool:
    return list(one.pairs) == list(other.pairs) and one.scores.tolist() == other.scores.tolist()


def every_pair(images: Ids) -> Pairs:
    return Pairs.from_list(combinations(sorted(set(images.tolist())), 2))


def small_blocks(size: int) -> AbstractContextManager[object]:
    """Blocks of a few images, so that a small archive has many, and few pairs are held at once."""
    stack = ExitStack()
    stack.enter_context(patch.multiple(similarity, BLOCK=size))
    stack.enter_context(patch.multiple(uncertainty, STRIP=size, WIDTH=size + 1, PORTION=size))
    stack.enter_context(patch.multiple(tiles, TILE=size))
    return stack


# -- the same as one list ----------------------------------------------------------------------------

CASES = {
    "number": st.integers(0, 10**6),
    "n": st.integers(2, 40),
    "p": st.integers(0, 60),
    "closure": st.sampled_from(["none", "single", "full"]),
    "often": st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    "block": st.integers(1, 12),
    "size": st.integers(1, 40),
    "threads": st.integers(1, 3),
}


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(["whole", "clustered", "double"]),
    middle=st.sampled_from([-0.3, 0.0, 0.4, 0.9, MOST_SIMILAR]),
    sketched=st.booleans(),
    **CASES,
)
def test_pairs_near_a_similarity_are_those_of_one_sorted_list(
    number: int,
    n: int,
    p: int,
    closure: str,
    often: float,
    block: int,
    size: int,
    threads: int,
    kind: str,
    middle: float,
    sketched: bool,
) -> None:
    rng = seed(number)
    d = int(rng.integers(1, 7))
    vectors = some_vectors(n, d, kind, rng)
    known = some_known(n, closure, often, rng)
    images = rng.choice(n, int(rng.integers(1, 2 * n)))  # unsorted, some twice, some not at all
    sketch = None
    if sketched:
        square = np.linalg.qr(rng.normal(size=(d, d)))[0]
        sketch = square[:, : int(rng.integers(1, d + 1))].astype(np.float32)
    measure = Similarity(vectors, middle, sketch)
    with small_blocks(block):
        mined = mine_near(measure, images, known, p, seed(number), size=size, threads=threads)
    assert same(mined, by_one_list(measure, every_pair(images), known, p, new_salt(seed(number))))


@settings(max_examples=100, deadline=None)
@given(**CASES)
def test_pairs_near_a_probability_of_one_half_are_those_of_one_sorted_list(
    number: int, n: int, p: int, closure: str, often: float, block: int, size: int, threads: int
) -> None:
    rng = seed(number)
    known = some_known(n, closure, often, rng)
    images = rng.choice(n, int(rng.integers(1, 2 * n)))
    measure = some_classifier(n, rng)
    with small_blocks(block):
        mined = mine_near(measure, images, known, p, seed(number), size=size, threads=threads)
    assert same(mined, by_one_list(measure, every_pair(images), known, p, new_salt(seed(number))))


@settings(max_examples=100, deadline=None)
@given(number=st.integers(0, 10**6), p=st.integers(0, 40), with_floor=st.booleans())
def test_any_tiles_that_cover_the_pairs_give_the_same(number: int, p: int, with_floor: bool) -> None:
    rng = seed(number)
    n = int(rng.integers(2, 30))
    known = some_known(n, "full", 0.05, rng)
    measure: Measure = Similarity(some_vectors(n, 3, "whole", rng), 1.0)
    if rng.random() < 0.3:
        measure = some_classifier(n, rng)
    salt = new_salt(rng)
    expected = by_one_list(measure, every_pair(np.arange(n)), known, p, salt)
    floor = float(expected.scores[-1]) if with_floor and len(expected) == p > 0 else -np.inf
    parts = []
    for rows in np.split(rng.permutation(n), np.sort(rng.integers(0, n, 2))):
        cut = np.split(rng.permutation(n), np.sort(rng.integers(0, n, 3)))
        parts += [mine_tile(measure, rows, columns, known, p, salt, floor) for columns in cut]
    assert same(merge(parts[::-1], p, salt), expected)
    in_steps = Mined.none()
    for part in parts:
        in_steps = merge([in_steps, part], p, salt)
    assert same(in_steps, expected)


def test_a_tile_leaves_out_what_is_below_the_floor() -> None:
    vectors = unit(seed(0).normal(size=(20, 3)))
    known = none(20, Answers.none()).relations
    measure = Similarity(vectors, MOST_SIMILAR)
    mined = mine_tile(measure, np.arange(10), np.arange(10, 20), known, 50, np.uint64(1))
    floor = float(mined.scores[9])
    above = mine_tile(measure, np.arange(10), np.arange(10, 20), known, 50, np.uint64(1), floor)
    assert same(above, Mined(mined.pairs[:10], mined.scores[:10]))


def test_the_most_similar_pairs_are_those_nearest_a_middle_above_every_similarity() -> None:
    vectors = unit(seed(1).normal(size=(30, 4)))
    known = none(30, Answers.none()).relations
    mined = mine_near(Similarity(vectors, MOST_SIMILAR), np.arange(30), known, 9, seed(0))
    by_similarity = sorted(combinations(range(30), 2), key=lambda ab: -float(vectors[ab[0]] @ vectors[ab[1]]))
    assert list(mined.pairs) == by_similarity[:9]


@pytest.mark.parametrize("images", [[], [3], [3, 3, 3]])
def test_fewer_than_two_images_have_no_pairs(images: list[int]) -> None:
    known = none(12, Answers.none()).relations
    mined = mine_near(Similarity(np.ones((12, 1)), 0.5), np.array(images, dtype=np.int64), known, 5, seed(0))
    assert (list(mined.pairs), mined.scores.tolist()) == ([], [])


# -- more pairs than the budget ----------------------------------------------------------------------


class Spied:
    """A measure that notes its tiles."""

    def __init__(self, measure: Similarity) -> None:
        self.measure = measure
        self.budget = measure.budget
        self.scores = measure.scores
        self.anchors: set[int] = set()
        self.looked_at = 0

    def tile(self, rows: Ids, columns: Ids) -> SimilarityTile:
        self.anchors |= set(rows.tolist())
        self.looked_at += len(rows) * len(columns)
        return self.measure.tile(rows, columns)


@pytest.mark.parametrize(("budget", "anchors"), [(779, 19), (400, 10), (80, 2), (79, 1), (1, 1)])
def test_past_the_budget_the_pairs_of_some_anchors_are_mined(budget: int, anchors: int) -> None:
    images = np.arange(100, 140)  # 780 pairs
    vectors = unit(seed(2).normal(size=(150, 5)))
    known = some_known(150, "full", 0.002, seed(3))
    chosen = set()
    for number in range(5):
        measure = Spied(Similarity(vectors, 0.1))
        mined = mine_near(measure, images, known, 12, seed(number), budget=budget, size=9)
        assert len(measure.anchors) == anchors
        assert measure.looked_at == anchors * 40
        of_anchors = [ab for ab in every_pair(images) if measure.anchors & set(ab)]
        salt = new_salt(seed(number))
        assert same(mined, by_one_list(measure.measure, Pairs.from_list(of_anchors), known, 12, salt))
        chosen.add(frozenset(measure.anchors))
    assert len(chosen) > 1


def test_within_the_budget_all_pairs_are_mined_and_only_the_salt_is_drawn() -> None:
    measure = Spied(Similarity(unit(seed(2).normal(size=(40, 5))), 0.1, budget=780))
    known = none(40, Answers.none()).relations
    rng = seed(4)
    mine_near(measure, np.arange(40), known, 12, rng)
    assert measure.anchors == set(range(40))
    expected = seed(4)
    new_salt(expected)
    assert rng.integers(2**60) == expected.integers(2**60)


# -- the sketch --------------------------------------------------------------------------------------


def clusters(n: int, d: int = 64) -> Floats:
    """Ten clusters, and a tenth of the images anywhere between two of them."""
    rng = seed(5)
    centres = unit(rng.normal(size=(10, d)))
    one, other = rng.integers(10, size=(2, n))
    share = np.where(rng.random(n) < 0.1, rng.random(n), 1.0)[:, None]
    middle = unit(share * centres[one] + (1 - share) * centres[other])
    return unit(np.sqrt(0.85) * middle + np.sqrt(0.15 / d) * rng.normal(size=(n, d))).astype(np.float32)


def test_a_sketch_is_made_where_the_vectors_form_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "SAMPLE", 256)
    monkeypatch.setattr(similarity, "SKETCHED", 600)
    sketch = Similarity.of(clusters(600), 0.55, 10).sketch
    assert sketch is not None
    assert sketch.shape[1] < 64
    np.testing.assert_allclose(sketch.T @ sketch, np.eye(sketch.shape[1]), atol=1e-5)
    assert Similarity.of(clusters(599), 0.55, 10).sketch is None
    scattered = unit(seed(6).normal(size=(600, 64)))
    assert Similarity.of(scattered, 0.0, 10).sketch is None


def test_a_sketch_spares_most_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "SAMPLE", 256)
    monkeypatch.setattr(similarity, "SKETCHED", 600)
    monkeypatch.setattr(similarity, "BLOCK", 32)
    blocks = []
    by_product = SimilarityTile._by_product

    def counted(tile: SimilarityTile, rows: slice, columns: slice, limit: float, buffer: Floats) -> Found:
        blocks.append((rows.start, columns.start))
        return by_product(tile, rows, columns, limit, buffer)

    monkeypatch.setattr(SimilarityTile, "_by_product", counted)
    vectors = clusters(600)
    known = none(600, Answers.none()).relations
    with_sketch = mine_near(
        Similarity.of(vectors, 0.55, 1), np.arange(600), known, 1, seed(0), size=600, threads=1
    )
    assert len(blocks) < 20
    blocks.clear()
    without = mine_near(Similarity(vectors, 0.55), np.arange(600), known, 1, seed(0), size=600, threads=1)
    assert len(blocks) == 190  # 19 · 20 / 2
    assert same(with_sketch, without)


def test_a_sketch_that_leaves_most_pairs_open_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "BLOCK", 16)
    tried = []
    by_sketch = SimilarityTile._by_sketch

    def counted(
        tile: SimilarityTile, bound: Bound, rows: slice, columns: slice, limit: float, buffer: Floats
    ) -> Found | None:
        tried.append(rows.start)
        return by_sketch(tile, bound, rows, columns, limit, buffer)

    monkeypatch.setattr(SimilarityTile, "_by_sketch", counted)
    vectors = unit(seed(7).normal(size=(320, 16)))
    known = none(320, Answers.none()).relations
    measure = Similarity(vectors, 0.0, np.eye(16, 2, dtype=np.float32))
    mined = mine_near(measure, np.arange(320), known, 5, seed(0), size=320, threads=1)
    assert len(tried) == similarity.PATIENCE
    assert same(mined, by_one_list(measure, every_pair(np.arange(320)), known, 5, new_salt(seed(0))))


# -- threads and memory ------------------------------------------------------------------------------


def test_as_many_threads_as_blas_has_and_blas_has_them_again_afterwards() -> None:
    known = none(50, Answers.none()).relations
    measure = Similarity(unit(seed(8).normal(size=(50, 3))), 0.1)
    for allowed in (1, 2):
        with threadpool_limits(allowed, "blas"):
            assert blas_threads() == allowed
            mine_near(measure, np.arange(50), known, 5, seed(0))
            assert blas_threads() == allowed


@pytest.mark.parametrize("middle", [0.5, MOST_SIMILAR])
def test_memory_is_bounded_even_if_all_pairs_tie(middle: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "BLOCK", 100)
    n = 1000  # half a million pairs: 12 MB if they were listed with their scores
    known = none(n, Answers.none()).relations
    measure = Similarity(np.ones((n, 1), dtype=np.float32), middle)
    tracemalloc.start()
    try:
        mined = mine_near(measure, np.arange(n), known, 50, seed(0), size=500, threads=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(mined) == 50
    assert peak < 5e6
