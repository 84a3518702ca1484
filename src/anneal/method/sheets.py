"""Sheets: many answers at a glance. A sheet has *tiles*. Each is an ordinary question about a pair, on which
the machine's guess is marked. A person changes the guesses that are wrong and confirms the rest: one act, and
one more for each change.

There are two kinds. A sheet *of pairs* has what would be asked one by one, a tile for each pair. A sheet *of
a group* shows a member of it, the *prototype*, above images that probably belong to it: each tile is a pair
with the prototype, and the guess is similar. ``plan`` lists those that pay once a round, ``pick`` takes one.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from anneal.method.mining import pairwise
from anneal.method.relations import Known
from anneal.method.snapshot import Agenda, Snapshot
from anneal.pairs import UNKNOWN, Floats, Ids, Pairs, Verdict
from anneal.settings import LEAST_TILES, MOST_TILES

PAIRS = 10  # tiles of a sheet of pairs, at most: each has its own key, 1 to 9 and 0
EVEN = 0.55  # similarity at which a pair is as likely similar as not, if half of the latest answers were …
SLOPE = 6.0  # … and how fast its log-odds grow with similarity
LATEST = 40  # answers by which the share of similar ones is known
LIKELY = 0.4  # an image may be a tile of its likeliest group's sheet if that group has this share of it
EXCEPTIONS = 1.5  # on a sheet of a group, on average: its size is chosen for that
MANY = 0.05  # share of answers that are not similar, above which other pairs teach more


@dataclass(frozen=True)
class Sheet:
    """Pairs that are shown together, and the verdict that is marked on each."""

    pairs: Pairs
    guesses: Ids

    def __len__(self) -> int:
        return len(self.pairs)


def plan(snapshot: Snapshot, share: Floats, groups: Ids, images: Ids, wanted: Floats, joins: Pairs) -> Ids:
    """(sheets, 1 + MOST_TILES): a prototype and its tiles, the most wanted first, −1 where there are fewer.
    The sheet whose tiles are wanted most comes first. ``share`` is (images, groups): how likely each of the
    ``images`` is in each of the ``groups``. A sheet also has a member of each group that may be the same one:
    the ``joins`` are pairs of such groups."""
    likeliest = share.argmax(axis=1)
    likely = share.max(axis=1) >= LIKELY
    own = [np.flatnonzero(likely & (likeliest == column)) for column in range(len(groups))]
    others: list[list[int]] = [[] for _ in groups]
    for a, b in joins:
        one = int(np.searchsorted(groups, snapshot.known.group[a]))
        other = int(np.searchsorted(groups, snapshot.known.group[b]))
        if len(own[one]) >= len(own[other]):
            others[one].append(b)
        else:
            others[other].append(a)
    sheets = []
    values = []
    for group, rows, members in zip(groups.tolist(), own, others, strict=True):
        rows = rows[np.argsort(-wanted[rows], kind="stable")]
        tiles = [*members[: MOST_TILES // 2], *images[rows].tolist()][:MOST_TILES]
        if len(tiles) >= LEAST_TILES:
            sheets.append([_prototype(snapshot, group), *tiles, *[-1] * (MOST_TILES - len(tiles))])
            values.append(np.mean([*[1.0] * len(members), *wanted[rows]]))
    best = np.argsort(-np.array(values), kind="stable")
    return np.array(sheets, dtype=np.int64).reshape(-1, 1 + MOST_TILES)[best]


def none() -> Ids:
    return np.empty((0, 1 + MOST_TILES), dtype=np.int64)


def refusals(known: Known, image: int) -> int:
    """How many groups an image is separated from."""
    return int((known.linked_to(image)[1] == Verdict.DISSIMILAR).sum())


def _prototype(snapshot: Snapshot, group: int) -> int:
    """The member of a group that is most like the others."""
    known = snapshot.known
    members = known.members[known.group[known.members] == group]
    members = members[np.isin(members, snapshot.images)]
    vectors = np.asarray(snapshot.vectors[members])
    return int(members[np.argmax(vectors @ vectors.mean(axis=0))])


def has(sheets: Ids, known: Known, joins: Pairs) -> NDArray[np.bool_]:
    """Whether a sheet asks about the two groups of each pair."""
    n = len(known)
    group = known.group
    prototypes = np.broadcast_to(sheets[:, :1], sheets[:, 1:].shape)[sheets[:, 1:] >= 0]
    tiles = sheets[:, 1:][sheets[:, 1:] >= 0]
    asked = _keys(n, group[prototypes], group[tiles])
    return np.isin(_keys(n, group[joins.a], group[joins.b]), asked)


def _keys(n: int, one: Ids, other: Ids) -> Ids:
    """A number for each two of n groups, whichever comes first."""
    return np.minimum(one, other) * n + np.maximum(one, other)


def pick(snapshot: Snapshot, agenda: Agenda, n: int, tries: int) -> Pairs:
    """The tiles of the next sheet, at most n, each as a pair with the prototype; none if no sheet has enough
    tiles left. An unplaced image stays a tile until it is placed, or ``tries`` groups have refused it."""
    known = snapshot.known
    pending = np.concatenate([snapshot.pending.a, snapshot.pending.b])
    tiles = agenda.sheets[:, 1:]
    unplaced = np.isin(tiles, agenda.images)
    placed = unplaced & (known.sizes[known.group[tiles]] > 1)
    left = (tiles >= 0) & ~placed & ~np.isin(tiles, pending)
    for row in np.flatnonzero(left.sum(axis=1) >= LEAST_TILES).tolist():
        own = tiles[row, left[row]]
        refused = [refusals(known, image) for image in own.tolist()]
        own = own[~unplaced[row, left[row]] | (np.array(refused) < tries)]
        pairs = Pairs.of(own, np.full(len(own), agenda.sheets[row, 0]))
        pairs = pairs[known.of(pairs) == UNKNOWN]
        if len(pairs) >= LEAST_TILES:
            return pairs[:n]
    return Pairs.none()


def of_pairs(snapshot: Snapshot, pairs: Pairs) -> Sheet:
    """A sheet of these pairs, one for each two groups: an answer about two groups tells all others. There is
    none if there are too few."""
    group = snapshot.known.group
    keys = _keys(len(snapshot.known), group[pairs.a], group[pairs.b])
    pairs = pairs[np.sort(np.unique(keys, return_index=True)[1])]
    if len(pairs) < LEAST_TILES:
        pairs = Pairs.none()
    return Sheet(pairs, guesses(snapshot, pairs))


def guesses(snapshot: Snapshot, pairs: Pairs) -> Ids:
    """The likelier verdict on each pair, by its similarity and the share of similar ones among the latest
    answers. No curve is fitted to these: the model has learnt from most of them."""
    verdicts = snapshot.answers.verdicts[-LATEST:]
    similar = int((verdicts == Verdict.SIMILAR).sum())
    odds = logit((similar + 1) / (len(verdicts) + 2)) + SLOPE * (pairwise(snapshot.vectors, pairs) - EVEN)
    return np.where(odds >= 0, Verdict.SIMILAR, Verdict.DISSIMILAR)


def pairs_size(snapshot: Snapshot, most: int) -> int:
    """How many tiles a sheet of pairs has, at most; 0 for no sheet. The first ones are small, because
    what is asked next depends on the first answers. Two share what is too much for one."""
    shared = math.ceil(most / math.ceil(most / PAIRS))
    tiles = min(shared, len(snapshot.answers))
    return tiles if tiles >= LEAST_TILES else 0


def group_size(snapshot: Snapshot, most: int) -> int:
    """How many tiles a sheet of a group has, at most; 0 for no sheet. Where fewer of the latest answers were
    similar, it is smaller: the eye finds a few exceptions at a glance."""
    verdicts = snapshot.answers.verdicts[-LATEST:]
    rate = float(np.mean(verdicts != Verdict.SIMILAR)) if len(verdicts) else 1.0
    if rate > MANY:
        return 0
    wanted = int(np.clip(round(EXCEPTIONS / max(rate, 0.01)), LEAST_TILES, max(most, LEAST_TILES)))
    if most - wanted < LEAST_TILES:  # what is left of the round would be too few for a sheet
        wanted = most
    return wanted if wanted >= LEAST_TILES else 0
