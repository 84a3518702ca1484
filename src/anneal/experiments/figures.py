"""The figures of an experiment: who is in each, with which label."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from anneal.archive.catalog import Archive
from anneal.experiments import plots, report
from anneal.experiments.claims import LAMBDAS, PAPER
from anneal.experiments.curves import PACE, Pace, Row
from anneal.experiments.oracle import Oracle
from anneal.experiments.runner import Trial
from anneal.method.neighbours import nearest

SHOWN = 10  # results in a panel
LABELS = {
    "mgue": "ANNEAL-MGUE",
    "bcgue": "ANNEAL-BCGUE",
    "cal": "CAL",
    "cal-metric": "CAL, labels train the metric too",
    "random": "random",
}
BEYOND = {
    "place": "place (ours)",
    "mgue": "ANNEAL-MGUE",
    "cobra": "COBRA",
    "cal-metric": "class labels (CAL)",
    "random": "random pairs",
}
DIVERSE = {
    "mgue": "MGUE with k-means",
    "bcgue": "BCGUE with k-means",
    "mgue-flat-3": "MGUE without",
    "bcgue-flat": "BCGUE without",
}
FIGURES = {
    "lambda": ("MGUE without diversity", {f"mgue-flat-{lam}": f"λ = {lam}" for lam in LAMBDAS}),
    "diversity": ("diversity by k-means", DIVERSE),
    "comparison": ("comparison", LABELS),
}
"""The title of each figure, and the players in it with their label."""


def draw(rows: Sequence[Row], title: str, out: Path, endings: Sequence[str] = ("png", "pdf")) -> None:
    """One figure for each of the paper's whose players have played."""
    level = {name: mean_score(rows, name) for name in report.LEVELS}
    for figure, (heading, labels) in FIGURES.items():
        shown = [row for name in labels for row in rows if row["player"] == name]
        needed = 2 if figure == "comparison" else len(labels)
        if len({row["player"] for row in shown}) < needed:
            continue
        for ending in endings:
            plots.curve(
                shown, out / f"{figure}.{ending}", by="player", labels=labels, title=f"{title}: {heading}",
                frozen=level["frozen"], upper=level["upper"],
            )  # fmt: skip


COSTS = {"answers": "bits", "acts": "acts", "minutes": "minutes"}
"""The figures of quality by cost, and the axis of each."""


def costs(rows: Sequence[Row], archive: str, title: str, out: Path, pace: Pace = PACE) -> None:
    """Quality by number of answers, by acts and by minutes, from nothing."""
    for name, axis in COSTS.items():
        for ending in ("png", "pdf"):
            answers(rows, archive, title, out / f"{name}.{ending}", axis, pace)


def answers(
    rows: Sequence[Row], archive: str, title: str, path: Path, axis: str = "bits", pace: Pace = PACE
) -> None:
    """Quality by number of answers, or along another axis, from nothing."""
    by = "number of answers" if axis == "bits" else axis
    shown = [row for name in BEYOND for row in rows if row["player"] == name]
    paper = PAPER.get(archive)
    plots.curve(
        shown, path, by="player", labels=BEYOND, title=f"{title}: quality by {by}, from nothing",
        frozen=mean_score(rows, "frozen"), paper=(paper.scores["mgue"], paper.bits) if paper else None,
        axis=axis, pace=pace,
    )  # fmt: skip


def mean_score(rows: Sequence[Row], player: str) -> float | None:
    """The mean over the rows of a player; None without any."""
    scores = [row["map5_min"] for row in rows if row["player"] == player]
    return float(np.mean(scores)) if scores else None


def panel(archive: Archive, kind: str, title: str, trials: Sequence[Trial], number: int, out: Path) -> None:
    """The paper's retrieval figure: a query of class ``kind``, and its nearest for each player."""
    oracle = Oracle.of(archive)
    split = trials[0].split(archive)
    query = oracle.first_query(split, kind)
    heads = []
    results = []
    for trial in trials:
        vectors = trial.vectors(number)
        bits = trial.row(trial.records()[number])["bits"]
        ids = nearest(vectors, split.test, vectors[query][None], SHOWN).ids[0].tolist()
        right = [bool(oracle.classes[i] == oracle.classes[query]) for i in ids]
        heads.append((archive.pixels[query], f"{trial.name}, {bits} bits\n{sum(right)} of {len(ids)} right"))
        results.append([(archive.pixels[i], archive.labels[i], archive.labels[i] == kind) for i in ids])
    title = f"{title}: a query of class {kind} and its nearest; wrong ones framed red"
    for ending in ("png", "pdf"):
        plots.panel(heads, results, out / f"panels.{ending}", title)
