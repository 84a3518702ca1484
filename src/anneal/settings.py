"""How a campaign's machine takes its turn: every setting, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from anneal.errors import UsageError
from anneal.method.relations import CLOSURES


@dataclass(frozen=True)
class Plan:
    """How the machine takes its turn; written once when the campaign is made."""

    backbone: str = "efficientnet-lite0"
    depth: str = "head"
    head: str = "anchored"
    views: int = 2  # quarter turns whose features are averaged (depth head)
    px: int = 224
    strategy: str = "place"
    per_round: int = 100
    closure: str = "full"
    diversity: str = "kmeans"
    lam: float = 3.0  # λ, the paper's best
    threshold: str = "moments"  # MGUE's: the paper's α_t, or logistic, by the answers alone
    share: float = 0.5  # of the answers that MGUE aims to be similar, give or take 0.2; 0 lets α_t alone
    recheck: float = 0.15  # an answer that the model gave less chance than this is asked again; 0 trusts all
    audit: float = 0.1  # of the questions, drawn at random to measure with and held back from learning
    space: str = "search"  # where pairs are compared to be asked: search (as retrieval does), backbone, head
    loss: str = "mix"
    recipe: str = "anneal"  # how the network is trained, or paper: as the paper trains its own
    presume: float = 0.3  # train on images whose group is this likely as if they were in it; 0 does not
    restart: str = "warm"  # each round from the one before, or cold: from the pretrained weights
    length: int = 1  # how many times as long as the recipe says training takes
    gamma: float = 0.03  # weight of BCGUE's classifier in the loss
    widths: tuple[int, int] = (64, 32)  # its first two layers
    seed: int = 0

    def __post_init__(self) -> None:
        _one_of("--closure", self.closure, CLOSURES)
        _one_of("--depth", self.depth, ("head", "last", "full"))
        _one_of("--head", self.head, ("anchored", "paper"))
        _one_of("--diversity", self.diversity, ("kmeans", "kmeans-sum", "kmeans-product", "none"))
        _one_of("--space", self.space, ("search", "backbone", "head"))
        _one_of("--loss", self.loss, ("mix", "contrastive", "ntxent"))
        _one_of("--recipe", self.recipe, ("anneal", "paper"))
        _one_of("--threshold", self.threshold, ("moments", "logistic"))
        _one_of("--restart", self.restart, ("cold", "warm"))
        if not 1 <= self.views <= 4:
            raise UsageError(f"--views {self.views}: an image has 1 to 4 quarter turns.")
        if not np.isfinite(self.lam):
            raise UsageError(f"--lambda {self.lam} is not a number: the paper's value is 3.")
        for option, value in (
            ("--share", self.share),
            ("--audit", self.audit),
            ("--recheck", self.recheck),
            ("--presume", self.presume),
        ):
            if not 0 <= value <= 0.9:
                raise UsageError(f"{option} {value}: give a share from 0 to 0.9.")
        if self.per_round < 1:
            raise UsageError(f"--per-round {self.per_round}: ask at least one question a round.")
        if self.seed < 0:
            raise UsageError(f"--seed {self.seed}: give a whole number from 0 up.")

    def rng(self, *purpose: int) -> np.random.Generator:
        """A generator for one purpose, the same whatever ran before it: a stopped run that goes on
        draws what it would have drawn."""
        return np.random.default_rng([self.seed, *purpose])


def _one_of(option: str, value: str, choices: Any) -> None:
    if value not in choices:
        raise UsageError(f"{option} {value!r}: choose one of {', '.join(choices)}.")
