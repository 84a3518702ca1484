"""Two models compared on images that neither has learnt from."""

import numpy as np
import pytest

from anneal.method import paired
from anneal.method.neighbours import unit
from anneal.method.relations import full
from anneal.pairs import Answers, Floats, Ids, Pairs, Verdict

S, D = Verdict.SIMILAR, Verdict.DISSIMILAR
N = 30


def space(seed: int) -> Floats:
    return unit(np.random.default_rng(seed).normal(size=(N, 5)).astype(np.float32))


def known_of(pairs: list[tuple[int, int, Verdict]]) -> Answers:
    a, b, verdicts = zip(*pairs, strict=True)
    return Answers(Pairs.of(np.array(a), np.array(b)), np.array(verdicts, dtype=np.int8))


CHAINS = [(i, i + 3, S) for i in range(N - 9)]  # three groups, and images alone
KNOWN = full(N, known_of([*CHAINS, (0, 1, D), (1, 2, D)])).relations  # of groups 0 and 2 nothing is known


def naive(vectors: Floats, images: Ids) -> list[float]:
    """AP@5 by the formula, query by query."""
    found = []
    for query in images.tolist():
        others = [i for i in images.tolist() if i != query]
        verdict = {i: KNOWN.of(Pairs.of(np.array([query]), np.array([i])))[0] for i in others}
        ranked = sorted(
            (i for i in others if verdict[i] in (S, D)), key=lambda i: -vectors[query] @ vectors[i]
        )
        hits = [verdict[i] == S for i in ranked[:5]]
        total = sum(verdict[i] == S for i in others)
        gain = sum(sum(hits[: j + 1]) / (j + 1) for j, hit in enumerate(hits) if hit)
        found.append(gain / min(total, 5) if total else float("nan"))
    return found


@pytest.mark.parametrize("block", [7, 1024])
def test_average_precision_is_that_of_the_formula(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired, "BLOCK", block)
    images = np.array([i for i in range(N) if i % 4])
    vectors = space(0)
    found = paired.average_precision(vectors[images], KNOWN, images)
    np.testing.assert_allclose(found, naive(vectors, images), rtol=1e-6)
    assert np.isnan(found).any()  # images alone
    assert np.nanmin(found) < np.nanmax(found)


def test_the_difference_of_each_query_counts() -> None:
    rng = np.random.default_rng(1)
    before = np.append(rng.uniform(0, 1, 400), np.nan)  # hard and easy queries
    compared = paired.compare(before, before + 0.02 + 0.05 * rng.normal(size=401))
    assert compared is not None
    assert compared.images == 400
    assert compared.is_better
    assert compared.gain.low < 0.02 < compared.gain.high
    assert compared.before.high > compared.after.low  # by themselves they say nothing
    same = paired.compare(before, before)
    assert same is not None
    assert not same.is_better
    assert paired.compare(np.array([0.5]), np.array([0.6])) is None


def test_chance_is_taken_for_better_one_time_in_ten() -> None:
    rng = np.random.default_rng(2)
    draws = [paired.compare(np.zeros(200), 0.2 * rng.normal(size=200)) for _ in range(2000)]
    share = np.mean([one is not None and one.is_better for one in draws])
    assert 0.07 < share < 0.13
