"""The HTTP interface of one campaign. It never trains and loads no torch."""

from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.requests import ClientDisconnect

from anneal import __version__
from anneal.campaign.campaign import Campaign
from anneal.errors import AnnealError
from anneal.web import answers, groups, images
from anneal.web.access import HEADERS, Access
from anneal.web.desk import Desk

STATIC = Path(__file__).parent / "static"
NO_CACHE = {"cache-control": "no-cache"}
NAMED = 5  # wrong values that a reply names, at most
BAD_VALUES = (OverflowError, RecursionError, UnicodeError)  # what a value causes that no bound has stopped

pages = APIRouter(include_in_schema=False)


def create(campaign: Campaign, token: str = "") -> FastAPI:
    """The application that serves one campaign."""
    about = "Questions, answers, search and progress of one campaign."
    app = FastAPI(title="anneal", description=about, version=__version__, docs_url=None, redoc_url=None)
    app.state.desk = Desk(campaign)
    app.add_middleware(Access, token=token)
    app.add_exception_handler(AnnealError, _sentence)
    app.add_exception_handler(RequestValidationError, _wrong_values)
    for kind in (*BAD_VALUES, ClientDisconnect):
        app.add_exception_handler(kind, _bad_value)
    app.add_exception_handler(Exception, _unexpected)
    for router in (answers.router, images.router, groups.router, pages):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


def _sentence(request: Request, error: Exception) -> JSONResponse:
    wrong_request = isinstance(error, AnnealError) and error.exit_code == 2
    return JSONResponse({"detail": str(error)}, status_code=422 if wrong_request else 503)


def _wrong_values(request: Request, error: Exception) -> JSONResponse:
    """Where the request is wrong, and why. The values are not sent back: they may not fit into JSON."""
    assert isinstance(error, RequestValidationError)
    wrong = [
        {"loc": [_short(part) for part in one["loc"]], "msg": _short(one["msg"], 200), "type": one["type"]}
        for one in error.errors()[:NAMED]
    ]
    return JSONResponse({"detail": wrong}, status_code=422)


def _short(part: int | str, most: int = 40) -> int | str:
    return part if isinstance(part, int) else part.encode("ascii", "backslashreplace")[:most].decode()


def _bad_value(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": "The request has a value that cannot be used."}, status_code=422)


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    """An error in anneal. The server prints it."""
    headers = {name.decode(): value.decode() for name, value in HEADERS}
    why = "Something went wrong in the server, which has printed what."
    return JSONResponse({"detail": why}, status_code=500, headers=headers)


@pages.get("/")
def page() -> FileResponse:
    return FileResponse(STATIC / "index.html", headers=NO_CACHE)


@pages.get("/docs")
def docs() -> FileResponse:
    return FileResponse(STATIC / "docs.html", headers=NO_CACHE)
