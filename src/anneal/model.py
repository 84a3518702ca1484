"""The retrieval network: a backbone, a projection head, and the pair classifier of BCGUE."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from anneal.backbones import Backbone
from anneal.errors import CampaignError, UsageError
from anneal.kept import disk, write_text
from anneal.pairs import Floats
from anneal.uncertainty import PairProbability

Depth = Literal["head", "last", "full"]
DEPTHS: tuple[Depth, ...] = ("head", "last", "full")


@dataclass(frozen=True)
class Shape:
    """The paper's projection head, and a classifier whose widths the paper leaves open."""

    hidden: int = 512
    out: int = 256
    classifier: tuple[int, int] = (64, 32)  # small: it is evaluated on every pair of the archive


class Encoder(nn.Module):
    """Trainable part of the backbone + head of two layers. What it eats is the frozen part's output:
    pooled features with depth ``head``, a feature map with ``last``, normalised pixels with ``full``.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone, depth: Depth, dim: int, shape: Shape) -> None:
        super().__init__()
        self.depth = depth
        self.tail = trainable(backbone, depth)
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.ones(dim))
        self.head = nn.Sequential(nn.Linear(dim, shape.hidden), nn.ReLU(), nn.Linear(shape.hidden, shape.out))

    def standardise(self, features: Tensor) -> None:
        """Centre and scale what enters the head by these features, (n, dim)."""
        self.mean.copy_(features.mean(dim=0))
        self.std.copy_(features.std(dim=0) + 1e-6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """→ (what is compared in retrieval, what the loss sees), unit rows both. They differ with
        depth ``full``, where the head is dropped after training, as in the paper."""
        features = self.tail(x)  # (m, dim)
        projected = F.normalize(self.head((features - self.mean) / self.std), dim=1)  # (m, out)
        compared = F.normalize(features, dim=1) if self.depth == "full" else projected
        return compared, projected


class PairClassifier(nn.Module):
    """P(similar) from two vectors: concatenated, three layers, the logit averaged over both orders."""

    def __init__(self, dim: int, widths: tuple[int, int]) -> None:
        super().__init__()
        self.dim = dim
        self.first = nn.Linear(2 * dim, widths[0])
        self.second = nn.Linear(widths[0], widths[1])
        self.last = nn.Linear(widths[1], 1)

    def halves(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The first layer, split into one half per image."""
        left, right = self.first.weight[:, : self.dim], self.first.weight[:, self.dim :]
        return z @ left.T, z @ right.T + self.first.bias

    def forward(self, z: Tensor) -> Tensor:
        """(m, dim) → (m, m) logits, symmetric."""
        left, right = self.halves(z)
        hidden = F.relu(left[:, None, :] + right[None, :, :])  # (m, m, h1)
        logit: Tensor = self.last(F.relu(self.second(hidden))).squeeze(-1)
        return (logit + logit.T) / 2

    @torch.inference_mode()
    def scorer(self, vectors: Floats) -> PairProbability:
        """The same for all images of an archive, as NumPy."""
        left, right = self.halves(torch.from_numpy(vectors))
        return PairProbability(
            left.numpy(),
            right.numpy(),
            self.second.weight.T.numpy(),
            self.second.bias.numpy(),
            self.last.weight[0].numpy(),
            float(self.last.bias),
        )


def frozen(backbone: Backbone, depth: Depth) -> nn.Module:
    """What is computed once and kept."""
    if depth == "full":
        return nn.Identity()
    if depth == "head":
        return backbone.upper if backbone.lower is None else _whole(backbone)
    return _lower(backbone)


def trainable(backbone: Backbone, depth: Depth) -> nn.Module:
    """What is trained, between the frozen part and the head: a copy, so that the next training
    starts from the pretrained weights again."""
    if depth == "head":
        return nn.Identity()
    if depth == "last":
        _lower(backbone)  # says so if there is none
        return deepcopy(backbone.upper)
    return deepcopy(backbone.upper if backbone.lower is None else _whole(backbone))


def _whole(backbone: Backbone) -> nn.Module:
    assert backbone.lower is not None
    return nn.Sequential(backbone.lower, backbone.upper)


def _lower(backbone: Backbone) -> nn.Module:
    if backbone.lower is None:
        raise UsageError(
            f"Depth 'last' needs a backbone in stages, which {backbone.name} is not: use depth head or full."
        )
    return backbone.lower


def save(folder: Path, encoder: Encoder, about: dict[str, Any]) -> None:
    """``model.safetensors`` and ``model.json``; the JSON comes last and so says that both are whole."""
    with disk(folder / "model.safetensors"):
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / "model.safetensors.tmp"
        save_file({k: v.contiguous() for k, v in encoder.state_dict().items()}, part)
        part.replace(folder / "model.safetensors")
    dim = len(encoder.mean)
    head = Shape(encoder.head[0].out_features, encoder.head[2].out_features)  # type: ignore[arg-type]
    about = {**about, "depth": encoder.depth, "dim": dim, "head": asdict(head)}
    write_text(folder / "model.json", json.dumps(about, indent=1))


def load(folder: Path, backbone: Backbone) -> Encoder:
    """The encoder that ``save`` wrote, in evaluation mode."""
    try:
        about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        weights = load_file(folder / "model.safetensors")
    except FileNotFoundError:
        raise CampaignError(f"{folder} holds no model: run a round first.") from None
    shape = Shape(hidden=about["head"]["hidden"], out=about["head"]["out"])
    encoder = Encoder(backbone, about["depth"], about["dim"], shape)
    encoder.load_state_dict(weights)
    return encoder.eval()
