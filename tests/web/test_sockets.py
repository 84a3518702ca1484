"""Clients that are slow on purpose, and clients that are too many."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from anneal.campaign.campaign import Campaign
from anneal.web import sockets
from served import Site, answer, page_of, stored, wait_for

SLOW = 200  # sockets


def dial(site: Site) -> socket.socket:
    address = urlsplit(site.address)
    return socket.create_connection((address.hostname, address.port or 0), timeout=60)


def is_closed(line: socket.socket) -> bool:
    """Whether the other side closes the line; waits for it."""
    try:
        while line.recv(65536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines that a test can wait for."""
    monkeypatch.setattr(sockets, "HEADERS", 0.5)
    monkeypatch.setattr(sockets, "BODY", 0.5)
    monkeypatch.setattr(sockets, "READING", 0.5)


@pytest.fixture
def lines() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /api/answers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
        b"POST /api/queries HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nxx",
    ],
)
def test_slow_sockets_are_closed_and_others_are_served(
    quick: None, campaign: Campaign, lines: ExitStack, sent: bytes
) -> None:
    with page_of(campaign) as site:
        slow = [lines.enter_context(dial(site)) for _ in range(SLOW)]
        for line in slow:
            line.sendall(sent)
        assert "error" not in site.say(answer(1, {"a": 0, "b": 1}, "similar"))["done"][0]
        assert [is_closed(line) for line in slow] == [True] * SLOW
    assert stored(campaign) == [(0, 1, "similar")]


def trickle(line: socket.socket) -> int:
    """Headers sent, one every 20 ms, until the line was closed."""
    line.settimeout(0.02)
    for number in range(1000):
        try:
            line.sendall(f"x-{number}: 1\r\n".encode())
            if line.recv(65536) == b"":
                return number
        except TimeoutError:
            continue
        except ConnectionError:
            return number
    return 1000


def test_a_trickle_of_headers_does_not_keep_a_line_open(
    quick: None, campaign: Campaign, lines: ExitStack
) -> None:
    with page_of(campaign) as site:
        line = lines.enter_context(dial(site))
        line.sendall(b"GET /api/state HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 200")  # a second request on the same line is timed too
        line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        assert trickle(line) < 1000


def test_a_client_that_does_not_read_is_dropped(
    quick: None, campaign: Campaign, lines: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "CLOSING", 0.5)
    with page_of(campaign) as site:
        line = lines.enter_context(socket.socket())
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        address = urlsplit(site.address)
        line.connect((address.hostname, address.port or 0))
        line.settimeout(60)
        line.sendall(b"GET /api/images/0 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000)
        assert site("GET", "/docs").status == 200
        wait_for(lambda: is_reset(line))


def test_a_steady_upload_may_take_longer_than_a_stalled_one(quick: None, campaign: Campaign) -> None:
    """Every part that comes in time earns more of it: 200 KB are worth 50 s."""
    event = b'{"holder": "h", "events": []' + b" " * 200_000 + b"}"
    with page_of(campaign) as site:
        address = urlsplit(site.address)
        line = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        line.putrequest("POST", "/api/answers")
        line.putheader("content-type", "application/json")
        line.putheader("content-length", str(len(event)))
        line.endheaders()
        line.send(event[:150_000])
        with dial(site) as idle:
            assert is_closed(idle)  # longer than a stalled body has
        with dial(site) as idle:
            assert is_closed(idle)
        line.send(event[150_000:])
        assert line.getresponse().status == 200
        line.close()


def test_one_address_has_a_limited_number_of_connections(
    campaign: Campaign, lines: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "PER_ADDRESS", 20)
    with page_of(campaign) as site:
        held = [lines.enter_context(dial(site)) for _ in range(20)]
        for _ in range(5):
            assert is_closed(lines.enter_context(dial(site)))
        for line in held:
            line.close()
        wait_for(lambda: is_served(site))


def is_reset(line: socket.socket) -> bool:
    try:
        line.sendall(b"x")
    except ConnectionError:
        return True
    return False


def is_served(site: Site) -> bool:
    try:
        return site("GET", "/docs").status == 200
    except OSError:
        return False
