"""What is learnt from, and what follows from it: once from all answers, and kept up answer by answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from anneal.campaign.log import Log
from anneal.campaign.store import Purpose, Row
from anneal.method.growing import LABELS, GrowingClosure
from anneal.method.relations import Closure
from anneal.method.suspects import is_large_join
from anneal.pairs import Answers, Ids, Pair, Pairs, Verdict

PARTNERS = 4  # similar and dissimilar partners of a labelled image, as in the paper
MANY = 10_000  # images: from here on partners are drawn, not shuffled


@dataclass(frozen=True)
class Evidence:
    """What is learnt from: all answers but the held-out ones, then the pairs that class labels stand for."""

    rows: list[Row]
    answers: Answers  # the rows', then the labels'
    rounds: Ids  # the round of each answer; −1 for pairs of labels
    closure: Closure


class GrowingEvidence:
    """What the rows of a log and the pairs of class labels imply, kept up with the log. With the full
    closure one more answer costs the same however many there were before."""

    def __init__(self, n: int, newest_label: int, labels: Answers) -> None:
        self.closure = GrowingClosure(n)
        self.newest_label = newest_label
        self.large_joins: set[int] = set()  # numbers of rows
        self._followed = 0
        for i, (pair, verdict) in enumerate(zip(labels.pairs, labels.verdicts.tolist(), strict=True)):
            self.closure.add(LABELS + i, pair, verdict)

    def follow(self, log: Log) -> None:
        for removed, added in log.changes[self._followed :]:
            for row in _learnt_from(removed):
                self.closure.remove(row.id)
            for row in _learnt_from(added):
                sizes = self.closure.add(row.id, row.pair, row.verdict)
                if is_large_join(sizes):
                    self.large_joins.add(row.id)
                else:
                    self.large_joins.discard(row.id)
        self._followed = len(log.changes)


def _learnt_from(row: Row | None) -> Iterator[Row]:
    """The row, if there is one and it is not held out."""
    if row is not None and row.purpose != Purpose.HELD_OUT:
        yield row


def answers_of(rows: Sequence[Row]) -> Answers:
    return Answers.of(Pairs.from_list(row.pair for row in rows), [row.verdict for row in rows])


def label_pairs(labels: dict[int, str], rng: np.random.Generator) -> Answers:
    """The pairs that class labels stand for: for each labelled image up to four partners of its class and
    four of others, all among the labelled images."""
    images = np.array(sorted(labels), dtype=np.int64)
    classes = np.array([labels[i] for i in images.tolist()])
    pairs: list[Pair] = []
    verdicts: list[int] = []
    for own in np.unique(classes).tolist():
        same = images[classes == own]
        others = images[classes != own]
        for image in same.tolist():
            for pool, verdict in ((same[same != image], Verdict.SIMILAR), (others, Verdict.DISSIMILAR)):
                drawn = rng.permutation(pool)[:PARTNERS] if len(pool) < MANY else rng.choice(pool, PARTNERS)
                pairs += [(image, int(partner)) for partner in drawn]
                verdicts += [int(verdict)] * len(drawn)
    return Answers.of(Pairs.from_list(pairs), verdicts)
