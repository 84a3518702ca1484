"""What the tests of the network share: features that are quick to train on, and answers about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from anneal.method.relations import Relations, full
from anneal.network import encode
from anneal.network.backbones import Backbone
from anneal.network.model import Encoder
from anneal.network.train import Fit
from anneal.pairs import Answers, Floats, Ids, Pairs, Verdict

PLAIN = Backbone("none", torch.nn.Identity(), torch.nn.Identity(), (0.0,), (1.0,))
QUICK = Fit(steps=60, passes=0, batch=32, lr=1e-3, anchored_images=16)


def blobs(rng: np.random.Generator, kinds: int = 4, each: int = 12) -> tuple[Floats, Ids]:
    """Features and classes. Two of every three directions are noise, so there is something to learn."""
    classes = np.repeat(np.arange(kinds), each)
    centres = rng.normal(size=(kinds, 8))
    noise = rng.normal(size=(len(classes), 16)) * 3
    signal = centres[classes] + 0.3 * rng.normal(size=(len(classes), 8))
    return np.concatenate([signal, noise], axis=1).astype(np.float32), classes


def answered(classes: Ids, pairs: Pairs) -> Answers:
    """The true answers to these pairs."""
    same = classes[pairs.a] == classes[pairs.b]
    return Answers.of(pairs, np.where(same, Verdict.SIMILAR, Verdict.DISSIMILAR))


def some_known(classes: Ids, rng: np.random.Generator, n: int = 120) -> Relations:
    """What about ``n`` true answers to random pairs imply."""
    i, j = rng.integers(len(classes), size=(2, n))
    answers = answered(classes, Pairs.of(i[i != j], j[i != j]))
    return full(len(classes), answers).relations


def head_vectors(encoder: Encoder, stored: NDArray[Any]) -> Floats:
    """Every image as the head's output."""
    return encode.vectors(encoder, PLAIN, stored, ["head"])["head"]
