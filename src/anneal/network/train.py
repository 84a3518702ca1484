"""fit: train an encoder on what is known about pairs. The training loop is in ``_train``."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from anneal.errors import UsageError
from anneal.files import gather, release
from anneal.method.relations import Relations
from anneal.network import processes
from anneal.network.backbones import Backbone, trains_in_half
from anneal.network.checkpoint import Checkpoint
from anneal.network.encode import prepare
from anneal.network.losses import LOSSES, anchor_loss, pair_bce
from anneal.network.model import Depth, Encoder, PairClassifier, Shape, narrowed, trainable, widen
from anneal.pairs import Floats, Ids, Verdict
from anneal.watch import Progress, silent

ADAM = (0.9, 0.999)  # the betas that everyone uses
PAIRS = 128  # pairs in a batch of the paper
FEW = 160  # images: with fewer known images, similarities keep closer to their frozen values
SAMPLE = 20_000  # images that stand for a larger archive, for the scale of its features and the anchor loss
BLOCK = 4096  # rows that are read at once

Step = tuple[Ids, Ids]
"""The images to train on, (m,), and those of the anchor loss, (a,)."""
Read = Callable[[Ids], tuple[Tensor, Tensor | None]]
"""Images → the encoder's input and, if it is anchored, their anchors."""


@dataclass(frozen=True)
class Fit:
    """How to train. ``Fit.at(depth)`` gives the defaults of each depth."""

    loss: str = "mix"
    steps: int = 150  # at least
    passes: int = 10  # over the images with known pairs: where they are many, they take more steps …
    most: int = 300  # … up to this
    batch: int = 256  # images, each encoded once
    lr: float = 2e-3
    betas: tuple[float, float] = (0.8, 0.95)  # of AdamW: a short memory, because the steps are few
    narrow: bool = True  # train a wide head on the leading components of its input: see ``model.narrowed``
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
        plain: dict[str, Any] = {"lr": 1e-4, "betas": ADAM, "passes": 0, "noise": 0.0, "narrow": False}
        if recipe == "paper":
            both = (Verdict.SIMILAR, Verdict.DISSIMILAR)
            paper = {"batch": 48, "epochs": 15, "weight_decay": 0.0, "hold": 0.0, "decay": False}
            return cls(**{**plain, **paper, "partners": both, **settings})
        if depth == "head":
            return cls(**settings)
        return cls(**{**plain, "steps": 150, "batch": 64, **settings})

    def times(self, length: int) -> Self:
        """The same settings with ``length`` times as many steps."""
        longer = {name: getattr(self, name) * length for name in ("steps", "passes", "most", "epochs")}
        return replace(self, **longer)

    def knowing(self, images: int, of: int) -> Self:
        """A larger ``hold`` while the images with known pairs are few: ``images`` of ``of`` images."""
        few = min(FEW, of / 2)
        return replace(self, hold=self.hold * max(1.0, few / max(images, 1)) ** 2)

    def length(self, known: Relations) -> int:
        """The number of steps. An epoch is a pass over the known pairs, but over at most eight per image, as
        in the paper. So it does not grow with the implied pairs."""
        if not self.epochs:
            drawn = self.batch // (1 + len(self.partners))
            passes = math.ceil(self.passes * len(known.members) / drawn)
            return max(self.steps, min(passes, self.most))
        pairs = known.count(Verdict.SIMILAR) + known.count(Verdict.DISSIMILAR)
        return self.epochs * math.ceil(min(pairs, 8 * len(known.members)) / PAIRS)


