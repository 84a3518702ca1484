"""The first run: a campaign is made in a process of its own, while the browser shows how far it is."""

import json
import subprocess  # nosec B404: it starts this package's own command
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from anneal.campaign.campaign import Campaign
from anneal.errors import AnnealError
from anneal.watch import Watch
from anneal.web.access import Access
from anneal.web.app import NO_CACHE, STATIC

LINGER = 5.0  # seconds, at most, until a browser has asked what went wrong
GRACE = 5.0  # seconds for the process to end by itself

Json = dict[str, Any]


class MakingError(AnnealError):
    """Why there is no campaign, in the words and with the exit code of the process that was to make it."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.exit_code = code


@dataclass
class Making:
    """A campaign that is to be made on an archive. ``bars`` gives the terminal's progress bars; ``opened``
    opens the campaign when it is made."""

    archive: Path
    folder: Path
    bars: Callable[[], AbstractContextManager[Watch]]
    opened: Callable[[], Campaign]
    steps: dict[str, tuple[int, int]] = field(default_factory=dict)  # done and total, in the order they began
    error: MakingError | None = None
    is_made: bool = False
    is_told: threading.Event = field(default_factory=threading.Event)  # the browser knows the error
    _process: subprocess.Popen[str] | None = None

    def run(self, ending: threading.Event) -> Campaign | None:
        """The campaign when it is made; None if ``ending`` was set first, or there is an ``error``. What was
        done before is kept: the next run goes on there."""
        # With -P no module comes from the current folder, which may be a stranger's.
        command = [sys.executable, "-P", "-m", "anneal", "make", str(self.archive), "--campaign"]
        # In a session of its own: ctrl-c is for this process only, which then ends the other one.
        self._process = subprocess.Popen(  # nosec B603
            [*command, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        if ending.is_set():  # ``stop`` may have been called before there was a process
            self.stop()
        failure: Json = {}
        with self.bars() as watch:
            for line in self._process.stdout:
                said = json.loads(line)
                if "error" in said:
                    failure = said
                    continue
                self.steps[said["step"]] = said["done"], said["total"]
                watch(said["step"])(said["done"], said["total"])
        code = self._process.wait()
        if ending.is_set():
            return None
        if code:
            text = failure.get("error", f"The process that reads the images ended with code {code}.")
            self.error = MakingError(text, failure.get("code", 1))
            return None
        self.is_made = True
        try:
            return self.opened()
        except AnnealError as error:
            self.error = MakingError(str(error), error.exit_code)
            return None

    def stop(self) -> None:
        """End the process: it ends when its standard input is closed, so also if this process is killed."""
        process = self._process
        if process is None or process.poll() is not None or process.stdin is None:
            return
        with suppress(OSError):
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
            return
        process.kill()

    def told(self) -> Json:
        """What the browser shows."""
        steps = [{"step": step, "done": done, "total": total} for step, (done, total) in self.steps.items()]
        error = None if self.error is None else str(self.error)
        return {"archive": str(self.archive), "campaign": str(self.folder), "steps": steps, "error": error}


class Front:
    """The application that is served: the progress of the making, and later the campaign's own."""

    def __init__(self, making: Making, token: str) -> None:
        self.app: ASGIApp = Access(_progress(making), token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def _progress(making: Making) -> Starlette:
    async def page(request: Request) -> FileResponse:
        return FileResponse(STATIC / "making.html", headers=NO_CACHE)

    async def told(request: Request) -> JSONResponse:
        known = making.told()
        if known["error"] is not None:
            making.is_told.set()
        return JSONResponse(known, headers=NO_CACHE)

    async def not_yet(request: Request) -> JSONResponse:
        return JSONResponse({"detail": "The images are being read. The page opens then."}, status_code=503)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/api/making", told),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/{rest:path}", not_yet, methods=["GET", "POST", "PUT"]),
        ]
    )


def tell_progress(say: Callable[[Json], None], every: float = 0.1) -> Watch:
    """A watch that says how far each step is, as ``Making.run`` reads it: at its beginning, at its end, and a
    few times a second between them."""

    def watch(step: str) -> Callable[[int, int], None]:
        last = -every

        def progress(done: int, total: int) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= every or done >= total:
                last = now
                say({"step": step, "done": done, "total": total})

        return progress

    return watch
