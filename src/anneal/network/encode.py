"""Images → vectors: the frozen part once per archive, kept on disk; the trained part once a round."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from anneal.archive.catalog import Archive, Progress, silent
from anneal.archive.pixels import Kept
from anneal.method.neighbours import unit
from anneal.network.backbones import Backbone
from anneal.network.model import SPACES, Depth, Encoder, Space, frozen, searched
from anneal.pairs import Floats

BATCH = 64
VIEWS = 2  # quarter turns: from above no direction is up, and two views know much more than one


@torch.inference_mode()
def inputs(
    archive: Archive, backbone: Backbone, depth: Depth, progress: Progress = silent, views: int = VIEWS
) -> NDArray[Any]:
    """What the trainable part eats, for every image: the frozen part's output, memory-mapped.

    Computed once for an archive, a backbone, a depth and a number of views, resumed where it was
    stopped. With depth ``full`` nothing is frozen and it is the pixels themselves.
    """
    if depth == "full":
        return archive.pixels
    row = _frozen_output(archive.pixels[:1], backbone, depth, 1).shape[1:]
    # A feature map is many numbers, of which half precision keeps what training on it needs.
    dtype, seen = (np.float32, f"head{views}") if depth == "head" else (np.float16, "last")
    kept = Kept(archive.folder / f"{_kept_name(backbone.name)}-{seen}", dtype, row)
    if not kept.complete:
        with kept.writing():
            while kept.rows < len(archive):
                some = archive.pixels[kept.rows : kept.rows + BATCH]
                kept.append(_frozen_output(some, backbone, depth, views))
                progress(kept.rows, len(archive))
            kept.finish()
    return kept.array()


def _kept_name(backbone: str) -> str:
    """A file name of its own for each network: a folder is told apart by where it really lies."""
    readable = re.sub(r"[^\w.-]+", "_", backbone).strip("_")
    where = str(Path(backbone).resolve()) if Path(backbone).is_dir() else backbone
    return f"{readable}-{hashlib.blake2b(where.encode(), digest_size=4).hexdigest()}"


def _frozen_output(pixels: NDArray[np.uint8], backbone: Backbone, depth: Depth, views: int) -> NDArray[Any]:
    """With depth ``head``, the mean of the features of several quarter turns of the image."""
    part = frozen(backbone, depth).eval()
    turned = [np.rot90(pixels, turn, axes=(1, 2)) for turn in range(views if depth == "head" else 1)]
    seen = [part(backbone.normalise(_tensor(view))) for view in turned]
    mean: NDArray[Any] = torch.stack(seen).mean(dim=0).numpy()
    return mean


def prepare(rows: NDArray[Any], backbone: Backbone) -> torch.Tensor:
    """A batch of kept rows as the encoder wants it."""
    batch = _tensor(rows)
    return backbone.normalise(batch) if batch.dtype == torch.uint8 else batch.float()


@torch.inference_mode()
def vectors(
    encoder: Encoder,
    backbone: Backbone,
    kept: NDArray[Any],
    spaces: Iterable[Space],
    progress: Progress = silent,
) -> dict[Space, Floats]:
    """Every image, as unit rows, in each of these spaces: the backbone's features, the head's output."""
    encoder.eval()
    step = 4096 if encoder.depth == "head" else BATCH
    blocks: dict[Space, list[Floats]] = {space: [] for space in spaces}
    for i in range(0, len(kept), step):
        for space, part in zip(SPACES, encoder(prepare(kept[i : i + step], backbone)), strict=True):
            if space in blocks:
                blocks[space].append(F.normalize(part, dim=1).numpy())
        progress(min(i + step, len(kept)), len(kept))
    return {space: np.concatenate(parts) for space, parts in blocks.items()}


def _tensor(rows: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.array(rows))  # a copy: the kept rows are read-only


@torch.inference_mode()
def query(
    pixels: NDArray[np.uint8],
    backbone: Backbone,
    depth: Depth,
    encoder: Encoder | None,
    views: int = VIEWS,
) -> Floats:
    """(m, px, px, 3) images from anywhere → (m, d) unit vectors, comparable with the archive's; in the
    frozen space where there is no encoder yet."""
    if encoder is None:
        return unit(_frozen_output(pixels, backbone, "head", views))
    rows = pixels if depth == "full" else _frozen_output(pixels, backbone, depth, views)
    space = searched(depth)
    return vectors(encoder, backbone, rows, [space])[space]
