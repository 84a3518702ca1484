"""Losses on a batch of *images*. Each image is encoded once, and every known pair among them counts.

``s`` is the (m, m) matrix of cosine similarities of the batch. ``known`` is the (m, m) matrix of verdicts
(``Relations.among``). The diagonal does not count. A pair (i, j) counts at [i, j] and at [j, i].

Both may be (m, k) instead, the batch beside k other images. Then pairs of an image with itself are UNKNOWN.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from anneal.pairs import Verdict

Loss = Callable[[Tensor, Tensor], Tensor]


def contrastive(s: Tensor, known: Tensor, margin: float = 0.5) -> Tensor:
    """y = 1 → 1 − s;  y = 0 → max(0, s − m).  The mean over similar pairs and the mean over dissimilar
    pairs have equal weight. On average this is the same as oversampling the rarer kind."""
    similar, dissimilar = _masks(known)
    return _balanced(1 - s, similar, F.relu(s - margin), dissimilar)


def ntxent(s: Tensor, known: Tensor, temperature: float = 0.1) -> Tensor:
    """For an anchor i, a similar image p, and the set N of images known to be dissimilar to i:

        ℓ(i, p) = −log( e^{s_ip/τ} / (e^{s_ip/τ} + Σ_{n∈N} e^{s_in/τ}) )

    The mean is over the similar images of each anchor, then over the anchors that have any. An image
    whose relation to i is unknown does not count.
    """
    similar, dissimilar = _masks(known)
    s = s / temperature
    negative = s.masked_fill(~dissimilar, -1e4).logsumexp(dim=1)  # (m,) without negatives so low that ℓ = 0
    per_pair = F.softplus(negative[:, None] - s)  # (m, m) −log(e^s / (e^s + e^negative))
    positives = similar.sum(dim=1)  # (m,)
    per_anchor = (per_pair * similar).sum(dim=1) / positives.clamp(min=1)  # (m,) 0 without positives
    return per_anchor.sum() / (positives > 0).sum().clamp(min=1)


def mix(s: Tensor, known: Tensor, weight: float = 0.3) -> Tensor:
    """NT-Xent orders the neighbours; the contrastive term gives similarity a scale."""
    return ntxent(s, known) + weight * contrastive(s, known)


def pair_bce(logits: Tensor, similar: Tensor) -> Tensor:
    """−y log P − (1 − y) log(1 − P), where P is the sigmoid of the (p,) logits and y the (p,) truth.
    Both kinds have equal weight, as in the contrastive loss."""
    return _balanced(F.softplus(-logits), similar, F.softplus(logits), ~similar)


def anchor_loss(z: Tensor, anchor: Tensor) -> Tensor:
    """Mean of (s − s₀)² over all pairs of a batch: how far similarities are from their frozen values s₀."""
    return F.mse_loss(z @ z.T, anchor @ anchor.T)


LOSSES: dict[str, Loss] = {"contrastive": contrastive, "ntxent": ntxent, "mix": mix}


def _masks(known: Tensor) -> tuple[Tensor, Tensor]:
    counts = torch.ones_like(known, dtype=torch.bool)
    if known.shape[0] == known.shape[1]:
        counts.fill_diagonal_(False)
    return (known == Verdict.SIMILAR) & counts, (known == Verdict.DISSIMILAR) & counts


def _balanced(near: Tensor, similar: Tensor, far: Tensor, dissimilar: Tensor) -> Tensor:
    """The mean of two means. If a batch has pairs of one kind only, the mean over that kind."""
    sums = torch.stack([(near * similar).sum(), (far * dissimilar).sum()])
    counts = torch.stack([similar.sum(), dissimilar.sum()])
    return (sums / counts.clamp(min=1)).sum() / (counts > 0).sum().clamp(min=1)
