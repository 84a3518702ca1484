"""The ridge regression of groups, against one that is fitted again without the images."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from anneal.method.neighbours import unit
from anneal.method.ridge import GroupRidge
from anneal.pairs import Floats, Ids

RIDGE = 0.3
GROUP = np.repeat([3, 5, 8, 9], [12, 18, 10, 1])  # the number of each image's group


def some_groups() -> tuple[Floats, GroupRidge]:
    """Features of 45 images around three centres, and the regression of the first 41."""
    rng = np.random.default_rng(3)
    centre = rng.normal(size=(3, 6))
    of = np.repeat([0, 1, 2, 0], [12, 18, 10, 5])
    features = unit(centre[of] + rng.normal(size=(45, 6))).astype(np.float32)
    return features, GroupRidge(features[:41], np.arange(41), GROUP, RIDGE)


def fitted_without(features: Floats, part: Ids) -> Floats:
    """(45, groups) the scores of a regression on the first 41 images but these."""
    own: Floats = np.asarray(features, dtype=np.float64)
    rows = unit(own - own[:41].mean(axis=0))
    rows = np.column_stack([rows, np.ones(len(rows))])
    left = np.setdiff1d(np.arange(41), part)
    target = np.where(GROUP[left][:, None] == np.unique(GROUP), 1.0, -1.0)
    model = Ridge(alpha=RIDGE, fit_intercept=False).fit(rows[left], target)
    return np.asarray(model.predict(rows))


@pytest.mark.parametrize("part", [[4], [2, 3, 4], [*range(12, 30)], [40]])
def test_scores_are_those_of_a_regression_without_the_images(part: list[int]) -> None:
    features, ridge = some_groups()
    ids = np.array(part)
    expected = fitted_without(features, ids)[ids].mean(axis=0)
    scores = [ridge.score(ids, group) for group in (3, 5, 8, 9)]
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_scores_of_other_images_are_those_of_the_regression_on_all() -> None:
    features, ridge = some_groups()
    expected = fitted_without(features, np.empty(0, dtype=np.int64))[41:]
    np.testing.assert_allclose(ridge.scores(features[41:]), expected, atol=1e-6)


def test_the_lead_is_over_the_best_of_the_other_groups_but_their_own() -> None:
    _, ridge = some_groups()
    ids = np.array([2, 3, 4])
    score = {group: ridge.score(ids, group) for group in (3, 5, 8, 9)}
    assert ridge.lead(ids, 3) == pytest.approx(score[3] - max(score[5], score[8], score[9]))
    assert ridge.lead(ids, 5) == pytest.approx(score[5] - max(score[8], score[9]))


def test_with_one_group_the_lead_is_over_no_group() -> None:
    features, _ = some_groups()
    ridge = GroupRidge(features[:12], np.arange(12), np.zeros(12, dtype=np.int64), RIDGE)
    ids = np.array([2, 3])
    assert ridge.lead(ids, 0) == pytest.approx(ridge.score(ids, 0) + 1)
