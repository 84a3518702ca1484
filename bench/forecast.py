"""Whether the forecast of what more answers bring is right, in campaigns with an oracle.

    python bench/forecast.py UCMerced/ [first seed] [campaigns of the whole archive] [of a seventh of it]

After every round the forecast for the next 50 answers is compared with what the true P@5 of the serving model
then gains. Printed: how often the truth is inside the 95 % interval, and how far the forecast is off.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anneal.archive.catalog import Archive, open_archive
from anneal.campaign import guidance, heldout
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import next_question
from anneal.campaign.turn import begin, turn
from anneal.experiments.oracle import NAME, Oracle
from anneal.method.forecast import AHEAD, Forecast
from anneal.network import backbones
from anneal.network.backbones import Backbone
from anneal.pairs import Ids
from anneal.settings import Settings

ROUNDS = 18
PER_ROUND = 41


@dataclass(frozen=True)
class Point:
    """A campaign after a round."""

    answers: int
    true: float  # P@5 of the serving model
    told: Forecast | None


def main(root: Path, seed: int, whole: int, small: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        archive = open_archive(root, Settings().px, Path(scratch) / "cache")
        backbone = backbones.load(backbones.fetch(Settings().backbone))
        for name, part, trials in (("all images", 1, whole), ("a seventh of them", 7, small)):
            rows: list[tuple[Forecast, float]] = []
            for trial in range(seed, seed + trials):
                folder = Path(scratch) / f"{part}-{trial}"
                rows += compared(list(played(folder, archive, backbone, part, trial)))
            if rows:
                report(name, trials, rows)


def played(folder: Path, archive: Archive, backbone: Backbone, part: int, seed: int) -> Iterator[Point]:
    """One campaign on a random part of the images, round by round, until nothing is left to ask."""
    rng = np.random.default_rng(seed)
    images = np.sort(rng.choice(len(archive), len(archive) // part, replace=False))
    settings = Settings(seed=seed, per_round=PER_ROUND)
    campaign = begin(folder, archive, settings, images=images, backbone=backbone)
    oracle = Oracle.of(archive, seed=seed)
    for _ in range(ROUNDS):
        while question := next_question(campaign, NAME):
            campaign.answer(*question.pair, oracle.verdict(question.pair, campaign.log().given), NAME)
        if not campaign.is_round_over():
            break
        turn(campaign, backbone)
        told = guidance.ahead(campaign, heldout.models(campaign))
        yield Point(campaign.log().given, true_p5(campaign, oracle.classes), told)
    campaign.close()


def true_p5(campaign: Campaign, classes: Ids) -> float:
    results = campaign.rounds.files(campaign.rounds.serving).nearest()
    assert results is not None
    return float((classes[results[:, 1:]] == classes[results[:, :1]]).mean())


def compared(points: list[Point]) -> list[tuple[Forecast, float]]:
    """Each forecast and what came of it; between two rounds the truth is a straight line."""
    answers = [point.answers for point in points]
    true = [point.true for point in points]
    rows = []
    for point in points:
        if point.told is not None and point.answers + AHEAD <= answers[-1]:
            later = float(np.interp(point.answers + AHEAD, answers, true))
            rows.append((point.told, later - point.true))
    return rows


def report(name: str, trials: int, rows: list[tuple[Forecast, float]]) -> None:
    gain = np.array([truth for _, truth in rows])
    told = np.array([one.gain.value for one, _ in rows])
    inside = np.array([one.gain.low <= truth <= one.gain.high for one, truth in rows])
    width = np.array([one.gain.high - one.gain.low for one, _ in rows])
    print(
        f"{name}: {trials} campaigns, {len(rows)} forecasts of the next {AHEAD} answers; the truth is inside "
        f"the 95 % interval {inside.mean():.0%} of the time. "
        f"Points of P@5: forecast {100 * told.mean():+.1f}, "
        f"truth {100 * gain.mean():+.1f} on average, {100 * np.abs(told - gain).mean():.1f} off, "
        f"interval {100 * width.mean():.1f} wide"
    )


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[2:]] + [10, 2, 4][len(sys.argv) - 2 :]
    main(Path(sys.argv[1]), *numbers)
