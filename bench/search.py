"""Search in 1 000 000 × 256 vectors: exact beside faiss's flat index, and by an inverted file beside graphs
(HNSW of faiss and of usearch). A graph takes long to build, so graphs, and our index
beside them, are of the first 200 000. Vectors are of two kinds: in clusters, like trained ones, and without
clusters, which is harder than frozen features are.

    python bench/search.py [images]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from sidebyside import alternate, row, seconds
from usearch.index import Index as Usearch

from anneal.campaign.rounds import Round
from anneal.method.neighbours import build_index, nearest, unit
from anneal.pairs import Floats, Ids

D = 256
K = 10
QUERIES = 200
STEP = 2000  # vectors that are drawn at once
GRAPH = 200_000  # images of the graphs
RECALL = 0.95
AFTER_OPENING = """
import sys, psutil
from pathlib import Path
from anneal.campaign.rounds import Round
from anneal.search import nearest_images
files = Round.of(Path(sys.argv[1]), 0)
before = psutil.Process().memory_info().rss
vectors = files.vectors()
index = files.index()
opened = psutil.Process().memory_info().rss
for i in range(0, len(vectors), len(vectors) // 200):
    nearest_images(vectors, vectors[i], 60, [i], index)
print((opened - before) >> 20, (psutil.Process().memory_info().rss - before) >> 20)
"""

Search = Callable[[Floats], Ids]  # (d,) a query → ids, best first


def main(n: int) -> None:
    faiss.cvar.distance_compute_blas_threshold = 20  # by default 200 queries go without BLAS, much slower
    for kind, draw in (("trained", clustered), ("frozen", spread)):
        with tempfile.TemporaryDirectory() as folder:
            files = Round.of(Path(folder), 0)
            rng = np.random.default_rng(0)
            with files.new_vectors(n, D) as rows:
                for i in range(0, n, STEP):
                    rows[i : i + STEP] = draw(min(STEP, n - i), rng)
            queries = draw(QUERIES, rng)
            if draw is clustered:
                exact(files.vectors(), queries)
            index_of_all(kind, files, queries, Path(folder))
            graphs(kind, np.array(files.vectors()[:GRAPH]), queries)


def clustered(n: int, rng: np.random.Generator) -> Floats:
    """Vectors around 100 centres, spread in 24 directions of their own around each, and a little in all."""
    of_kind = np.random.default_rng(1)
    centres = of_kind.normal(size=(100, D))
    directions = of_kind.normal(size=(100, 24, D)) / np.sqrt(24)
    which = rng.integers(0, 100, n)
    inside = np.einsum("mi,mid->md", rng.normal(size=(n, 24)), directions[which])
    return unit(centres[which] + inside + 0.3 * rng.normal(size=(n, D)))


def spread(n: int, rng: np.random.Generator) -> Floats:
    """Normal vectors whose i-th component has the standard deviation i^-0.75."""
    return unit(rng.normal(size=(n, D)) * np.arange(1, D + 1) ** -0.75)


def exact(vectors: Floats, queries: Floats) -> None:
    images = np.arange(len(vectors))
    flat = faiss.IndexFlatIP(D)
    flat.add(np.asarray(vectors))

    def compare(name: str, some: Floats, repeats: int) -> None:
        same = nearest(vectors, images, some, K).ids == flat.search(some, K)[1]
        assert same.mean() > 0.99
        ratio = alternate(
            lambda: nearest(vectors, images, some, K), lambda: flat.search(some, K), repeats=repeats
        )
        work = f"exact, {name} in {len(vectors):,} × {D}: {1000 * ratio.ours:.0f} ms"
        row(work, f"faiss IndexFlatIP: {1000 * ratio.reference:.0f} ms", ratio, "≥ 1.0")

    compare("one query", queries[:1], 9)
    compare(f"{len(queries)} queries", queries, 5)


def index_of_all(kind: str, files: Round, queries: Floats, folder: Path) -> None:
    """The index as a round makes and serves it."""
    vectors = files.vectors()
    start = time.perf_counter()
    index = build_index(vectors)
    built = time.perf_counter() - start
    saved = seconds(lambda: files.save_index(index))
    opened = files.index()
    assert opened is not None
    truth = nearest(vectors, np.arange(len(vectors)), queries, K).ids
    times = []
    found = []
    for query in queries:
        start = time.perf_counter()
        found.append(opened.nearest(vectors, query[None], K).ids[0])
        times.append(time.perf_counter() - start)
    name = f"index of {len(vectors):,} {kind}"
    size = (files.folder / "index.faiss").stat().st_size >> 20
    typical = f"{1000 * statistics.median(times):.2f} ms"
    row(f"{name}: one query, recall@10 {recall(np.stack(found), truth):.3f}", "–", typical, "≤ 20 ms, ≥ 0.95")
    row(f"{name}: build; save {saved:.1f} s, {size} MB", "–", f"{built:.1f} s", "≤ 15 s")
    done = subprocess.run(
        [sys.executable, "-c", AFTER_OPENING, str(folder)], capture_output=True, text=True, check=True
    )
    after_opening, after_use = done.stdout.split()
    work = f"{name}, and the vectors, memory-mapped: {after_opening} MB resident after opening"
    row(work, "–", f"{after_use} MB after 200 queries", "≤ 4 GB")


def graphs(kind: str, vectors: Floats, queries: Floats) -> None:
    """Our index and two graphs of the same vectors, each at its quickest setting with a recall of 0.95."""
    truth = nearest(vectors, np.arange(len(vectors)), queries, K).ids
    makers = {"ours": inverted_file, "faiss HNSW": faiss_graph, "usearch": usearch_graph}
    builds = {}
    searches = {}
    recalls = {}
    for name, make in makers.items():
        start = time.perf_counter()
        at = make(vectors)
        builds[name] = time.perf_counter() - start
        for setting in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            searches[name] = at(setting)
            recalls[name] = recall(run(searches[name], queries), truth)
            if recalls[name] >= RECALL:
                break
    ours = searches.pop("ours")
    for name, other in searches.items():
        compare_graph(f"{len(vectors):,} {kind}", name, ours, other, queries, builds, recalls)


def compare_graph(
    what: str,
    name: str,
    ours: Search,
    other: Search,
    queries: Floats,
    builds: dict[str, float],
    recalls: dict[str, float],
) -> None:
    ratio = alternate(lambda: run(ours, queries), lambda: run(other, queries))
    own = f"{1000 * ratio.ours / len(queries):.2f} ms"
    its = f"{1000 * ratio.reference / len(queries):.2f} ms"
    work = f"index of {what}, one query at recall@10 {recalls['ours']:.3f}: {own}"
    row(work, f"{name} at {recalls[name]:.3f}: {its}", ratio, "≥ 1.0")
    total = builds["ours"] + ratio.ours
    its_total = builds[name] + ratio.reference
    work = f"index of {what}, build and {len(queries)} queries: {total:.1f} s"
    row(work, f"{name}: {its_total:.1f} s", f"{its_total / total:.1f}", "≥ 1.0")


def inverted_file(vectors: Floats) -> Callable[[int], Search]:
    index = build_index(vectors)

    def at(probed: int) -> Search:
        def search(query: Floats) -> Ids:
            return np.asarray(index.nearest(vectors, query[None], K, probed).ids[0])

        return search

    return at


def faiss_graph(vectors: Floats) -> Callable[[int], Search]:
    graph = faiss.IndexHNSWFlat(D, 16, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = 40
    graph.add(vectors)

    def at(breadth: int) -> Search:
        def search(query: Floats) -> Ids:
            graph.hnsw.efSearch = breadth
            return np.asarray(graph.search(query[None], K)[1][0])

        return search

    return at


def usearch_graph(vectors: Floats) -> Callable[[int], Search]:
    graph: Any = Usearch(ndim=D, metric="ip", dtype="f32", connectivity=16, expansion_add=128)
    graph.add(np.arange(len(vectors)), vectors, threads=os.cpu_count() or 1)

    def at(breadth: int) -> Search:
        def search(query: Floats) -> Ids:
            graph.expansion_search = breadth
            return np.asarray(graph.search(query, K).keys, dtype=np.int64)

        return search

    return at


def run(search: Search, queries: Floats) -> Ids:
    """(queries, K) ids, one query at a time."""
    return np.stack([search(query) for query in queries])


def recall(found: Ids, truth: Ids) -> float:
    """The share of the truth that is found."""
    return float((found[:, :, None] == truth[:, None, :]).any(axis=2).mean())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
