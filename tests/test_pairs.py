"""Pairs are unordered columns, answers are pairs with a verdict each."""

import numpy as np
import pytest

from anneal.pairs import UNKNOWN, Answers, Pairs, Verdict

S, D, U = Verdict.SIMILAR, Verdict.DISSIMILAR, Verdict.UNSURE


def test_verdicts_have_the_numbers_that_campaign_files_hold() -> None:
    assert (UNKNOWN, int(S), int(D), int(U)) == (0, 1, 2, 3)
    assert [verdict.value for verdict in Verdict] == [1, 2, 3]


def test_a_pair_holds_the_smaller_id_first_in_any_given_order() -> None:
    pairs = Pairs.of([5, 1, 7], [2, 3, 0])
    assert list(pairs) == [(2, 5), (1, 3), (0, 7)]
    assert pairs.a.dtype == pairs.b.dtype == np.int64
    assert list(Pairs.of([2, 3, 0], [5, 1, 7])) == list(pairs)


def test_unordered_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="smaller id first"):
        Pairs(np.array([0, 5]), np.array([1, 2]))


def test_an_image_makes_no_pair_with_itself() -> None:
    with pytest.raises(ValueError, match="no pair with itself"):
        Pairs.of([1, 4], [2, 4])
    with pytest.raises(ValueError, match="no pair with itself"):
        Pairs.from_list([(4, 4)])


def test_a_list_of_tuples_becomes_pairs() -> None:
    pairs = Pairs.from_list([(5, 2), (1, 3), (5, 2)])
    assert list(pairs) == [(2, 5), (1, 3), (2, 5)]
    assert pairs.a.dtype == pairs.b.dtype == np.int64
    assert list(Pairs.from_list(iter({(1, 0): "answer"}))) == [(0, 1)]
    assert list(Pairs.from_list([])) == []
    assert Pairs.from_list(set()).a.dtype == np.int64


@pytest.mark.parametrize(
    ("one", "other"), [([1, 2], [3]), ([[1, 2]], [[3, 4]])], ids=["uneven", "two-dimensional"]
)
def test_columns_that_are_not_two_equal_lists_are_refused(one: list[int], other: list[int]) -> None:
    with pytest.raises(ValueError, match="columns"):
        Pairs(np.array(one), np.array(other))


def test_no_pairs_at_all() -> None:
    assert len(Pairs.none()) == 0
    assert list(Pairs.none()) == []
    assert list(Pairs.none().then(Pairs.of([2], [1]))) == [(1, 2)]


def test_iteration_yields_plain_numbers() -> None:
    assert [(type(a), type(b)) for a, b in Pairs.of([1], [0])] == [(int, int)]


def test_rows_are_picked_by_number_mask_or_slice() -> None:
    pairs = Pairs.of([0, 1, 2, 3], [9, 8, 7, 6])
    assert len(pairs) == 4
    assert list(pairs[[3, 0, 0]]) == [(3, 6), (0, 9), (0, 9)]
    assert list(pairs[np.array([False, True, True, False])]) == [(1, 8), (2, 7)]
    assert list(pairs[1::2]) == [(1, 8), (3, 6)]


def test_picking_no_rows_yields_no_pairs() -> None:
    pairs = Pairs.of([0, 1], [2, 3])
    assert list(pairs[np.array([], dtype=np.int64)]) == []
    assert list(pairs[[]]) == []


def test_pairs_are_joined_in_order_and_neither_part_changes() -> None:
    one = Pairs.of([0], [1])
    more = Pairs.of([4, 0], [2, 1])
    assert list(one.then(more)) == [(0, 1), (2, 4), (0, 1)]
    assert (list(one), list(more)) == ([(0, 1)], [(2, 4), (0, 1)])


def test_answers_hold_one_verdict_a_pair() -> None:
    answers = Answers.of(Pairs.of([3, 1], [0, 2]), [S, D])
    assert len(answers) == 2
    assert list(answers.pairs) == [(0, 3), (1, 2)]
    assert answers.verdicts.dtype == np.int8
    assert answers.verdicts.tolist() == [1, 2]
    with pytest.raises(ValueError, match="2 pairs but 1 verdicts"):
        Answers.of(Pairs.of([3, 1], [0, 2]), [S])


def test_given_returns_the_pairs_of_one_verdict() -> None:
    answers = Answers.of(Pairs.of([0, 1, 2, 3], [4, 4, 4, 4]), [S, D, S, U])
    assert list(answers.given(S)) == [(0, 4), (2, 4)]
    assert list(answers.given(D)) == [(1, 4)]
    assert list(answers.given(U)) == [(3, 4)]
    assert list(Answers.none().given(S)) == []


def test_answers_are_joined_in_order() -> None:
    one = Answers.of(Pairs.of([0], [1]), [S])
    joined = Answers.none().then(one).then(Answers.of(Pairs.of([2, 0], [1, 1]), [U, D]))
    assert list(joined.pairs) == [(0, 1), (1, 2), (0, 1)]
    assert joined.verdicts.tolist() == [1, 3, 2]
    assert len(Answers.none()) == 0


def test_rows_set_to_unsure_take_along_every_row_with_the_same_answer() -> None:
    answers = Answers.of(Pairs.of([0, 0, 0, 2], [1, 1, 1, 3]), [S, D, S, S])
    changed = answers.unsure({0})
    assert list(changed.pairs) == list(answers.pairs)
    assert changed.verdicts.tolist() == [U, D, U, S]  # the opposite answer on the same pair stays
    assert answers.verdicts.tolist() == [S, D, S, S]
    assert answers.unsure(set()).verdicts.tolist() == [S, D, S, S]
