"""Answers that may be mistakes, to be asked again.

With the full closure one wrong answer becomes many wrong pairs. An answer is a suspect if the model gave its
verdict a low probability, if it joins two large groups, if it is part of a contradiction, or, rounds later,
if the frozen features speak against it.
"""

import math
from collections.abc import Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import depth_first_order
from scipy.special import expit

from anneal.files import release
from anneal.method.mining import pairwise
from anneal.method.relations import Relations
from anneal.method.ridge import GroupRidge
from anneal.method.uncertainty import fit_logistic
from anneal.pairs import Answers, Floats, Ids, Pair, Pairs, Verdict

ENOUGH = 30  # answers needed to say how likely a verdict was
LARGE = 5  # images: two groups this large are not joined by one answer alone
RIDGE = 0.3  # of the regression that judges answers
LEAD = 0.1  # an answer is strange if by the features another group leads by this score …
ALONE = 0.4  # … or by this one if it is about one image alone
FOREIGN = -0.5  # several images may not belong to a group with a lower score than this
FEW = 4  # images: of a smaller group nobody can tell which part does not belong
SETTLED = 2  # settled answers that separate two groups for good
PAYS = 0.2  # share of mistakes among rechecked answers from which rechecking goes on in full


def verdict_probability(vectors: Floats, answers: Answers, fresh: Answers) -> Floats:
    """The probability the model gave to the verdict of each answer: a logistic fit of the ``fresh`` answers,
    which it has not learnt from, on similarity. 1 while these are too few, and for unsure."""
    settled = np.isin(fresh.verdicts, (Verdict.SIMILAR, Verdict.DISSIMILAR))
    similar = fresh.verdicts[settled] == Verdict.SIMILAR
    if len(similar) < ENOUGH or similar.all() or not similar.any():
        return np.ones(len(answers))
    k, middle = fit_logistic(pairwise(vectors, fresh.pairs[settled]), similar)
    logit = k * (pairwise(vectors, answers.pairs) - middle)
    sign = np.where(answers.verdicts == Verdict.SIMILAR, 1.0, -1.0)
    return np.where(answers.verdicts == Verdict.UNSURE, 1.0, expit(sign * logit))


def is_large_join(sizes: tuple[int, int]) -> bool:
    """Whether an answer that joins groups of these sizes joins two large ones."""
    return min(sizes) >= LARGE


def unlikely(probability: Floats, joins: NDArray[np.bool_], least: float) -> list[int]:
    """Rows of suspects, the least likely first: a probability below ``least``, or a join of large groups."""
    rows = np.flatnonzero((probability < least) | joins)
    ordered: list[int] = rows[np.argsort(probability[rows], kind="stable")].tolist()
    return ordered


def recheck_rate(rechecked: int, mistakes: int) -> float:
    """How much rechecking goes on, from 0 to 1: all of it at first and while it finds mistakes, then less and
    less, but never nothing."""
    return min((mistakes + 1) / (rechecked * PAYS + 1), 1)


def against_frozen(
    frozen: Floats, answers: Answers, known: Relations, settled: Set[Pair], some_are_wrong: bool = False
) -> Pairs:
    """Answers that the frozen features speak against, the strangest first; ``settled`` pairs are left out.

    The features judge images as if their own answers were not known (``ridge``). A similar answer is strange
    if it alone holds two parts of a group together and the smaller belongs elsewhere: its own group has a low
    score for it, and another group a better one. A dissimilar answer is strange if it alone separates two
    groups and the larger has the best score for the smaller. The larger the part, the more is at stake, so it
    is asked sooner. Where ``some_are_wrong``, an image that one answer holds in its group may be in the
    wrong one, and several answers that separate two groups may be wrong: two parts of one class get a wrong
    one whenever an image is refused by the first part and goes to the second.
    """
    if not len(known.members):
        return Pairs.none()
    judge = _judge(frozen, known)
    left = {row for row, pair in enumerate(answers.pairs) if pair not in settled}
    strange = _strange_bridges(answers, known, judge, left, 1 if some_are_wrong else 2)
    strange += _strange_separations(answers, known, judge, left, some_are_wrong)
    return answers.pairs[np.array([row for _, row in sorted(strange)], dtype=np.int64)]


def doubtful_separations(
    frozen: Floats, answers: Answers, known: Relations, settled: Set[Pair]
) -> list[tuple[int, int]]:
    """Groups that one answer separates, two by two, although the frozen features give the larger one the best
    score for the smaller. A ``settled`` answer is not doubted."""
    if not len(known.members):
        return []
    judge = _judge(frozen, known)
    return [
        (apart.small, apart.large)
        for apart in _separations(answers, known)
        if len(apart.rows) == 1
        and settled.isdisjoint(answers.pairs[apart.rows])
        and judge.lead(apart.images, apart.large) >= 0
    ]


def _judge(frozen: Floats, known: Relations) -> GroupRidge:
    images = known.members
    judge = GroupRidge(np.asarray(frozen[images]), images, known.group[images], RIDGE)
    release(frozen)
    return judge


Strange = list[tuple[float, int]]  # (how strange, less is stranger; row of the answer)


