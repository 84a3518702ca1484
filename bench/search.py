"""Search in 1 000 000 × 256 vectors: exact beside faiss's flat index, and by an inverted file beside graphs
(HNSW of faiss and of usearch). A graph of a million takes many minutes to build, so graphs, and our index
beside them, are of the first 200 000.

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

import faiss
import numpy as np
from sidebyside import alternate, row, seconds
from usearch.index import Index as Usearch

from anneal.campaign.rounds import Round
from anneal.method import neighbours
from anneal.method.neighbours import build_index, nearest
from anneal.pairs import Floats, Ids

D = 256
K = 10
QUERIES = 200
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
    with tempfile.TemporaryDirectory() as folder:
        files = Round.of(Path(folder), 0)
        queries = fill(files, n)
        exact(files.vectors(), queries)
        index_of_all(files, queries, Path(folder))
        graphs(np.array(files.vectors()[:GRAPH]), queries)


def fill(files: Round, n: int) -> Floats:
    """Save vectors around 500 centres, with neighbourhoods of few dimensions like those of trained vectors.
    Returns queries of the same kind."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(500, D))
    directions = rng.normal(size=(500, 24, D)) / np.sqrt(24)

    def some(m: int) -> Floats:
        which = rng.integers(0, 500, m)
        inside = np.einsum("mi,mid->md", rng.normal(size=(m, 24)), directions[which], optimize=False)
        near = centres[which] + 0.7 * inside + 0.2 * rng.normal(size=(m, D))
        return np.asarray(near / np.linalg.norm(near, axis=1, keepdims=True), dtype=np.float32)

    with files.new_vectors(n, D) as rows:
        for i in range(0, n, 5000):
            rows[i : i + 5000] = some(min(5000, n - i))
    return some(QUERIES)


def exact(vectors: Floats, queries: Floats) -> None:
    images = np.arange(len(vectors))
    flat = faiss.IndexFlatIP(D)
    flat.add(np.asarray(vectors))
    for some, repeats in ((queries[:1], 9), (queries, 5)):
        same = nearest(vectors, images, some, K).ids == flat.search(some, K)[1]
        assert same.mean() > 0.99
        ratio = alternate(
            lambda some=some: nearest(vectors, images, some, K),  # type: ignore[misc]
            lambda some=some: flat.search(some, K),  # type: ignore[misc]
            repeats,
        )
        name = "one query" if len(some) == 1 else f"{len(some)} queries"
        work = f"exact, {name} in {len(vectors):,} × {D}: {1000 * ratio.ours:.0f} ms"
        row(work, f"faiss IndexFlatIP: {1000 * ratio.reference:.0f} ms", ratio, "≥ 1.0")


def index_of_all(files: Round, queries: Floats, folder: Path) -> None:
    """The index as a round makes and serves it."""
    vectors = files.vectors()
    index = build_index(vectors)
    built = seconds(lambda: build_index(vectors))
    saved = seconds(lambda: files.save_index(index))
    opened = files.index()
    assert opened is not None
    truth = nearest(vectors, np.arange(len(vectors)), queries, K).ids

    def search(query: Floats) -> Ids:
        return np.asarray(opened.nearest(vectors, query[None], K).ids[0])

    size = (files.folder / "index.faiss").stat().st_size >> 20
    milliseconds = 1000 * typical(search, queries)
    work = f"index of {len(vectors):,}: one query {milliseconds:.2f} ms, recall@10 {recall(search, queries, truth):.3f}"
    row(work, "–", f"{milliseconds:.2f} ms", "≤ 20 ms, recall ≥ 0.95")
    row(f"index of {len(vectors):,}: build; save {saved:.1f} s, {size} MB", "–", f"{built:.1f} s", "≤ 15 s")
    done = subprocess.run(
        [sys.executable, "-c", AFTER_OPENING, str(folder)], capture_output=True, text=True, check=True
    )
    after_opening, after_use = done.stdout.split()
    work = f"index and vectors of {len(vectors):,}, memory-mapped: {after_opening} MB resident after opening"
    row(work, "–", f"{after_use} MB after 200 queries", "≤ 4 GB")


def graphs(vectors: Floats, queries: Floats) -> None:
    """Our index and two graphs of the same vectors, each at its quickest setting with a recall of 0.95."""
    truth = nearest(vectors, np.arange(len(vectors)), queries, K).ids
    start = time.perf_counter()
    index = build_index(vectors)
    own_build = time.perf_counter() - start

    def ours(probed: int) -> Search:
        def search(query: Floats) -> Ids:
            neighbours.PROBED = probed
            return np.asarray(index.nearest(vectors, query[None], K).ids[0])

        return search

    own = quickest(ours, (1, 2, 4, 8, 16), queries, truth)
    for name, make in (("faiss HNSW (16, 40)", faiss_graph), ("usearch (16, 128)", usearch_graph)):
        start = time.perf_counter()
        graph = make(vectors)
        build = time.perf_counter() - start
        other = quickest(graph, (10, 16, 32, 64, 128, 256), queries, truth)
        ratio = alternate(lambda: run(own, queries), lambda other=other: run(other, queries))  # type: ignore[misc]
        work = f"index of {len(vectors):,}, one query at recall@10 ≥ {RECALL} ({recall(own, queries, truth):.3f})"
        reference = f"{name}, recall {recall(other, queries, truth):.3f}"
        row(f"{work}: {per_query(ratio.ours)}", f"{reference}: {per_query(ratio.reference)}", ratio, "≥ 1.0")
        work = f"index of {len(vectors):,}, build and {QUERIES} queries: {own_build + ratio.ours:.1f} s"
        whole = (build + ratio.reference) / (own_build + ratio.ours)
        row(work, f"{name}: {build + ratio.reference:.1f} s", f"{whole:.1f}", "≥ 1.0")


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
    graph = Usearch(ndim=D, metric="ip", dtype="f32", connectivity=16, expansion_add=128)
    graph.add(np.arange(len(vectors)), vectors, threads=os.cpu_count() or 1)

    def at(breadth: int) -> Search:
        def search(query: Floats) -> Ids:
            graph.expansion_search = breadth
            return np.asarray(graph.search(query, K).keys, dtype=np.int64)

        return search

    return at


def quickest(at: Callable[[int], Search], settings: tuple[int, ...], queries: Floats, truth: Ids) -> Search:
    """The search at the first setting that finds enough, or at the last one."""
    for setting in settings:
        search = at(setting)
        if recall(search, queries, truth) >= RECALL:
            break
    return search


def recall(search: Search, queries: Floats, truth: Ids) -> float:
    found = [
        set(search(query).tolist()) & set(best) for query, best in zip(queries, truth.tolist(), strict=True)
    ]
    return sum(map(len, found)) / truth.size


def run(search: Search, queries: Floats) -> None:
    for query in queries:
        search(query)


def typical(search: Search, queries: Floats) -> float:
    """Median seconds of one query."""
    return statistics.median(seconds(lambda query=query: search(query)) for query in queries)  # type: ignore[misc]


def per_query(total: float) -> str:
    return f"{1000 * total / QUERIES:.2f} ms"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
