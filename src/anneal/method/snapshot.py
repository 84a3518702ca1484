"""What a strategy sees (Snapshot) and what it plans (Agenda)."""

from dataclasses import dataclass, field

import numpy as np

from anneal.method.groups import Membership
from anneal.method.relations import Known
from anneal.method.uncertainty import PairProbability
from anneal.pairs import Answers, Floats, Ids, Pairs
from anneal.work import Workers


@dataclass(frozen=True)
class Agenda:
    """What a round will ask about. A batch strategy's agenda is its list of pairs."""

    pairs: Pairs = field(default_factory=Pairs.none)  # to be asked, in this order
    images: Ids = field(default_factory=lambda: np.empty(0, np.int64))  # to be placed in a group after that
    beside: Ids = field(default_factory=lambda: np.empty((0, 0), np.int64))
    """(k, tries): the images to show the first k of ``images`` beside, the likeliest group first."""
    near: Ids = field(default_factory=lambda: np.empty((0, 0), np.int64))
    """(m, groups): for the first m of ``images`` the nearest member of each of the nearest groups, nearest
    first; −1 where there is none."""
    sheets: Ids = field(default_factory=lambda: np.empty((0, 1), np.int64))
    """(sheets, 1 + tiles): a prototype and the images that probably belong to its group; −1 for none."""
    lean: float = 0.0  # how far from its threshold MGUE asked (steering.lean)

    @property
    def last(self) -> int:
        """The largest id in it; −1 if it is empty."""
        columns = (self.pairs.b, self.images, self.beside, self.near, self.sheets)
        return max(int(column.max(initial=-1)) for column in columns)


@dataclass(frozen=True)
class Snapshot:
    """What a strategy sees. The answers are those to learn from, in the order they were given: all of them
    when it plans, the latest ones when it picks."""

    vectors: Floats  # (n, d) unit rows: every image in the serving model's space
    images: Ids  # the images that may be asked about
    known: Known
    answers: Answers = field(default_factory=Answers.none)
    rounds: Ids = field(default_factory=lambda: np.empty(0, np.int64))  # of each answer; −1: class labels
    pending: Pairs = field(default_factory=Pairs.none)  # being asked now, so not to be picked
    frozen: Floats | None = None  # (n, d') unit rows: the features before any training
    membership: Membership | None = None  # likely groups by the frozen features
    probability: PairProbability | None = None  # where a pair classifier was trained
    agenda: Agenda | None = None  # the agenda before this one
    workers: Workers | None = None  # that mine tiles of pairs; none change the result

    def __post_init__(self) -> None:
        if len(self.vectors) != len(self.known):
            raise ValueError(f"{len(self.vectors)} vectors but relations of {len(self.known)}")
