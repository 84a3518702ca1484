"""Losses on a batch of images, compared with loops over pairs and with pytorch-metric-learning."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import ContrastiveLoss, NTXentLoss
from pytorch_metric_learning.reducers import MeanReducer
from torch import Tensor

from anneal.network.losses import LOSSES, Loss, anchor_loss, contrastive, mix, ntxent, pair_bce

M = 10  # images in a batch
DIM = 6
S, D, U = 1, 2, 3  # similar, dissimilar, unsure
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())


def images(seed: int, m: int = M) -> Tensor:
    drawn = np.random.default_rng(seed).normal(size=(m, DIM))
    return torch.tensor(drawn, dtype=torch.float64, requires_grad=True)


def verdicts(seed: int, m: int = M, codes: tuple[int, ...] = (0, S, D, U)) -> Tensor:
    """A symmetric matrix of verdicts; an image is similar to itself."""
    drawn = np.random.default_rng(seed).choice(codes, (m, m))
    drawn = np.triu(drawn, k=1)
    return torch.tensor(drawn + drawn.T + np.eye(m, dtype=int) * S, dtype=torch.int8)


def similarities(z: Tensor) -> Tensor:
    unit = F.normalize(z, dim=1)
    return torch.mm(unit, unit.T)


def pair_cosine(z: Tensor, i: int, j: int) -> Tensor:
    lengths = z[i].square().sum() * z[j].square().sum()
    return (z[i] * z[j]).sum() / lengths.sqrt()


def mean(values: list[Tensor]) -> Tensor:
    return torch.stack(values).mean()


def balanced(similar: list[Tensor], dissimilar: list[Tensor]) -> Tensor:
    """The mean of the two means; the mean of one kind if the other is empty."""
    return mean([mean(kind) for kind in (similar, dissimilar) if kind])


def naive_contrastive(z: Tensor, known: Tensor) -> Tensor:
    """Each pair counts once."""
    similar = []
    dissimilar = []
    for i in range(len(z)):
        for j in range(i):
            s = pair_cosine(z, i, j)
            if known[i, j] == S:
                similar.append(1 - s)
            if known[i, j] == D:
                dissimilar.append(s - 0.5 if s > 0.5 else s * 0)
    return balanced(similar, dissimilar) if similar or dissimilar else z.sum() * 0


def naive_ntxent(z: Tensor, known: Tensor, temperature: float = 0.1) -> Tensor:
    anchors = []
    for i in range(len(z)):
        away = [pair_cosine(z, i, n) / temperature for n in range(len(z)) if n != i and known[i, n] == D]
        each = []
        for p in range(len(z)):
            if p != i and known[i, p] == S:
                top = torch.exp(pair_cosine(z, i, p) / temperature)
                bottom = top + sum((torch.exp(s) for s in away), start=top * 0)
                each.append(-torch.log(top / bottom))
        if each:
            anchors.append(mean(each))
    return mean(anchors) if anchors else z.sum() * 0


def naive_mix(z: Tensor, known: Tensor) -> Tensor:
    return naive_ntxent(z, known) + 0.3 * naive_contrastive(z, known)


def value_and_gradient(loss: Callable[[Tensor], Tensor], z: Tensor) -> tuple[float, Tensor]:
    value = loss(z)
    (gradient,) = torch.autograd.grad(value, z)
    return float(value.detach()), gradient


def agree(loss: Loss, naive: Callable[[Tensor, Tensor], Tensor], z: Tensor, known: Tensor) -> float:
    """Check that values and gradients of both are equal; return the value."""
    ours, our_gradient = value_and_gradient(lambda z: loss(similarities(z), known), z)
    theirs, their_gradient = value_and_gradient(lambda z: naive(z, known), z)
    assert ours == pytest.approx(theirs, abs=1e-9)
    torch.testing.assert_close(our_gradient, their_gradient, atol=1e-9, rtol=1e-7)
    return ours


NAIVE = {"contrastive": naive_contrastive, "ntxent": naive_ntxent, "mix": naive_mix}
beside_naive = pytest.mark.parametrize(
    ("loss", "naive"), [(LOSSES[name], NAIVE[name]) for name in NAIVE], ids=NAIVE.keys()
)


@beside_naive
@pytest.mark.parametrize(
    "codes",
    [(0, S, D, U), (S, D), (0, S), (0, D), (0, 0, 0, 0, 0, S, D), (0, U)],
    ids=["everything", "all-known", "similar-only", "dissimilar-only", "few", "nothing"],
)
def test_a_batch_of_images_gives_the_value_and_gradient_of_a_loop_over_pairs(
    loss: Loss, naive: Callable[[Tensor, Tensor], Tensor], codes: tuple[int, ...]
) -> None:
    values = [agree(loss, naive, images(seed), verdicts(seed + 50, codes=codes)) for seed in range(3)]
    if codes == (0, U) or (loss is ntxent and not {S, D} <= set(codes)):
        assert values == [0.0, 0.0, 0.0]
    else:
        assert min(values) > 0.001


@beside_naive
def test_a_float32_batch_gives_the_same_as_the_loop(
    loss: Loss, naive: Callable[[Tensor, Tensor], Tensor]
) -> None:
    z = images(1).detach().float().requires_grad_()
    known = verdicts(51)
    ours, gradient = value_and_gradient(lambda z: loss(similarities(z), known), z)
    exact, exact_gradient = value_and_gradient(lambda z: naive(z, known), images(1))
    assert ours == pytest.approx(exact, abs=1e-5)
    torch.testing.assert_close(gradient.double(), exact_gradient, atol=1e-5, rtol=0)


@every_loss
def test_the_gradient_equals_finite_differences(loss: Loss) -> None:
    known = verdicts(60)
    assert torch.autograd.gradcheck(lambda z: loss(similarities(z), known), (images(60),))


# ---- worked out by hand


def test_contrastive_worked_out_by_hand() -> None:
    s = torch.tensor([[1.0, 0.8, 0.9], [0.8, 1.0, 0.2], [0.9, 0.2, 1.0]])
    known = torch.tensor([[S, S, D], [S, S, D], [D, D, S]])
    # Similar: 1 − 0.8. Dissimilar: 0.9 − 0.5 and 0, a mean of 0.2. Half of each.
    assert float(contrastive(s, known)) == pytest.approx((0.2 + 0.2) / 2)
    assert float(contrastive(s, known, margin=0.1)) == pytest.approx((0.2 + (0.8 + 0.1) / 2) / 2)


def test_ntxent_worked_out_by_hand() -> None:
    s = torch.tensor([[1.0, 0.8, 0.5, 0.9], [0.8, 1.0, 0.0, 0.0], [0.5, 0.0, 1.0, 0.0], [0.9, 0.0, 0.0, 1.0]])
    known = torch.tensor([[S, S, D, 0], [S, S, 0, U], [D, 0, S, 0], [0, U, 0, S]])
    # Anchor 0 has one positive and one negative. Image 3 is near it, but unknown, so it does not count.
    # Anchor 1 has a positive and no negative: 0. Anchors 2 and 3 have no positive.
    for temperature in (0.1, 0.5):
        first = -math.log(1 / (1 + math.exp((0.5 - 0.8) / temperature)))
        assert float(ntxent(s, known, temperature)) == pytest.approx(first / 2, rel=1e-5)


def test_mix_is_ntxent_plus_a_share_of_contrastive() -> None:
    s = similarities(images(2)).detach()
    known = verdicts(52)
    ordering = float(ntxent(s, known))
    scale = float(contrastive(s, known))
    assert float(mix(s, known)) == pytest.approx(ordering + 0.3 * scale)
    assert float(mix(s, known, weight=2.0)) == pytest.approx(ordering + 2 * scale)


def test_losses_by_name() -> None:
    assert {"contrastive": contrastive, "ntxent": ntxent, "mix": mix} == LOSSES


# ---- the pair classifier's loss and the anchor loss


def naive_bce(logits: Tensor, similar: Tensor) -> Tensor:
    """−y log P − (1 − y) log(1 − P)"""
    kinds: dict[bool, list[Tensor]] = {True: [], False: []}
    for logit, y in zip(logits, similar.tolist(), strict=True):
        p = 1 / (1 + torch.exp(-logit))
        kinds[y].append(-torch.log(p) if y else -torch.log(1 - p))
    return balanced(kinds[True], kinds[False])


@pytest.mark.parametrize("truth", [[1, 0, 0, 1, 0, 0, 0], [1] * 7, [0] * 7], ids=["both", "ones", "zeros"])
def test_pair_bce_gives_the_value_and_gradient_of_a_loop_over_pairs(truth: list[int]) -> None:
    similar = torch.tensor(truth, dtype=torch.bool)
    drawn = 3 * np.random.default_rng(1).normal(size=7)
    logits = torch.tensor(drawn, dtype=torch.float64, requires_grad=True)
    ours, gradient = value_and_gradient(lambda x: pair_bce(x, similar), logits)
    theirs, their_gradient = value_and_gradient(lambda x: naive_bce(x, similar), logits)
    assert ours == pytest.approx(theirs, rel=1e-9)
    torch.testing.assert_close(gradient, their_gradient, atol=1e-12, rtol=1e-9)
    if len(set(truth)) == 1:  # one kind: the usual mean
        assert ours == pytest.approx(
            float(F.binary_cross_entropy_with_logits(logits.detach(), similar.double()))
        )


def test_pair_bce_worked_out_by_hand() -> None:
    def p(logit: float) -> float:
        return 1 / (1 + math.exp(-logit))

    loss = pair_bce(torch.tensor([2.0, -1.0, 0.5]), torch.tensor([True, False, False]))
    similar = -math.log(p(2.0))
    dissimilar = (-math.log(1 - p(-1.0)) - math.log(1 - p(0.5))) / 2
    assert float(loss) == pytest.approx((similar + dissimilar) / 2, rel=1e-5)


def test_pair_bce_of_extreme_logits_is_finite() -> None:
    logits = torch.tensor([500.0, -500.0, 500.0], requires_grad=True)
    value, gradient = value_and_gradient(lambda x: pair_bce(x, torch.tensor([False, False, True])), logits)
    assert value == 125.0  # dissimilar: 500 and 0; similar: 0
    assert gradient.tolist() == [0.25, 0.0, 0.0]


def test_pair_bce_of_no_pairs_is_zero_with_a_gradient() -> None:
    logits = torch.zeros(0, requires_grad=True)
    value, gradient = value_and_gradient(lambda x: pair_bce(x, torch.zeros(0, dtype=torch.bool)), logits)
    assert (value, gradient.tolist()) == (0.0, [])


def test_anchor_loss_is_the_mean_squared_change_of_similarities() -> None:
    z = F.normalize(images(11).detach(), dim=1)
    anchor = F.normalize(images(12).detach(), dim=1)
    squares = [float(z[i] @ z[j] - anchor[i] @ anchor[j]) ** 2 for i in range(M) for j in range(M)]
    assert float(anchor_loss(z, anchor)) == pytest.approx(sum(squares) / len(squares), rel=1e-9)
    rotated = z @ torch.linalg.qr(torch.ones(DIM, DIM, dtype=torch.float64).tril()).Q
    assert float(anchor_loss(rotated, z)) == pytest.approx(0, abs=1e-20)  # a rotation changes no similarity


# ---- what does not count


@every_loss
def test_unsure_pairs_count_as_unknown(loss: Loss) -> None:
    s = similarities(images(3)).detach()
    known = verdicts(53)
    assert (known == U).any()
    assert float(loss(s, known)) == float(loss(s, torch.where(known == U, 0, known)))


@every_loss
def test_the_diagonal_does_not_count(loss: Loss) -> None:
    known = verdicts(54)
    s = similarities(images(4)).detach().requires_grad_()
    value, gradient = value_and_gradient(lambda s: loss(s, known), s)
    assert gradient.diagonal().tolist() == [0.0] * M
    for code in (0, D):
        other = known.clone()
        other.fill_diagonal_(code)
        assert float(loss(s.detach(), other)) == value


@every_loss
@pytest.mark.parametrize("codes", [(0,), (U,), (0, U)], ids=["unknown", "unsure", "both"])
def test_without_known_pairs_loss_and_gradient_are_zero(loss: Loss, codes: tuple[int, ...]) -> None:
    z = images(5)
    known = verdicts(55, codes=codes)
    value, gradient = value_and_gradient(lambda z: loss(similarities(z), known), z)
    assert value == 0
    assert gradient.tolist() == torch.zeros_like(z).tolist()


def test_ntxent_of_an_anchor_without_negatives_is_zero_with_a_zero_gradient() -> None:
    z = images(6, m=4)
    known = torch.tensor([[S, S, 0, 0], [S, S, 0, U], [0, 0, S, S], [0, U, S, S]])
    value, gradient = value_and_gradient(lambda z: ntxent(similarities(z), known), z)
    assert value == 0
    assert gradient.tolist() == torch.zeros_like(z).tolist()


def test_ntxent_is_finite_at_a_low_temperature() -> None:
    z = images(7)
    value, gradient = value_and_gradient(lambda z: ntxent(similarities(z), verdicts(57), 0.001), z)
    assert value > 100
    assert bool(gradient.isfinite().all())
    assert float(gradient.norm()) > 0


# ---- compared with pytorch-metric-learning


def indices(known: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(anchors, positives, anchors, negatives), as pytorch-metric-learning takes them."""
    off = ~torch.eye(len(known), dtype=torch.bool)
    similar = torch.nonzero((known == S) & off)
    dissimilar = torch.nonzero((known == D) & off)
    return similar[:, 0], similar[:, 1], dissimilar[:, 0], dissimilar[:, 1]


