"""Mining the p most uncertain of all pairs: against the bare matrix product it cannot do without, and
against the array of all pairs it avoids. Prints ratios measured side by side in this run.

    python bench/mining.py [images]
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from anneal.method.mining import cosine, mine
from anneal.method.relations import full
from anneal.method.uncertainty import mgue_score
from anneal.pairs import Answers, Pairs


def main(n: int, p: int = 1476, d: int = 256, repeats: int = 3) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(n, d)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    i, j = rng.integers(n, size=(2, 4000))
    known = full(n, Answers.of(Pairs.of(i[i != j], j[i != j]), rng.integers(1, 3, (i != j).sum()))).relations
    images, similarity = np.arange(n), cosine(vectors)

    def ours() -> object:
        return mine(images, lambda a, b: mgue_score(similarity(a, b), 0.2), known, p, rng)

    def product() -> object:
        return [vectors[k : k + 1024] @ vectors[k:].T for k in range(0, n, 1024)][-1]

    def everything() -> object:
        scores = -np.abs(vectors @ vectors.T - 0.2)
        scores[np.tri(n, dtype=bool)] = -np.inf
        return np.argsort(scores, axis=None)[-p:]

    def seconds(work: object) -> float:
        start = time.perf_counter()
        work()  # type: ignore[operator]
        return time.perf_counter() - start

    times = {name: min(seconds(work) for _ in range(repeats)) for name, work in
             (("mine", ours), ("product", product))}  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"{n} images, {n * (n - 1) // 2:,} pairs, p = {p}")
    print(f"mine / bare product:          {times['mine'] / times['product']:.1f} x the time")
    print(f"peak memory so far:           {peak:.0f} MiB (all scores would take {n * n * 4 / 2**20:.0f} MiB)")
    if n <= 10_000:
        ratio = seconds(everything) / times["mine"]
        print(f"sorting all pairs / mine:     {ratio:.1f} x the time")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
