"""The disk is full at random moments of answering and of a machine's turn (no file may grow past a size).

After each cycle the campaign opens, every acknowledged answer is there once, and with room again the turn is
taken. ``python tests/torture/disk.py 5`` does five cycles.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "campaign")]

import numpy as np  # noqa: E402
from tiny import SETTINGS, truth, verdict_of  # noqa: E402

from anneal.campaign.campaign import Campaign  # noqa: E402
from anneal.campaign.check import check  # noqa: E402
from anneal.campaign.questions import take  # noqa: E402
from anneal.campaign.turn import turn  # noqa: E402
from anneal.errors import AnnealError  # noqa: E402
from anneal.network import backbones  # noqa: E402
from anneal.network.train import Fit  # noqa: E402
from full_disk import no_file_over  # noqa: E402
from torture.power import make  # noqa: E402

AGAIN = 12  # cycles on one campaign, which is then made anew: all its pairs would be answered
LEAST = 33_000  # bytes: SQLite's shared memory has to fit
MOST = 600_000


def run(count: int) -> str:
    """This many cycles; returns what was counted."""
    Fit.length = lambda self, known: 5  # type: ignore[method-assign]
    rng = np.random.default_rng(0)
    backbone = backbones.load(SETTINGS.backbone)
    refused = 0
    with tempfile.TemporaryDirectory() as name:
        whole = make(Path(name).resolve() / "whole")
        folder = Path(name).resolve() / "c"
        for cycle in range(count):
            if cycle % AGAIN == 0:
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(whole, folder)
                sent: list[str] = []
            with no_file_over(int(rng.integers(LEAST, MOST))):
                refused += _work(folder, sent, cycle, backbone)
            assert check(folder) == [], check(folder)
            with closing(Campaign.open(folder)) as campaign:
                keys = [row.key for row in campaign.log().rows if row.key is not None]
                assert keys == sent, f"{len(keys)} of {len(sent)} answers"
                before = campaign.rounds.current
                turn(campaign, backbone)  # there is room again
                assert campaign.rounds.current == before + 1
    return f"disk: {count} cycles, {refused} refusals, each a sentence, 0 answers lost, 0 broken rounds"


def _work(folder: Path, sent: list[str], cycle: int, backbone: backbones.Backbone) -> int:
    """Answer and learn; returns how often the disk refused."""
    refused = 0
    try:
        with closing(Campaign.open(folder)) as campaign:
            kinds = truth(campaign)
            for number in range(3):
                try:
                    question, *_ = take(campaign, "me", "me", 1)
                    key = f"cycle {cycle} answer {number}"
                    campaign.answer(*question.pair, verdict_of(kinds, question.pair), key=key)
                    sent.append(key)
                except AnnealError:
                    refused += 1
            turn(campaign, backbone)
    except AnnealError:
        refused += 1
    return refused


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