def _strange_bridges(
    answers: Answers, known: Relations, judge: GroupRidge, left: Set[int], least: int
) -> Strange:
    """Of each group the strangest bridge that parts of several images hang on, and every one of one image."""
    single: Strange = []
    several: dict[int, tuple[float, int]] = {}  # of each group
    for row, part in bridges(answers, known, least):
        group = int(known.group[answers.pairs.a[row]])
        if row not in left or known.sizes[group] < FEW:
            continue
        own, other = judge.own_and_best_other(part)
        found = (_strangeness(other - own, len(part)), row)
        if found[0] < 0 and len(part) == 1:
            single.append(found)
        elif found[0] < 0 and own < FOREIGN:
            several[group] = min(several.get(group, found), found)
    return [*single, *several.values()]


def _strangeness(lead: float, images: int) -> float:
    """How strange an answer is about so many images; less is stranger, and what is not strange is 0."""
    return -lead * math.log2(1 + images) if lead >= (LEAD if images > 1 else ALONE) else 0.0


def _strange_separations(
    answers: Answers, known: Relations, judge: GroupRidge, left: Set[int], some_are_wrong: bool
) -> Strange:
    strange: Strange = []
    for apart in _separations(answers, known):
        unsettled = [row for row in apart.rows if row in left]
        enough = len(apart.rows) - len(unsettled) >= SETTLED if some_are_wrong else len(apart.rows) > 1
        if enough or not unsettled:
            continue
        strangeness = _strangeness(judge.lead(apart.images, apart.large), len(apart.images))
        if strangeness < 0:
            strange.append((strangeness, unsettled[0]))
    return strange


@dataclass(frozen=True)
class _Separation:
    """Two groups that answers separate."""

    small: int
    large: int
    images: Ids  # of the smaller group
    rows: list[int]  # of the answers


def _separations(answers: Answers, known: Relations) -> list[_Separation]:
    """Every two groups that answers separate, without contradicted ones."""
    between: dict[tuple[int, int], list[int]] = {}
    for row in np.flatnonzero(known.of(answers.pairs) == Verdict.DISSIMILAR).tolist():
        ends = (int(known.group[answers.pairs.a[row]]), int(known.group[answers.pairs.b[row]]))
        small, large = sorted(ends, key=lambda group: (known.sizes[group], group))
        between.setdefault((small, large), []).append(row)
    members = known.members[np.argsort(known.group[known.members], kind="stable")]
    sorted_groups = known.group[members]
    separations = []
    for (small, large), rows in between.items():
        images = members[np.searchsorted(sorted_groups, small) : np.searchsorted(sorted_groups, small + 1)]
        separations.append(_Separation(small, large, images, rows))
    return separations


def bridges(answers: Answers, known: Relations, least: int) -> list[tuple[int, Ids]]:
    """Similar answers without which a group falls in two parts of at least ``least`` images: the row of each,
    and the images of the smaller part."""
    similar = (answers.verdicts == Verdict.SIMILAR) & (known.of(answers.pairs) == Verdict.SIMILAR)
    rows = np.flatnonzero(similar)
    rows = rows[known.sizes[known.group[answers.pairs.a[rows]]] >= 2 * least]
    a = answers.pairs.a[rows]
    b = answers.pairs.b[rows]
    n = len(known)
    graph = csr_array((np.ones(2 * len(rows), np.int8), (np.r_[a, b], np.r_[b, a])), shape=(n, n))
    parts: list[tuple[int, Ids]] = []
    for group in np.unique(known.group[a]).tolist():
        mine = known.group[a] == group
        parts += _bridges_of_group(graph, rows[mine], answers.pairs, int(a[mine][0]), least)
    return parts


def _bridges_of_group(
    graph: csr_array, rows: Ids, pairs: Pairs, start: int, least: int
) -> list[tuple[int, Ids]]:
    """Bridges of one connected component, by a depth-first search: a tree edge is a bridge if no other edge
    leads around it."""
    order, above = depth_first_order(graph, start, directed=False, return_predecessors=True)
    position = {image: at for at, image in enumerate(order.tolist())}
    parent = [position.get(int(above[image]), -1) for image in order.tolist()]
    below = np.ones(len(order), dtype=np.int64)  # size of the subtree, which is a stretch of the order
    for at in range(len(order) - 1, 0, -1):
        below[parent[at]] += below[at]
    tree: dict[int, int] = {}  # lower end of a tree edge → row
    on_cycle: set[int] = set()  # lower ends
    for row in rows.tolist():
        high, low = sorted((position[int(pairs.a[row])], position[int(pairs.b[row])]))
        if parent[low] == high and low not in tree:
            tree[low] = row
            continue
        while high != low:
            on_cycle.add(low)
            high, low = sorted((high, parent[low]))
    bridges: list[tuple[int, Ids]] = []
    for low, row in tree.items():
        size = int(below[low])
        if low not in on_cycle and least <= size <= len(order) - least:
            part = order[low : low + size].astype(np.int64)
            smaller = part if 2 * size <= len(order) else np.setdiff1d(order, part)
            bridges.append((row, smaller))
    return bridges
