"""What a strategy may look at."""

from __future__ import annotations

from dataclasses import dataclass

from anneal.mining import Scorer
from anneal.pairs import Floats, Ids
from anneal.transitivity import Relations


@dataclass(frozen=True)
class Snapshot:
    """What a strategy may look at."""

    vectors: Floats  # (n, d) unit rows: every image in the current metric space
    images: Ids  # the images that may be asked about
    known: Relations
    probability: Scorer | None = None  # P(similar), where a pair classifier was trained
    classes: Floats | None = None  # (n, C) softmax, where a class classifier was trained
    labelled: Ids | None = None  # images whose class is known
    order: Ids | None = None  # images in the order they are to be placed, where a round has decided it
    lean: float = 0.0  # how much farther than MGUE's threshold to ask: e^lean times as many pairs above it

    def __post_init__(self) -> None:
        if len(self.vectors) != len(self.known):
            raise ValueError(f"{len(self.vectors)} vectors but relations of {len(self.known)}")
