"""``anneal label``: the page and, beside it, the machine's process, which is started again if it dies."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import uvicorn

from anneal.campaign.campaign import FILE, Campaign
from anneal.campaign.store import Store
from anneal.errors import AnnealError, UsageError
from anneal.web.access import LOOPBACK
from anneal.web.app import create

GRACE = 5.0  # seconds for the machine's process to end by itself


def serve(campaign: Campaign, host: str, port: int, token: str, ready: Callable[[str], None]) -> None:
    """Serve until ctrl-c; ``ready`` is told the address."""
    if host not in LOOPBACK and not token:
        raise UsageError(
            f"--host {host} lets other machines in: give --token WORD as well (or the environment variable "
            "ANNEAL_TOKEN), and send people the address that is printed then."
        )
    bound = _bind(host, port)
    app = create(campaign, token)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    address = f"http://{name}:{bound.getsockname()[1]}/" + (
        f"?token={quote(token, safe='')}" if token else ""
    )
    with bound, _machine(campaign.folder):
        ready(address)
        server.run(sockets=[bound])


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(
            f"{host} port {port} cannot be had ({os.strerror(error.errno or 0)}): is anneal label running "
            "already? Else give another --port."
        ) from error


@contextmanager
def _machine(folder: Path) -> Iterator[None]:
    """The machine's process, for as long as this lasts. It ends when its standard input is closed, which
    happens even if this process is killed."""
    ending = threading.Event()
    running: list[subprocess.Popen[bytes]] = []
    keeper = threading.Thread(target=_keep, args=(folder, ending, running), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ending.set()
        keeper.join()
        for process in running:
            process.wait()


def _keep(folder: Path, ending: threading.Event, running: list[subprocess.Popen[bytes]]) -> None:
    wait = 1.0
    while not ending.is_set():
        command = [sys.executable, "-m", "anneal", "worker", "--campaign", str(folder)]
        # A session of its own: ctrl-c is for this process, which ends the other in order.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        running[:] = [process]
        started = time.monotonic()
        while process.poll() is None and not ending.wait(0.2):
            pass
        if process.poll() is None:
            _end(process)
        elif not ending.is_set():
            wait = 1.0 if time.monotonic() - started > 600 else min(2 * wait, 60)
            with suppress(AnnealError):  # the disk may be what it died of
                store = Store(folder / FILE)
                store.set_machine(state="restarting", code=process.returncode)
                store.close()
            ending.wait(wait)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
