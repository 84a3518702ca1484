"""Placing: which image comes next, which group it is tried with, and what that costs."""

from dataclasses import replace

import numpy as np
import pytest

from anneal.method import placing
from anneal.method.groups import spread
from anneal.method.neighbours import unit
from anneal.method.relations import full
from anneal.method.snapshot import Order, Snapshot
from anneal.pairs import Answers, Floats, Ids, Pairs, Verdict

SIMILAR, DISSIMILAR, UNSURE = Verdict
Judged = tuple[int, int, Verdict]


def seed(n: int) -> np.random.Generator:
    return np.random.default_rng(n)


def world(kinds: int, each: int, spread: float) -> tuple[Floats, Ids]:
    """Images around as many middles, and the kind of each."""
    rng = seed(5)
    kind = np.repeat(np.arange(kinds), each)
    middles = unit(rng.normal(size=(kinds, 32)))
    return unit(middles[kind] + spread * rng.normal(size=(len(kind), 32)) / np.sqrt(32)), kind


def shown(vectors: Floats, *said: Judged) -> Snapshot:
    a, b, verdicts = (np.array([one[i] for one in said], dtype=np.int64) for i in range(3))
    answers = Answers.of(Pairs.of(a, b), verdicts) if said else Answers.none()
    return Snapshot(vectors, np.arange(len(vectors)), full(len(vectors), answers).relations)


def to_place(*images: int) -> Order:
    return Order(Pairs.none(), np.array(images, dtype=np.int64))


def test_a_campaign_begins_with_typical_images_of_every_kind() -> None:
    vectors, kind = world(6, 20, 0.5)
    decided = placing.order(shown(vectors), 6, seed(0))
    first = decided.images
    assert not len(decided.joins)
    assert sorted(kind[first[:6]].tolist()) == list(range(6))
    near = placing.density(vectors, np.arange(120))
    best = [max(np.flatnonzero(kind == k).tolist(), key=near.__getitem__) for k in range(6)]
    assert first[:6].tolist() == sorted(best, key=near.__getitem__, reverse=True)  # of each the most typical
    assert sorted(first.tolist()) == list(range(120))  # then all the others, …
    assert len(set(kind[first[6:30]].tolist())) == 6  # … any of them
    (pair,) = placing.place(replace(shown(vectors), order=decided), 1, seed(0))
    assert set(pair) == set(first[:2].tolist())


def test_an_image_is_tried_with_one_group_after_another_and_then_founds_its_own() -> None:
    vectors = unit(np.array([[1, 0.05 * i] for i in range(20)]))  # the nearer by number, the more similar
    apart = [(a, b, DISSIMILAR) for a in range(10) for b in range(a)]
    x, said = 15, list[Judged](apart)
    for tried in range(placing.TRIES):
        now = replace(shown(vectors, *said), order=to_place(x))
        (pair,) = placing.place(now, 1, seed(0))
        assert pair == (9 - tried, x)
        said.append((*pair, DISSIMILAR))
    enough = replace(shown(vectors, *said), order=to_place(x, 16))
    (pair,) = placing.place(enough, 1, seed(0))
    assert pair == (15, 16)  # the next image, beside the group that x has founded


def test_an_image_that_nobody_can_tell_is_left_alone_after_as_many_tries() -> None:
    vectors = unit(np.array([[1, 0.05 * i] for i in range(20)]))
    said = [(2 * k, 2 * k + 1, SIMILAR) for k in range(5)]  # five groups of two
    for tried in range(placing.TRIES):
        (pair,) = placing.place(replace(shown(vectors, *said), order=to_place(15, 19)), 1, seed(0))
        assert pair == (9 - 2 * tried, 15)  # another group each time, not the same group's other image
        said.append((*pair, UNSURE))
    (pair,) = placing.place(replace(shown(vectors, *said), order=to_place(15, 19)), 1, seed(0))
    assert pair == (9, 19)


def test_an_image_that_has_a_place_is_not_asked_again() -> None:
    vectors, _ = world(3, 5, 0.3)
    snapshot = replace(shown(vectors, (0, 1, SIMILAR), (0, 5, DISSIMILAR)), order=to_place(1, 0, 2))
    (pair,) = placing.place(snapshot, 1, seed(0))
    assert 2 in pair
    assert set(pair) & {0, 1, 5}


