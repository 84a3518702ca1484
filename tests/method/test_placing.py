"""Placing: which image comes next, which group it is tried with, and how many answers that takes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anneal.method import placing
from anneal.method.groups import spread_labels
from anneal.method.neighbours import unit
from anneal.method.relations import full
from anneal.method.snapshot import Agenda, Snapshot
from anneal.pairs import UNKNOWN, Answers, Floats, Ids, Pair, Pairs, Verdict

SIMILAR, DISSIMILAR, UNSURE = Verdict
Judged = tuple[int, int, Verdict]


def seed(n: int) -> np.random.Generator:
    return np.random.default_rng(n)


def world(kinds: int, each: int, noise: float) -> tuple[Floats, Ids]:
    """Images around one centre per kind, and the kind of each."""
    rng = seed(5)
    kind = np.repeat(np.arange(kinds), each)
    centres = unit(rng.normal(size=(kinds, 32)))
    return unit(centres[kind] + noise * rng.normal(size=(len(kind), 32)) / np.sqrt(32)), kind


def on_a_circle(degrees: list[float]) -> Floats:
    angle = np.array(degrees) * np.pi / 180
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def in_a_row(n: int = 20) -> Floats:
    """The nearer two ids are, the more similar their images."""
    return unit(np.array([[1, 0.05 * i] for i in range(n)]))


def shown(vectors: Floats, *answers: Judged, pending: tuple[Pair, ...] = ()) -> Snapshot:
    given_answers = Answers.of(
        Pairs.from_list((a, b) for a, b, _ in answers), [verdict for _, _, verdict in answers]
    )
    known = full(len(vectors), given_answers).relations
    return Snapshot(vectors, np.arange(len(vectors)), known, given_answers, pending=Pairs.from_list(pending))


def to_place(*images: int) -> Agenda:
    return Agenda(images=np.array(images, dtype=np.int64))


def group_of(first: int, *others: int) -> list[Judged]:
    return [(first, other, SIMILAR) for other in others]


def pick(snapshot: Snapshot, agenda: Agenda, n: int = 1, number: int = 0) -> list[Pair]:
    return list(placing.pick(snapshot, agenda, n, seed(number)))


# -- the same results as before the rewrite ----------------------------------------------------------

FROZEN: list[float] = [0, 4, 9, 15, 40, 47, 52, 58, 85, 91, 98, 104, 26, 70, 33, 64]
TRAINED = [0, 4, 9, 15, 40, 47, 52, 58, 85, 91, 98, 104, 26 + 45 / np.pi, 70 - 36 / np.pi, 33, 64]
RECORDED: list[Judged] = [
    (0, 1, SIMILAR),
    (4, 5, SIMILAR),
    (6, 7, SIMILAR),
    (8, 9, SIMILAR),
    (9, 10, SIMILAR),
    (0, 8, DISSIMILAR),
    (2, 5, DISSIMILAR),
    (11, 4, UNSURE),
]


def recorded() -> Snapshot:
    snapshot = shown(on_a_circle(TRAINED), *RECORDED)
    membership = spread_labels(on_a_circle(FROZEN), snapshot.images, snapshot.known)
    return replace(snapshot, membership=membership)


def test_the_agenda_and_the_pairs_are_the_recorded_ones() -> None:
    snapshot = recorded()
    agenda = placing.plan(snapshot, 20, seed(0))
    joins = [(5, 6), (7, 8), (1, 2), (1, 4), (5, 8), (2, 6), (1, 6), (2, 8)]
    assert list(agenda.pairs) == joins
    assert agenda.images.tolist() == [11, 2, 13, 15, 14, 12, 3]
    assert agenda.beside.tolist() == [[10, 7], [1, 4], [8, 7], [8, 7], [4, 6], [4, 6], [4, 1]]
    assert pick(snapshot, agenda, 3, 1) == joins[:3]
    assert pick(snapshot, agenda, 12, 1) == [*joins, (10, 11), (8, 13), (8, 15), (4, 14)]


def test_the_agenda_of_an_ablation_and_its_pairs_are_the_recorded_ones() -> None:
    snapshot = recorded()
    agenda = placing.plan(snapshot, 20, seed(0), join=False, soon=False, neighbourhood=False)
    assert list(agenda.pairs) == []
    assert agenda.images.tolist() == [3, 12, 14, 13, 15, 2, 11]
    assert agenda.beside.tolist() == [[4, 1], [4, 6], [4, 6], [8, 7], [8, 7], [1, 4], [10, 7]]
    placed = [(2, 3), (4, 12), (4, 14), (8, 13), (8, 15), (1, 2), (10, 11)]
    assert pick(snapshot, agenda, 9, 1) == [*placed, (7, 13), (5, 6)]
    asked = replace(snapshot, pending=Pairs.from_list([(1, 11), (9, 15)]))
    assert pick(asked, agenda, 4, 1) == [(2, 3), (4, 12), (4, 14), (8, 13)]


def test_the_first_agenda_and_its_pairs_are_the_recorded_ones() -> None:
    snapshot = shown(on_a_circle(TRAINED))
    agenda = placing.plan(snapshot, 20, seed(0))
    assert agenda.images.tolist() == [4, 12, 14, 5, 13, 6, 7, 15, 3, 8, 2, 9, 1, 10, 0, 11]
    assert pick(snapshot, agenda, 4, 1) == [(4, 12), (4, 14), (4, 5), (4, 13)]


# -- the plan of a round -----------------------------------------------------------------------------


def test_a_campaign_begins_with_the_most_typical_image_of_every_kind() -> None:
    vectors, kind = world(6, 20, 0.5)
    agenda = placing.plan(shown(vectors), 6, seed(0))
    first = agenda.images[:6].tolist()
    later = agenda.images[6:]
    assert list(agenda.pairs) == []
    assert sorted(kind[first].tolist()) == list(range(6))
    density = placing.density(vectors, np.arange(120))
    typical = [max(np.flatnonzero(kind == k).tolist(), key=density.__getitem__) for k in range(6)]
    assert first == sorted(typical, key=density.__getitem__, reverse=True)
    assert sorted([*first, *later.tolist()]) == list(range(120))
    assert len(set(kind[later[:24]].tolist())) == 6  # the others come in random order
    (pair,) = pick(shown(vectors), agenda)
    assert set(pair) == set(first[:2])


def test_while_little_is_known_images_of_clusters_without_a_known_one_come_first() -> None:
    """Ten kinds of different sizes. Images of three are known, six of 150: less than one in twenty."""
    vectors, kind = world(10, 20, 0.3)
    images = np.flatnonzero((kind < 5) | (np.arange(200) % 20 < 10))  # the last five kinds have ten images
    answers = [*group_of(0, 1), *group_of(20, 21), *group_of(180, 181)]
    snapshot = replace(shown(vectors, *answers), images=images)
    assert len(images) // placing.START > 6
    first = placing.plan(snapshot, 7, seed(0)).images[:7]
    assert sorted(kind[first].tolist()) == [2, 3, 4, 5, 6, 7, 8]
    assert sorted(kind[first[:3]].tolist()) == [2, 3, 4]  # the largest first
    by_doubt = placing.plan(snapshot, 7, seed(0), typical=False).images[:7]
    assert sorted(kind[by_doubt].tolist()) != sorted(kind[first].tolist())


def test_when_one_image_in_twenty_is_known_those_in_doubt_come_first() -> None:
    vectors = on_a_circle(np.linspace(0, 90, 120).tolist())
    answers = [*group_of(0, 1, 2), *group_of(119, 118, 117), (0, 119, DISSIMILAR)]
    first = placing.plan(shown(vectors, *answers), 3, seed(0)).images[:3].tolist()
    assert all(40 <= image <= 79 for image in first)


def test_density_is_the_mean_similarity_to_the_ten_nearest_images() -> None:
    vectors, _ = world(3, 10, 0.8)
    images = np.array([29, 3, 4, 8, 11, 12, 15, 20, 22, 23, 25, 27, 28])
    similarity = vectors[images] @ vectors[images].T
    np.fill_diagonal(similarity, -2)
    expected = np.sort(similarity, axis=1)[:, -10:].mean(axis=1)
    np.testing.assert_allclose(placing.density(vectors, images), expected, rtol=1e-5)


def test_all_images_without_a_group_are_planned_and_no_others() -> None:
    vectors, _ = world(4, 20, 0.6)
    answers = [*group_of(0, 1, 2), *group_of(20, 21), (40, 0, DISSIMILAR)]
    agenda = placing.plan(shown(vectors, *answers), 5, seed(0))
    in_a_group = {0, 1, 2, 20, 21}
    assert sorted(agenda.images.tolist()) == sorted(set(range(80)) - in_a_group)


def test_the_images_between_two_groups_come_first() -> None:
    vectors = on_a_circle(np.linspace(0, 90, 41).tolist())
    answers = [*group_of(0, 1, 2, 3), *group_of(40, 37, 38, 39), (0, 40, DISSIMILAR)]
    first = placing.plan(shown(vectors, *answers), 3, seed(0)).images[:3].tolist()
    assert all(14 <= image <= 26 for image in first)


def test_the_chance_to_find_a_group_is_divided_by_the_questions_it_takes() -> None:
    share = np.array([[1, 0, 0], [0.5, 0.5, 0], [0.5, 0.25, 0.25], [0, 0, 0]])
    np.testing.assert_allclose(placing._placed_per_question(share), [1, 1 / 1.5, 0.75 / 1.5, 0])
    np.testing.assert_allclose(placing._placed_per_question(share[:, :1]), [1, 0.5 / 1.5, 0.5 / 1.5, 0])


def test_doubt_is_the_disagreement_of_two_spaces_weighed_by_the_chance_to_find_a_group() -> None:
    snapshot = recorded()
    frozen = snapshot.membership
    assert frozen is not None
    trained = spread_labels(snapshot.vectors, snapshot.images, snapshot.known)
    left = np.array([13, 3, 11])
    for image, doubt in zip(left.tolist(), placing._doubt(trained, frozen, left, True, True), strict=True):
        disagreements = [1 - float(trained.share[i] @ frozen.share[i]) for i in frozen.near[image]]
        share = sorted((trained.share[image] + frozen.share[image]) / 2)
        chance = (share[-1] + share[-2]) / (2 - share[-1])
        assert doubt == pytest.approx(np.mean(disagreements) * (0.5 + chance), rel=1e-5)


def test_only_the_images_of_the_frozen_membership_are_planned() -> None:
    """In a large archive the membership covers a random part of the images."""
    snapshot = recorded()
    some = np.array([0, 1, 3, 4, 5, 8, 9, 12, 15])
    membership = spread_labels(on_a_circle(FROZEN), some, snapshot.known)
    agenda = placing.plan(replace(snapshot, membership=membership), 20, seed(0))
    assert sorted(agenda.images.tolist()) == [3, 12, 15]
    assert set(agenda.beside.ravel().tolist()) <= set(some.tolist())


def test_of_images_in_doubt_those_come_first_that_are_likely_to_find_a_group() -> None:
    """Ten groups in ten directions, and images anywhere between them."""
    vectors = np.concatenate([np.repeat(np.eye(10), 12, axis=0), seed(1).dirichlet(np.full(10, 0.3), 400)])
    vectors = unit(vectors + 0.05 * seed(2).normal(size=vectors.shape))
    answers = [one for k in range(10) for one in group_of(12 * k, *range(12 * k + 1, 12 * k + 12))]
    snapshot = shown(vectors, *answers)
    soon = placing.plan(snapshot, 10, seed(0)).images[:10]
    doubtful = placing.plan(snapshot, 10, seed(0), soon=False).images[:10]
    membership = spread_labels(snapshot.vectors, snapshot.images, snapshot.known)
    chance = placing._placed_per_question(membership.share)
    doubt = membership.disagreement(membership)
    assert chance[soon].mean() > chance[doubtful].mean() + 0.05
    assert doubt[doubtful].mean() > doubt[soon].mean() > np.median(doubt[120:])


def test_an_image_in_doubt_alone_comes_after_those_in_doubt_together_until_many_are_known() -> None:
    """Three groups in three directions. In the frozen space eight images lie together between two of the
    groups, and twelve others lie alone. In the trained space all twenty seem to be of the first group."""
    directions = np.eye(30)
    groups = np.repeat(directions[:3], 24, axis=0)
    together = np.repeat(directions[:2].mean(axis=0)[None], 8, axis=0)
    alone = directions[1:3].mean(axis=0) + directions[3:15]
    trained = np.concatenate([groups, np.repeat(directions[:1], 20, axis=0)])
    frozen = np.concatenate([groups, together, alone])
    noise = 0.02 * seed(2).normal(size=trained.shape)

    def first(known: int, **switches: bool) -> set[int]:
        """The first images of a plan that knows so many images of each group."""
        answers = [one for k in range(3) for one in group_of(24 * k, *range(24 * k + 1, 24 * k + known))]
        snapshot = shown(unit(trained + noise).astype(np.float32), *answers)
        membership = spread_labels(unit(frozen + noise).astype(np.float32), snapshot.images, snapshot.known)
        snapshot = replace(snapshot, membership=membership)
        return set(placing.plan(snapshot, 2, seed(0), **switches).images[:2].tolist())

    assert first(2) <= set(range(72, 80))
    assert first(2, soon=False) <= set(range(72, 80))
    assert first(2, soon=False, neighbourhood=False) <= set(range(80, 92))
    assert first(24, soon=False) == first(24, soon=False, neighbourhood=False) <= set(range(80, 92))


def test_an_image_is_planned_beside_a_member_of_each_of_its_likeliest_groups() -> None:
    vectors, kind = world(4, 20, 0.6)
    answers = [one for k in range(4) for one in group_of(20 * k, *range(20 * k + 1, 20 * k + 6))]
    agenda = placing.plan(shown(vectors, *answers), 12, seed(0))
    members = {image for a, b, _ in answers for image in (a, b)}
    k, tries = agenda.beside.shape
    assert k >= 12
    assert tries == placing.TRIES
    assert set(agenda.beside.ravel().tolist()) <= members
    likeliest = kind[agenda.beside[:, 0]]
    assert (likeliest == kind[agenda.images[:k]]).mean() > 0.9
    assert (kind[agenda.beside[:, 1]] != likeliest).all()


def test_groups_that_claim_the_same_images_are_joined_first() -> None:
    vectors, _ = world(2, 40, 0.3)
    halves = [one for first in (0, 20, 40) for one in group_of(first, *range(first + 1, first + 5))]
    agenda = placing.plan(shown(vectors, *halves), 10, seed(0))
    (join,) = agenda.pairs  # the two groups of the first kind; the third group is far from both
    nearest = max((float(vectors[a] @ vectors[b]), a, b) for a in range(5) for b in range(20, 25))
    assert join == nearest[1:]
    assert pick(shown(vectors, *halves), agenda) == [join]
    for verdict in (SIMILAR, DISSIMILAR):  # once the join is answered, images are placed
        (pair,) = pick(shown(vectors, *halves, (*join, verdict)), agenda)
        assert pair != join
        assert agenda.images[0] in pair
    separated = shown(vectors, *halves, (0, 20, DISSIMILAR))
    assert list(placing.plan(separated, 10, seed(0)).pairs) == []
    assert list(placing.plan(shown(vectors, *halves), 10, seed(0), join=False).pairs) == []


# -- the pick after every answer ---------------------------------------------------------------------


def test_an_image_is_tried_with_one_group_after_another_and_then_is_a_group_of_its_own() -> None:
    answers: list[Judged] = [(a, b, DISSIMILAR) for a in range(10) for b in range(a)]  # ten groups
    for tried in range(placing.TRIES):
        (pair,) = pick(shown(in_a_row(), *answers), to_place(15))
        assert pair == (9 - tried, 15)
        answers.append((*pair, DISSIMILAR))
    (pair,) = pick(shown(in_a_row(), *answers), to_place(15, 16))
    assert pair == (15, 16)  # the next image, beside the new group


def test_an_image_that_nobody_is_sure_about_is_left_alone_after_as_many_tries() -> None:
    answers: list[Judged] = [(2 * k, 2 * k + 1, SIMILAR) for k in range(5)]  # five groups of two
    for tried in range(placing.TRIES):
        (pair,) = pick(shown(in_a_row(), *answers), to_place(15, 19))
        assert pair == (9 - 2 * tried, 15)  # another group each time, not the group's other image
        answers.append((*pair, UNSURE))
    assert pick(shown(in_a_row(), *answers), to_place(15, 19)) == [(9, 19)]


def test_an_image_that_has_a_group_is_not_placed_again() -> None:
    vectors, _ = world(3, 5, 0.3)
    (pair,) = pick(shown(vectors, (0, 1, SIMILAR), (0, 5, DISSIMILAR)), to_place(1, 0, 2))
    assert 2 in pair
    assert set(pair) & {0, 1, 5}


def test_an_image_is_tried_with_the_planned_group_before_the_nearest_member() -> None:
    """Image 20 lies among those of the second group, but 0, which is in the first group, is nearest."""
    rng = seed(1)
    centres = np.repeat(np.eye(4)[:2], 10, axis=0)
    vectors = unit(centres + 0.1 * rng.normal(size=(20, 4)))
    stray = unit(np.array([[0.45, 0.55, 0, 0]]))
    vectors = np.concatenate([vectors, stray])
    vectors[0] = unit(stray + 0.05 * rng.normal(size=(1, 4)))[0]
    assert int(np.argmax(vectors[:20] @ vectors[20])) == 0
    answers = [*group_of(0, *range(1, 6)), *group_of(10, *range(11, 16)), (0, 10, DISSIMILAR)]
    agenda = Agenda(images=np.array([20]), beside=np.array([[12, 0]]))
    assert pick(shown(vectors, *answers), agenda) == [(12, 20)]
    assert pick(shown(vectors, *answers, (12, 20, DISSIMILAR)), agenda) == [(0, 20)]
    # An image that has found its group since the plan was made says more than the plan.
    newly_placed = replace(agenda, images=np.array([20, 0]))
    assert pick(shown(vectors, *answers), newly_placed) == [(0, 20)]


def test_when_every_image_has_a_group_the_most_similar_open_pairs_are_asked() -> None:
    vectors = unit(np.array([[1.0, 0.0], [1.0, 0.1], [1.0, 0.3], [1.0, 0.9]]))
    snapshot = shown(vectors, (0, 3, SIMILAR), (1, 2, SIMILAR))
    assert pick(snapshot, to_place(0, 1, 2, 3), 2) == [(0, 1), (0, 2)]


# -- what is being asked already ---------------------------------------------------------------------


def test_an_image_that_is_being_asked_about_is_not_placed_by_a_second_question() -> None:
    groups = [(0, 1, SIMILAR), (4, 5, SIMILAR)]
    snapshot = shown(in_a_row(), *groups)
    assert pick(snapshot, to_place(8, 12, 19), 2) == [(5, 8), (5, 12)]
    asked = shown(in_a_row(), *groups, pending=((5, 8),))
    assert pick(asked, to_place(8, 12, 19), 2) == [(5, 12), (5, 19)]


def test_a_pair_that_is_being_asked_places_the_image_nothing_is_known_about() -> None:
    """Image 8 is a group of its own. It is tried with another group while 12 is asked beside it."""
    answers: list[Judged] = [*group_of(0, 1), *group_of(4, 5), *group_of(15, 16), (5, 8, DISSIMILAR)]
    asked = shown(in_a_row(), *answers, pending=((8, 12),))
    assert pick(asked, to_place(8, 12, 19), 2) == [(8, 15), (16, 19)]
    both_known = shown(in_a_row(), *answers, pending=((8, 16),))
    assert pick(both_known, to_place(8, 12, 19), 2) == [(12, 15), (16, 19)]


def test_the_first_questions_of_several_people_share_the_first_image() -> None:
    agenda = to_place(7, 3, 11, 2)
    assert pick(shown(in_a_row()), agenda) == [(3, 7)]
    assert pick(shown(in_a_row(), pending=((3, 7),)), agenda) == [(7, 11)]
    assert pick(shown(in_a_row(), pending=((3, 7), (7, 11))), agenda) == [(2, 7)]


def test_the_planned_partners_stay_with_their_images_when_one_is_left_out() -> None:
    answers = [*group_of(0, 1), *group_of(4, 5)]
    agenda = Agenda(images=np.array([8, 12, 19]), beside=np.array([[5, 1], [1, 5], [0, 4]]))
    assert pick(shown(in_a_row(), *answers), agenda, 3) == [(5, 8), (1, 12), (0, 19)]
    asked = shown(in_a_row(), *answers, pending=((5, 8),))
    assert pick(asked, agenda, 2) == [(1, 12), (0, 19)]


def test_a_join_that_is_being_asked_is_not_picked() -> None:
    answers = [*group_of(0, 1), *group_of(4, 5), *group_of(10, 11)]
    agenda = Agenda(Pairs.from_list([(1, 4), (5, 10)]), np.array([15]))
    assert pick(shown(in_a_row(), *answers), agenda, 3) == [(1, 4), (5, 10), (11, 15)]
    asked = shown(in_a_row(), *answers, pending=((1, 4),))
    assert pick(asked, agenda, 2) == [(5, 10), (11, 15)]


@given(number=st.integers(0, 2**16), n=st.integers(1, 6), several=st.integers(1, 5))
def test_what_several_people_are_asked_at_once_is_distinct_and_open(
    number: int, n: int, several: int
) -> None:
    rng = seed(number)
    vectors, kind = world(4, 5, 0.8)
    answers: list[Judged] = []
    for _ in range(int(rng.integers(0, 30))):
        a, b = sorted(rng.choice(20, 2, replace=False).tolist())
        answers.append((a, b, SIMILAR if kind[a] == kind[b] else DISSIMILAR))
    snapshot = shown(vectors, *answers)
    agenda = placing.plan(snapshot, 8, seed(number))
    asked: list[Pair] = []
    for _ in range(several):
        picked = pick(replace(snapshot, pending=Pairs.from_list(asked)), agenda, n, number)
        assert (snapshot.known.of(Pairs.from_list(picked)) == UNKNOWN).all()
        asked += picked
    assert len(set(asked)) == len(asked)


# -- what it costs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_an_image_takes_little_more_than_one_answer(noise: float) -> None:
    """An oracle answers. Every image ends in a group of its own kind."""
    vectors, kind = world(8, 25, noise)
    answers: list[Judged] = []
    agenda = placing.plan(shown(vectors), 200, seed(0))
    for number in range(300):
        now = shown(vectors, *answers)
        if (now.known.sizes[now.known.group] > 1).all():
            break
        (pair,) = pick(now, agenda, 1, number)
        answers.append((*pair, SIMILAR if kind[pair[0]] == kind[pair[1]] else DISSIMILAR))
    known = shown(vectors, *answers).known
    placed = known.sizes[known.group] > 1
    assert placed.mean() > 0.9
    assert len(answers) < 1.5 * placed.sum()
    for group in np.unique(known.group):
        assert len(set(kind[known.group == group].tolist())) == 1
