"""Mining, checked against brute force: every unknown pair in one sorted list."""

import tracemalloc
from itertools import combinations

import numpy as np
import pytest

from anneal.method.mining import Scorer, cosine, mine, pairwise
from anneal.method.relations import CLOSURES, Relations, none, single
from anneal.pairs import Answers, Floats, Ids, Pairs


def seed(number: int) -> np.random.Generator:
    return np.random.default_rng(number)


def some_answers(n: int, rng: np.random.Generator, often: float) -> Answers:
    """Random verdicts of all three kinds on a share of the pairs."""
    a, b = np.triu_indices(n, k=1)
    asked = rng.random(len(a)) < often
    return Answers.of(Pairs.of(a[asked], b[asked]), rng.integers(1, 4, int(asked.sum())))


def unknown_pairs(images: Ids, known: Relations) -> list[tuple[int, int]]:
    every = list(combinations(sorted(set(images.tolist())), 2))
    columns = np.array(every, dtype=np.int64).reshape(-1, 2)
    verdicts = known.of(Pairs.of(columns[:, 0], columns[:, 1]))
    return [ab for ab, verdict in zip(every, verdicts.tolist(), strict=True) if verdict == 0]


def lookup(scores: Floats) -> Scorer:
    """A scorer that reads a table."""
    return lambda rows, columns: scores[np.ix_(rows, columns)]


NOTHING_KNOWN = none(12, Answers.none()).relations


