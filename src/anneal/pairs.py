"""Pairs of images, as columns, and the verdicts a person gives on them.

An image is an id: its row in the archive. A pair is unordered, so it is kept with the smaller id
first, and two pairs are the same exactly when their columns are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.floating]


class Verdict(IntEnum):
    """What is said of a pair. The numbers are what arrays and the campaign's file hold; 0, which
    is no verdict, stands for "unknown" in both."""

    SIMILAR = 1
    DISSIMILAR = 2
    UNSURE = 3


UNKNOWN = 0


@dataclass(frozen=True)
class Pairs:
    """Columns of unordered pairs: ``a[i] < b[i]``, both image ids."""

    a: Ids
    b: Ids

    def __post_init__(self) -> None:
        if self.a.shape != self.b.shape or self.a.ndim != 1:
            raise ValueError(f"columns of a pair differ: {self.a.shape} and {self.b.shape}")
        if not bool((self.a < self.b).all()):
            raise ValueError("a pair holds the smaller id first; use Pairs.of to order it")

    @classmethod
    def of(cls, one: ArrayLike, other: ArrayLike) -> Pairs:
        """Pairs from two columns in any order."""
        i, j = np.asarray(one, dtype=np.int64), np.asarray(other, dtype=np.int64)
        if i.shape == j.shape and bool((i == j).any()):
            raise ValueError("an image makes no pair with itself")
        return cls(np.minimum(i, j), np.maximum(i, j))

    @classmethod
    def none(cls) -> Pairs:
        return cls(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.a)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.a.tolist(), self.b.tolist(), strict=True)

    def __getitem__(self, rows: ArrayLike | slice) -> Pairs:
        picked = rows if isinstance(rows, slice) else np.asarray(rows) if np.size(rows) else slice(0)
        return Pairs(self.a[picked], self.b[picked])

    def then(self, more: Pairs) -> Pairs:
        return Pairs(np.concatenate([self.a, more.a]), np.concatenate([self.b, more.b]))


@dataclass(frozen=True)
class Answers:
    """Pairs with the verdict given on each: what was asked, as opposed to what follows from it."""

    pairs: Pairs
    verdicts: NDArray[np.int8]

    def __post_init__(self) -> None:
        if len(self.pairs) != len(self.verdicts):
            raise ValueError(f"{len(self.pairs)} pairs but {len(self.verdicts)} verdicts")

    @classmethod
    def of(cls, pairs: Pairs, verdicts: ArrayLike) -> Answers:
        return cls(pairs, np.asarray(verdicts, dtype=np.int8))

    @classmethod
    def none(cls) -> Answers:
        return cls.of(Pairs.none(), [])

    def __len__(self) -> int:
        return len(self.pairs)

    def then(self, more: Answers) -> Answers:
        verdicts = np.concatenate([self.verdicts, more.verdicts])
        return Answers(self.pairs.then(more.pairs), verdicts)

    def unsure(self, rows: set[int]) -> Answers:
        """With no verdict but unsure on what these rows say."""
        said = list(zip(self.pairs, self.verdicts.tolist(), strict=True))
        unsaid = {said[row] for row in rows}
        left = [Verdict.UNSURE if one in unsaid else one[1] for one in said]
        return Answers.of(self.pairs, left)

    def given(self, verdict: Verdict) -> Pairs:
        """The pairs that got this verdict."""
        return self.pairs[self.verdicts == verdict]
