"""What a strategy may look at."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from anneal.method.groups import Spread
from anneal.method.mining import Scorer
from anneal.method.relations import Relations
from anneal.pairs import Answers, Floats, Ids, Pairs


@dataclass(frozen=True)
class Order:
    """What a round's questions are about, for a strategy that picks them one by one."""

    joins: Pairs  # would join two groups
    images: Ids  # to be placed
    beside: Ids = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    """(k, tries): beside whom to ask the first k of the images, the likeliest group first."""


@dataclass(frozen=True)
class Snapshot:
    """What a strategy may look at."""

    vectors: Floats  # (n, d) unit rows: every image in the current metric space
    images: Ids  # the images that may be asked about
    known: Relations
    likely: Spread | None = None  # the groups of images, by the features before anything was learnt
    probability: Scorer | None = None  # P(similar), where a pair classifier was trained
    classes: Floats | None = None  # (n, C) softmax, where a class classifier was trained
    labelled: Ids | None = None  # images whose class is known
    asked: Answers | None = None  # what was said, as opposed to what follows from it
    order: Order | None = None  # what is wanted first, where a round has decided it
    lean: float = 0.0  # how much farther than MGUE's threshold to ask: e^lean times as many pairs above it

    def __post_init__(self) -> None:
        if len(self.vectors) != len(self.known):
            raise ValueError(f"{len(self.vectors)} vectors but relations of {len(self.known)}")
