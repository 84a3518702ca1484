"""The machine's process: it takes a turn when a round is over, and encodes images that people search with.
It talks to the page through the store alone."""

import os
import sqlite3
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import cast

import numpy as np
from filelock import FileLock, Timeout

from anneal.campaign import tuning
from anneal.campaign.campaign import WORKER_LOCK, Campaign
from anneal.campaign.check import lost, restore_frozen
from anneal.campaign.finetune import finetune
from anneal.campaign.progress import refusal_to_learn
from anneal.campaign.questions import is_all_asked
from anneal.campaign.store import Query
from anneal.campaign.turn import encode_images, turn
from anneal.campaign.update import update
from anneal.errors import AnnealError, DiskError, UsageError
from anneal.network import backbones
from anneal.network.backbones import Backbone
from anneal.network.tune import Part
from anneal.watch import Progress

NICE = 5  # how far the machine stands back where both cores are busy: people come first
LOOK = 0.2  # seconds between two looks at the store
BEAT = 2.0  # seconds between two signs of life
FIRST_RETRY = 5.0  # seconds to the first try after a failure; it doubles …
LAST_RETRY = 300.0  # … up to this
LAST_BEAT = 30.0  # seconds, at most, between two tries to give a sign of life


def run(folder: Path, strategy: str | None = None) -> None:
    """Work until the process that started this one closes our standard input, or is gone. A ``strategy`` from
    outside anneal has to be named."""
    os.nice(NICE)
    stop = threading.Event()
    threading.Thread(target=_watch_parent, args=(stop,), daemon=True).start()
    lock = FileLock(folder / WORKER_LOCK)
    while not stop.is_set():
        try:
            lock.acquire(timeout=0.5)
            break
        except Timeout:
            continue  # another worker is there, perhaps about to end
    if not stop.is_set():
        with lock:
            encoding = threading.Thread(target=_encode_queries, args=(folder, stop), daemon=True)
            encoding.start()
            try:
                _take_turns(folder, stop, strategy)
            finally:
                stop.set()
                encoding.join()  # a thread that is inside torch when Python ends would abort the process


def _watch_parent(stop: threading.Event) -> None:
    # Not through sys.stdin: Python aborts at its end if a thread waits in there.
    while os.read(0, 4096):  # empty when the other end is closed, however that process ended
        pass
    stop.set()
    time.sleep(3)
    os._exit(0)  # in the middle of a turn: nothing of it counts before it is finished


def _take_turns(folder: Path, stop: threading.Event, strategy: str | None = None) -> None:
    campaign = Campaign.open(folder, strategy)
    mailbox = campaign.mailbox
    backbone = None
    with suppress(DiskError):  # a full disk does not end the process: it is tried again
        mailbox.set_machine(state="idle")
        tuning.recover(campaign)
    retry = FIRST_RETRY
    while not stop.is_set():
        try:
            wanted = campaign.store.setting("update_wanted", False)
            part = tuning.wanted(campaign)
            if wanted or part or is_due(campaign) or lost(campaign.rounds):
                mailbox.set_machine(state="learning", step="starting", done=0, total=1)
                backbone = backbone or backbones.load(campaign.settings.backbone)
                if wanted:
                    update_on_request(campaign, backbone)
                elif is_due(campaign):
                    turn(campaign, backbone, _Watch(campaign))
                    campaign.store.set(learn_wanted=False)
                elif part and not lost(campaign.rounds):
                    tune_on_request(campaign, backbone, part)
                else:
                    restore_frozen(campaign, backbone, _Watch(campaign))
                mailbox.set_machine(state="idle")
                retry = FIRST_RETRY
        except Exception as error:  # answering goes on, and the turn is tried again
            if not isinstance(error, AnnealError):
                traceback.print_exc()
            why = str(error) if isinstance(error, AnnealError) else f"{type(error).__name__}: {error}"
            with suppress(DiskError):
                mailbox.set_machine(state="failed", error=why, again=time.time() + retry)
            stop.wait(retry)
            retry = min(2 * retry, LAST_RETRY)
        stop.wait(LOOK)
    campaign.close()


