"""Images that show the same picture: copies that were saved again, resized, cropped a little or brightened.

The nearest images in the frozen space are candidates, and their pixels in small decide. Vectors alone would
not do: how similar different images are depends on the network. The thresholds are measured by
``bench/duplicates.py``.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from anneal.method.neighbours import Index, build_index, nearest
from anneal.pairs import Floats, Ids, Pair, Pairs
from anneal.watch import Progress, silent

SIMILARITY = 0.9  # of the frozen vectors, at least
CORRELATION = 0.95  # of the pixels in small, at least; two runways of UC-Merced come to 0.94
SMALL = 16  # pixels: the side of a small picture
PLAIN = 16.0  # a small picture with less contrast than this is a plain area
CANDIDATES = 5  # nearest images that an image is compared with
BLOCK = 512  # images whose candidates are found at a time
PICTURES = 64  # pairs of pictures in memory
EXACT = 20_000  # images: when more are compared with each other, candidates come from an index


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
    index = build_index(vectors) if len(images) * len(new) > EXACT**2 else None
    present = np.zeros(len(vectors), dtype=bool)
    present[images] = True
    found: dict[Pair, tuple[float, float]] = {}
    for i in range(0, len(new), BLOCK):
        some = new[i : i + BLOCK]
        ids, scores = _candidates(vectors, images, some, index)
        rows, columns = np.nonzero((scores >= similarity) & (ids != some[:, None]) & present[ids])
        pairs = Pairs.of(some[rows], ids[rows, columns])
        found |= _alike(pairs, scores[rows, columns], pixels, correlation)
        progress(min(i + BLOCK, len(new)), len(new))
    figures = np.array(list(found.values()), dtype=np.float32).reshape(-1, 2)
    return Pairs.from_list(found), figures[:, 0], figures[:, 1]


def _alike(
    pairs: Pairs, scores: Floats, pixels: NDArray[np.uint8], least: float
) -> dict[Pair, tuple[float, float]]:
    """The pairs with at least this correlation, with their score and it."""
    found: dict[Pair, tuple[float, float]] = {}
    for i in range(0, len(pairs), PICTURES):
        some = pairs[i : i + PICTURES]
        alike = correlations(pixels[some.a], pixels[some.b])
        figures = zip(some, scores[i : i + PICTURES].tolist(), alike.tolist(), strict=True)
        found |= {pair: (s, c) for pair, s, c in figures if c >= least}
    return found


def represented(
    same: Iterable[Sequence[int]], near: Iterable[Pair], gone: Collection[int], kept: Collection[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """The images that another one stands for, with that one: those of the ``same`` bytes, and those that only
    show the same picture. The smallest id stands for the others. Images that are ``gone`` stand for none, and
    ``kept`` ones stand for themselves unless their bytes are the same."""
    exact: dict[int, int] = {}
    for group in same:
        first, *others = [image for image in group if image not in gone] or [-1]
        exact.update(dict.fromkeys(others, first))
    smaller: dict[int, list[int]] = defaultdict(list)
    for a, b in near:
        smaller[b].append(a)
    alike: dict[int, int] = {}
    for image in sorted(smaller):
        if image in gone or image in kept or image in exact:
            continue
        # Not one that is represented itself: else a chain of small changes would join different pictures.
        standing = [a for a in smaller[image] if not (a in gone or a in exact or a in alike)]
        if standing:
            alike[image] = min(standing)
    return {image: alike.get(of, of) for image, of in exact.items()}, alike


def _candidates(vectors: Floats, images: Ids, some: Ids, index: Index | None) -> tuple[Ids, Floats]:
    queries = np.asarray(vectors[some])
    if index is None:
        ranking = nearest(vectors, images, queries, CANDIDATES + 1)
    else:
        ranking = index.nearest(vectors, queries, CANDIDATES + 1)
    return ranking.ids, ranking.scores


def correlations(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> Floats:
    """(m, px, px, bands) images, two and two → (m,) the correlation of their pixels in small. Colours do not
    count, only where they change: two plain areas correlate fully if their colours are about the same, and a
    plain area correlates with nothing else."""
    a, colour_a = _small(one)
    b, colour_b = _small(other)
    length_a = np.linalg.norm(a, axis=1)
    length_b = np.linalg.norm(b, axis=1)
    cosine = (a * b).sum(axis=1) / np.maximum(length_a * length_b, 1e-6)
    same = (np.maximum(length_a, length_b) < PLAIN) & (np.abs(colour_a - colour_b).max(axis=1) < 2)
    return np.asarray(np.where(np.minimum(length_a, length_b) < PLAIN, same.astype(np.float32), cosine))


def _small(pixels: NDArray[np.uint8]) -> tuple[Floats, Floats]:
    """(m, px, px, bands) → (m, cells · bands) means of SMALL × SMALL cells, less the colour of the image; and
    (m, bands) that colour."""
    px = pixels.shape[1]
    edges = np.linspace(0, px, min(SMALL, px) + 1).astype(int)
    rows = np.add.reduceat(pixels.astype(np.float32), edges[:-1], axis=1)
    cells = np.add.reduceat(rows, edges[:-1], axis=2)
    area = np.outer(np.diff(edges), np.diff(edges)).astype(np.float32)
    small = cells / area[None, :, :, None]
    colour = small.mean(axis=(1, 2))
    return np.asarray((small - colour[:, None, None]).reshape(len(small), -1)), colour
