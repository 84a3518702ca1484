"""One contract for every strategy, then what each one picks."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from typing import Protocol

import numpy as np
import pytest

from anneal.method import diversity
from anneal.method.diversity import Diversity
from anneal.method.mining import Mined
from anneal.method.neighbours import unit
from anneal.method.placing import place
from anneal.method.relations import CLOSURES, Relations, none
from anneal.method.strategies import (
    Select,
    Snapshot,
    bcgue,
    cal,
    cold,
    coreset,
    levels,
    mgue,
    random,
    similarity_at,
    strategies,
    typiclust,
)
from anneal.method.uncertainty import PairProbability
from anneal.pairs import UNKNOWN, Answers, Floats, Pairs, Verdict

S, D, U = Verdict.SIMILAR, Verdict.DISSIMILAR, Verdict.UNSURE
N = 16  # images of the archive; strategies may ask about IMAGES only
IMAGES = np.array([15, 2, 3, 11, 5, 7, 8, 0, 9, 13, 12, 1])

PICKERS: dict[str, Select] = {
    name: strategy.select for name, strategy in strategies().items() if strategy.select is not None
} | {"cold": cold}
every_strategy = pytest.mark.parametrize("select", PICKERS.values(), ids=PICKERS.keys())
every_closure = pytest.mark.parametrize("closure", CLOSURES.keys())


def seed(number: int) -> np.random.Generator:
    return np.random.default_rng(number)


def relations(n: int, rows: Iterable[tuple[int, int, int]], closure: str = "full") -> Relations:
    columns = np.array(list(rows), dtype=np.int64).reshape(-1, 3)
    answers = Answers.of(Pairs.of(columns[:, 0], columns[:, 1]), columns[:, 2])
    return CLOSURES[closure](n, answers).relations


def classifier(vectors: Floats) -> PairProbability:
    """A pair classifier with random weights."""
    rng, dim, wide = seed(9), vectors.shape[1], 32
    left, right = rng.normal(size=(dim, wide)), rng.normal(size=(dim, wide))
    second, last = rng.normal(size=(wide, wide)) / wide, rng.normal(size=wide)
    return PairProbability(vectors @ left, vectors @ right + 0.1, second, rng.normal(size=wide), last, 0.2)


def snapshot(closure: str = "full", vectors: Floats | None = None) -> Snapshot:
    """Some pairs known, some implied, some set aside as unsure and as contradicted."""
    vectors = unit(seed(7).normal(size=(N, 5))) if vectors is None else vectors
    rows = [(15, 2, S), (2, 3, S), (3, 11, D), (5, 7, D), (7, 8, S), (4, 6, S), (4, 0, D)]
    rows += [(0, 9, U), (0, 13, U), (12, 1, S), (1, 12, D)]
    return Snapshot(
        vectors=vectors,
        images=IMAGES,
        known=relations(N, rows, closure),
        probability=classifier(vectors),
        classes=seed(8).dirichlet(np.ones(4), N),
        labelled=np.array([2, 4, 12]),
    )


def having(known: Relations, images: Iterable[int], verdict: int) -> set[tuple[int, int]]:
    """The pairs of these images of which this is known."""
    a, b = zip(*combinations(sorted(set(images)), 2), strict=True)
    pairs = Pairs.of(a, b)
    return set(pairs[known.of(pairs) == verdict])


def unknown(shown: Snapshot) -> set[tuple[int, int]]:
    return having(shown.known, shown.images.tolist(), UNKNOWN)


def contents(shown: Snapshot) -> list[bytes]:
    """Every array that a strategy could reach, as bytes."""
    known, net = shown.known, shown.probability
    assert isinstance(net, PairProbability)
    assert shown.classes is not None
    assert shown.labelled is not None
    arrays = [shown.vectors, shown.images, shown.classes, shown.labelled, known.group]
    arrays += [part for m in (known.links, known.aside) for part in (m.data, m.indices, m.indptr)]
    arrays += [net.left, net.right, net.second, net.second_bias, net.last]
    return [array.tobytes() for array in arrays]


# ---- the contract


@every_strategy
@every_closure
@pytest.mark.parametrize("n", [1, 4, 13])
def test_a_strategy_picks_n_distinct_unknown_pairs_of_the_images_shown(
    select: Select, closure: str, n: int
) -> None:
    shown = snapshot(closure)
    left = unknown(shown)
    for s in range(5):
        picked = list(select(shown, n, seed(s)))
        assert len(set(picked)) == len(picked) == n
        assert set(picked) <= left


@every_strategy
@every_closure
def test_a_strategy_picks_fewer_only_if_there_are_no_more(select: Select, closure: str) -> None:
    shown = snapshot(closure)
    left = unknown(shown)
    assert 30 < len(left) < 66
    for n in (len(left) - 1, len(left), len(left) + 1, 1000):
        picked = list(select(shown, n, seed(n)))
        assert len(picked) == min(n, len(left))
        assert set(picked) <= left
    assert set(select(shown, 1000, seed(0))) == left


@every_strategy
def test_a_strategy_picks_nothing_where_everything_is_known(select: Select) -> None:
    rows = [(a, b, (S, D, U)[(a + b) % 3]) for a, b in combinations(range(N), 2)]
    assert list(select(replace(snapshot(), known=relations(N, rows, "none")), 5, seed(0))) == []


@every_strategy
@pytest.mark.parametrize("images", [[], [3], [3, 3]])
@pytest.mark.parametrize("known", [True, False], ids=["something-known", "nothing-known"])
def test_fewer_than_two_images_have_no_pairs_to_pick(select: Select, images: list[int], known: bool) -> None:
    shown = replace(snapshot(), images=np.array(images, dtype=np.int64))
    if not known:
        shown = replace(shown, known=relations(N, []), probability=None)
    assert list(select(shown, 3, seed(0))) == []


@pytest.mark.parametrize("images", [[], [3], [3, 3]])
def test_fewer_than_two_images_have_no_pairs_to_pick_with_a_lean_either(images: list[int]) -> None:
    shown = replace(snapshot(), images=np.array(images, dtype=np.int64), lean=0.5)
    assert list(mgue(shown, 3, seed(0))) == []


@every_strategy
def test_the_last_two_images_are_paired(select: Select) -> None:
    shown = Snapshot(np.eye(N), np.array([9, 4]), relations(N, []))
    assert list(select(shown, 3, seed(0))) == [(4, 9)]


@every_strategy
def test_no_pairs_are_picked_when_none_are_wanted(select: Select) -> None:
    assert list(select(snapshot(), 0, seed(0))) == []


@every_strategy
def test_a_seed_determines_the_list(select: Select) -> None:
    for s in range(4):
        assert list(select(snapshot(), 6, seed(s))) == list(select(snapshot(), 6, seed(s)))


@every_strategy
def test_ties_are_broken_by_the_generator(select: Select) -> None:
    shown = snapshot(vectors=np.tile(np.eye(1, 5), (N, 1)))
    lists = {tuple(select(shown, 4, seed(s))) for s in range(8)}
    ways = 5 if select is place else 8  # placing has fewer ways to go in an archive as small as this
    assert len(lists) >= ways
    assert len({frozenset(picked) for picked in lists}) >= ways


@every_strategy
def test_a_strategy_leaves_the_snapshot_as_it_was(select: Select) -> None:
    shown = snapshot()
    before = contents(shown)
    select(shown, 6, seed(0))
    select(shown, 1000, seed(0))
    assert contents(shown) == before


def test_pairs_that_answers_imply_are_never_asked() -> None:
    """A chain of similar answers implies all its pairs: only those across are left."""
    rows = [(i, i + 1, S) for i in range(5)] + [(i, i + 1, S) for i in range(8, 13)]
    known = relations(N, rows)
    shown = Snapshot(unit(seed(1).normal(size=(N, 3))), np.array([0, 5, 8, 13]), known)
    for select in PICKERS.values():
        assert set(select(shown, 100, seed(0))) == {(0, 8), (0, 13), (5, 8), (5, 13)}
    parted = replace(shown, known=relations(N, [*rows, (2, 10, D)]))
    for select in PICKERS.values():
        assert list(select(parted, 100, seed(0))) == []


def test_relations_of_other_images_are_refused() -> None:
    with pytest.raises(ValueError, match="3 vectors but relations of 16"):
        replace(snapshot(), vectors=np.eye(3))


def test_strategies_by_name() -> None:
    found = strategies()
    assert {"mgue", "bcgue", "random", "cal"} <= set(found)
    assert all(strategy.name == name for name, strategy in found.items())
    assert all((s.select is None) != (s.label is None) for s in found.values())
    assert {name for name, s in found.items() if s.pair_classifier} == {"bcgue"}
    assert found["cal"].label is cal


# ---- what each one picks


def mean_std(vectors: Floats, pairs: set[tuple[int, int]]) -> tuple[float, float]:
    s = [float(vectors[a] @ vectors[b]) for a, b in pairs]
    mean = sum(s) / len(s)
    return mean, (sum((x - mean) ** 2 for x in s) / len(s)) ** 0.5


@pytest.mark.parametrize("lam", [0.0, 3.0])
@every_closure
def test_mgue_without_diversity_picks_the_pairs_nearest_the_threshold(lam: float, closure: str) -> None:
    shown = snapshot(closure)
    mean_s, std_s = mean_std(shown.vectors, having(shown.known, range(N), S))
    mean_d, std_d = mean_std(shown.vectors, having(shown.known, range(N), D))
    alpha = (mean_s + mean_d - lam * (std_s - std_d)) / 2
    nearest = sorted(unknown(shown), key=lambda ab: abs(shown.vectors[ab[0]] @ shown.vectors[ab[1]] - alpha))
    assert list(mgue(shown, 7, seed(0), lam=lam, diversity=diversity.none)) == nearest[:7]
    by_name = strategies(lam=lam, diversity=diversity.none)["mgue"].select
    assert by_name is not None
    assert list(by_name(shown, 7, seed(0))) == nearest[:7]


def test_bcgue_without_diversity_picks_the_pairs_nearest_one_half() -> None:
    shown = snapshot()
    probability = shown.probability
    assert probability is not None
    p = probability(np.arange(N), np.arange(N))
    nearest = sorted(unknown(shown), key=lambda ab: abs(p[ab] - 0.5))
    assert list(bcgue(shown, 7, seed(0), diversity=diversity.none)) == nearest[:7]
    by_name = strategies(diversity=diversity.none)["bcgue"].select
    assert by_name is not None
    assert list(by_name(shown, 7, seed(0))) == nearest[:7]


class Guided(Protocol):
    """What mgue and bcgue share."""

    def __call__(
        self,
        snapshot: Snapshot,
        n: int,
        rng: np.random.Generator,
        *,
        widen: int = 4,
        diversity: Diversity = diversity.kmeans,
    ) -> Pairs: ...


guided = pytest.mark.parametrize("strategy", [mgue, bcgue], ids=["mgue", "bcgue"])


@guided
def test_diversity_chooses_n_among_the_four_times_as_many_most_uncertain(strategy: Guided) -> None:
    seen: list[tuple[Mined, int]] = []

    def last(vectors: Floats, mined: Mined, n: int, rng: np.random.Generator) -> Pairs:
        assert vectors is shown.vectors
        seen.append((mined, n))
        return mined.pairs[-n:]

    shown = snapshot()
    nearest = list(strategy(shown, 20, seed(0), diversity=diversity.none))
    assert list(strategy(shown, 5, seed(0), diversity=last)) == nearest[15:]
    assert [(list(mined.pairs), n) for mined, n in seen] == [(nearest, 5)]
    assert list(strategy(shown, 5, seed(0), diversity=last, widen=2)) == nearest[5:10]


@guided
def test_diversity_is_by_clustering_unless_told_otherwise(strategy: Guided) -> None:
    shown = snapshot()
    clustered = list(strategy(shown, 5, seed(0), diversity=diversity.kmeans))
    assert list(strategy(shown, 5, seed(0))) == clustered
    nearest = list(strategy(shown, 20, seed(0), diversity=diversity.none))
    assert clustered != nearest[:5]
    assert clustered[0] == nearest[0]  # the most uncertain of all leads its cluster
    assert set(clustered) < set(nearest)


@pytest.mark.parametrize("verdict", [S, D, U])
def test_mgue_falls_back_to_cold_where_one_kind_of_verdict_is_known(verdict: Verdict) -> None:
    shown = replace(snapshot(), known=relations(N, [(0, 1, verdict), (2, 3, verdict)]))
    for s in range(3):
        assert list(mgue(shown, 5, seed(s))) == list(cold(shown, 5, seed(s)))


def test_bcgue_falls_back_to_cold_without_a_classifier() -> None:
    shown = replace(snapshot(), probability=None)
    assert list(bcgue(shown, 5, seed(1))) == list(cold(shown, 5, seed(1)))


def chi_square(picked: list[tuple[int, int]], possible: set[tuple[int, int]]) -> float:
    assert set(picked) <= possible
    expected = len(picked) / len(possible)
    return sum((picked.count(ab) - expected) ** 2 / expected for ab in possible)


def test_random_is_uniform_over_unknown_pairs() -> None:
    shown = replace(snapshot(), images=np.array([5, 2, 3, 11, 7, 0, 9]))
    left = unknown(shown)
    assert len(left) == 16
    picked = [ab for s in range(600) for ab in random(shown, 3, seed(s))]
    assert chi_square(picked, left) < 37.7  # exceeded once in a thousand at 15 degrees of freedom


def test_random_is_uniform_where_few_pairs_are_left_among_many() -> None:
    n, left = 60, {(3, 50), (7, 8), (20, 41)}
    rows = [(a, b, D) for a, b in combinations(range(n), 2) if (a, b) not in left]
    shown = Snapshot(np.ones((n, 1)), np.arange(n), relations(n, rows, "none"))
    picked = [ab for s in range(300) for ab in random(shown, 1, seed(s))]
    assert chi_square(picked, left) < 13.8  # once in a thousand at 2 degrees of freedom
    assert set(random(shown, 3, seed(0))) == left
    assert set(cold(shown, 3, seed(0))) == left


def test_cold_pairs_an_image_with_a_neighbour_at_a_rank_even_on_a_logarithmic_scale() -> None:
    n = 150
    vectors = unit(seed(11).normal(size=(n, 3)))
    shown = Snapshot(vectors, seed(12).permutation(n), none(n, Answers.none()).relations)
    rank = np.argsort(np.argsort(-(vectors @ vectors.T), axis=1), axis=1)  # 0: the image itself
    ranks = []
    for s in range(10):
        pairs = cold(shown, 100, seed(s))
        ranks += np.minimum(rank[pairs.a, pairs.b], rank[pairs.b, pairs.a]).tolist()
    assert len(ranks) == 1000
    assert min(ranks) == 1
    assert max(ranks) > 130  # over the whole archive
    # Ranks below r have a share of log r / log 150 of the scale; it is a little more here, as the
    # smaller of two ranks is looked at.
    for r in (4, 12, 50):
        share = np.log(r) / np.log(n)
        assert share - 0.03 < np.mean(np.array(ranks) < r) < share + 0.12


# ---- levels, and leaning away from the threshold


def line(n: int = 200) -> Floats:
    """Images on a quarter of a circle, at random: similarities of all sizes from 0 to 1."""
    angle = seed(14).uniform(0, np.pi / 2, n)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def similarities(vectors: Floats) -> Floats:
    s: Floats = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
    return s


def test_a_level_is_the_share_of_all_pairs_that_are_more_similar() -> None:
    vectors = line()
    every, s = similarities(vectors), np.array([-1.0, 0.2, 0.5, 0.9, 0.999, 1.1])
    found = levels(vectors, np.arange(200), s, seed(0))
    np.testing.assert_allclose(found, [(every > x).mean() for x in s], atol=0.005)
    assert (found > 0).all()  # its logarithm is taken
    assert (found < 1).all()
    assert float(levels(vectors, np.arange(200), 0.5, seed(0))) == found[2]


def test_the_similarity_at_a_level_has_that_level() -> None:
    vectors, images = line(), np.arange(200)
    every = similarities(vectors)
    for level in (0.001, 0.05, 0.5, 0.95):
        s = similarity_at(vectors, images, level, seed(1))
        assert (every > s).mean() == pytest.approx(level, rel=0.1)
        assert float(levels(vectors, images, s, seed(2))) == pytest.approx(level, rel=0.1)
    lowest = similarity_at(vectors, images, 1.0, seed(1))
    assert similarity_at(vectors, images, 7.0, seed(1)) == lowest == pytest.approx(every.min(), abs=0.02)


def test_levels_are_of_the_images_that_may_be_asked_about() -> None:
    vectors = np.concatenate([line(), np.tile([[1.0, 0.0]], (300, 1))])  # many more, all alike
    found = levels(vectors, np.arange(200), 0.999, seed(0))
    assert float(found) == pytest.approx((similarities(line()) > 0.999).mean(), abs=0.005)


def test_a_level_of_what_is_not_known_is_not_known() -> None:
    assert np.isnan(levels(line(), np.arange(200), float("nan"), seed(0)))


def test_mgue_leans_away_from_its_threshold_to_as_many_times_as_many_pairs() -> None:
    vectors = line()
    rows = [
        (a, b, S if vectors[a] @ vectors[b] > 0.97 else D)
        for a, b in zip(range(0, 40), range(40, 80), strict=True)
    ]
    shown = Snapshot(vectors, np.arange(200), relations(200, rows, "none"))
    every = similarities(vectors)

    def level(lean: float) -> float:
        pairs = mgue(replace(shown, lean=lean), 5, seed(0), lam=0.0, diversity=diversity.none)
        return float(np.mean([(every > vectors[a] @ vectors[b]).mean() for a, b in pairs]))

    assert 0.1 < level(0.0) < 0.6
    for lean in (0.1, 0.4, -1.0):
        assert level(lean) == pytest.approx(level(0.0) * np.exp(lean), rel=0.1)
    assert level(20.0) > 0.99  # as far as there is


@pytest.mark.parametrize("name", ["bcgue", "random"])
def test_others_than_mgue_do_not_lean(name: str) -> None:
    shown = snapshot()
    assert list(PICKERS[name](replace(shown, lean=1.0), 5, seed(3))) == list(PICKERS[name](shown, 5, seed(3)))


# ---- cal: images, not pairs


def left_over(shown: Snapshot) -> set[int]:
    assert shown.labelled is not None
    return set(shown.images.tolist()) - set(shown.labelled.tolist())


@pytest.mark.parametrize("with_classes", [True, False])
def test_cal_picks_n_distinct_unlabelled_images(with_classes: bool) -> None:
    shown = snapshot() if with_classes else replace(snapshot(), classes=None)
    assert left_over(shown) == {15, 3, 11, 5, 7, 8, 0, 9, 13, 1}
    before = contents(snapshot())
    for n in (0, 1, 3, 9, 10, 11, 500):
        picked = cal(shown, n, seed(n)).tolist()
        assert len(set(picked)) == len(picked) == min(n, 10)
        assert set(picked) <= left_over(shown)
        assert picked == cal(shown, n, seed(n)).tolist()
    assert contents(replace(shown, classes=snapshot().classes)) == before


def test_cal_picks_any_image_while_no_class_is_known() -> None:
    shown = replace(snapshot(), classes=None, labelled=None)
    assert sorted(cal(shown, 500, seed(0)).tolist()) == sorted(IMAGES.tolist())
    firsts = {int(cal(shown, 1, seed(s))[0]) for s in range(100)}
    assert firsts == set(IMAGES.tolist())


def test_cal_picks_the_images_the_softmax_is_least_sure_of() -> None:
    shown = snapshot()
    classes = shown.classes
    assert classes is not None
    order = sorted(left_over(shown), key=lambda i: max(classes[i].tolist()))
    assert cal(shown, 4, seed(0), widen=1).tolist() == order[:4]
    for s in range(5):
        picked = cal(shown, 2, seed(s))
        assert picked[0] == order[0]
        assert set(picked.tolist()) < set(order[:8])


def test_cal_picks_one_image_per_cluster() -> None:
    where = np.arange(N) % 4
    vectors = np.eye(4)[where]
    most = np.linspace(0.3, 0.9, N)  # image 0 is least sure
    classes = np.stack([most, 1 - most], axis=1)
    classes[most < 0.5] = np.stack([1 - most, most], axis=1)[most < 0.5]
    certain = classes.max(axis=1)
    shown = Snapshot(vectors, np.arange(N), relations(N, []), classes=classes)
    best: dict[int, int] = {}
    for image in sorted(range(N), key=lambda i: float(certain[i])):
        best.setdefault(int(where[image]), image)
    assert cal(shown, 4, seed(0)).tolist() == list(best.values())


def test_cal_breaks_ties_by_the_generator() -> None:
    shown = replace(snapshot(vectors=np.tile(np.eye(1, 5), (N, 1))), classes=np.full((N, 4), 0.25))
    assert len({tuple(cal(shown, 3, seed(s)).tolist()) for s in range(8)}) == 8


def test_typiclust_takes_the_middle_of_every_heap_and_first_of_those_without_a_label() -> None:
    rng = seed(0)
    middles = unit(rng.normal(size=(4, 16)))
    vectors = unit(np.repeat(middles, [30, 20, 10, 10], axis=0) + 0.05 * rng.normal(size=(70, 16)))
    heap = np.repeat(np.arange(4), [30, 20, 10, 10])
    shown = Snapshot(vectors, np.arange(70), relations(70, []))
    assert sorted(heap[typiclust(shown, 4, seed(1))].tolist()) == [0, 1, 2, 3]
    labelled = replace(shown, labelled=np.array([0, 1, 31]))  # of the two largest heaps
    picked = typiclust(labelled, 2, seed(1))
    assert not set(picked.tolist()) & {0, 1, 31}
    assert {2, 3} & set(heap[picked].tolist())


def test_a_core_set_is_what_is_farthest_from_all_that_is_labelled() -> None:
    angle = np.linspace(0, np.pi / 2, 91)
    vectors = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    shown = Snapshot(vectors, np.arange(91), relations(91, []), labelled=np.array([0]))
    first, second, third = coreset(shown, 3, seed(0)).tolist()
    assert (first, second) == (90, 45)
    assert third in (22, 23, 67, 68)
    assert len(set(coreset(replace(shown, labelled=None), 91, seed(0)).tolist())) == 91
