"""Suspects: which answers may be mistakes. What a campaign does with them is in campaign/test_recheck.py."""

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anneal.method import suspects
from anneal.method.neighbours import unit
from anneal.method.relations import full
from anneal.pairs import Answers, Floats, Pair, Pairs, Verdict

SIMILAR, DISSIMILAR, UNSURE = Verdict
Judged = tuple[int, int, Verdict]


def answers_of(*judged: Judged) -> Answers:
    return Answers.of(Pairs.from_list((a, b) for a, b, _ in judged), [verdict for _, _, verdict in judged])


def similar(*pairs: Pair) -> Answers:
    return Answers.of(Pairs.from_list(pairs), [SIMILAR] * len(pairs))


def dissimilar(*pairs: Pair) -> Answers:
    return Answers.of(Pairs.from_list(pairs), [DISSIMILAR] * len(pairs))


def chains(*groups: range) -> Answers:
    """Similar answers that join the images of each group, one after the other."""
    return similar(*((i, i + 1) for ids in groups for i in ids[:-1]))


def rings(*groups: range) -> Answers:
    """The same, and one answer more for each group: none of these answers is a bridge."""
    return chains(*groups).then(similar(*((ids[0], ids[-1]) for ids in groups)))


# -- answers to which the model gave a low probability -----------------------------------------------


