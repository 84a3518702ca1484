"""Who may send a request and how much, and the headers of every reply."""

import hmac
import math
from http.cookies import SimpleCookie
from urllib.parse import parse_qs, urlsplit

from fastapi import HTTPException
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anneal.web.guesses import Guesses

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
UPLOAD = 32 * 2**20  # bytes of a query image, at most
BODY = 2**20  # bytes of any other request, at most
COOKIE = "anneal"
HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


class Access:
    """Without a token, lets in requests to this machine's own names only: another site may let its name point
    here. With a token, lets in requests that have it."""

    def __init__(self, app: ASGIApp, token: str = "") -> None:
        self.app = app
        self.token = token
        self.guesses = Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        most = UPLOAD if scope["path"] == "/api/queries" else BODY
        too_large = f"That is more than {most // 2**20} MB: send a smaller file."
        size = 0

        async def measured() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > most:
                raise HTTPException(413, too_large)
            return message

        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        length = headers.get("content-length", "0")
        refusal = self._refusal(scope, headers)
        if refusal is None and (not length.isdecimal() or len(length) > 18 or int(length) > most):
            refusal = _no(413, too_large)
        return await (refusal or self.app)(scope, measured, reply)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> JSONResponse | RedirectResponse | None:
        host = headers.get("host", "")
        origin = headers.get("origin")
        if not self.token and _name(f"//{host}") not in LOOPBACK:
            return _no(421, f"This server answers on 127.0.0.1 and localhost only, not as {host!r}.")
        if origin is not None and scope["method"] not in ("GET", "HEAD") and _place(origin) != host:
            return _no(403, "Another site's page may not send anything here.")
        if scope["path"].startswith("/api") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return _no(403, "Another site's page may not ask anything here.")
        return self._check_token(scope, headers) if self.token else None

    def _check_token(self, scope: Scope, headers: dict[str, str]) -> JSONResponse | RedirectResponse | None:
        """The address with the token in it leads to the page and sets a cookie."""
        client = scope["client"][0] if scope.get("client") else ""
        wait = self.guesses.wait(client)
        if wait > 0:
            seconds = math.ceil(wait)
            return _no(429, f"Too many wrong tokens came from {client}: try again in {seconds} s.", seconds)
        in_address = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and self._is_right(in_address):
            welcome = RedirectResponse("/", status_code=303)
            # Lax: a link in a mail must open the page. What another site's page may send is decided above.
            secure = scope["scheme"] == "https"
            welcome.set_cookie(
                COOKIE, self.token, httponly=True, samesite="lax", max_age=30 * 86400, secure=secure
            )
            return welcome
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        given = [in_address, bearer, "" if cookie is None else cookie.value]
        if any(self._is_right(token) for token in given[1:]):
            return None
        for token in filter(None, given):
            self.guesses.add(client, token)
        return _no(401, "A token is needed: open the address that anneal label printed, with ?token=… in it.")

    def _is_right(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())


def _place(address: str) -> str | None:
    """The name and port in an address; None if it is none."""
    try:
        return urlsplit(address).netloc
    except ValueError:  # such as http://[
        return None


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def _no(status: int, why: str, wait: int | None = None) -> JSONResponse:
    headers = {} if wait is None else {"retry-after": str(wait)}
    return JSONResponse({"detail": why}, status_code=status, headers=headers)
