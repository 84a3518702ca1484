"""fit: train an encoder on what is known about pairs. The training loop is in ``_train``."""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from anneal.errors import UsageError
from anneal.method.relations import Relations
from anneal.network.backbones import Backbone
from anneal.network.encode import prepare
from anneal.network.losses import LOSSES, anchor_loss, pair_bce
from anneal.network.model import Depth, Encoder, PairClassifier, Shape, searched, trainable
from anneal.pairs import Floats, Ids, Verdict
from anneal.watch import Progress, silent

PAIRS = 128  # pairs in a batch of the paper
FEW = 160  # images: with fewer known images, similarities keep closer to their frozen values


@dataclass(frozen=True)
class Fit:
    """How to train. ``Fit.at(depth)`` gives the defaults of each depth."""

    loss: str = "mix"
    steps: int = 200
    batch: int = 256  # images, each encoded once
    lr: float = 1e-3
    weight_decay: float = 1e-4
    noise: float = 0.3  # added to the head's standardised input: the augmentation of depth head
    hold: float = 1.0  # weight of the anchor loss, which keeps similarities near their frozen values
    anchored_images: int = 64  # images per step for the anchor loss
    gamma: float = 0.03  # L = (1 − γ) L_metric + γ L_BCE, if a pair classifier is trained
    classified: int = 8192  # pairs per step for the pair classifier, at most half of each kind
    class_weight: float = 0.5  # weight of the softmax's cross-entropy beside a metric loss
    epochs: int = 0  # if set, it replaces steps: passes over the known pairs, 128 pairs a step
    decay: bool = True  # the learning rate falls to zero on a cosine
    partners: tuple[Verdict, ...] = (Verdict.SIMILAR,)  # see ``batch``

    @classmethod
    def at(cls, depth: Depth, recipe: str = "anneal", **settings: Any) -> Self:
        """The settings for a depth. Fine-tuning needs a smaller step, and its batches cost more. The paper's
        recipe: 15 epochs of batches of 128 pairs, Adam at 1e-4, the rarer kind of pair oversampled."""
        if recipe == "paper":
            both = (Verdict.SIMILAR, Verdict.DISSIMILAR)
            paper = cls(batch=48, lr=1e-4, weight_decay=0.0, noise=0.0, hold=0.0, epochs=15, decay=False)
            return replace(paper, partners=both, **settings)
        if depth == "head":
            return cls(**settings)
        return cls(**{"steps": 150, "batch": 64, "lr": 1e-4, "noise": 0.0, **settings})

    def times(self, length: int) -> Self:
        """The same settings with ``length`` times as many steps."""
        return replace(self, steps=self.steps * length, epochs=self.epochs * length)

    def knowing(self, images: int, of: int) -> Self:
        """A larger ``hold`` while the images with known pairs are few: ``images`` of ``of`` images."""
        few = min(FEW, of / 2)
        return replace(self, hold=self.hold * max(1.0, few / max(images, 1)) ** 2)

    def length(self, known: Relations) -> int:
        """The number of steps. An epoch is a pass over the known pairs, but over at most eight per image, as
        in the paper. So it does not grow with the implied pairs."""
        if not self.epochs:
            return self.steps
        pairs = known.count(Verdict.SIMILAR) + known.count(Verdict.DISSIMILAR)
        return self.epochs * math.ceil(min(pairs, 8 * len(known.members)) / PAIRS)


@dataclass(frozen=True)
class Fitted:
    encoder: Encoder
    classifier: PairClassifier | None
    softmax: nn.Linear | None
    loss: float  # mean over the last tenth of the steps


