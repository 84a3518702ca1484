"""The groups of a campaign: what answers connect, what people call it, and where every other image belongs.

A *class* is a group of two images or more, or a named image, or all groups of one name. An image in a class
is settled; the class of any other image is predicted from the serving model's vectors.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from anneal.campaign.campaign import Campaign
from anneal.campaign.store import Purpose, Row
from anneal.errors import UsageError
from anneal.method.predict import NO_CLASS, predict
from anneal.method.relations import Known, full
from anneal.pairs import UNKNOWN, Answers, Floats, Ids, Pairs, Verdict
from anneal.watch import Progress, silent

LONGEST = 200  # letters of a name


@dataclass(frozen=True)
class Class:
    """Settled images that belong together."""

    number: int  # its smallest image
    name: str  # empty if nobody gave one
    images: Ids  # sorted
    groups: list[int]  # the groups of this name, each by its smallest image

    @property
    def title(self) -> str:
        return self.name or f"group {self.number}"


@dataclass(frozen=True)
class Classes:
    """The classes, largest first, and where each image of the archive is."""

    every: list[Class]
    column: Ids  # (n,) the class of each image by its place in ``every``; −1 without one
    score: Floats  # (n,) how sure that is: 1 if it is settled
    settled: NDArray[np.bool_]  # (n,)

    def at_least(self, score: float) -> Self:
        """The same without predictions that are less sure than this."""
        unsure = ~self.settled & (self.score < score)
        return replace(self, column=np.where(unsure, NO_CLASS, self.column))

    def of(self, image: int) -> Class | None:
        column = int(self.column[image])
        return None if column == NO_CLASS else self.every[column]


def settled_classes(campaign: Campaign) -> list[Class]:
    """The classes that answers, labels and names give, the largest first."""
    known = groups(campaign)
    names = _names(campaign, known)
    live = np.zeros(campaign.size, dtype=bool)
    live[campaign.images] = True
    members = np.flatnonzero(live & ((known.sizes[known.group] > 1) | np.isin(known.group, list(names))))
    by_class: dict[str | int, list[int]] = {}
    for image in members.tolist():
        group = int(known.group[image])
        by_class.setdefault(names.get(group) or group, []).append(image)
    every = []
    for key, images in by_class.items():
        name = key if isinstance(key, str) else ""
        parts = np.unique(known.group[images]).tolist()
        every.append(Class(images[0], name, np.array(images, dtype=np.int64), parts))
    return sorted(every, key=lambda one: (-len(one.images), one.number))


def classify(campaign: Campaign, progress: Progress = silent) -> Classes:
    """The class of every image: settled, or predicted with the probability that it is right."""
    return to_classify(campaign)(progress)


def to_classify(campaign: Campaign) -> Callable[[Progress], Classes]:
    """Read what ``classify`` needs. The function that is returned does the work, without the campaign."""
    every = settled_classes(campaign)
    column = np.full(campaign.size, NO_CLASS, dtype=np.int64)
    score = np.zeros(campaign.size, dtype=np.float32)
    for place, one in enumerate(every):
        column[one.images] = place
    settled = column != NO_CLASS
    score[settled] = 1
    images = campaign.images[~settled[campaign.images]]
    apart = _apart(groups(campaign), images, column)
    rounds = campaign.rounds
    vectors = rounds.vectors()
    cutoff = rounds.cutoff(rounds.serving)

    def work(progress: Progress = silent) -> Classes:
        if every and len(images):
            voters = np.flatnonzero(settled)
            found = predict(vectors, images, voters, column[voters], apart, cutoff, progress)
            column[images] = found.column
            score[images] = found.score
        return Classes(every, column, score, settled)

    return work


def groups(campaign: Campaign) -> Known:
    """The groups that similar answers connect, whatever the campaign's closure."""
    if campaign.settings.closure == "full":
        return campaign.known()
    return full(campaign.size, campaign.evidence().answers).relations


def _names(campaign: Campaign, known: Known) -> dict[int, str]:
    """Group → its name: the last one given to any of its images, else the commonest class label of them."""
    labels: dict[int, Counter[str]] = {}
    for image, label in campaign.store.labels().items():
        labels.setdefault(int(known.group[image]), Counter())[label] += 1
    names = {group: found.most_common(1)[0][0] for group, found in labels.items()}
    given = {int(known.group[image]): name for _, image, name in campaign.store.names()}
    return {**names, **{group: name for group, name in given.items() if name}}


