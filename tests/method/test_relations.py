"""Closures and contradictions, checked against plain loops over dictionaries of pairs."""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anneal.method.relations import CLOSURES, REPEATED, Closure, Relations, full, none, single
from anneal.pairs import UNKNOWN, Answers, Pairs, Verdict

T = TypeVar("T")
Row = tuple[int, int, int]  # a < b, verdict
Case = tuple[list[int], list[Row]]  # the class of each image, and answers
Rule = Callable[[int, Answers], Closure]
Table = dict[tuple[int, int], int]  # every pair a < b, 0 where nothing is known

S, D, U = (int(verdict) for verdict in Verdict)
N = 6  # few images, so that the answers share images
every_closure = pytest.mark.parametrize("closure", CLOSURES.values(), ids=CLOSURES.keys())
fixed = settings(derandomize=True, deadline=None, database=None, max_examples=40)
thorough = settings(fixed, max_examples=120)

pair = st.sampled_from(list(combinations(range(N), 2)))
partition = st.lists(st.integers(0, 2), min_size=N, max_size=N)


def several(of: st.SearchStrategy[T]) -> st.SearchStrategy[list[T]]:
    """Lists of five to twelve. By default hypothesis tries mostly short lists, whose pairs share no image."""
    return st.sampled_from([9, 6, 12, 7, 10, 5]).flatmap(lambda n: st.lists(of, min_size=n, max_size=n))


def truth(classes: Sequence[int], a: int, b: int) -> int:
    return S if classes[a] == classes[b] else D


@st.composite
def true_answers(draw: st.DrawFn, unsure: bool = True) -> Case:
    """A hidden partition into classes, and answers that are true of it; some are unsure."""
    classes = draw(partition)
    asked = draw(several(st.tuples(pair, st.sampled_from([U, 0, 0, 0, 0]))))
    return classes, [(a, b, say if unsure and say else truth(classes, a, b)) for (a, b), say in asked]


@st.composite
def with_one_wrong_answer(draw: st.DrawFn) -> list[Row]:
    """True answers except for one."""
    rows = draw(true_answers(unsure=False))[1]
    wrong = draw(st.integers(0, len(rows) - 1))
    a, b, verdict = rows[wrong]
    rows[wrong] = (a, b, S + D - verdict)
    return rows


anything = several(st.builds(lambda ab, v: (*ab, v), pair, st.sampled_from([S, S, D, U])))
any_rows = st.one_of(anything, with_one_wrong_answer(), with_one_wrong_answer())


def answers(rows: Iterable[Row]) -> Answers:
    columns = np.array(list(rows), dtype=np.int64).reshape(-1, 3)
    return Answers.of(Pairs.of(columns[:, 0], columns[:, 1]), columns[:, 2])


def all_pairs(n: int) -> Pairs:
    a, b = np.triu_indices(n, k=1)
    return Pairs.of(a, b)


def table(relations: Relations) -> Table:
    pairs = all_pairs(len(relations))
    return dict(zip(pairs, relations.of(pairs).tolist(), strict=True))


def verdicts_by_pair(rows: Iterable[Row]) -> dict[tuple[int, int], set[int]]:
    verdicts: dict[tuple[int, int], set[int]] = {}
    for a, b, verdict in rows:
        verdicts.setdefault((a, b), set()).add(verdict)
    return verdicts


def settle(n: int, verdicts: dict[tuple[int, int], set[int]]) -> Table:
    """Similar or dissimilar where a pair has just one of them; both, or unsure alone, is set aside."""

    def one(given_: set[int]) -> int:
        sure = given_ - {U}
        if len(sure) == 1:
            return sure.pop()
        return U if given_ else UNKNOWN

    return {ab: one(set(verdicts.get(ab, ()))) for ab in combinations(range(n), 2)}


def steps(n: int, known: dict[tuple[int, int], set[int]]) -> dict[tuple[int, int], set[int]]:
    """What one application of the two rules implies for each pair."""

    def says(a: int, b: int, verdict: int) -> bool:
        return verdict in known.get((min(a, b), max(a, b)), ())

    implied: dict[tuple[int, int], set[int]] = {ab: set() for ab in combinations(range(n), 2)}
    for a, b in implied:
        for c in set(range(n)) - {a, b}:
            if says(a, c, S) and says(c, b, S):
                implied[a, b].add(S)
            if (says(a, c, S) and says(c, b, D)) or (says(a, c, D) and says(c, b, S)):
                implied[a, b].add(D)
    return implied


