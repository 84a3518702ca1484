"""The closure that grows with the answers, checked after every step against the computation from scratch."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anneal.method import growing
from anneal.method.growing import LABELS, GrowingClosure
from anneal.method.relations import full
from anneal.pairs import Answers, Pair, Pairs, Verdict

SIMILAR, DISSIMILAR, UNSURE = Verdict
N = 7
PAIRS = list(combinations(range(N), 2))
Step = tuple[Pair, Verdict] | int  # an answer, or which of the answers so far is removed


def steps(verdicts: list[Verdict]) -> st.SearchStrategy[list[Step]]:
    answer = st.tuples(st.sampled_from(PAIRS), st.sampled_from(verdicts))
    return st.lists(st.one_of(answer, answer, answer, st.integers(0, 99)), min_size=8, max_size=30)


def check(closure: GrowingClosure, standing: dict[int, tuple[Pair, Verdict]]) -> None:
    """Everything a closure tells, against ``full`` on the answers that stand."""
    keys = sorted(standing)
    answers = Answers.of(
        Pairs.from_list(standing[key][0] for key in keys), [standing[key][1] for key in keys]
    )
    expected = full(N, answers)
    known = expected.relations
    every = Pairs.from_list(PAIRS)
    images = np.arange(N)
    assert closure.of(every).tolist() == known.of(every).tolist()
    assert closure.group.tolist() == known.group.tolist()
    assert closure.sizes.tolist() == known.sizes.tolist()
    assert closure.members.tolist() == known.members.tolist()
    for most in (1, 2, N):
        assert closure.count_groups(most) == known.count_groups(most)
    assert closure.has_relations(images).tolist() == known.has_relations(images).tolist()
    assert closure.among(images, images).tolist() == known.among(images, images).tolist()
    for image in range(N):
        links = (closure.linked_to(image), known.linked_to(image))
        mine, theirs = (dict(zip(*(column.tolist() for column in link), strict=True)) for link in links)
        assert mine == theirs
        assert sorted(closure.set_aside_with(image)) == sorted(known.set_aside_with(image))
    contradictions = [tuple(keys[row] for row in rows) for rows in expected.contradictions]
    assert closure.contradictions == contradictions
    asked = [i for i, key in enumerate(keys) if key < LABELS]
    assert closure.implied == known.implied(Answers(answers.pairs[asked], answers.verdicts[asked]))


def play(sequence: list[Step]) -> None:
    closure = GrowingClosure(N)
    standing: dict[int, tuple[Pair, Verdict]] = {}
    for number, step in enumerate(sequence):
        if isinstance(step, int):
            if standing:
                key = sorted(standing)[step % len(standing)]
                del standing[key]
                closure.remove(key)
        else:
            key = number + (LABELS if number % 5 == 4 else 0)
            standing[key] = step
            closure.add(key, *step)
        check(closure, standing)


@settings(derandomize=True, deadline=None, database=None, max_examples=80)
@given(steps([SIMILAR, SIMILAR, DISSIMILAR, UNSURE]))
def test_any_sequence_of_answers_and_withdrawals_gives_what_the_answers_that_stand_imply(
    sequence: list[Step],
) -> None:
    play(sequence)


@settings(derandomize=True, deadline=None, database=None, max_examples=50)
@given(steps([SIMILAR, DISSIMILAR, DISSIMILAR]))
def test_so_do_sequences_with_many_contradictions(sequence: list[Step]) -> None:
    play(sequence)


def test_many_pairs_are_looked_up_in_arrays_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    closure = GrowingClosure(N)
    for key, (pair, verdict) in enumerate([((0, 1), SIMILAR), ((1, 2), DISSIMILAR), ((3, 4), UNSURE)]):
        closure.add(key, pair, verdict)
    one_by_one = closure.of(Pairs.from_list(PAIRS))
    monkeypatch.setattr(growing, "FEW", 0)
    assert closure.of(Pairs.from_list(PAIRS)).tolist() == one_by_one.tolist()
    assert one_by_one[PAIRS.index((0, 2))] == DISSIMILAR


def test_an_answer_that_joins_two_groups_tells_their_sizes() -> None:
    closure = GrowingClosure(N)
    assert closure.add(0, (0, 1), SIMILAR) == (1, 1)
    assert closure.add(1, (2, 3), SIMILAR) == (1, 1)
    assert closure.add(2, (3, 4), SIMILAR) == (2, 1)
    assert closure.add(3, (1, 4), SIMILAR) == (2, 3)
    assert closure.add(4, (0, 3), SIMILAR) == (0, 0)
    assert closure.add(5, (0, 6), DISSIMILAR) == (0, 0)


def test_a_component_that_no_answer_touches_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    closure = GrowingClosure(N)
    closure.add(0, (0, 1), SIMILAR)
    closure.add(1, (2, 3), SIMILAR)
    closure.add(2, (4, 5), SIMILAR)
    computed: list[list[int]] = []
    settle = GrowingClosure._settle

    def watched(self: GrowingClosure, component: list[int]) -> None:
        computed.append(component)
        settle(self, component)

    monkeypatch.setattr(GrowingClosure, "_settle", watched)
    closure.add(3, (1, 2), SIMILAR)  # joins
    closure.add(4, (0, 6), DISSIMILAR)  # separates
    closure.remove(4)
    assert computed == []
    closure.add(5, (0, 3), DISSIMILAR)  # contradicts
    closure.remove(3)
    assert computed == [[0, 1, 2, 3], [0, 1], [2, 3]]
