"""What the answers imply about other pairs, and where they contradict each other.

    similar + similar → similar;  similar + dissimilar → dissimilar;  dissimilar + dissimilar → nothing

There are three closures, by name in ``CLOSURES``. ``none`` keeps the answers alone. ``single`` takes one
step and never chains from an implied pair, as in the paper. ``full`` takes every step. Implied pairs are
never listed one by one: relations are groups of images that are all similar, and links between groups.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from anneal.pairs import UNKNOWN, Answers, Ids, Pairs, Verdict

REPEATED = -1  # in `Relations.blocks`: a pair that comes elsewhere, or an image with itself


class Known(Protocol):
    """What is known about the pairs of n images, as strategies ask for it: ``Relations``, or a closure that
    grows with the answers (``growing``). A group is named by its smallest image."""

    def __len__(self) -> int: ...

    @property
    def group(self) -> Ids: ...

    @property
    def sizes(self) -> Ids: ...

    @property
    def members(self) -> Ids: ...

    def of(self, pairs: Pairs) -> NDArray[np.int8]: ...

    def among(self, rows: Ids, columns: Ids) -> NDArray[np.int8]: ...

    def blocks(self, images: Ids, size: int) -> Iterator[tuple[Ids, Ids, NDArray[np.int8]]]: ...

    def has_relations(self, images: Ids) -> NDArray[np.bool_]: ...

    def count_groups(self, most: int) -> int: ...

    def linked_to(self, image: int) -> tuple[Ids, NDArray[np.int8]]: ...

    def set_aside_with(self, image: int) -> Ids: ...


@dataclass(frozen=True)
class Relations:
    """All that is known about the pairs of n images. ``among`` and ``of`` look pairs up."""

    group: Ids  # (n,) the group of each image: its smallest image
    links: csr_array  # (n, n) int8, symmetric: SIMILAR or DISSIMILAR between two groups
    set_aside: csr_array  # (n, n) int8, symmetric: UNSURE where a pair is unsure or contradicted

    def __len__(self) -> int:
        return len(self.group)

    def among(self, rows: Ids, columns: Ids) -> NDArray[np.int8]:
        """(|rows|, |columns|) verdicts; 0 where nothing is known. An image is similar to itself."""
        row_groups = self.group[rows]
        column_groups = self.group[columns]
        verdicts: NDArray[np.int8] = self.links[row_groups][:, column_groups].toarray()
        verdicts[row_groups[:, None] == column_groups[None, :]] = Verdict.SIMILAR
        if self.set_aside.nnz:
            set_aside = self.set_aside[rows][:, columns].toarray()
            np.copyto(verdicts, set_aside, where=verdicts == UNKNOWN)
        return verdicts

    def of(self, pairs: Pairs) -> NDArray[np.int8]:
        """The verdict of each pair; 0 where nothing is known."""
        if not len(pairs):
            return np.empty(0, dtype=np.int8)
        group_a = self.group[pairs.a]
        group_b = self.group[pairs.b]
        verdicts = np.asarray(self.links[group_a, group_b], dtype=np.int8).ravel()
        verdicts[group_a == group_b] = Verdict.SIMILAR
        set_aside = np.asarray(self.set_aside[pairs.a, pairs.b], dtype=np.int8).ravel()
        return np.where(verdicts == UNKNOWN, set_aside, verdicts)

    def blocks(self, images: Ids, size: int) -> Iterator[tuple[Ids, Ids, NDArray[np.int8]]]:
        """Every pair of the distinct ``images`` once, in blocks: rows, columns, and their verdicts. On the
        diagonal and in the lower half of a block on the diagonal the verdict is REPEATED."""
        for i in range(0, len(images), size):
            rows = images[i : i + size]
            for j in range(i, len(images), size):
                columns = images[j : j + size]
                verdicts = self.among(rows, columns)
                if i == j:
                    verdicts[np.tri(len(rows), dtype=bool)] = REPEATED
                yield rows, columns, verdicts

    @cached_property
    def sizes(self) -> Ids:
        """(n,) the number of images in the group of each name; 0 where an image names none."""
        return np.bincount(self.group, minlength=len(self)).astype(np.int64)

    @cached_property
    def members(self) -> Ids:
        """The images with at least one similar or dissimilar pair: what can be trained on."""
        return np.flatnonzero(self.has_relations(np.arange(len(self))))

    def has_relations(self, images: Ids) -> NDArray[np.bool_]:
        """Whether each image has at least one similar or dissimilar pair."""
        group = self.group[images]
        linked = self.links.indptr[group + 1] > self.links.indptr[group]
        return np.asarray((self.sizes[group] > 1) | linked)

    def count_groups(self, most: int) -> int:
        """The number of groups that have a similar or dissimilar pair; counting ends at ``most``."""
        return min(len(np.unique(self.group[self.members])), most)

    def linked_to(self, image: int) -> tuple[Ids, NDArray[np.int8]]:
        """The groups that the image's group is linked to, and the verdict of each link."""
        links = self.links[[int(self.group[image])]]
        return np.asarray(links.indices, dtype=np.int64), links.data

    def set_aside_with(self, image: int) -> Ids:
        """The images whose pair with this one is unsure or contradicted."""
        return np.asarray(self.set_aside[[image]].indices, dtype=np.int64)

    def without(self, images: Ids) -> Self:
        """What would be known if nobody had spoken of these images: a group keeps its other members and its
        links. Unsure pairs are left out."""
        others = np.setdiff1d(np.arange(len(self)), images)
        named = np.full(len(self), -1, dtype=np.int64)  # the new name of each group, −1 if nobody is left
        named[self.group[others[::-1]]] = others[::-1]  # the smallest comes last, and stays
        group = np.arange(len(self))
        group[others] = named[self.group[others]]
        links = coo_array(self.links)
        rows = named[links.row]
        columns = named[links.col]
        left = (rows >= 0) & (columns >= 0)
        kept = coo_array((links.data[left], (rows[left], columns[left])), shape=links.shape)
        return replace(
            self, group=group, links=csr_array(kept), set_aside=csr_array(links.shape, dtype=np.int8)
        )

    def unlinked(self, groups: Sequence[tuple[int, int]]) -> Self:
        """What would be known if no answer had related these linked groups, two by two."""
        pairs = Pairs.from_list(groups)
        links = self.links.copy()
        links[pairs.a, pairs.b] = 0
        links[pairs.b, pairs.a] = 0
        links.eliminate_zeros()
        return replace(self, links=links)

    def count(self, verdict: Verdict) -> int:
        """The number of pairs with this verdict, answered and implied together."""
        linked = _edges(self._links_by_verdict[verdict])
        count = int((self.sizes[linked.a] * self.sizes[linked.b]).sum())
        if verdict == Verdict.SIMILAR:
            count += int((self.sizes * (self.sizes - 1) // 2).sum())
        return count

    def implied(self, answers: Answers) -> int:
        """The number of pairs known to be similar or dissimilar that these answers did not ask about."""
        asked = np.unique(answers.pairs.a * len(self) + answers.pairs.b)
        verdicts = self.of(Pairs.of(asked // len(self), asked % len(self)))
        settled = (Verdict.SIMILAR, Verdict.DISSIMILAR)
        return sum(self.count(verdict) - int((verdicts == verdict).sum()) for verdict in settled)

    def partner(self, ids: Ids, verdict: Verdict, rng: np.random.Generator) -> Ids:
        """For each image a random other image that has this verdict with it; the image itself if none."""
        by_group, start, rank = self._by_group
        groups = self.group[ids]
        partner = ids.copy()
        if verdict == Verdict.SIMILAR:
            size = self.sizes[groups]
            shift = rng.integers(1, np.maximum(size, 2))  # 1 … size-1: never back to the image itself
            partner = by_group[start[groups] + (rank[ids] + shift) % size]
        links = self._links_by_verdict[verdict]
        degree = np.diff(links.indptr)[groups]
        pick = links.indptr[groups] + rng.integers(0, np.maximum(degree, 1))
        alone = (partner == ids) & (degree > 0)
        linked = links.indices[pick[alone]]
        partner[alone] = by_group[start[linked] + rng.integers(0, self.sizes[linked])]
        return partner

    @cached_property
    def _by_group(self) -> tuple[Ids, Ids, Ids]:
        """The images ordered by group, where each group starts there, and each image's rank in its group."""
        order = np.argsort(self.group, kind="stable")
        start = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        rank = np.empty(len(self), dtype=np.int64)
        rank[order] = np.arange(len(self)) - start[self.group[order]]
        return order, start, rank

    @cached_property
    def _links_by_verdict(self) -> dict[Verdict, csr_array]:
        return {verdict: csr_array(self.links == verdict) for verdict in Verdict}


@dataclass(frozen=True)
class Closure:
    """What follows from the answers. Those that contradict each other imply nothing until corrected."""

    relations: Relations
    contradictions: tuple[tuple[int, ...], ...]  # rows of answers that cannot all be true


def none(n: int, answers: Answers) -> Closure:
    """The answers and nothing more."""
    similar, dissimilar = _settled(n, answers)
    opposed = _edges(similar.multiply(dissimilar))
    conflicts = {_loop(answers, similar, a, b) for a, b in opposed}
    return Closure(_ungrouped(answers, similar, dissimilar, opposed), _contradictions(conflicts))


def single(n: int, answers: Answers) -> Closure:
    """One step from the answers. With S and D the 0/1 matrices of the answers, the implied pairs are those of
    S·S and S·D + D·S that have no answer. A pair that is in both is set aside."""
    similar, dissimilar = _settled(n, answers)
    answered = (similar + dissimilar).astype(bool)
    implied_similar, implied_dissimilar = _one_step(similar, dissimilar)

    opposed = _edges(similar.multiply(dissimilar))  # answered both ways
    triangles = _edges(dissimilar.multiply(implied_similar))  # answered one way, implied the other
    contested = _edges(_without(implied_similar, answered).multiply(implied_dissimilar))  # implied both ways
    conflicts = {_loop(answers, similar, a, b) for a, b in opposed.then(triangles)}
    for a, b in contested:
        conflicts.add(_path(answers, similar, a, b) | _detour(answers, similar, dissimilar, a, b))

    if conflicts:  # an answer in a conflict implies nothing
        consistent = answers.unsure(set().union(*conflicts))
        implied_similar, implied_dissimilar = _one_step(*_settled(n, consistent))
    similar = similar + _without(implied_similar, answered)
    dissimilar = dissimilar + _without(implied_dissimilar, answered)
    relations = _ungrouped(answers, similar, dissimilar, contested.then(opposed))
    return Closure(relations, _contradictions(conflicts))


def full(n: int, answers: Answers) -> Closure:
    """Every step. The groups are the connected components of the similar answers, and a dissimilar answer
    separates two whole groups. *Inside* a component it contradicts the similar answers on a shortest path
    between its two images. All of these then count as unsure."""
    similar = symmetric(n, answers.given(Verdict.SIMILAR))
    _, component = connected_components(similar, directed=False)
    _, smallest = np.unique(component, return_index=True)
    group = np.asarray(smallest[component], dtype=np.int64)
    inside = (answers.verdicts == Verdict.DISSIMILAR) & (group[answers.pairs.a] == group[answers.pairs.b])
    rows = np.flatnonzero(inside)
    conflicts = set()
    for row, (a, b) in zip(rows.tolist(), answers.pairs[rows], strict=True):
        conflicts.add(_path(answers, similar, a, b) | {row})

    if conflicts:
        consistent = full(n, answers.unsure(set().union(*conflicts)))  # nothing is left to contradict
        return Closure(consistent.relations, _contradictions(conflicts))
    separated = answers.given(Verdict.DISSIMILAR)
    group_pairs = Pairs.of(group[separated.a], group[separated.b])
    links = symmetric(n, group_pairs, Verdict.DISSIMILAR)
    set_aside = symmetric(n, answers.given(Verdict.UNSURE), Verdict.UNSURE)
    return Closure(Relations(group, links, set_aside), ())


CLOSURES: dict[str, Callable[[int, Answers], Closure]] = {"none": none, "single": single, "full": full}


def symmetric(n: int, pairs: Pairs, value: int = 1) -> csr_array:
    """(n, n) int8 matrix that is ``value`` at each pair, both ways. A pair may come more than once."""
    i = np.concatenate([pairs.a, pairs.b])
    j = np.concatenate([pairs.b, pairs.a])
    matrix = csr_array((np.ones(len(i), dtype=np.int32), (i, j)), shape=(n, n))
    matrix.sum_duplicates()
    matrix.data = np.full(matrix.nnz, value, dtype=np.int8)
    return matrix


def _settled(n: int, answers: Answers) -> tuple[csr_array, csr_array]:
    """The similar and the dissimilar answers as 0/1 matrices."""
    similar = symmetric(n, answers.given(Verdict.SIMILAR))
    return similar, symmetric(n, answers.given(Verdict.DISSIMILAR))


def _one_step(similar: csr_array, dissimilar: csr_array) -> tuple[csr_array, csr_array]:
    """The pairs one step away, S·S and S·D + D·S, as booleans."""
    s = similar.astype(np.int32)  # counts in int8 would overflow
    d = dissimilar.astype(np.int32)
    return (s @ s).astype(bool), (s @ d + d @ s).astype(bool)


def _edges(matrix: csr_array) -> Pairs:
    """The pairs where a symmetric matrix is not zero."""
    entries = coo_array(matrix)
    upper = (entries.row < entries.col) & (entries.data != 0)
    return Pairs.of(entries.row[upper], entries.col[upper])


def _without(matrix: csr_array, mask: csr_array) -> csr_array:
    """The matrix as 0/1, with 0 where the mask is set and on the diagonal."""
    rest = matrix.astype(np.int8) - matrix.multiply(mask).astype(np.int8)
    return symmetric(matrix.shape[0], _edges(csr_array(rest)))


def _ungrouped(answers: Answers, similar: csr_array, dissimilar: csr_array, contradicted: Pairs) -> Relations:
    """Relations in which each image is its own group. The contradicted pairs are set aside."""
    n = similar.shape[0]
    hidden = symmetric(n, contradicted)
    links = _without(similar, hidden) * int(Verdict.SIMILAR)
    links = links + _without(dissimilar, hidden) * int(Verdict.DISSIMILAR)  # no pair is in both
    set_aside = symmetric(n, answers.given(Verdict.UNSURE).then(contradicted), Verdict.UNSURE)
    return Relations(np.arange(n, dtype=np.int64), csr_array(links).astype(np.int8), set_aside)


def _row(answers: Answers, a: int, b: int, verdict: Verdict) -> int:
    """The first row that gives this verdict on this pair."""
    same_pair = (answers.pairs.a == min(a, b)) & (answers.pairs.b == max(a, b))
    return int(np.flatnonzero(same_pair & (answers.verdicts == verdict))[0])


def _loop(answers: Answers, similar: csr_array, a: int, b: int) -> frozenset[int]:
    """The rows of a dissimilar answer on a and b, and of the similar answers that connect them."""
    return _path(answers, similar, a, b) | {_row(answers, a, b, Verdict.DISSIMILAR)}


def _path(answers: Answers, similar: csr_array, a: int, b: int) -> frozenset[int]:
    """The rows of the similar answers on a shortest path from a to b."""
    _, before = breadth_first_order(similar, a, directed=False, return_predecessors=True)
    rows = []
    while b != a:
        rows.append(_row(answers, int(before[b]), b, Verdict.SIMILAR))
        b = int(before[b])
    return frozenset(rows)


def _detour(answers: Answers, similar: csr_array, dissimilar: csr_array, a: int, b: int) -> frozenset[int]:
    """The rows of a similar and a dissimilar answer that together imply that a and b are dissimilar."""
    middles = np.intersect1d(similar[[a]].indices, dissimilar[[b]].indices).tolist()
    if not middles:  # the caller knows that there is a way, so it is from b to a
        return _detour(answers, similar, dissimilar, b, a)
    first = _row(answers, a, middles[0], Verdict.SIMILAR)
    return frozenset([first, _row(answers, middles[0], b, Verdict.DISSIMILAR)])


def _contradictions(conflicts: set[frozenset[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(sorted(tuple(sorted(rows)) for rows in conflicts))