def fit(
    backbone: Backbone,
    depth: Depth,
    stored: NDArray[Any],
    known: Relations,
    settings: Fit,
    rng: np.random.Generator,
    *,
    images: Ids | None = None,
    shape: Shape | None = None,
    pair_classifier: bool = False,
    classes: Ids | None = None,
    metric: bool = True,
    start: Encoder | None = None,
    progress: Progress = silent,
) -> Fitted:
    """Train an encoder on every known pair. The state of ``rng`` determines the result.

    ``stored`` is what ``encode.inputs`` returned. The features of ``images`` (default: all) set the scale of
    the head's input, and the anchor loss draws from them. ``pair_classifier`` trains BCGUE's classifier too,
    ``classes`` (−1 where unknown) a softmax on the head. Training starts at ``start``, if given.
    """
    if not len(known.members):
        raise UsageError("Nothing can be learnt yet: no pair has been judged similar or dissimilar.")
    images = np.arange(len(stored)) if images is None else images
    shape = shape or Shape()
    dim = int(trainable(backbone, depth)(prepare(stored[:1], backbone)).shape[1])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        encoder = Encoder(backbone, depth, dim, shape)
        if depth == "head":
            encoder.settle(torch.from_numpy(stored[images]))
        if start is not None:
            encoder.load_state_dict(start.state_dict())
        compared_dim = dim if searched(depth) == "backbone" else shape.out
        classifier = PairClassifier(compared_dim, shape.classifier) if pair_classifier else None
        softmax = None if classes is None else nn.Linear(shape.out, int(classes.max()) + 1)
        networks = Fitted(encoder, classifier, softmax, loss=math.nan)  # not trained yet
        losses = _train(networks, backbone, stored, known, settings, rng, images, classes, metric, progress)
    last_tenth = losses[-max(1, len(losses) // 10) :]
    return replace(networks, loss=float(np.mean(last_tenth)))


def _train(
    networks: Fitted,
    backbone: Backbone,
    stored: NDArray[Any],
    known: Relations,
    settings: Fit,
    rng: np.random.Generator,
    images: Ids,
    classes: Ids | None,
    metric: bool,
    progress: Progress,
) -> list[float]:
    """Returns the loss of every step. A step encodes m images with known pairs and a for the anchor loss."""
    encoder = networks.encoder
    trained = (encoder, networks.classifier, networks.softmax)
    parts = nn.ModuleList([part for part in trained if part is not None])
    parts.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the layout of the images
    parts.train()
    optimizer = torch.optim.AdamW(parts.parameters(), weight_decay=settings.weight_decay, fused=True)
    anchors = _anchors(encoder, stored) if encoder.anchored else None  # (n, out)
    anchored = min(settings.anchored_images, len(images)) if encoder.anchored and settings.hold else 0
    losses: list[float] = []
    steps = settings.length(known)
    for step in range(steps):
        taught = batch(known, settings.batch, rng, settings.partners)  # (m,)
        m = len(taught)
        shown = np.concatenate([taught, rng.choice(images, anchored, replace=False)])  # (m + a,)
        anchor = None if anchors is None else anchors[torch.from_numpy(shown)]  # (m + a, out)
        x = prepare(stored[shown], backbone)
        features, z_shown = encoder(x, settings.noise, anchor)  # (m + a, dim), (m + a, out)
        z = z_shown[:m]  # (m, out)
        verdicts = known.among(taught, taught)  # (m, m)
        loss = LOSSES[settings.loss](z @ z.T, torch.from_numpy(verdicts)) if metric else torch.zeros(())
        if networks.classifier is not None:
            i, j, similar = _known_pairs(verdicts, settings.classified, rng)  # (p,) each
            compared = F.normalize(features, dim=1) if searched(encoder.depth) == "backbone" else z
            bce = pair_bce(networks.classifier(compared, i, j), similar)
            loss = (1 - settings.gamma) * loss + settings.gamma * bce
        if networks.softmax is not None and classes is not None:
            target = torch.from_numpy(classes[taught])  # (m,)
            cross_entropy = F.cross_entropy(logits(networks.softmax, z), target, ignore_index=-1)
            loss = loss + (settings.class_weight if metric else 1.0) * cross_entropy
        if anchored and anchor is not None:
            loss = loss + settings.hold * anchor_loss(z_shown[m:], anchor[m:])
        decay = (1 + math.cos(math.pi * step / steps)) / 2 if settings.decay else 1.0
        optimizer.param_groups[0]["lr"] = settings.lr * decay
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
        progress(step + 1, steps)
    parts.eval()
    return losses


@torch.no_grad()
def _anchors(encoder: Encoder, stored: NDArray[Any]) -> Tensor:
    """The anchor of every image, (n, out): computed once, not in every step."""
    blocks = (torch.from_numpy(np.array(stored[i : i + 4096])) for i in range(0, len(stored), 4096))
    return torch.cat([encoder.anchor(block) for block in blocks])


def _known_pairs(verdicts: NDArray[np.int8], most: int, rng: np.random.Generator) -> tuple[Tensor, ...]:
    """Rows i, columns j and truth of the known pairs of a batch, at most ``most`` / 2 of each kind."""
    upper = np.triu(verdicts, k=1)
    kinds = [np.argwhere(upper == verdict) for verdict in (Verdict.SIMILAR, Verdict.DISSIMILAR)]
    kinds = [rng.permutation(kind)[: most // 2] for kind in kinds]
    i, j = torch.from_numpy(np.concatenate(kinds)).unbind(dim=1)
    return i, j, torch.arange(len(i)) < len(kinds[0])


def batch(
    known: Relations, size: int, rng: np.random.Generator, partners: tuple[Verdict, ...] = (Verdict.SIMILAR,)
) -> Ids:
    """The images to train on: all images with a known pair, if there are at most ``size`` of them. Otherwise
    some are drawn evenly, and each brings one partner for each verdict in ``partners``. Without partners a
    batch from many small groups has almost no similar pair: this is the oversampling of the rarer kind."""
    images = known.members
    if len(images) <= size:
        return images
    drawn = rng.choice(images, size // (1 + len(partners)), replace=False)
    brought = [known.partner(drawn, verdict, rng) for verdict in partners]
    return np.unique(np.concatenate([drawn, *brought]))


def logits(softmax: nn.Linear, z: Tensor) -> Tensor:
    """(m, out) unit rows → (m, C). Rows are scaled to a spread of one, which suits the initial weights."""
    return F.linear(z * math.sqrt(z.shape[1]), softmax.weight, softmax.bias)


@torch.inference_mode()
def class_probabilities(fitted: Fitted, projected: Floats) -> Floats:
    """The softmax on the head's output: (n, out) → (n, C)."""
    assert fitted.softmax is not None
    return F.softmax(logits(fitted.softmax, torch.from_numpy(projected)), dim=1).numpy()
