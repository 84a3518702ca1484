"""Encoding and mining on two Ray nodes of one CPU each, against one such node.

    python bench/cluster.py

Both nodes are processes of this machine and share its cores with the process that collects the results, so
the ratio is what this machine allows, not what two machines would reach. There is a cluster of one node and
one of two, and this process connects to them in turn; the work is done once before it is timed. Both sides
must give the same result.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from mining import P, clustered, some_known
from ray.cluster_utils import Cluster as Machines
from sidebyside import Ratio, row, seconds

from anneal import cluster
from anneal.archive.catalog import Archive, open_archive
from anneal.experiments import scenes
from anneal.method.similarity import Similarity
from anneal.method.tiles import mine_near
from anneal.network import backbones, encode, onnx
from anneal.work import Workers

PX = 224
IMAGES = 192
VECTORS = 60_000
BLOCK = 16  # images of a task: few, so that both nodes end at about the same time
TURNS = 3
BACKBONE = backbones.load(backbones.DEFAULT, "cpu")
Work = Callable[[Workers], bytes]
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 300_000_000}


def main(scratch: Path) -> None:
    os.environ.update(cluster.ENVIRONMENT)
    images, model = archive_and_export(scratch)
    np.save(scratch / "vectors.npy", clustered(VECTORS, 256))
    numbers = count()
    works: dict[str, Work] = {
        f"encoding {IMAGES} images, two views": lambda workers: features(
            images, model, scratch / str(next(numbers)), workers
        ),
        f"mining all pairs of {VECTORS} × 256 vectors, clustered": lambda workers: mined(
            scratch / "vectors.npy", workers
        ),
    }
    clusters = {nodes: started(nodes) for nodes in (1, 2)}
    times: dict[tuple[str, int], list[float]] = {(name, nodes): [] for name in works for nodes in clusters}
    results: dict[str, set[bytes]] = {name: set() for name in works}
    for turn in range(TURNS):
        for nodes in sorted(clusters, reverse=bool(turn % 2)):
            with cluster.workers(clusters[nodes].address) as workers:
                assert workers is not None
                for name, work in works.items():
                    results[name].add(work(workers))  # starts the processes
                    times[name, nodes].append(seconds(partial(work, workers)))
    for name in works:
        assert len(results[name]) == 1, "one node and two give different results"
        two = times[name, 2]
        one = times[name, 1]
        ratio = Ratio(tuple(b / a for a, b in zip(two, one, strict=True)), median(two), median(one))
        where = (
            f"two Ray nodes of one CPU, both on this machine of {os.cpu_count()} cores; {ratio.ours:.1f} s"
        )
        row(f"{name}: {where}", f"one node of one CPU; {ratio.reference:.1f} s", ratio, "reported")
    for machines in clusters.values():
        machines.shutdown()  # type: ignore[no-untyped-call]


def started(nodes: int) -> Machines:
    machines = Machines(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    for _ in range(nodes - 1):
        machines.add_node(**NODE)
    return machines


def archive_and_export(scratch: Path) -> tuple[Archive, Path]:
    encode.SAVED = BLOCK
    images = open_archive(scenes.drawn(scratch / "drawn", IMAGES // 8, 0, PX), PX, scratch / "cache")
    model = scratch / "model.onnx"
    model.write_bytes(onnx.export(BACKBONE, "head", images.pixels[:1]))
    return images, model


def features(archive: Archive, model: Path, folder: Path, workers: Workers) -> bytes:
    """Encode the archive into a new folder, with an export made before."""
    folder.mkdir()
    onnx.file_of(folder, BACKBONE, "head", PX).symlink_to(model)
    made = encode.inputs(replace(archive, folder=folder), BACKBONE, "head", workers=workers)
    return made.tobytes()


def mined(file: Path, workers: Workers) -> bytes:
    """The vectors are in a file, as those of a round are."""
    vectors = np.load(file, mmap_mode="r")
    measure = Similarity.of(vectors, 0.5, P)
    rng = np.random.default_rng(2)
    found = mine_near(measure, np.arange(VECTORS), some_known(VECTORS), P, rng, workers=workers)
    return found.pairs.a.tobytes() + found.pairs.b.tobytes() + found.scores.tobytes()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
