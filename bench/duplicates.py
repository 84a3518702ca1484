"""Near duplicates: what re-saved, resized, cropped and brightened copies score, and what other images score.

    python bench/duplicates.py [archive] [--images N]

Every image of a sample is copied in each way and compared with its source: by the similarity of their frozen
vectors, and by the correlation of their pixels in small (``method.duplicates``). ``found`` is the share of
copies that the thresholds find. The last lines name the pairs of different files that are nearest to the
thresholds, to look at.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from anneal.archive.catalog import open_archive
from anneal.archive.decode import decode
from anneal.method.duplicates import CORRELATION, SIMILARITY, correlations, near
from anneal.method.neighbours import unit
from anneal.network import backbones, encode
from anneal.pairs import Pairs

Change = Callable[[Image.Image], Image.Image]


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def saved(quality: int) -> Change:
    def change(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return change


def resized(share: float) -> Change:
    return lambda image: image.resize((round(image.width * share), round(image.height * share)))


def cropped(share: float) -> Change:
    """Without this share of each side, at the left and at the top only: the worst place."""
    return lambda image: image.crop((round(image.width * share), round(image.height * share), *image.size))


def brighter(factor: float) -> Change:
    return lambda image: ImageEnhance.Brightness(image).enhance(factor)


CHANGES: dict[str, Change] = {
    "JPEG 90": saved(90),
    "JPEG 70": saved(70),
    "JPEG 50": saved(50),
    "95 % of the size": resized(0.95),
    "103 % of the size": resized(1.03),
    "brightness + 3 %": brighter(1.03),
    "brightness − 3 %": brighter(0.97),
    "cropped by 1 %": cropped(0.01),
    "cropped by 2 %": cropped(0.02),
    "cropped by 4 %": cropped(0.04),
}


def changed(path: Path, change: Change, px: int) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        file = io.BytesIO()
        change(image.convert("RGB")).convert("RGB").save(file, "PNG")
    return decode(file.getvalue(), px)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--backbone", default=backbones.DEFAULT)
    args = parser.parse_args()
    backbone = backbones.load(args.backbone)
    px = 224
    rng = np.random.default_rng(0)
    with TemporaryDirectory() as cache:
        archive = open_archive(args.archive, px, Path(cache))
        vectors = unit(encode.inputs(archive, backbone, "head"))
        sample = np.sort(rng.choice(len(archive), min(args.images, len(archive)), replace=False))
        print(row("copy", "similarity 1 %", "median", "correlation 1 %", "median", "found"))
        for name, change in CHANGES.items():
            pixels = np.stack([changed(archive.root / archive.paths[i], change, px) for i in sample.tolist()])
            copies = encode.query(pixels, backbone, "head", None, folder=archive.folder)
            s = (copies * vectors[sample]).sum(axis=1)
            c = correlations(np.asarray(archive.pixels[sample]), pixels)
            found = ((s >= SIMILARITY) & (c >= CORRELATION)).mean()
            figures = [*np.quantile(s, (0.01, 0.5)), *np.quantile(c, (0.01, 0.5))]
            print(row(name, *(f"{figure:.3f}" for figure in figures), f"{found:.1%}"), flush=True)
        everything = np.arange(len(archive))
        pairs, s, c = near(vectors, everything, everything, archive.pixels, similarity=0.9, correlation=-1.0)
        other = np.array([archive.digests[a] != archive.digests[b] for a, b in pairs], dtype=bool)
        pairs, s, c = Pairs(pairs.a[other], pairs.b[other]), s[other], c[other]
        print(f"{len(pairs)} pairs of different files with a similarity of 0.9 or more; the highest:")
        order = np.lexsort((-s, -np.minimum(s / SIMILARITY, c / CORRELATION)))[:25]
        for i in order.tolist():
            names = archive.paths[pairs.a[i]], archive.paths[pairs.b[i]]
            hit = "found" if s[i] >= SIMILARITY and c[i] >= CORRELATION else ""
            print(row(f"{s[i]:.3f}", f"{c[i]:.3f}", *names, hit))


if __name__ == "__main__":
    main()
