"""``anneal label``: the page, and the machine's process beside it, which is started again if it dies."""

import html
import os
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import uvicorn
from starlette.types import ASGIApp

from anneal.campaign.campaign import Campaign
from anneal.errors import UsageError
from anneal.web.access import LOOPBACK
from anneal.web.app import create
from anneal.web.machine import keep_running
from anneal.web.making import LINGER, Front
from anneal.web.making import Making as Making
from anneal.web.sockets import BoundedProtocol


@dataclass(frozen=True)
class Certificate:
    """Files of a certificate, with those that it rests on, and of its key. Both may be in one file."""

    file: Path
    key: Path | None = None


def serve(
    campaign: Campaign | Making,
    host: str,
    port: int,
    token: str,
    ready: Callable[[str], None],
    certificate: Certificate | None = None,
) -> None:
    """Serve until ctrl-c. ``ready`` gets the address. Other machines need a token: where none is given, one
    is made, and only the address has it. A campaign that is still to be made is served when it is."""
    if host not in LOOPBACK and not token:
        token = secrets.token_urlsafe(16)
    app = Front(campaign, token) if isinstance(campaign, Making) else create(campaign, token)
    server = _server(app, certificate)
    try:
        bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError(
            f"{host} port {port} cannot be used ({os.strerror(error.errno or 0)}): is anneal label running "
            "already? If not, give another --port."
        ) from error
    # Connections inherit it. Without it the second packet of a reply waits 40 ms for a receipt of the first.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ending = threading.Event()

    def beside() -> None:
        made = None
        try:
            made = _made(campaign, app, token, ending) if isinstance(campaign, Making) else campaign
        finally:
            if made is None:  # whatever went wrong, nobody is to wait for ever
                server.should_exit = True
        if made is not None:
            keep_running(made.folder, ending, made.own_strategy)

    machine = threading.Thread(target=beside, daemon=True)
    with bound:
        machine.start()
        try:
            ready(_address(host, bound.getsockname()[1], token, server.config.is_ssl))
            server.run(sockets=[bound])
        finally:
            ending.set()
            if isinstance(campaign, Making):
                campaign.stop()
            machine.join()
    if isinstance(campaign, Making) and campaign.error is not None:
        raise campaign.error


def _made(making: Making, front: ASGIApp, token: str, ending: threading.Event) -> Campaign | None:
    """The campaign, made and served; None if it was not made. The browser hears why before that."""
    assert isinstance(front, Front)
    campaign = making.run(ending)
    if campaign is None:
        if making.error is not None:
            making.is_told.wait(LINGER)
        return None
    front.app = create(campaign, token)
    return campaign


def server_of(campaign: Campaign, token: str = "", certificate: Certificate | None = None) -> uvicorn.Server:
    """The server of the page. Its ``run`` takes the sockets."""
    return _server(create(campaign, token), certificate)


def _server(app: ASGIApp, certificate: Certificate | None) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        ws="none",
        http=BoundedProtocol,
        ssl_certfile=None if certificate is None else certificate.file,
        ssl_keyfile=None if certificate is None else certificate.key,
    )
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(
            f"The certificate cannot be used ({error}): give --certfile and --keyfile, both in PEM form."
        ) from error
    return uvicorn.Server(config)


def read_token(file: Path) -> str:
    """The token in a file: its first line."""
    try:
        token = file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read as a token: {error}.") from error
    if not token:
        raise UsageError(f"{file} is empty: write the token into its first line.")
    return token


def without_token(address: str, private: Path) -> str:
    """What to open instead of an address with a token: other users can see what a browser is started with.
    A file in the folder ``private``, which only this user can read, leads to the address."""
    if "?token=" not in address:
        return address
    page = private / "anneal.html"
    page.write_text(f'<meta http-equiv="refresh" content="0; url={html.escape(address)}">', encoding="utf-8")
    return page.as_uri()


def _address(host: str, port: int, token: str, is_safe: bool) -> str:
    name = f"[{host}]" if ":" in host else host
    if host in ("0.0.0.0", "::"):  # nosec B104: a person asked for it
        name = socket.gethostname()
    return f"{'https' if is_safe else 'http'}://{name}:{port}/" + (
        f"?token={quote(token, safe='')}" if token else ""
    )
