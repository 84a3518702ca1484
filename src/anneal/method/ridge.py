"""Ridge regression of the known groups on features: 1 for a member of a group, −1 for any other image.

What it would say of some images if their own answers were not known follows in closed form, so nothing is
fitted again:

    left out = Y − (I − H)⁻¹ (Y − H Y),    H = X (XᵀX + ridge · I)⁻¹ Xᵀ, rows and columns of these images
"""

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from anneal.method.neighbours import unit
from anneal.pairs import Floats, Ids


class GroupRidge:
    """The regression of some images, each with a group."""

    def __init__(self, features: Floats, images: Ids, group: Ids, ridge: float) -> None:
        """(n, d) features of the ``images``, sorted, and the number of each one's group. The ``ridge`` is for
        rows of unit length."""
        self.groups, self._column = np.unique(group, return_inverse=True)
        self._images = images
        self._mean = features.mean(axis=0, dtype=np.float64)
        inputs = self._inputs(features)
        self._factor = cholesky(inputs.T @ inputs + ridge * np.eye(inputs.shape[1]), lower=True)
        self._rows = self._whiten(inputs)  # H is their product: rows · rowsᵀ
        total = np.zeros((len(self.groups), inputs.shape[1]))
        np.add.at(total, self._column, self._rows)
        self._weights = 2 * total.T - self._rows.sum(axis=0)[:, None]  # (d + 1, groups)

    def scores(self, features: Floats) -> Floats:
        """(m, groups) the scores of other images, by their features."""
        return np.asarray(self._whiten(self._inputs(features)) @ self._weights)

    def own_and_best_other(self, part: Ids) -> tuple[float, float]:
        """The mean score of their own group for some images of one group if their own answers were not known,
        and that of the best other group: about 1 if they belong to it, −1 if not."""
        scores, own = self._left_out(part)
        return float(scores[own]), float(np.delete(scores, own).max(initial=-1))

    def lead(self, part: Ids, group: int) -> float:
        """The mean score of a group for them, less that of the best other; their own does not count."""
        scores, own = self._left_out(part)
        column = int(np.searchsorted(self.groups, group))
        others = np.delete(scores, [own, column])
        return float(scores[column] - others.max(initial=-1))

    def _left_out(self, part: Ids) -> tuple[Floats, int]:
        """(groups,) mean scores of some images of one group without their own answers; their column."""
        at = np.searchsorted(self._images, part)
        own = int(self._column[at[0]])
        rows = self._rows[at]
        target = np.where(np.arange(len(self.groups)) == own, 1.0, -1.0)
        error = _solve(rows, target - rows @ self._weights)
        return np.asarray((target - error).mean(axis=0)), own

    def _inputs(self, features: Floats) -> Floats:
        """(m, d + 1) centred, of unit length, and a constant."""
        rows = unit(np.asarray(features, dtype=np.float64) - self._mean)
        return np.column_stack([rows, np.ones(len(rows))])

    def _whiten(self, inputs: Floats) -> Floats:
        return np.asarray(solve_triangular(self._factor, inputs.T, lower=True).T)


def _solve(rows: Floats, target: Floats) -> Floats:
    """(I − R Rᵀ)⁻¹ Y, by a matrix as small as the shorter side of R: R may be a large part of a group."""
    m, d = rows.shape
    if m <= d:
        return np.asarray(np.linalg.solve(np.eye(m) - rows @ rows.T, target))
    return np.asarray(target + rows @ np.linalg.solve(np.eye(d) - rows.T @ rows, rows.T @ target))
