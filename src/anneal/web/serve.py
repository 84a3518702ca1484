"""``anneal label``: the page, and the machine's process beside it, which is started again if it dies."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import uvicorn

from anneal.campaign.campaign import FILE, Campaign
from anneal.campaign.store import Mailbox, Store
from anneal.errors import AnnealError, UsageError
from anneal.web.access import LOOPBACK
from anneal.web.app import create

GRACE = 5.0  # seconds for the machine's process to end by itself
STEADY = 600.0  # seconds after which a process that dies is started again at once
LONGEST_WAIT = 60.0  # seconds before a start, at most


def serve(campaign: Campaign, host: str, port: int, token: str, ready: Callable[[str], None]) -> None:
    """Serve until ctrl-c. ``ready`` gets the address."""
    if host not in LOOPBACK and not token:
        raise UsageError(
            f"--host {host} lets other machines in: give --token WORD as well (or the environment variable "
            "ANNEAL_TOKEN), and send people the address that is printed then."
        )
    try:
        bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError(
            f"{host} port {port} cannot be used ({os.strerror(error.errno or 0)}): is anneal label running "
            "already? If not, give another --port."
        ) from error
    # Connections inherit it. Without it the second packet of a reply waits 40 ms for a receipt of the first.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = uvicorn.Server(uvicorn.Config(create(campaign, token), log_level="warning", access_log=False))
    ending = threading.Event()
    machine = threading.Thread(target=_keep_running, args=(campaign.folder, ending), daemon=True)
    with bound:
        machine.start()
        try:
            ready(_address(host, bound.getsockname()[1], token))
            server.run(sockets=[bound])
        finally:
            ending.set()
            machine.join()


def _address(host: str, port: int, token: str) -> str:
    name = f"[{host}]" if ":" in host else host
    if host in ("0.0.0.0", "::"):
        name = socket.gethostname()
    return f"http://{name}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")


def _keep_running(folder: Path, ending: threading.Event) -> None:
    """The machine's process. It ends when its standard input is closed, so also if this process is killed."""
    command = [sys.executable, "-m", "anneal", "worker", "--campaign", str(folder)]
    wait = 1.0
    while not ending.is_set():
        # In a session of its own: ctrl-c is for this process only, which then ends the other one.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        started = time.monotonic()
        while process.poll() is None and not ending.wait(0.2):
            pass
        if process.poll() is None:
            try:
                process.communicate(timeout=GRACE)  # closes its standard input
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        elif not ending.is_set():
            wait = 1.0 if time.monotonic() - started > STEADY else min(2 * wait, LONGEST_WAIT)
            with suppress(AnnealError):  # the disk may be the reason why it died
                store = Store(folder / FILE)
                Mailbox(store).set_machine(state="restarting", code=process.returncode)
                store.close()
            ending.wait(wait)
