"""Images → vectors. The frozen part runs once per archive, the trained part once per round."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from anneal.archive.catalog import Archive
from anneal.archive.pixels import GrowingArray
from anneal.errors import UsageError
from anneal.files import release
from anneal.method.neighbours import unit
from anneal.network import onnx
from anneal.network.backbones import Backbone
from anneal.network.model import Depth, Encoder, Space, frozen
from anneal.pairs import Floats
from anneal.watch import Progress, silent
from anneal.work import Workers

SAVED = 128  # images between two saves of the frozen part's output
BATCH = 64  # images at once in the trained part
GPU_BATCH = 256  # in the frozen part on a GPU
PIXELS = 2 * 224**2  # at once in the frozen part on a CPU: few, so that its first layers stay in the caches
MANY = 500  # images from which an export pays: it takes about as long as torch takes for them
VIEWS = 2  # quarter turns: seen from above no direction is up, and two views are much better than one
Run = Callable[[NDArray[np.uint8], int], NDArray[Any]]  # a network, on images and a number of views


@torch.inference_mode()
def inputs(
    archive: Archive,
    backbone: Backbone,
    depth: Depth,
    progress: Progress = silent,
    views: int = VIEWS,
    workers: Workers | None = None,
) -> NDArray[Any]:
    """The input of the trainable part for every image: the frozen part's output, memory-mapped. It is made
    once, a stopped run resumes, and when the archive has grown the new images are added. With depth ``full``
    nothing is frozen, and the input is the pixels. The ``workers`` encode blocks of images; a GPU of this
    process is used instead of them."""
    if depth == "full":
        return archive.pixels
    first = archive.pixels[:1]
    try:
        row = _in_torch(backbone, depth, first, 1).shape[1:]
    except RuntimeError as error:
        small = f"{backbone.name} cannot take images of {archive.px} pixels"
        raise UsageError(f"{small} ({error}): give a larger --px.") from error
    # A feature map is large, and half precision is enough to train on it.
    dtype = np.float32 if depth == "head" else np.float16
    stored = GrowingArray(archive.folder / file_name(backbone.name, depth, views), dtype, row)
    if stored.rows < len(archive):
        with stored.writing():
            many = len(archive) - stored.rows >= MANY
            run = frozen_part(archive.folder, backbone, depth, first, make=many)
            block = partial(_block, run, archive.pixels, views if depth == "head" else 1)
            parts = [slice(i, i + SAVED) for i in range(stored.rows, len(archive), SAVED)]
            if workers is None or backbone.device.type != "cpu":
                blocks: Iterable[NDArray[Any]] = map(block, parts)
            else:
                blocks = workers.map("encoding", block, parts)
            for rows in blocks:
                stored.append(rows)
                progress(stored.rows, len(archive))
            stored.finish()
    return stored.array()[: len(archive)]


def file_name(backbone: str, depth: Depth, views: int = VIEWS) -> str:
    """The file of the frozen part's output. Every network has its own; a folder is identified by its resolved
    path."""
    readable = re.sub(r"[^\w.-]+", "_", backbone).strip("_")
    identity = str(Path(backbone).resolve()) if Path(backbone).is_dir() else backbone
    kind = f"head{views}" if depth == "head" else "last"
    return f"{readable}-{hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()}-{kind}"


def frozen_part(folder: Path, backbone: Backbone, depth: Depth, sample: NDArray[np.uint8], make: bool) -> Run:
    """The frozen part, which gives the mean over some quarter turns of each image: in ONNX Runtime if there
    is an export, or if one is to be made; else in torch. It can be pickled."""
    return onnx.session(folder, backbone, depth, sample, make) or partial(_in_torch, backbone, depth)


def _block(run: Run, pixels: NDArray[np.uint8], views: int, part: slice) -> NDArray[Any]:
    """The frozen part's output for some of the images."""
    return run(pixels[part], views)


@torch.inference_mode()
def _in_torch(backbone: Backbone, depth: Depth, pixels: NDArray[np.uint8], views: int) -> NDArray[Any]:
    part = frozen(backbone, depth).eval()
    few = max(1, PIXELS // pixels.shape[1] ** 2)
    step = few if backbone.device.type == "cpu" else GPU_BATCH
    blocks = []
    for i in range(0, len(pixels), step):
        turned = [np.rot90(pixels[i : i + step], turn, axes=(1, 2)) for turn in range(views)]
        with backbone.autocast():
            outputs = [part(prepare(view, backbone)) for view in turned]
        blocks.append(_on_cpu(torch.stack(outputs).float().mean(dim=0)))
    return np.concatenate(blocks)


def prepare(rows: NDArray[Any], backbone: Backbone) -> torch.Tensor:
    """Pixels, or rows of what ``inputs`` returned → a batch for the network, on its device."""
    batch = torch.from_numpy(np.array(rows)).to(backbone.device)  # a copy: stored rows are read-only
    return backbone.normalise(batch) if batch.dtype == torch.uint8 else batch.float()


def _on_cpu(output: torch.Tensor) -> Floats:
    array: Floats = output.float().cpu().numpy()
    return array


@torch.inference_mode()
def vectors(
    encoder: Encoder,
    backbone: Backbone,
    stored: NDArray[Any],
    spaces: Iterable[Space],
    progress: Progress = silent,
    out: Mapping[Space, Floats] | None = None,
) -> dict[Space, Floats]:
    """Every image as a unit row in each of these spaces. ``stored`` is what ``inputs`` returned. The rows go
    into the arrays of ``out`` where it has one, say a memory map: then one block at a time is in memory."""
    encoder.to(backbone.device).eval()
    step = 4096 if encoder.depth == "head" else BATCH
    widths: dict[Space, int] = {"backbone": encoder.dim, "head": encoder.shape.out}
    made = dict(out or {})
    for space in spaces:
        made.setdefault(space, np.empty((len(stored), widths[space]), dtype=np.float32))
    for i in range(0, len(stored), step):
        with backbone.autocast(encoder.depth != "head"):  # a head alone is quick in full precision
            features, projected = encoder(prepare(stored[i : i + step], backbone))
        for space, rows in made.items():
            output = features if space == "backbone" else projected
            rows[i : i + step] = _on_cpu(F.normalize(output.float(), dim=1))
            release(rows)
        release(stored)
        progress(min(i + step, len(stored)), len(stored))
    return made


@torch.inference_mode()
def query(
    pixels: NDArray[np.uint8],
    backbone: Backbone,
    depth: Depth,
    encoder: Encoder | None,
    views: int = VIEWS,
    folder: Path | None = None,
) -> Floats:
    """(m, px, px, 3) images from outside → (m, d) unit vectors to compare with the archive's vectors.
    Without an encoder they are in the frozen space. ``folder`` is the archive's: if it holds an export of the
    network, that is used; none is made."""
    if encoder is not None and depth == "full":
        return vectors(encoder, backbone, pixels, ["backbone"])["backbone"]
    depth = "head" if encoder is None else depth
    run: Run = partial(_in_torch, backbone, depth)
    if folder:
        run = frozen_part(folder, backbone, depth, pixels[:1], make=False)
    rows = run(pixels, views if depth == "head" else 1)
    if encoder is None:
        return unit(rows)
    return vectors(encoder, backbone, rows, [encoder.space])[encoder.space]
