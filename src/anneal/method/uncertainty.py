"""How uncertain the current model is about a pair: arrays in, scores out, higher means ask first.

MGUE asks the pairs whose similarity is nearest to a threshold α_t, which lies between the similar and the
dissimilar pairs known so far. BCGUE asks those whose probability, by a pair classifier, is nearest to ½.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from anneal.method.relations import Known
from anneal.pairs import Floats, Ids, Pairs, Verdict

MEMBERS = 10_000  # images whose pairs are counted in ``moments``, at most
ROUNDING = 2.0**-24  # of single precision, relative
STRIP = 64  # rows of a block of logits …
WIDTH = 1024  # … and columns: the hidden units of both orders of this many pairs stay in a core's cache
PORTION = 512  # pairs that are scored at once in double precision


@dataclass(frozen=True)
class Moments:
    """Mean and population standard deviation of the similarity, over the similar and over the dissimilar
    pairs; nan if there is no such pair."""

    mean_similar: float
    std_similar: float
    mean_dissimilar: float
    std_dissimilar: float

    @property
    def complete(self) -> bool:
        return not (np.isnan(self.mean_similar) or np.isnan(self.mean_dissimilar))


def moments(vectors: Floats, known: Known, block: int = 1024) -> Moments:
    """μ and σ of s = u·v over all pairs known to be similar or dissimilar, answered or implied. Of more than
    MEMBERS images with such pairs, that many are taken, evenly by id."""
    members = known.members
    if len(members) > MEMBERS:
        members = members[np.linspace(0, len(members) - 1, MEMBERS).astype(np.int64)]
    sums = {Verdict.SIMILAR: np.zeros(3), Verdict.DISSIMILAR: np.zeros(3)}  # count, Σs, Σs²
    for rows, columns, verdicts in known.blocks(members, block):
        s = vectors[rows] @ vectors[columns].T
        for verdict, total in sums.items():
            picked = s[verdicts == verdict].astype(np.float64)
            total += len(picked), picked.sum(), np.square(picked).sum()
    return Moments(*_mean_std(sums[Verdict.SIMILAR]), *_mean_std(sums[Verdict.DISSIMILAR]))


def _mean_std(total: Floats) -> tuple[float, float]:
    """Mean and standard deviation from the count, Σs and Σs²; nan if the count is 0."""
    mean, square = (total[1:] / (total[0] or np.nan)).tolist()
    return mean, float(np.sqrt(max(square - mean**2, 0.0)))


def alpha_t(m: Moments, lam: float) -> float:
    """α_t = (μ_sim + μ_dsim − λ(σ_sim − σ_dsim)) / 2"""
    shift = lam * (m.std_similar - m.std_dissimilar)
    return (m.mean_similar + m.mean_dissimilar - shift) / 2


def calibrate(x: Floats, similar: NDArray[np.bool_]) -> tuple[float, float]:
    """Fit P(similar | x) = 1 / (1 + e^{−k(x − m)}) by Newton's method; returns (k, m), with k at least 0.25.
    Normal priors keep the curve finite for a few verdicts and for verdicts of one kind."""
    centre = float(np.mean(x))
    design = np.stack([x - centre, np.ones_like(x)], axis=1).astype(np.float64)  # (pairs, 2)
    prior = np.array([1.5, 0.0])  # the mean of k and of the offset
    precision = np.array([0.05, 0.01])
    w = prior.copy()
    for _ in range(50):
        p = expit(design @ w)
        gradient = design.T @ (similar - p) - precision * (w - prior)
        hessian = (design * (p * (1 - p))[:, None]).T @ design + np.diag(precision)
        step = np.linalg.solve(hessian, gradient)
        largest = float(np.abs(step).max())
        w += step * min(1.0, 2 / max(largest, 1e-12))  # no coordinate moves by more than 2
        if largest < 1e-9:
            break
    k = max(float(w[0]), 0.25)
    return k, centre - float(w[1]) / k


def fit_logistic(s: Floats, similar: NDArray[np.bool_]) -> tuple[float, float]:
    """(k, m) of ``calibrate`` for similarities s. They are first divided by their standard deviation, so the
    prior suits every model."""
    scale = max(float(np.std(s)), 1e-6)
    k, middle = calibrate(s / scale, similar)
    return k / scale, middle * scale


def level_for_share(levels: Floats, similar: NDArray[np.bool_], share: float) -> float:
    """The level at which this share of the answers is expected to be similar. Both arrays are of the answers.
    The level of a pair is the share of all pairs that are more similar."""
    k, middle = calibrate(-np.log(levels), similar)
    return float(np.exp(-(middle + logit(share) / k)))


def best_cutoff(s: Floats, similar: NDArray[np.bool_]) -> float:
    """The similarity from which to call a pair similar; nan until there is a pair of each kind. It has the
    least error: the share of similar pairs below it plus the share of dissimilar pairs above it."""
    if similar.all() or not similar.any():
        return float("nan")
    order = np.argsort(s)
    below = np.concatenate([[0], np.cumsum(similar[order])]) / similar.sum()
    above = 1 - np.concatenate([[0], np.cumsum(~similar[order])]) / (~similar).sum()
    error = below + above
    ends = np.concatenate([[s[order[0]]], s[order]])
    cutoffs = (ends[:-1] + ends[1:]) / 2  # cutoff i lies before pair i
    cutoffs = np.append(cutoffs, np.nextafter(ends[-1], np.inf))  # the last one calls no pair similar
    best = np.flatnonzero(error <= error.min() + 1e-12)
    return float(cutoffs[best[len(best) // 2]])


def score(measure: Floats, middle: float) -> Floats:
    """MGUE: −|s − α_t|; BCGUE: −|P − ½|. Higher means ask first."""
    return np.asarray(-np.abs(measure - middle))


@dataclass(frozen=True)
class PairProbability:
    """P(similar) of a trained pair classifier. The first layer takes two concatenated vectors, so it splits
    into one half per image: ``left`` and ``right`` hold W₁ᵃu and W₁ᵇu + b₁ for every image. The logit is the
    mean over both orders of the pair. As a measure for ``tiles.mine_near`` its distance is |P − ½|."""

    left: Floats  # (n, h1)
    right: Floats  # (n, h1)
    second: Floats  # (h1, h2)
    second_bias: Floats  # (h2,)
    last: Floats  # (h2,)
    last_bias: float
    budget: int = 250_000_000  # pairs: about 25 s on two cores

    def __call__(self, rows: Ids, columns: Ids) -> Floats:
        """(|rows|, |columns|) probabilities."""
        forward = self._logit(self.left[rows], self.right[columns])
        backward = self._logit(self.left[columns], self.right[rows]).T
        return np.asarray(expit((forward + backward) / 2))

    def _logit(self, left: Floats, right: Floats) -> Floats:
        out = np.empty((len(left), len(right)), dtype=np.float32)
        for i in range(0, len(left), 64):  # in strips: the largest array is (64, |right|, h1)
            hidden = np.maximum(left[i : i + 64, None, :] + right[None, :, :], 0)
            hidden = np.maximum(hidden @ self.second + self.second_bias, 0)
            out[i : i + 64] = hidden @ self.last + self.last_bias
        return out

    def scores(self, pairs: Pairs) -> Floats:
        """−|P − ½| of each pair, in double precision."""
        logits = np.empty(len(pairs))
        for k in range(0, len(pairs), PORTION):
            a = pairs.a[k : k + PORTION]
            b = pairs.b[k : k + PORTION]
            forward = self._logit_of_pairs(self.left[a], self.right[b])
            logits[k : k + PORTION] = (forward + self._logit_of_pairs(self.left[b], self.right[a])) / 2
        return score(np.asarray(expit(logits)), 0.5)

    def _logit_of_pairs(self, left: Floats, right: Floats) -> Floats:
        hidden = np.maximum(left.astype(np.float64) + right, 0)
        hidden = np.maximum(np.einsum("ph,hk->pk", hidden, self.second) + self.second_bias, 0)
        return np.asarray(np.einsum("pk,k->p", hidden, self.last) + self.last_bias)

    def tile(self, rows: Ids, columns: Ids) -> "LogitTile":
        return LogitTile(self, rows, columns)


class LogitTile:
    """The logits of some rows and columns, with half of the passes over hidden units spared: max(l + r, 0) =
    l + max(r, −l), where l belongs to the row. All that comes of l alone is computed once for the row."""

    def __init__(self, net: PairProbability, rows: Ids, columns: Ids) -> None:
        self.same = np.array_equal(rows, columns)  # strips leave out what is to the left of the diagonal
        self.second = net.second.astype(np.float32)
        self.last = net.last.astype(np.float32)
        orders = ((net.left, net.right), (net.right, net.left))
        self.rows = [one[rows].astype(np.float32) for one, _ in orders]  # (|rows|, h1) in either order
        self.columns = [other[columns].astype(np.float32) for _, other in orders]
        self.bias = [half @ self.second + net.second_bias.astype(np.float32) for half in self.rows]
        self.offset = (self.bias[0] + self.bias[1]) @ self.last + 2 * net.last_bias
        self.logit_error = self._largest(net) * (sum(net.second.shape) + 16) * ROUNDING
        self.error = self.logit_error / 4  # the slope of P is at most ¼

    def _largest(self, net: PairProbability) -> float:
        """No sum of absolute values on the way to a logit is larger."""
        halves = zip(self.rows, self.columns, strict=True)
        hidden = [np.abs(a).max(axis=0, initial=0) + np.abs(b).max(axis=0, initial=0) for a, b in halves]
        after = 2 * np.maximum(*hidden) @ np.abs(net.second) + np.abs(net.second_bias)
        return float(after @ np.abs(net.last) + abs(net.last_bias))

    def candidates(self, within: Callable[[], float]) -> Iterator[tuple[Ids, Ids, Floats]]:
        n = len(self.columns[0])
        for top in range(0, len(self.offset), STRIP):
            rows = range(top, min(top + STRIP, len(self.offset)))
            for left in range(top if self.same else 0, n, WIDTH):
                logits = self._logits(rows, slice(left, min(left + WIDTH, n)))
                distance = within()
                limit = logit(0.5 + distance) + self.logit_error if distance < 0.5 else np.inf
                i, j = np.nonzero(np.abs(logits) <= limit)
                if len(i):
                    yield i + top, j + left, -score(expit(logits[i, j].astype(np.float64)), 0.5)

    def _logits(self, rows: range, columns: slice) -> Floats:
        """(|rows|, |columns|)"""
        width = columns.stop - columns.start
        halves = [half[columns] for half in self.columns]
        hidden = np.empty((2 * width, self.second.shape[0]), dtype=np.float32)
        after = np.empty((2 * width, self.second.shape[1]), dtype=np.float32)
        orders = (slice(0, width), slice(width, None))
        logits = np.empty((len(rows), 2 * width), dtype=np.float32)
        for i, row in enumerate(rows):
            for order, part in enumerate(orders):
                np.maximum(halves[order], -self.rows[order][row], out=hidden[part])
            np.matmul(hidden, self.second, out=after)
            for order, part in enumerate(orders):
                np.maximum(after[part], -self.bias[order][row], out=after[part])
            np.matmul(after, self.last, out=logits[i])
        both: Floats = logits[:, :width] + logits[:, width:]
        both += self.offset[rows.start : rows.stop, None]
        both /= 2
        return both
