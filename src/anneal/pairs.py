"""Pairs of images as columns, and the answers given on them.

An image is an id: its row in the archive. A pair has no order and is stored with the smaller id first,
so two pairs are the same if and only if their columns are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.floating]
Pair = tuple[int, int]
UNKNOWN = 0  # in place of a verdict


class Verdict(IntEnum):
    """The answer to a pair. Arrays and the campaign's file hold these numbers, or UNKNOWN."""

    SIMILAR = 1
    DISSIMILAR = 2
    UNSURE = 3


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
        """Pairs from two columns, ordered or not."""
        i = np.asarray(one, dtype=np.int64)
        j = np.asarray(other, dtype=np.int64)
        if i.shape == j.shape and bool((i == j).any()):
            raise ValueError("an image makes no pair with itself")
        return cls(np.minimum(i, j), np.maximum(i, j))

    @classmethod
    def from_list(cls, pairs: Iterable[Pair]) -> Pairs:
        """Pairs from (image, image) tuples, ordered or not."""
        columns = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
        return cls.of(columns[:, 0], columns[:, 1])

    @classmethod
    def none(cls) -> Pairs:
        return cls(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.a)

    def __iter__(self) -> Iterator[Pair]:
        return zip(self.a.tolist(), self.b.tolist(), strict=True)

    def __getitem__(self, rows: ArrayLike | slice) -> Pairs:
        if not isinstance(rows, slice):
            rows = np.asarray(rows) if np.size(rows) else slice(0)  # an empty list would be of floats
        return Pairs(self.a[rows], self.b[rows])

    def then(self, more: Pairs) -> Pairs:
        """These pairs, then more."""
        return Pairs(np.concatenate([self.a, more.a]), np.concatenate([self.b, more.b]))


@dataclass(frozen=True)
class Answers:
    """Pairs with the verdict given on each. Implied pairs are not answers."""

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
        """These answers, then more."""
        return Answers(self.pairs.then(more.pairs), np.concatenate([self.verdicts, more.verdicts]))

    def unsure(self, rows: set[int]) -> Answers:
        """The same answers with UNSURE in these rows and in every row that gives the same answer."""
        answers = list(zip(self.pairs, self.verdicts.tolist(), strict=True))
        withdrawn = {answers[row] for row in rows}
        left = [Verdict.UNSURE if answer in withdrawn else answer[1] for answer in answers]
        return Answers.of(self.pairs, left)

    def given(self, verdict: Verdict) -> Pairs:
        """The pairs with this verdict."""
        return self.pairs[self.verdicts == verdict]
