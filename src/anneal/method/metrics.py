"""How good a ranking is. Pure NumPy, the formula in the docstring, one name per meaning.

δ is a (queries, k) array of 0/1: whether the j-th result of query i is relevant. R is a (queries,)
array: how many relevant images there were to be found at all. For each query,

    AP@k = (1 / r) Σ_{j ≤ k} Prec(j) δ(j),    Prec(j) = (1 / j) Σ_{l ≤ j} δ(l)

and the meanings of r differ. ``min`` is min(R, k), the most that could have been found: 1 is perfect,
whatever R; ``hits`` is Σ_j δ(j), what was found: it forgives every miss after the last hit; ``all``
is R: it cannot reach 1 when R > k. A query with nothing to be found (R = 0) has no AP: it is nan.
"""

from __future__ import annotations

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
    found = (precision * relevant).sum(axis=1)
    if meaning == "min":
        r = np.minimum(total, k)
    elif meaning == "hits":
        r = np.maximum(relevant.sum(axis=1), 1)  # no hit: 0 / 1
    else:
        r = total
    return np.where(total > 0, found / np.maximum(r, 1), np.nan)


def precision(relevant: NDArray[np.bool_], total: Ids) -> Floats:
    """P@k = (1 / k) Σ_{j ≤ k} δ(j) of each query; nan where nothing is to be found."""
    _check(relevant, total)
    return np.where(total > 0, relevant.mean(axis=1), np.nan)


def mean(values: Floats) -> float:
    """Over the queries that have a value; nan if none has."""
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else float("nan")


def _check(relevant: NDArray[np.bool_], total: Ids) -> None:
    if relevant.ndim != 2 or total.shape != (len(relevant),):
        raise ValueError(f"δ is {relevant.shape} and R is {total.shape}: one row a query is wanted")
    if (relevant.sum(axis=1) > total).any():
        raise ValueError("more relevant images were found than there are")
