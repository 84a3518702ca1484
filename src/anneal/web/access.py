"""Who may send a request and how much, and the headers of every reply."""

import hmac
from http.cookies import SimpleCookie
from urllib.parse import parse_qs, urlsplit

from fastapi import HTTPException
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
        if refusal is None and (not length.isdecimal() or int(length) > most):
            refusal = _no(413, too_large)
        return await (refusal or self.app)(scope, measured, reply)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> JSONResponse | RedirectResponse | None:
        host = headers.get("host", "")
        origin = headers.get("origin")
        if not self.token and urlsplit(f"//{host}").hostname not in LOOPBACK:
            return _no(421, f"This server answers on 127.0.0.1 and localhost only, not as {host!r}.")
        if origin is not None and scope["method"] not in ("GET", "HEAD") and urlsplit(origin).netloc != host:
            return _no(403, "Another site's page may not send anything here.")
        if scope["path"].startswith("/api") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return _no(403, "Another site's page may not ask anything here.")
        return self._check_token(scope, headers) if self.token else None

    def _check_token(self, scope: Scope, headers: dict[str, str]) -> JSONResponse | RedirectResponse | None:
        """The address with the token in it leads to the page and sets a cookie."""
        in_address = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and self._is_right(in_address):
            welcome = RedirectResponse("/", status_code=303)
            welcome.set_cookie(COOKIE, self.token, httponly=True, samesite="strict", max_age=30 * 86400)
            return welcome
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_right(bearer) or (cookie is not None and self._is_right(cookie.value)):
            return None
        return _no(401, "A token is needed: open the address that anneal label printed, with ?token=… in it.")

    def _is_right(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())


def _no(status: int, why: str) -> JSONResponse:
    return JSONResponse({"detail": why}, status_code=status)
