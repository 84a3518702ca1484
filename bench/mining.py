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
from dataclasses import replace

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

P = 1476
LARGE = 100_000
SMALL = 8_000
PART = 32  # of the pairs, the part that the classifier's reference scores
BATCH = 16_384  # pairs


def clustered(n: int, d: int, classes: int = 45) -> Floats:
    """Classes with a similarity of about 0.85 inside and 0–0.3 between them, and a tenth of the images
    between two classes."""
    rng = np.random.default_rng(0)
    centres = unit(unit(rng.normal(size=(classes, d))) + 0.4 * unit(rng.normal(size=(1, d))))
    one, other = rng.integers(classes, size=(2, n))
    share = np.where(rng.random(n) < 0.1, rng.random(n), 1.0)[:, None]
    middle = unit(share * centres[one] + (1 - share) * centres[other])
    noise = rng.standard_normal((n, d), dtype=np.float32)
    return unit(np.sqrt(0.85) * middle + np.sqrt(0.15 / d) * noise).astype(np.float32)


def scattered(n: int, d: int) -> Floats:
    return unit(np.random.default_rng(0).standard_normal((n, d), dtype=np.float32))


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
    measure = net.scorer(vectors)
    known = some_known(SMALL)
    i, j = torch.from_numpy(np.stack(np.triu_indices(SMALL, 1))[:, ::PART].copy())

    @torch.inference_mode()
    def concatenated() -> None:
        for k in range(0, len(i), BATCH):
            u = z[i[k : k + BATCH]] * 512**0.5
            v = z[j[k : k + BATCH]] * 512**0.5
            both = torch.cat([torch.cat([u, v], 1), torch.cat([v, u], 1)])
            logits = net.last(torch.relu(net.second(torch.relu(net.first(both)))))
            torch.sigmoid(logits.view(2, -1).mean(0))

    @torch.inference_mode()
    def split() -> None:
        for k in range(0, len(i), BATCH):
            torch.sigmoid(net(z, i[k : k + BATCH], j[k : k + BATCH]))

    work = "BCGUE, all 3.2·10⁷ pairs of 8 000 × 512"
    for reference, name, wanted in (
        (concatenated, "the classifier on concatenated batches", "≥ 8"),
        (split, "the classifier with its first layer split, in torch", "–"),
    ):
        ratio = alternate(lambda: mined(measure, SMALL, known), reference, repeats=3)
        scaled = replace(
            ratio, runs=tuple(PART * one for one in ratio.runs), reference=PART * ratio.reference
        )
        row(f"{work}; {ratio.ours:.1f} s", f"{name}, 1/{PART} of the pairs", scaled, wanted)


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
