"""Answers that may be slips: asked again before they count.

With the full closure one wrong answer turns into many wrong pairs, so an answer is looked at twice where
it says what the model would hardly have thought, where it joins two groups that are both large, and where
it is part of a contradiction. Two like answers on a pair settle it, and so does a third, which is then that
of the majority; whoever is unsure the second time has settled it too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import depth_first_order
from scipy.special import expit

from anneal.index import nearest
from anneal.mining import pairwise
from anneal.pairs import Answers, Floats, Ids, Pairs, Verdict
from anneal.transitivity import Relations
from anneal.uncertainty import chance_similar

ENOUGH = 30  # answers from which on it is known what the model would have thought
FEW = 2  # images, at least, of each of two parts of a group that one answer holds together
NEAR, VOTES = 64, 5  # nearest images that are looked at, and of which so many say where an image belongs
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
    rows = np.flatnonzero(answers.verdicts == Verdict.SIMILAR)
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


def against(frozen: Floats, answers: Answers, known: Relations) -> Pairs:
    """Answers that the frozen features speak against, which nothing said can talk into anything: that two
    parts of a group are similar which hardly any neighbours have in common, and that two groups are not
    which have many. Each has been said once only."""
    if not len(answers):
        return Pairs.none()
    members = known.members
    ranking = nearest(frozen, members, np.asarray(frozen[members]), NEAR)

    def votes(part: Ids, other: int) -> float:
        """Of the nearest to each of a part that do not belong to it, the share that is of a group."""
        near = ranking.ids[np.searchsorted(members, part)]
        outside = ~np.isin(near, part)
        counted = outside & (np.cumsum(outside, axis=1) <= VOTES)
        return float((known.group[near] == other)[counted].mean()) if counted.any() else 0.5

    group = known.group[answers.pairs.a], known.group[answers.pairs.b]
    held = [(votes(part, int(group[0][row])), row, part) for row, part in bridges(answers, known)]
    strange = [one for one in held if one[0] < 0.1 * np.log2(len(one[2]))]  # the larger, the more is at stake
    rows, taken = [], np.empty(0, dtype=np.int64)
    for _, row, part in sorted(strange, key=lambda one: one[:2]):
        if not np.isin(part, taken).any():  # of parts within each other that which stands out most
            taken = np.concatenate([taken, part])
            rows.append(row)
    apart = np.flatnonzero((answers.verdicts == Verdict.DISSIMILAR) & (group[0] != group[1]))
    links = np.sort(np.column_stack(group)[apart], axis=1)
    _, first, count = np.unique(links, axis=0, return_index=True, return_counts=True)
    for row in apart[np.sort(first[count == 1])].tolist():
        small, large = sorted((int(group[0][row]), int(group[1][row])), key=lambda g: (known.sizes[g], g))
        part = members[known.group[members] == small]
        if votes(part, large) >= max(0.5 - 0.1 * np.log2(len(part)), 0.1):
            rows.append(row)
    return answers.pairs[np.array(rows, dtype=np.int64)]
