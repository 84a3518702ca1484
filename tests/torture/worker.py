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
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "campaign")]

import numpy as np  # noqa: E402
from tiny import truth, verdict_of  # noqa: E402

from anneal.campaign.campaign import Campaign  # noqa: E402
from anneal.campaign.check import check, lost  # noqa: E402
from anneal.campaign.questions import take  # noqa: E402
from torture.power import make  # noqa: E402

EACH = 4  # answers before a kill
LATEST = 1.3  # times as long as a turn takes: the last moment of a kill, after the turn has ended
AGAIN = 12  # kills on one campaign, which is then made anew: all its pairs would be answered
PATIENCE = 300.0  # seconds for the process to start, and for a turn


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
            seconds = _whole_turn(folder, sent)
            for kill in range(first, min(first + AGAIN, count)):
                in_a_turn += _killed(folder, sent, kill, float(rng.uniform(0, LATEST * seconds)))
                _verify(folder, sent)
            answers += len(sent)
            with closing(Campaign.open(folder)) as campaign:
                rounds += campaign.rounds.current
    what = f"{count} kills ({in_a_turn} of them in a turn), {rounds} rounds, {answers} answers"
    return f"worker: {what}, 0 lost, 0 doubled, 0 broken rounds"


def _whole_turn(folder: Path, sent: list[str]) -> float:
    """Let a turn come to its end; returns its seconds."""
    with closing(Campaign.open(folder)) as campaign:
        _answer(campaign, sent, "first")
        with _started(campaign) as process:
            start = time.monotonic()
            _wait(lambda: campaign.rounds.current == 1)
            process.kill()
        return time.monotonic() - start


def _killed(folder: Path, sent: list[str], kill: int, after: float) -> bool:
    """Kill the process so many seconds after its start. Returns whether it was in a turn."""
    with closing(Campaign.open(folder)) as campaign:
        _answer(campaign, sent, f"kill {kill}")
        with _started(campaign) as process:
            time.sleep(after)
            in_a_turn = _state(campaign) == "learning"
            process.kill()
    return in_a_turn


def _answer(campaign: Campaign, sent: list[str], name: str) -> None:
    kinds = truth(campaign)
    for number, question in enumerate(take(campaign, "me", "me", EACH)):
        sent.append(f"{name} answer {number}")
        campaign.answer(*question.pair, verdict_of(kinds, question.pair), key=sent[-1])


@contextmanager
def _started(campaign: Campaign) -> Iterator[subprocess.Popen[bytes]]:
    """The process, when it has given its first sign of life."""
    command = [sys.executable, "-P", "-m", "anneal", "worker", "--campaign", str(campaign.folder)]
    campaign.mailbox.set_machine(state="absent")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        _wait(lambda: _state(campaign) != "absent" or process.poll() is not None)
        yield process


def _wait(done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


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
