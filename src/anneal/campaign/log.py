"""The events of a campaign in memory: what stands, what waits to be asked again, what was given.

An *act* is an answer or a withdrawal that was not undone. What *stands* is the last act of each annotator on
each pair, if it is not a withdrawal. Adding an event costs the same however many there are.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from itertools import islice

from anneal.campaign.effort import Effort
from anneal.campaign.store import MACHINE, Purpose, Row
from anneal.campaign.tally import Change
from anneal.pairs import UNKNOWN, Pair

PAUSE = 60_000  # milliseconds: looking longer than this is counted as a pause


class Log:
    """All events so far; ``extend`` adds new ones."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.looked = 0  # milliseconds in all
        self.given = 0  # answers by people, undone ones left out
        self.effort = Effort()  # that it took to give them
        self.waiting: dict[Pair, Row] = {}  # pairs to be asked again, by their last act
        self._numbers: list[int] = []  # of the rows
        self._acts: dict[Pair, list[Row]] = {}
        self.changes: list[Change] = []  # of what stands, in order
        self._last_purpose: dict[Pair, str] = {}  # of the last answer, undone or not
        self._standing: dict[tuple[int, int, str], Row] = {}
        self._standing_list: list[Row] | None = None
        self._doubted: Counter[Pair] = Counter()  # how often the machine asked again
        self._by_key: dict[str, Row] = {}

    @property
    def newest(self) -> int:
        """The number of the last row; 0 if there is none."""
        return self._numbers[-1] if self._numbers else 0

    def extend(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows.append(row)
            self._numbers.append(row.id)
            if row.key is not None:
                self._by_key[row.key] = row
            self.looked += min(row.looked or 0, PAUSE)
            if row.undoes is None:
                self._count(row, 1)
                self._acts.setdefault(row.pair, []).append(row)
                self._stand(row, row)
                if row.verdict != UNKNOWN:
                    self._last_purpose[row.pair] = row.purpose
            else:
                self._undo(row.undoes)
            self._update_waiting(row.pair)

    def _count(self, row: Row, sign: int) -> None:
        if is_given(row):
            self.given += sign
            self.effort.count(row, sign)
        if _is_doubt(row):
            self._doubted[row.pair] += sign

    def _stand(self, on: Row, last: Row | None) -> None:
        """``last`` is from now on the last act of an annotator on a pair, those of the row ``on``."""
        key = (on.a, on.b, on.annotator)
        removed = self._standing.pop(key, None)
        added = last if last is not None and last.verdict != UNKNOWN else None
        if added is not None:
            self._standing[key] = added
        if removed is not added:
            self.changes.append((removed, added))
            self._standing_list = None

    def _undo(self, number: int) -> None:
        undone = self.row(number)
        if undone is None or not self.is_act(undone):
            return
        self._count(undone, -1)
        acts = self._acts[undone.pair]
        acts.remove(undone)
        own = [act for act in acts if act.annotator == undone.annotator]
        self._stand(undone, own[-1] if own else None)  # what was said before stands again

    def _update_waiting(self, pair: Pair) -> None:
        self.waiting.pop(pair, None)
        for last in self.acts(pair)[-1:]:
            if last.verdict == UNKNOWN and last.purpose == Purpose.AGAIN:
                self.waiting[pair] = last

    def row(self, number: int) -> Row | None:
        at = bisect_right(self._numbers, number) - 1
        return self.rows[at] if at >= 0 and self._numbers[at] == number else None

    def standing(self) -> list[Row]:
        """What stands, in the order it was given."""
        if self._standing_list is None:
            self._standing_list = sorted(self._standing.values(), key=lambda row: row.id)
        return self._standing_list

    def is_standing(self, row: Row) -> bool:
        return self._standing.get((row.a, row.b, row.annotator)) is row

    def latest(self, n: int) -> list[Row]:
        """The last n rows that stand and are learnt from, in the order they were given."""
        rows = (row for row in reversed(self.rows) if self.is_standing(row))
        return list(islice((row for row in rows if row.purpose != Purpose.HELD_OUT), n))[::-1]

    def acts(self, pair: Pair) -> list[Row]:
        """All acts on a pair, in order."""
        return self._acts.get(pair, [])

    def standing_on(self, pair: Pair) -> list[Row]:
        """What stands on a pair: one row for each annotator who answered it."""
        last = {act.annotator: act for act in self.acts(pair)}
        return [act for act in last.values() if act.verdict != UNKNOWN]

    def verdicts(self, pair: Pair) -> list[int]:
        """Every verdict people gave on a pair, in order."""
        return [act.verdict for act in self.acts(pair) if is_given(act)]

    def last_purpose(self, pair: Pair) -> str | None:
        """What the last answer to a pair was for, even if it was undone or withdrawn."""
        return self._last_purpose.get(pair)

    def purpose_of_repeat(self, pair: Pair) -> str:
        """What a pair is asked for that had an answer before: a held-out pair stays one."""
        if self.last_purpose(pair) == Purpose.HELD_OUT:
            return Purpose.HELD_OUT
        return Purpose.AGAIN if pair in self.waiting else Purpose.CHOSEN

    def is_act(self, row: Row) -> bool:
        return row in self.acts(row.pair)

    def since(self, number: int) -> list[Row]:
        """The acts after a row."""
        rows = self.rows[bisect_right(self._numbers, number) :]
        return [row for row in rows if row.undoes is None and self.is_act(row)]

    def news(self, number: int) -> int:
        """How many answers came after a row, plus undos of what was said before it."""
        rows = self.rows[bisect_right(self._numbers, number) :]
        undos = sum(row.undoes is not None and row.undoes <= number for row in rows)
        return undos + sum(map(is_given, self.since(number)))

    def last_by(self, person: str) -> Row | None:
        """The last act that this person entered."""
        for row in reversed(self.rows):
            if row.undoes is None and (row.entered or row.annotator) == person and self.is_act(row):
                return row
        return None

    def sent(self, key: str) -> Row | None:
        """The event that was sent with this key."""
        return self._by_key.get(key)

    def withdrawn(self) -> list[Row]:
        """Withdrawals that are the last act of their annotator on their pair, in order."""
        last = {(row.a, row.b, row.annotator): row for acts in self._acts.values() for row in acts}
        return sorted((row for row in last.values() if row.verdict == UNKNOWN), key=lambda row: row.id)

    def doubted(self, before: float = math.inf) -> frozenset[Pair]:
        """Pairs that the machine has asked again; all of them, or those of rounds before this one."""
        acts = [act for pair in self._doubted for act in self.acts(pair)]
        return frozenset(act.pair for act in acts if _is_doubt(act) and act.round < before)

    def is_doubted(self, pair: Pair) -> bool:
        return self._doubted[pair] > 0

    def overturned(self, before: float = math.inf) -> int:
        """How many of the answers that were asked again, of all or before a round, were different the second
        time. The first withdrawal of each annotator on each pair counts."""
        count = 0
        for pair in self.doubted(before):
            acts = [act for act in self.acts(pair) if act.round < before]
            for annotator in {act.annotator for act in acts if _is_doubt(act)}:
                own = [act for act in acts if act.annotator == annotator]
                first = next(i for i, act in enumerate(own) if _is_doubt(act))
                earlier = [act.verdict for act in own[:first] if act.verdict]
                later = [act.verdict for act in own[first:] if act.verdict]
                count += bool(earlier and later and earlier[-1] != later[-1])
        return count


def is_given(row: Row) -> bool:
    """Whether a person gave this verdict: not a withdrawal, not an undo, not released by the machine."""
    return row.verdict != UNKNOWN and row.entered != MACHINE


def _is_doubt(row: Row) -> bool:
    return row.verdict == UNKNOWN and row.entered == MACHINE