def naive_single(n: int, rows: Iterable[Row]) -> Table:
    """An answered pair keeps its answer. Any other pair gets what one step from the answers implies."""
    verdicts = verdicts_by_pair(rows)
    for ab, implied in steps(n, verdicts).items():
        if not verdicts.get(ab, set()) & {S, D}:
            verdicts[ab] = verdicts.get(ab, set()) | implied
    return settle(n, verdicts)


def components(n: int, rows: Iterable[Row]) -> list[int]:
    """A label for each image, equal for images that similar answers connect."""
    label = list(range(n))
    for a, b, verdict in rows:
        if verdict == S:
            label = [label[a] if x == label[b] else x for x in label]
    return label


def cannot_all_be_true(n: int, rows: Iterable[Row]) -> bool:
    rows = list(rows)
    label = components(n, rows)
    return any(label[a] == label[b] for a, b, verdict in rows if verdict == D)


def naive_full(n: int, rows: Iterable[Row], doubted: Iterable[Row] = ()) -> Table:
    """Both rules until nothing changes. The doubted rows count as unsure."""
    doubted = set(doubted)
    verdicts = verdicts_by_pair((a, b, U if (a, b, v) in doubted else v) for a, b, v in rows)
    while True:
        more = {ab: verdicts.get(ab, set()) | implied for ab, implied in steps(n, verdicts).items()}
        if all(more[ab] == verdicts.get(ab, set()) for ab in more):
            return settle(n, verdicts)
        verdicts = more


def contradicted(closure: Closure, rows: Sequence[Row]) -> set[frozenset[Row]]:
    return {frozenset(rows[i] for i in one) for one in closure.contradictions}


# ---- implied pairs


@given(any_rows)
@fixed
def test_none_keeps_the_answers_alone(rows: list[Row]) -> None:
    assert table(none(N, answers(rows)).relations) == settle(N, verdicts_by_pair(rows))


@given(any_rows)
@thorough
def test_single_equals_a_double_loop_where_answers_agree(rows: list[Row]) -> None:
    closure = single(N, answers(rows))
    if not closure.contradictions:
        assert table(closure.relations) == naive_single(N, rows)


@given(true_answers())
@fixed
def test_single_equals_a_double_loop_on_true_answers(case: Case) -> None:
    assert table(single(N, answers(case[1])).relations) == naive_single(N, case[1])


@given(any_rows)
@thorough
def test_full_equals_the_fixpoint_of_the_two_rules(rows: list[Row]) -> None:
    closure = full(N, answers(rows))
    doubted = [row for one in contradicted(closure, rows) for row in one]
    assert table(closure.relations) == naive_full(N, rows, doubted)


@given(true_answers())
@fixed
def test_full_equals_the_fixpoint_of_the_two_rules_on_true_answers(case: Case) -> None:
    assert table(full(N, answers(case[1])).relations) == naive_full(N, case[1])


@every_closure
@given(case=true_answers())
@fixed
def test_what_true_answers_imply_is_true(closure: Rule, case: Case) -> None:
    classes, rows = case
    for (a, b), verdict in table(closure(N, answers(rows)).relations).items():
        assert verdict in (UNKNOWN, U, truth(classes, a, b))


def test_the_three_closures_of_a_chain() -> None:
    rows = [(0, 1, S), (1, 2, S), (2, 3, S), (3, 4, D), (4, 5, D)]
    one_step = {(0, 2): S, (1, 3): S, (2, 4): D}
    every_step = one_step | {(0, 3): S, (0, 4): D, (1, 4): D}
    given_ = {(a, b): verdict for a, b, verdict in rows}
    unknown = dict.fromkeys(combinations(range(6), 2), UNKNOWN)
    assert table(none(6, answers(rows)).relations) == unknown | given_
    assert table(single(6, answers(rows)).relations) == unknown | given_ | one_step
    assert table(full(6, answers(rows)).relations) == unknown | given_ | every_step


