"""What the answers imply about other pairs, and where they contradict each other.

    similar + similar → similar;  similar + dissimilar → dissimilar;  dissimilar + dissimilar → nothing

Three readings of it, by name in ``CLOSURES``: ``none`` keeps the answers alone; ``single`` takes one
step and never chains from an implied pair (the paper's); ``full`` takes every step there is.

However many pairs are implied, none is ever listed. Relations are held as groups of images that
are all similar to each other, and links between groups: with ``full`` a group is a connected
component of the similar answers, with ``none`` and ``single`` every image is a group of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from anneal.pairs import UNKNOWN, Answers, Ids, Pairs, Verdict


@dataclass(frozen=True)
class Relations:
    """Everything known about the pairs of n images; ``among`` and ``of`` look it up.

    ``links`` holds SIMILAR or DISSIMILAR between two groups, ``aside`` marks single pairs that are
    settled neither way and still not to be asked: unsure ones, and contradicted ones.
    """

    group: Ids  # (n,) the group of each image
    links: csr_array  # (groups, groups) int8, symmetric
    aside: csr_array  # (n, n) int8, symmetric, UNSURE where set

    def __len__(self) -> int:
        return len(self.group)

    def among(self, rows: Ids, columns: Ids) -> NDArray[np.int8]:
        """(|rows|, |columns|) verdicts; 0 where nothing is known. An image is similar to itself."""
        g, h = self.group[rows], self.group[columns]
        found: NDArray[np.int8] = self.links[g][:, h].toarray()
        found[g[:, None] == h[None, :]] = Verdict.SIMILAR
        if self.aside.nnz:
            aside = self.aside[rows][:, columns].toarray()
            np.copyto(found, aside, where=found == UNKNOWN)
        return found

    def of(self, pairs: Pairs) -> NDArray[np.int8]:
        """The verdict known for each pair; 0 where nothing is."""
        g, h = self.group[pairs.a], self.group[pairs.b]
        if not len(pairs):
            return np.empty(0, dtype=np.int8)
        found = np.asarray(self.links[g, h], dtype=np.int8).ravel()
        found[g == h] = Verdict.SIMILAR
        aside = np.asarray(self.aside[pairs.a, pairs.b], dtype=np.int8).ravel()
        return np.where(found == UNKNOWN, aside, found)

    @cached_property
    def sizes(self) -> Ids:
        """How many images each group has."""
        return np.bincount(self.group, minlength=self.links.shape[0]).astype(np.int64)

    @cached_property
    def members(self) -> Ids:
        """The images of which something is known: what can be trained on."""
        linked = np.diff(self.links.indptr) > 0
        return np.flatnonzero((self.sizes[self.group] > 1) | linked[self.group])

    def count(self, verdict: Verdict) -> int:
        """How many pairs are known to be so, answered and implied together."""
        link = coo_array(self.links)
        upper = (link.row < link.col) & (link.data == verdict)
        count = int((self.sizes[link.row[upper]] * self.sizes[link.col[upper]]).sum())
        if verdict == Verdict.SIMILAR:
            count += int((self.sizes * (self.sizes - 1) // 2).sum())
        return count

    def implied(self, answers: Answers) -> int:
        """How many pairs are known to be similar or dissimilar that these answers did not judge."""
        asked = np.unique(answers.pairs.a * len(self) + answers.pairs.b)
        verdicts = self.of(Pairs.of(asked // len(self), asked % len(self)))
        settled = (Verdict.SIMILAR, Verdict.DISSIMILAR)
        return sum(self.count(verdict) - int((verdicts == verdict).sum()) for verdict in settled)

    def partner(self, ids: Ids, verdict: Verdict, rng: np.random.Generator) -> Ids:
        """For each image another one that is known to be so to it, drawn at random; itself if none."""
        by_group, start = self._members_by_group
        groups, partner = self.group[ids], ids.copy()
        if verdict == Verdict.SIMILAR:
            size, rank = self.sizes[groups], self._rank_in_group[ids]
            shift = rng.integers(1, np.maximum(size, 2))  # 1 … size-1: never back to the image itself
            partner = by_group[start[groups] + (rank + shift) % size]
        degree, first, target = self._linked(verdict)
        pick = first[groups] + rng.integers(0, np.maximum(degree[groups], 1))
        alone = (partner == ids) & (degree[groups] > 0)
        other = target[pick[alone]]
        partner[alone] = by_group[start[other] + rng.integers(0, self.sizes[other])]
        return partner

    @cached_property
    def _members_by_group(self) -> tuple[Ids, Ids]:
        order = np.argsort(self.group, kind="stable")
        return order, np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    @cached_property
    def _rank_in_group(self) -> Ids:
        order, start = self._members_by_group
        rank = np.empty(len(self), dtype=np.int64)
        rank[order] = np.arange(len(self)) - start[self.group[order]]
        return rank

    @cached_property
    def _links_by_verdict(self) -> dict[Verdict, csr_array]:
        return {verdict: csr_array(self.links == verdict) for verdict in Verdict}

    def _linked(self, verdict: Verdict) -> tuple[Ids, Ids, Ids]:
        """Of each group: how many groups are so to it, and where they begin in the third array."""
        found = self._links_by_verdict[verdict]
        return np.diff(found.indptr), found.indptr[:-1], found.indices


@dataclass(frozen=True)
class Contradiction:
    """Rows of the answers that cannot all be true: the shortest such set that was found."""

    rows: tuple[int, ...]


@dataclass(frozen=True)
class Closure:
    """What follows from the answers. What contradicts each other implies nothing until somebody settles
    it."""

    relations: Relations
    contradictions: tuple[Contradiction, ...]


def none(n: int, answers: Answers) -> Closure:
    """The answers and nothing more."""
    similar, dissimilar = _settled(n, answers)
    both = _edges(similar.multiply(dissimilar))
    found = {_both(answers, a, b) for a, b in both}
    return Closure(_explicit(n, answers, similar, dissimilar, both), _contradictions(found))


def single(n: int, answers: Answers) -> Closure:
    """One step from the answers, never from an implied pair.

    S and D being the 0/1 matrices of the answers, the implied pairs are those of S·S and S·D + D·S.
    """
    similar, dissimilar = _settled(n, answers)
    step, across = _step(similar, dissimilar)
    answered = (similar + dissimilar).astype(bool)
    both = _edges(similar.multiply(dissimilar))
    contested = _edges(_without(step, answered).multiply(across))
    found = {_both(answers, a, b) for a, b in both}
    for a, b in _edges(dissimilar.multiply(step)):  # every contradictory triangle has such a side
        apart = _row(answers, a, b, Verdict.DISSIMILAR)
        found.add(_path(answers, similar, a, b) | {apart})
    for a, b in contested:
        over = _middle(similar, dissimilar, a, b)
        one, other = (a, b) if over is not None else (b, a)
        over = _middle(similar, dissimilar, one, other)
        assert over is not None  # `across` says that one of the two ways round exists
        near = _row(answers, one, over, Verdict.SIMILAR)
        far = _row(answers, over, other, Verdict.DISSIMILAR)
        found.add(_path(answers, similar, a, b) | {near, far})
    if found:  # what a contradiction touches implies nothing, however often it was said
        step, across = _step(*_settled(n, answers.unsure({row for rows in found for row in rows})))
    near, far = similar + _without(step, answered), dissimilar + _without(across, answered)
    return Closure(_explicit(n, answers, near, far, contested.then(both)), _contradictions(found))


def full(n: int, answers: Answers) -> Closure:
    """Every step: groups are the connected components of the similar answers, and a dissimilar
    answer parts two whole groups. A dissimilar answer *inside* a component contradicts the path of
    similar answers between its two images: all of these count as unsure."""
    similar, _ = _settled(n, answers)
    _, component = connected_components(similar, directed=False)
    rows = np.flatnonzero(answers.verdicts == Verdict.DISSIMILAR)
    rows = rows[component[answers.pairs.a[rows]] == component[answers.pairs.b[rows]]]
    inside = zip(rows.tolist(), answers.pairs[rows], strict=True)
    found = {frozenset([row]) | _path(answers, similar, a, b) for row, (a, b) in inside}
    if found:
        answers = answers.unsure({row for one in found for row in one})
        _, component = connected_components(_settled(n, answers)[0], directed=False)
    group, apart = component.astype(np.int64), answers.given(Verdict.DISSIMILAR)
    groups = int(group.max(initial=-1)) + 1
    links = _symmetric(groups, group[apart.a], group[apart.b], Verdict.DISSIMILAR)
    aside = answers.given(Verdict.UNSURE)
    relations = Relations(group, links, _symmetric(n, aside.a, aside.b, Verdict.UNSURE))
    return Closure(relations, _contradictions(found))


CLOSURES: dict[str, Callable[[int, Answers], Closure]] = {
    "none": none,
    "single": single,
    "full": full,
}


def _symmetric(n: int, a: Ids, b: Ids, value: int = 1) -> csr_array:
    """(n, n) int8 matrix that is ``value`` at (a, b) and (b, a), however often a pair is given."""
    i, j = np.concatenate([a, b]), np.concatenate([b, a])
    matrix = csr_array((np.ones(len(i), dtype=np.int32), (i, j)), shape=(n, n))
    matrix.sum_duplicates()
    matrix.data = np.full(matrix.nnz, value, dtype=np.int8)
    return matrix


def _settled(n: int, answers: Answers) -> tuple[csr_array, csr_array]:
    """The similar and the dissimilar answers as 0/1 matrices."""
    similar, dissimilar = answers.given(Verdict.SIMILAR), answers.given(Verdict.DISSIMILAR)
    return _symmetric(n, similar.a, similar.b), _symmetric(n, dissimilar.a, dissimilar.b)


def _step(similar: csr_array, dissimilar: csr_array) -> tuple[csr_array, csr_array]:
    """The pairs one step away, S·S and S·D + D·S, as booleans."""
    s, d = similar.astype(np.int32), dissimilar.astype(np.int32)  # int8 counts would wrap round
    return (s @ s).astype(bool), (s @ d + d @ s).astype(bool)


def _edges(matrix: csr_array) -> Pairs:
    """The pairs at which a symmetric matrix is not zero."""
    found = coo_array(matrix)
    upper = (found.row < found.col) & (found.data != 0)
    return Pairs.of(found.row[upper], found.col[upper])


def _without(matrix: csr_array, mask: csr_array) -> csr_array:
    """The matrix, 0/1, with nothing where the mask is set nor on the diagonal."""
    pairs = _edges(csr_array(matrix.astype(np.int8) - matrix.multiply(mask).astype(np.int8)))
    return _symmetric(matrix.shape[0], pairs.a, pairs.b)


def _link(groups: int, similar: csr_array, dissimilar: csr_array, aside: Pairs) -> csr_array:
    """One matrix of verdicts out of two of 0/1, nothing where a pair is set aside."""
    hidden = _symmetric(groups, aside.a, aside.b)
    near, far = _without(similar, hidden), _without(dissimilar, hidden)  # now disjoint
    links = csr_array(near * int(Verdict.SIMILAR) + far * int(Verdict.DISSIMILAR))
    return links.astype(np.int8)


def _explicit(
    n: int, answers: Answers, similar: csr_array, dissimilar: csr_array, contested: Pairs
) -> Relations:
    """Relations in which every image is a group of its own."""
    aside = answers.given(Verdict.UNSURE).then(contested)
    return Relations(
        np.arange(n, dtype=np.int64),
        _link(n, similar, dissimilar, contested),
        _symmetric(n, aside.a, aside.b, Verdict.UNSURE),
    )


def _row(answers: Answers, a: int, b: int, verdict: Verdict) -> int:
    """The first row that gives this verdict on this pair."""
    here = (answers.pairs.a == min(a, b)) & (answers.pairs.b == max(a, b))
    return int(np.flatnonzero(here & (answers.verdicts == verdict))[0])


def _both(answers: Answers, a: int, b: int) -> frozenset[int]:
    """The two rows that give opposite verdicts on one pair."""
    return frozenset(_row(answers, a, b, v) for v in (Verdict.SIMILAR, Verdict.DISSIMILAR))


def _middle(first: csr_array, second: csr_array, a: int, b: int) -> int | None:
    """An image that ``first`` joins to a and ``second`` to b."""
    from_a = first.indices[first.indptr[a] : first.indptr[a + 1]]
    from_b = second.indices[second.indptr[b] : second.indptr[b + 1]]
    middle = np.intersect1d(from_a, from_b)
    return int(middle[0]) if len(middle) else None


def _path(answers: Answers, similar: csr_array, a: int, b: int) -> frozenset[int]:
    """The similar answers on a shortest path from a to b."""
    _, before = breadth_first_order(similar, a, directed=False, return_predecessors=True)
    rows = []
    while b != a:
        rows.append(_row(answers, int(before[b]), b, Verdict.SIMILAR))
        b = int(before[b])
    return frozenset(rows)


def _contradictions(found: set[frozenset[int]]) -> tuple[Contradiction, ...]:
    return tuple(Contradiction(rows) for rows in sorted(tuple(sorted(rows)) for rows in found))
