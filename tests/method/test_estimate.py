"""How good a model is, by questions drawn by lot: what is drawn, what it weighs, whether intervals hold."""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import cohen_kappa_score

from anneal.method import estimate
from anneal.method.estimate import Drawn, Estimate, Places, advice, density, draw, kappa, places, share
from anneal.method.neighbours import unit
from anneal.pairs import Floats, Ids, Pairs, Verdict

SIMILAR, DISSIMILAR, UNSURE = Verdict


def every_pair(images: Sequence[int]) -> Pairs:
    a, b = zip(*combinations(images, 2), strict=True)
    return Pairs.of(a, b)


def space(n: int, dim: int, seed: int) -> Floats:
    return unit(np.random.default_rng(seed).normal(size=(n, dim)))


def of(at: Places, rows: Ids) -> Places:
    return Places(at.ab[rows], at.ba[rows], at.score[rows])


# -- where pairs stand, and what is drawn ----------------------------------------------------------


@pytest.mark.parametrize("strip", [1, 7, 64])
def test_places_are_those_of_a_naive_sort(strip: int) -> None:
    vectors, images = space(20, 3, 0), np.array([1, 2, 3, 5, 8, 9, 11, 13, 14, 17, 19])
    vectors[9] = vectors[3]  # of equally similar ones the smaller id comes first
    vectors[14] = vectors[3]
    pairs = every_pair(images.tolist())

    def rank(one: int, other: int) -> int:
        others = sorted(set(images.tolist()) - {one}, key=lambda i: (-(vectors[one] @ vectors[i]), i))
        return others.index(other)

    found = places(vectors, images, pairs, strip)
    assert found.ab.tolist() == [rank(a, b) for a, b in pairs]
    assert found.ba.tolist() == [rank(b, a) for a, b in pairs]
    np.testing.assert_allclose(found.score, [vectors[a] @ vectors[b] for a, b in pairs])


@pytest.mark.parametrize("n", [2, 3, 6, 7, 27, 40, 150])
def test_the_chances_of_all_pairs_add_up_to_one(n: int) -> None:
    images = np.arange(n)
    at = places(space(n, 3, n), images, every_pair(images.tolist()))
    assert density(at, n).sum() == pytest.approx(1)
    assert (density(at, n) > 0).all()  # whatever can be similar can be drawn


def test_pairs_are_drawn_as_often_as_their_density_says() -> None:
    vectors, images, n = space(40, 3, 1), np.arange(3, 33), 100_000
    pairs = every_pair(images.tolist())
    drawn = draw(vectors, images, n, np.random.default_rng(0))
    counts = np.zeros((40, 40))
    np.add.at(counts, (drawn.a, drawn.b), 1)
    expected = n * density(places(vectors, images, pairs), len(images))
    assert counts[pairs.a, pairs.b].sum() == n
    chi_square = (np.square(counts[pairs.a, pairs.b] - expected) / expected).sum()
    assert len(pairs) == 435
    assert chi_square < 434 + 3.1 * math.sqrt(2 * 434)  # exceeded once in a thousand


def test_six_in_ten_are_one_of_the_five_nearest() -> None:
    vectors, images = space(300, 4, 2), np.arange(300)
    drawn = draw(vectors, images, 4000, np.random.default_rng(1))
    at = places(vectors, images, drawn)
    shares = [float((np.minimum(at.ab, at.ba) < end).mean()) for end in (5, 25, 125)]
    assert np.array(shares) == pytest.approx([0.6, 0.8, 0.9], abs=0.04)  # more: of two ranks the nearer


@pytest.mark.parametrize("strip", [1, 5, 64])
def test_what_is_drawn_depends_on_the_generator_alone(strip: int) -> None:
    vectors, images = space(30, 3, 3), np.arange(30)
    drawn = list(draw(vectors, images, 50, np.random.default_rng(5), strip))
    assert drawn == list(draw(vectors, images, 50, np.random.default_rng(5)))
    assert drawn != list(draw(vectors, images, 50, np.random.default_rng(6)))


def test_two_images_have_one_pair_to_draw() -> None:
    assert set(draw(space(9, 3, 0), np.array([4, 7]), 20, np.random.default_rng(0))) == {(4, 7)}


