"""``place``: an image is shown beside the groups it may belong to, the likeliest first, until one accepts it.

The closure of the answers forms groups. An image that is alone in its group is *unplaced*. It is shown beside
a member of the likeliest other group, then of the next one. After ``TRIES`` refusals it stays a group of its
own. A similar answer implies the most: the image then relates to every member of every group as its group
does. Groups that should be one are joined later.

``plan`` decides once a round which groups to join and in which order to place images; ``pick`` decides after
every answer which group an image is tried with.
"""

import numpy as np
from numpy.random import Generator

from anneal.method import sheets
from anneal.method.diversity import best_per_cluster, representatives
from anneal.method.groups import NEIGHBOURS, Membership, candidates, spread_labels
from anneal.method.mining import cosine, mine
from anneal.method.neighbours import nearest
from anneal.method.relations import Known
from anneal.method.sheets import Sheet
from anneal.method.snapshot import Agenda, Snapshot
from anneal.pairs import UNKNOWN, Floats, Ids, Pair, Pairs, Verdict

TRIES = 2  # groups that an image is shown beside before it stays a group of its own
CENTRES = 160  # clusters at the start of a campaign, at most
FEW = 80  # images: while fewer have a relation, typical images come first …
START = 20  # … in a small archive, while fewer than one in START have
OVERLAP = 0.2  # two groups that overlap this much may be one
SETTLED = 0.25  # share of the images with a relation from which an image's own doubt counts alone
WORTH = 0.85  # a tile is wanted at least this much, compared with the mean of the first images
TILES = 10  # images that are wanted for sheets, for each group
WIDEN = 4  # clustering chooses n of the WIDEN · n images most in doubt
AHEAD = 4  # for the first AHEAD · n images the plan notes their nearest groups
NEAREST = 8  # of these groups, so that some are left when others refuse the image
POOL = 2000  # images whose pairs are looked at when every image has its group