@pytest.mark.parametrize("common", [127, 128, 255, 256, 257, 512])
@pytest.mark.parametrize("closure", [single, full], ids=["single", "full"])
def test_many_common_neighbours_do_not_overflow_a_count(closure: Rule, common: int) -> None:
    between = range(3, 3 + common)
    rows = [row for m in between for row in ((0, m, S), (1, m, S), (2, m, D))]
    result = closure(3 + common, answers(rows))
    assert result.relations.of(Pairs.of([0, 0, 1], [1, 2, 2])).tolist() == [S, D, D]
    assert result.relations.count(Verdict.SIMILAR) == (common + 2) * (common + 1) // 2
    assert result.relations.count(Verdict.DISSIMILAR) == common + 2
    assert result.contradictions == ()


@every_closure
@pytest.mark.parametrize("times", [128, 256])
def test_an_answer_given_many_times_is_one_answer(closure: Rule, times: int) -> None:
    rows: list[Row] = [(0, 1, S), (2, 3, D), (3, 4, U)]
    once = closure(5, answers(rows))
    often = closure(5, answers(rows * times))
    assert table(often.relations) == table(once.relations)
    assert often.relations.count(Verdict.SIMILAR) == often.relations.count(Verdict.DISSIMILAR) == 1


@every_closure
def test_nothing_follows_from_no_answers(closure: Rule) -> None:
    result = closure(4, Answers.none())
    assert set(table(result.relations).values()) == {UNKNOWN}
    assert result.relations.members.tolist() == []
    assert result.relations.of(Pairs.none()).tolist() == []
    assert result.contradictions == ()


def test_closures_have_names() -> None:
    assert {"none": none, "single": single, "full": full} == CLOSURES


# ---- unsure answers


@every_closure
def test_an_unsure_pair_is_set_aside_and_implies_nothing(closure: Rule) -> None:
    relations = closure(4, answers([(0, 1, U), (1, 2, S)])).relations
    assert relations.of(Pairs.of([0, 1, 0], [1, 2, 2])).tolist() == [U, S, UNKNOWN]
    assert relations.members.tolist() == [1, 2]


@pytest.mark.parametrize("closure", [single, full], ids=["single", "full"])
@pytest.mark.parametrize("verdict", [S, D])
def test_an_unsure_pair_takes_the_verdict_that_others_imply(closure: Rule, verdict: int) -> None:
    rows = [(0, 2, U), (0, 1, S), (1, 2, verdict)]
    assert closure(3, answers(rows)).relations.of(Pairs.of([0], [2])).tolist() == [verdict]
    assert none(3, answers(rows)).relations.of(Pairs.of([0], [2])).tolist() == [U]


@every_closure
@pytest.mark.parametrize("verdict", [S, D])
def test_a_sure_answer_overrides_an_unsure_one(closure: Rule, verdict: int) -> None:
    for rows in ([(0, 1, U), (0, 1, verdict)], [(0, 1, verdict), (0, 1, U)]):
        result = closure(2, answers(rows))
        assert result.relations.of(Pairs.of([0], [1])).tolist() == [verdict]
        assert result.contradictions == ()


# ---- properties of a closure


@every_closure
@given(rows=any_rows, data=st.data())
@fixed
def test_the_order_of_answers_does_not_matter(closure: Rule, rows: list[Row], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(rows))
    result = closure(N, answers(rows))
    result_shuffled = closure(N, answers(shuffled))
    assert table(result.relations) == table(result_shuffled.relations)
    assert contradicted(result, rows) == contradicted(result_shuffled, shuffled)


@given(true_answers())
@fixed
def test_answering_what_full_implies_changes_nothing(case: Case) -> None:
    once = table(full(N, answers(case[1])).relations)
    implied = [(a, b, verdict) for (a, b), verdict in once.items() if verdict]
    again = full(N, answers(case[1] + implied))
    assert table(again.relations) == once
    assert again.contradictions == ()


@given(any_rows)
@fixed
def test_each_closure_knows_all_that_the_narrower_one_knows(rows: list[Row]) -> None:
    if cannot_all_be_true(N, rows):
        return
    narrow, step, wide = (table(closure(N, answers(rows)).relations) for closure in (none, single, full))
    assert all(step[ab] == verdict for ab, verdict in narrow.items() if verdict in (S, D))
    assert all(wide[ab] == verdict for ab, verdict in step.items() if verdict in (S, D))