def test_the_chance_of_a_pair_is_summed_over_the_models_draws() -> None:
    images = np.arange(12)
    pairs = every_pair(range(12))
    at = [places(space(12, 3, seed), images, pairs) for seed in range(3)]
    drawn = Drawn(np.zeros(len(pairs), bool), at, [7, 0, 2])
    np.testing.assert_allclose(drawn.chance(12), 7 * density(at[0], 12) + 2 * density(at[2], 12))


# -- a share and its interval ----------------------------------------------------------------------


def wilson(hits: int, m: int) -> tuple[float, float]:
    """The two p at which |hits/m − p| is 1.96 standard deviations, by the quadratic formula."""
    p, z2 = hits / m, estimate.Z**2
    a, b, c = 1 + z2 / m, -2 * p - z2 / m, p * p
    root = math.sqrt(max(b * b - 4 * a * c, 0))
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


@pytest.mark.parametrize(("hits", "m"), [(0, 1), (3, 10), (10, 10), (77, 90)])
@pytest.mark.parametrize("weight", [1.0, 1e-9, 1e9])
def test_equal_weights_give_wilsons_interval(hits: int, m: int, weight: float) -> None:
    found = share(np.full(m, weight), np.arange(m) < hits)
    assert astuple(found) == pytest.approx((hits / m, *wilson(hits, m)), abs=1e-9)


def test_of_nothing_nothing_is_known() -> None:
    for weights in (np.zeros(0), np.zeros(3)):
        assert share(weights, np.zeros(len(weights), bool)) == Estimate(0.5, 0.0, 1.0)


@given(st.lists(st.tuples(st.just(0.0) | st.floats(1e-6, 1e6), st.booleans()), min_size=1))
def test_a_share_lies_within_its_interval_within_0_and_1(answers: list[tuple[float, bool]]) -> None:
    weights, similar = np.array([w for w, _ in answers]), np.array([s for _, s in answers])
    found = share(weights, similar)
    assert -1e-9 <= found.low <= found.value + 1e-9
    assert found.value <= found.high + 1e-9 <= 1 + 2e-9


def test_unequal_weights_tell_less() -> None:
    similar = np.arange(40) % 2 == 0
    even, uneven = share(np.ones(40), similar), share(np.repeat([1.0, 9.0], 20), similar)
    assert even.value == uneven.value == 0.5
    assert uneven.high - uneven.low > 1.2 * (even.high - even.low)


# -- P@5 and precision, over many campaigns --------------------------------------------------------

N, CLASSES, CAMPAIGNS = 120, 12, 500
DRAWS = (30, 12, 24, 40)  # of each model, as far as they were answered
NOISE = {"slow": (1.5, 1.2, 1.0, 0.8), "steep": (1.2, 0.8, 0.5, 0.3)}  # of four models, each better


@dataclass(frozen=True)
class World:
    """A small archive of clusters, four models of it, and all there is to know."""

    models: list[Floats]
    at: list[Places]  # of every pair, in each model
    row: Ids  # (n, n) → the pair's row
    truth: NDArray[np.bool_]  # of every pair: similar?
    known: NDArray[np.bool_]  # of every pair: do other answers tell it?
    nearest: list[Ids]  # (n, 5) rows of the pairs of each image and its five nearest, in each model
    limits: list[float]  # of each model: as many pairs as are similar lie above it

    def p5(self, model: int) -> float:
        return float(self.truth[self.nearest[model]].mean())

    def precision(self, model: int) -> float:
        called = (self.at[model].score >= self.limits[model]) & ~self.known
        return float(self.truth[called].mean())

    def top(self, model: int) -> NDArray[np.int8]:
        told = np.where(self.truth, SIMILAR, DISSIMILAR) * self.known
        return told[self.nearest[model]].astype(np.int8)


