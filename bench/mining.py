"""Mining the p most uncertain of all pairs, beside two peers measured in the same run: the matrix products
alone, which no exact method can avoid, and a sort of the scores of all pairs, which mining avoids.

    python bench/mining.py [images]
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable

import numpy as np

from anneal.method.mining import cosine, mine
from anneal.method.relations import full
from anneal.method.uncertainty import score as uncertainty
from anneal.pairs import Answers, Floats, Ids, Pairs

SORTED = 10_000  # images: with more, sorting all pairs needs gigabytes


def main(n: int, p: int = 1476, d: int = 256, repeats: int = 3) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(n, d)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    i, j = rng.integers(n, size=(2, 4000))
    distinct = i != j
    answered = Pairs.of(i[distinct], j[distinct])
    known = full(n, Answers.of(answered, rng.integers(1, 3, len(answered)))).relations
    images = np.arange(n)
    similarity = cosine(vectors)

    def score(rows: Ids, columns: Ids) -> Floats:
        return uncertainty(similarity(rows, columns), 0.2)

    def mining() -> None:
        mine(images, score, known, p, rng)

    def products() -> None:
        for k in range(0, n, 1024):
            vectors[k : k + 1024] @ vectors[k:].T

    def sorting() -> None:
        scores = -np.abs(vectors @ vectors.T - 0.2)
        scores[np.tri(n, dtype=bool)] = -np.inf
        np.argsort(scores, axis=None)[-p:]

    mined = min(seconds(mining) for _ in range(repeats))
    multiplied = min(seconds(products) for _ in range(repeats))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"{n} images, {n * (n - 1) // 2:,} pairs, p = {p}")
    print(f"mine / bare product:          {mined / multiplied:.1f} x the time")
    print(f"peak memory so far:           {peak:.0f} MiB (all scores would take {n * n * 4 / 2**20:.0f} MiB)")
    if n <= SORTED:
        print(f"sorting all pairs / mine:     {seconds(sorting) / mined:.1f} x the time")


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
