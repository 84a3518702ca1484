"""MGUE and BCGUE, checked against the formulas written as loops."""

import math
from dataclasses import astuple
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from anneal.method import uncertainty
from anneal.method.neighbours import unit
from anneal.method.relations import CLOSURES, Relations, full, none
from anneal.method.uncertainty import (
    Moments,
    PairProbability,
    alpha_t,
    best_cutoff,
    calibrate,
    fit_logistic,
    level_for_share,
    moments,
    score,
)
from anneal.pairs import Answers, Floats, Pairs, Verdict


def relations(n: int, answers: list[tuple[int, int, int]], closure: str = "full") -> Relations:
    a, b, verdicts = zip(*answers, strict=True)
    return CLOSURES[closure](n, Answers.of(Pairs.of(a, b), verdicts)).relations


def similarity(u: Floats, v: Floats) -> float:
    return sum(float(x) * float(y) for x, y in zip(u, v, strict=True))


def naive_mean_std(values: list[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


ANSWERS = [(0, 1, 1), (1, 2, 1), (2, 3, 2), (4, 5, 1), (5, 6, 2), (6, 7, 3), (8, 9, 2)]


@pytest.mark.parametrize("closure", ["none", "single", "full"])
@pytest.mark.parametrize("block", [1, 2, 3, 1024])
def test_moments_are_those_of_every_known_pair_answered_or_implied(closure: str, block: int) -> None:
    vectors = unit(np.random.default_rng(1).normal(size=(12, 4)))
    known = relations(12, ANSWERS, closure)
    values: dict[int, list[float]] = {0: [], 1: [], 2: [], 3: []}
    table = known.among(np.arange(12), np.arange(12))
    for a, b in combinations(range(12), 2):
        verdict = int(table[a, b])
        values[verdict].append(similarity(vectors[a], vectors[b]))
    counts = {"none": (3, 3), "single": (4, 5), "full": (4, 6)}[closure]
    assert (len(values[1]), len(values[2])) == counts
    measured = moments(vectors, known, block)
    expected = (*naive_mean_std(values[1]), *naive_mean_std(values[2]))
    assert astuple(measured) == pytest.approx(expected, rel=1e-9)
    assert measured.complete


def test_moments_of_many_images_are_those_of_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    n = 400
    kinds = rng.integers(4, size=n)
    vectors = unit(np.eye(4, 6)[kinds] + 0.3 * rng.normal(size=(n, 6)))
    similar = [(int(i), int(np.flatnonzero(kinds == kinds[i])[0]), 1) for i in range(n)]
    chains = [answer for answer in similar if answer[0] != answer[1]]
    firsts = [int(np.flatnonzero(kinds == kind)[0]) for kind in range(4)]
    known = relations(n, [*chains, *((a, b, 2) for a, b in combinations(firsts, 2))])
    every = moments(vectors, known)
    monkeypatch.setattr(uncertainty, "MEMBERS", 100)
    some = moments(vectors, known)
    assert astuple(some) != astuple(every)
    assert astuple(some) == pytest.approx(astuple(every), abs=0.05)
    taken = known.members[np.linspace(0, n - 1, 100).astype(np.int64)]
    pairs = Pairs.from_list(combinations(taken.tolist(), 2))
    s = np.array([similarity(vectors[a], vectors[b]) for a, b in pairs])
    apart = kinds[pairs.a] != kinds[pairs.b]
    expected = (s[~apart].mean(), s[~apart].std(), s[apart].mean(), s[apart].std())
    assert astuple(some) == pytest.approx(expected, rel=1e-9)


def test_implied_pairs_move_the_threshold() -> None:
    vectors = unit(np.random.default_rng(1).normal(size=(12, 4)))
    thresholds = {alpha_t(moments(vectors, relations(12, ANSWERS, c)), 3.0) for c in CLOSURES}
    assert len(thresholds) == 3


def test_moments_of_a_worked_example() -> None:
    vectors = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [0.8, -0.6]])
    known = relations(4, [(0, 1, 1), (0, 3, 1), (0, 2, 2), (1, 2, 2)], "none")
    measured = moments(vectors, known)  # similar: 0.6 and 0.8; dissimilar: 0 and 0.8
    assert astuple(measured) == pytest.approx((0.7, 0.1, 0.4, 0.4))
    assert alpha_t(measured, 3.0) == pytest.approx((0.7 + 0.4 - 3 * (0.1 - 0.4)) / 2)


