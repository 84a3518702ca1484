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


@pytest.mark.parametrize(
    ("part", "own"), [([4], 3), ([2, 3, 4], 3), ([*range(12, 30)], 5), ([40], 9)], ids=str
)
def test_images_are_judged_by_a_regression_without_them(part: list[int], own: int) -> None:
    """Their own group, the best other one, and how far a group is ahead of the best but their own."""
    features, ridge = some_groups()
    ids = np.array(part)
    mean = fitted_without(features, ids)[ids].mean(axis=0)
    score = dict(zip((3, 5, 8, 9), mean.tolist(), strict=True))
    others = [group for group in score if group != own]
    best = max(score[group] for group in others)
    assert ridge.own_and_best_other(ids) == pytest.approx((score[own], max(best, -1)))
    for group in others:
        best = max(score[other] for other in others if other != group)
        assert ridge.lead(ids, group) == pytest.approx(score[group] - max(best, -1))


def test_scores_of_other_images_are_those_of_the_regression_on_all() -> None:
    features, ridge = some_groups()
    expected = fitted_without(features, np.empty(0, dtype=np.int64))[41:]
    np.testing.assert_allclose(ridge.scores(features[41:]), expected, atol=1e-6)


def test_where_there_is_no_other_group_its_score_is_the_lowest() -> None:
    features, _ = some_groups()
    ridge = GroupRidge(features[:12], np.arange(12), np.zeros(12, dtype=np.int64), RIDGE)
    own, other = ridge.own_and_best_other(np.array([2, 3]))
    assert 0.9 < own < 1.1  # all images are members
    assert other == -1
    assert ridge.lead(np.array([2, 3]), 0) == own + 1
