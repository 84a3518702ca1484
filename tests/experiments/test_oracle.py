"""The oracle: what it answers, how the archive is split, and how search is scored."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from anneal.archive.catalog import Archive
from anneal.errors import UsageError
from anneal.experiments.oracle import Oracle, Split, inner_split, score, split_of
from anneal.method import metrics
from anneal.pairs import Verdict


def test_the_oracle_answers_by_class(small_archive: Archive) -> None:
    oracle = Oracle.of(small_archive)
    assert oracle.names[0] == "beach"
    assert oracle.bits_per_label == math.log2(8)
    assert oracle.verdict((0, 14), given=0) == Verdict.SIMILAR
    assert oracle.verdict((0, 15), given=0) == Verdict.DISSIMILAR
    assert oracle.labels(np.array([3, 15])) == [(3, "beach"), (15, small_archive.labels[15])]


def test_noise_is_wrong_at_its_rate_and_depends_on_the_answers_before_only(small_archive: Archive) -> None:
    noisy = Oracle.of(small_archive, noise=0.2, seed=4)
    verdicts = [noisy.verdict((0, 9), given) for given in range(400)]
    assert 0.15 < np.mean([verdict == Verdict.DISSIMILAR for verdict in verdicts]) < 0.25
    wrong = verdicts.index(Verdict.DISSIMILAR)
    assert noisy.verdict((0, 15), wrong) == Verdict.SIMILAR, "this answer is wrong whatever the pair"
    assert verdicts == [noisy.verdict((0, 9), given) for given in range(400)]
    other = replace(noisy, seed=5)
    assert verdicts != [other.verdict((0, 9), given) for given in range(400)]


def test_the_oracle_needs_classes(small_archive: Archive) -> None:
    with pytest.raises(UsageError, match="120 have none"):
        Oracle.of(replace(small_archive, labels=("",) * 120))
    with pytest.raises(UsageError, match="All images are of one class"):
        Oracle.of(replace(small_archive, labels=("sea",) * 120))


def test_the_first_query_of_a_class(small_archive: Archive) -> None:
    oracle = Oracle.of(small_archive)
    split = Split(np.array([0]), np.array([5, 17, 19]), np.array([1]))
    assert oracle.first_query(split, small_archive.labels[17]) == 17
    with pytest.raises(UsageError, match=r"There is no class 'sea' here: there are beach,"):
        oracle.first_query(split, "sea")
    with pytest.raises(UsageError, match="No validation image is of class"):
        oracle.first_query(split, small_archive.labels[119])


def test_the_split_is_the_archives_own_or_80_10_10(small_archive: Archive) -> None:
    split = split_of(small_archive, 0)
    assert [len(split.train), len(split.val), len(split.test)] == [96, 12, 12]
    assert sorted([*split.train, *split.val, *split.test]) == list(range(120))
    assert split_of(small_archive, 1).test.tolist() != split.test.tolist()
    own = replace(small_archive, splits=tuple(["train", "val", "test", ""] * 30))
    assert split_of(own, 0).val.tolist() == list(range(1, 120, 4))
    with pytest.raises(UsageError, match="each must have some"):
        split_of(replace(small_archive, splits=("train",) * 120), 0)


def test_the_inner_split_holds_no_image_that_a_trial_is_tested_on(small_archive: Archive) -> None:
    splits = [inner_split(small_archive, (0, 1, 2), seed) for seed in (0, 1, 2)]
    parts = [np.concatenate([inner.train, inner.val, inner.test]) for inner in splits]
    for inner, part in zip(splits, parts, strict=True):
        assert len(set(part.tolist())) == len(part)
        assert len(inner.val) == len(inner.test) == len(part) // 10
        assert np.array_equal(np.sort(part), np.sort(parts[0]))
    assert splits[0].val.tolist() != splits[1].val.tolist()
    for seed in (0, 1, 2):
        outer = split_of(small_archive, seed)
        assert not set(parts[0].tolist()) & {*outer.val.tolist(), *outer.test.tolist()}


def test_the_inner_split_of_an_archive_with_its_own_split_is_of_its_training_part(
    small_archive: Archive,
) -> None:
    own = replace(small_archive, splits=tuple(["train", "val", "test", "train"] * 30))
    splits = [inner_split(own, (0, 1, 2), seed) for seed in (0, 1)]
    for inner in splits:
        parts = np.concatenate([inner.train, inner.val, inner.test])
        assert np.array_equal(np.sort(parts), split_of(own, 0).train)
    assert splits[0].test.tolist() != splits[1].test.tolist()
    few = replace(small_archive, splits=tuple(["train"] * 9 + ["val"] * 50 + ["test"] * 61))
    with pytest.raises(UsageError, match="would get 9, 0, 0 images"):
        inner_split(few, (0, 1, 2), 0)


def test_the_score_is_what_the_formulas_say() -> None:
    """Three queries, six images to retrieve from, by hand."""
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(9, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    classes = np.array([0, 0, 1, 0, 0, 1, 1, 0, 2])
    split = Split(np.array([], dtype=np.int64), np.array([0, 1, 2]), np.arange(3, 9))
    expected: dict[str, list[float]] = {"min": [], "hits": [], "all": [], "p5": []}
    for query in (0, 1, 2):
        order = sorted(range(3, 9), key=lambda i: -float(vectors[query] @ vectors[i]))[:5]
        hits = [int(classes[i] == classes[query]) for i in order]
        total = sum(int(classes[i] == classes[query]) for i in range(3, 9))
        precisions = sum(hits[j] * sum(hits[: j + 1]) / (j + 1) for j in range(5))
        expected["min"].append(precisions / min(total, 5))
        expected["hits"].append(precisions / max(sum(hits), 1))
        expected["all"].append(precisions / total)
        expected["p5"].append(sum(hits) / 5)
    scores = score(vectors, split, classes)
    assert scores["p5"] == pytest.approx(np.mean(expected["p5"]))
    by_class = (np.mean(expected["p5"][:2]) + expected["p5"][2]) / 2  # two queries of class 0, one of class 1
    assert scores["p5_class"] == pytest.approx(by_class)
    for meaning in ("min", "hits", "all"):
        assert scores[f"map5_{meaning}"] == pytest.approx(np.mean(expected[meaning]))
    assert math.isnan(metrics.mean(np.array([]))), "no query, no score"
