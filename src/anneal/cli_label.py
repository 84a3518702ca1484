"""The first run of ``anneal label``: whether to make a campaign, and the process that makes it."""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anneal.console import CampaignOption, escape, out
from anneal.errors import AnnealError, UsageError

if TYPE_CHECKING:
    from anneal.campaign.campaign import Campaign

Images = Annotated[
    Path | None, typer.Argument(help="Images, as for init: where there is no campaign yet, one is made.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Make the campaign without asking.")]


def is_to_be_made(archive: Path | None, campaign: Path, yes: bool, strategy: str | None = None) -> bool:
    """Whether a campaign is to be made on an archive. A person at a terminal is asked first; where there is
    nobody to ask, naming the images is enough. A campaign on other images is refused."""
    from anneal.campaign.campaign import Campaign

    if archive is None:
        return False
    if not archive.exists():
        raise UsageError(f"{archive} does not exist: give a folder of images or a CSV manifest.")
    if archive.is_dir() and not os.access(archive, os.R_OK | os.X_OK):
        raise UsageError(f"{archive} may not be read: change its rights, or give another folder.")
    if Campaign.is_made(campaign):
        _refuse_other_images(Campaign.open(campaign), archive)
        return False
    if strategy is not None:
        raise UsageError(f"--strategy {strategy}: make such a campaign with anneal init first.")
    if yes or not sys.stdin.isatty():
        return True
    out.print(f"There is no campaign in [bold]{escape(str(campaign))}[/] yet.", soft_wrap=True)
    if typer.confirm(f"Read and encode the images in {archive}, and begin one there?", default=True):
        return True
    raise UsageError(f"Nothing was made. anneal init {archive} --campaign FOLDER makes one elsewhere.")


def _refuse_other_images(campaign: Campaign, archive: Path) -> None:
    root = campaign.root
    sources = [root / source for source in campaign.store.setting("sources", ["."])]
    campaign.close()
    if archive.resolve() not in [source.resolve() for source in sources]:
        raise UsageError(
            f"{campaign.folder} holds a campaign on {root}, not on {archive}: give another "
            "--campaign, or leave the images out."
        )


def make(
    archive: Annotated[Path, typer.Argument(help="Images, as for init.")],
    campaign: CampaignOption = Path("campaign"),
) -> None:
    """Make a campaign and tell the progress in lines of JSON, as long as standard input is open; anneal label
    starts it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    lines = sys.stdout

    def say(said: dict[str, Any]) -> None:
        lines.write(json.dumps(said) + "\n")
        lines.flush()

    from anneal.web.making import tell_progress

    try:
        with redirect_stdout(sys.stderr):  # a library may print
            from anneal.archive.listing import scan

            scan(archive)  # a folder without images is refused before torch is loaded
            from anneal.campaign.turn import create

            create(archive, campaign, watch=tell_progress(say)).close()
    except AnnealError as error:
        say({"error": str(error), "code": error.exit_code})
        raise typer.Exit(error.exit_code) from error


def _end_with_parent() -> None:
    while os.read(0, 4096):  # empty when the other end is closed, however that process ended
        pass
    os._exit(0)  # what is read and encoded so far is kept: the next run goes on there
