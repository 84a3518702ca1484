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

from anneal.diversity import best_per_cluster
from anneal.index import nearest
from anneal.mining import cosine, mine
from anneal.pairs import UNKNOWN, Floats, Ids, Pairs, Verdict
from anneal.snapshot import Order, Snapshot
from anneal.spreading import NEIGHBOURS, Spread, pool, spread

Pair = tuple[int, int]
TRIES = 2  # groups that an image is asked beside before it founds one
CENTRES = 160  # typical images with which a campaign begins
OVERLAP = 0.2  # from which on two groups may be one


def order(snapshot: Snapshot, n: int, rng: np.random.Generator, *, join: bool = True) -> Order:
    """What the next n questions are about. Groups to be joined come first, then images to be placed, the
    most wanted first: typical ones while nothing is known, then those whose group is most doubtful, one of
    each cluster."""
    known, images = snapshot.known, pool(snapshot.images, snapshot.known, rng)
    left = rng.permutation(images[known.sizes[known.group[images]] == 1])  # the generator breaks ties
    joins = Pairs.none()
    if len(left) < 3:
        first = left
    elif not np.isin(known.members, images).any():
        typical = density(snapshot.vectors, left)
        first = left[best_per_cluster(snapshot.vectors[left], typical, min(CENTRES, n, len(left)), rng)]
    else:
        found = spread(snapshot.vectors, images, known)
        joins = _joins(snapshot, found, n) if join else joins
        doubt = found.doubt[np.searchsorted(found.images, left)]
        likely = np.argsort(-doubt, kind="stable")[: 4 * n]
        rows = best_per_cluster(snapshot.vectors[left[likely]], doubt[likely], min(n, len(likely)), rng)
        picked = likely[rows]
        first = left[picked[np.argsort(-doubt[picked], kind="stable")]]
    return Order(joins, np.concatenate([first, left[~np.isin(left, first)]]))


def _joins(snapshot: Snapshot, found: Spread, n: int) -> Pairs:
    """Questions that would join two groups: those that overlap most and of which nothing is known, each
    by its two nearest members."""
    known, vectors = snapshot.known, snapshot.vectors
    members = {group: found.images[known.group[found.images] == group] for group in found.groups.tolist()}
    one = np.array([ids[0] for ids in members.values()], dtype=np.int64)
    overlap = np.triu(found.overlap, k=1) * (known.among(one, one) == UNKNOWN)
    rows, columns = np.nonzero(overlap >= OVERLAP)
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
    members = rng.permutation(np.intersect1d(known.members, snapshot.images))  # the generator breaks ties
    if not len(members):
        members = wanted.images[:1]  # the first founds a group
    groups = len(np.unique(known.group[members]))
    for x in wanted.images[known.sizes[known.group[wanted.images]] == 1].tolist():
        if len(found) >= n:
            break
        pair = _next_group(snapshot, x, members, groups)
        if pair is not None:
            found[pair] = None
    placed = Pairs.of([a for a, _ in found], [b for _, b in found])
    if len(placed) == n:
        return placed
    mined = mine(snapshot.images, cosine(snapshot.vectors), known, n, rng).pairs
    fresh = mined[np.array([pair not in found for pair in mined], dtype=bool)]
    return placed.then(fresh[: n - len(placed)])


def _next_group(snapshot: Snapshot, x: int, members: Ids, groups: int) -> Pair | None:
    """Image x beside the nearest member of the likeliest group it has not been tried with; None once it
    has been tried with enough."""
    known = snapshot.known
    own = known.group[x]
    verdicts = known.among(np.array([x]), members)[0]
    refused = len(np.unique(known.group[members[verdicts == Verdict.DISSIMILAR]]))
    if refused >= min(TRIES, groups - (own in known.group[members])):
        return None
    open_ = members[(verdicts == 0) & (members != x)]
    if not len(open_):
        return None
    other = int(open_[np.argmax(snapshot.vectors[open_] @ snapshot.vectors[x])])
    return (x, other) if x < other else (other, x)
