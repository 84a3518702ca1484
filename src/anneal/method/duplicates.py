"""Images that show the same picture: copies that were saved again, resized, cropped a little or brightened.

The nearest images in the frozen space are candidates, and their pixels in small decide. Vectors alone would
not do: how similar different images are depends on the network. The thresholds are measured by
``bench/duplicates.py``.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anneal.method.neighbours import Index, build_index, nearest
from anneal.pairs import Floats, Ids, Pair, Pairs
from anneal.watch import Progress, silent

SIMILARITY = 0.95  # of the frozen vectors, at least
CORRELATION = 0.95  # of the pixels in small, at least
SMALL = 16  # pixels: the side of a small picture
CANDIDATES = 5  # nearest images that an image is compared with
BLOCK = 512  # images at a time
EXACT = 20_000  # images: past it candidates come from an index


def near(
    vectors: Floats,
    images: Ids,
    new: Ids,
    pixels: NDArray[np.uint8],
    progress: Progress = silent,
    *,
    similarity: float = SIMILARITY,
    correlation: float = CORRELATION,
) -> tuple[Pairs, Floats, Floats]:
    """Pairs of a ``new`` image and another of ``images`` that show the same picture, with the similarity of
    their ``vectors`` and the correlation of their ``pixels``. ``new`` is a part of the sorted ``images``."""
    index = build_index(vectors) if len(images) > EXACT else None
    found: dict[Pair, tuple[float, float]] = {}
    for i in range(0, len(new), BLOCK):
        some = new[i : i + BLOCK]
        ids, scores = _candidates(vectors, images, some, index)
        rows, columns = np.nonzero((scores >= similarity) & (ids != some[:, None]) & np.isin(ids, images))
        pairs = Pairs.of(some[rows], ids[rows, columns])
        alike = correlations(pixels[pairs.a], pixels[pairs.b])
        for pair, s, c in zip(pairs, scores[rows, columns].tolist(), alike.tolist(), strict=True):
            if c >= correlation:
                found[pair] = s, c
        progress(min(i + BLOCK, len(new)), len(new))
    figures = np.array(list(found.values()), dtype=np.float32).reshape(-1, 2)
    return Pairs.from_list(found), figures[:, 0], figures[:, 1]


def _candidates(vectors: Floats, images: Ids, some: Ids, index: Index | None) -> tuple[Ids, Floats]:
    queries = np.asarray(vectors[some])
    if index is None:
        ranking = nearest(vectors, images, queries, CANDIDATES + 1)
    else:
        ranking = index.nearest(vectors, queries, CANDIDATES + 1)
    return ranking.ids, ranking.scores


def correlations(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> Floats:
    """(m, px, px, 3) images, two and two → (m,) the correlation of their pixels in small. Two plain areas of
    about the same colour correlate fully, and a plain area with nothing else."""
    a = _small(one)
    b = _small(other)
    spread = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    plain = np.minimum(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)) < SMALL
    same = np.abs(one.mean(axis=(1, 2, 3)) - other.mean(axis=(1, 2, 3))) < 2
    both = np.maximum(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)) < SMALL
    return np.where(plain, (both & same).astype(np.float32), (a * b).sum(axis=1) / np.maximum(spread, 1e-6))


def _small(pixels: NDArray[np.uint8]) -> Floats:
    """(m, px, px, 3) → (m, SMALL² · 3) means of cells, less the mean of the image."""
    m, px = pixels.shape[:2]
    edges = np.linspace(0, px, min(SMALL, px) + 1).astype(int)
    rows = np.add.reduceat(pixels.astype(np.float32), edges[:-1], axis=1)
    cells = np.add.reduceat(rows, edges[:-1], axis=2)
    area = np.outer(np.diff(edges), np.diff(edges)).astype(np.float32)
    small = (cells / area[None, :, :, None]).reshape(m, -1)
    return np.asarray(small - small.mean(axis=1, keepdims=True))
