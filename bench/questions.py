"""How long a person waits for the next question of ``place``: what the last answer implies, then the choice.
Beside it the least that any choice must do: one image compared with all that have a place. The order, which
the machine works out once a round. And a live campaign's whole turn, from an answer on disk to the next pair.
Prints milliseconds of this run and ratios measured side by side.

    python bench/questions.py [images ...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from anneal.archive.catalog import open_archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.turn import put_in_order, save
from anneal.method import placing
from anneal.method.groups import pool, spread
from anneal.method.neighbours import unit
from anneal.method.relations import full
from anneal.method.snapshot import Snapshot
from anneal.pairs import Answers, Ids, Pairs, Verdict
from anneal.settings import Plan


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main(n: int, kinds: int = 40, placed: int = 2000, d: int = 128, asked: int = 100) -> None:
    rng = np.random.default_rng(0)
    kind = rng.integers(kinds, size=n)
    middles = rng.normal(size=(kinds, d))
    vectors = unit(middles[kind] + rng.normal(size=(n, d))).astype(np.float32)
    head = {k: int(np.flatnonzero(kind == k)[0]) for k in range(kinds)}
    members = [i for i in rng.permutation(n)[:placed].tolist() if i not in head.values()]
    pairs = [(i, head[int(kind[i])]) for i in members] + [(head[k], head[k + 1]) for k in range(kinds - 1)]
    verdicts = [Verdict.SIMILAR] * len(members) + [Verdict.DISSIMILAR] * (kinds - 1)
    answers = Answers.of(Pairs.of(*zip(*pairs, strict=True)), verdicts)
    known = full(n, answers).relations
    likely = spread(vectors, pool(np.arange(n), known, rng), known)
    snapshot = Snapshot(vectors, np.arange(n), known, likely)
    begun = time.perf_counter()
    order = placing.order(snapshot, 100, rng)
    ordering = time.perf_counter() - begun
    whole, choice, bare = [], [], []
    for _ in range(asked):
        begun = time.perf_counter()
        known = full(n, answers).relations
        implied = time.perf_counter()
        (pair,) = placing.place(replace(snapshot, known=known, order=order), 1, rng)
        done = time.perf_counter()
        whole.append(1000 * (done - begun))
        choice.append(1000 * (done - implied))
        there = known.members
        bare.append(1000 * seconds(lambda there=there, x=pair[0]: vectors[there] @ vectors[x]))  # type: ignore[misc]
        said = Verdict.SIMILAR if kind[pair[0]] == kind[pair[1]] else Verdict.DISSIMILAR
        answers = answers.then(Answers.of(Pairs.of([pair[0]], [pair[1]]), [said]))
    middle, late = np.median(whole), np.quantile(whole, 0.95)
    print(f"{n} images, {len(known.members)} with a place, {len(answers)} answers")
    print(f"next question: {middle:.1f} ms, 95 % within {late:.1f}; choice alone {np.median(choice):.1f} ms")
    print(f"choice / bare comparison with all that have a place: {np.median(choice) / np.median(bare):.1f} x")
    print(f"order of a round: {ordering:.1f} s")
    with TemporaryDirectory() as folder:
        taking, keeping = live(Path(folder), snapshot, answers, kind, asked)
    print(
        f"live: next pair {np.median(taking):.1f} ms, 95 % within {np.quantile(taking, 0.95):.1f}; ", end=""
    )
    print(f"an answer on disk {np.median(keeping):.1f} ms")


def live(
    folder: Path, snapshot: Snapshot, answers: Answers, kind: Ids, asked: int
) -> tuple[list[float], list[float]]:
    """Milliseconds to take a question and to answer it, in the second round of a campaign."""
    n, plan = len(kind), Plan(px=8, per_round=asked)
    (folder / "images").mkdir()
    for i in range(n):
        Image.new("RGB", (1, 1), (i % 251, i // 251 % 251, i // 251**2)).save(folder / f"images/{i:06d}.png")
    archive = open_archive(folder / "images", plan.px, folder / "cache")
    campaign = Campaign.create(folder / "campaign", archive, plan, np.arange(n))
    campaign.answer_all(answers.pairs, answers.verdicts.tolist())
    known = campaign.closure().relations
    save(campaign.round_folder(0), vectors=snapshot.vectors)
    questions = put_in_order(campaign.round_folder(0), replace(snapshot, known=known), plan, 1)
    campaign.store.finish_round(0, {"row": campaign.store.newest()}, questions)
    taking, keeping = [], []
    for _ in range(asked):
        begun = time.perf_counter()
        ((a, b),) = campaign.take("me", "bench", 1)
        taken = time.perf_counter()
        campaign.answer(a, b, Verdict.SIMILAR if kind[a] == kind[b] else Verdict.DISSIMILAR)
        taking.append(1000 * (taken - begun))
        keeping.append(1000 * (time.perf_counter() - taken))
    campaign.close()
    return taking, keeping


if __name__ == "__main__":
    for wanted in sys.argv[1:] or ("10000", "100000"):
        main(int(wanted))
