"""From image files to frozen features, two views each, against two references in the same run: the network in
eager torch, decode included, and ONNX Runtime on tensors that are ready, which is the limit.

    python bench/encoding.py [folder]     # default: ../shared/data/UCMerced, or drawn scenes without it

The sides take turns on 300 files. Each reference runs in the way that is fastest here, found before. The
export is made once for an archive; its seconds are printed apart.
"""

from __future__ import annotations

import csv
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from sidebyside import alternate, row, seconds

from anneal.archive.catalog import open_archive, scan
from anneal.archive.decode import read_image
from anneal.experiments import scenes
from anneal.network import backbones, encode, onnx
from anneal.network.backbones import Backbone
from anneal.network.model import frozen
from anneal.pairs import Floats

PX = 224
FILES = 300  # of a turn
BATCHES = (1, 2, 4, 8, 32)
UC_MERCED = Path(__file__).parents[2] / "shared" / "data" / "UCMerced"
Pixels = NDArray[np.uint8]
Run = Callable[[Pixels], Floats]  # (m, px, px, 3) → (m, d)


def main(folder: Path | None, scratch: Path) -> None:
    if folder is None:
        folder = UC_MERCED if UC_MERCED.is_dir() else scenes.drawn(scratch / "drawn", 50, 0, 256)
    root, entries = scan(folder)
    files = [root / entry.path for entry in entries]
    turn = files[:: max(1, len(files) // FILES)][:FILES]
    backbone = backbones.load(backbones.DEFAULT, "cpu")
    views = two_views(decoded(turn))
    model, exporting = exported(backbone, scratch)
    torch_name, torch_run = fastest(views[:64], torch_runs(backbone))
    limit_name, limit = fastest(views[:64], onnx_runs(model))
    numbers = count()

    def ours() -> Floats:
        return features(turn, backbone, model, scratch / str(next(numbers)))

    expected = torch_run(views).reshape(len(turn), 2, -1).mean(axis=1)
    print(f"largest difference of a feature from torch's: {np.abs(ours() - expected).max():.1e}", flush=True)
    what = f"{len(turn)} JPEG files to features, two views, decode included"
    ratio = alternate(ours, lambda: torch_run(two_views(decoded(turn))), repeats=3, warm_up=False)
    row(what, f"eager torch, {torch_name}, decode included", ratio, "≥ 4")
    ratio = alternate(ours, lambda: limit(views), warm_up=False)
    row(what, f"ONNX Runtime on ready tensors, {limit_name}", ratio, "≥ 0.9")
    every = seconds(lambda: features(files, backbone, None, scratch / "all"))
    print(f"{len(files)} files from nothing: {every:.0f} s, about {exporting:.0f} s of them for the export")


def features(files: list[Path], backbone: Backbone, model: Path | None, cache: Path) -> Floats:
    """What ``anneal init`` does: read the files, then encode them. ``model`` is an export made before."""
    cache.mkdir()
    listing = cache / "files.csv"
    with listing.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([["path"], *([str(file.resolve())] for file in files)])
    archive = open_archive(listing, PX, cache)
    if model is not None:
        onnx.file_of(archive.folder, backbone, "head", PX).symlink_to(model)
    made: Floats = np.array(encode.inputs(archive, backbone, "head"))
    shutil.rmtree(cache)
    return made


def decoded(files: list[Path]) -> Pixels:
    """The same files in memory, by as many threads as ``open_archive`` has."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        images = [outcome.pixels for outcome in pool.map(lambda file: read_image(file, PX), files)]
    return np.stack([image for image in images if image is not None])


def two_views(pixels: Pixels) -> Pixels:
    """(m, …) → (2m, …): each image, then the image turned by a quarter."""
    both = np.stack([pixels, np.rot90(pixels, 1, axes=(1, 2))], axis=1)
    return both.reshape(-1, *pixels.shape[1:])


def exported(backbone: Backbone, scratch: Path) -> tuple[Path, float]:
    """The file of an export, and the seconds it took."""
    made: list[bytes] = []
    took = seconds(lambda: made.append(onnx.export(backbone, "head", np.zeros((1, PX, PX, 3), np.uint8))))
    file = scratch / "model.onnx"
    file.write_bytes(made[0])
    return file, took


def torch_runs(backbone: Backbone) -> dict[str, Run]:
    part = frozen(backbone, "head")

    @torch.inference_mode()
    def run(pixels: Pixels, batch: int) -> Floats:
        parts = np.split(pixels, range(batch, len(pixels), batch))
        return np.concatenate([part(encode.prepare(one, backbone)).numpy() for one in parts])

    return {f"batches of {batch}": partial(run, batch=batch) for batch in BATCHES}


def onnx_runs(model: Path) -> dict[str, Run]:
    """ONNX Runtime with all its threads on one batch, or with one thread per run. Threads that wait do not
    spin: beside other work on the machine that would slow down the reference, which is to be the limit."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    plain = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    single = onnx.Session(model)

    def run(pixels: Pixels, batch: int) -> Floats:
        parts = np.split(pixels, range(batch, len(pixels), batch))
        return np.concatenate([plain.run(None, {"pixels": one})[0] for one in parts])

    runs: dict[str, Run] = {f"batches of {batch}": partial(run, batch=batch) for batch in BATCHES}
    return {**runs, "one view a thread": lambda pixels: single(pixels, 1)}


def fastest(pixels: Pixels, runs: dict[str, Run]) -> tuple[str, Run]:
    """The quickest of these, by the best of two runs of each."""
    times = {}
    for name, run in runs.items():
        work = partial(run, pixels)
        times[name] = min(seconds(work), seconds(work))
    name = min(times, key=times.__getitem__)
    print(", ".join(f"{name}: {len(pixels) / time:.0f}/s" for name, time in times.items()), flush=True)
    return name, runs[name]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else None, Path(scratch))
