"""Answers that may be slips: they are asked again.

With the full closure one wrong answer turns into many wrong pairs, so an answer is looked at twice where it
says what the model would hardly have thought, where it joins two groups that are both large, where it is part
of a contradiction, and, rounds later, where the frozen features speak against it. What is said last stands
once it has been said more often than its contrary; whoever is unsure the second time has settled it too.
"""

from __future__ import annotations

import math
from collections.abc import Set

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import depth_first_order
from scipy.special import expit

from anneal.method.mining import pairwise
from anneal.method.neighbours import nearest
from anneal.method.relations import Relations
from anneal.method.uncertainty import chance_similar
from anneal.pairs import Answers, Floats, Ids, Pairs, Verdict

Pair = tuple[int, int]
ENOUGH = 30  # answers from which on it is known what the model would have thought
FEW = 2  # images, at least, of each of two parts of a group that one answer holds together
NEAR, VOTES = 64, 5  # nearest images that are looked at, and of which so many say where an image belongs
PAYING = 0.2  # the share of slips among what is asked again from which on it is asked as often as may be
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


def bridges(answers: Answers, known: Relations, least: int = FEW) -> list[tuple[int, Ids]]:
    """Similar answers without which a group would fall in two, both of at least so many images: each one's
    row, and the images of the smaller part."""
    rows = np.flatnonzero(
        (answers.verdicts == Verdict.SIMILAR) & (known.of(answers.pairs) == Verdict.SIMILAR)
    )
    rows = rows[known.sizes[known.group[answers.pairs.a[rows]]] >= 2 * least]
    a, b = answers.pairs.a[rows], answers.pairs.b[rows]
    n = len(known)
    graph = csr_array((np.ones(2 * len(rows), np.int8), (np.r_[a, b], np.r_[b, a])), shape=(n, n))
    found = []
    for group in np.unique(known.group[a]).tolist():
        start = int(a[known.group[a] == group][0])
        order, above = depth_first_order(graph, start, directed=False, return_predecessors=True)
        place = {image: at for at, image in enumerate(order.tolist())}
        below = np.ones(len(order), dtype=np.int64)  # images from each on downwards: a stretch of the order
        for at in range(len(order) - 1, 0, -1):
            below[place[int(above[order[at]])]] += below[at]
        edges: dict[int, list[int]] = {}  # the lower end → rows
        around: set[int] = set()  # lower ends of what lies on a cycle
        for row in rows[known.group[a] == group].tolist():
            one, other = sorted((place[int(answers.pairs.a[row])], place[int(answers.pairs.b[row])]))
            if int(above[order[other]]) == int(order[one]):
                edges.setdefault(other, []).append(row)
                continue
            while one != other:
                around.add(max(one, other))
                one, other = sorted((one, place[int(above[order[max(one, other)]])]))
        for low, over in edges.items():
            size = int(below[low])
            if low not in around and len(over) == 1 and least <= size <= len(order) - least:
                part = order[low : low + size].astype(np.int64)
                small = part if 2 * size <= len(order) else np.setdiff1d(order, part)
                found.append((over[0], small))
    return found


def against(frozen: Floats, answers: Answers, known: Relations, settled: Set[Pair] = frozenset()) -> Pairs:
    """Answers that the frozen features speak against, which nothing said can talk into anything, the
    strangest first: that two parts of a group are similar which hardly any neighbours have in common (of each
    group one), and that two groups are not which have many. The larger the part is the more is at stake, so
    the sooner it is asked. What is settled is let alone."""
    if not len(answers):
        return Pairs.none()
    members, pairs = known.members, list(answers.pairs)
    ranking = nearest(frozen, members, np.asarray(frozen[members]), NEAR)
    group = known.group[answers.pairs.a], known.group[answers.pairs.b]

    def votes(part: Ids, other: int) -> float:
        """Of the nearest to each of a part that do not belong to it, the share that is of a group; nan
        where there are none."""
        near = ranking.ids[np.searchsorted(members, part)]
        outside = ~np.isin(near, part)
        counted = outside & (np.cumsum(outside, axis=1) <= VOTES)
        return float((known.group[near] == other)[counted].mean()) if counted.any() else math.nan

    strange: dict[int, tuple[float, int]] = {}  # of each group the strangest
    for row, part in bridges(answers, known):
        own, limit = int(group[0][row]), 0.1 * math.log2(len(part))
        share = votes(part, own)
        if share < limit and pairs[row] not in settled:
            strange[own] = min(strange.get(own, (math.inf, 0)), (share / limit, row))
    found = list(strange.values())
    apart = np.flatnonzero(known.of(answers.pairs) == Verdict.DISSIMILAR)  # not what is contradicted
    links = np.sort(np.column_stack(group)[apart], axis=1)
    _, first, count = np.unique(links, axis=0, return_index=True, return_counts=True)
    for row in apart[np.sort(first[count == 1])].tolist():
        small, large = sorted((int(group[0][row]), int(group[1][row])), key=lambda g: (known.sizes[g], g))
        part = members[known.group[members] == small]
        limit = min(0.5 + 0.1 * math.log2(len(part)), 0.9)
        share = 1 - votes(part, large)
        if share <= limit and pairs[row] not in settled:
            found.append((share / limit, row))
    return answers.pairs[np.array([row for _, row in sorted(found)], dtype=np.int64)]


def paying(asked: int, slipped: int) -> float:
    """How much of the asking again is to go on where so many answers have been asked again and so many were
    slips: all of it at first and while it pays, then less and less, but never nothing."""
    return min((slipped + 1) / (asked * PAYING + 1), 1)
