"""Spreading: what is known of some images says which group others are likely to be in."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anneal.method import groups
from anneal.method.groups import presumed, spread
from anneal.method.neighbours import unit
from anneal.method.relations import Relations, full
from anneal.pairs import Answers, Floats, Pairs, Verdict

SIMILAR, DISSIMILAR, UNSURE = Verdict


def two_heaps(each: int = 15) -> Floats:
    rng = np.random.default_rng(0)
    middles = np.repeat(np.eye(2, 8), each, axis=0)
    return unit(middles + 0.1 * rng.normal(size=(2 * each, 8)))


def told(n: int, *said: tuple[int, int, Verdict]) -> Relations:
    a, b, verdicts = zip(*said, strict=True)
    return full(n, Answers.of(Pairs.of(a, b), verdicts)).relations


def test_an_image_is_likely_to_be_in_the_group_of_its_neighbours() -> None:
    known = told(30, (0, 1, SIMILAR), (15, 16, SIMILAR), (0, 15, DISSIMILAR))
    found = spread(two_heaps(), np.arange(30), known)
    assert found.groups.tolist() == sorted({int(known.group[0]), int(known.group[15])})
    np.testing.assert_allclose(found.share.sum(axis=1), 1, rtol=1e-5)
    likeliest = found.groups[found.share.argmax(axis=1)]
    assert likeliest.tolist() == [known.group[0]] * 15 + [known.group[15]] * 15
    assert found.apart(found).max() < 0.25


def test_two_groups_of_one_heap_overlap_and_two_of_different_heaps_do_not() -> None:
    known = told(30, (0, 1, SIMILAR), (2, 3, SIMILAR), (15, 16, SIMILAR))
    found = spread(two_heaps(), np.arange(30), known)
    first, second, other = (int(np.flatnonzero(found.groups == known.group[i])[0]) for i in (0, 2, 15))
    assert found.overlap[first, second] > 0.4
    assert max(found.overlap[first, other], found.overlap[second, other]) < 0.1
    np.testing.assert_allclose(np.diag(found.overlap), 1, rtol=1e-5)


def test_an_image_that_nothing_reaches_is_as_doubtful_as_can_be_and_nothing_is_presumed_of_it() -> None:
    vectors = np.concatenate([two_heaps(), np.eye(2, 8, k=4)])  # two that are like nothing else
    known = told(32, (0, 1, SIMILAR), (15, 16, SIMILAR), (0, 15, DISSIMILAR))
    graph_of = 31
    found = spread(vectors, np.array([0, 1, 2, 15, 16, 17, graph_of]), known)
    assert found.apart(found)[-1] == found.apart(found).max()
    taught = presumed(found, known, 0.9)
    assert taught.sizes[taught.group[graph_of]] == 1


def test_what_is_presumed_adds_to_what_is_known_and_changes_nothing_of_it() -> None:
    known = told(30, (0, 1, SIMILAR), (15, 16, SIMILAR), (0, 15, DISSIMILAR), (14, 0, DISSIMILAR))
    taught = presumed(spread(two_heaps(), np.arange(30), known), known, 0.5)
    every = np.arange(30)
    before, after = known.among(every, every), taught.among(every, every)
    settled = before != 0
    assert (after[settled] == before[settled]).all()
    assert after[5, 0] == SIMILAR
    assert after[5, 20] == DISSIMILAR
    assert after[14, 1] == DISSIMILAR  # image 14 was told to be apart: it keeps a group of its own
    assert taught.sizes[taught.group[14]] == 1


def test_two_spaces_that_tell_different_groups_of_an_image_are_apart() -> None:
    one, other = two_heaps(), two_heaps()
    other[[5, 20]] = other[[20, 5]]  # in the second space two images have changed sides
    known = told(30, (0, 1, SIMILAR), (15, 16, SIMILAR), (0, 15, DISSIMILAR))
    here, there = (spread(space, np.arange(30), known) for space in (one, other))
    apart = here.apart(there)
    assert sorted(np.argsort(-apart)[:2].tolist()) == [5, 20]
    assert apart[[5, 20]].min() > 0.8
    np.testing.assert_allclose(apart, there.apart(here))


def test_only_so_many_images_without_a_group_are_looked_at() -> None:
    n = groups.MOST + 500
    known = told(n, (0, 1, SIMILAR), (n - 1, 5, DISSIMILAR))
    found = groups.pool(np.arange(n), known, np.random.default_rng(0))
    assert len(found) == groups.MOST + 4
    assert {0, 1, 5, n - 1} <= set(found.tolist())
    assert groups.pool(np.arange(100), told(n, (0, 1, SIMILAR)), np.random.default_rng(0)).tolist() == list(
        range(100)
    )


@given(st.integers(0, 2**32 - 1), st.integers(4, 40))
def test_shares_sum_to_one_or_to_nothing(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = unit(rng.normal(size=(n, 5)))
    a, b = rng.permutation(n)[:2]
    known = told(n, (int(a), int(b), Verdict(int(rng.integers(1, 3)))))
    found = spread(vectors, np.arange(n), known)
    total = found.share.sum(axis=1)
    assert (np.isclose(total, 1, atol=1e-4) | (total == 0)).all()
    assert (found.share >= 0).all()
    assert ((found.apart(found) >= -1e-6) & (found.apart(found) <= 1)).all()


def test_around_an_image_is_the_mean_over_its_nearest() -> None:
    line = np.linspace(0, 1, 30)
    vectors = np.stack([np.cos(line), np.sin(line)], axis=1)
    answers = Answers.of(Pairs.of([0], [1]), [Verdict.SIMILAR])
    found = spread(vectors, np.arange(30), full(30, answers).relations)
    value = np.arange(30.0)
    assert found.around(value)[15] == np.arange(10, 21).mean()  # itself and five on either side
    assert found.around(value)[0] == np.arange(11).mean()
