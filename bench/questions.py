"""How long a person waits for the next question, and whether this grows with the number of answers.

    python bench/questions.py [images]

Two campaigns on the same images (``synthetic``), one after 100 answers and one after 20 000, each with a
round learnt from them, are served by ``anneal label``. Single answers go to both in turn; the reply has the
next questions. Then 32 people answer in the larger campaign, each every two seconds, while a round trains.
"""

from __future__ import annotations

import http.client
import json
import shutil
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlparse

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import synthetic
from sidebyside import row
from synthetic import verdict

from anneal.campaign.campaign import Campaign
from anneal.campaign.turn import turn
from anneal.network import backbones
from anneal.pairs import Ids
from served import Label, label  # the page as the tests start it

FEW = 100
MANY = 20_000
STEPS = 300  # answers to each campaign
PEOPLE = 32
EVERY = 2.0  # seconds between two answers of one person
SECONDS = 60.0  # for which all of them answer


class Person:
    """One browser: a connection that is kept, and the questions on its screen."""

    def __init__(self, site: Label, name: str, cluster: Ids) -> None:
        address = urlparse(site.address)
        self.connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        self.name = name
        self.cluster = cluster
        self.count = 0
        self.questions: list[dict[str, Any]] = self._send([])["questions"]

    def _send(self, events: list[dict[str, Any]]) -> Any:
        sent = {"annotator": self.name, "holder": self.name, "n": 3, "events": events}
        self.connection.request(
            "POST", "/api/answers", json.dumps(sent), {"content-type": "application/json"}
        )
        reply = self.connection.getresponse()
        body = reply.read()
        assert reply.status == 200, body
        return json.loads(body)

    def answer(self) -> float:
        """Answer the first question. Returns the milliseconds until the next ones are here."""
        question = self.questions[0]
        pair = (question["a"], question["b"])
        said = verdict(pair, self.cluster).name.lower()
        event = {"key": f"{self.name}-{self.count:08d}", "a": pair[0], "b": pair[1], "verdict": said}
        self.count += 1
        start = time.perf_counter()
        self.questions = self._send([{**event, "looked": 1200}])["questions"]
        return 1000 * (time.perf_counter() - start)


def prepare(scratch: Path, n: int) -> dict[int, Path]:
    """The folders of two campaigns, after FEW and after MANY answers."""
    backbone = backbones.load(synthetic.SETTINGS.backbone)
    folders = {}
    for answers in (FEW, MANY):
        folders[answers] = scratch / f"after-{answers}"
        if answers == FEW:
            synthetic.make(folders[answers], n).close()
            shutil.copytree(folders[answers], scratch / "fresh")
        else:
            (scratch / "fresh").rename(folders[answers])
        campaign = Campaign.open(folders[answers])
        synthetic.answer(campaign, answers)
        # A round is longer than the timed answers, so that no turn begins while they are timed.
        settings = replace(campaign.settings, per_round=STEPS + 100)
        campaign.store.set(settings=vars(settings))
        campaign.close()
        campaign = Campaign.open(folders[answers])
        turn(campaign, backbone)
        campaign.close()
    return folders


def resident(site: Label) -> float:
    """Megabytes of the server's own memory, without mapped files."""
    memory = psutil.Process(site.process.pid).memory_full_info()
    return float(memory.uss) / 2**20


def together(site: Label, cluster: Ids) -> tuple[list[float], bool]:
    """Milliseconds of every answer of PEOPLE at once, and whether a round was trained meanwhile."""
    times: list[float] = []
    end = time.monotonic() + SECONDS
    rounds = site.get("/api/state")["standing"]["rounds"]

    def work(number: int) -> None:
        person = Person(site, f"person-{number}", cluster)
        time.sleep(EVERY * number / PEOPLE)
        while time.monotonic() < end and person.questions:
            started = time.monotonic()
            times.append(person.answer())
            time.sleep(max(EVERY - (time.monotonic() - started), 0))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(PEOPLE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = site.get("/api/state")
    return times, state["standing"]["rounds"] > rounds or state["machine"]["state"] == "learning"


def main(n: int) -> None:
    cluster = synthetic.clusters(n)
    with TemporaryDirectory() as scratch:
        folders = prepare(Path(scratch), n)
        with label(folders[FEW]) as few, label(folders[MANY]) as many:
            people = {FEW: Person(few, "me", cluster), MANY: Person(many, "me", cluster)}
            times: dict[int, list[float]] = {FEW: [], MANY: []}
            for person in people.values():
                for _ in range(5):
                    person.answer()
            before = resident(many)
            for _ in range(STEPS):
                for answers, person in people.items():
                    times[answers].append(person.answer())
            grown = resident(many) - before
        report(n, times, grown)
        with label(folders[MANY]) as many:
            crowd, trained = together(many, cluster)
    work = f"{len(crowd)} answers of {PEOPLE} people, one every {EVERY:.0f} s each, {n:,} images"
    beside = "while a round trains" if trained else "no round was trained meanwhile"
    median, late = np.quantile(crowd, (0.5, 0.99))
    row(f"{work}, {beside}", "–", f"p50 {median:.0f} ms, p99 {late:.0f} ms", "p99 ≤ 250 ms")


def report(n: int, times: dict[int, list[float]], grown: float) -> None:
    ratios = np.array(times[MANY]) / np.array(times[FEW])
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    median = np.median(times[MANY])
    late = np.quantile(times[MANY], 0.99)
    work = f"one answer over HTTP to the next questions after {MANY:,} answers, {n:,} images"
    row(work, f"the same after {FEW} answers", f"{middle:.2f} × the time ({low:.2f}–{high:.2f})", "≤ 1.5 ×")
    row(f"{work}, alone", "–", f"p50 {median:.0f} ms, p99 {late:.0f} ms", "p99 ≤ 50 ms")
    row(f"the server's own memory over {STEPS} answers", "–", f"{grown:+.1f} MB", "flat")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