@cache
def world(pace: str) -> World:
    rng, images = np.random.default_rng(1), np.arange(N)
    classes = images % CLASSES
    centres, off = unit(rng.normal(size=(CLASSES, 16))), rng.normal(size=(N, 16)) / 4
    models = [unit(centres[classes] + noise * off) for noise in NOISE[pace]]
    pairs = every_pair(range(N))
    row = np.full((N, N), -1)
    row[pairs.a, pairs.b] = row[pairs.b, pairs.a] = np.arange(len(pairs))
    truth = classes[pairs.a] == classes[pairs.b]
    at = [places(vectors, images, pairs) for vectors in models]
    nearest = []
    for vectors in models:
        s = vectors @ vectors.T
        np.fill_diagonal(s, -np.inf)
        order = np.argsort(-s, axis=1, kind="stable")[:, :5]
        nearest.append(row[images[:, None], order])
    limits = [float(np.sort(places.score)[-truth.sum()]) for places in at]
    known = rng.random(len(pairs)) < np.where(truth, 0.2, 0.1)
    return World(models, at, row, truth, known, nearest, limits)


@cache
def measured(pace: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(campaigns, models, 3): value, low, high of P@5, and of the precision; draws of its own in each."""
    w, rng = world(pace), np.random.default_rng(7)
    p5, precision = np.empty((2, CAMPAIGNS, 4, 3))
    for campaign in range(CAMPAIGNS):
        draws = [draw(vectors, np.arange(N), n, rng) for vectors, n in zip(w.models, DRAWS, strict=True)]
        rows = np.concatenate([w.row[pairs.a, pairs.b] for pairs in draws])
        drawn = Drawn(w.truth[rows], [of(at, rows) for at in w.at], DRAWS)
        for k in range(4):
            at, open_ = of(w.at[k], rows), ~w.known[rows]
            p5[campaign, k] = astuple(estimate.precision_at_5(drawn, at, open_, N, w.top(k)))
            precision[campaign, k] = astuple(estimate.precision_of_similar(drawn, at, open_, N, w.limits[k]))
    return p5, precision


def coverage(found: NDArray[np.float64], true: NDArray[np.float64]) -> list[float]:
    held = (found[..., 1] <= true + 1e-9) & (true <= found[..., 2] + 1e-9)
    return [float(x) for x in held.mean(axis=0)]


both_paces = pytest.mark.parametrize("pace", NOISE)


@both_paces
def test_p5_is_estimated_without_bias(pace: str) -> None:
    true = np.array([world(pace).p5(k) for k in range(4)])
    assert (np.diff(true) >= 0).all()  # the models do get better
    error = measured(pace)[0][..., 0] - true
    assert np.abs(error.mean(axis=0)).max() < 0.01
    assert error.std() > 0.01  # and it is an estimate


@both_paces
def test_the_interval_of_p5_holds_95_times_in_100(pace: str) -> None:
    # Fails for "steep" while estimate.share takes Kish's number alone: weights and verdicts hang together
    # (a pair that is dissimilar was the less likely to be drawn), which it does not see.
    true = np.array([world(pace).p5(k) for k in range(4)])
    found = coverage(measured(pace)[0], true)
    assert 0.92 <= min(found) <= max(found) <= 1.0, found


@both_paces
def test_the_precision_of_similar_is_estimated_without_bias(pace: str) -> None:
    true = np.array([world(pace).precision(k) for k in range(4)])
    error = measured(pace)[1][..., 0] - true
    assert np.abs(error.mean(axis=0)).max() < 0.02


@both_paces
def test_the_interval_of_the_precision_holds_95_times_in_100(pace: str) -> None:
    true = np.array([world(pace).precision(k) for k in range(4)])
    found = coverage(measured(pace)[1], true)
    assert 0.92 <= min(found) <= max(found) <= 1.0, found


def test_where_everything_is_known_p5_is_exact() -> None:
    w = world("slow")
    top = np.where(w.truth[w.nearest[0]], SIMILAR, DISSIMILAR).astype(np.int8)
    rows = np.arange(50)
    drawn = Drawn(~w.truth[rows], [of(w.at[0], rows)], [50])
    found = estimate.precision_at_5(drawn, of(w.at[0], rows), np.zeros(50, bool), N, top)
    assert astuple(found) == pytest.approx((w.p5(0),) * 3)


def test_without_draws_what_is_known_bounds_p5() -> None:
    none = Places(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    top = np.array([[1, 1, 2, 0, 0], [1, 2, 3, 0, 0]], dtype=np.int8)  # unsure is as good as unknown
    found = estimate.precision_at_5(Drawn(np.empty(0, bool), [], []), none, np.empty(0, bool), 9, top)
    assert astuple(found) == pytest.approx((0.3 + 0.5 * 0.5, 0.3, 0.8))


def test_more_draws_narrow_the_interval() -> None:
    w, rng = world("slow"), np.random.default_rng(0)
    widths = []
    for n in (20, 200, 2000):
        pairs = draw(w.models[2], np.arange(N), n, rng)
        rows = w.row[pairs.a, pairs.b]
        drawn = Drawn(w.truth[rows], [of(w.at[2], rows)], [n])
        found = estimate.precision_at_5(drawn, of(w.at[2], rows), ~w.known[rows], N, w.top(2))
        widths.append(found.high - found.low)
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


# -- advice ----------------------------------------------------------------------------------------


def around(value: float, width: float = 0.1) -> Estimate:
    return Estimate(value, value - width / 2, value + width / 2)


@pytest.mark.parametrize(
    ("answers", "values", "width", "stop", "says"),
    [
        ([], [], 0.1, False, "Too early"),
        ([0, 30, 60], [0.8, 0.8, 0.8], 0.1, False, "Too early to say: a few rounds"),
        ([0, 30, 60, 90], [0.8, 0.8, 0.8, 0.8], 0.1, False, "Too early to say: a few rounds"),
        ([0, 30, 60, 90, 120], [0.8] * 5, 0.3, False, "P@5 is known within 30 points only"),
        ([0, 30, 60, 90, 120], [0.4, 0.5, 0.6, 0.7, 0.8], 0.1, False, "+20 points of P@5 in the last 60"),
        ([0, 30, 60, 90, 120], [0.5, 0.8, 0.8, 0.8, 0.8], 0.1, True, "levelled off near 0.80 (0.75 to 0.85)"),
        (
            [0, 30, 60, 90, 120],
            [0.5, 0.6, 0.8, 0.8, 0.8],
            0.1,
            False,
            "Still moving: +0",
        ),  # not twice in a row
        ([0, 30, 60, 90, 120], [0.5, 0.9, 0.9, 0.9, 0.8], 0.1, True, "changed it by -10 points"),
        (
            [0, *range(100, 1000, 100)],  # the last third: from 600 to 900
            [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.8, 0.8, 0.805],
            0.1,
            True,
            "the last 300 answers",
        ),
        (
            [0, *range(100, 1000, 100)],
            [0.8] * 8 + [0.81, 0.82],
            0.1,
            False,
            "Still moving: +2 points of P@5 in the last 300 answers",
        ),
    ],
)
def test_advice_is_to_stop_once_quality_has_levelled_off(
    answers: list[int], values: list[float], width: float, stop: bool, says: str
) -> None:
    told = advice(answers, [around(value, width) for value in values])
    assert told[0] is stop
    assert says in told[1]


# -- agreement -------------------------------------------------------------------------------------


@given(st.lists(st.tuples(*[st.sampled_from([int(v) for v in Verdict])] * 2), min_size=1, max_size=30))
def test_kappa_is_cohens(said: list[tuple[int, int]]) -> None:
    one, other = [x for x, _ in said], [y for _, y in said]
    agreement, found = kappa(one, other)
    assert agreement == pytest.approx(sum(x == y for x, y in said) / len(said))
    if len({*one, *other}) == 1:
        assert found is None
    else:
        assert found == pytest.approx(cohen_kappa_score(one, other, labels=list(Verdict)))


def test_two_who_always_say_the_same_one_thing_have_no_kappa() -> None:
    assert kappa([SIMILAR] * 5, [SIMILAR] * 5) == (1.0, None)
    assert kappa([SIMILAR, DISSIMILAR], [SIMILAR, DISSIMILAR]) == (1.0, 1.0)
    assert kappa([SIMILAR, SIMILAR], [DISSIMILAR, DISSIMILAR]) == (0.0, 0.0)
