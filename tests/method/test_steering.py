"""Steering: levels, the lean, and the order in which open pairs are asked."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anneal.method import steering
from anneal.method.mining import pairwise
from anneal.method.relations import none
from anneal.method.snapshot import Agenda, Snapshot
from anneal.method.uncertainty import level_for_share
from anneal.pairs import Answers, Floats, Ids, Pair, Pairs, Verdict

SIMILAR, DISSIMILAR, UNSURE = Verdict
N = 200


def seed(number: int) -> np.random.Generator:
    return np.random.default_rng(number)


def quarter_circle(n: int = N) -> Floats:
    """Images at random on a quarter of a circle: similarities of all sizes from 0 to 1."""
    angle = seed(14).uniform(0, np.pi / 2, n)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def similarities(vectors: Floats) -> Floats:
    s: Floats = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
    return s


def snapshot(
    verdicts: list[Verdict], rounds: list[int], pairs: Pairs | None = None, vectors: Floats | None = None
) -> Snapshot:
    """A snapshot with these answers. The pairs do not matter unless they are given."""
    vectors = quarter_circle() if vectors is None else vectors
    pairs = Pairs.from_list([(0, 1)] * len(verdicts)) if pairs is None else pairs
    known = none(len(vectors), Answers.none()).relations
    answers = Answers.of(pairs, verdicts)
    return Snapshot(
        vectors,
        np.arange(len(vectors)),
        known,
        answers,
        np.array(rounds, dtype=np.int64),
        frozen=vectors,
        agenda=Agenda(),
    )


# -- levels ------------------------------------------------------------------------------------------


def test_a_level_is_the_share_of_all_pairs_that_are_more_similar() -> None:
    vectors = quarter_circle()
    every = similarities(vectors)
    s = np.array([-1.0, 0.2, 0.5, 0.9, 0.999, 1.1])
    level = steering.levels(vectors, np.arange(N), s, seed(0))
    np.testing.assert_allclose(level, [(every > x).mean() for x in s], atol=0.005)
    assert (level > 0).all()  # its logarithm is taken
    assert (level < 1).all()
    assert float(steering.levels(vectors, np.arange(N), 0.5, seed(0))) == level[2]


def naive_level(vectors: Floats, images: Ids, s: float, rng: np.random.Generator) -> float:
    """By the same random pairs, counted one by one."""
    draws = min(steering.SAMPLE, max(5 * len(images) * (len(images) - 1), 1_000))
    one, other = rng.choice(images, (2, draws))
    drawn = [(i, j) for i, j in zip(one.tolist(), other.tolist(), strict=True) if i != j]
    more_similar = (pairwise(vectors, Pairs.from_list(drawn)) > s).sum()
    return float((more_similar + 0.5) / (len(drawn) + 1))


def test_a_level_is_counted_on_random_pairs_of_different_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "SAMPLE", 500)
    images = np.array([5, 9, 40, 41, 77, 150])
    for number in range(5):
        s = float(seed(number).uniform(0, 1))
        level = steering.levels(quarter_circle(), images, s, seed(number))
        assert float(level) == naive_level(quarter_circle(), images, s, seed(number))


@pytest.mark.parametrize(
    ("n", "draws"),
    [(2, 1_000), (23, 2_530), (200, 199_000), (201, 200_000), (2100, 200_000), (10_000, 200_000)],
)
def test_few_images_need_few_draws(n: int, draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def seen(vectors: Floats, pairs: Pairs) -> Floats:
        drawn.append(len(pairs))
        return np.zeros(len(pairs))

    monkeypatch.setattr(steering, "pairwise", seen)
    steering.levels(np.ones((n, 1)), np.arange(n), 0.5, seed(0))
    one, other = seed(0).choice(np.arange(n), (2, draws))
    assert drawn == [int((one != other).sum())]


def test_the_similarity_at_a_level_has_that_level() -> None:
    vectors = quarter_circle()
    images = np.arange(N)
    every = similarities(vectors)
    for level in (0.001, 0.05, 0.5, 0.95):
        s = steering.similarity_at(vectors, images, level, seed(1))
        assert (every > s).mean() == pytest.approx(level, rel=0.1)
        assert float(steering.levels(vectors, images, s, seed(2))) == pytest.approx(level, rel=0.1)
    lowest = steering.similarity_at(vectors, images, 1.0, seed(1))
    assert lowest == pytest.approx(every.min(), abs=0.02)
    assert steering.similarity_at(vectors, images, 7.0, seed(1)) == lowest


def test_levels_are_those_of_the_images_that_may_be_asked_about() -> None:
    others = np.tile([[1.0, 0.0]], (300, 1))  # many more, all alike
    vectors = np.concatenate([quarter_circle(), others])
    level = steering.levels(vectors, np.arange(N), 0.999, seed(0))
    assert float(level) == pytest.approx((similarities(quarter_circle()) > 0.999).mean(), abs=0.005)


def test_the_level_of_nan_is_nan() -> None:
    assert np.isnan(steering.levels(quarter_circle(), np.arange(N), float("nan"), seed(0)))


# -- the aim, and the share of similar answers -------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "aim"),
    [(0.5, (0.3, 0.7)), (0.4, (0.2, 0.6)), (0.1, (0.05, 0.3)), (0.9, (0.7, 0.95)), (0.0, None)],
)
def test_the_aim_is_a_range_around_the_share(share: float, aim: tuple[float, float] | None) -> None:
    assert steering.aim(share) == aim


def test_the_recent_share_is_that_of_the_last_fifty_settled_answers() -> None:
    verdicts = [SIMILAR if i >= 40 else DISSIMILAR for i in range(90)]
    for n in range(91):
        shown = snapshot(verdicts[:n], [0] * n)
        latest = verdicts[max(n - 50, 0) : n]
        expected = None if n < 10 else latest.count(SIMILAR) / len(latest)
        assert steering.recent_share(shown.answers, shown.rounds) == expected


def test_unsure_answers_and_class_labels_do_not_count() -> None:
    verdicts = [SIMILAR] * 10 + [UNSURE] * 60 + [DISSIMILAR] * 60
    rounds = [0] * 10 + [1] * 60 + [-1] * 60
    shown = snapshot(verdicts, rounds)
    assert steering.recent_share(shown.answers, shown.rounds) == 1.0
    similar, number = steering.settled(shown.answers, shown.rounds)
    assert similar.tolist() == [True] * 10
    assert number.tolist() == [0] * 10


# -- the order of open pairs -------------------------------------------------------------------------

ARC = np.stack([np.cos(np.linspace(0, 3, 120)), np.sin(np.linspace(0, 3, 120))], axis=1)
NEAR = [(50, 51), (60, 62), (70, 73)]
FAR = [(0, 80), (1, 95), (2, 110)]
MIXED = [NEAR[0], FAR[0], NEAR[1], FAR[1], NEAR[2], FAR[2]]


@pytest.mark.parametrize(
    ("similar", "expected"),
    [(5, MIXED), (3, MIXED), (7, MIXED), (8, FAR + NEAR), (2, NEAR + FAR)],
)
def test_pairs_that_mend_the_share_come_first(similar: int, expected: list[Pair]) -> None:
    verdicts = [SIMILAR] * similar + [DISSIMILAR] * (10 - similar)
    shown = snapshot(verdicts, [0] * 10, vectors=ARC)
    assert list(steering.steered(shown, Pairs.from_list(MIXED), 0.5)) == expected
    assert list(steering.steered(shown, Pairs.from_list(MIXED), 0.0)) == MIXED
    assert list(steering.steered(shown, Pairs.none(), 0.5)) == []


def test_pairs_keep_their_order_while_there_are_few_answers() -> None:
    shown = snapshot([SIMILAR] * 9, [0] * 9, vectors=ARC)
    assert list(steering.steered(shown, Pairs.from_list(MIXED), 0.5)) == MIXED


# -- the first lean ----------------------------------------------------------------------------------


def answered_at_levels(middle: float, n: int = 60, number: int = 0) -> Snapshot:
    """A first round with pairs at all levels, similar below the level ``middle``, with some noise."""
    vectors = quarter_circle()
    every = Pairs.of(*np.triu_indices(N, 1))
    order = np.argsort(-pairwise(vectors, every))  # the most similar first
    levels = np.exp(seed(0).uniform(np.log(1e-3), 0, n))
    pairs = every[order[(levels * len(every)).astype(np.int64)]]
    noisy = levels * np.exp(seed(1).normal(size=n) / 2) < middle
    verdicts = [SIMILAR if similar else DISSIMILAR for similar in noisy.tolist()]
    return snapshot(verdicts, [number] * n, pairs)


def threshold_at(level: float) -> float:
    return steering.similarity_at(quarter_circle(), np.arange(N), level, seed(3))


def reached(shown: Snapshot, level: float, share: float = 0.5) -> float:
    """The level at which the next pairs are asked, if the threshold is at this level."""
    threshold = threshold_at(level)
    lean = steering.lean(shown, threshold, share, seed(2))
    own = float(steering.levels(shown.vectors, shown.images, threshold, seed(5)))
    return own * math.exp(lean)


def test_the_first_lean_leads_from_the_threshold_to_where_enough_answers_are_dissimilar() -> None:
    shown = answered_at_levels(0.1)
    asked = [reached(shown, level) for level in (1e-3, 1e-2, 2e-2)]
    assert asked == pytest.approx([asked[0]] * 3, rel=0.15)  # wherever the threshold is
    assert 0.03 < asked[0] < 0.1
    assert steering.lean(shown, threshold_at(0.1), 0.5, seed(2)) == 0.0  # the share is met there


@pytest.mark.parametrize("level", [0.002, 0.02, 0.3])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_the_first_lean_is_that_of_a_naive_recomputation(
    level: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering, "SAMPLE", 3_000)
    shown = answered_at_levels(0.1)
    trained = np.roll(shown.vectors, 1, axis=0)
    threshold = threshold_at(level)
    rng = seed(2)
    one, other = rng.choice(shown.images, (2, 3_000))
    drawn = Pairs.of(one[one != other], other[one != other])
    every = pairwise(quarter_circle(), drawn)
    s = pairwise(quarter_circle(), shown.answers.pairs)
    seen = np.array([((every > x).sum() + 0.5) / (len(every) + 1) for x in s])
    own = naive_level(trained, shown.images, threshold, rng)
    similar = shown.answers.verdicts == SIMILAR
    highest = level_for_share(seen, similar, max(share - 0.2, 0.05))
    lowest = level_for_share(seen, similar, min(share + 0.2, 0.95))
    wanted = min(max(own, lowest), highest)
    expected = max(math.log(wanted / own), 0.0)
    lean = steering.lean(replace(shown, vectors=trained), threshold, share, seed(2))
    assert lean == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.7, 0.8, 0.9])
@pytest.mark.parametrize("level", [0.001, 0.05, 0.3, 0.9])
def test_the_first_lean_is_finite_and_never_negative(share: float, level: float) -> None:
    lean = steering.lean(answered_at_levels(0.1), threshold_at(level), share, seed(2))
    assert math.isfinite(lean)
    assert lean >= 0


def test_there_is_no_first_lean_without_an_aim_or_with_few_answers_or_without_frozen_features() -> None:
    threshold = threshold_at(1e-3)
    shown = answered_at_levels(0.1)
    assert steering.lean(shown, threshold, 0.5, seed(2)) > 1
    assert steering.lean(shown, threshold, 0.0, seed(2)) == 0
    assert steering.lean(replace(shown, frozen=None), threshold, 0.5, seed(2)) == 0
    assert steering.lean(answered_at_levels(0.1, 9), threshold, 0.5, seed(2)) == 0
    from_labels = answered_at_levels(0.1, number=-1)
    assert steering.lean(from_labels, threshold, 0.5, seed(2)) == 0
    assert steering.lean(snapshot([], []), threshold, 0.5, seed(2)) == 0


def test_the_first_lean_is_used_without_an_agenda_too() -> None:
    threshold = threshold_at(1e-3)
    shown = answered_at_levels(0.1)
    expected = steering.lean(shown, threshold, 0.5, seed(2))
    assert steering.lean(replace(shown, agenda=None), threshold, 0.5, seed(2)) == expected


# -- later leans -------------------------------------------------------------------------------------


def after_rounds(similar: tuple[int, int], before: float, each: int = 20) -> Snapshot:
    """Two rounds with this many similar answers each, asked with the lean ``before``."""
    verdicts: list[Verdict] = []
    for count in similar:
        verdicts += [SIMILAR] * count + [DISSIMILAR] * (each - count)
    return replace(snapshot(verdicts, [0] * each + [1] * each), agenda=Agenda(lean=before))


def later_lean(similar: tuple[int, int], before: float) -> float:
    return steering.lean(after_rounds(similar, before), 0.5, 0.5, seed(0))


def test_the_lean_follows_the_share_where_two_rounds_missed_the_aim_on_the_same_side() -> None:
    assert later_lean((10, 10), 0.0) == 0.0
    assert later_lean((10, 10), 1.0) == 0.5  # it halves where the share is met
    assert 0 < later_lean((17, 17), 0.0) < later_lean((20, 20), 0.0) <= 0.5
    nearer_miss = later_lean((17, 17), 0.0)
    assert later_lean((20, 17), 0.0) == later_lean((17, 20), 0.0) == nearer_miss
    assert later_lean((1, 20), 1.0) == later_lean((10, 20), 1.0) == later_lean((20, 10), 1.0) == 0.5
    assert later_lean((1, 1), 1.0) < 0.5
    assert later_lean((0, 0), 0.2) == 0.0


def naive_excess(similar: int, each: int, low: float, high: float) -> float:
    share = (similar + 1) / (each + 2)
    nearest = min(max(share, low), high)
    return math.log(share / (1 - share)) - math.log(nearest / (1 - nearest))


@given(
    similar=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    before=st.floats(0, 4),
    share=st.sampled_from([0.1, 0.4, 0.5, 0.9]),
)
def test_a_later_lean_is_that_of_a_naive_recomputation(
    similar: tuple[int, int], before: float, share: float
) -> None:
    low = max(share - 0.2, 0.05)
    high = min(share + 0.2, 0.95)
    misses = [naive_excess(count, 20, round(low, 3), round(high, 3)) for count in similar]
    step = 0.0
    if min(misses) > 0:
        step = 0.25 * min(misses)
    elif max(misses) < 0:
        step = 0.25 * max(misses)
    expected = max(before / 2 + max(min(step, 0.5), -0.5), 0.0)
    lean = steering.lean(after_rounds(similar, before), 0.5, share, seed(0))
    assert lean == pytest.approx(expected, abs=1e-12)
    assert lean >= 0


def test_unsure_answers_do_not_change_a_later_lean() -> None:
    shown = after_rounds((17, 17), 0.3)
    verdicts = [*shown.answers.verdicts.tolist(), *[UNSURE] * 30]
    rounds = [*shown.rounds.tolist(), *[1] * 30]
    more = replace(snapshot(verdicts, rounds), agenda=shown.agenda)
    assert steering.lean(more, 0.5, 0.5, seed(0)) == later_lean((17, 17), 0.3)


def test_a_later_lean_without_an_aim_is_zero() -> None:
    assert steering.lean(after_rounds((20, 20), 2.0), 0.5, 0.0, seed(0)) == 0


def test_only_the_last_two_rounds_count() -> None:
    recent = after_rounds((17, 18), 0.3)
    verdicts = [DISSIMILAR] * 20 + [Verdict(v) for v in recent.answers.verdicts.tolist()]
    rounds = [0] * 20 + [number + 1 for number in recent.rounds.tolist()]
    longer = replace(snapshot(verdicts, rounds), agenda=recent.agenda)
    assert steering.lean(longer, 0.5, 0.5, seed(0)) == later_lean((17, 18), 0.3)