# ---- contradictions


@every_closure
@given(case=true_answers())
@fixed
def test_true_answers_have_no_contradiction(closure: Rule, case: Case) -> None:
    assert closure(N, answers(case[1])).contradictions == ()


@given(case=true_answers(), data=st.data())
@thorough
def test_full_finds_one_wrong_answer(case: Case, data: st.DataObject) -> None:
    _, rows = case
    settled = {ab: v for ab, v in table(full(N, answers(rows)).relations).items() if v in (S, D)}
    if not settled:
        return
    (a, b), verdict = data.draw(st.sampled_from(sorted(settled.items())))
    wrong = data.draw(st.integers(0, len(rows)))
    rows = [*rows[:wrong], (a, b, S + D - verdict), *rows[wrong:]]  # the opposite verdict, anywhere
    contradictions = full(N, answers(rows)).contradictions
    assert any(wrong in one for one in contradictions)
    for one in contradictions:
        assert cannot_all_be_true(N, [rows[i] for i in one])


@every_closure
@given(rows=any_rows)
@fixed
def test_the_rows_of_a_contradiction_cannot_all_be_true(closure: Rule, rows: list[Row]) -> None:
    for one in closure(N, answers(rows)).contradictions:
        assert list(one) == sorted(set(one))
        assert all(rows[i][2] != U for i in one)
        assert cannot_all_be_true(N, [rows[i] for i in one])


@pytest.mark.parametrize("closure", [none, full], ids=["none", "full"])
@given(rows=any_rows)
@fixed
def test_a_contradiction_has_no_needless_row(closure: Rule, rows: list[Row]) -> None:
    for one in closure(N, answers(rows)).contradictions:
        for left_out in one:
            assert not cannot_all_be_true(N, [rows[i] for i in one if i != left_out])


@given(any_rows)
@fixed
def test_full_reports_every_dissimilar_answer_inside_a_component(rows: list[Row]) -> None:
    label = components(N, rows)
    inside = {i for i, (a, b, verdict) in enumerate(rows) if verdict == D and label[a] == label[b]}
    reported = {i for one in full(N, answers(rows)).contradictions for i in one}
    assert {i for i in reported if rows[i][2] == D} == inside


@given(any_rows)
@fixed
def test_none_reports_every_pair_answered_both_ways(rows: list[Row]) -> None:
    opposed = [ab for ab, verdicts in verdicts_by_pair(rows).items() if {S, D} <= verdicts]
    both = {frozenset([(*ab, S), (*ab, D)]) for ab in opposed}
    assert contradicted(none(N, answers(rows)), rows) == both


@given(any_rows)
@fixed
def test_single_finds_a_contradiction_exactly_where_one_step_gives_both_verdicts(rows: list[Row]) -> None:
    verdicts = verdicts_by_pair(rows)
    both = {ab for ab, implied in steps(N, verdicts).items() if {S, D} <= implied | verdicts.get(ab, set())}
    assert bool(single(N, answers(rows)).contradictions) == bool(both)


def test_full_reports_the_shortest_chain_that_a_dissimilar_answer_contradicts() -> None:
    rows = [(0, 1, S), (1, 2, S), (2, 3, S), (0, 4, S), (3, 4, S), (5, 6, D), (0, 3, D)]
    result = full(7, answers(rows))
    assert list(result.contradictions) == [(3, 4, 6)]


@pytest.mark.parametrize("closure", [single, full], ids=["single", "full"])
@pytest.mark.parametrize("odd", [0, 1, 2])
def test_a_triangle_of_two_similar_answers_and_a_dissimilar_one_is_a_contradiction(
    closure: Rule, odd: int
) -> None:
    rows = [(3, 4, D), (0, 1, S), (1, 2, S), (0, 2, S), (4, 5, S)]
    rows[1 + odd] = (*rows[1 + odd][:2], D)
    result = closure(6, answers(rows))
    assert list(result.contradictions) == [(1, 2, 3)]
    triangle = [U] * 3 if closure is full else [verdict for _, _, verdict in rows[1:4]]
    assert [table(result.relations)[a, b] for a, b, _ in rows] == [D, *triangle, S]


