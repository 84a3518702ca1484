"""Labellers: one contract for all of them, then what each one chooses."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import ArrayLike

from anneal.method.labelling import LABELLERS, Choose, Labels, cal, coreset, typiclust
from anneal.method.neighbours import unit
from anneal.method.relations import none
from anneal.method.snapshot import Snapshot
from anneal.pairs import Answers, Floats, Ids

N = 16  # images of the archive; a labeller may choose from IMAGES only
IMAGES = np.array([15, 2, 3, 11, 5, 7, 8, 0, 9, 13, 12, 1])
LABELLED = np.array([2, 4, 12])
UNLABELLED = {15, 3, 11, 5, 7, 8, 0, 9, 13, 1}
NONE = np.empty(0, dtype=np.int64)

every_labeller = pytest.mark.parametrize("choose", [cal, typiclust, coreset])


def seed(number: int) -> np.random.Generator:
    return np.random.default_rng(number)


def shown(vectors: Floats, images: ArrayLike | None = None) -> Snapshot:
    n = len(vectors)
    ids = np.arange(n) if images is None else np.asarray(images, dtype=np.int64)
    return Snapshot(vectors, ids, none(n, Answers.none()).relations)


def small() -> Snapshot:
    return shown(unit(seed(7).normal(size=(N, 5))), IMAGES)


def softmax() -> Floats:
    return seed(8).dirichlet(np.ones(4), N)


LABELS = [Labels(LABELLED, softmax()), Labels(LABELLED), Labels(NONE)]
labels_or_none = pytest.mark.parametrize("labels", LABELS, ids=["classifier", "labels-only", "no-labels"])


# -- the contract ------------------------------------------------------------------------------------


@every_labeller
@labels_or_none
@pytest.mark.parametrize("n", [0, 1, 3, 9, 10, 11, 12, 500])
def test_a_labeller_chooses_n_distinct_unlabelled_images(choose: Choose, labels: Labels, n: int) -> None:
    open_images = set(IMAGES.tolist()) - set(labels.images.tolist())
    for s in range(3):
        chosen = choose(small(), labels, n, seed(s)).tolist()
        assert len(set(chosen)) == len(chosen) == min(n, len(open_images))
        assert set(chosen) <= open_images


@every_labeller
@labels_or_none
def test_the_seed_determines_the_images(choose: Choose, labels: Labels) -> None:
    for s in range(4):
        first = choose(small(), labels, 5, seed(s))
        again = choose(small(), labels, 5, seed(s))
        assert first.tolist() == again.tolist()
        assert first.dtype == np.int64


@every_labeller
def test_a_labeller_changes_neither_the_snapshot_nor_the_labels(choose: Choose) -> None:
    snapshot = small()
    labels = Labels(LABELLED.copy(), softmax())
    choose(snapshot, labels, 4, seed(0))
    assert labels.probability is not None
    assert snapshot.vectors.tobytes() == small().vectors.tobytes()
    assert snapshot.images.tolist() == IMAGES.tolist()
    assert labels.images.tolist() == LABELLED.tolist()
    assert labels.probability.tobytes() == softmax().tobytes()


@every_labeller
def test_ties_are_broken_by_the_generator(choose: Choose) -> None:
    same = shown(np.tile(np.eye(1, 5), (N, 1)))
    labels = Labels(LABELLED, np.full((N, 4), 0.25))
    lists = {tuple(choose(same, labels, 3, seed(s)).tolist()) for s in range(8)}
    assert len(lists) == 8


@every_labeller
@pytest.mark.parametrize("labelled", [NONE, LABELLED], ids=["no-labels", "labels"])
def test_nothing_is_chosen_where_no_image_is_left(choose: Choose, labelled: Ids) -> None:
    without = shown(small().vectors, labelled)
    assert choose(without, Labels(labelled), 3, seed(0)).tolist() == []


def test_labellers_by_name() -> None:
    assert set(LABELLERS) == {"cal", "cal-metric", "typiclust", "coreset"}
    assert LABELLERS["cal"].choose is LABELLERS["cal-metric"].choose is cal
    without_metric = {name for name, labeller in LABELLERS.items() if not labeller.metric}
    assert without_metric == {"cal"}


# -- what each one chooses ---------------------------------------------------------------------------


def test_cal_chooses_any_image_while_there_is_no_classifier() -> None:
    first = {int(cal(small(), Labels(NONE), 1, seed(s))[0]) for s in range(100)}
    assert first == set(IMAGES.tolist())


def test_cal_chooses_among_the_images_that_the_softmax_is_least_sure_of() -> None:
    probability = softmax()
    least_sure_first = sorted(UNLABELLED, key=lambda image: float(probability[image].max()))
    every = cal(small(), Labels(LABELLED, probability), 10, seed(0))
    assert every.tolist() == least_sure_first
    for s in range(5):
        chosen = cal(small(), Labels(LABELLED, probability), 2, seed(s)).tolist()
        assert chosen[0] == least_sure_first[0]
        assert set(chosen) < set(least_sure_first[:8])  # four times as many


def test_cal_chooses_the_least_sure_image_of_each_cluster() -> None:
    cluster = np.arange(N) % 4
    top = np.linspace(0.3, 0.9, N)
    probability = np.stack([top, 1 - top], axis=1)
    best: dict[int, int] = {}
    for image in sorted(range(N), key=lambda i: float(probability[i].max())):
        best.setdefault(int(cluster[image]), image)
    chosen = cal(shown(np.eye(4)[cluster]), Labels(NONE, probability), 4, seed(0))
    assert chosen.tolist() == list(best.values())


def clusters_of_four_sizes() -> tuple[Floats, Ids]:
    """Vectors around four centres, and the cluster of each image."""
    rng = seed(0)
    cluster = np.repeat(np.arange(4), [30, 20, 10, 10])
    centres = unit(rng.normal(size=(4, 16)))
    return unit(centres[cluster] + 0.05 * rng.normal(size=(70, 16))), cluster


def test_typiclust_chooses_a_typical_image_of_each_cluster_larger_clusters_first() -> None:
    vectors, cluster = clusters_of_four_sizes()
    chosen = typiclust(shown(vectors), Labels(NONE), 4, seed(1))
    assert sorted(cluster[chosen].tolist()) == [0, 1, 2, 3]
    assert cluster[chosen[:2]].tolist() == [0, 1]
    for image in chosen.tolist():
        own = np.flatnonzero(cluster == cluster[image])
        to_centre = vectors[own] @ vectors[own].mean(axis=0)
        assert vectors[image] @ vectors[own].mean(axis=0) > np.median(to_centre)


def test_typiclust_chooses_first_from_clusters_without_a_label() -> None:
    vectors, cluster = clusters_of_four_sizes()
    labelled = np.array([0, 30])  # of the two largest clusters
    chosen = typiclust(shown(vectors), Labels(labelled), 2, seed(1))
    assert sorted(cluster[chosen].tolist()) == [2, 3]


def test_typiclust_with_fewer_clusters_than_labels_takes_more_from_each() -> None:
    vectors, cluster = clusters_of_four_sizes()
    chosen = typiclust(shown(vectors), Labels(NONE), 8, seed(1), most=4)
    assert np.bincount(cluster[chosen]).tolist() == [2, 2, 2, 2]


def quarter_circle(n: int = 91) -> Floats:
    angle = np.linspace(0, np.pi / 2, n)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def test_coreset_chooses_the_image_farthest_from_all_labelled_ones() -> None:
    first, second, third = coreset(shown(quarter_circle()), Labels(np.array([0])), 3, seed(0)).tolist()
    assert (first, second) == (90, 45)
    assert third in (22, 23, 67, 68)


def test_coreset_is_the_greedy_k_centre() -> None:
    vectors = small().vectors
    chosen = coreset(small(), Labels(LABELLED), 10, seed(0)).tolist()
    centres = LABELLED.tolist()
    distances = []
    for image in chosen:
        nearness = {
            i: max(float(vectors[i] @ vectors[c]) for c in centres) for i in UNLABELLED - set(centres)
        }
        assert nearness[image] == pytest.approx(min(nearness.values()), abs=1e-6)
        distances.append(nearness[image])
        centres.append(image)
    assert all(earlier <= later + 1e-6 for earlier, later in pairwise(distances))


def test_coreset_starts_at_a_random_image_while_there_is_no_label() -> None:
    first = {int(coreset(shown(quarter_circle()), Labels(NONE), 3, seed(s))[0]) for s in range(20)}
    assert len(first) > 10
