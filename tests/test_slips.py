"""Slips: which answers are asked again."""

import numpy as np

from anneal import slips
from anneal.index import unit
from anneal.pairs import Answers, Floats, Pairs, Verdict
from anneal.transitivity import full

SIMILAR, DISSIMILAR, UNSURE = Verdict


def on_a_line(n: int = 60) -> tuple[Floats, Answers]:
    """Image 0 beside images ever farther from it: the nearer half similar, the others not."""
    angle = np.linspace(0, np.pi / 2, n + 1)
    vectors = unit(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    verdicts = [SIMILAR if i <= n // 2 else DISSIMILAR for i in range(1, n + 1)]
    return vectors, Answers.of(Pairs.of([0] * n, range(1, n + 1)), verdicts)


def test_an_answer_that_the_model_would_hardly_have_thought_is_suspect() -> None:
    vectors, answers = on_a_line()
    flipped = answers.verdicts.copy()
    flipped[[2, 55]] = DISSIMILAR, SIMILAR
    told = Answers.of(answers.pairs, flipped)
    chance = slips.chances(vectors, told, told)
    assert slips.suspects(chance, np.zeros(60, dtype=bool), 0.15)[:2] in ([2, 55], [55, 2])
    assert set(slips.suspects(chance, np.zeros(60, dtype=bool), 0.05)) <= {2, 55}


def test_nothing_is_suspect_while_too_little_is_known() -> None:
    vectors, answers = on_a_line()
    few = Answers.of(answers.pairs[: slips.ENOUGH - 1], answers.verdicts[: slips.ENOUGH - 1])
    assert slips.chances(vectors, few, few).tolist() == [1.0] * len(few)
    one_kind = Answers.of(answers.pairs, [SIMILAR] * len(answers))
    assert (slips.chances(vectors, one_kind, one_kind) == 1).all()


def test_who_is_unsure_makes_no_slip() -> None:
    vectors, answers = on_a_line()
    asked = Answers.of(Pairs.of([0], [1]), [UNSURE])
    assert slips.chances(vectors, asked, answers).tolist() == [1.0]


def test_an_answer_that_joins_two_large_groups_is_suspect_and_one_that_adds_an_image_is_not() -> None:
    chain = [(i, i + 1) for start in (0, 10) for i in range(start, start + slips.LARGE - 1)]
    a, b = zip(*chain, strict=True)
    before = full(20, Answers.of(Pairs.of(a, b), [SIMILAR] * len(chain))).relations
    fresh = Answers.of(Pairs.of([0, 0, 0, 0], [19, 15, 10, 11]), [SIMILAR, DISSIMILAR, SIMILAR, SIMILAR])
    assert slips.joins(before, fresh).tolist() == [False, False, True, False]  # the last joins nothing more
    grown = Answers.of(Pairs.of([15, 15, 15, 15, 0], [16, 17, 18, 19, 15]), [SIMILAR] * 5)
    assert slips.joins(before, grown).tolist() == [False] * 4 + [True]  # it grew while they were asked
    assert slips.suspects(np.ones(5), slips.joins(before, grown), 0.15) == [4]