def test_moments_of_float32_vectors_keep_their_precision() -> None:
    n = 300
    vectors = np.tile(np.array([[0.6, 0.8]], dtype=np.float32), (n, 1))
    chain = Answers.of(Pairs.of(np.arange(n - 1), np.arange(1, n)), np.ones(n - 1))
    measured = moments(vectors, full(n, chain).relations, block=64)
    assert measured.mean_similar == pytest.approx(1.0, abs=1e-6)
    assert measured.std_similar == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("verdict", "nan"),
    [(Verdict.SIMILAR, (False, True)), (Verdict.DISSIMILAR, (True, False)), (Verdict.UNSURE, (True, True))],
)
def test_moments_without_a_pair_of_that_verdict_are_nan(verdict: Verdict, nan: tuple[bool, bool]) -> None:
    measured = moments(np.eye(3), relations(3, [(0, 1, verdict)]))
    assert (math.isnan(measured.mean_similar), math.isnan(measured.mean_dissimilar)) == nan
    assert (math.isnan(measured.std_similar), math.isnan(measured.std_dissimilar)) == nan
    assert not measured.complete


def test_moments_without_answers_are_nan() -> None:
    measured = moments(np.eye(3), none(3, Answers.none()).relations)
    assert math.isnan(measured.mean_similar)
    assert math.isnan(measured.mean_dissimilar)
    assert not measured.complete


@pytest.mark.parametrize("lam", [0.0, 1.0, 3.0, 6.0])
def test_threshold_is_the_formula(lam: float) -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        mu_sim, sigma_sim, mu_dsim, sigma_dsim = (float(x) for x in rng.random(4))
        alpha = (mu_sim + mu_dsim - lam * (sigma_sim - sigma_dsim)) / 2
        assert alpha_t(Moments(mu_sim, sigma_sim, mu_dsim, sigma_dsim), lam) == pytest.approx(alpha)


def test_mgue_score_is_highest_at_the_threshold() -> None:
    s = np.array([[-1.0, 0.2], [0.5, 0.9]])
    naive = [[-abs(x - 0.4) for x in row] for row in s.tolist()]
    np.testing.assert_allclose(score(s, 0.4), naive, rtol=1e-12)
    assert np.argsort(-score(s, 0.4), axis=None).tolist() == [2, 1, 3, 0]


def test_bcgue_score_is_highest_at_one_half() -> None:
    probability = np.array([[0.0, 0.45], [0.8, 1.0]])
    naive = [[-abs(x - 0.5) for x in row] for row in probability.tolist()]
    np.testing.assert_allclose(score(probability, 0.5), naive, rtol=1e-12)
    assert np.argsort(-score(probability, 0.5), axis=None)[:2].tolist() == [1, 2]


# ---- the logistic curve of the verdicts, the level to ask at, the best cutoff


def judged(slope: float, middle: float, n: int, seed: int = 0) -> tuple[Floats, NDArray[np.bool_]]:
    """Random x, with verdicts drawn from a logistic curve."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 8, n)
    return x, rng.random(n) < expit(slope * (x - middle))


@pytest.mark.parametrize("slope", [0.5, 1.5, 4.0])
@pytest.mark.parametrize("middle", [2.0, 5.0])
def test_calibrate_recovers_the_slope_and_the_middle_from_many_verdicts(slope: float, middle: float) -> None:
    k, m = calibrate(*judged(slope, middle, 20_000))
    assert k == pytest.approx(slope, rel=0.05)
    assert m == pytest.approx(middle, abs=0.1)


@pytest.mark.parametrize("n", [10, 40, 300])
@pytest.mark.parametrize("seed", range(3))
def test_calibrate_finds_the_most_likely_curve(n: int, seed: int) -> None:
    """SciPy's minimiser finds the same."""
    x, similar = judged(1.2, 4.0, n, seed)

    def loss(w: Floats) -> float:
        eta = w[0] * (x - x.mean()) + w[1]
        likelihood = np.logaddexp(0, np.where(similar, -eta, eta)).sum()
        return float(likelihood + 0.05 * (w[0] - 1.5) ** 2 / 2 + 0.01 * w[1] ** 2 / 2)

    best = minimize(loss, [1.5, 0.0], method="BFGS", options={"gtol": 1e-8}).x
    assert best[0] > 0.25
    k, m = calibrate(x, similar)
    assert (k, m) == pytest.approx((best[0], x.mean() - best[1] / best[0]), rel=1e-4)


