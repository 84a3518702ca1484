"""Placing: an image is asked beside the groups it may belong to, the likeliest first, until one takes it in.

The answers' closure forms groups. A new image is put beside the nearest member of the most similar group,
then of the next, and after ``TRIES`` refusals it is a group of its own. Where the space is any good the first
guess is mostly right, so an image costs little more than one answer and then stands to every member of every
group as its group does: a similar answer implies the most. Groups that were founded too soon are joined
later, when it shows that they lay claim to the same images. What to join and which images to place is decided
once a round (``order``), which group to try after every answer (``place``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anneal.method.diversity import best_per_cluster
from anneal.method.groups import NEIGHBOURS, Spread, pool, spread
from anneal.method.mining import cosine, mine
from anneal.method.neighbours import nearest
from anneal.method.relations import Relations
from anneal.method.snapshot import Order, Snapshot
from anneal.pairs import UNKNOWN, Floats, Ids, Pairs, Verdict

Pair = tuple[int, int]
TRIES = 2  # groups that an image is asked beside before it founds one
CENTRES = 160  # clusters, at most, with an image of each of which a campaign begins
OVERLAP = 0.2  # from which on two groups may be one


def order(
    snapshot: Snapshot,
    n: int,
    rng: np.random.Generator,
    *,
    join: bool = True,
    soon: bool = True,
    around: bool = True,
) -> Order:
    """What the next n questions are about. Groups to be joined come first, then images to be placed, the
    most wanted first, one of each of many clusters: the most typical while nothing is known, then those in
    whose neighbourhood the groups are most doubtful, and the rather if they are likely to find theirs soon.
    In doubt is where the space as it is and the frozen one tell different groups: what the network has once
    learnt it no longer doubts, and the frozen features cannot be talked into anything. The neighbourhood
    counts, for an image that is in doubt alone tells nothing of others."""
    known, frozen = snapshot.known, snapshot.likely
    images = pool(snapshot.images, known, rng) if frozen is None else frozen.images
    left = rng.permutation(images[known.sizes[known.group[images]] == 1])  # the generator breaks ties
    joins, first = Pairs.none(), left
    if not np.isin(known.members, images).any():
        if len(left) > 2:
            near = density(snapshot.vectors, left)
            by = np.argsort(-near, kind="stable")
            centres = best_per_cluster(snapshot.vectors[left[by]], near[by], min(CENTRES, n, len(left)), rng)
            first = left[by[centres]]
        return Order(joins, np.concatenate([first, left[~np.isin(left, first)]]))
    found = spread(snapshot.vectors, images, known)
    if join:
        joins = _joins(snapshot, found, n, rng)
    beside = np.empty((0, TRIES), dtype=np.int64)
    if len(left) > 2:
        other = found if frozen is None else frozen
        rows = np.searchsorted(found.images, left)
        doubt = found.apart(other)
        wanted = (other.around(doubt) if around else doubt)[rows]
        if soon:
            wanted = wanted * (0.5 + _yield((found.share[rows] + other.share[rows]) / 2))
        likely = np.argsort(-wanted, kind="stable")[: 4 * n]
        few = best_per_cluster(snapshot.vectors[left[likely]], wanted[likely], min(n, len(likely)), rng)
        first = left[likely[few]]
        beside = _beside(snapshot, found, other, first)
    return Order(joins, np.concatenate([first, left[~np.isin(left, first)]]), beside)


def _yield(share: Floats) -> Floats:
    """The chance that an image finds a place in two tries, for each question that they take."""
    best = share.max(axis=1)
    second = np.partition(share, -2, axis=1)[:, -2] if share.shape[1] > 1 else 0
    found: Floats = (best + second) / (2 - best)
    return found


def _beside(snapshot: Snapshot, found: Spread, other: Spread, first: Ids) -> Ids:
    """For each of these images the nearest member of each of its likeliest groups, going by both spaces."""
    rows, group = np.searchsorted(found.images, first), snapshot.known.group
    share = found.share[rows] + other.share[rows]
    share[found.groups[None, :] == group[first][:, None]] = -1  # its own
    ranked = found.groups[np.argsort(-share, axis=1, kind="stable")[:, :TRIES]]
    members = {g: found.images[group[found.images] == g] for g in np.unique(ranked).tolist()}
    beside = np.empty(ranked.shape, dtype=np.int64)
    for i, x in enumerate(first.tolist()):
        for j, g in enumerate(ranked[i].tolist()):
            beside[i, j] = members[g][np.argmax(snapshot.vectors[members[g]] @ snapshot.vectors[x])]
    return beside


def _joins(snapshot: Snapshot, found: Spread, n: int, rng: np.random.Generator) -> Pairs:
    """Questions that would join two groups: those that overlap most and of which nothing is known, each
    by its two nearest members."""
    known, vectors = snapshot.known, snapshot.vectors
    images = rng.permutation(found.images)  # the generator breaks ties
    members = {group: images[known.group[images] == group] for group in found.groups.tolist()}
    one = np.array([ids[0] for ids in members.values()], dtype=np.int64)
    overlap = np.triu(found.overlap, k=1) * (known.among(one, one) == UNKNOWN)
    rows, columns = rng.permutation(np.argwhere(overlap >= OVERLAP)).T
    best = np.argsort(-overlap[rows, columns], kind="stable")[:n]
    a, b = [], []
    for i, j in zip(rows[best].tolist(), columns[best].tolist(), strict=True):
        these, those = members[int(found.groups[i])], members[int(found.groups[j])]
        at = int(np.argmax(vectors[these] @ vectors[those].T))
        a.append(these[at // len(those)])
        b.append(those[at % len(those)])
    return Pairs.of(a, b)


def density(vectors: Floats, images: Ids) -> Floats:
    """How close an image is to its neighbours: high for typical ones."""
    k = min(NEIGHBOURS + 1, len(images))
    found: Floats = nearest(vectors, images, np.asarray(vectors[images]), k).scores[:, 1:].mean(axis=1)
    return found


def place(snapshot: Snapshot, n: int, rng: np.random.Generator) -> Pairs:
    """The next n questions, as far as the answers so far decide them: those that would join two groups, then
    one for each image that is to be placed; when all have a place, the most similar open pairs."""
    known = snapshot.known
    wanted = order(snapshot, max(n, CENTRES), rng) if snapshot.order is None else snapshot.order
    found = dict.fromkeys(wanted.joins[known.of(wanted.joins) == UNKNOWN][:n])
    members = known.members[np.isin(known.members, snapshot.images)]
    members = rng.permutation(members)  # the generator breaks ties
    if not len(members):
        members = wanted.images[:1]  # the first founds a group
    there = np.zeros(known.links.shape[0], dtype=bool)
    there[known.group[members]] = True
    for i, x in enumerate(map(int, wanted.images)):  # mostly a few of very many
        if len(found) >= n:
            break
        if known.sizes[known.group[x]] == 1:
            beside = wanted.beside[i : i + 1].ravel()
            if pair := _next_group(snapshot, x, members, there, beside, wanted.images):
                found[pair] = None
    placed = Pairs.of([a for a, _ in found], [b for _, b in found])
    if len(placed) == n:
        return placed
    mined = mine(snapshot.images, cosine(snapshot.vectors), known, n, rng).pairs
    fresh = mined[np.array([pair not in found for pair in mined], dtype=bool)]
    return placed.then(fresh[: n - len(placed)])


def _next_group(
    snapshot: Snapshot, x: int, members: Ids, there: NDArray[np.bool_], beside: Ids, new: Ids
) -> Pair | None:
    """Image x beside the nearest member of the likeliest group it has not been tried with; None once it
    has been tried with enough. The groups that are ``there`` are those of the members."""
    known = snapshot.known
    own = known.group[x]
    links = slice(known.links.indptr[own], known.links.indptr[own + 1])
    refused = there[known.links.indices[links]] & (known.links.data[links] == Verdict.DISSIMILAR)
    aside = known.aside.indices[known.aside.indptr[x] : known.aside.indptr[x + 1]]  # nobody could tell
    untold = np.unique(known.group[aside])
    if refused.sum() + there[untold].sum() >= min(TRIES, there.sum() - there[own]):
        return None
    verdicts = known.among(np.array([x]), members)[0]
    open_ = members[(verdicts == UNKNOWN) & (members != x) & ~np.isin(known.group[members], untold)]
    if not len(open_):
        return None
    other = int(open_[np.argmax(snapshot.vectors[open_] @ snapshot.vectors[x])])
    if other not in new:
        other = next((int(y) for y in beside if y in open_), other)
    return (x, other) if x < other else (other, x)


def without(order: Order, known: Relations, asked: Pairs) -> Order:
    """What is wanted, but for what is being asked already: these pairs, and the images that they place. Of a
    pair that is the image nothing is known of; where something is of both, whichever is alone."""
    ids = np.column_stack([asked.a, asked.b])
    founders = known.members if len(known.members) else order.images[:1]
    new = ~np.isin(ids, founders)
    placed = np.where(new.any(axis=1, keepdims=True), new, known.sizes[known.group[ids]] == 1)
    open_ = set(asked)
    joins = order.joins[np.array([pair not in open_ for pair in order.joins], dtype=bool)]
    left = ~np.isin(order.images, ids[placed])
    return Order(joins, order.images[left], order.beside[left[: len(order.beside)]])
