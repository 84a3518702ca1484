"""A training step on images (each encoded once, every known pair among them) against the same pairs
encoded two by two, and against the frozen features computed again instead of kept. Ratios, one run.

    python bench/training.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F

from anneal.network import backbones
from anneal.network.losses import contrastive
from anneal.network.model import Encoder, Shape, frozen


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main(images: int = 128, classes: int = 12) -> None:
    rng = np.random.default_rng(0)
    backbone = backbones.load("efficientnet-lite0")
    encoder = Encoder(backbone, "head", 1280, Shape(anchored=False))
    x = torch.from_numpy(rng.normal(size=(images, 1280)).astype(np.float32))
    labels = rng.integers(classes, size=images)
    known = torch.from_numpy(np.where(labels[:, None] == labels[None, :], 1, 2).astype(np.int8))
    i, j = torch.triu_indices(images, images, 1)

    def on_images() -> None:
        z = encoder(x)[1]
        contrastive(z @ z.T, known).backward()  # type: ignore[no-untyped-call]

    def on_pairs() -> None:
        s = (encoder(x[i])[1] * encoder(x[j])[1]).sum(dim=1)
        similar = known[i, j] == 1
        loss = ((1 - s)[similar].mean() + F.relu(s - 0.5)[~similar].mean()) / 2
        loss.backward()

    pixels = torch.from_numpy(rng.integers(0, 256, (16, 224, 224, 3), dtype=np.uint8))
    network = frozen(backbone, "head")

    @torch.inference_mode()
    def encode() -> None:
        network(backbone.normalise(pixels))

    step = seconds(on_images)
    print(f"{images} images, {len(i)} pairs")
    print(f"pair by pair / on images:     {seconds(on_pairs) / step:.1f} x the time")
    print(f"encoding them again / step:   {seconds(encode, 2) * images / 16 / step:.1f} x the time")


if __name__ == "__main__":
    main()
