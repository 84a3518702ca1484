"""The HTTP interface of one campaign. It never trains and loads no torch."""

from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles

from anneal import __version__
from anneal.campaign.campaign import Campaign
from anneal.errors import AnnealError
from anneal.web import answers, groups, images
from anneal.web.access import Access
from anneal.web.desk import Desk

STATIC = Path(__file__).parent / "static"
NO_CACHE = {"cache-control": "no-cache"}

pages = APIRouter(include_in_schema=False)


def create(campaign: Campaign, token: str = "") -> FastAPI:
    """The application that serves one campaign."""
    about = "Questions, answers, search and progress of one campaign."
    app = FastAPI(title="anneal", description=about, version=__version__, docs_url=None, redoc_url=None)
    app.state.desk = Desk(campaign)
    app.add_middleware(Access, token=token)
    app.add_exception_handler(AnnealError, _sentence)
    for router in (answers.router, images.router, groups.router, pages):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


def _sentence(request: Request, error: Exception) -> JSONResponse:
    wrong_request = isinstance(error, AnnealError) and error.exit_code == 2
    return JSONResponse({"detail": str(error)}, status_code=422 if wrong_request else 503)


@pages.get("/")
def page() -> FileResponse:
    return FileResponse(STATIC / "index.html", headers=NO_CACHE)


@pages.get("/docs")
def docs() -> FileResponse:
    return FileResponse(STATIC / "docs.html", headers=NO_CACHE)
