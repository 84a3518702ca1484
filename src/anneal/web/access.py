"""What every request must pass: where it comes from, who may ask, how much it may send; and what every
answer says to the browser."""

from __future__ import annotations

import hmac
from http.cookies import SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
UPLOAD, BODY = 32 * 2**20, 2**20  # bytes: of a query image, of anything else
COOKIE = "anneal"
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class _TooLargeError(Exception):
    pass


class Guard:
    """Without a token only a browser that was told to go to this machine itself gets in, which keeps out
    pages of others that have a name point here; with one, whoever knows it."""

    def __init__(self, app: ASGIApp, token: str = "") -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *own]}
            await send(message)

        refusal = self._refusal(scope, headers)
        if refusal is not None:
            return await refusal(scope, receive, answer)
        limit = UPLOAD if scope["path"] == "/api/queries" else BODY
        seen = 0

        async def measured() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise _TooLargeError
            return message

        try:
            await self.app(scope, measured, answer)
        except _TooLargeError:
            await _too_large(limit)(scope, receive, answer)
        return None

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> JSONResponse | RedirectResponse | None:
        host = headers.get("host", "")
        origin = headers.get("origin")
        if not self.token and urlsplit(f"//{host}").hostname not in LOOPBACK:
            return _no(421, f"This server answers on 127.0.0.1 and localhost only, not as {host!r}.")
        if origin is not None and scope["method"] not in ("GET", "HEAD") and urlsplit(origin).netloc != host:
            return _no(403, "Another site's page may not send anything here.")
        if scope["path"].startswith("/api") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return _no(403, "Another site's page may not ask anything here.")
        length = headers.get("content-length", "0")
        limit = UPLOAD if scope["path"] == "/api/queries" else BODY
        if not length.isdecimal() or int(length) > limit:
            return _too_large(limit)
        return self._stranger(scope, headers) if self.token else None

    def _stranger(self, scope: Scope, headers: dict[str, str]) -> JSONResponse | RedirectResponse | None:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and self._right(given):
            welcome = RedirectResponse("/", status_code=303)
            welcome.set_cookie(COOKIE, self.token, httponly=True, samesite="strict", max_age=30 * 86400)
            return welcome
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if self._right(bearer) or (cookie is not None and self._right(cookie.value)):
            return None
        return _no(401, "A token is needed: open the address that anneal label printed, with ?token=… in it.")

    def _right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def _no(status: int, why: str) -> JSONResponse:
    return JSONResponse({"detail": why}, status_code=status)


def _too_large(limit: int) -> JSONResponse:
    return _no(413, f"That is more than {limit // 2**20} MB: send a smaller file.")
