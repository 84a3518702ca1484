"""Placing: an image is asked beside the groups it may belong to, the likeliest first, until one takes it in.

The answers' closure forms groups. A new image is put beside the nearest member of the most similar group,
then of the next, and after ``TRIES`` refusals it is a group of its own. Where the space is any good the first
guess is mostly right, so an image costs little more than one answer and then stands to every member of every
group as its group does: a similar answer implies the most. Which images to place is decided once a round
(``order``), which group to try after every answer (``place``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from anneal.diversity import best_per_cluster
from anneal.index import nearest, unit
from anneal.mining import cosine, mine
from anneal.pairs import Floats, Ids, Pairs, Verdict
from anneal.snapshot import Snapshot
from anneal.transitivity import Relations

Pair = tuple[int, int]
TRIES = 6  # groups that an image is asked beside before it founds one
CENTRES = 160  # typical images with which a campaign begins
NEIGHBOURS = 10  # in the graph over which doubt is spread
GROWN = 8  # images that groups have on average before they are joined: until then an image teaches more
JOIN = 0.2  # of the questions would join two groups from then on, while any are close enough
CLOSE = 0.02  # the quantile of the similarity between an image and its group's middle, from which on they are


def order(snapshot: Snapshot, n: int, rng: np.random.Generator) -> Ids:
    """The images to be placed next, the most wanted first: typical ones while nothing is known, then those
    whose group is most doubtful, one of each cluster."""
    known, images = snapshot.known, np.unique(snapshot.images)
    left = rng.permutation(images[known.sizes[known.group[images]] == 1])  # the generator breaks ties
    if len(left) < 3:
        return left
    if not np.isin(known.members, images).any():
        typical = _density(snapshot.vectors, left)
        first = left[best_per_cluster(snapshot.vectors[left], typical, min(CENTRES, n, len(left)), rng)]
    else:
        doubt = _doubt(snapshot, images)[np.searchsorted(images, left)]
        likely = np.argsort(-doubt, kind="stable")[: 4 * n]
        rows = best_per_cluster(snapshot.vectors[left[likely]], doubt[likely], min(n, len(likely)), rng)
        picked = likely[rows]
        first = left[picked[np.argsort(-doubt[picked], kind="stable")]]
    return np.concatenate([first, left[~np.isin(left, first)]])


def _density(vectors: Floats, images: Ids) -> Floats:
    """How close an image is to its neighbours: high for typical ones."""
    k = min(NEIGHBOURS + 1, len(images))
    found: Floats = nearest(vectors, images, np.asarray(vectors[images]), k).scores[:, 1:].mean(axis=1)
    return found


def _doubt(snapshot: Snapshot, images: Ids, steps: int = 20, keep: float = 0.9) -> Floats:
    """Entropy of the group of each image, spread from those that have one over the graph of neighbours:
    F ← keep · S F + (1 − keep) · Y, S the symmetrically normalised graph, Y the groups known."""
    known, vectors = snapshot.known, snapshot.vectors
    k = min(NEIGHBOURS + 1, len(images))
    ranking = nearest(vectors, images, np.asarray(vectors[images]), k)
    rows = np.repeat(np.arange(len(images)), k)
    columns = np.searchsorted(images, ranking.ids.ravel())
    weight = np.maximum(ranking.scores.ravel(), 0) ** 3
    graph = coo_array((weight * (rows != columns), (rows, columns)), shape=(len(images), len(images)))
    graph = csr_array(graph).maximum(csr_array(graph).T)
    scale = 1 / np.sqrt(np.maximum(np.asarray(graph.sum(axis=1)).ravel(), 1e-9))
    graph = csr_array(graph.multiply(scale[:, None]).multiply(scale[None, :]))
    touched = np.flatnonzero(np.isin(images, known.members))
    _, group = np.unique(known.group[images[touched]], return_inverse=True)
    start = np.zeros((len(images), int(group.max()) + 1), dtype=np.float32)
    start[touched, group] = 1 / np.sqrt(np.bincount(group))[group]  # a large group must not swallow all
    spread = start
    for _ in range(steps):
        spread = keep * (graph @ spread) + (1 - keep) * start
    share = spread / np.maximum(spread.sum(axis=1, keepdims=True), 1e-12)
    entropy: Floats = -(share * np.log(np.maximum(share, 1e-12))).sum(axis=1)
    entropy[spread.sum(axis=1) < 1e-9] = np.log(start.shape[1])  # nothing reached it
    return entropy


def place(snapshot: Snapshot, n: int, rng: np.random.Generator) -> Pairs:
    """The next n questions, as far as the answers so far decide them: one for each image that is to be
    placed, some that would join two groups; when all images have a place, the most similar open pairs."""
    known = snapshot.known
    wanted = order(snapshot, max(n, CENTRES), rng) if snapshot.order is None else snapshot.order
    members = known.members[np.isin(known.members, snapshot.images)]
    members = rng.permutation(members)  # the generator breaks ties
    if not len(members):
        members = wanted[:1]  # the first founds a group
    there = np.zeros(known.links.shape[0], dtype=bool)
    there[known.group[members]] = True
    joining: Iterator[Pair] | None = None
    found: dict[Pair, None] = {}
    for x in map(int, wanted):  # mostly a few of very many
        if len(found) >= n:
            break
        pair = None
        if rng.random() < JOIN:
            joining = iter(_joining(snapshot, members, n)) if joining is None else joining
            pair = next(joining, None)
        if pair is None and known.sizes[known.group[x]] == 1:
            pair = _next_group(snapshot, x, members, there)
        if pair is not None:
            found[pair] = None
    placed = Pairs.of([a for a, _ in found], [b for _, b in found])
    if len(placed) == n:
        return placed
    mined = mine(snapshot.images, cosine(snapshot.vectors), known, n, rng).pairs
    fresh = mined[np.array([pair not in found for pair in mined], dtype=bool)]
    return placed.then(fresh[: n - len(placed)])


def _joining(snapshot: Snapshot, members: Ids, n: int) -> list[Pair]:
    """Questions that would join two groups: those whose middles are nearest and of which nothing is known,
    each by its two nearest members."""
    known, vectors = snapshot.known, snapshot.vectors
    large = members[known.sizes[known.group[members]] > 1]
    names, group = np.unique(known.group[large], return_inverse=True)
    if len(names) < 2 or len(large) < GROWN * len(names):
        return []
    placed = vectors[large]
    one_of = csr_array((np.ones(len(large), np.float32), (group, np.arange(len(large)))))
    middles = np.asarray(one_of @ placed)
    first = large[np.unique(group, return_index=True)[1]]  # one of each, to look up what is known
    s = unit(middles) @ unit(middles).T
    own = np.einsum("md,md->m", placed, unit(middles)[group])
    s[(known.among(first, first) != 0) | np.tri(len(names), dtype=bool)] = -np.inf
    found = []
    for flat in np.argsort(-s, axis=None, kind="stable")[:n].tolist():
        i, j = divmod(flat, len(names))
        if s[i, j] < np.quantile(own, CLOSE):
            break  # from here on two groups are farther apart than an image and its own
        one, other = large[group == i], large[group == j]
        at = int(np.argmax(vectors[one] @ vectors[other].T))
        a, b = int(one[at // len(other)]), int(other[at % len(other)])
        found.append((min(a, b), max(a, b)))
    return found


def _next_group(snapshot: Snapshot, x: int, members: Ids, there: NDArray[np.bool_]) -> Pair | None:
    """Image x beside the nearest member of the likeliest group it has not been tried with; None once it
    has been tried with enough. The groups that are ``there`` are those of the members."""
    known = snapshot.known
    own = known.group[x]
    links = slice(known.links.indptr[own], known.links.indptr[own + 1])
    refused = there[known.links.indices[links]] & (known.links.data[links] == Verdict.DISSIMILAR)
    if refused.sum() >= min(TRIES, there.sum() - there[own]):
        return None
    verdicts = known.among(np.array([x]), members)[0]
    open_ = members[(verdicts == 0) & (members != x)]
    if not len(open_):
        return None
    other = int(open_[np.argmax(snapshot.vectors[open_] @ snapshot.vectors[x])])
    return (x, other) if x < other else (other, x)


def busy(known: Relations, order: Ids, asked: Pairs) -> tuple[Ids, int]:
    """The images that these questions place, and how many of them place none but would join two groups. Of
    a pair it is the image nothing is known of; where something is of both, whichever is alone."""
    ids = np.column_stack([asked.a, asked.b])
    founders = known.members if len(known.members) else order[:1]
    new = ~np.isin(ids, founders)
    placed = np.where(new.any(axis=1, keepdims=True), new, known.sizes[known.group[ids]] == 1)
    return np.unique(ids[placed]), int((~placed.any(axis=1)).sum())
