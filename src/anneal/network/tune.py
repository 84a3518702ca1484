"""Fine-tune the network behind a trained head: its last stage, or all of it. ``tune`` has the training loop.

The head was trained on pooled features, and stays what it is: an encoder of depth ``head``. What changes is
the network that makes the features. So a fine-tuned network is a backbone like any other, with other weights.
"""

import os
import tempfile
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn

from anneal.archive.catalog import Archive
from anneal.errors import CampaignError, UsageError
from anneal.files import explain_disk_errors, replacing
from anneal.method.relations import Relations
from anneal.network import encode
from anneal.network.backbones import Backbone
from anneal.network.losses import LOSSES
from anneal.network.model import Encoder
from anneal.network.train import batch
from anneal.pairs import UNKNOWN, Floats, Ids
from anneal.watch import Progress, silent

Part = Literal["last", "full"]
"""What is fine-tuned: the last stage, or the whole network."""
SAVED = 64  # images at once while maps are made


@dataclass(frozen=True)
class Tune:
    """How to fine-tune. Chosen on training images of AID (``reproduce finetune``)."""

    loss: str = "mix"
    steps: int = 150
    batch: int = 64  # images
    lr: float = 3e-4  # of the network
    head_lr: float = 3e-4  # of the head
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 1e-4


@dataclass(frozen=True)
class Maps:
    """What the part that is tuned takes for some images, under every quarter turn."""

    backbone: Backbone
    images: Ids  # sorted
    views: int
    rows: NDArray[Any]  # (views, images, …) float16 maps; or (n, px, px, bands) pixels of the whole archive
    are_pixels: bool

    def read(self, images: Ids, turn: int) -> Tensor:
        """A batch of the images under one quarter turn."""
        if self.are_pixels:
            return encode.prepare(np.rot90(self.rows[images], turn, axes=(1, 2)), self.backbone)
        found = self.rows[turn][np.searchsorted(self.images, images)]
        maps = encode.prepare(found, self.backbone)
        return maps.to(memory_format=torch.channels_last)


def maps(
    archive: Archive, backbone: Backbone, part: Part, images: Ids, views: int, progress: Progress = silent
) -> Maps:
    """Run the part of the network that stays as it is on these images. The maps are in a file without a name:
    it is gone with the process, however that ends."""
    images = np.unique(images)
    if part == "full":
        return Maps(backbone, images, views, archive.pixels, are_pixels=True)
    if backbone.lower is None:
        raise UsageError(f"{backbone.name} has no stages: give --depth full.")
    run = encode.frozen_part(
        archive.folder, backbone, "last", archive.pixels[:1], make=len(images) >= encode.MANY
    )
    row = run(archive.pixels[:1], 1).shape[1:]
    shape = (views, len(images), *row)
    with explain_disk_errors(archive.folder / "maps"), tempfile.TemporaryFile(dir=archive.folder) as file:
        os.posix_fallocate(file.fileno(), 0, 2 * int(np.prod(shape)))
        rows: NDArray[Any] = np.memmap(file, np.float16, "r+", shape=shape)
    for i in range(0, len(images), SAVED):
        pixels = archive.pixels[images[i : i + SAVED]]
        for turn in range(views):
            rows[turn, i : i + SAVED] = run(np.rot90(pixels, turn, axes=(1, 2)), 1)
        progress(min(i + SAVED, len(images)), len(images))
    return Maps(backbone, images, views, rows, are_pixels=False)


@dataclass(frozen=True)
class Tuned:
    """A network with other weights, and the head that was trained with it."""

    backbone: Backbone
    encoder: Encoder
    losses: tuple[float, ...]  # of every step


