"""``anneal label``: the page, and the machine's process beside it, which is started again if it dies."""

import os
import socket
import threading
from collections.abc import Callable
from urllib.parse import quote

import uvicorn

from anneal.campaign.campaign import Campaign
from anneal.errors import UsageError
from anneal.web.access import LOOPBACK
from anneal.web.app import create
from anneal.web.machine import keep_running


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
    about = (campaign.folder, ending, campaign.own_strategy)
    machine = threading.Thread(target=keep_running, args=about, daemon=True)
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
    if host in ("0.0.0.0", "::"):  # nosec B104: a person asked for it
        name = socket.gethostname()
    return f"http://{name}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")