@pytest.mark.parametrize("verdicts", ["separated", "all similar", "none similar", "reversed"])
def test_calibrate_gives_a_finite_curve_for_any_verdicts(verdicts: str) -> None:
    x = np.linspace(0, 8, 30)
    cases = {"separated": x > 3, "all similar": x >= 0, "none similar": x < 0, "reversed": x < 3}
    similar = cases[verdicts]
    k, m = calibrate(x, similar)
    assert k >= 0.25
    assert math.isfinite(m)
    if verdicts == "separated":
        assert 2.5 < m < 3.5
        assert k > 1.5


@pytest.mark.parametrize("scale", [0.01, 1.0, 50.0])
def test_fit_logistic_scales_with_the_similarities(scale: float) -> None:
    x, similar = judged(1.5, 4.0, 200)
    k, m = fit_logistic(x, similar)
    assert fit_logistic(scale * x, similar) == pytest.approx((k / scale, scale * m))


def test_a_smaller_share_of_similar_answers_needs_a_higher_level() -> None:
    x, similar = judged(1.5, 4.0, 200)
    levels = [level_for_share(np.exp(-x), similar, share) for share in (0.1, 0.3, 0.5, 0.7, 0.9)]
    assert levels == sorted(levels, reverse=True)
    assert len(set(levels)) == 5


def test_at_the_level_for_a_share_that_share_is_similar() -> None:
    x, similar = judged(1.5, 4.0, 20_000)
    for share in (0.3, 0.5, 0.8):
        level = level_for_share(np.exp(-x), similar, share)
        assert float(expit(1.5 * (-math.log(level) - 4.0))) == pytest.approx(share, abs=0.03)


def error(s: Floats, similar: NDArray[np.bool_], cutoff: float) -> float:
    """The share of similar pairs below the cutoff plus the share of dissimilar pairs above it."""
    return float((s[similar] < cutoff).mean() + (s[~similar] >= cutoff).mean())


@given(st.lists(st.tuples(st.integers(-1000, 1000), st.booleans()), min_size=2, unique_by=lambda row: row[0]))
def test_no_other_cutoff_is_better_than_the_best_cutoff(rows: list[tuple[int, bool]]) -> None:
    s = np.array([x / 1000 for x, _ in rows])
    similar = np.array([is_similar for _, is_similar in rows])
    cutoff = best_cutoff(s, similar)
    if len(set(similar.tolist())) < 2:
        assert math.isnan(cutoff)
        return
    between = (np.sort(s)[1:] + np.sort(s)[:-1]) / 2
    # An error of 1.0 is that of calling every pair similar, or none.
    assert error(s, similar, cutoff) <= min(1.0, *(error(s, similar, other) for other in between)) + 1e-9


def test_the_best_cutoff_of_separated_pairs_is_half_way_between_them() -> None:
    s = np.array([0.9, 0.1, 0.8, 0.2, 0.0])
    similar = np.array([True, False, True, False, False])
    assert best_cutoff(s, similar) == pytest.approx(0.5)
    assert error(s, similar, 0.5) == 0


def test_the_best_cutoff_of_overlapping_pairs_is_where_their_densities_are_equal() -> None:
    rng = np.random.default_rng(0)
    s = np.concatenate([rng.normal(0.7, 0.1, 5000), rng.normal(0.3, 0.1, 500)])
    similar = np.arange(5500) < 5000  # ten times as many: the numbers must not matter
    assert best_cutoff(s, similar) == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("similar", [[], [True], [False], [True, True], [False] * 3])
def test_there_is_no_cutoff_before_there_is_a_pair_of_each_kind(similar: list[bool]) -> None:
    assert math.isnan(best_cutoff(np.linspace(0, 1, len(similar)), np.array(similar, dtype=bool)))


# ---- the pair classifier, with its first layer split in two

