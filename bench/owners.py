"""Other owners of the same images: manifests that say of each image what another person would call it.

    python bench/owners.py coarse UCMerced/ coarse.csv   # 21 classes seen as 11 kinds
    python bench/owners.py fine AID150/ fine.csv         # every class parted by how green its images are
    python bench/owners.py tail UCMerced/ tail.csv       # training classes of 80 … 5 images, by a power law

A manifest stands for an archive: `anneal simulate coarse.csv --strategy place,mgue`.
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

KINDS = {
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
"""UC-Merced as somebody sees it who does not care for the finer differences."""
PER_CLASS = 100  # images of each class that the finer owner has
RAREST = 5
Line = tuple[str, str, str]


def by_class(root: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in scan(root)[1]:
        found.setdefault(entry.label, []).append(entry.path)
    return found


def coarse(root: Path, rng: np.random.Generator) -> Iterator[Line]:
    for label, paths in by_class(root).items():
        yield from ((path, KINDS.get(label, label), "") for path in paths)


def fine(root: Path, rng: np.random.Generator) -> Iterator[Line]:
    """Half of each class is called green: what a backbone has no reason to tell apart."""
    for label, paths in by_class(root).items():
        some = [paths[i] for i in np.sort(rng.permutation(len(paths))[:PER_CLASS])]
        green = np.array([greenness(root / path) for path in some])
        for path, rank in zip(some, np.argsort(np.argsort(green)), strict=True):
            yield path, f"{label}, {'green' if rank >= len(some) / 2 else 'not green'}", ""


def greenness(path: Path) -> float:
    with Image.open(path) as image:
        pixels: Floats = np.asarray(image.convert("RGB").resize((32, 32)), dtype=np.float64)
    red, green, blue = pixels.reshape(-1, 3).mean(axis=0)
    return float(green - (red + blue) / 2)


def tail(root: Path, rng: np.random.Generator) -> Iterator[Line]:
    """A long tail to learn from; the images to measure with are as many of each class."""
    every = by_class(root)
    for rank, label in enumerate(rng.permutation(sorted(every)).tolist(), start=1):
        paths = [every[label][i] for i in rng.permutation(len(every[label]))]
        tenth = len(paths) // 10
        most = len(paths) - 2 * tenth
        wanted = max(round(most * rank ** -(math.log(most / RAREST) / math.log(len(every)))), RAREST)
        parts = {"val": paths[:tenth], "test": paths[tenth : 2 * tenth], "train": paths[2 * tenth :][:wanted]}
        yield from ((path, label, part) for part, some in parts.items() for path in some)


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
        for path, label, part in lines:
            table.writerow((os.path.relpath(args.archive / path, args.manifest.parent), label, part))
    print(f"{len(lines)} images of {len({label for _, label, _ in lines})} kinds in {args.manifest}")


if __name__ == "__main__":
    main()