def tune(
    maps: Maps,
    part: Part,
    start: Encoder,
    known: Relations,
    settings: Tune,
    rng: np.random.Generator,
    progress: Progress = silent,
) -> Tuned:
    """Train a part of the network and the head on every known pair, from where they are. Of each batch one
    random quarter turn is shown. Its images are compared with all images that have a known pair, as the
    network saw these last (cross-batch memory, Wang et al. 2020): so a small batch has many dissimilar pairs.
    Batch norms keep their statistics."""
    backbone = maps.backbone
    device = backbone.device
    encoder = deepcopy(start).to(device).eval()
    trained = deepcopy(_tunable(backbone, part)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(
        [
            {"params": trained.parameters(), "lr": settings.lr},
            {"params": encoder.head.parameters(), "lr": settings.head_lr},
        ],
        betas=settings.betas,
        weight_decay=settings.weight_decay,
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    members = known.members
    memory = torch.from_numpy(_vectors(trained, encoder, maps, members)).to(device)  # (k, out)
    losses: list[float] = []
    for step in range(settings.steps):
        taught = batch(known, settings.batch, rng)  # (m,)
        own = torch.from_numpy(np.searchsorted(members, taught)).to(device)  # (m,) their rows in the memory
        with backbone.autocast():
            features = trained(maps.read(taught, int(rng.integers(maps.views))))  # (m, dim)
        _, z = encoder(features.float())  # (m, out)
        verdicts = torch.from_numpy(known.among(taught, members)).to(device)  # (m, k)
        verdicts.scatter_(1, own[:, None], UNKNOWN)  # an image with itself does not count
        s = (z @ memory.T).index_copy(1, own, z @ z.T)  # (m, k)
        loss = LOSSES[settings.loss](s, verdicts)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        memory[own] = z.detach()
        losses.append(float(loss.detach()))
        progress(step + 1, settings.steps)
    return Tuned(_with(backbone, part, trained), encoder.eval(), tuple(losses))


@torch.inference_mode()
def features(network: Backbone, maps: Maps, part: Part, images: Ids) -> Floats:
    """(m, dim) what a fine-tuned network gives for these images, the mean over the quarter turns."""
    trained = _tunable(network, part)
    return np.concatenate(list(_blocks(trained, maps, images)))


def _vectors(trained: nn.Module, encoder: Encoder, maps: Maps, images: Ids) -> Floats:
    """(m, out) unit rows of the head."""
    blocks = []
    with torch.inference_mode():
        for rows in _blocks(trained, maps, images):
            _, z = encoder(torch.from_numpy(rows).to(maps.backbone.device))
            blocks.append(z.cpu().numpy())
    return np.concatenate(blocks)


def _blocks(trained: nn.Module, maps: Maps, images: Ids) -> Iterable[Floats]:
    for i in range(0, len(images), SAVED):
        some = images[i : i + SAVED]
        with maps.backbone.autocast():
            views = [trained(maps.read(some, turn)) for turn in range(maps.views)]
        yield torch.stack(views).float().mean(dim=0).cpu().numpy()


def _tunable(backbone: Backbone, part: Part) -> nn.Module:
    if part == "last" or backbone.lower is None:
        return backbone.upper
    return nn.Sequential(backbone.lower, backbone.upper)


def _with(backbone: Backbone, part: Part, trained: nn.Module) -> Backbone:
    """The backbone with this part in place of its own."""
    trained.eval().requires_grad_(False)
    if part == "last" or backbone.lower is None:
        return replace(backbone, upper=trained)
    assert isinstance(trained, nn.Sequential)
    return replace(backbone, lower=trained[0], upper=trained[1])


def save(folder: Path, network: Backbone, pretrained: Backbone) -> str:
    """Write the weights of a fine-tuned network into a folder; returns its name, a hash of the weights. The
    first part is left out where it is the pretrained one's."""
    parts = {"upper": network.upper}
    if network.lower is not None and not _are_equal(network.lower, pretrained.lower):
        parts["lower"] = network.lower
    weights = {}
    for name, part in parts.items():
        for key, weight in part.state_dict().items():
            weights[f"{name}.{key}"] = weight.cpu().contiguous()
    with replacing(folder / f"{network.digest}.safetensors") as out:
        out.write(safetensors.save(weights))
    return network.digest


@lru_cache(maxsize=2)
def load(file: Path, pretrained: Backbone) -> Backbone:
    """The network that ``save`` wrote. A file stands for the same weights for ever, so it is read once. The
    network's features have files of their own, because its name is another."""
    lower, upper = deepcopy((pretrained.lower, pretrained.upper))
    try:
        weights = safetensors.load_file(file)
        for name, part in {"lower": lower, "upper": upper}.items():
            own = {
                key.removeprefix(f"{name}."): one
                for key, one in weights.items()
                if key.startswith(f"{name}.")
            }
            if own and part is not None:
                part.load_state_dict(own)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        why = str(error).strip().partition("\n")[0]
        raise CampaignError(
            f"The fine-tuned network {file} cannot be read ({why}): run anneal check --repair."
        ) from error
    return replace(pretrained, name=f"{pretrained.name}+{file.stem}", lower=lower, upper=upper)


def _are_equal(one: nn.Module, other: nn.Module | None) -> bool:
    if other is None:
        return False
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
