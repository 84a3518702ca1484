"""Which way of making an image square is the best default?

    python bench/fit.py UCMerced/

Every training image is cut to a shape that is not square: 2:1, 3:2, 2:3 or 1:2, drawn by seed. The copies are
read with each ``--fit`` and encoded by the frozen default network. Each copy is a query among all others, and
mAP@5 by the classes is printed. No image of validation or test is used.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from anneal.archive.catalog import Archive, open_archive
from anneal.archive.reading import Reading
from anneal.experiments.oracle import split_of
from anneal.method import metrics
from anneal.method.neighbours import nearest, unit
from anneal.network import backbones, encode

FITS = ("squash", "crop", "pad")
SHAPES = ((1.0, 0.5), (1.0, 2 / 3), (2 / 3, 1.0), (0.5, 1.0))  # shares of width and height


def cut(archive: Archive, images: list[int], folder: Path, seed: int) -> None:
    """Copies that are not square, in folders by class."""
    rng = np.random.default_rng(seed)
    for i in images:
        share = SHAPES[rng.integers(len(SHAPES))]
        with Image.open(archive.root / archive.paths[i]) as image:
            width, height = (round(side * part) for side, part in zip(image.size, share, strict=True))
            left = int(rng.integers(image.width - width + 1))
            top = int(rng.integers(image.height - height + 1))
            copy = image.convert("RGB").crop((left, top, left + width, top + height))
        file = folder / archive.labels[i] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        copy.save(file)


def quality(archive: Archive, backbone: backbones.Backbone) -> float:
    """mAP@5 of the frozen features: every image is a query among the others."""
    vectors = unit(encode.inputs(archive, backbone, "head"))
    ids = np.arange(len(archive))
    ranking = nearest(vectors, ids, vectors, 6)
    classes = archive.classes
    scores = []
    for query in ids:
        found = ranking.ids[query][ranking.ids[query] != query][:5]
        relevant = (classes[found] == classes[query])[None]
        total = np.array([(classes == classes[query]).sum() - 1])
        scores.append(metrics.average_precision(relevant, total, "min"))
    return metrics.mean(np.concatenate(scores))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--px", type=int, default=224)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    backbone = backbones.load(backbones.DEFAULT)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        whole = open_archive(given.data, given.px, folder / "whole")
        cut(whole, split_of(whole, given.seed).train.tolist(), folder / "copies", given.seed)
        print("| fit | mAP@5 |\n|---|---|")
        for fit in FITS:
            archive = open_archive(folder / "copies", given.px, folder / fit, reading=Reading(fit=fit))
            print(f"| {fit} | {quality(archive, backbone):.3f} |", flush=True)


if __name__ == "__main__":
    main()
