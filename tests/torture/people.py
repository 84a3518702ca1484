"""Thirty-two people answer for a while, and rounds train meanwhile, in a campaign on 100 000 images."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "bench"))
import synthetic
from questions import Person  # the bench's browser: a connection that is kept, and what is on its screen

from anneal.campaign.campaign import Campaign
from anneal.pairs import Pair
from served import Label, label

IMAGES = 100_000
PEOPLE = 32
EVERY = 2.0  # seconds between two answers of one person


def run(count: int, images: int = IMAGES, people: int = PEOPLE, every: float = EVERY) -> str:
    """``count`` seconds. No request may fail, a round must be finished meanwhile, and no pair may be given to
    two people, unless it is asked again because the machine doubts its answer."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "campaign"
        synthetic.make(folder, images).close()
        with label(folder) as site:
            times, given, errors = _answer(site, images, people, count, every)
            rounds = site.get("/api/state")["standing"]["rounds"]
        campaign = Campaign.open(folder)
        rows = {row.pair for row in campaign.log().rows}
        campaign.close()
    assert errors == [], errors[:3]
    twice = [pair for pair, times in Counter(pair for pair, again in given if not again).items() if times > 1]
    assert twice == [], f"{len(twice)} pairs were given to two people: {twice[:3]}"
    assert {pair for pair, _ in given} <= rows, "answers are missing"
    median, late = np.quantile(times, (0.5, 0.99))
    work = f"{people} people, {count} s, {images:,} images, {rounds} rounds: {len(given):,} answers"
    work += f" ({sum(again for _, again in given)} asked again)"
    counts = f"{work}, 0 errors, 0 given out twice, p50 {median:.0f} ms, p99 {late:.0f} ms (wanted: 250 ms)"
    assert rounds > 0, f"no round was finished meanwhile: {counts}"
    return counts


def _answer(
    site: Label, images: int, people: int, seconds: float, every: float
) -> tuple[list[float], list[tuple[Pair, bool]], list[str]]:
    """Milliseconds of every answer, the pairs answered and whether each was asked again, and the errors."""
    cluster = synthetic.clusters(images)
    times: list[float] = []
    given: list[tuple[Pair, bool]] = []
    errors: list[str] = []
    end = time.monotonic() + seconds

    def work(number: int) -> None:
        try:
            person = Person(site, f"person-{number}", cluster)
            time.sleep(every * number / people)
            while time.monotonic() < end:
                started = time.monotonic()
                question = person.questions[0]
                times.append(person.answer())
                given.append(((question["a"], question["b"]), bool(question.get("again"))))
                time.sleep(max(every - (time.monotonic() - started), 0))
        except Exception as error:  # counted, so that the others go on
            errors.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(people)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times, given, errors
