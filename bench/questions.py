"""How long a person waits for the next question, and whether this grows with the number of answers.

    python bench/questions.py [images ...]

A campaign with random vectors in clusters is played to 200, 1000 and 2000 answers, in rounds as usual. No
network is trained: the frozen features serve all the time. Copies of the campaign are kept at these points.
Then one question after another is asked and answered in all copies in turn, so other work on the machine
slows all of them alike. A step is ``take`` and ``answer``, on disk. Its peer is the bare comparison of one
image with all others. Milliseconds depend on the machine; the two ratios are the result. The first one is 1
if the number of answers does not matter.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from anneal.archive.catalog import Archive
from anneal.campaign import heldout
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import next_question, take
from anneal.campaign.recheck import earlier_suspects, recheck_rate
from anneal.campaign.rounds import FROZEN, Record, Round
from anneal.method.neighbours import unit
from anneal.method.relations import none
from anneal.method.snapshot import Snapshot
from anneal.method.strategies import chosen
from anneal.pairs import Answers, Floats, Ids, Pair, Verdict
from anneal.settings import Settings, Stream

ANSWERS = (200, 1000, 2000)  # multiples of a round, so every copy is at the start of one
CLUSTERS = 40
DIMENSION = 128
SPREAD = 1.5  # of a cluster, beside a distance of about √2 between two of them: some first tries are wrong
STEPS = 40  # questions timed in each copy: one round


@dataclass(frozen=True)
class Times:
    """Milliseconds of every step in one copy."""

    take: list[float] = field(default_factory=list)
    answer: list[float] = field(default_factory=list)

    @property
    def step(self) -> float:
        """The median of take and answer together."""
        return float(np.median(np.add(self.take, self.answer)))


def main(n: int) -> None:
    rng = np.random.default_rng(0)
    cluster = rng.integers(CLUSTERS, size=n)
    centres = rng.normal(size=(CLUSTERS, DIMENSION))
    vectors = unit(centres[cluster] + SPREAD * rng.normal(size=(n, DIMENSION))).astype(np.float32)
    with TemporaryDirectory() as scratch:
        copies = play(Path(scratch), vectors, cluster)
        campaigns = {answers: Campaign.open(folder) for answers, folder in copies.items()}
        for campaign in campaigns.values():  # the first question reads the campaign from disk
            ask(campaign, cluster, Times())
        times = {answers: Times() for answers in campaigns}
        bare = []
        for _ in range(STEPS):
            for answers, campaign in campaigns.items():
                pair = ask(campaign, cluster, times[answers])
                bare.append(milliseconds(lambda image=pair[0]: vectors @ vectors[image]))  # type: ignore[misc]
        for campaign in campaigns.values():
            campaign.close()
    report(n, times, float(np.median(bare)))


def report(n: int, times: dict[int, Times], bare: float) -> None:
    print(f"{n} images, medians of {STEPS} questions")
    for answers, one in times.items():
        taking = np.median(one.take)
        late = np.quantile(one.take, 0.95)
        answering = np.median(one.answer)
        print(
            f"{answers:5d} answers: take {taking:.1f} ms (95 % within {late:.1f}), answer {answering:.1f} ms"
        )
    first = times[ANSWERS[0]].step
    last = times[ANSWERS[-1]].step
    print(f"after {ANSWERS[-1]} / after {ANSWERS[0]} answers:     {last / first:.2f} x the time")
    print(f"after {ANSWERS[-1]} answers / bare comparison: {last / bare:.1f} x the time ({bare:.2f} ms)")


def ask(campaign: Campaign, cluster: Ids, times: Times) -> Pair:
    """Take one question and answer it. Returns its pair."""
    start = time.perf_counter()
    (question,) = take(campaign, "me", "bench", 1)
    taken = time.perf_counter()
    campaign.answer(*question.pair, verdict(question.pair, cluster))
    times.take.append(1000 * (taken - start))
    times.answer.append(1000 * (time.perf_counter() - taken))
    return question.pair


def verdict(pair: Pair, cluster: Ids) -> Verdict:
    a, b = pair
    return Verdict.SIMILAR if cluster[a] == cluster[b] else Verdict.DISSIMILAR


def milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


# -- the campaign ------------------------------------------------------------------------------------


def play(scratch: Path, vectors: Floats, cluster: Ids) -> dict[int, Path]:
    """Play a campaign. Returns the folder of its copy for each number of answers in ANSWERS."""
    folder = scratch / "campaign"
    begin(folder, vectors)
    copies = {}
    for answers in ANSWERS:
        campaign = Campaign.open(folder)
        while campaign.log().given < answers:
            question = next_question(campaign)
            if question is None:
                finish_round(campaign)
            else:
                campaign.answer(*question.pair, verdict(question.pair, cluster))
        finish_round(campaign)
        campaign.close()  # so that the database is one file
        copies[answers] = scratch / f"after-{answers}"
        shutil.copytree(folder, copies[answers])
    return copies


def begin(folder: Path, vectors: Floats) -> None:
    """Make a campaign with these vectors in place of encoded images. There are no files of images."""
    n = len(vectors)
    settings = Settings(px=8)
    paths = tuple(f"{i}.png" for i in range(n))
    empty = ("",) * n
    pixels = np.zeros((0, 8, 8, 3), dtype=np.uint8)
    archive = Archive(folder, paths, empty, empty, empty, pixels, (), folder)
    images = np.arange(n)
    known = none(n, Answers.none()).relations
    agenda = chosen(settings).plan(
        Snapshot(vectors, images, known), settings.per_round, settings.rng(Stream.PLAN, 0)
    )
    files = Round.of(folder, FROZEN)
    files.save_space(vectors, heldout.query_results(vectors, images, settings.rng(Stream.QUERIES)))
    files.save_agenda(agenda)
    drawn = heldout.first(vectors, images, known, settings)
    Campaign.create(folder, archive, settings, images, drawn).close()


def finish_round(campaign: Campaign) -> None:
    """The machine's turn without training: draw held-out pairs, plan the next questions, save the round."""
    settings = campaign.settings
    rounds = campaign.rounds
    number = rounds.current
    vectors = np.asarray(rounds.vectors(FROZEN))
    evidence = campaign.evidence()
    known = evidence.closure.relations
    snapshot = Snapshot(vectors, campaign.images, known, evidence.answers, evidence.rounds, frozen=vectors)
    rate = recheck_rate(campaign, number + 1)
    files = rounds.files(number)
    files.save_agenda(
        campaign.strategy.plan(snapshot, settings.per_round, settings.rng(Stream.PLAN, number + 1))
    )
    files.save_suspects(earlier_suspects(campaign, vectors, rate))
    record = Record(number, campaign.log().newest, FROZEN, recheck_rate=rate)
    rounds.save(record, heldout.more(campaign, vectors, known, number))


if __name__ == "__main__":
    for images in sys.argv[1:] or ("10000",):
        main(int(images))