def test_the_images_between_two_groups_are_the_most_doubtful() -> None:
    angle = np.linspace(0, np.pi / 2, 41)
    vectors = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    said = (
        [(0, i, SIMILAR) for i in (1, 2, 3)]
        + [(40, i, SIMILAR) for i in (37, 38, 39)]
        + [(0, 40, DISSIMILAR)]
    )
    first = placing.order(shown(vectors, *said), 3, seed(0)).images[:3]
    assert all(14 <= i <= 26 for i in first.tolist())


def test_what_an_image_yields_is_its_chance_of_a_place_over_the_questions_it_takes() -> None:
    share = np.array([[1, 0, 0], [0.5, 0.5, 0], [0.5, 0.25, 0.25], [0, 0, 0]])
    np.testing.assert_allclose(placing._yield(share), [1, 1 / 1.5, 0.75 / 1.5, 0])
    np.testing.assert_allclose(placing._yield(share[:, :1]), [1, 0.5 / 1.5, 0.5 / 1.5, 0])


def test_of_doubtful_images_those_come_first_that_are_likely_to_find_a_place() -> None:
    """Ten groups in ten directions, and images anywhere between them."""
    vectors = np.concatenate([np.repeat(np.eye(10), 12, axis=0), seed(1).dirichlet(np.full(10, 0.3), 400)])
    vectors = unit(vectors + 0.05 * seed(2).normal(size=vectors.shape))
    snapshot = shown(vectors, *((12 * k, 12 * k + i, SIMILAR) for k in range(10) for i in range(1, 12)))
    soon, doubtful = (placing.order(snapshot, 10, seed(0), soon=soon).images[:10] for soon in (True, False))
    found = spread(snapshot.vectors, snapshot.images, snapshot.known)
    chance, doubt = placing._yield(found.share), found.apart(found)
    assert chance[soon].mean() > chance[doubtful].mean() + 0.05
    assert doubt[doubtful].mean() > doubt[soon].mean() > np.median(doubt[120:])


def test_an_image_in_doubt_alone_comes_after_those_that_are_in_doubt_together() -> None:
    """Three groups in three directions. In the frozen space, which says who is together, eight images lie
    between two of them, and twelve others apart from each other; now all of these seem to be of the first."""
    three = np.eye(30)[:3]
    many = np.repeat(three[:2].mean(axis=0)[None], 8, axis=0)
    single = three[1:].mean(axis=0) + np.eye(30)[3:15]  # each with a direction of its own
    groups = np.repeat(three, 12, axis=0)
    now = np.concatenate([groups, np.repeat(three[:1], 20, axis=0)])
    now, frozen = (
        unit(vectors + 0.02 * seed(2).normal(size=vectors.shape)).astype(np.float32)
        for vectors in (now, np.concatenate([groups, many, single]))
    )
    said = [(12 * k, 12 * k + i, SIMILAR) for k in range(3) for i in range(1, 12)]
    snapshot = shown(now, *said)
    snapshot = replace(snapshot, likely=spread(frozen, snapshot.images, snapshot.known))
    for soon in (True, False):
        first = placing.order(snapshot, 2, seed(0), soon=soon).images
        assert set(first[:2].tolist()) <= set(range(36, 44))
    alone = placing.order(snapshot, 2, seed(0), soon=False, around=False).images
    assert set(alone[:2].tolist()) <= set(range(44, 56))


