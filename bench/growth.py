"""Growth: one question, one round, one search, memory and disk, from a thousand images to a million.

    python bench/growth.py [images ...]

A campaign from synthetic features (``synthetic``) with 1000 answers, the default strategy and settings. Every
size is measured in a process of its own. A million images take about 25 GB of disk and 15 minutes, nearly all
of it to make the features. The figures are drawn into ``docs/figures/growth.png``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
import synthetic
from sidebyside import row, seconds

from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import take
from anneal.campaign.turn import turn
from anneal.network import backbones
from anneal.search import nearest_images

SIZES = (1000, 10_000, 100_000, 1_000_000)
ANSWERS = 1000  # fewer in a small archive
QUESTIONS = 100
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "growth.png"
ABOUT = {
    "question": ("one question and its answer, p99", "ms"),
    "search": ("one search, median", "ms"),
    "round": ("one round", "s"),
    "memory": ("memory of the process, peak", "GB"),
    "disk": ("disk, each further round", "GB"),
}
LIMITS = {"question": 50.0, "search": 20.0, "round": 60.0, "memory": 4.0, "disk": 2.0}  # for a million


class Memory:
    """The largest resident memory of this process since the start, looked at ten times a second."""

    def __init__(self) -> None:
        self.peak = 0
        self._process = psutil.Process()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self.peak = max(self.peak, self._process.memory_info().rss)
            time.sleep(0.1)


def measure(folder: Path, n: int) -> dict[str, float]:
    """The figures of a campaign that has its answers and no round yet."""
    memory = Memory()
    cluster = synthetic.clusters(n)
    backbone = backbones.load(synthetic.SETTINGS.backbone)
    campaign = Campaign.open(folder)
    turn(campaign, backbone)  # the first one starts cold; later ones are what a person waits for
    synthetic.answer(campaign, 40, seed=1)
    took = seconds(lambda: turn(campaign, backbone))
    times = []
    for _ in range(QUESTIONS):
        start = time.perf_counter()
        question, *_ = take(campaign, "me", "bench", 1)
        campaign.answer(*question.pair, synthetic.verdict(question.pair, cluster))
        times.append(1000 * (time.perf_counter() - start))
    vectors = campaign.rounds.vectors()
    index = campaign.rounds.index()
    images = np.random.default_rng(0).integers(n, size=30).tolist()
    searches = []
    for i in images:
        start = time.perf_counter()
        nearest_images(vectors, np.asarray(vectors[i]), 10, [i], index)
        searches.append(1000 * (time.perf_counter() - start))
    files = campaign.rounds.files(campaign.rounds.current - 1).folder
    return {
        "question": float(np.quantile(times[1:], 0.99)),
        "search": float(np.median(searches)),
        "round": took,
        "memory": memory.peak / 1e9,
        "disk": sum(file.stat().st_size for file in files.iterdir()) / 1e9,
    }


def child(folder: Path, n: int, step: str) -> dict[str, float]:
    """One step in a process of its own."""
    command = [sys.executable, __file__, "--child", step, str(folder), str(n)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def run_child(step: str, folder: Path, n: int) -> None:
    if step == "make":
        campaign = synthetic.make(folder, n)
        synthetic.answer(campaign, min(ANSWERS, n // 4))
        campaign.close()
        print(json.dumps({}))
    else:
        print(json.dumps(measure(folder, n)))


def draw(figures: dict[int, dict[str, float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, len(ABOUT), figsize=(16, 3.2), layout="constrained")
    for axis, (name, (title, unit)) in zip(axes, ABOUT.items(), strict=True):
        sizes = sorted(figures)
        axis.plot(sizes, [figures[n][name] for n in sizes], marker="o")
        axis.axhline(LIMITS[name], color="0.6", linestyle="--", linewidth=1)
        axis.set(xscale="log", yscale="log", xlabel="images", title=f"{title} ({unit})")
        axis.title.set_fontsize(10)
        axis.grid(alpha=0.3)
    fig.savefig(FIGURE, dpi=110)
    plt.close(fig)


def main(sizes: list[int]) -> None:
    figures: dict[int, dict[str, float]] = {}
    for n in sizes:
        with TemporaryDirectory() as scratch:
            folder = Path(scratch) / "campaign"
            child(folder, n, "make")
            figures[n] = child(folder, n, "measure")
        for name, (title, unit) in ABOUT.items():
            wanted = f"≤ {LIMITS[name]:.0f} {unit}" if n == max(SIZES) else "–"
            row(f"{n:,} images: {title}", "–", f"{figures[n][name]:.3g} {unit}", wanted)
    if sizes == list(SIZES):
        draw(figures)


if __name__ == "__main__":
    arguments: list[Any] = sys.argv[1:]
    if arguments[:1] == ["--child"]:
        run_child(arguments[1], Path(arguments[2]), int(arguments[3]))
    else:
        main([int(n) for n in arguments] or list(SIZES))
