"""A campaign that is served, for tests: in this process without the machine, or by ``anneal label``."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anneal.campaign import heldout
from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import Record
from anneal.method.snapshot import Agenda
from anneal.pairs import Floats, Verdict
from anneal.settings import Stream
from anneal.web.serve import Certificate, server_of

KEY = "key-number-{}"
PATIENCE = 240.0  # seconds, less than a test may take: the machine that runs the tests may be slow


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Site:
    """An address to send requests to."""

    address: str

    def __call__(
        self, method: str, path: str, data: Any = None, headers: dict[str, str] | None = None
    ) -> Reply:
        body = data if isinstance(data, bytes) or data is None else json.dumps(data).encode()
        kind = {} if data is None or isinstance(data, bytes) else {"content-type": "application/json"}
        request = urllib.request.Request(
            self.address.rstrip("/") + path, body, {**kind, **(headers or {})}, method=method
        )
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=PATIENCE) as reply:
                return Reply(reply.status, _lower(reply.headers), reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, _lower(error.headers), error.read())

    def get(self, path: str) -> Any:
        reply = self("GET", path)
        assert reply.status == 200, reply.body
        return reply.json

    def say(self, *events: dict[str, Any], annotator: str = "me", holder: str = "h", n: int = 3) -> Any:
        sent = {"annotator": annotator, "holder": holder, "n": n, "events": list(events)}
        reply = self("POST", "/api/answers", sent)
        assert reply.status == 200, reply.body
        return reply.json


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is a reply like any other."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@contextmanager
def page_of(campaign: Campaign, token: str = "", certificate: Certificate | None = None) -> Iterator[Site]:
    """The page in a thread of this process, without a machine. A campaign is for one thread, so the server
    opens one of its own."""
    own = Campaign.open(campaign.folder, campaign.strategy)
    server = server_of(own, token, certificate)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            scheme = "http" if certificate is None else "https"
            yield Site(f"{scheme}://127.0.0.1:{bound.getsockname()[1]}/")
        finally:
            server.should_exit = True
            thread.join()
            own.close()


class Label(Site):
    """``anneal label`` as a process; ``site(...)`` sends a request."""

    process: subprocess.Popen[str]


@contextmanager
def label(
    folder: Path, *options: str, port: int = 0, command: Sequence[str] = (), env: dict[str, str] | None = None
) -> Iterator[Label]:
    """The command itself, with its machine. It is ended by ctrl-c, unless the test killed it. ``command`` is
    how anneal is started, if not as a module."""
    start = [*(command or [sys.executable, "-m", "anneal"]), "label", "--campaign", str(folder)]
    quick = {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*start, "--no-browser", "--port", str(port), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **quick, **(env or {})},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        address = re.search(r"https?://\S+", line)
        assert address, line + process.stdout.read()
        site = Label(address.group())
        object.__setattr__(site, "process", process)
        wait_for(lambda: _answers(site))
        yield site
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)


def _answers(site: Site) -> bool:
    try:
        return site("GET", "/docs").status in (200, 401, 503)  # 503: the campaign is being made
    except OSError:
        return False


def wait_for(done: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Until ``done()`` is true."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def answer(number: int, pair: dict[str, int], verdict: str, **more: Any) -> dict[str, Any]:
    """The event of an answer to a question."""
    return {"key": KEY.format(number), "a": pair["a"], "b": pair["b"], "verdict": verdict, **more}


def has_learnt(site: Site) -> bool:
    """Whether the machine has learnt from every round that is over."""
    machine = site.get("/api/state")["machine"]
    return bool(machine["state"] == "idle" and machine["fresh"] < machine["needed"])


def stored(campaign: Campaign) -> list[tuple[int, int, str]]:
    """The answers that stand: (a, b, verdict)."""
    return [(row.a, row.b, Verdict(row.verdict).name.lower()) for row in campaign.log().standing()]


def finish_round(
    campaign: Campaign, cutoff: float, vectors: Floats | None = None, serving: int | None = None
) -> None:
    """Save a round as if the machine had taken its turn, with these vectors or those that serve."""
    number = campaign.rounds.current
    space = np.array(campaign.rounds.vectors() if vectors is None else vectors)
    nearest = heldout.query_results(space, campaign.images, campaign.settings.rng(Stream.QUERIES))
    files = campaign.rounds.files(number)
    files.save_space(space, nearest)
    files.save_agenda(Agenda())
    seen = campaign.log().newest
    campaign.rounds.save(Record(number, seen, number if serving is None else serving, cutoff=cutoff))
