"""fit: teach an encoder what is known about pairs. One visible loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from anneal.archive.catalog import Progress, silent
from anneal.errors import UsageError
from anneal.method.relations import Relations
from anneal.network.backbones import Backbone
from anneal.network.encode import prepare
from anneal.network.losses import LOSSES, held_back, pair_bce
from anneal.network.model import Depth, Encoder, PairClassifier, Shape, searched, trainable
from anneal.pairs import Floats, Ids, Verdict

PAIRS = 128  # a batch of the paper's
FEW = 160  # images: who knows fewer, of an archive twice as large, knows little of the rest


@dataclass(frozen=True)
class Fit:
    """How to train. ``Fit.at(depth)`` has the defaults of each depth."""

    loss: str = "mix"
    steps: int = 200
    batch: int = 256  # images, each encoded once
    lr: float = 1e-3
    weight_decay: float = 1e-4
    noise: float = 0.3  # on the head's standardised input: the augmentation of depth head
    hold: float = 1.0  # an anchored head: how firmly similarities of other images keep their frozen value
    held: int = 64  # images a step that are held
    gamma: float = 0.03  # L = (1 − γ) L_metric + γ L_BCE, where a pair classifier is trained
    classified: int = 8192  # pairs a step that the pair classifier sees, half of each kind at most
    class_weight: float = 0.5  # of the softmax's cross-entropy beside a metric loss
    epochs: int = 0  # in place of steps: so many times the known pairs, 128 a step
    decay: bool = True  # the learning rate falls to zero, on a cosine
    partners: tuple[Verdict, ...] = (Verdict.SIMILAR,)  # drawn for each image of a batch out of many

    @classmethod
    def at(cls, depth: Depth, recipe: str = "anneal", **settings: Any) -> Fit:
        """A network that is fine-tuned wants a smaller step, and its batches are dear. The paper's recipe
        is 15 epochs of batches of 128 pairs, Adam at 1e-4, the rarer kind of pair oversampled."""
        if recipe == "paper":
            both = (Verdict.SIMILAR, Verdict.DISSIMILAR)
            paper = cls(batch=48, lr=1e-4, weight_decay=0.0, noise=0.0, hold=0.0, epochs=15, decay=False)
            return replace(paper, partners=both, **settings)
        if depth == "head":
            return cls(**settings)
        return cls(**{"steps": 150, "batch": 64, "lr": 1e-4, "noise": 0.0, **settings})

    def times(self, length: int) -> Fit:
        """The same, so many times as long."""
        return replace(self, steps=self.steps * length, epochs=self.epochs * length)

    def knowing(self, images: int, of: int) -> Fit:
        """The same, if something is known of so many images of an archive: while they are few, similarities
        keep their frozen values the more firmly."""
        few = min(FEW, of / 2)
        return replace(self, hold=self.hold * max(1.0, few / max(images, 1)) ** 2)

    def length(self, known: Relations) -> int:
        """How many steps. An epoch is over the known pairs, but over no more than eight an image, which is
        what the paper forms of a labelled image: so it is as long whoever knows the same labels."""
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
    kept: NDArray[Any],
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
    """An encoder trained on every known pair; the generator's state determines the result.

    ``kept`` is what ``embed.inputs`` returned; ``images`` (all, if not given) are those whose features
    set the scale of the head's input. ``classes`` (−1 where unknown) trains a softmax on the
    head as well, or without ``metric`` alone; ``pair_classifier`` BCGUE's classifier. It begins at
    ``start``, or else afresh.
    """
    if not len(known.members):
        raise UsageError("Nothing can be learnt yet: no pair has been judged similar or dissimilar.")
    pool = np.arange(len(kept)) if images is None else images
    shape, dim = shape or Shape(), _dim(backbone, depth, kept)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        encoder = Encoder(backbone, depth, dim, shape)
        if depth == "head":
            encoder.settle(torch.from_numpy(kept[pool]))
        if start is not None:
            encoder.load_state_dict(start.state_dict())
        compared_dim = dim if searched(depth) == "backbone" else shape.out
        classifier = PairClassifier(compared_dim, shape.classifier) if pair_classifier else None
        softmax = None if classes is None else nn.Linear(shape.out, int(classes.max()) + 1)
        parts = nn.ModuleList([m for m in (encoder, classifier, softmax) if m is not None])
        parts.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as the images come
        parts.train()
        optimizer = torch.optim.AdamW(
            parts.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, fused=True
        )
        metric_loss, losses = LOSSES[settings.loss], []
        held = min(settings.held, len(pool)) if encoder.anchored and settings.hold else 0
        anchors = _anchors(encoder, kept) if encoder.anchored else None  # (n, out)
        steps = settings.length(known)
        for step in range(steps):
            some = batch(known, settings.batch, rng, settings.partners)  # (m,)
            others = rng.choice(pool, held, replace=False)
            shown = np.concatenate([some, others])
            anchor = None if anchors is None else anchors[torch.from_numpy(shown)]
            features, z = encoder(prepare(kept[shown], backbone), settings.noise, anchor)
            z, free = z[: len(some)], z[len(some) :]
            verdicts = known.among(some, some)  # (m, m)
            loss = metric_loss(z @ z.T, torch.from_numpy(verdicts)) if metric else torch.zeros(())
            if classifier is not None:
                i, j, similar = _some_pairs(verdicts, settings.classified, rng)
                compared = F.normalize(features, dim=1) if searched(depth) == "backbone" else z
                bce = pair_bce(classifier(compared, i, j), similar)
                loss = (1 - settings.gamma) * loss + settings.gamma * bce
            if softmax is not None and classes is not None:
                target = torch.from_numpy(classes[some])
                cross_entropy = F.cross_entropy(logits(softmax, z), target, ignore_index=-1)
                loss = loss + (settings.class_weight if metric else 1.0) * cross_entropy
            if held and anchor is not None:
                loss = loss + settings.hold * held_back(free, anchor[len(some) :])
            for group in optimizer.param_groups if settings.decay else ():
                group["lr"] = settings.lr * (1 + math.cos(math.pi * step / steps)) / 2
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
            progress(step + 1, steps)
    parts.eval()
    tail = losses[-max(1, len(losses) // 10) :]
    return Fitted(encoder, classifier, softmax, float(np.mean(tail)))


@torch.no_grad()
def _anchors(encoder: Encoder, kept: NDArray[Any], step: int = 4096) -> Tensor:
    """Where every image stands before anything is learnt: once, not in every step."""
    blocks = (torch.from_numpy(np.array(kept[i : i + step])) for i in range(0, len(kept), step))
    return torch.cat([encoder.anchor(block) for block in blocks])


def _some_pairs(
    verdicts: NDArray[np.int8], most: int, rng: np.random.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows i, columns j and truth of known pairs of a batch: all of them, or a draw of each kind."""
    upper = np.triu(verdicts, k=1)
    kinds = [np.argwhere(upper == verdict) for verdict in (Verdict.SIMILAR, Verdict.DISSIMILAR)]
    kinds = [rng.permutation(kind)[: most // 2] for kind in kinds]
    i, j = torch.from_numpy(np.concatenate(kinds)).unbind(dim=1)
    return i, j, torch.arange(len(i)) < len(kinds[0])


def batch(
    known: Relations, size: int, rng: np.random.Generator, partners: tuple[Verdict, ...] = (Verdict.SIMILAR,)
) -> Ids:
    """Images to train on: all of which something is known, if they are few enough; else some drawn
    evenly, and for each of these one known to be similar to it (and one dissimilar, if wished). Without
    partners a batch out of many small groups would hold hardly a similar pair: this is the
    oversampling of the rarer kind.
    """
    images = known.members
    if len(images) <= size:
        return images
    drawn = rng.choice(images, size // (1 + len(partners)), replace=False)
    return np.unique(np.concatenate([drawn, *(known.partner(drawn, verdict, rng) for verdict in partners)]))


def logits(softmax: nn.Linear, z: Tensor) -> Tensor:
    """(m, C) of unit rows, scaled to spread one, which the layer's initial weights are made for."""
    scaled: Tensor = softmax(z * math.sqrt(z.shape[1]))
    return scaled


@torch.inference_mode()
def class_probabilities(fitted: Fitted, projected: Floats) -> Floats:
    """(n, C) softmax on the head's output."""
    assert fitted.softmax is not None
    probability: Floats = F.softmax(logits(fitted.softmax, torch.from_numpy(projected)), dim=1).numpy()
    return probability


@torch.inference_mode()
def _dim(backbone: Backbone, depth: Depth, kept: NDArray[Any]) -> int:
    if depth == "head":
        return int(kept.shape[1])
    return int(trainable(backbone, depth)(prepare(kept[:1], backbone)).shape[1])