def test_mined_equals_brute_force_on_thousands_of_cases() -> None:
    rng = seed(0)
    blocks_seen = set()
    cases = 0
    for _ in range(60):
        n = int(rng.integers(2, 13))
        closure = list(CLOSURES.values())[int(rng.integers(3))]
        often = rng.choice([0.0, 0.1, 0.5, 1.0])
        answers = some_answers(n, rng, often) if often else Answers.none()
        known = closure(n, answers).relations
        # Vectors of few small integers: exact products, many ties, duplicates.
        vectors = rng.integers(-1, 2, (n, int(rng.integers(1, 4)))).astype(np.float32)
        for _ in range(40):
            cases += 1
            images = rng.choice(n, int(rng.integers(1, 2 * n)))  # unsorted, some twice, some not at all
            p = int(rng.integers(0, n * (n - 1) // 2 + 3))
            block = int(rng.choice([2, 3, 5, 7, 1024]))
            salt = int(rng.integers(1000))
            blocks_seen.add(block)
            candidates = unknown_pairs(images, known)
            exact = {(a, b): float(vectors[a] @ vectors[b]) for a, b in candidates}

            mined = mine(images, cosine(vectors), known, p, seed(salt), block)

            chosen = list(mined.pairs)
            assert mined.scores.tolist() == sorted(exact.values(), reverse=True)[:p]
            assert mined.scores.tolist() == [exact[ab] for ab in chosen]
            assert len(set(chosen)) == len(chosen) == min(p, len(candidates))
            in_one_block = mine(np.unique(images), cosine(vectors), known, p, seed(salt))
            assert list(in_one_block.pairs) == chosen
    assert cases >= 2000
    assert blocks_seen == {2, 3, 5, 7, 1024}


def test_mined_equals_brute_force_where_candidates_are_cut_back_many_times() -> None:
    """With ascending scores every block has scores above the floor that the block before it set."""
    n = 40
    known = single(n, some_answers(n, seed(3), 0.05)).relations
    scores = np.add.outer(np.arange(n), np.arange(n)) // 3 / 7.0
    candidates = unknown_pairs(np.arange(n), known)
    best = sorted((scores[ab] for ab in candidates), reverse=True)
    for p in (1, 5, 50):
        for block in (1, 4, 13, 64):
            mined = mine(np.arange(n), lookup(scores), known, p, seed(5), block)
            assert mined.scores.tolist() == best[:p]
            assert mined.scores.tolist() == [scores[ab] for ab in mined.pairs]
            assert set(mined.pairs) <= set(candidates)
            assert list(mined.pairs) == list(mine(np.arange(n), lookup(scores), known, p, seed(5)).pairs)


def test_higher_scores_come_first() -> None:
    scores = np.zeros((12, 12))
    scores[2, 7] = scores[7, 2] = 3.0
    scores[0, 11] = scores[11, 0] = 2.0
    scores[4, 5] = scores[5, 4] = -1.0
    mined = mine(np.arange(12), lookup(scores), NOTHING_KNOWN, 3, seed(0))
    assert list(mined.pairs)[:2] == [(2, 7), (0, 11)]
    assert mined.scores.tolist() == [3.0, 2.0, 0.0]
    assert list(mine(np.arange(12), lookup(scores), NOTHING_KNOWN, 66, seed(0)).pairs)[-1] == (4, 5)


def test_known_and_set_aside_pairs_are_never_mined() -> None:
    pairs = Pairs.of([0, 1, 2], [1, 2, 3])
    known = single(4, Answers.of(pairs, [1, 2, 3])).relations  # 0 and 2 are implied to be dissimilar
    mined = mine(np.arange(4), cosine(np.ones((4, 1))), known, 10, seed(0))
    assert sorted(mined.pairs) == [(0, 3), (1, 3)]


@pytest.mark.parametrize("images", [[], [3], [3, 3, 3]])
def test_fewer_than_two_images_have_no_pairs(images: list[int]) -> None:
    mined = mine(np.array(images, dtype=np.int64), cosine(np.ones((12, 1))), NOTHING_KNOWN, 5, seed(0))
    assert (list(mined.pairs), mined.scores.tolist()) == ([], [])


def test_ties_are_broken_by_the_generator_and_every_tied_pair_is_equally_likely() -> None:
    images = np.arange(7)
    scorer = cosine(np.ones((12, 1)))
    first = [next(iter(mine(images, scorer, NOTHING_KNOWN, 1, seed(s)).pairs)) for s in range(600)]
    times = {ab: first.count(ab) for ab in combinations(range(7), 2)}
    assert sum(times.values()) == 600
    squares = sum((count - 600 / 21) ** 2 / (600 / 21) for count in times.values())
    assert squares < 45.3  # χ² of 20 degrees of freedom exceeds this once in a thousand


def test_a_tie_at_the_last_rank_goes_to_any_tied_pair_and_never_drops_a_better_one() -> None:
    scores = np.zeros((12, 12))
    scores[1, 2] = 1.0
    second = set()
    for s in range(60):
        mined = list(mine(np.arange(4), lookup(scores), NOTHING_KNOWN, 2, seed(s), block=2).pairs)
        assert mined[0] == (1, 2)
        second.add(mined[1])
    assert second == set(combinations(range(4), 2)) - {(1, 2)}


def test_the_seed_determines_the_order_of_ties() -> None:
    images = np.arange(12)
    scorer = cosine(np.ones((12, 1)))
    once = list(mine(images, scorer, NOTHING_KNOWN, 20, seed(1)).pairs)
    assert once == list(mine(images[::-1], scorer, NOTHING_KNOWN, 20, seed(1), block=5).pairs)
    assert once != list(mine(images, scorer, NOTHING_KNOWN, 20, seed(2)).pairs)


def test_one_call_scores_at_most_one_block() -> None:
    shapes = []

    def score(rows: Ids, columns: Ids) -> Floats:
        shapes.append((len(rows), len(columns)))
        return np.zeros((len(rows), len(columns)))

    mine(np.arange(12), score, NOTHING_KNOWN, 3, seed(0), block=5)
    assert shapes == [(5, 5), (5, 5), (5, 2), (5, 5), (5, 2), (2, 2)]


def test_memory_is_bounded_by_the_block_even_if_all_pairs_tie() -> None:
    n = 1500  # a million pairs: 24 MB if they were listed
    known = none(n, Answers.none()).relations
    tracemalloc.start()
    try:
        mined = mine(np.arange(n), cosine(np.ones((n, 1), dtype=np.float32)), known, 50, seed(0), block=150)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(mined.pairs) == 50
    assert peak < 6e6


def test_similarity_of_blocks_and_of_pairs_is_the_inner_product() -> None:
    vectors = seed(4).normal(size=(6, 5))
    rows = np.array([4, 0])
    columns = np.array([1, 5, 4])
    naive = [[sum(x * y for x, y in zip(vectors[i], vectors[j], strict=True)) for j in columns] for i in rows]
    np.testing.assert_allclose(cosine(vectors)(rows, columns), naive, rtol=1e-12)
    pairs = Pairs.of([4, 4, 0], [1, 5, 3])
    each = [sum(x * y for x, y in zip(vectors[a], vectors[b], strict=True)) for a, b in pairs]
    np.testing.assert_allclose(pairwise(vectors, pairs), each, rtol=1e-12)