def on_a_line(n: int = 60) -> tuple[Floats, Answers]:
    """Image 0 beside images farther and farther away: the nearer half is similar, the other half is not."""
    angle = np.linspace(0, np.pi / 2, n + 1)
    vectors = unit(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    verdicts = [SIMILAR if i <= n // 2 else DISSIMILAR for i in range(1, n + 1)]
    return vectors, Answers.of(Pairs.of([0] * n, range(1, n + 1)), verdicts)


def with_mistakes(answers: Answers, *rows: int) -> Answers:
    verdicts = answers.verdicts.copy()
    verdicts[list(rows)] = 3 - verdicts[list(rows)]
    return Answers.of(answers.pairs, verdicts)


def test_the_answers_least_expected_by_the_model_are_the_first_suspects() -> None:
    vectors, answers = on_a_line()
    given_answers = with_mistakes(answers, 2, 55)
    probability = suspects.verdict_probability(vectors, given_answers, given_answers)
    no_joins = np.zeros(60, dtype=bool)
    assert set(suspects.unlikely(probability, no_joins, 0.15)[:2]) == {2, 55}
    assert set(suspects.unlikely(probability, no_joins, 0.05)) <= {2, 55}


def test_the_probabilities_of_the_two_verdicts_add_up_to_one_and_fall_with_distance() -> None:
    vectors, answers = on_a_line()
    yes = suspects.verdict_probability(vectors, similar(*answers.pairs), answers)
    no = suspects.verdict_probability(vectors, dissimilar(*answers.pairs), answers)
    np.testing.assert_allclose(yes + no, 1)
    assert (np.diff(yes) < 0).all()
    assert yes[0] > 0.9
    assert yes[-1] < 0.1


def test_there_are_no_suspects_while_too_little_is_known() -> None:
    vectors, answers = on_a_line()
    few = Answers.of(answers.pairs[: suspects.ENOUGH - 1], answers.verdicts[: suspects.ENOUGH - 1])
    assert suspects.verdict_probability(vectors, few, few).tolist() == [1.0] * len(few)
    for one_kind in (similar(*answers.pairs), dissimilar(*answers.pairs)):
        assert (suspects.verdict_probability(vectors, answers, one_kind) == 1).all()


def test_unsure_answers_are_never_suspects_and_say_nothing_about_others() -> None:
    vectors, answers = on_a_line()
    unsure = answers_of((0, 1, UNSURE), (0, 60, UNSURE))
    assert suspects.verdict_probability(vectors, unsure, answers).tolist() == [1.0, 1.0]
    without = suspects.verdict_probability(vectors, answers, answers)
    assert (suspects.verdict_probability(vectors, answers, answers.then(unsure)) == without).all()


def test_suspects_are_ordered_from_the_least_likely_and_include_joins() -> None:
    probability = np.array([0.9, 0.1, 0.14, 1.0, 0.02, 0.15])
    joins = np.array([False, False, False, True, False, False])
    assert suspects.unlikely(probability, joins, 0.15) == [4, 1, 2, 3]
    assert suspects.unlikely(np.ones(6), joins, 0.15) == [3]
    assert suspects.unlikely(np.ones(6), ~joins & joins, 0.15) == []


# -- answers that join two large groups --------------------------------------------------------------


def test_a_join_is_large_if_both_groups_are() -> None:
    sizes = [(5, 5), (5, 4), (4, 9), (100, 5), (0, 0)]
    assert [suspects.is_large_join(one) for one in sizes] == [True, False, False, True, False]


# -- bridges ------------------------------------------------------------------------------------------


def test_a_bridge_is_an_answer_without_which_a_group_falls_in_two_parts() -> None:
    answers = similar((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (2, 4), (7, 8))  # 2, 3 and 4 form a cycle
    ((row, part),) = suspects.bridges(answers, full(9, answers).relations, 2)
    assert row == 1
    assert sorted(part.tolist()) == [0, 1]
    twice = answers.then(similar((1, 2)))  # a second person said the same
    assert suspects.bridges(twice, full(9, twice).relations, 2) == []


images = st.integers(0, 13)
verdicts = st.sampled_from([SIMILAR] * 6 + [DISSIMILAR, UNSURE])
judgements = st.lists(st.tuples(images, images, verdicts), max_size=24)


@given(judgements, st.integers(1, 3))
def test_bridges_are_those_of_networkx(judged: list[Judged], least: int) -> None:
    answers = answers_of(*(one for one in judged if one[0] != one[1]))
    known = full(14, answers).relations
    holds = (answers.verdicts == SIMILAR) & (known.of(answers.pairs) == SIMILAR)
    rows = np.flatnonzero(holds).tolist()
    pairs = list(answers.pairs)
    graph = nx.Graph([pairs[row] for row in rows])
    expected = {}
    for edge in nx.bridges(graph):
        pair = (min(edge), max(edge))
        own_rows = [row for row in rows if pairs[row] == pair]
        cut = nx.restricted_view(graph, [], [pair])
        sides = [nx.node_connected_component(cut, image) for image in pair]
        if len(own_rows) == 1 and min(map(len, sides)) >= least:
            expected[own_rows[0]] = sides
    bridges = suspects.bridges(answers, known, least)
    assert sorted(row for row, _ in bridges) == sorted(expected)
    for row, part in bridges:
        sides = expected[row]
        assert set(part.tolist()) in sides
        assert len(part) == min(map(len, sides))


# -- answers that the frozen features speak against ------------------------------------------------------


def three_clusters() -> Floats:
    """Twenty images around each of three centres."""
    centres = np.repeat(np.eye(8)[:3], 20, axis=0)
    return unit(centres + 0.05 * np.random.default_rng(3).normal(size=(60, 8)))


def against(
    answers: Answers, *settled: Pair, frozen: Floats | None = None, some_are_wrong: bool = False
) -> list[Pair]:
    vectors = three_clusters() if frozen is None else frozen
    known = full(len(vectors), answers).relations
    return list(suspects.against_frozen(vectors, answers, known, frozenset(settled), some_are_wrong))


RIGHT = chains(range(10), range(10, 20), range(20, 40), range(40, 60))


def test_the_frozen_features_speak_against_an_answer_that_joins_two_clusters() -> None:
    assert against(RIGHT) == []
    assert against(RIGHT.then(similar((9, 10)))) == []  # two parts of one cluster
    assert against(RIGHT.then(similar((19, 20)))) == [(19, 20)]


def test_the_frozen_features_speak_against_an_answer_that_separates_one_cluster() -> None:
    parts = chains(range(10), range(10, 20), range(20, 40))
    answers = parts.then(dissimilar((0, 10), (0, 20), (10, 20)))
    assert against(answers) == [(0, 10)]
    assert against(answers.then(dissimilar((5, 15)))) == []  # two answers say so


def test_where_some_answers_are_wrong_several_that_separate_one_cluster_are_asked_until_two_are_settled() -> (
    None
):
    parts = chains(range(10), range(10, 20), range(20, 40))
    twice = parts.then(dissimilar((0, 10), (0, 20), (5, 15), (10, 20)))
    assert against(twice, some_are_wrong=True) == [(0, 10)]
    assert against(twice, (0, 10), some_are_wrong=True) == [(5, 15)]
    assert against(twice.then(dissimilar((6, 16))), (0, 10), (5, 15), some_are_wrong=True) == []


def test_of_one_group_only_the_strangest_bridge_is_named() -> None:
    """Half a cluster each is joined to the second cluster. Two images of the third lie in the second."""
    frozen = three_clusters()
    frozen[[45, 46]] = frozen[[25, 26]]
    groups = rings(range(10), range(10, 20), range(20, 40), range(40, 50), range(50, 60))
    for joins in ([(19, 20), (39, 40)], [(39, 40), (19, 20)]):
        answers = groups.then(similar(*joins))
        assert against(answers, frozen=frozen) == [(19, 20)]
        assert against(answers, (19, 20), frozen=frozen) == [(39, 40)]


def test_answers_that_are_settled_are_left_out() -> None:
    joined = rings(range(10), range(10, 20), range(20, 40)).then(similar((19, 20)))
    assert against(joined) == [(19, 20)]
    assert against(joined, (19, 20)) == []
    separated = chains(range(10), range(10, 20), range(20, 40)).then(dissimilar((0, 10)))
    assert against(separated) == [(0, 10)]
    assert against(separated, (0, 10)) == []


def test_a_contradicted_answer_is_not_named() -> None:
    contradicted = RIGHT.then(similar((9, 10))).then(dissimilar((8, 11)))
    assert (8, 11) not in against(contradicted)


@pytest.mark.parametrize(
    ("stray", "expected"),
    [([45], [(19, 20), (40, 50)]), ([15], [(40, 50), (19, 20)])],
    ids=["one-votes-to-separate", "one-votes-to-join"],
)
def test_the_strangest_answer_comes_first(stray: list[int], expected: list[Pair]) -> None:
    """One answer joins half a cluster to the second cluster, another one separates the third. One image lies
    in the second cluster and so votes for one of the answers."""
    frozen = three_clusters()
    frozen[stray] = frozen[25]
    groups = rings(range(10), range(10, 20), range(20, 40), range(40, 50), range(50, 60))
    answers = groups.then(similar((19, 20))).then(dissimilar((40, 50)))
    assert against(answers, frozen=frozen) == expected
    reverse = Answers.of(answers.pairs[::-1], answers.verdicts[::-1])
    assert against(reverse, frozen=frozen) == expected


def test_nothing_speaks_against_an_answer_where_no_image_outside_the_group_is_near() -> None:
    centres = np.repeat(np.eye(8)[:4], 80, axis=0)
    frozen = unit(centres + 0.05 * np.random.default_rng(3).normal(size=(320, 8)))
    groups = chains(*(range(80 * k, 80 * k + 80) for k in range(4)))
    separated = [(80 * j, 80 * k) for k in range(4) for j in range(k)]
    assert against(groups.then(dissimilar(*separated)), frozen=frozen) == []


def with_a_stray(second: bool = False) -> tuple[Floats, Answers]:
    """Image 15 of the first cluster lies in the second one, and one answer holds it in the first."""
    frozen = three_clusters()
    frozen[15] = frozen[25]
    answers = rings(range(15), range(20, 40), range(40, 60)).then(similar((3, 15)))
    return frozen, answers.then(similar((4, 15))) if second else answers


def test_one_image_that_lies_elsewhere_is_a_suspect_only_where_some_answers_are_wrong() -> None:
    frozen, answers = with_a_stray()
    assert against(answers, frozen=frozen) == []
    assert against(answers, frozen=frozen, some_are_wrong=True) == [(3, 15)]
    assert against(answers, (3, 15), frozen=frozen, some_are_wrong=True) == []
    frozen, twice = with_a_stray(second=True)
    assert against(twice, frozen=frozen, some_are_wrong=True) == []


def test_of_a_group_of_three_nobody_can_tell_which_image_does_not_belong() -> None:
    frozen = three_clusters()
    frozen[2] = frozen[25]
    answers = chains(range(20, 40), range(40, 60)).then(similar((0, 1), (1, 2)))
    assert against(answers, frozen=frozen, some_are_wrong=True) == []
    fourth = answers.then(similar((0, 3)))
    assert against(fourth, frozen=frozen, some_are_wrong=True) == [(1, 2)]


def test_nothing_speaks_against_no_answers() -> None:
    assert against(Answers.none()) == []


def test_one_answer_that_separates_a_cluster_is_doubtful_until_it_is_settled() -> None:
    frozen = three_clusters()
    groups = chains(range(8), range(8, 20), range(20, 40), range(40, 60))

    def doubtful(answers: Answers, *settled: Pair) -> list[Pair]:
        known = full(60, answers).relations
        return suspects.doubtful_separations(frozen, answers, known, frozenset(settled))

    one = groups.then(dissimilar((3, 11), (0, 20), (8, 20)))
    assert doubtful(one) == [(0, 8)]  # the names of the groups
    assert doubtful(one, (0, 20)) == [(0, 8)]
    assert doubtful(one, (3, 11)) == []
    assert doubtful(one.then(dissimilar((4, 12)))) == []
    assert doubtful(Answers.none()) == []


# -- how much is rechecked ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rechecked", "mistakes", "rate"),
    [
        (0, 0, 1),
        (5, 0, 1 / 2),
        (50, 0, 1 / 11),
        (500, 0, 1 / 101),
        (100, 9, 10 / 21),
        (100, 19, 20 / 21),
        (100, 20, 1),
        (10, 10, 1),
    ],
)
def test_rechecking_goes_on_as_far_as_it_pays(rechecked: int, mistakes: int, rate: float) -> None:
    assert suspects.recheck_rate(rechecked, mistakes) == rate
