"""A training step on images: each image is encoded once, and every known pair among them counts. Its peers,
measured in the same run: the same pairs encoded two by two, and the frozen features computed again for these
images instead of read from disk.

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
from anneal.pairs import Verdict


def seconds(work: Callable[[], None], repeats: int = 5) -> float:
    """The shortest of several runs, after one that does not count."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main(images: int = 128, classes: int = 12, encoded: int = 16) -> None:
    rng = np.random.default_rng(0)
    backbone = backbones.load("efficientnet-lite0")
    encoder = Encoder(backbone, "head", 1280, Shape(anchored=False))
    x = torch.from_numpy(rng.normal(size=(images, 1280)).astype(np.float32))
    labels = rng.integers(classes, size=images)
    same = labels[:, None] == labels[None, :]
    known = torch.from_numpy(np.where(same, Verdict.SIMILAR, Verdict.DISSIMILAR).astype(np.int8))
    i, j = torch.triu_indices(images, images, 1)

    def on_images() -> None:
        z = encoder(x)[1]
        contrastive(z @ z.T, known).backward()  # type: ignore[no-untyped-call]

    def on_pairs() -> None:
        s = (encoder(x[i])[1] * encoder(x[j])[1]).sum(dim=1)
        similar = known[i, j] == Verdict.SIMILAR
        loss = ((1 - s)[similar].mean() + F.relu(s - 0.5)[~similar].mean()) / 2
        loss.backward()

    pixels = torch.from_numpy(rng.integers(0, 256, (encoded, 224, 224, 3), dtype=np.uint8))
    network = frozen(backbone, "head")

    @torch.inference_mode()
    def encode() -> None:
        network(backbone.normalise(pixels))

    step = seconds(on_images)
    print(f"{images} images, {len(i)} pairs")
    print(f"pair by pair / on images:     {seconds(on_pairs) / step:.1f} x the time")
    print(f"encoding them again / step:   {seconds(encode, 2) * images / encoded / step:.1f} x the time")


if __name__ == "__main__":
    main()
