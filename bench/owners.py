"""Manifests that give the same images the classes that another owner would give them.

    python bench/owners.py coarse UCMerced/ coarse.csv   # 21 classes become 11
    python bench/owners.py fine AID150/ fine.csv         # each class in two: greener, less green
    python bench/owners.py tail UCMerced/ tail.csv       # classes of 80 to 5 training images

Use a manifest as an archive: `anneal simulate coarse.csv --strategy place,mgue`.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from anneal.archive.catalog import scan
from anneal.pairs import Floats

COARSE = {
    "denseresidential": "residential",
    "mediumresidential": "residential",
    "sparseresidential": "residential",
    "mobilehomepark": "residential",
    "buildings": "built",
    "storagetanks": "built",
    "freeway": "road",
    "intersection": "road",
    "overpass": "road",
    "airplane": "airport",
    "runway": "airport",
    "baseballdiamond": "sport",
    "golfcourse": "sport",
    "tenniscourt": "sport",
    "chaparral": "wild",
    "forest": "wild",
}
"""UC-Merced's classes, for an owner who does not care about finer differences. Others keep their name."""
PER_CLASS = 100  # images of each class in ``fine``
RAREST = 5  # training images of the rarest class in ``tail``
Line = tuple[str, str, str]  # path, class, split


def by_class(root: Path) -> dict[str, list[str]]:
    """Class → the paths of its images."""
    classes: dict[str, list[str]] = {}
    for entry in scan(root)[1]:
        classes.setdefault(entry.label, []).append(entry.path)
    return classes


def coarse(root: Path, rng: np.random.Generator) -> Iterator[Line]:
    for label, paths in by_class(root).items():
        for path in paths:
            yield path, COARSE.get(label, label), ""


def fine(root: Path, rng: np.random.Generator) -> Iterator[Line]:
    """The greener half of each class is a class of its own. A backbone hardly separates the two."""
    for label, paths in by_class(root).items():
        some = [paths[i] for i in np.sort(rng.permutation(len(paths))[:PER_CLASS])]
        green = np.array([greenness(root / path) for path in some])
        for path, rank in zip(some, np.argsort(np.argsort(green)), strict=True):
            half = "green" if rank >= len(some) / 2 else "not green"
            yield path, f"{label}, {half}", ""


def greenness(path: Path) -> float:
    """Mean of green minus the mean of red and blue."""
    with Image.open(path) as image:
        pixels: Floats = np.asarray(image.convert("RGB").resize((32, 32)), dtype=np.float64)
    red, green, blue = pixels.reshape(-1, 3).mean(axis=0)
    return float(green - (red + blue) / 2)


def tail(root: Path, rng: np.random.Generator) -> Iterator[Line]:
    """Training classes shrink by a power law. Every class has equally many images to validate and to test."""
    every = by_class(root)
    for rank, label in enumerate(rng.permutation(sorted(every)).tolist(), start=1):
        paths = [every[label][i] for i in rng.permutation(len(every[label]))]
        tenth = len(paths) // 10
        most = len(paths) - 2 * tenth
        exponent = math.log(most / RAREST) / math.log(len(every))
        wanted = max(round(most * rank**-exponent), RAREST)
        splits = {
            "val": paths[:tenth],
            "test": paths[tenth : 2 * tenth],
            "train": paths[2 * tenth :][:wanted],
        }
        for split, some in splits.items():
            for path in some:
                yield path, label, split


def main() -> None:
    owners = {"coarse": coarse, "fine": fine, "tail": tail}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("owner", choices=owners)
    parser.add_argument("archive", type=Path)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.manifest.parent.mkdir(parents=True, exist_ok=True)
    lines = sorted(owners[args.owner](args.archive, np.random.default_rng(args.seed)))
    with args.manifest.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("path", "class", "split"))
        for path, label, split in lines:
            table.writerow((os.path.relpath(args.archive / path, args.manifest.parent), label, split))
    classes = {label for _, label, _ in lines}
    print(f"{len(lines)} images of {len(classes)} classes in {args.manifest}")


if __name__ == "__main__":
    main()
