"""One round of depth head with 3 000 answers on UC-Merced. Its peers, measured in the same run:

- a DataLoader over the answered pairs with pytorch-metric-learning's contrastive loss, 15 epochs, on the same
  stored features: what most people would write;
- our own recipe of 200 steps on the whole width of the features;
- a step on pairs, each encoded by itself, instead of on images;
- the frozen features computed again instead of read from disk.

    python bench/training.py [images] [cache]      # default: ../shared/data/UCMerced beside the repository

Without these images it draws some scenes and says so. The score is mAP@5 on the split's test images.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import ContrastiveLoss
from sidebyside import alternate, row
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from anneal.archive.catalog import Archive, open_archive
from anneal.experiments import scenes
from anneal.experiments.oracle import Oracle, Split, score, split_of
from anneal.method.neighbours import unit
from anneal.method.relations import Relations, full
from anneal.network import backbones, encode
from anneal.network.backbones import Backbone
from anneal.network.losses import contrastive
from anneal.network.model import Encoder, Shape, frozen
from anneal.network.train import ADAM, Fit, fit
from anneal.pairs import Answers, Floats, Ids, Pairs, Verdict

DATA = Path(__file__).parent.parent.parent / "shared" / "data" / "UCMerced"
ANSWERS = 3000
EPOCHS = 15
BEFORE = Fit(steps=200, passes=0, lr=1e-3, betas=ADAM, narrow=False)
SEEDS = range(3)  # of a score


@dataclass(frozen=True)
class Task:
    backbone: Backbone
    stored: NDArray[Any]
    classes: Ids
    split: Split
    answers: Answers
    known: Relations

    def score(self, vectors: Floats) -> float:
        return score(vectors, self.split, self.classes)["map5_min"]

    def ours(self, settings: Fit, seed: int = 0) -> Floats:
        """Fit and embed."""
        rng = np.random.default_rng(seed)
        images = self.split.train
        encoder = fit(self.backbone, "head", self.stored, self.known, settings, rng, images=images).encoder
        return encode.vectors(encoder, self.backbone, self.stored, ["head"])["head"]

    def peers(self, seed: int = 0) -> Floats:
        """The paper's head on standardised features, trained on the answers pair by pair."""
        torch.manual_seed(seed)
        features = torch.from_numpy(np.array(self.stored))
        train = features[self.split.train]
        x = (features - train.mean(dim=0)) / (train.std(dim=0) + 1e-6)
        head = nn.Sequential(nn.Linear(x.shape[1], 512), nn.ReLU(), nn.Linear(512, 256))
        loss_of = ContrastiveLoss(pos_margin=1, neg_margin=0.5, distance=CosineSimilarity())
        optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
        similar = torch.from_numpy(self.answers.verdicts == Verdict.SIMILAR)
        pairs = TensorDataset(*map(torch.from_numpy, (self.answers.pairs.a, self.answers.pairs.b)), similar)
        for _ in range(EPOCHS):
            for a, b, same in DataLoader(pairs, batch_size=128, shuffle=True):
                z = head(torch.cat([x[a], x[b]]))
                i = torch.arange(len(a))
                j = i + len(a)
                loss = loss_of(z, indices_tuple=(i[same], j[same], i[~same], j[~same]))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        with torch.inference_mode():
            return F.normalize(head(x), dim=1).numpy()

    def mean_score(self, train: Callable[[int], Floats]) -> float:
        return float(np.mean([self.score(train(seed)) for seed in SEEDS]))


def task(archive: Archive) -> Task:
    """Answers to random questions about the training images, half of them similar."""
    backbone = backbones.load(backbones.DEFAULT)
    stored = encode.inputs(archive, backbone, "head")
    classes = Oracle.of(archive).classes
    split = split_of(archive, seed=0)
    rng = np.random.default_rng(0)
    a = rng.choice(split.train, ANSWERS)
    b = rng.choice(split.train, ANSWERS)
    for at in range(0, ANSWERS, 2):
        b[at] = rng.choice(split.train[classes[split.train] == classes[a[at]]])
    differ = a != b
    pairs = Pairs.of(a[differ], b[differ])
    same = classes[pairs.a] == classes[pairs.b]
    answers = Answers.of(pairs, np.where(same, Verdict.SIMILAR, Verdict.DISSIMILAR))
    return Task(backbone, stored, classes, split, answers, full(len(archive), answers).relations)


