"""Connections that are slow on purpose, or too many: uvicorn itself only closes those that are idle."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from anneal.web.guesses import source

HEADERS = 10.0  # seconds for the headers of a request
BODY = 20.0  # seconds for its body, and one more for every RATE bytes that came
RATE = 4096.0
READING = 60.0  # seconds for a client to read what waits to be sent
CLOSING = 10.0  # seconds for the rest of a reply, once the connection is being closed
PER_ADDRESS = 256  # connections: 32 people behind one address, with 6 connections a browser, need 192


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with a time for each part of a request, and with a number of connections for each address."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._part: Any = None  # the part of the request that the deadline is for
        self._received = 0  # bytes of that part
        self._began = 0.0
        super().connection_made(transport)
        self._source = source(self.client[0]) if self.client else ""
        same = sum(getattr(one, "_source", None) == self._source for one in self.connections)
        if same > PER_ADDRESS:
            transport.abort()
        else:
            self._expect(h11.IDLE)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._received += len(data)
        self._expect(self.conn.their_state)

    def _expect(self, part: Any) -> None:
        """Set the deadline for this part of a request; none while the request is being answered."""
        if part is self._part and part is not h11.SEND_BODY:
            return  # more of the headers does not mean more time
        if part is not self._part:
            self._part = part
            self._received = 0
            self._began = self.loop.time()
        self._cancel(self._deadline)
        self._deadline = None
        if part in (h11.IDLE, h11.SEND_BODY):
            most = HEADERS if part is h11.IDLE else BODY + self._received / RATE
            self._deadline = self.loop.call_at(self._began + most, self._close)

    def on_response_complete(self) -> None:
        self._part = h11.DONE  # the headers of the next request get a new deadline when they begin
        super().on_response_complete()
        self._closing_ends()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._cancel(self._unread)
        self._unread = self.loop.call_later(READING, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel(self._unread)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._closing_ends()

    def _close(self) -> None:
        self.transport.close()
        self._closing_ends()

    def _closing_ends(self) -> None:
        """A transport that is closed still waits until the client has read everything."""
        if self.transport.is_closing():
            self._cancel(self._unread)
            self._unread = self.loop.call_later(CLOSING, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel(self._deadline)
        self._cancel(self._unread)
        super().connection_lost(exc)

    @staticmethod
    def _cancel(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
