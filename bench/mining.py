"""Mining the p most uncertain of all pairs, beside what does the same work the plain way.

    python bench/mining.py [name ...]    # clustered, scattered, matrix, classifier

* ``clustered`` and ``scattered``: 100 000 × 256 vectors that are like trained ones, or random. The reference
  is the matrix products alone, in blocks of the best size.
* ``matrix``: 8 000 × 512 vectors. The reference is NumPy's whole matrix and ``argpartition``.
* ``classifier``: BCGUE, 8 000 × 512. The reference is the classifier in torch on batches of concatenated
  pairs, both orders, for 1/32 of the pairs; its time is multiplied by 32.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from sidebyside import Work, alternate, row, seconds

from anneal.method.mining import Mined
from anneal.method.neighbours import unit
from anneal.method.relations import Relations, full
from anneal.method.similarity import Similarity
from anneal.method.tiles import Measure, mine_near
from anneal.network.model import PairClassifier
from anneal.pairs import Answers, Floats, Ids, Pairs

Score = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

P = 1476
LARGE = 100_000
SMALL = 8_000
PART = 32  # of the pairs, the part that the classifier's reference scores
BATCHES = (512, 2048, 8192)  # pairs; the best is taken


def clustered(n: int, d: int, classes: int = 45) -> Floats:
    """Classes with a similarity of about 0.85 inside and 0–0.3 between them, and a tenth of the images
    between two classes."""
    rng = np.random.default_rng(0)
    centres = unit(unit(rng.normal(size=(classes, d))) + 0.4 * unit(rng.normal(size=(1, d))))
    one, other = rng.integers(classes, size=(2, n))
    share = np.where(rng.random(n) < 0.1, rng.random(n), 1.0)[:, None]
    vectors = np.empty((n, d), dtype=np.float32)
    for k in range(0, n, 10_000):
        some = slice(k, k + 10_000)
        middle = unit(share[some] * centres[one[some]] + (1 - share[some]) * centres[other[some]])
        noise = rng.normal(size=middle.shape) * np.sqrt(0.15 / d)
        vectors[some] = unit(np.sqrt(0.85) * middle + noise)
    return vectors


def scattered(n: int, d: int) -> Floats:
    vectors = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def some_known(n: int) -> Relations:
    """After 4000 answers."""
    rng = np.random.default_rng(1)
    i, j = rng.integers(n, size=(2, 4000))
    pairs = Pairs.of(i[i != j], j[i != j])
    return full(n, Answers.of(pairs, rng.integers(1, 3, len(pairs)))).relations


def mined(measure: Measure, n: int, known: Relations) -> Mined:
    return mine_near(measure, np.arange(n), known, P, np.random.default_rng(2))


def exact(name: str, turns: int = 2) -> None:
    """Rows ``clustered`` and ``scattered``."""
    vectors, middle = vectors_of(name)
    known = some_known(LARGE)
    size = min((512, 1024, 2048, 4096), key=lambda size: seconds(products(vectors[:16_384], size)))

    def ours() -> Mined:
        return mined(Similarity.of(vectors, middle, P), LARGE, known)

    ratio = alternate(ours, products(vectors, size), turns, warm_up=False)
    peak = subprocess.run(
        [sys.executable, __file__, "memory", name], capture_output=True, text=True, check=True
    )
    work = f"exact mining, 5·10⁹ pairs of 100 000 × 256, {name}; {ratio.ours:.0f} s, {peak.stdout.strip()}"
    wanted = "above 1, 1 GB" if name == "clustered" else "≥ 0.87, 1 GB"
    row(work, f"the products alone, blocks of {size}", ratio, wanted)


def vectors_of(name: str) -> tuple[Floats, float]:
    """The vectors and the threshold of a row."""
    return (clustered(LARGE, 256), 0.55) if name == "clustered" else (scattered(LARGE, 256), 0.2)


def products(vectors: Floats, size: int) -> Work:
    """The products of all pairs, once, in blocks of this many images a side."""

    def work() -> None:
        for i in range(0, len(vectors), size):
            for j in range(i, len(vectors), size):
                vectors[i : i + size] @ vectors[j : j + size].T

    return work


def memory(name: str) -> None:
    """Print what mining takes in this process; the vectors are 100 MB of it."""
    vectors, middle = vectors_of(name)
    known = some_known(LARGE)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = np.arange(0, LARGE, 4)  # a sixteenth of the pairs: the peak does not grow with their number
    mine_near(Similarity.of(vectors, middle, P), rows, known, P, np.random.default_rng(2))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak {after / 2**20:.2f} GB, {before / 2**20:.2f} before mining")


def matrix() -> None:
    vectors = clustered(SMALL, 512)
    known = some_known(SMALL)

    def reference() -> Ids:
        scores = np.abs(vectors @ vectors.T - 0.55)
        scores[np.tri(SMALL, dtype=bool)] = np.inf
        return np.argpartition(scores, P, axis=None)[:P]

    ratio = alternate(lambda: mined(Similarity.of(vectors, 0.55, P), SMALL, known), reference)
    work = f"exact mining, 3.2·10⁷ pairs of 8 000 × 512; {ratio.ours:.2f} s"
    row(work, "NumPy: the whole matrix and argpartition", ratio, "≥ 5")


def classifier() -> None:
    torch.manual_seed(0)
    net = PairClassifier(512, (64, 32)).eval()
    vectors = clustered(SMALL, 512)
    z = torch.from_numpy(vectors)
    left, right = (half.detach() for half in net.halves(z))
    i, j = torch.from_numpy(np.stack(np.triu_indices(SMALL, 1))[:, ::PART].copy())

    def concatenated(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        u = z[a] * 512**0.5
        v = z[b] * 512**0.5
        both = torch.cat([torch.cat([u, v], 1), torch.cat([v, u], 1)])
        return logits(net.first(both))

    def split(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return logits(torch.cat([left[a] + right[b], left[b] + right[a]]))

    def logits(hidden: torch.Tensor) -> torch.Tensor:
        both: torch.Tensor = net.last(torch.relu(net.second(torch.relu(hidden))))
        return both.view(2, -1).mean(0)

    @torch.inference_mode()
    def in_batches(score: Score, size: int, pairs: int) -> None:
        for k in range(0, pairs, size):
            torch.sigmoid(score(i[k : k + size], j[k : k + size]))

    measure = net.scorer(vectors)
    known = some_known(SMALL)
    for score, name, wanted in (
        (concatenated, "the classifier in torch on concatenated batches", "≥ 8"),
        (split, "the same with its first layer split as ours is, batches", "–"),
    ):
        tried = {size: seconds(partial(in_batches, score, size, 4 * max(BATCHES))) for size in BATCHES}
        size = min(tried, key=tried.__getitem__)
        reference = partial(in_batches, score, size, len(i))
        ratio = alternate(lambda: mined(measure, SMALL, known), reference, repeats=3)
        scaled = replace(
            ratio, runs=tuple(PART * one for one in ratio.runs), reference=PART * ratio.reference
        )
        work = f"BCGUE, all 3.2·10⁷ pairs of 8 000 × 512; {ratio.ours:.1f} s"
        row(work, f"{name} of {size}, 1/{PART} of the pairs", scaled, wanted)


def main(names: list[str]) -> None:
    if names[:1] == ["memory"]:
        return memory(names[1])
    for name in names or ("clustered", "scattered", "matrix", "classifier"):
        if name == "matrix":
            matrix()
        elif name == "classifier":
            classifier()
        else:
            exact(name)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