def rounds(work: Task, name: str) -> None:
    """Whole rounds: against the peer at its score, and against our own earlier recipe."""
    print(f"frozen features: {work.score(unit(work.stored)):.3f}", flush=True)
    theirs = work.mean_score(work.peers)
    for steps in (5, 8, 10, 11, 12, 13, 14, 15, 20, 30, 40, 60, 80, 100):
        few = Fit(steps=steps, passes=0)
        reached = work.mean_score(lambda seed, few=few: work.ours(few, seed))  # type: ignore[misc]
        if reached >= theirs:
            break
    ratio = alternate(lambda: work.ours(few), work.peers, repeats=3)
    round_ = f"a round with {len(work.answers)} answers on {name}"
    ours = f"{round_}, {few.steps} steps: mAP@5 {reached:.3f}"
    row(ours, f"a DataLoader over pairs, {EPOCHS} epochs: {theirs:.3f}", ratio, "≥ 10 at its score")
    now = work.mean_score(lambda seed: work.ours(Fit(), seed))
    before = work.mean_score(lambda seed: work.ours(BEFORE, seed))
    ratio = alternate(lambda: work.ours(Fit()), lambda: work.ours(BEFORE), repeats=3)
    row(f"{round_}: {now:.3f}", f"200 steps on all features: {before:.3f}", ratio, "≥ 2 at its score")


def steps(work: Task, images: int = 128, classes: int = 12, encoded: int = 16) -> None:
    """One step: on images and not on pairs, on stored features and not on pixels."""
    rng = np.random.default_rng(0)
    dim = work.stored.shape[1]
    encoder = Encoder(work.backbone, "head", dim, Shape(anchored=False))
    x = torch.from_numpy(rng.normal(size=(images, dim)).astype(np.float32))
    labels = rng.integers(classes, size=images)
    same = labels[:, None] == labels[None, :]
    known = torch.from_numpy(np.where(same, Verdict.SIMILAR, Verdict.DISSIMILAR).astype(np.int8))
    i, j = torch.triu_indices(images, images, 1)

    def on_images() -> None:
        z = encoder(x)[1]
        contrastive(z @ z.T, known).backward()  # type: ignore[no-untyped-call]

    def on_pairs() -> None:
        s = (encoder(x[i])[1] * encoder(x[j])[1]).sum(dim=1)
        similar = known[i, j] == Verdict.SIMILAR
        loss: Tensor = ((1 - s)[similar].mean() + F.relu(s - 0.5)[~similar].mean()) / 2
        loss.backward()  # type: ignore[no-untyped-call]

    pixels = torch.from_numpy(rng.integers(0, 256, (encoded, 224, 224, 3), dtype=np.uint8))
    network = frozen(work.backbone, "head")

    @torch.inference_mode()
    def encode_again() -> None:
        network(work.backbone.normalise(pixels))

    step = f"a step on {images} images"
    row(step, f"the same {len(i)} pairs, each encoded", alternate(on_images, on_pairs), "–")
    row(step, f"the frozen part on {encoded} of them", alternate(on_images, encode_again), "–")


def main(images: Path = DATA, cache: Path | None = None) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        name = "UC-Merced"
        if not images.is_dir():
            name = "drawn scenes"
            print(f"{images} is not there: these are scenes that were drawn.", flush=True)
            images = scenes.drawn(Path(temporary) / "scenes", 40, 0, 96)
        archive = open_archive(images, 224, cache or Path(temporary))
        work = task(archive)
        rounds(work, name)
        steps(work)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
