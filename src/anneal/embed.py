"""Images → vectors: the frozen part once per archive, kept on disk; the trained part once a round."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from anneal.archive import Archive, Progress, silent
from anneal.backbones import Backbone
from anneal.kept import Kept
from anneal.model import Depth, Encoder, frozen
from anneal.pairs import Floats

BATCH = 64


@torch.inference_mode()
def inputs(archive: Archive, backbone: Backbone, depth: Depth, progress: Progress = silent) -> NDArray[Any]:
    """What the trainable part eats, for every image: the frozen part's output, memory-mapped.

    Computed once for an archive, a backbone and a depth, resumed where it was stopped. With depth
    ``full`` nothing is frozen and it is the pixels themselves.
    """
    if depth == "full":
        return archive.pixels
    part = frozen(backbone, depth).eval()
    row = tuple(part(backbone.normalise(_tensor(archive.pixels[:1]))).shape[1:])
    name = re.sub(r"[^\w.-]+", "_", backbone.name).strip("_")
    # A feature map is many numbers, of which half precision keeps what training on it needs.
    dtype = np.float32 if depth == "head" else np.float16
    kept = Kept(archive.folder / f"{name}-{depth}", dtype, row)
    if not kept.complete:
        with kept.writing():
            while kept.rows < len(archive):
                some = archive.pixels[kept.rows : kept.rows + BATCH]
                kept.append(part(backbone.normalise(_tensor(some))).numpy())
                progress(kept.rows, len(archive))
            kept.finish()
    return kept.array()


def prepare(rows: NDArray[Any], backbone: Backbone) -> torch.Tensor:
    """A batch of kept rows as the encoder wants it."""
    batch = _tensor(rows)
    return backbone.normalise(batch) if batch.dtype == torch.uint8 else batch.float()


@torch.inference_mode()
def vectors(
    encoder: Encoder, backbone: Backbone, kept: NDArray[Any], progress: Progress = silent
) -> tuple[Floats, Floats]:
    """Every image in the current metric space: (what is compared, the head's output), unit rows.
    The two are one and the same but with depth ``full``."""
    encoder.eval()
    step = 4096 if encoder.depth == "head" else BATCH
    blocks = []
    for i in range(0, len(kept), step):
        blocks.append([part.numpy() for part in encoder(prepare(kept[i : i + step], backbone))])
        progress(min(i + step, len(kept)), len(kept))
    projected = np.concatenate([block[1] for block in blocks])
    if encoder.depth != "full":
        return projected, projected
    return np.concatenate([block[0] for block in blocks]), projected


def _tensor(rows: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.array(rows))  # a copy: the kept rows are read-only


@torch.inference_mode()
def query(pixels: NDArray[np.uint8], backbone: Backbone, depth: Depth, encoder: Encoder | None) -> Floats:
    """(m, px, px, 3) images from anywhere → (m, d) unit vectors, comparable with the archive's; in the
    frozen space where there is no encoder yet."""
    if encoder is None:
        features = frozen(backbone, "head").eval()(backbone.normalise(_tensor(pixels)))
        found: Floats = torch.nn.functional.normalize(features, dim=1).numpy()
        return found
    rows = pixels
    if depth != "full":
        rows = frozen(backbone, depth).eval()(backbone.normalise(_tensor(pixels))).numpy()
    compared: Floats = encoder.eval()(prepare(rows, backbone))[0].numpy()
    return compared