def _apart(known: Known, images: Ids, column: Ids) -> dict[int, list[int]]:
    """Image → classes that it does not belong to, by the answers."""
    apart: dict[int, list[int]] = {}
    for image in images[known.has_relations(images)].tolist():
        linked, verdicts = known.linked_to(image)
        classes = column[linked[verdicts == Verdict.DISSIMILAR]]
        found = np.unique(classes[classes != NO_CLASS]).tolist()
        if found:
            apart[image] = found
    return apart


# -- what people change --------------------------------------------------------------------------------


def give_name(campaign: Campaign, images: Sequence[int], name: str, annotator: str = "me") -> None:
    """Name the groups of these images; an empty name takes theirs away."""
    name = name.strip()
    if len(name) > LONGEST or any(not letter.isprintable() for letter in name):
        raise UsageError(f"A name is one line of {LONGEST} letters at most.")
    _check(campaign, images)
    campaign.store.add_names(((image, name) for image in images), annotator)


def merge(campaign: Campaign, one: int, other: int, annotator: str = "me") -> int:
    """Say that the groups of two images are one: a similar answer between them. Returns its row number. The
    first group's name is that of both."""
    _check(campaign, [one, other])
    if one == other:
        raise UsageError("Choose two groups to merge.")
    with campaign.transaction():
        name = _names(campaign, groups(campaign)).get(int(groups(campaign).group[one]), "")
        number = campaign.answer(one, other, Verdict.SIMILAR, annotator)
        if name:
            campaign.store.add_names([(one, name)], annotator)
    return number


@dataclass(frozen=True)
class Split:
    """What splitting images off a group does."""

    rows: list[Row]  # answers that are withdrawn
    leaving: list[list[int]]  # the groups that the images become
    staying: list[list[int]]  # the groups that the others become, the largest first


def plan_split(campaign: Campaign, images: Sequence[int]) -> Split:
    """What happens if these images leave their group. Answers among them stay, and so do those among the
    others. An image that only the leaving ones connected is on its own then."""
    _check(campaign, images)
    known = groups(campaign)
    group = {int(known.group[image]) for image in images}
    if len(group) != 1:
        raise UsageError("These images are not of one group: choose images of one.")
    members = np.flatnonzero(known.group == group.pop())
    chosen = set(images)
    if chosen >= set(members.tolist()):
        raise UsageError("These are all images of the group: leave at least one where it is.")
    labels = campaign.store.labels()
    if not chosen.isdisjoint(labels):
        raise UsageError("A class label holds these images in their group: change it in the archive.")
    inside = set(members.tolist())
    similar = [
        row
        for row in campaign.log().standing()
        if row.verdict == Verdict.SIMILAR and row.purpose != Purpose.HELD_OUT and inside.issuperset(row.pair)
    ]
    crossing = [row for row in similar if (row.a in chosen) != (row.b in chosen)]
    kept = [row for row in similar if (row.a in chosen) == (row.b in chosen)]
    leaving = _connected(sorted(chosen), kept)
    staying = _connected(sorted(inside - chosen), kept)
    return Split(crossing, leaving, staying)


def split_off(campaign: Campaign, images: Sequence[int], annotator: str = "me") -> Split:
    """Let these images leave their group: withdraw the answers that hold them there, and say that they are
    not similar to it. The largest remaining part keeps the name."""
    with campaign.transaction():
        plan = plan_split(campaign, images)
        known = groups(campaign)
        name = _names(campaign, known).get(int(known.group[images[0]]), "")
        for row in plan.rows:
            campaign.correct(row.id, UNKNOWN, annotator)
        stays = plan.staying[0][0]
        for part in plan.leaving:
            campaign.answer(stays, part[0], Verdict.DISSIMILAR, annotator)
        if name:
            campaign.store.add_names(((image, "") for image in images), annotator)
            campaign.store.add_names([(stays, name)], annotator)
    return plan


def _connected(images: list[int], rows: Iterable[Row]) -> list[list[int]]:
    """The images in sets that these similar answers connect, the largest first."""
    place = {image: i for i, image in enumerate(images)}
    pairs = Pairs.from_list((place[row.a], place[row.b]) for row in rows if row.a in place)
    similar = Answers.of(pairs, [Verdict.SIMILAR] * len(pairs))
    parts: dict[int, list[int]] = {}
    for image, group in zip(images, full(len(images), similar).relations.group.tolist(), strict=True):
        parts.setdefault(group, []).append(image)
    return sorted(parts.values(), key=lambda part: (-len(part), part[0]))


def _check(campaign: Campaign, images: Sequence[int]) -> None:
    if not images or any(not 0 <= image < campaign.size for image in images):
        raise UsageError(f"Name images by their ids, from 0 to {campaign.size - 1}.")
