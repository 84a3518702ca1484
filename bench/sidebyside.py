"""What the scripts here share: two pieces of work timed in turn, and the row that compares them.

Other work on the machine slows both sides alike, so the ratio of two runs that follow each other is steadier
than any number of seconds. A row gives the median of these ratios and their range.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Work = Callable[[], object]


@dataclass(frozen=True)
class Ratio:
    """The time of the reference over ours, run by run: above one, ours is faster."""

    runs: tuple[float, ...]
    ours: float  # median seconds
    reference: float

    @property
    def value(self) -> float:
        return statistics.median(self.runs)

    def __str__(self) -> str:
        return f"{self.value:.2f} ({min(self.runs):.2f}–{max(self.runs):.2f})"


def alternate(ours: Work, reference: Work, repeats: int = 5, warm_up: bool = True) -> Ratio:
    """Time both in turn. The first run of each does not count unless ``warm_up`` is off."""
    if warm_up:
        ours()
        reference()
    mine: list[float] = []
    theirs: list[float] = []
    for i in range(repeats):
        for work, times in ((ours, mine), (reference, theirs))[:: 1 if i % 2 else -1]:
            times.append(seconds(work))
    runs = tuple(other / own for own, other in zip(mine, theirs, strict=True))
    return Ratio(runs, statistics.median(mine), statistics.median(theirs))


def seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def row(work: str, reference: str, ratio: Ratio | str, wanted: str) -> None:
    """Print one row of the table in ``docs/benchmarks.md``."""
    print(f"| {work} | {reference} | {ratio} | {wanted} |", flush=True)
