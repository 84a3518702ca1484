"""The campaign's folder is copied, file by file, while four people answer."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from anneal.campaign import progress
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import take
from torture.grounds import Server, keys_in, senders, small_campaign
from torture.kills import check, wait_for_more


def run(count: int) -> str:
    """``count`` copies. Each must open, hold every event that was confirmed before it began, and go on."""
    with TemporaryDirectory() as scratch:
        folder = small_campaign(Path(scratch))
        server = Server(folder)
        held = 0
        with senders(server.port, people=4, size=120) as people:
            for number in range(count):
                wait_for_more(people, 20)
                before = [event["key"] for person in people for event in person.confirmed]
                copy = Path(scratch) / f"copy-{number}"
                shutil.copytree(folder, copy)
                held += _replay(copy, before)
                shutil.rmtree(copy)
        server.kill()
        return f"{count} copies open and replay {held:,} events; " + check(folder, people, "in the original")


def _replay(folder: Path, before: list[str]) -> int:
    """Open a copy and ask it for questions; returns the number of its events."""
    campaign = Campaign.open(folder)
    try:
        (said,) = campaign.store.db.execute("PRAGMA integrity_check").fetchone()
        assert said == "ok", said
        stored = keys_in(campaign)
        lost = [key for key in before if stored[key] != 1]
        assert lost == [], f"{len(lost)} of {len(before)} events are not in a copy that began after them"
        assert progress.standing(campaign).answers > 0
        assert len(take(campaign, "me", "me", 3)) >= 3
        return len(campaign.log().rows)
    finally:
        campaign.close()
