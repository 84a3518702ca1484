"""fit: teach an encoder what is known about pairs. One visible loop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from anneal.archive import Progress, silent
from anneal.backbones import Backbone
from anneal.embed import prepare
from anneal.errors import UsageError
from anneal.losses import LOSSES, pair_bce
from anneal.model import Depth, Encoder, PairClassifier, Shape, trainable
from anneal.pairs import Floats, Ids, Verdict
from anneal.transitivity import Relations


@dataclass(frozen=True)
class Fit:
    """How to train. ``Fit.at(depth)`` has the defaults of each depth."""

    loss: str = "mix"  # the plain contrastive loss leaves MGUE no better than random (docs/method.md)
    steps: int = 200
    batch: int = 384  # images, each encoded once
    lr: float = 1e-3
    weight_decay: float = 1e-4
    noise: float = 0.1  # on standardised features: the augmentation of depth head
    gamma: float = 0.5  # L = (1 − γ) L_metric + γ L_BCE, where a pair classifier is trained
    class_weight: float = 0.5  # of the softmax's cross-entropy, where classes are known

    @classmethod
    def at(cls, depth: Depth, loss: str = "mix") -> Fit:
        """A network that is fine-tuned wants a smaller step, and its batches are dear."""
        if depth == "head":
            return cls(loss=loss)
        return cls(loss=loss, steps=150, batch=64, lr=1e-4, noise=0.0)


@dataclass(frozen=True)
class Fitted:
    encoder: Encoder
    classifier: PairClassifier | None
    softmax: nn.Linear | None
    loss: float  # mean over the last tenth of the steps


def fit(
    backbone: Backbone,
    depth: Depth,
    kept: NDArray[Any],
    known: Relations,
    settings: Fit,
    rng: np.random.Generator,
    *,
    images: Ids | None = None,
    shape: Shape | None = None,
    pair_classifier: bool = False,
    classes: Ids | None = None,
    progress: Progress = silent,
) -> Fitted:
    """A fresh encoder, trained on every known pair; the generator's state determines the result.

    ``kept`` is what ``embed.inputs`` returned; ``images`` (all, if not given) are those whose features
    set the scale of the head's input. ``classes`` (−1 where unknown) trains a softmax on the
    head as well, ``pair_classifier`` BCGUE's classifier.
    """
    if not known.count(Verdict.SIMILAR) + known.count(Verdict.DISSIMILAR):
        raise UsageError("Nothing can be learnt yet: no pair has been judged similar or dissimilar.")
    shape = shape or Shape()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        dim = _dim(backbone, depth, kept)
        encoder = Encoder(backbone, depth, dim, shape)
        if depth == "head":
            encoder.standardise(torch.from_numpy(kept[slice(None) if images is None else images]))
        compared_dim = dim if depth == "full" else shape.out
        classifier = PairClassifier(compared_dim, shape.classifier) if pair_classifier else None
        softmax = None if classes is None else nn.Linear(shape.out, int(classes.max()) + 1)
        parts = nn.ModuleList([m for m in (encoder, classifier, softmax) if m is not None])
        parts.train()
        optimizer = torch.optim.AdamW(parts.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
        metric_loss, losses = LOSSES[settings.loss], []
        for step in range(settings.steps):
            some = batch(known, settings.batch, rng)  # (m,)
            x = prepare(kept[some], backbone)
            if settings.noise:
                x = x + settings.noise * encoder.std * torch.randn_like(x)
            verdicts = torch.from_numpy(known.among(some, some))  # (m, m)
            compared, z = encoder(x)
            loss = metric_loss(z @ z.T, verdicts)
            if classifier is not None:
                bce = pair_bce(classifier(compared), verdicts)
                loss = (1 - settings.gamma) * loss + settings.gamma * bce
            if softmax is not None and classes is not None:
                target = torch.from_numpy(classes[some])
                loss = loss + settings.class_weight * F.cross_entropy(softmax(z), target, ignore_index=-1)
            for group in optimizer.param_groups:  # cosine schedule, to zero
                group["lr"] = settings.lr * (1 + math.cos(math.pi * step / settings.steps)) / 2
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
            progress(step + 1, settings.steps)
    parts.eval()
    tail = losses[-max(1, len(losses) // 10) :]
    return Fitted(encoder, classifier, softmax, float(np.mean(tail)))


def batch(known: Relations, size: int, rng: np.random.Generator) -> Ids:
    """Images to train on: all of which something is known, if they are few enough; else half drawn
    evenly, and for each of these one known to be similar to it. Without the partners a batch out of
    many small groups would hold hardly a similar pair: this is the oversampling of the rarer kind.
    """
    images = known.members
    if len(images) <= size:
        return images
    half = rng.choice(images, size // 2, replace=False)
    return np.unique(np.concatenate([half, known.similar_partner(half, rng)]))


@torch.inference_mode()
def class_probabilities(fitted: Fitted, projected: Floats) -> Floats:
    """(n, C) softmax on the head's output."""
    assert fitted.softmax is not None
    probability: Floats = F.softmax(fitted.softmax(torch.from_numpy(projected)), dim=1).numpy()
    return probability


@torch.inference_mode()
def _dim(backbone: Backbone, depth: Depth, kept: NDArray[Any]) -> int:
    if depth == "head":
        return int(kept.shape[1])
    return int(trainable(backbone, depth)(prepare(kept[:1], backbone)).shape[1])
