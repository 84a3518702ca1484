"""AP@k and P@k, checked against loops over the formula and, where it means the same, torchmetrics."""

import math
from typing import get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torchmetrics.functional.retrieval import retrieval_average_precision, retrieval_precision
from torchmetrics.retrieval import RetrievalMAP

from anneal.method.metrics import Meaning, average_precision, mean, precision
from anneal.pairs import Ids

MEANINGS: tuple[Meaning, ...] = get_args(Meaning)


def naive(delta: list[int], total: int, meaning: Meaning) -> float:
    """(1 / r) Σ_{j ≤ k} Prec(j) δ(j)"""
    if total == 0:
        return math.nan
    gain = 0.0
    for j in range(1, len(delta) + 1):
        if delta[j - 1]:
            gain += sum(delta[:j]) / j
    r = {"min": min(total, len(delta)), "hits": sum(delta), "all": total}[meaning]
    return gain / r if r else 0.0


def rankings(k: int, archive: int = 12, queries: int = 200) -> tuple[NDArray[np.bool_], Ids]:
    """Rankings of a whole archive, and how many images are relevant in each: in some none, in some all."""
    rng = np.random.default_rng(k)
    whole = rng.random((queries, archive)) < rng.choice([0, 0.1, 0.4, 0.9, 1], (queries, 1))
    return whole, whole.sum(axis=1)


@pytest.mark.parametrize("meaning", MEANINGS)
@pytest.mark.parametrize("k", [1, 5, 12])
def test_average_precision_equals_a_loop_over_the_formula(meaning: Meaning, k: int) -> None:
    whole, total = rankings(k)
    rows = whole[:, :k].astype(int).tolist()
    expected = [naive(row, int(r), meaning) for row, r in zip(rows, total, strict=True)]
    assert np.isnan(expected).any()
    np.testing.assert_allclose(average_precision(whole[:, :k], total, meaning), expected, rtol=1e-12)


def test_the_three_meanings_of_one_ranking() -> None:
    relevant = np.array([[True, False, True, False, False]])
    gain = 1 / 1 + 2 / 3
    many = {meaning: float(average_precision(relevant, np.array([10]), meaning)[0]) for meaning in MEANINGS}
    assert many == pytest.approx({"min": gain / 5, "hits": gain / 2, "all": gain / 10})
    few = {meaning: float(average_precision(relevant, np.array([3]), meaning)[0]) for meaning in MEANINGS}
    assert few == pytest.approx({"min": gain / 3, "hits": gain / 2, "all": gain / 3})


def test_a_perfect_ranking_scores_one_unless_all_relevant_images_are_counted() -> None:
    relevant = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], dtype=bool)
    total = np.array([20, 2])
    assert average_precision(relevant, total, "min").tolist() == [1.0, 1.0]
    assert average_precision(relevant, total, "hits").tolist() == [1.0, 1.0]
    assert average_precision(relevant, total, "all").tolist() == [0.25, 1.0]


@pytest.mark.parametrize("meaning", MEANINGS)
def test_no_hit_scores_zero_and_nothing_to_find_scores_nan(meaning: Meaning) -> None:
    relevant = np.zeros((2, 5), dtype=bool)
    ap = average_precision(relevant, np.array([4, 0]), meaning)
    assert ap[0] == 0
    assert math.isnan(ap[1])
    assert precision(relevant, np.array([4, 0]))[0] == 0
    assert math.isnan(precision(relevant, np.array([4, 0]))[1])


def test_precision_equals_a_loop_over_the_formula() -> None:
    whole, total = rankings(5)
    rows = whole[:, :5].astype(int).tolist()
    expected = [sum(row) / 5 if r else math.nan for row, r in zip(rows, total, strict=True)]
    np.testing.assert_allclose(precision(whole[:, :5], total), expected, rtol=1e-12)


def test_mean_is_over_the_queries_that_have_a_value() -> None:
    assert mean(np.array([0.25, np.nan, 0.75])) == 0.5
    assert math.isnan(mean(np.array([np.nan, np.nan])))
    assert math.isnan(mean(np.empty(0)))


# ---- torchmetrics as a referee


def falling(archive: int) -> torch.Tensor:
    """Scores of a ranking that is already in order; torchmetrics needs them above zero."""
    return torch.linspace(1, 0.1, archive)


def test_torchmetrics_divides_by_the_hits() -> None:
    whole, total = rankings(5)
    for k in (1, 5, 12):
        ours = average_precision(whole[:, :k], total, "hits")
        theirs = [
            float(retrieval_average_precision(falling(12), torch.tensor(row), top_k=k)) for row in whole
        ]
        np.testing.assert_allclose(ours[total > 0], np.array(theirs)[total > 0], rtol=1e-6)


def test_all_meanings_equal_torchmetrics_if_the_whole_archive_is_ranked() -> None:
    whole, total = rankings(12)
    theirs = np.array([float(retrieval_average_precision(falling(12), torch.tensor(row))) for row in whole])
    for meaning in MEANINGS:
        ours = average_precision(whole, total, meaning)
        np.testing.assert_allclose(ours[total > 0], theirs[total > 0], rtol=1e-6)


def test_torchmetrics_ignores_the_misses_that_our_default_meaning_counts() -> None:
    row = torch.tensor([True, False, False, False, False, True, True])
    relevant = row[None, :5].numpy()
    total = np.array([3])
    assert float(retrieval_average_precision(falling(7), row, top_k=5)) == 1.0
    assert average_precision(relevant, total, "hits").tolist() == [1.0]
    assert average_precision(relevant, total, "min").tolist() == pytest.approx([1 / 3])
    assert average_precision(relevant, total, "all").tolist() == pytest.approx([1 / 3])


def test_mean_average_precision_equals_torchmetrics_which_also_skips_empty_queries() -> None:
    whole, total = rankings(5)
    theirs = RetrievalMAP(top_k=5, empty_target_action="skip")
    theirs.update(
        falling(12).repeat(len(whole)),
        torch.tensor(whole).flatten(),
        indexes=torch.arange(len(whole)).repeat_interleave(12),
    )
    assert mean(average_precision(whole[:, :5], total, "hits")) == pytest.approx(float(theirs.compute()))


def test_precision_equals_torchmetrics() -> None:
    whole, total = rankings(5)
    theirs = [float(retrieval_precision(falling(12), torch.tensor(row), top_k=5)) for row in whole]
    ours = precision(whole[:, :5], total)
    np.testing.assert_allclose(ours[total > 0], np.array(theirs)[total > 0], rtol=1e-6)


# ---- wrong arguments


def test_more_hits_than_relevant_images_are_refused() -> None:
    with pytest.raises(ValueError, match="more relevant results than relevant images"):
        average_precision(np.ones((1, 3), dtype=bool), np.array([2]), "min")
    with pytest.raises(ValueError, match="more relevant results than relevant images"):
        precision(np.ones((1, 3), dtype=bool), np.array([2]))


@pytest.mark.parametrize("shape", [(2, 3), (3,)])
def test_arrays_without_one_row_per_query_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="one row per query"):
        average_precision(np.zeros(shape, dtype=bool), np.array([1, 1, 1]), "min")
