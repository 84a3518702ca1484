"""What the attacks share: a small campaign, its server as a process to kill, and people who answer."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from anneal.campaign.campaign import Campaign
from anneal.web.serve import server_of

PX = 32
PATIENCE = 60.0  # seconds until a server that does not answer counts as hanging
CONTEXT = multiprocessing.get_context("forkserver")  # a new process has everything imported at once
CONTEXT.set_forkserver_preload(["anneal.web.serve", "torture.grounds"])


def small_campaign(folder: Path) -> Path:
    """A new campaign on 120 drawn scenes; returns its folder."""
    from anneal.archive.catalog import open_archive
    from anneal.campaign.turn import begin
    from anneal.experiments import scenes
    from anneal.settings import Settings

    scenes.draw_archive(folder / "archive", per_kind=15, seed=1, px=48)
    settings = Settings(backbone="random:resnet-18", px=PX, views=1, strategy="mgue", recheck=0, heldout=0.1)
    campaign = folder / "campaign"
    begin(campaign, open_archive(folder / "archive", PX, campaign / "cache"), settings).close()
    return campaign


def _serve(folder: Path, port: int) -> None:
    server_of(Campaign.open(folder)).run(sockets=[socket.create_server(("127.0.0.1", port))])


class Server:
    """The page of a campaign in a process of its own, always on the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        self.start()

    def start(self) -> None:
        self.process = CONTEXT.Process(target=_serve, args=(self.folder, self.port), daemon=True)
        self.process.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


class Sender(threading.Thread):
    """Somebody who answers without a pause and, as the page does, sends each event until it is confirmed."""

    def __init__(self, port: int, name: str, stop: threading.Event, size: int) -> None:
        super().__init__(name=name)
        self.port = port
        self.stop = stop
        self.size = size
        self.rng = np.random.default_rng(sum(name.encode()))
        self.confirmed: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.line: http.client.HTTPConnection | None = None

    def run(self) -> None:
        while not self.stop.is_set():
            events = [self._event(i) for i in range(int(self.rng.integers(1, 4)))]
            if len(self.confirmed) % 10 == 9:
                events = [self._undo()]
            if self._send(events):
                self.confirmed += events

    def _key(self, i: int) -> str:
        return f"{self.name}-{len(self.confirmed) + i:08d}"

    def _event(self, i: int) -> dict[str, Any]:
        a, b = sorted(self.rng.choice(self.size, 2, replace=False).tolist())
        verdict = "similar" if a // 15 == b // 15 else "dissimilar"  # the kinds of the drawn scenes
        return {"key": self._key(i), "a": a, "b": b, "verdict": verdict}

    def _undo(self) -> dict[str, Any]:
        return {"key": self._key(0), "undoes": self.confirmed[-1]["key"]}

    def _send(self, events: list[dict[str, Any]]) -> bool:
        """Whether the events were confirmed: all of them, after as many tries as it takes."""
        sent = {"annotator": self.name, "holder": self.name, "n": len(events) - 1, "events": events}
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                status, body = self._post(json.dumps(sent))
            except (OSError, http.client.HTTPException):
                self._hang_up()
                time.sleep(0.01)
                continue
            done = json.loads(body)["done"] if status == 200 else []
            if [one["key"] for one in done if "error" not in one] == [one["key"] for one in events]:
                return True
            self.errors.append(f"{status}: {body[:200]!r}")
            return False
        self.errors.append("the server hangs")
        return False

    def _post(self, body: str) -> tuple[int, bytes]:
        if self.line is None:
            self.line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        self.line.request("POST", "/api/answers", body, {"content-type": "application/json"})
        reply = self.line.getresponse()
        return reply.status, reply.read()

    def _hang_up(self) -> None:
        if self.line is not None:
            self.line.close()
        self.line = None


@contextmanager
def senders(port: int, people: int, size: int) -> Iterator[list[Sender]]:
    """People who answer until the block ends."""
    stop = threading.Event()
    threads = [Sender(port, f"person{i}", stop, size) for i in range(people)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        stop.set()
        for thread in threads:
            thread.join()
            thread._hang_up()


def keys_in(campaign: Campaign) -> Counter[str]:
    """How often each key is in the store."""
    return Counter(row.key for row in campaign.log().rows if row.key is not None)


def verdicts_of(people: list[Sender]) -> set[tuple[int, int, str, str]]:
    """What should stand, worked out from what was confirmed: (a, b, person, verdict)."""
    said: dict[tuple[int, int, str], list[str]] = defaultdict(list)
    for person in people:
        asked: dict[str, tuple[int, int, str]] = {}
        for event in person.confirmed:
            if "undoes" in event:
                said[asked[event["undoes"]]].pop()
            else:
                asked[event["key"]] = (event["a"], event["b"], person.name)
                said[asked[event["key"]]].append(event["verdict"])
    return {(*pair, verdicts[-1]) for pair, verdicts in said.items() if verdicts}