def test_single_reports_the_four_answers_that_imply_a_pair_both_ways() -> None:
    rows = [(0, 1, S), (1, 2, S), (0, 3, S), (2, 3, D), (4, 5, S)]
    result = single(6, answers(rows))
    assert (0, 1, 2, 3) in list(result.contradictions)
    assert result.relations.of(Pairs.of([0], [2])).tolist() == [U]


@given(any_rows)
@fixed
def test_none_and_single_keep_answers_that_are_contradicted(rows: list[Row]) -> None:
    given_ = {ab: verdicts for ab, verdicts in verdicts_by_pair(rows).items() if verdicts & {S, D}}
    for closure in (none, single):
        known = table(closure(N, answers(rows)).relations)
        for ab, verdicts in given_.items():
            assert known[ab] == (U if {S, D} <= verdicts else min(verdicts))


def test_a_contradiction_keeps_the_groups_attached_to_its_chain() -> None:
    """The ends of the chain 0 - 1 - 2 are answered dissimilar. Answers outside the chain still hold."""
    rows = [(0, 1, S), (1, 2, S), (0, 2, D), (0, 3, S), (3, 4, S), (2, 5, S), (5, 6, D)]
    result = full(7, answers(rows))
    assert list(result.contradictions) == [(0, 1, 2)]
    assert np.ptp(result.relations.group[[0, 3, 4]]) == np.ptp(result.relations.group[[2, 5]]) == 0
    pairs = Pairs.of([0, 1, 0, 2, 0, 3], [1, 2, 2, 6, 5, 1])
    assert result.relations.of(pairs).tolist() == [U, U, U, D, UNKNOWN, UNKNOWN]


@pytest.mark.parametrize("closure", [single, full], ids=["single", "full"])
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_a_pair_answered_both_ways_implies_nothing(closure: Rule, times: int) -> None:
    relations = closure(3, answers([*[(0, 1, S)] * times, (0, 1, D), (1, 2, D)])).relations
    assert relations.of(Pairs.of([0, 1, 0], [1, 2, 2])).tolist() == [U, D, UNKNOWN]


@pytest.mark.parametrize("closure", [single, full], ids=["single", "full"])
def test_a_contradictory_triangle_implies_nothing(closure: Rule) -> None:
    rows = [(0, 1, S), (1, 2, S), (0, 2, D), (2, 3, S)]
    result = closure(4, answers(rows))
    assert list(result.contradictions) == [(0, 1, 2)]
    assert result.relations.of(Pairs.of([0, 1], [3, 3])).tolist() == [UNKNOWN, UNKNOWN]


def test_a_contradiction_does_not_change_other_components() -> None:
    rows = [(0, 1, S), (0, 1, D), (2, 3, S), (3, 4, S), (1, 2, D)]
    relations = full(5, answers(rows)).relations
    expected = dict.fromkeys(combinations(range(5), 2), UNKNOWN) | {
        (0, 1): U,
        **dict.fromkeys([(2, 3), (3, 4), (2, 4)], S),
        **dict.fromkeys([(1, 2), (1, 3), (1, 4)], D),
    }
    assert table(relations) == expected


# ---- lookups, counts and partners


@every_closure
@given(rows=any_rows, data=st.data())
@fixed
def test_among_agrees_with_of(closure: Rule, rows: list[Row], data: st.DataObject) -> None:
    relations = closure(N, answers(rows)).relations
    ids = st.lists(st.integers(0, N - 1), max_size=2 * N)  # any order, some twice, perhaps none
    rows_, columns = (np.array(data.draw(ids), dtype=np.int64) for _ in range(2))
    known = table(relations)
    expected = [[S if i == j else known[min(i, j), max(i, j)] for j in columns.tolist()] for i in rows_]
    verdicts = relations.among(rows_, columns)
    assert verdicts.dtype == np.int8
    assert verdicts.shape == (len(rows_), len(columns))
    assert verdicts.tolist() == expected


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_blocks_hold_every_pair_once_with_its_verdict(size: int) -> None:
    relations = single(N, answers([(0, 1, S), (1, 2, D), (3, 4, U), (4, 5, S)])).relations
    images = np.array([0, 1, 2, 4, 5])
    verdicts: list[tuple[int, int, int]] = []
    for rows, columns, block in relations.blocks(images, size):
        assert block.shape == (len(rows), len(columns))
        assert max(block.shape) <= size
        i, j = np.nonzero(block != REPEATED)
        verdicts += zip(rows[i].tolist(), columns[j].tolist(), block[i, j].tolist(), strict=True)
    known = table(relations)
    assert sorted(verdicts) == [(a, b, known[a, b]) for a, b in combinations(images.tolist(), 2)]


