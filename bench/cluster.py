"""Encoding and mining on two Ray nodes of one CPU each, against one such node.

    python bench/cluster.py

Both nodes are processes of this machine and share its cores with the process that collects the results, so
the ratio is what this machine allows, not what two machines would reach. On the side with one node, a task
that only sleeps holds the CPU of the other. Both sides must give the same result.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from mining import P, clustered, some_known
from ray.cluster_utils import Cluster as Machines
from sidebyside import alternate, row

from anneal import cluster
from anneal.archive.catalog import Archive, open_archive
from anneal.experiments import scenes
from anneal.method.mining import Mined
from anneal.method.similarity import Similarity
from anneal.method.tiles import mine_near
from anneal.network import backbones, encode, onnx
from anneal.network.backbones import Backbone
from anneal.work import Workers

PX = 224
IMAGES = 640
VECTORS = 40_000
BLOCK = 32  # images of a task: few, so that both nodes end at about the same time
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 300_000_000}


def main(scratch: Path) -> None:
    os.environ.update(cluster.ENVIRONMENT)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    machines = Machines(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    machines.add_node(**NODE)
    with cluster.workers(machines.address) as workers:
        assert workers is not None
        compare(f"encoding {IMAGES} images, two views", encoding(scratch, workers), workers, scratch)
        work = f"mining all pairs of {VECTORS} × 256 vectors, clustered"
        compare(work, mining(scratch, workers), workers, scratch)
    machines.shutdown()  # type: ignore[no-untyped-call]


def compare(name: str, work: Callable[[], bytes], workers: Workers, scratch: Path) -> None:
    results: set[bytes] = set()

    def on_two() -> None:
        results.add(work())

    def on_one() -> None:
        with one_cpu_held(workers, scratch):
            results.add(work())

    ratio = alternate(on_two, on_one, repeats=3)
    assert len(results) == 1, "one node and two give different results"
    where = f"two Ray nodes of one CPU, both on this machine of {os.cpu_count()} cores; {ratio.ours:.1f} s"
    row(f"{name}: {where}", f"one node of one CPU; {ratio.reference:.1f} s", ratio, "reported")


@contextmanager
def one_cpu_held(workers: Workers, scratch: Path) -> Iterator[None]:
    """One CPU of the cluster is taken by a task that sleeps."""
    begun = scratch / "begun"
    ended = scratch / "ended"
    begun.unlink(missing_ok=True)
    ended.unlink(missing_ok=True)
    held = workers.submit("holding a CPU", sleep_until, (begun, ended))
    while not begun.exists():
        time.sleep(0.01)
    yield
    ended.touch()
    held.result()


def sleep_until(files: tuple[Path, Path]) -> None:
    begun, ended = files
    begun.touch()
    while not ended.exists():
        time.sleep(0.02)


def encoding(scratch: Path, workers: Workers) -> Callable[[], bytes]:
    encode.SAVED = BLOCK
    images = open_archive(scenes.drawn(scratch / "drawn", IMAGES // 8, 0, PX), PX, scratch / "cache")
    backbone = backbones.load(backbones.DEFAULT, "cpu")
    model = scratch / "model.onnx"
    model.write_bytes(onnx.export(backbone, "head", images.pixels[:1]))
    numbers = count()
    return lambda: features(images, backbone, model, scratch / str(next(numbers)), workers)


def features(archive: Archive, backbone: Backbone, model: Path, folder: Path, workers: Workers) -> bytes:
    """Encode the archive into a new folder, with an export made before."""
    folder.mkdir()
    onnx.file_of(folder, backbone, "head", PX).symlink_to(model)
    made = encode.inputs(replace(archive, folder=folder), backbone, "head", workers=workers)
    return made.tobytes()


def mining(scratch: Path, workers: Workers) -> Callable[[], bytes]:
    """The vectors are in a file, as those of a round are."""
    np.save(scratch / "vectors.npy", clustered(VECTORS, 256))
    vectors = np.load(scratch / "vectors.npy", mmap_mode="r")
    known = some_known(VECTORS)

    def work() -> bytes:
        measure = Similarity.of(vectors, 0.5, P)
        rng = np.random.default_rng(2)
        return as_bytes(mine_near(measure, np.arange(VECTORS), known, P, rng, workers=workers))

    return work


def as_bytes(mined: Mined) -> bytes:
    return mined.pairs.a.tobytes() + mined.pairs.b.tobytes() + mined.scores.tobytes()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
