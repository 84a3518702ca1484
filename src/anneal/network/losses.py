"""Losses on a batch of *images*: every known pair among them counts, each image is encoded once.

``s`` is the (m, m) matrix of cosine similarities of the batch, ``known`` the (m, m) matrix of verdicts
(``Relations.among``). The diagonal never counts, and a pair counts once for each of its two places.
Pure tensor functions; the tests recompute each by a loop over pairs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from anneal.pairs import Verdict

Loss = Callable[[Tensor, Tensor], Tensor]


def contrastive(s: Tensor, known: Tensor, margin: float = 0.5) -> Tensor:
    """y = 1 → 1 − s;  y = 0 → max(0, s − m).  The mean over similar pairs and the mean over
    dissimilar pairs weigh the same: what oversampling the rarer kind does on average."""
    similar, dissimilar = _masks(known)
    return _balanced(1 - s, similar, F.relu(s - margin), dissimilar)


def ntxent(s: Tensor, known: Tensor, temperature: float = 0.1) -> Tensor:
    """For an anchor i and a similar image p, with the images N known to be dissimilar to i,

        ℓ(i, p) = −log( e^{s_ip/τ} / (e^{s_ip/τ} + Σ_{n∈N} e^{s_in/τ}) )

    averaged over the similar images of each anchor, then over the anchors that have any. An image
    whose relation to i is unknown is no part of the sum.
    """
    similar, dissimilar = _masks(known)
    s = s / temperature
    away = s.masked_fill(~dissimilar, -1e4).logsumexp(dim=1)  # (m,) so low without any that ℓ = 0
    each = F.softplus(away[:, None] - s)  # −log(e^s / (e^s + e^away))
    number = similar.sum(dim=1)
    each = (each * similar).sum(dim=1) / number.clamp(min=1)  # (m,) 0 for an anchor without any
    return each.sum() / (number > 0).sum().clamp(min=1)


def mix(s: Tensor, known: Tensor, weight: float = 0.3) -> Tensor:
    """NT-Xent orders the neighbours, the contrastive term gives similarity a scale."""
    return ntxent(s, known) + weight * contrastive(s, known)


def pair_bce(logits: Tensor, similar: Tensor) -> Tensor:
    """−y log P − (1 − y) log(1 − P), P the sigmoid of the (p,) logits and y the (p,) truth; balanced
    as the contrastive loss is."""
    return _balanced(F.softplus(-logits), similar, F.softplus(logits), ~similar)


def held_back(z: Tensor, anchor: Tensor) -> Tensor:
    """Mean of (s − s₀)² over a batch: how far similarities have moved from their frozen values."""
    return F.mse_loss(z @ z.T, anchor @ anchor.T)


LOSSES: dict[str, Loss] = {"contrastive": contrastive, "ntxent": ntxent, "mix": mix}


def _masks(known: Tensor) -> tuple[Tensor, Tensor]:
    off = ~torch.eye(len(known), dtype=torch.bool, device=known.device)
    return (known == Verdict.SIMILAR) & off, (known == Verdict.DISSIMILAR) & off


def _balanced(near: Tensor, similar: Tensor, far: Tensor, dissimilar: Tensor) -> Tensor:
    """Mean of two means; of the one there is where a batch has pairs of one kind only."""
    sums = torch.stack([(near * similar).sum(), (far * dissimilar).sum()])
    counts = torch.stack([similar.sum(), dissimilar.sum()])
    return (sums / counts.clamp(min=1)).sum() / (counts > 0).sum().clamp(min=1)
