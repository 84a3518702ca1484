"""What more answers would bring, from the estimates of P@5 of the models so far. Arrays only.

Quality rises ever more slowly. With v the quality now, after N answers, and s the slope there, a curve is

    y(n) = v + s · τ · (1 − exp((N − n) / τ)),   at most 1.

Every curve on a grid of s and τ is weighed by how well it fits the estimates, each with the standard error
that its interval tells (Bayes' rule: small slopes are likelier, τ is uniform on a logarithmic scale, v is
integrated out). The forecast is the weighted median over the curves. Its interval holds 95 % of the weight,
and what one model is by chance better or worse than the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from anneal.method.estimate import Estimate, Z
from anneal.pairs import Floats

AHEAD = 50  # answers that the forecast is about
POINT = 0.01  # of P@5
FARTHEST = 500  # answers: what takes longer is not forecast
FEWEST = 5  # models
CHANCE = 0.006  # standard deviation of P@5 from one model to the next, for no reason
SLOPES = np.linspace(0.0, 0.1, 61)  # of P@5, for AHEAD answers …
LIKELY = 0.03  # … and their mean, as expected before there is any estimate
SPANS = np.geomspace(120.0, 10_000.0, 12)  # τ in answers
LEVELS = np.linspace(-2.0, 2.0, 7)  # v in standard errors
STEPS = np.arange(10.0, FARTHEST + 1, 10)
SIDES = (0.025, 0.5, 0.975)


@dataclass(frozen=True)
class Forecast:
    """What the next answers are expected to bring."""

    gain: Estimate  # in P@5, by AHEAD answers; may be below 0, by chance
    answers: int | None  # for one point more; None if that takes more than FARTHEST


def forecast(answers: Sequence[int], estimates: Sequence[Estimate]) -> Forecast | None:
    """What more answers would bring, from the number of answers of each model and its P@5, in order. None if
    it is too early to tell: there are fewer than FEWEST models."""
    return None if len(estimates) < FEWEST else _forecast(tuple(answers), tuple(estimates))


@lru_cache(maxsize=8)  # it is asked for with every answer, and changes with a few of them
def _forecast(answers: tuple[int, ...], estimates: tuple[Estimate, ...]) -> Forecast:
    n = np.asarray(answers, dtype=float)
    weight, room = _posterior(_rise(n - n[-1]), estimates)
    low, value, high = _quantiles(np.minimum(_rise(np.array([float(AHEAD)])), room), weight)
    chance = Z * np.sqrt(2) * CHANCE
    gain = Estimate(value, value - np.hypot(value - low, chance), value + np.hypot(high - value, chance))
    rise = _rise(STEPS)
    enough = [
        step
        for i, step in enumerate(STEPS)
        if _quantiles(np.minimum(rise[..., [i]], room), weight)[1] >= POINT
    ]
    return Forecast(gain, int(enough[0]) if enough else None)


def _rise(ahead: Floats) -> Floats:
    """(slopes, spans, len(ahead)): y(N + ahead) − v of every curve."""
    span = SPANS[:, None]
    curve = span / AHEAD * -np.expm1(np.minimum(-ahead / span, 50.0))
    return np.asarray(SLOPES[:, None, None] * curve)


def _posterior(rise: Floats, estimates: Sequence[Estimate]) -> tuple[Floats, Floats]:
    """(slopes, spans, levels): the weight of each curve, and how much it has left up to 1. How high a curve
    is now is no better known than the last estimate: errors that all estimates share do not cancel."""
    y = np.array([one.value for one in estimates])
    error = np.array([one.high - one.low for one in estimates]) / (2 * Z)
    trust = 1 / (error**2 + CHANCE**2)
    misfit = y - rise
    v = (misfit * trust).sum(axis=-1) / trust.sum()
    squares = (trust * (misfit - v[..., None]) ** 2).sum(axis=-1)
    room = 1 - v[..., None] - LEVELS * error[-1]
    log_weight = (-squares / 2 - SLOPES[:, None] / LIKELY)[..., None] - LEVELS**2 / 2
    weight = np.where(room >= -CHANCE, np.exp(log_weight - log_weight.max()), 1e-300)
    return weight / weight.sum(), np.maximum(room, 0.0)


def _quantiles(values: Floats, weight: Floats) -> list[float]:
    """The weighted quantiles SIDES."""
    order = np.argsort(values, axis=None)
    below = np.cumsum(weight.ravel()[order])
    at = np.minimum(np.searchsorted(below, SIDES), len(order) - 1)
    return [float(value) for value in values.ravel()[order][at]]
