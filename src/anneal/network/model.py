"""The retrieval network: a backbone, a projection head, and the pair classifier of BCGUE."""

import json
import math
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn

from anneal.errors import CampaignError, UsageError
from anneal.files import replacing, write_text
from anneal.method.uncertainty import PairProbability
from anneal.network.backbones import Backbone
from anneal.pairs import Floats

Depth = Literal["head", "last", "full"]
Space = Literal["backbone", "head"]
BLOCK = 65536  # images that the pair classifier takes at once
NARROWEST = 256  # principal components: fewer may miss what training needs
MODEL_FILES = ("model.safetensors", "model.json")  # what ``save`` writes: the weights and their description


@dataclass(frozen=True)
class Shape:
    """Sizes of the trained layers. The projection head's two widths are the paper's."""

    hidden: int = 512
    out: int = 256
    anchored: bool = True  # start at the frozen geometry, not at random (depth head only)
    dropped: bool = False  # retrieval drops the head, as in the paper; with depth full it always does
    classifier: tuple[int, int] = (64, 32)  # small, because it is evaluated on every pair of the archive


class Encoder(nn.Module):
    """The trainable part of the backbone, then a head of two layers. Its input is the frozen part's output:
    pooled features with depth ``head``, a feature map with ``last``, normalised pixels with ``full``.

    An *anchored* head adds the output of its two layers, small at first, to the leading principal components
    of the features, so training starts near their geometry. A random start needs many answers to catch up.
    """

    mean: Tensor
    std: Tensor
    centre: Tensor
    components: Tensor

    def __init__(self, backbone: Backbone, depth: Depth, dim: int, shape: Shape) -> None:
        super().__init__()
        self.depth = depth
        self.dim = dim
        self.shape = shape
        self.anchored = shape.anchored and depth == "head"
        self.tail = trainable(backbone, depth)
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.ones(dim))
        self.head = nn.Sequential(nn.Linear(dim, shape.hidden), nn.ReLU(), nn.Linear(shape.hidden, shape.out))
        if self.anchored:
            self.register_buffer("centre", torch.zeros(dim))
            self.register_buffer("components", torch.zeros(dim, shape.out))

    @property
    def space(self) -> Space:
        """Where retrieval compares images."""
        return "backbone" if self.shape.dropped or self.depth == "full" else "head"

    @property
    def first_layer(self) -> nn.Linear:
        layer = self.head[0]
        assert isinstance(layer, nn.Linear)
        return layer

    @torch.no_grad()
    def settle(self, features: Tensor) -> None:
        """Take scale, centre and principal components from these frozen features, (n, dim)."""
        self.mean.copy_(features.mean(dim=0))
        self.std.copy_(features.std(dim=0) + 1e-6)
        if self.anchored:
            rows = F.normalize(features, dim=1)
            self.centre.copy_(rows.mean(dim=0))
            rows = rows - self.centre
            if len(rows) < self.dim:
                rows = rows.double()  # without full rank, eigh may not converge in single precision
            leading = torch.linalg.eigh(rows.T @ rows).eigenvectors.flip(1)[:, : self.shape.out]
            self.components[:, : leading.shape[1]] = leading

    def anchor(self, features: Tensor) -> Tensor:
        """(m, dim) → (m, out) unit rows: the position of an image before any training."""
        lengths = features.norm(dim=1, keepdim=True).clamp(min=1e-12)
        return F.normalize(features @ self.components / lengths - self.centre @ self.components, dim=1)

    def forward(self, x: Tensor, noise: float = 0.0, anchor: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """→ (m, dim) features of the backbone, and (m, out) unit rows of the head for the loss. A caller that
        has the ``anchor`` of the images can pass it to save time."""
        features = self.tail(x)  # (m, dim)
        scaled = (features - self.mean) / self.std
        if noise:
            scaled = scaled + noise * torch.randn_like(scaled)
        projected = self.head(scaled)  # (m, out)
        if self.anchored:
            projected = projected + (self.anchor(features) if anchor is None else anchor)
        return features, F.normalize(projected, dim=1)


@torch.no_grad()
def narrowed(encoder: Encoder) -> tuple[Encoder, Tensor] | None:
    """A twin of an anchored encoder that is cheaper to train: its input is the standardised features on a
    (dim, out) orthonormal basis, which is returned with it. The basis spans what the anchor sees. None if the
    features are less than twice as wide, or if the anchor sees too little of them."""
    if not encoder.anchored or encoder.shape.out < NARROWEST or encoder.dim < 2 * encoder.shape.out:
        return None
    basis = torch.linalg.qr(encoder.components / encoder.std[:, None]).Q  # (dim, out)
    twin = deepcopy(encoder)
    twin.dim = basis.shape[1]
    twin.mean = torch.zeros_like(encoder.mean[: twin.dim])
    twin.std = torch.ones_like(encoder.std[: twin.dim])
    first = twin.first_layer
    first.in_features = twin.dim
    first.weight = nn.Parameter(first.weight @ basis)
    return twin, basis


@torch.no_grad()
def widen(twin: Encoder, basis: Tensor, encoder: Encoder) -> None:
    """Give the encoder the head of its twin: on features it does what the twin does on the basis."""
    trained = twin.head.state_dict()
    trained["0.weight"] = trained["0.weight"] @ basis.T
    encoder.head.load_state_dict(trained)


class PairClassifier(nn.Module):
    """P(similar) from two concatenated vectors, by three layers. The logit is the mean over both orders."""

    def __init__(self, dim: int, widths: tuple[int, int]) -> None:
        super().__init__()
        self.dim = dim
        self.first = nn.Linear(2 * dim, widths[0])
        self.second = nn.Linear(widths[0], widths[1])
        self.last = nn.Linear(widths[1], 1)

    def halves(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The first layer, one half per image. Unit rows are scaled to a spread of one, which suits it."""
        z = z * math.sqrt(self.dim)
        left = self.first.weight[:, : self.dim]
        right = self.first.weight[:, self.dim :]
        return z @ left.T, z @ right.T + self.first.bias

    def forward(self, z: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """(m, dim) and p pairs (i, j) of its rows → (p,) logits, the same for (j, i)."""
        left, right = self.halves(z)
        both = torch.cat([left[i] + right[j], left[j] + right[i]])  # (2p, h1)
        logit: Tensor = self.last(F.relu(self.second(F.relu(both)))).squeeze(1)
        return logit.view(2, -1).mean(dim=0)

    @torch.inference_mode()
    def scorer(self, vectors: Floats) -> PairProbability:
        """The same classifier in NumPy, for all images of an archive."""
        device = self.first.weight.device
        blocks = [vectors[i : i + BLOCK] for i in range(0, len(vectors), BLOCK)]
        halves = [self.halves(torch.from_numpy(np.array(block)).to(device)) for block in blocks]
        left, right = (torch.cat(parts) for parts in zip(*halves, strict=True))
        second = (self.second.weight.T.cpu().numpy(), self.second.bias.cpu().numpy())
        last = (self.last.weight[0].cpu().numpy(), float(self.last.bias))
        return PairProbability(left.cpu().numpy(), right.cpu().numpy(), *second, *last)


def frozen(backbone: Backbone, depth: Depth) -> nn.Module:
    """The part that is not trained. Its output is computed once and stored."""
    return _parts(backbone, depth)[0]


def trainable(backbone: Backbone, depth: Depth) -> nn.Module:
    """The part between the frozen part and the head: a copy, so training leaves the backbone as it is."""
    return deepcopy(_parts(backbone, depth)[1])


def _parts(backbone: Backbone, depth: Depth) -> tuple[nn.Module, nn.Module]:
    """(frozen, trainable)"""
    if depth == "last":
        if backbone.lower is None:
            raise UsageError(f"{backbone.name} has no stages, as depth 'last' needs: use depth head or full.")
        return backbone.lower, backbone.upper
    whole = backbone.upper if backbone.lower is None else nn.Sequential(backbone.lower, backbone.upper)
    return (whole, nn.Identity()) if depth == "head" else (nn.Identity(), whole)


def save(folder: Path, encoder: Encoder, about: dict[str, Any]) -> None:
    """Write ``MODEL_FILES``. The JSON comes last: if it exists, both files are complete."""
    weights_file = folder / MODEL_FILES[0]
    about_file = folder / MODEL_FILES[1]
    weights = {name: weight.cpu().contiguous() for name, weight in encoder.state_dict().items()}
    with replacing(weights_file) as out:
        out.write(safetensors.save(weights))
    shape = {"depth": encoder.depth, "dim": encoder.dim, "shape": asdict(encoder.shape)}
    write_text(about_file, json.dumps({**about, **shape}, indent=1))


def load(folder: Path, backbone: Backbone) -> Encoder:
    """The encoder that ``save`` wrote, in evaluation mode, on the backbone's device."""
    weights_file = folder / MODEL_FILES[0]
    about_file = folder / MODEL_FILES[1]
    try:
        about = json.loads(about_file.read_text(encoding="utf-8"))
        weights = safetensors.load_file(weights_file)
        encoder = Encoder(backbone, about["depth"], about["dim"], Shape(**about["shape"]))
        encoder.load_state_dict(weights)
    except FileNotFoundError:
        raise CampaignError(f"{folder} holds no model: run a round first.") from None
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        why = str(error).strip().partition("\n")[0]
        raise CampaignError(f"The model in {folder} cannot be read ({why}): run anneal round.") from error
    return encoder.to(backbone.device).eval()