def plan(
    snapshot: Snapshot,
    n: int,
    rng: Generator,
    *,
    join: bool = True,
    typical: bool = True,
    soon: bool = True,
    neighbourhood: bool = True,
    with_sheets: bool = True,
) -> Agenda:
    """Pairs that would join two groups, then all unplaced images, the most wanted ones first: at the start
    typical images, later those in doubt. The switches are for ablations: do not join; no typical images
    after the first round; do not prefer images that find their group soon; go by an image's own doubt at once
    instead of its neighbourhood's first. Joins that are on a sheet come after those that are on none."""
    known = snapshot.known
    by_frozen = snapshot.membership
    images = candidates(snapshot.images, known, rng) if by_frozen is None else by_frozen.images
    alone = known.sizes[known.group[images]] == 1
    unplaced = rng.permutation(images[alone])  # the generator breaks ties
    if not np.isin(known.members, images).any():
        return Agenda(images=_in_front(_typical(snapshot, unplaced, n, rng), unplaced))
    by_trained = spread_labels(snapshot.vectors, images, known)
    joins = _joins(snapshot, by_trained, n, rng) if join else Pairs.none()
    if len(unplaced) <= 2:  # nothing to put in order
        return Agenda(joins, unplaced)
    if by_frozen is None:
        by_frozen = by_trained
    weight = max(1 - known.has_relations(images).mean() / SETTLED, 0.0) if neighbourhood else 0.0
    doubt = _doubt(by_trained, by_frozen, unplaced, soon, weight)
    if typical and len(known.members) < min(FEW, len(images) // START):
        first = _unrepresented(snapshot, images, n, rng)
    else:
        first = _in_doubt(snapshot, unplaced, doubt, n, rng)
    planned = sheets.none()
    if with_sheets:
        planned = _sheets(snapshot, by_trained, by_frozen, unplaced, doubt, first, joins, rng)
        first = _in_front(first[~np.isin(first, planned)], first)
        alone_joins = np.flatnonzero(~sheets.has(planned, known, joins))
        joins = joins[_in_front(alone_joins, np.arange(len(joins)))]
    beside = _beside(snapshot, by_trained, by_frozen, first)
    order = _in_front(first, unplaced)
    near = _nearest_groups(snapshot, order, AHEAD * n, rng)
    return Agenda(joins, order, beside, near, planned)


def _sheets(
    snapshot: Snapshot,
    trained: Membership,
    frozen: Membership,
    unplaced: Ids,
    wanted: Floats,
    first: Ids,
    joins: Pairs,
    rng: Generator,
) -> Ids:
    """Sheets of the ``first`` images, and of other wanted ones that differ, beside their likeliest group."""
    rows = np.flatnonzero(wanted >= WORTH * wanted[np.isin(unplaced, first)].mean())
    count = min(TILES * len(trained.groups), len(rows))
    rows = rows[np.argsort(-wanted[rows], kind="stable")[: WIDEN * count]]
    rows = rows[best_per_cluster(snapshot.vectors[unplaced[rows]], wanted[rows], count, rng)]
    rows = np.concatenate([rows[~np.isin(unplaced[rows], first)], np.flatnonzero(np.isin(unplaced, first))])
    share = _open_share(snapshot, trained, frozen, unplaced[rows])
    return sheets.plan(snapshot, share, trained.groups, unplaced[rows], wanted[rows], joins)


def _open_share(snapshot: Snapshot, trained: Membership, frozen: Membership, images: Ids) -> Floats:
    """(images, groups): the mean share by both spaces; −1 for an image's own group and what refused it."""
    known = snapshot.known
    rows = np.searchsorted(trained.images, images)
    share = (trained.share[rows] + frozen.share[rows]) / 2
    share[trained.groups[None, :] == known.group[images][:, None]] = -1
    for row in np.flatnonzero(known.has_relations(images)).tolist():
        refused = known.linked_to(int(images[row]))[0]
        share[row, np.isin(trained.groups, refused)] = -1
    return np.asarray(share)


def _in_front(first: Ids, every: Ids) -> Ids:
    """Every image, with these ones first."""
    return np.concatenate([first, every[~np.isin(every, first)]])


def _in_doubt(snapshot: Snapshot, unplaced: Ids, doubt: Floats, n: int, rng: Generator) -> Ids:
    """Of the images most in doubt n that differ, the most in doubt first."""
    rows = np.argsort(-doubt, kind="stable")[: WIDEN * n]
    images = unplaced[rows]
    return images[best_per_cluster(snapshot.vectors[images], doubt[rows], min(n, len(images)), rng)]


def _unrepresented(snapshot: Snapshot, images: Ids, n: int, rng: Generator) -> Ids:
    """While little is known: the most typical image of each of n clusters without a known image, the largest
    first. There are clusters for these and for each known image. Doubt means little yet."""
    vectors = snapshot.vectors if snapshot.frozen is None else snapshot.frozen
    images = rng.permutation(images)
    known = snapshot.known.has_relations(images)
    count = min(int(known.sum()) + n, len(images))
    rows, sizes = representatives(np.asarray(vectors[images]), count, known, rng)
    new = ~known[rows]
    return images[rows[new][np.argsort(-sizes[new], kind="stable")]][:n]


def _typical(snapshot: Snapshot, unplaced: Ids, n: int, rng: Generator) -> Ids:
    """While nothing is known: the most typical image of each of many clusters, most typical first."""
    if len(unplaced) <= 2:
        return unplaced
    typical = density(snapshot.vectors, unplaced)
    by = np.argsort(-typical, kind="stable")
    count = min(CENTRES, n, len(unplaced))
    return unplaced[by[best_per_cluster(snapshot.vectors[unplaced[by]], typical[by], count, rng)]]


def density(vectors: Floats, images: Ids) -> Floats:
    """Mean similarity of each image to its nearest neighbours: high for typical ones."""
    rows = np.asarray(vectors[images])
    ranking = nearest(rows, np.arange(len(rows)), rows, min(NEIGHBOURS + 1, len(rows)))
    return np.asarray(ranking.scores[:, 1:].mean(axis=1))


def _doubt(trained: Membership, frozen: Membership, unplaced: Ids, soon: bool, weight: float) -> Floats:
    """How much a question about each image is wanted. An image is in doubt where the trained and the frozen
    space give it different groups: the network no longer doubts what it has learnt once, and the frozen
    features learn nothing. At first the mean over the neighbourhood counts, by its ``weight``, because an
    image in doubt alone tells nothing about others; later these images are what is left. The doubt is weighed
    by the chance that the image finds its group soon."""
    rows = np.searchsorted(trained.images, unplaced)
    own = trained.disagreement(frozen)
    doubt: Floats = weight * frozen.neighbourhood_mean(own) + (1 - weight) * own
    if not soon:
        return doubt[rows]
    share = (trained.share[rows] + frozen.share[rows]) / 2
    return doubt[rows] * (0.5 + _placed_per_question(share))


def _placed_per_question(share: Floats) -> Floats:
    """The chance that an image finds its group in two tries, over the questions: best + 2 · (1 − best)."""
    best = share.max(axis=1)
    second = np.partition(share, -2, axis=1)[:, -2] if share.shape[1] > 1 else 0
    return np.asarray((best + second) / (2 - best))


def _beside(snapshot: Snapshot, trained: Membership, frozen: Membership, first: Ids) -> Ids:
    """(k, TRIES): for each image the nearest member of each of its likeliest groups, by both spaces."""
    group = snapshot.known.group
    rows = np.searchsorted(trained.images, first)
    share = trained.share[rows] + frozen.share[rows]
    share[trained.groups[None, :] == group[first][:, None]] = -1  # its own group
    likeliest = trained.groups[np.argsort(-share, axis=1, kind="stable")[:, :TRIES]]
    members = {g: trained.images[group[trained.images] == g] for g in np.unique(likeliest).tolist()}
    beside = np.empty(likeliest.shape, dtype=np.int64)
    for i, image in enumerate(first.tolist()):
        for j, g in enumerate(likeliest[i].tolist()):
            similarity = snapshot.vectors[members[g]] @ snapshot.vectors[image]
            beside[i, j] = members[g][np.argmax(similarity)]
    return beside


def _joins(snapshot: Snapshot, trained: Membership, n: int, rng: Generator) -> Pairs:
    """Pairs that would join two groups: the groups that overlap most and whose relation is unknown, each by
    its two nearest members."""
    known = snapshot.known
    images = rng.permutation(trained.images)  # the generator breaks ties
    members = {g: images[known.group[images] == g] for g in trained.groups.tolist()}
    one_of_each = np.array([ids[0] for ids in members.values()], dtype=np.int64)  # in the order of groups
    overlap = np.triu(trained.overlap, k=1) * (known.among(one_of_each, one_of_each) == UNKNOWN)
    rows, columns = rng.permutation(np.argwhere(overlap >= OVERLAP)).T
    best = np.argsort(-overlap[rows, columns], kind="stable")[:n]
    pairs = []
    for i, j in zip(rows[best].tolist(), columns[best].tolist(), strict=True):
        these = members[int(trained.groups[i])]
        those = members[int(trained.groups[j])]
        similarity = snapshot.vectors[these] @ snapshot.vectors[those].T
        row, column = np.unravel_index(np.argmax(similarity), similarity.shape)
        pairs.append((int(these[row]), int(those[column])))
    return Pairs.from_list(pairs)


def _nearest_groups(snapshot: Snapshot, planned: Ids, m: int, rng: Generator) -> Ids:
    """(m, NEAREST): for the first m planned images the nearest member of each of the nearest groups, nearest
    first; −1 for none."""
    known = snapshot.known
    images = planned[:m]
    members = rng.permutation(_old_members(snapshot, planned))  # the generator breaks ties
    members = members[np.argsort(known.group[members], kind="stable")]
    near = np.full((len(images), NEAREST), -1, dtype=np.int64)
    if not len(members):
        return near
    _, start = np.unique(known.group[members], return_index=True)
    end = np.append(start[1:], len(members))
    of_members = np.asarray(snapshot.vectors[members])
    for row, image in enumerate(images.tolist()):
        similarity = of_members @ snapshot.vectors[image]
        best = np.argsort(-np.maximum.reduceat(similarity, start), kind="stable")[:NEAREST]
        for column, group in enumerate(best.tolist()):
            own = slice(start[group], end[group])
            near[row, column] = members[own][np.argmax(similarity[own])]
    return near


def _old_members(snapshot: Snapshot, planned: Ids) -> Ids:
    """The images that have a relation, without those that are planned."""
    members = snapshot.known.members
    return members[np.isin(members, snapshot.images) & ~np.isin(members, planned)]


def pick(snapshot: Snapshot, agenda: Agenda, n: int, rng: Generator) -> Pairs:
    """Pairs that join two groups, then one pair for each image to be placed. When every image has its group,
    the most similar unknown pairs."""
    known = snapshot.known
    new = agenda.images[known.has_relations(agenda.images)]  # these got a relation since the plan
    if not known.count_groups(1):
        new = agenda.images[:1]  # the first image is the first group
    planned = agenda.images
    agenda = _without_pending(agenda, known, snapshot.pending)
    picked = dict.fromkeys(agenda.pairs[known.of(agenda.pairs) == UNKNOWN][:n])
    alone = known.sizes[known.group[agenda.images]] == 1
    for i in np.flatnonzero(alone).tolist():  # n is small, so this ends early
        if len(picked) >= n:
            break
        beside = agenda.beside[i : i + 1].ravel()
        near = agenda.near[i : i + 1].ravel()
        pair = _next_try(snapshot, int(agenda.images[i]), new, near, beside, planned)
        if pair is not None:
            picked[pair] = None
    if len(picked) < n:
        pending = set(snapshot.pending)
        images = snapshot.images
        pool = images if len(images) <= POOL else rng.choice(images, POOL, replace=False)
        mined = mine(pool, cosine(snapshot.vectors), known, n + len(pending), rng).pairs
        picked |= dict.fromkeys(pair for pair in mined if pair not in pending)
    return Pairs.from_list(picked)[:n]


def sheet(snapshot: Snapshot, agenda: Agenda, n: int, rng: Generator) -> Sheet:
    """The next sheet, of at most n tiles: of a group, if it pays, else of the next pairs."""
    size = sheets.group_size(snapshot, n)
    of_group = _of_group(snapshot, agenda, size) if size else Pairs.none()
    if len(of_group):
        return Sheet(of_group, np.full(len(of_group), Verdict.SIMILAR, dtype=np.int64))
    size = sheets.pairs_size(snapshot, n)
    return sheets.of_pairs(snapshot, pick(snapshot, agenda, size, rng) if size else Pairs.none())


def _of_group(snapshot: Snapshot, agenda: Agenda, n: int) -> Pairs:
    """The next sheet of a group; none before what the plan wants and no such sheet has is asked: joins, and
    the first images of the plan. These are the hard ones: no sheet of a group would ever ask about them."""
    known = snapshot.known
    first = agenda.images[: len(agenda.beside)]
    first = first[~np.isin(first, agenda.sheets) & (known.sizes[known.group[first]] == 1)]
    first = first[~np.isin(first, np.concatenate([snapshot.pending.a, snapshot.pending.b]))]
    if any(sheets.refusals(known, image) < TRIES for image in first.tolist()):
        return Pairs.none()
    joins = agenda.pairs[known.of(agenda.pairs) == UNKNOWN]
    pending = set(snapshot.pending)
    joins = Pairs.from_list(pair for pair in joins if pair not in pending)
    if not sheets.has(agenda.sheets, known, joins).all():
        return Pairs.none()
    return sheets.pick(snapshot, agenda, n, TRIES)


def _next_try(snapshot: Snapshot, image: int, new: Ids, near: Ids, beside: Ids, planned: Ids) -> Pair | None:
    """The image and its next partner; None when it was tried with enough groups. The partner is the first one
    ``beside`` it in the plan that it was not tried with; or the nearest image of all, if that is one of the
    ``new`` ones, which no plan could know."""
    known = snapshot.known
    linked, verdicts = known.linked_to(image)
    unsure = np.unique(known.group[known.set_aside_with(image)])
    tries = int((verdicts == Verdict.DISSIMILAR).sum() + known.has_relations(unsure).sum())
    groups = max(known.count_groups(TRIES + 1), 1) - int(known.has_relations(np.array([image]))[0])
    if tries >= min(TRIES, groups):
        return None
    closed = np.concatenate([known.group[[image]], linked, unsure])

    def nearest_open(candidates: Ids) -> tuple[float, int]:
        """The nearest candidate of a group that the image was not tried with, after its similarity; −1 if
        there is none."""
        partners = candidates[~np.isin(known.group[candidates], closed)]
        if not len(partners):
            return -np.inf, -1
        similarity = snapshot.vectors[partners] @ snapshot.vectors[image]
        best = int(np.argmax(similarity))
        return float(similarity[best]), int(partners[best])

    similarity, partner = nearest_open(new)
    old_similarity, old_partner = nearest_open(near[near >= 0])
    if old_partner < 0:  # the plan does not say
        old_similarity, old_partner = nearest_open(_old_members(snapshot, planned))
    if old_similarity > similarity:
        still_open = beside[~np.isin(known.group[beside], closed)].tolist()
        partner = (*still_open, old_partner)[0]
    if partner < 0:
        return None
    return (image, partner) if image < partner else (partner, image)


def _without_pending(agenda: Agenda, known: Known, pending: Pairs) -> Agenda:
    """The agenda without what is being asked already: these pairs, and the image that each of them places. It
    is the one that has no relation yet, or if both have some, each one that is alone."""
    if not len(pending):
        return agenda
    ids = np.column_stack([pending.a, pending.b])
    new = ~known.has_relations(ids)
    if not known.count_groups(1):
        new = ids != agenda.images[:1]
    alone = known.sizes[known.group[ids]] == 1
    placed = np.where(new.any(axis=1, keepdims=True), new, alone)
    asked = set(pending)
    pairs = Pairs.from_list(pair for pair in agenda.pairs if pair not in asked)
    left = ~np.isin(agenda.images, ids[placed])
    beside = agenda.beside[left[: len(agenda.beside)]]
    near = agenda.near[left[: len(agenda.near)]]
    return Agenda(pairs, agenda.images[left], beside, near, agenda.sheets, agenda.lean)
