"""The server is killed (SIGKILL) again and again while four people answer."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from anneal.campaign.campaign import Campaign
from anneal.pairs import Verdict
from torture.grounds import PATIENCE, Sender, Server, keys_in, senders, small_campaign, verdicts_of


def run(count: int) -> str:
    """``count`` kills, each after a random number of confirmed events. Every confirmed event must be stored
    once, and the verdicts that stand must be those of the confirmed events."""
    rng = np.random.default_rng(0)
    with TemporaryDirectory() as scratch:
        folder = small_campaign(Path(scratch))
        server = Server(folder)
        with senders(server.port, people=4, size=120) as people:
            for _ in range(count):
                wait_for_more(people, int(rng.integers(1, 12)))
                time.sleep(rng.random() / 100)
                server.kill()
                server.start()
            wait_for_more(people, 1)
        server.kill()
        return check(folder, people, f"{count} kills")


def wait_for_more(people: list[Sender], more: int) -> None:
    wanted = sum(len(person.confirmed) for person in people) + more
    end = time.monotonic() + PATIENCE
    while sum(len(person.confirmed) for person in people) < wanted:
        assert time.monotonic() < end, "no event is confirmed any more"
        time.sleep(0.001)


def check(folder: Path, people: list[Sender], what: str) -> str:
    """Compare what is stored with what was confirmed; returns the counts."""
    campaign = Campaign.open(folder)
    stored = keys_in(campaign)
    words = {int(verdict): verdict.name.lower() for verdict in Verdict}
    standing = {(row.a, row.b, row.annotator, words[row.verdict]) for row in campaign.log().standing()}
    campaign.close()
    confirmed = [event["key"] for person in people for event in person.confirmed]
    lost = [key for key in confirmed if stored[key] == 0]
    doubled = [key for key in stored if stored[key] > 1]
    errors = [error for person in people for error in person.errors]
    assert errors == [], errors[:3]
    assert lost == [], lost[:3]
    assert doubled == [], doubled[:3]
    assert standing == verdicts_of(people), "other verdicts stand than were confirmed"
    return f"{what}, {len(confirmed):,} confirmed events: 0 lost, 0 doubled, 0 errors"