DIM, H1, H2, IMAGES = 5, 7, 6, 150  # more images than a strip of 64 rows


def network(seed: int) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, float]:
    rng = np.random.default_rng(seed)
    vectors = unit(rng.normal(size=(IMAGES, DIM)))
    first = rng.normal(size=(2 * DIM, H1))
    first_bias = rng.normal(size=H1)
    second = rng.normal(size=(H1, H2))
    second_bias = rng.normal(size=H2)
    return vectors, first, first_bias, second, second_bias, rng.normal(size=H2), float(rng.normal())


def split(
    vectors: Floats,
    first: Floats,
    first_bias: Floats,
    second: Floats,
    second_bias: Floats,
    last: Floats,
    last_bias: float,
) -> PairProbability:
    left = vectors @ first[:DIM]
    right = vectors @ first[DIM:] + first_bias
    return PairProbability(left, right, second, second_bias, last, last_bias)


def test_pair_probability_is_the_three_layer_net_on_both_orders_of_the_concatenated_pair() -> None:
    vectors, first, first_bias, second, second_bias, last, last_bias = net = network(0)

    def logit(u: Floats, v: Floats) -> float:
        hidden = np.maximum(np.concatenate([u, v]) @ first + first_bias, 0)
        return float(np.maximum(hidden @ second + second_bias, 0) @ last + last_bias)

    rows = np.random.default_rng(1).permutation(IMAGES)[:140]
    columns = np.array([0, 149, 7, 7])
    expected = np.empty((140, 4))
    for i, a in enumerate(rows):
        for j, b in enumerate(columns):
            both = logit(vectors[a], vectors[b]) + logit(vectors[b], vectors[a])
            expected[i, j] = 1 / (1 + math.exp(-both / 2))
    assert np.ptp(expected) > 0.5
    np.testing.assert_allclose(split(*net)(rows, columns), expected, atol=1e-6)


def test_pair_probability_does_not_depend_on_the_order_of_the_images() -> None:
    probability = split(*network(3))
    rows = np.arange(0, 100)
    columns = np.arange(70, 150)
    np.testing.assert_allclose(probability(rows, columns), probability(columns, rows).T, atol=1e-6)


def test_pair_probability_of_extreme_logits_is_zero_or_one_without_a_warning() -> None:
    zero = np.zeros((2, 1))
    for bias, expected in ((-200.0, 0.0), (200.0, 1.0)):
        probability = PairProbability(zero, zero, np.zeros((1, 1)), np.zeros(1), np.zeros(1), bias)
        assert probability(np.array([0]), np.array([1])).tolist() == [[expected]]


def test_the_scores_of_pairs_are_minus_the_distance_of_their_probability_from_one_half() -> None:
    probability = split(*network(4))
    pairs = Pairs.from_list(combinations(range(0, IMAGES, 3), 2))
    expected = -np.abs(probability(np.arange(IMAGES), np.arange(IMAGES))[pairs.a, pairs.b] - 0.5)
    np.testing.assert_allclose(probability.scores(pairs), expected, atol=1e-6)
    one_by_one = [float(probability.scores(pairs[k : k + 1])[0]) for k in range(40)]
    assert probability.scores(pairs)[:40].tolist() == one_by_one  # to the last digit


def test_a_tile_has_every_pair_once_and_its_error_is_a_bound() -> None:
    probability = split(*network(5))
    rows = np.arange(3, 140, 2)
    columns = np.arange(0, 150, 2)
    tile = probability.tile(rows, columns)
    seen = np.full((len(rows), len(columns)), np.nan)
    for i, j, distance in tile.candidates(lambda: np.inf):
        assert np.isnan(seen[i, j]).all()
        seen[i, j] = distance
    a, b = np.meshgrid(rows, columns, indexing="ij")
    exact = -probability.scores(Pairs.of(a.ravel(), b.ravel())).reshape(seen.shape)
    assert np.abs(seen - exact).max() <= tile.error < 1e-3
    near = {
        (int(i), int(j)) for at in tile.candidates(lambda: 0.01) for i, j in zip(at[0], at[1], strict=True)
    }
    assert near >= {(int(i), int(j)) for i, j in np.argwhere(exact <= 0.01)}
    assert len(near) < seen.size / 5
