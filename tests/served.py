"""A campaign being served, for tests: in this process without the machine, or as ``anneal label`` runs it."""

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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from anneal.campaign.campaign import Campaign
from anneal.web.app import create


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
            with urllib.request.build_opener(_Here).open(request, timeout=60) as reply:
                return Reply(reply.status, _lower(reply.headers), reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, _lower(error.headers), error.read())

    def get(self, path: str) -> Any:
        reply = self("GET", path)
        assert reply.status == 200, reply.body
        return reply.json

    def say(self, *events: dict[str, Any], annotator: str = "me", holder: str = "h", n: int = 6) -> Any:
        sent = {"annotator": annotator, "holder": holder, "n": n, "events": list(events)}
        reply = self("POST", "/api/answers", sent)
        assert reply.status == 200, reply.body
        return reply.json


class _Here(urllib.request.HTTPRedirectHandler):
    """Redirects are answers, not to be followed."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@contextmanager
def page_of(campaign: Campaign, token: str = "") -> Iterator[Site]:
    """The page in a thread of this process, with no machine beside it."""
    server = uvicorn.Server(uvicorn.Config(create(campaign, token), log_level="error", access_log=False))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield Site(f"http://127.0.0.1:{bound.getsockname()[1]}/")
        finally:
            server.should_exit = True
            thread.join()


class Label(Site):
    """``anneal label`` as a process; ``site(...)`` sends a request."""

    process: subprocess.Popen[str]


@contextmanager
def label(folder: Path, *options: str, port: int = 0) -> Iterator[Label]:
    """The command itself, with its machine, ended by ctrl-c (unless it was killed before)."""
    command = [sys.executable, "-m", "anneal", "label", "--campaign", str(folder), "--no-browser"]
    env = {**os.environ, "OMP_NUM_THREADS": "2", "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*command, "--port", str(port), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stdout.read()
        site = Label(found.group())
        object.__setattr__(site, "process", process)
        wait_for(lambda: _answers(site))
        yield site
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def _answers(site: Site) -> bool:
    try:
        return site("GET", "/docs").status in (200, 401)
    except OSError:
        return False


def wait_for(done: Any, seconds: float = 60.0) -> None:
    """Until ``done()`` is true."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)