@pytest.mark.parametrize("seed", range(4))
def test_contrastive_is_half_of_the_peer_that_adds_the_two_means(seed: int) -> None:
    peer = ContrastiveLoss(pos_margin=1, neg_margin=0.5, distance=CosineSimilarity(), reducer=MeanReducer())
    z = images(seed)
    known = verdicts(seed + 70)
    ours, gradient = value_and_gradient(lambda z: contrastive(similarities(z), known), z)
    theirs, their_gradient = value_and_gradient(lambda z: peer(z, indices_tuple=indices(known)), z)
    assert ours == pytest.approx(theirs / 2, abs=1e-9)
    torch.testing.assert_close(gradient, their_gradient / 2, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("code", [S, D])
def test_contrastive_of_one_kind_equals_the_peer(code: int) -> None:
    peer = ContrastiveLoss(pos_margin=1, neg_margin=0.5, distance=CosineSimilarity(), reducer=MeanReducer())
    z = images(8)
    known = verdicts(78, codes=(0, code))
    theirs = float(peer(z, indices_tuple=indices(known)).detach())
    assert float(contrastive(similarities(z), known).detach()) == pytest.approx(theirs, abs=1e-9)
    assert theirs > 0.01


@pytest.mark.parametrize("temperature", [0.07, 0.1, 0.5])
def test_ntxent_equals_the_peer_if_all_anchors_have_as_many_positives(temperature: float) -> None:
    labels = torch.arange(12) % 4  # three images per class: two positives for each
    known = torch.where(labels[:, None] == labels[None, :], S, D)
    hidden = verdicts(79, m=12, codes=(0, 1)) == 1
    known = torch.where((known == D) & hidden, 0, known)  # only some negatives are known
    peer = NTXentLoss(temperature=temperature)
    z = images(9, m=12)
    ours, gradient = value_and_gradient(lambda z: ntxent(similarities(z), known, temperature), z)
    theirs, their_gradient = value_and_gradient(lambda z: peer(z, indices_tuple=indices(known)), z)
    assert ours == pytest.approx(theirs, rel=1e-6)
    torch.testing.assert_close(gradient, their_gradient, atol=1e-7, rtol=1e-5)


def test_ntxent_averages_over_anchors_and_the_peer_over_pairs() -> None:
    labels = torch.tensor([0, 0, 0, 0, 1, 1])
    known = torch.where(labels[:, None] == labels[None, :], S, D)
    z = images(10, m=6)
    anchors, positives, _, _ = indices(known)
    theirs = float(NTXentLoss(temperature=0.1)(z, indices_tuple=indices(known)).detach())
    ours = float(ntxent(similarities(z), known).detach())
    assert ours == pytest.approx(float(naive_ntxent(z, known).detach()))
    assert abs(ours - theirs) > 0.01
    weight = 1 / torch.bincount(anchors)[anchors] / 6  # per pair: one over the anchor's positives
    assert len(positives) == 14
    s = similarities(z).detach() / 0.1
    away = s.masked_fill(known != D, -math.inf).logsumexp(dim=1)
    each = F.softplus(away[anchors] - s[anchors, positives])
    assert theirs == pytest.approx(float(each.mean()), rel=1e-6)
    assert ours == pytest.approx(float((weight * each).sum()), rel=1e-6)


@pytest.mark.parametrize("loss", [contrastive, ntxent, mix])
def test_some_rows_beside_all_images_count_as_in_the_whole_matrix(loss: Loss) -> None:
    """A batch beside a memory: the mean over blocks of equally many pairs is the loss of all."""
    labels = torch.arange(12) % 4
    known = torch.where(labels[:, None] == labels[None, :], S, D)
    s = similarities(images(11, m=12))
    own = known.masked_fill(torch.eye(12, dtype=torch.bool), 0)  # an image with itself is unknown
    parts = [loss(s[rows], own[rows]) for rows in (slice(0, 4), slice(4, 8), slice(8, 12))]
    assert float(torch.stack(parts).mean().detach()) == pytest.approx(
        float(loss(s, known).detach()), rel=1e-5
    )
