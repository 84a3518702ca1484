"""What more answers would bring: right within its interval, at its nominal rate, on drawn learning curves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anneal.method.estimate import Estimate, Z
from anneal.method.forecast import AHEAD, FEWEST, forecast

CURVES = 200


def around(value: float, width: float) -> Estimate:
    return Estimate(value, max(value - width / 2, 0.0), min(value + width / 2, 1.0))


def campaign(rng: np.random.Generator) -> tuple[list[int], list[Estimate], float]:
    """The answers and the estimates of a drawn campaign, and what the next answers truly bring. Estimates
    share a part of their error, because the same held-out answers measure them. Models vary by chance."""
    answers = 41 * np.arange(1, rng.integers(FEWEST, 25) + 1)
    start = rng.uniform(0.5, 0.9)
    end = rng.uniform(start, 1.0)
    span = np.exp(rng.uniform(np.log(80), np.log(800)))
    ahead = np.append(answers, answers[-1] + AHEAD)
    true = end - (end - start) * np.exp(-ahead / span) + 0.004 * rng.normal(size=len(ahead))
    width = rng.uniform(0.03, 0.3)
    error = width / (2 * Z)
    values = true[:-1] + 0.6 * error * rng.normal() + 0.8 * error * rng.normal(size=len(answers))
    estimates = [around(float(value), width) for value in np.clip(values, 0, 1)]
    return answers.tolist(), estimates, float(true[-1] - true[-2])


def test_the_gain_is_inside_its_interval_at_the_nominal_rate_and_not_off_on_average() -> None:
    rng = np.random.default_rng(0)
    inside = []
    errors = []
    gains = []
    for _ in range(CURVES):
        answers, estimates, true = campaign(rng)
        told = forecast(answers, estimates)
        assert told is not None
        inside.append(told.gain.low <= true <= told.gain.high)
        errors.append(told.gain.value - true)
        gains.append(true)
    assert 0.92 <= np.mean(inside) <= 1.0
    assert abs(np.mean(errors)) < 0.005
    assert np.abs(errors).mean() < 0.012  # less than the gains vary
    assert np.std(gains) > 0.006


def test_well_known_estimates_give_a_narrow_forecast() -> None:
    answers = list(range(41, 41 * 16, 41))
    flat = forecast(answers, [around(0.95, 0.01)] * len(answers))
    rising = forecast(answers, [around(0.5 + 0.0004 * n, 0.01) for n in answers])
    assert flat is not None
    assert rising is not None
    assert flat.gain.value < 0.001
    assert flat.answers is None
    assert rising.gain.value == pytest.approx(0.02, abs=0.003)
    assert rising.answers == 30  # the first of 10, 20, 30 … that brings a point
    assert rising.gain.low > 0 > flat.gain.low


def test_of_few_models_nothing_is_forecast() -> None:
    assert forecast([41] * (FEWEST - 1), [around(0.5, 0.1)] * (FEWEST - 1)) is None
    assert forecast([], []) is None


@given(st.lists(st.tuples(st.integers(0, 30_000), st.floats(0, 1), st.floats(0, 1)), min_size=5, max_size=8))
def test_whatever_the_estimates_the_gain_is_a_number_inside_its_interval(
    points: list[tuple[int, float, float]],
) -> None:
    told = forecast(sorted(n for n, _, _ in points), [around(value, width) for _, value, width in points])
    assert told is not None
    assert -1 <= told.gain.low <= told.gain.value <= told.gain.high <= 1.1
    assert told.answers is None or 10 <= told.answers <= 500
