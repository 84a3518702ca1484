"""The machine's turn in a process of its own: it takes one whenever enough new answers are in, and
encodes the images people bring to search with. It talks to the page through the store alone."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
import traceback
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from anneal import search
from anneal.archive.catalog import Progress
from anneal.campaign import progress, turn
from anneal.campaign.campaign import WORKER_LOCK, Campaign
from anneal.campaign.store import Query
from anneal.errors import AnnealError
from anneal.network import backbones
from anneal.network.backbones import Backbone

LOOK = 0.2  # seconds between two looks at the store
BEAT = 2.0  # seconds between two signs of life
RETRY = (5.0, 300.0)  # seconds to the first and to any later try after a failure


def run(folder: Path) -> None:
    """Work until whoever started this closes our standard input, or is gone."""
    stop = threading.Event()
    threading.Thread(target=_watch_parent, args=(stop,), daemon=True).start()
    lock = FileLock(folder / WORKER_LOCK)
    while not stop.is_set():
        try:
            lock.acquire(timeout=0.5)
            break
        except Timeout:
            continue  # another one is at it, perhaps on its way out
    if not stop.is_set():
        with lock:
            threading.Thread(target=_encode_queries, args=(folder, stop), daemon=True).start()
            _take_turns(folder, stop)


def _watch_parent(stop: threading.Event) -> None:
    sys.stdin.buffer.read()  # ends when the other end is closed, however that process ended
    stop.set()
    time.sleep(3)
    os._exit(0)  # in the middle of a turn: nothing of it counts before it is finished


def _take_turns(folder: Path, stop: threading.Event) -> None:
    campaign = Campaign.open(folder)
    backbone = None
    campaign.store.set_machine(state="idle")
    wait = RETRY[0]
    while not stop.is_set():
        if due(campaign):
            try:
                campaign.store.set_machine(state="learning", step="starting", done=0, total=1)
                backbone = backbone or backbones.load(campaign.plan.backbone)
                turn.turn(campaign, backbone, _Watch(campaign))
                campaign.store.set_machine(state="idle")
                wait = RETRY[0]
            except Exception as error:  # whatever it was, answers go on and it is tried again
                if not isinstance(error, AnnealError):
                    traceback.print_exc()
                why = str(error) if isinstance(error, AnnealError) else f"{type(error).__name__}: {error}"
                campaign.store.set_machine(state="failed", error=why, again=time.time() + wait)
                stop.wait(wait)
                wait = min(2 * wait, RETRY[1])
        stop.wait(LOOK)
    campaign.close()


def due(campaign: Campaign) -> bool:
    """Whether there is enough to learn from that the newest model has not seen."""
    fresh, needed = progress.due(campaign)
    labels = campaign.store.newest_label() > 0 and not campaign.store.rounds()
    return (fresh >= needed and bool(campaign.settled())) or labels


class _Watch:
    """Progress, written to the store now and then."""

    def __init__(self, campaign: Campaign) -> None:
        self.store, self.said = campaign.store, 0.0

    def __call__(self, step: str) -> Progress:
        def update(done: int, total: int) -> None:
            if time.time() - self.said > 0.3:
                self.said = time.time()
                self.store.set_machine(state="learning", step=step, done=done, total=total)

        return update


def _encode_queries(folder: Path, stop: threading.Event) -> None:
    """In a thread beside the turns, so that nobody's search waits for one to end; it also gives the
    signs of life."""
    campaign = Campaign.open(folder)
    backbone, said, found = None, 0.0, None
    while not stop.is_set():
        try:
            if time.time() - said > BEAT:
                campaign.store.beat()
                said = time.time()
            found = campaign.store.waiting_query(campaign.serving())
            if found is not None:
                backbone = backbone or backbones.load(campaign.plan.backbone)
                _encode(campaign, found, backbone)
        except (AnnealError, OSError, sqlite3.Error):  # a full disk, say: it is tried again
            traceback.print_exc()
            stop.wait(2)
        stop.wait(0 if found else LOOK)
    campaign.close()


def _encode(campaign: Campaign, found: Query, backbone: Backbone) -> None:
    number, px = campaign.serving(), campaign.plan.px
    try:
        pixels = np.frombuffer(found.pixels, dtype=np.uint8).reshape(1, px, px, 3)
        vector = search.encode(campaign, pixels, backbone)[0].astype(np.float32)
        campaign.store.encoded(found.id, number, vector.tobytes(), None)
    except (AnnealError, ValueError, RuntimeError) as error:
        traceback.print_exc()
        campaign.store.encoded(found.id, number, None, f"{type(error).__name__}: {error}")
