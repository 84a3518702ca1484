"""How good a ranking is.

δ is a (queries, k) array of 0/1: whether the j-th result of query i is relevant. R is a (queries,)
array: the number of relevant images in the archive. For each query,

    AP@k = (1 / r) Σ_{j ≤ k} Prec(j) δ(j),    Prec(j) = (1 / j) Σ_{l ≤ j} δ(l)

There are three meanings of r. ``min`` is min(R, k), the most that can be found: a perfect ranking scores
1 for every R. ``hits`` is Σ_j δ(j), what was found: misses after the last hit cost nothing. ``all`` is R:
the score cannot reach 1 if R > k. The AP of a query with nothing to find (R = 0) is nan.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anneal.pairs import Floats, Ids

Meaning = Literal["min", "hits", "all"]


def average_precision(relevant: NDArray[np.bool_], total: Ids, meaning: Meaning) -> Floats:
    """AP@k of each query, (queries,)."""
    _check(relevant, total)
    k = relevant.shape[1]
    precision = np.cumsum(relevant, axis=1) / np.arange(1, k + 1)
    gain = (precision * relevant).sum(axis=1)
    r = {"min": np.minimum(total, k), "hits": relevant.sum(axis=1), "all": total}[meaning]
    return np.where(total > 0, gain / np.maximum(r, 1), np.nan)  # no hit: 0 / 1


def precision(relevant: NDArray[np.bool_], total: Ids) -> Floats:
    """P@k = (1 / k) Σ_{j ≤ k} δ(j) of each query; nan where there is nothing to find."""
    _check(relevant, total)
    return np.where(total > 0, relevant.mean(axis=1), np.nan)


def mean(values: Floats) -> float:
    """The mean over the queries that have a value; nan if none has."""
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else float("nan")


def _check(relevant: NDArray[np.bool_], total: Ids) -> None:
    if relevant.ndim != 2 or total.shape != (len(relevant),):
        raise ValueError(f"δ is {relevant.shape} and R is {total.shape}: both need one row per query")
    if (relevant.sum(axis=1) > total).any():
        raise ValueError("a query has more relevant results than relevant images")