def test_an_image_is_asked_first_beside_the_group_that_its_neighbours_tell() -> None:
    """Image 20 is nearest to 0, which belongs to other images, and lies among those of the second group."""
    rng = seed(1)
    middles = np.repeat(np.eye(4)[:2], [10, 10], axis=0)
    vectors = unit(middles + 0.1 * rng.normal(size=(20, 4)))
    stray = unit(np.array([[0.45, 0.55, 0, 0]]))
    vectors = np.concatenate([vectors, stray])
    vectors[0] = unit(stray + 0.05 * rng.normal(size=(1, 4)))[0]
    said = [(0, i, SIMILAR) for i in range(1, 6)] + [(10, i, SIMILAR) for i in range(11, 16)]
    snapshot = shown(vectors, *said, (0, 10, DISSIMILAR))
    assert int(np.argmax(vectors[:20] @ vectors[20])) == 0
    wanted = Order(Pairs.none(), np.array([20]), np.array([[12, 0]]))
    assert list(placing.place(replace(snapshot, order=wanted), 1, seed(0))) == [(12, 20)]
    refused = replace(shown(vectors, *said, (0, 10, DISSIMILAR), (12, 20, DISSIMILAR)), order=wanted)
    assert list(placing.place(refused, 1, seed(0))) == [(0, 20)]  # the next one
    news = replace(snapshot, order=replace(wanted, images=np.array([20, 0])))
    assert list(placing.place(news, 1, seed(0))) == [(0, 20)]  # what has just found its place tells more


def test_beside_whom_to_ask_is_a_member_of_each_of_the_likeliest_groups() -> None:
    vectors, kind = world(4, 20, 0.6)
    said = [(20 * k, 20 * k + i, SIMILAR) for k in range(4) for i in range(1, 6)]
    decided = placing.order(shown(vectors, *said), 12, seed(0))
    members = set(np.unique([one[:2] for one in said]).tolist())
    assert decided.beside.shape[0] >= 12
    assert decided.beside.shape[1] == placing.TRIES
    assert set(decided.beside.ravel().tolist()) <= members
    first = kind[decided.beside[:, 0]]
    assert (first == kind[decided.images[: len(first)]]).mean() > 0.9
    assert (kind[decided.beside[:, 1]] != first).all()


def test_groups_that_lay_claim_to_the_same_images_are_joined_first() -> None:
    vectors, _ = world(2, 40, 0.3)
    halves = [(start, start + i, SIMILAR) for start in (0, 20, 40) for i in range(1, 5)]
    decided = placing.order(shown(vectors, *halves), 10, seed(0))
    (join,) = decided.joins  # the two halves of the first kind; the second kind is far from both
    assert join[0] < 5
    assert 20 <= join[1] < 25
    now = replace(shown(vectors, *halves), order=decided)
    assert next(iter(placing.place(now, 1, seed(0)))) == join
    nearest = max((float(vectors[a] @ vectors[b]), a, b) for a in range(5) for b in range(20, 25))
    assert join == nearest[1:]
    for verdict in (SIMILAR, DISSIMILAR):  # once it is known, images are placed
        after = replace(shown(vectors, *halves, (*join, verdict)), order=decided)
        (pair,) = placing.place(after, 1, seed(0))
        assert pair != join
        assert decided.images[0] in pair
    told = shown(vectors, *halves, (0, 20, DISSIMILAR))
    assert not len(placing.order(told, 10, seed(0)).joins)
    assert not len(placing.order(shown(vectors, *halves), 10, seed(0), join=False).joins)


@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_placing_an_image_costs_little_more_than_one_answer(spread: float) -> None:
    """An oracle answers; where the kinds lie apart every image ends in its own kind's group."""
    vectors, kind = world(8, 25, spread)
    said: list[Judged] = []
    order = placing.order(shown(vectors), 200, seed(0))
    for k in range(300):
        now = replace(shown(vectors, *said), order=order)
        if (now.known.sizes[now.known.group] > 1).all():
            break
        (pair,) = placing.place(now, 1, seed(k))
        said.append((*pair, SIMILAR if kind[pair[0]] == kind[pair[1]] else DISSIMILAR))
    known = shown(vectors, *said).known
    placed = known.sizes[known.group] > 1
    assert placed.mean() > 0.9
    assert len(said) < 1.5 * placed.sum()
    for group in np.unique(known.group):
        assert len(set(kind[known.group == group].tolist())) == 1


def test_when_all_is_placed_the_most_similar_open_pairs_are_asked() -> None:
    vectors = unit(np.array([[1.0, 0.0], [1.0, 0.1], [1.0, 0.3], [1.0, 0.9]]))
    snapshot = shown(vectors, (0, 3, SIMILAR), (1, 2, SIMILAR))
    first, _ = placing.place(replace(snapshot, order=to_place(0, 1, 2, 3)), 2, seed(0))
    assert first == (0, 1)
