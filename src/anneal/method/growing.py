"""The full closure, kept up answer by answer. What one answer costs does not depend on how many there are.

``relations.full`` computes the same from all answers at once. A *component* is a set of images that similar
answers connect. Without a contradiction it is one group. An answer that only joins two components, or
separates two groups, changes these alone. Anything else (a withdrawal, a contradiction) computes the
components that it touches again, by ``relations.full``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from anneal.method.relations import Closure, Relations, full, symmetric
from anneal.pairs import UNKNOWN, Answers, Ids, Pair, Pairs, Verdict

FEW = 1024  # pairs: fewer are looked up one by one, more in arrays
LABELS = 2**62  # answers with keys from here on are pairs of class labels: nobody was asked

K = TypeVar("K")
Count = dict[int, dict[int, int]]  # image → other image → number of answers


@dataclass(frozen=True)
class Contested:
    """A component in which answers contradict each other."""

    images: list[int]
    contradictions: list[tuple[int, ...]]  # keys of answers that cannot all be true
    withdrawn: set[tuple[Pair, int]]  # the pairs and verdicts of all these answers


class Groups:
    """Groups of similar images, and links between groups that are dissimilar. The smallest image of a group
    is its name."""

    def __init__(self, n: int) -> None:
        self.group: Ids = np.arange(n, dtype=np.int64)  # (n,) of each image
        self.sizes: Ids = np.ones(n, dtype=np.int64)  # by the group's name; 0 where an image names none
        self.images: dict[int, list[int]] = {}  # of each group with more than one
        self.links: Count = {}  # group → group that it is separated from → number of pairs that say so
        self.degree = np.zeros(n, dtype=np.int32)  # groups that a group is separated from
        self.counts = {Verdict.SIMILAR: 0, Verdict.DISSIMILAR: 0}  # pairs of images

    def join(self, one: int, other: int) -> None:
        """Make one group of two that are not linked. The smaller number names it."""
        kept = min(one, other)
        gone = max(one, other)
        self.counts[Verdict.SIMILAR] += int(self.sizes[kept] * self.sizes[gone])
        kept_links = self.links.get(kept, {})
        gone_links = self.links.pop(gone, {})
        added = sum(int(self.sizes[linked]) for linked in gone_links if linked not in kept_links)
        shared = sum(int(self.sizes[linked]) for linked in gone_links if linked in kept_links)
        before = sum(int(self.sizes[linked]) for linked in kept_links)
        self.counts[Verdict.DISSIMILAR] += int(self.sizes[kept]) * added
        self.counts[Verdict.DISSIMILAR] += int(self.sizes[gone]) * (before - shared)
        for linked, count in gone_links.items():
            del self.links[linked][gone]
            for group, partner in ((kept, linked), (linked, kept)):
                _change(self.links, group, partner, count)
            self.degree[linked] = len(self.links[linked])
        moved = self.images.pop(gone, [gone])
        self.group[moved] = kept
        self.images.setdefault(kept, [kept]).extend(moved)
        self.sizes[kept] += self.sizes[gone]
        self.sizes[gone] = 0
        self.degree[gone] = 0
        self.degree[kept] = len(self.links.get(kept, ()))

    def link(self, one: int, other: int) -> None:
        if other not in self.links.get(one, ()):
            self.counts[Verdict.DISSIMILAR] += int(self.sizes[one] * self.sizes[other])
        self._change_link(one, other, 1)

    def unlink(self, one: int, other: int) -> None:
        self._change_link(one, other, -1)
        if other not in self.links.get(one, ()):
            self.counts[Verdict.DISSIMILAR] -= int(self.sizes[one] * self.sizes[other])

    def _change_link(self, one: int, other: int, by: int) -> None:
        for group, partner in ((one, other), (other, one)):
            _change(self.links, group, partner, by)
            self.degree[group] = len(self.links.get(group, ()))

    def dissolve(self, images: list[int]) -> None:
        """Make each image its own group, without links."""
        for group in {int(self.group[image]) for image in images}:
            size = int(self.sizes[group])
            self.counts[Verdict.SIMILAR] -= size * (size - 1) // 2
            for linked in self.links.pop(group, {}):
                self.counts[Verdict.DISSIMILAR] -= size * int(self.sizes[linked])
                del self.links[linked][group]
                self.degree[linked] = len(self.links[linked])
                if not self.links[linked]:
                    del self.links[linked]
            self.images.pop(group, None)
        self.group[images] = images
        self.sizes[images] = 1
        self.degree[images] = 0

    def form(self, images: list[int]) -> None:
        """Make a group of images, in order, that have neither group nor link."""
        self.group[images] = images[0]
        self.sizes[images] = 0
        self.sizes[images[0]] = len(images)
        if len(images) > 1:
            self.images[images[0]] = images
            self.counts[Verdict.SIMILAR] += len(images) * (len(images) - 1) // 2


class GrowingClosure:
    """What answers on n images imply. An answer has a key; answers count in the order of their keys."""

    def __init__(self, n: int) -> None:
        self._groups = Groups(n)
        self.group: Ids = self._groups.group
        self.sizes: Ids = self._groups.sizes
        self.version = 0  # changes with every answer
        self._answers: dict[int, tuple[Pair, int]] = {}
        self._keys: dict[Pair, dict[int, int]] = {}  # pair → key → verdict
        self._asked: dict[Pair, int] = {}  # pair → number of answers, without those of class labels
        self._unsure: dict[Pair, int] = {}  # pair → number of unsure answers
        self._given: dict[int, Count] = {int(verdict): {} for verdict in Verdict}
        self._contested: dict[int, Contested] = {}  # by the smallest image of the component
        self._component: dict[int, int] = {}  # of each image in a contested component
        self._relations: tuple[int, Relations] | None = None

    # -- answers come and go ---------------------------------------------------------------------------

    def add(self, key: int, pair: Pair, verdict: int) -> tuple[int, int]:
        """Take an answer. Returns the sizes of the two groups that it joins; (0, 0) if it joins none."""
        self.version += 1
        self._note(key, pair, verdict, 1)
        one = int(self.group[pair[0]])
        other = int(self.group[pair[1]])
        if verdict == Verdict.UNSURE:
            return 0, 0
        touched = {self._component_of(image) for image in pair}
        calm = touched.isdisjoint(self._contested)
        if verdict == Verdict.DISSIMILAR and len(touched) == 2:
            if self._given[verdict][pair[0]][pair[1]] == 1:
                self._groups.link(one, other)
        elif verdict == Verdict.SIMILAR and calm and len(touched) == 1:
            pass  # they are in one group already
        elif verdict == Verdict.SIMILAR and calm and other not in self._groups.links.get(one, ()):
            sizes = int(self.sizes[one]), int(self.sizes[other])
            self._groups.join(one, other)
            return sizes
        else:
            self._compute_again(touched)
        return 0, 0

    def remove(self, key: int) -> None:
        """Take an answer back."""
        pair, verdict = self._answers[key]
        touched = {self._component_of(image) for image in pair}
        calm = touched.isdisjoint(self._contested)
        self.version += 1
        self._note(key, pair, verdict, -1)
        given_still = verdict in self._keys.get(pair, {}).values()
        if verdict == Verdict.UNSURE or (calm and given_still):
            return
        if verdict == Verdict.DISSIMILAR and len(touched) == 2:
            if not given_still:
                self._groups.unlink(*(int(self.group[image]) for image in pair))
        else:
            self._compute_again(touched)

    def _note(self, key: int, pair: Pair, verdict: int, sign: int) -> None:
        """Write down an answer, or strike it out."""
        keys = self._keys.setdefault(pair, {})
        if sign > 0:
            self._answers[key] = pair, verdict
            keys[key] = verdict
        else:
            del self._answers[key]
            del keys[key]
            if not keys:
                del self._keys[pair]
        if key < LABELS:
            _add(self._asked, pair, sign)
        if verdict == Verdict.UNSURE:
            _add(self._unsure, pair, sign)
        for image, other in (pair, pair[::-1]):
            _change(self._given[verdict], image, other, sign)

    def _component_of(self, image: int) -> int:
        return self._component.get(image, int(self.group[image]))

    # -- components that are computed again ------------------------------------------------------------

    def _compute_again(self, components: Iterable[int]) -> None:
        """Forget the groups of these components, and find them again from their answers."""
        images: list[int] = []
        for component in components:
            contested = self._contested.pop(component, None)
            images += (
                self._groups.images.get(component, [component]) if contested is None else contested.images
            )
        images.sort()
        self._groups.dissolve(images)
        for image in images:
            self._component.pop(image, None)
        for connected in self._connected(images):
            if len(connected) > 1:
                self._settle(connected)
        inside = set(images)
        for image in images:
            for other in self._given[Verdict.DISSIMILAR].get(image, ()):
                pair = (image, other) if image < other else (other, image)
                once = other not in inside or image < other
                if once and not self._is_withdrawn(pair, Verdict.DISSIMILAR):
                    self._groups.link(int(self.group[image]), int(self.group[other]))

    def _connected(self, images: list[int]) -> Iterator[list[int]]:
        """The images in sets that similar answers connect, each in order."""
        similar = self._given[Verdict.SIMILAR]
        seen: set[int] = set()
        for start in images:
            if start in seen:
                continue
            component = [start]
            seen.add(start)
            for image in component:
                new = [other for other in similar.get(image, ()) if other not in seen]
                seen.update(new)
                component += new
            yield sorted(component)

    def _settle(self, component: list[int]) -> None:
        """Give the images of a component their groups."""
        inside = set(component)
        dissimilar = self._given[Verdict.DISSIMILAR]
        groups: Iterable[list[int]] = [component]
        if any(not inside.isdisjoint(dissimilar.get(image, ())) for image in component):
            closure, keys = self._closure_of(component, inside)
            contradictions = [tuple(keys[row] for row in rows) for rows in closure.contradictions]
            withdrawn = {self._answers[key] for one in contradictions for key in one}
            self._contested[component[0]] = Contested(component, contradictions, withdrawn)
            self._component.update(dict.fromkeys(component, component[0]))
            by_group: dict[int, list[int]] = {}
            for image, group in zip(component, closure.relations.group.tolist(), strict=True):
                by_group.setdefault(group, []).append(image)
            groups = by_group.values()
        for images in groups:
            self._groups.form(images)

    def _closure_of(self, component: list[int], inside: set[int]) -> tuple[Closure, list[int]]:
        """What the answers inside a component imply, by the computation from scratch, and their keys."""
        row = {image: i for i, image in enumerate(component)}
        keys: list[int] = []
        for image in component:
            for given in self._given.values():
                for other in given.get(image, ()):
                    if image < other and other in inside:
                        keys += self._keys[image, other]
        keys = sorted(set(keys))
        pairs = [self._answers[key][0] for key in keys]
        verdicts = [self._answers[key][1] for key in keys]
        local = Pairs.from_list((row[a], row[b]) for a, b in pairs)
        return full(len(component), Answers.of(local, verdicts)), keys

    def _is_withdrawn(self, pair: Pair, verdict: int) -> bool:
        """Whether this answer is part of a contradiction, so that it implies nothing."""
        component = self._component.get(pair[0])
        return component is not None and (pair, verdict) in self._contested[component].withdrawn

    # -- what is known ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.group)

    def verdict(self, a: int, b: int) -> int:
        """What is known of one pair; 0 if nothing."""
        one = int(self.group[a])
        other = int(self.group[b])
        if one == other:
            return Verdict.SIMILAR
        if other in self._groups.links.get(one, ()):
            return Verdict.DISSIMILAR
        if self._is_set_aside((a, b) if a < b else (b, a)):
            return Verdict.UNSURE
        return UNKNOWN

    def _is_set_aside(self, pair: Pair) -> bool:
        given = self._keys.get(pair, {}).values()
        return any(verdict == Verdict.UNSURE or self._is_withdrawn(pair, verdict) for verdict in given)

    def of(self, pairs: Pairs) -> NDArray[np.int8]:
        """The verdict of each pair; 0 where nothing is known."""
        if len(pairs) <= FEW:
            return np.array([self.verdict(a, b) for a, b in pairs], dtype=np.int8)
        return self.relations().of(pairs)

    def among(self, rows: Ids, columns: Ids) -> NDArray[np.int8]:
        """(|rows|, |columns|) verdicts; 0 where nothing is known. An image is similar to itself."""
        return self.relations().among(rows, columns)

    def blocks(self, images: Ids, size: int) -> Iterator[tuple[Ids, Ids, NDArray[np.int8]]]:
        return self.relations().blocks(images, size)

    def has_relations(self, images: Ids) -> NDArray[np.bool_]:
        """Whether each image has at least one similar or dissimilar pair."""
        group = self.group[images]
        return np.asarray((self.sizes[group] > 1) | (self._groups.degree[group] > 0))

    @property
    def members(self) -> Ids:
        """The images with at least one similar or dissimilar pair."""
        images = [image for group in self._groups.images.values() for image in group]
        images += [group for group in self._groups.links if group not in self._groups.images]
        return np.array(sorted(images), dtype=np.int64)

    def count_groups(self, most: int) -> int:
        """The number of groups that have a similar or dissimilar pair; counting ends at ``most``."""
        alone = (group for group in self._groups.links if group not in self._groups.images)
        return sum(1 for _ in islice(chain(self._groups.images, alone), most))

    def linked_to(self, image: int) -> tuple[Ids, NDArray[np.int8]]:
        """The groups that the image's group is dissimilar to, and the verdict of each link."""
        groups = np.fromiter(self._groups.links.get(int(self.group[image]), ()), dtype=np.int64)
        return groups, np.full(len(groups), Verdict.DISSIMILAR, dtype=np.int8)

    def set_aside_with(self, image: int) -> Ids:
        """The images whose pair with this one is unsure or contradicted."""
        others = {other for given in self._given.values() for other in given.get(image, ())}
        pairs = {other: (min(image, other), max(image, other)) for other in sorted(others)}
        return np.array([o for o, pair in pairs.items() if self._is_set_aside(pair)], dtype=np.int64)

    @property
    def contradictions(self) -> list[tuple[int, ...]]:
        """Keys of answers that cannot all be true."""
        return sorted(one for contested in self._contested.values() for one in contested.contradictions)

    @property
    def implied(self) -> int:
        """The number of pairs known to be similar or dissimilar that nobody was asked about."""
        doubtful = (pair for pair in self._doubtful() if pair in self._asked)
        unknown = sum(self.verdict(*pair) in (UNKNOWN, Verdict.UNSURE) for pair in doubtful)
        return sum(self._groups.counts.values()) - (len(self._asked) - unknown)

    def _doubtful(self) -> set[Pair]:
        """The pairs that are set aside: those with an unsure answer, and those of contradictions."""
        contested = (pair for one in self._contested.values() for pair, _ in one.withdrawn)
        return {*self._unsure, *contested}

    def relations(self) -> Relations:
        """The same as arrays, for work on many pairs."""
        if self._relations is None or self._relations[0] != self.version:
            links = [
                (one, other) for one, others in self._groups.links.items() for other in others if one < other
            ]
            aside = self._doubtful()
            n = len(self)
            relations = Relations(
                self.group.copy(),
                symmetric(n, Pairs.from_list(links), Verdict.DISSIMILAR),
                symmetric(n, Pairs.from_list(aside), Verdict.UNSURE),
            )
            self._relations = self.version, relations
        return self._relations[1]


def _add(counts: dict[K, int], key: K, by: int) -> None:
    """Add to a count. A count of zero is not kept."""
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]


def _change(counts: Count, one: int, other: int, by: int) -> None:
    own = counts.setdefault(one, {})
    _add(own, other, by)
    if not own:
        del counts[one]