@dataclass(frozen=True)
class Fitted:
    encoder: Encoder
    classifier: PairClassifier | None
    softmax: nn.Linear | None
    losses: tuple[float, ...] = ()  # of every step

    @property
    def loss(self) -> float:
        """Mean over the last tenth of the steps."""
        return float(np.mean(self.losses[-max(1, len(self.losses) // 10) :]))


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
    checkpoint: Path | None = None,
    progress: Progress = silent,
) -> Fitted:
    """Train an encoder on every known pair. The state of ``rng`` determines the result.

    ``stored`` is what ``encode.inputs`` returned. The features of ``images`` (default: all) set the scale of
    the head's input, and the anchor loss draws from them. ``pair_classifier`` trains BCGUE's classifier too,
    ``classes`` (−1 where unknown) a softmax on the head. Training starts at ``start``, if given. If
    it takes minutes it is saved in the file ``checkpoint`` on its way, and goes on from there. Processes that
    a launcher started beside this one help, if they call ``assist``; then nothing is saved.
    """
    if not len(known.members):
        raise UsageError("Nothing can be learnt yet: no pair has been judged similar or dissimilar.")
    images = np.arange(len(stored)) if images is None else images
    if len(images) > SAMPLE:
        images = np.sort(rng.choice(images, SAMPLE, replace=False))
    task = _Task(known, settings, images, shape or Shape(), pair_classifier, classes, metric, start)
    processes.join(backbone.device)
    processes.from_main((task, rng))
    return _fit(backbone, depth, stored, task, rng, progress, checkpoint)


def assist(backbone: Backbone, depth: Depth, stored: NDArray[Any]) -> None:
    """Help the main process with its ``fit``, in a process that a launcher started beside it."""
    processes.join(backbone.device)
    task, rng = processes.from_main(None)
    _fit(backbone, depth, stored, task, rng, silent)


@dataclass(frozen=True)
class _Task:
    """What ``fit`` is to learn, as the processes tell each other."""

    known: Relations
    settings: Fit
    images: Ids
    shape: Shape
    pair_classifier: bool
    classes: Ids | None
    metric: bool
    start: Encoder | None


def _fit(
    backbone: Backbone,
    depth: Depth,
    stored: NDArray[Any],
    task: _Task,
    rng: np.random.Generator,
    progress: Progress,
    checkpoint: Path | None = None,
) -> Fitted:
    """Make the networks, draw what every step shows, read it and train."""
    shape = task.shape
    classes = task.classes
    device = backbone.device
    dim = int(trainable(backbone, depth)(prepare(stored[:1], backbone).to(device)).shape[1])
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
        seed = int(rng.integers(2**63))
        torch.manual_seed(seed)
        encoder = Encoder(backbone, depth, dim, shape).to(device)
        if task.start is not None:
            encoder.load_state_dict(task.start.state_dict())
        elif depth == "head":
            encoder.settle(torch.from_numpy(gather(stored, task.images)).to(device))
        compared_dim = dim if encoder.space == "backbone" else shape.out
        classifier = None
        if task.pair_classifier:
            classifier = PairClassifier(compared_dim, shape.classifier).to(device)
        softmax = None if classes is None else nn.Linear(shape.out, int(classes.max()) + 1).to(device)
        steps = _draw(task, encoder.anchored, rng)
        twin = narrowed(encoder) if task.settings.narrow else None
        trained = Fitted(encoder if twin is None else twin[0], classifier, softmax)
        if encoder.anchored:
            read = _at_once(encoder, None if twin is None else twin[1], backbone, stored, steps)
        else:
            read = _as_stored(backbone, stored)
        if processes.rank():
            torch.manual_seed(seed + processes.rank())  # each process has noise of its own
        losses = _train(trained, read, steps, task, rng, device, progress, checkpoint)
        if twin is not None:
            widen(*twin, encoder)
    return Fitted(encoder.eval(), classifier, softmax, tuple(losses))


def _train(
    networks: Fitted,
    read: Read,
    steps: list[Step],
    task: _Task,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress,
    checkpoint: Path | None,
) -> list[float]:
    """Returns the loss of every step. A step encodes m images with known pairs and a for the anchor loss."""
    settings = task.settings
    encoder = networks.encoder
    trained = (encoder, networks.classifier, networks.softmax)
    parts = nn.ModuleList([part for part in trained if part is not None])
    parts.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the layout of the images
    parts.train()
    processes.share_batch_norms(encoder)
    optimizer = torch.optim.AdamW(
        parts.parameters(), betas=settings.betas, weight_decay=settings.weight_decay, fused=True
    )
    half = trains_in_half(device, encoder.depth)
    saved = Checkpoint(checkpoint, parts, optimizer, rng, _describe(task, steps, device, half))
    losses = saved.resume()
    done = len(losses)
    for step, (taught, others) in enumerate(steps[done:], start=done):  # (m,), (a,)
        m = len(taught)
        x, anchor = read(processes.share(np.concatenate([taught, others])))
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            features, z_shown = encoder(x, settings.noise, anchor)  # (m + a, dim), (m + a, out)
        z_shown = processes.gather(z_shown.float())
        loss = _loss(networks, task, taught, z_shown[:m], features, rng)
        if anchor is not None and len(others):
            loss = loss + settings.hold * anchor_loss(z_shown[m:], processes.gather(anchor)[m:])
        decay = (1 + math.cos(math.pi * step / len(steps))) / 2 if settings.decay else 1.0
        optimizer.param_groups[0]["lr"] = settings.lr * decay
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        processes.average_gradients(parts.parameters())
        optimizer.step()
        losses.append(loss.detach())
        saved.offer(losses)
        progress(step + 1, len(steps))
    saved.finish(losses)
    parts.eval()
    return torch.stack(losses).tolist()


def _loss(
    networks: Fitted, task: _Task, taught: Ids, z: Tensor, features: Tensor, rng: np.random.Generator
) -> Tensor:
    """The loss of a batch, (m, out) rows of the head, without the anchor loss: of the metric, of BCGUE's
    classifier and of the softmax, if they are trained. ``features`` are this process's share, (·, dim)."""
    settings = task.settings
    verdicts = task.known.among(taught, taught)  # (m, m)
    loss = torch.zeros((), device=z.device)
    if task.metric:
        loss = LOSSES[settings.loss](z @ z.T, torch.from_numpy(verdicts).to(z.device))
    if networks.classifier is not None:
        i, j, similar = _known_pairs(verdicts, settings.classified, rng, z.device)  # (p,) each
        compared = z
        if networks.encoder.space == "backbone":
            compared = F.normalize(processes.gather(features.float()), dim=1)
        bce = pair_bce(networks.classifier(compared, i, j), similar)
        loss = (1 - settings.gamma) * loss + settings.gamma * bce
    if networks.softmax is not None and task.classes is not None:
        target = torch.from_numpy(task.classes[taught]).to(z.device)  # (m,)
        cross_entropy = F.cross_entropy(logits(networks.softmax, z), target, ignore_index=-1)
        loss = loss + (settings.class_weight if task.metric else 1.0) * cross_entropy
    return loss


def _describe(task: _Task, steps: list[Step], device: torch.device, half: bool) -> Iterator[bytes]:
    """What determines a training, beside the networks at its start."""
    yield repr((task.settings, task.shape, task.metric, device.type, half)).encode()
    known = task.known
    for array in (known.group, known.links.data, known.links.indices, known.links.indptr, task.classes):
        yield b"" if array is None else np.ascontiguousarray(array).tobytes()
    for step in steps:
        yield np.concatenate(step).tobytes()


def _draw(task: _Task, anchored: bool, rng: np.random.Generator) -> list[Step]:
    """For every step, the images to train on and those whose similarities the anchor loss holds."""
    settings = task.settings
    others = min(settings.anchored_images, len(task.images)) if anchored and settings.hold else 0
    steps = []
    for _ in range(settings.length(task.known)):
        taught = batch(task.known, settings.batch, rng, settings.partners)
        steps.append((taught, rng.choice(task.images, others, replace=False)))
    return steps


def _as_stored(backbone: Backbone, stored: NDArray[Any]) -> Read:
    """Read the rows of a batch when they are needed."""
    return lambda shown: (prepare(stored[shown], backbone), None)


@torch.no_grad()
def _at_once(
    encoder: Encoder, basis: Tensor | None, backbone: Backbone, stored: NDArray[Any], steps: list[Step]
) -> Read:
    """Read the rows of all steps at once, in the order they have on disk, and keep what an anchored encoder
    takes, or its narrow twin on this ``basis``: at most steps × batch rows, whatever the archive's size."""
    ids = np.unique(np.concatenate([part for step in steps for part in step]))
    width = encoder.dim if basis is None else basis.shape[1]
    x = torch.empty(len(ids), width, device=backbone.device)
    anchors = torch.empty(len(ids), encoder.shape.out, device=backbone.device)
    for i in range(0, len(ids), BLOCK):
        features = prepare(stored[ids[i : i + BLOCK]], backbone)
        anchors[i : i + BLOCK] = encoder.anchor(features)
        if basis is not None:
            features = (features - encoder.mean) / encoder.std @ basis
        x[i : i + BLOCK] = features
        release(stored)

    def read(shown: Ids) -> tuple[Tensor, Tensor]:
        at = torch.from_numpy(np.searchsorted(ids, shown)).to(backbone.device)
        return x[at], anchors[at]

    return read


def _known_pairs(
    verdicts: NDArray[np.int8], most: int, rng: np.random.Generator, device: torch.device
) -> tuple[Tensor, ...]:
    """Rows i, columns j and truth of the known pairs of a batch, at most ``most`` / 2 of each kind."""
    upper = np.triu(verdicts, k=1)
    kinds = [np.argwhere(upper == verdict) for verdict in (Verdict.SIMILAR, Verdict.DISSIMILAR)]
    kinds = [rng.permutation(kind)[: most // 2] for kind in kinds]
    i, j = torch.from_numpy(np.concatenate(kinds)).to(device).unbind(dim=1)
    return i, j, torch.arange(len(i), device=device) < len(kinds[0])


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
    z = torch.from_numpy(np.array(projected)).to(fitted.softmax.weight.device)
    return F.softmax(logits(fitted.softmax, z), dim=1).cpu().numpy()