@every_closure
@given(rows=any_rows)
@fixed
def test_counts_members_and_sizes_agree_with_the_listed_pairs(closure: Rule, rows: list[Row]) -> None:
    relations = closure(N, answers(rows)).relations
    known = table(relations)
    assert len(relations) == N
    assert relations.count(Verdict.SIMILAR) == list(known.values()).count(S)
    assert relations.count(Verdict.DISSIMILAR) == list(known.values()).count(D)
    assert relations.members.tolist() == sorted({i for ab, v in known.items() if v in (S, D) for i in ab})
    group = relations.group.tolist()
    assert relations.sizes.tolist() == [group.count(image) for image in range(N)]
    assert all(group.index(name) == name for name in group)  # a group's name is its smallest image


@every_closure
@pytest.mark.parametrize("wanted", [Verdict.SIMILAR, Verdict.DISSIMILAR])
@given(rows=any_rows)
@fixed
def test_partners_are_all_the_images_with_that_verdict(
    closure: Rule, wanted: Verdict, rows: list[Row]
) -> None:
    relations = closure(N, answers(rows)).relations
    partners: dict[int, set[int]] = {i: set() for i in range(N)}
    for (a, b), verdict in table(relations).items():
        if verdict == wanted:
            partners[a].add(b)
            partners[b].add(a)
    ids = np.repeat(np.arange(N), 150)
    drawn = relations.partner(ids, wanted, np.random.default_rng(0)).reshape(N, 150)
    assert {i: set(drawn[i].tolist()) for i in range(N)} == {i: partners[i] or {i} for i in range(N)}


def test_partners_are_equally_likely_and_a_seed_determines_them() -> None:
    relations = full(6, answers([(0, 1, S), (1, 2, S), (2, 3, S), (3, 4, S)])).relations
    ids = np.full(4000, 2)
    drawn = relations.partner(ids, Verdict.SIMILAR, np.random.default_rng(1))
    assert np.bincount(drawn, minlength=6)[[2, 5]].tolist() == [0, 0]
    assert np.abs(np.bincount(drawn, minlength=6)[[0, 1, 3, 4]] - 1000).max() < 120
    assert (drawn == relations.partner(ids, Verdict.SIMILAR, np.random.default_rng(1))).all()
    assert not (drawn == relations.partner(ids, Verdict.SIMILAR, np.random.default_rng(2))).all()


@every_closure
@fixed
@given(rows=any_rows, gone=st.sets(st.integers(0, N - 1), max_size=N))
def test_without_some_images_the_others_keep_what_is_known_of_them(
    closure: Rule, rows: list[Row], gone: set[int]
) -> None:
    known = closure(N, answers(rows)).relations
    left = known.without(np.array(sorted(gone), dtype=np.int64))
    others = np.array(sorted(set(range(N)) - gone), dtype=np.int64)
    before = known.among(others, others)
    np.testing.assert_array_equal(left.among(others, others), np.where(before == U, 0, before))
    assert not set(left.members.tolist()) & gone
    assert all(left.group[i] == min(np.flatnonzero(left.group == left.group[i])) for i in range(N))


@given(rows=any_rows, data=st.data())
@fixed
def test_unlinked_groups_are_as_if_no_answer_related_them(rows: list[Row], data: st.DataObject) -> None:
    given_ = answers(rows)
    known = full(N, given_).relations
    ends = np.stack([known.group[given_.pairs.a], known.group[given_.pairs.b]], axis=1)
    linked = sorted({(min(one), max(one)) for one in ends[known.of(given_.pairs) == D].tolist()})
    gone = data.draw(st.lists(st.sampled_from(linked), unique=True)) if linked else []
    before = table(known)
    for (a, b), verdict in table(known.unlinked(gone)).items():
        one, other = sorted(known.group[[a, b]].tolist())
        if (one, other) in gone:
            assert verdict == known.set_aside[a, b]
        else:
            assert verdict == before[a, b]
