"""Counts of what stands, kept up row by row, so that no view goes through all answers."""

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, field

from anneal.campaign.store import Purpose, Row
from anneal.pairs import Pair

Change = tuple[Row | None, Row | None]  # a row that no longer stands, and one that stands from now on


@dataclass
class Person:
    """The standing answers of one annotator."""

    verdicts: Counter[int] = field(default_factory=Counter)
    looked: dict[int, int] = field(default_factory=dict)  # milliseconds, by the number of the row
    numbers: list[int] = field(default_factory=list)  # of the rows, in order

    def latest(self, n: int) -> list[int]:
        """How long the last n answers took, where that is known."""
        return [self.looked[number] for number in self.numbers[-n:] if self.looked[number]]


class Tally:
    """``change`` keeps it up with the log."""

    def __init__(self) -> None:
        self.verdicts: Counter[int] = Counter()
        self.people: dict[str, Person] = {}
        self.heldout: dict[int, Row] = {}  # held-out answers, by their number
        self.heldout_changes = 0
        self.removals = 0  # without one, what had an answer still has it
        self._on: dict[Pair, dict[int, Row]] = {}  # what stands on each pair
        self._shared: tuple[tuple[float, int], dict[Pair, Row]] | None = None

    def change(self, change: Change) -> None:
        removed, added = change
        if removed is not None:
            self.removals += 1
            self._count(removed, -1)
        if added is not None:
            self._count(added, 1)

    def _count(self, row: Row, by: int) -> None:
        self.verdicts[row.verdict] += by
        person = self.people.setdefault(row.annotator, Person())
        person.verdicts[row.verdict] += by
        on_pair = self._on.setdefault(row.pair, {})
        if by > 0:
            on_pair[row.id] = row
            insort(person.numbers, row.id)
            person.looked[row.id] = row.looked or 0
        else:
            del on_pair[row.id]
            del person.numbers[bisect_left(person.numbers, row.id)]
            del person.looked[row.id]
        if not person.numbers:
            del self.people[row.annotator]
        if row.purpose == Purpose.HELD_OUT:
            self.heldout_changes += 1
            if by > 0:
                self.heldout[row.id] = row
            else:
                del self.heldout[row.id]
        if self._shared is not None:
            self._share(row.pair, *self._shared[0])
        if not on_pair:
            del self._on[row.pair]

    def answered_once(self, share: float, seed: int) -> dict[Pair, Row]:
        """Of a random share of all pairs, those that have one answer."""
        if self._shared is None or self._shared[0] != (share, seed):
            self._shared = (share, seed), {}
            for pair in sorted(self._on, key=lambda pair: min(self._on[pair])):
                self._share(pair, share, seed)
        return self._shared[1]

    def _share(self, pair: Pair, share: float, seed: int) -> None:
        assert self._shared is not None
        once = self._shared[1]
        rows = self._on[pair]
        if len(rows) == 1 and _is_sampled(pair, seed, share):
            once[pair] = next(iter(rows.values()))
        else:
            once.pop(pair, None)


def _is_sampled(pair: Pair, seed: int, share: float) -> bool:
    """Whether a pair belongs to a random share of all pairs, by a hash of its ids."""
    mixed = (pair[0] * 0x9E3779B1 + pair[1] * 0x85EBCA77 + seed) % 2**32
    return (mixed ^ (mixed >> 15)) * 0x2C1B3C6D % 2**32 < share * 2**32
