"""The machine's process is killed (SIGKILL) at random moments of its turns, between which a person answers.

After each kill the campaign opens, every acknowledged answer is there once, and no finished round lacks a
file.
``python tests/torture/worker.py 20`` kills it twenty times.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "campaign")]

import numpy as np  # noqa: E402
from tiny import truth, verdict_of  # noqa: E402

from anneal.campaign.campaign import Campaign  # noqa: E402
from anneal.campaign.check import check, lost  # noqa: E402
from anneal.campaign.questions import take  # noqa: E402
from torture.power import make  # noqa: E402

EACH = 4  # answers before a kill
LONGEST = 6.0  # seconds from its start to the kill, at most
AGAIN = 40  # kills on one campaign, which is then made anew: all its pairs would be answered
PATIENCE = 300.0  # seconds for the process to start


def run(count: int) -> str:
    """Kill the process this many times; returns what was counted."""
    rng = np.random.default_rng(0)
    in_a_turn = 0
    rounds = 0
    answers = 0
    for first in range(0, count, AGAIN):
        with tempfile.TemporaryDirectory() as name:
            folder = make(Path(name).resolve(), seed=first)
            with closing(Campaign.open(folder)) as campaign:
                campaign.store.set(settings={**campaign.store.setting("settings", {}), "per_round": EACH})
            sent: list[str] = []
            for kill in range(first, min(first + AGAIN, count)):
                in_a_turn += _kill_once(folder, sent, kill, float(rng.uniform(0, LONGEST)))
                _verify(folder, sent)
            answers += len(sent)
            with closing(Campaign.open(folder)) as campaign:
                rounds += campaign.rounds.current
    what = f"{count} kills ({in_a_turn} of them in a turn), {rounds} rounds, {answers} answers"
    return f"worker: {what}, 0 lost, 0 doubled, 0 broken rounds"


def _kill_once(folder: Path, sent: list[str], kill: int, after: float) -> bool:
    """Answer until a turn is due, start the process, and kill it. Returns whether it was in a turn."""
    command = [sys.executable, "-P", "-m", "anneal", "worker", "--campaign", str(folder)]
    with closing(Campaign.open(folder)) as campaign:
        kinds = truth(campaign)
        for number, question in enumerate(take(campaign, "me", "me", EACH)):
            key = f"kill {kill} answer {number}"
            campaign.answer(*question.pair, verdict_of(kinds, question.pair), key=key)
            sent.append(key)
        campaign.mailbox.set_machine(state="absent")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            end = time.monotonic() + PATIENCE
            while _state(campaign) == "absent" and process.poll() is None and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(after)
            in_a_turn = _state(campaign) == "learning"
            process.kill()
    return in_a_turn


def _state(campaign: Campaign) -> str:
    return str(campaign.mailbox.machine()[1]["state"])


def _verify(folder: Path, sent: list[str]) -> None:
    """Nothing lost, nothing doubled, nothing broken."""
    with closing(Campaign.open(folder)) as campaign:
        keys = [row.key for row in campaign.log().rows if row.key is not None]
        assert keys == sent, f"{len(keys)} of {len(sent)} answers"
        assert lost(campaign.rounds) == []
    assert check(folder) == []


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
