"""Answers that may be slips: asked again before they count.

With the full closure one wrong answer turns into many wrong pairs, so an answer is looked at twice where
it says what the model would hardly have thought, where it joins two groups that are both large, and where
it is part of a contradiction. Two like answers on a pair settle it, and so does a third, which is then that
of the majority; whoever is unsure the second time has settled it too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from anneal.mining import pairwise
from anneal.pairs import Answers, Floats, Verdict
from anneal.transitivity import Relations
from anneal.uncertainty import chance_similar

ENOUGH = 30  # answers from which on it is known what the model would have thought
LARGE = 5  # images of each of two groups that no single answer joins


def chances(vectors: Floats, answers: Answers, fresh: Answers) -> Floats:
    """What chance the model gave to the verdict of each answer, going by the similarity of the pair and by
    how the ``fresh`` answers, which it has not learnt from, turned out; 1 while these are too few."""
    settled = np.isin(fresh.verdicts, (Verdict.SIMILAR, Verdict.DISSIMILAR))
    similar = fresh.verdicts[settled] == Verdict.SIMILAR
    if len(similar) < ENOUGH or similar.all() or not similar.any():
        return np.ones(len(answers))
    k, middle = chance_similar(pairwise(vectors, fresh.pairs[settled]), similar)
    logit = k * (pairwise(vectors, answers.pairs) - middle)
    sign = np.where(answers.verdicts == Verdict.SIMILAR, 1.0, -1.0)
    chance: Floats = np.where(answers.verdicts == Verdict.UNSURE, 1.0, expit(sign * logit))
    return chance


def joins(before: Relations, fresh: Answers) -> NDArray[np.bool_]:
    """Which of the answers join two groups that are both large, taken one after the other."""
    head: dict[int, int] = {}  # a group → the one it was joined to
    size: dict[int, int] = {}

    def find(group: int) -> int:
        while group in head:
            group = head[group]
        return group

    found = np.zeros(len(fresh), dtype=bool)
    for row in np.flatnonzero(fresh.verdicts == Verdict.SIMILAR):
        one, other = (find(int(before.group[ids[row]])) for ids in (fresh.pairs.a, fresh.pairs.b))
        if one != other:
            sizes = [size.get(group, int(before.sizes[group])) for group in (one, other)]
            found[row] = min(sizes) >= LARGE
            head[one], size[other] = other, sum(sizes)
    return found


def suspects(chance: Floats, joined: NDArray[np.bool_], least: float) -> list[int]:
    """Rows that may be slips, the likeliest first: those to whose verdict the model gave less than
    ``least``, and those that join large groups."""
    rows = np.flatnonzero((chance < least) | joined)
    found: list[int] = rows[np.argsort(chance[rows], kind="stable")].tolist()
    return found
