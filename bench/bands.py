"""What a network gains from bands beyond red, green and blue.

    python bench/bands.py

The archive is drawn: its kinds differ in the infrared only (``scenes.draw_infrared``). It is read with
several ``--bands`` and encoded by the frozen default network. Each image is a query among all others, and
mAP@5 by the kinds is printed. Chance is about 0.13.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from fit import quality  # beside this file

from anneal.archive.catalog import open_archive
from anneal.archive.reading import Reading
from anneal.experiments import scenes
from anneal.network import backbones

PX = 128
PER_KIND = 30


def main() -> None:
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        scenes.draw_infrared(folder / "archive", PER_KIND, seed=0, px=PX)
        print("| bands | mAP@5 |\n|---|---|")
        for bands in ("rgb", "nir", "all", "pca"):
            archive = open_archive(folder / "archive", PX, folder / bands, reading=Reading(bands=bands))
            network = backbones.for_bands(backbones.load(backbones.DEFAULT), archive.reading.kernels)
            print(f"| {bands} | {quality(archive, network):.3f} |", flush=True)


if __name__ == "__main__":
    main()