def update_on_request(campaign: Campaign, backbone: Backbone) -> None:
    """Look at the archive again because somebody asked for it. What a person has to mend is noted, and is not
    tried again until the next request."""
    try:
        update(campaign, _Watch(campaign), backbone=backbone)
    except AnnealError as error:
        campaign.store.set(updated={"at": time.time(), "error": str(error)})
    campaign.store.set(update_wanted=False)


def tune_on_request(campaign: Campaign, backbone: Backbone, part: str) -> None:
    """Fine-tune the network because somebody asked for it, until somebody stops it. What came of it is
    noted, and is not tried again until the next request."""
    tuning.begin(campaign)
    try:
        outcome = finetune(campaign, cast(Part, part), backbone, _StoppableWatch(campaign))
        tuning.end(campaign, str(outcome), outcome.adopted)
    except AnnealError as error:
        tuning.end(campaign, str(error))


def is_due(campaign: Campaign) -> bool:
    """Whether a round is over, somebody wants the machine to learn, nothing is left to ask, class labels wait
    for the first turn, or files of the newest model are lost."""
    labelled = campaign.store.newest_label() > 0 and campaign.rounds.current == 0
    if campaign.is_round_over() or labelled:
        return True
    early = campaign.store.setting("learn_wanted", False) or is_all_asked(campaign)
    if early and not refusal_to_learn(campaign):
        return True
    return bool(lost(campaign.rounds)) and campaign.known().count_groups(1) > 0


class _Watch:
    """Progress, written to the store now and then."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        self.mailbox = campaign.mailbox
        self.said = 0.0

    def __call__(self, step: str) -> Progress:
        def update(done: int, total: int) -> None:
            if time.time() - self.said > 0.3:
                self.said = time.time()
                self.mailbox.set_machine(state="learning", step=step, done=done, total=total)

        return update


class _StoppableWatch(_Watch):
    """It also looks whether somebody wants to stop."""

    def __call__(self, step: str) -> Progress:
        tell = super().__call__(step)
        looked = 0.0

        def update(done: int, total: int) -> None:
            nonlocal looked
            tell(done, total)
            if time.time() - looked > LOOK:
                looked = time.time()
                if tuning.is_stopped(self.campaign):
                    raise UsageError(tuning.STOPPED)

        return update


def _encode_queries(folder: Path, stop: threading.Event) -> None:
    """In a thread beside the turns, so that no search waits for one to end. It gives signs of life too."""
    campaign = Campaign.open(folder)
    backbone = None
    said = 0.0
    retry = 1.0
    query = None
    while not stop.is_set():
        try:
            if time.time() - said > BEAT:
                campaign.mailbox.beat()
                said = time.time()
            model = campaign.rounds.serving
            query = campaign.mailbox.waiting_query(model)
            if query is not None:
                backbone = backbone or backbones.load(campaign.settings.backbone)
                _encode(campaign, query, model, backbone)
                retry = 1.0
        except (AnnealError, OSError, sqlite3.Error):  # a full disk, say: it is tried again
            traceback.print_exc()
            stop.wait(retry)
            retry = min(2 * retry, LAST_BEAT)
        stop.wait(0 if query else LOOK)
    campaign.close()


def _encode(campaign: Campaign, query: Query, model: int, backbone: Backbone) -> None:
    px = campaign.settings.px
    try:
        pixels = np.frombuffer(query.pixels, dtype=np.uint8).reshape(1, px, px, -1)
        vector = encode_images(campaign, pixels, model, backbone)[0].astype(np.float32)
        campaign.mailbox.encoded(query.id, model, vector.tobytes(), None)
    except (AnnealError, ValueError, RuntimeError) as error:
        traceback.print_exc()
        why = str(error) if isinstance(error, AnnealError) else f"{type(error).__name__}: {error}"
        campaign.mailbox.encoded(query.id, model, None, why)
