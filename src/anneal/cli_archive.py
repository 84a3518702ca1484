"""The commands about a campaign's archive: it grows, moves, and has duplicates."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anneal.console import (
    CampaignOption,
    Device,
    Json,
    Ray,
    err,
    escape,
    in_use_here,
    is_free,
    out,
    print_json,
    progress_bars,
    use_device,
)
from anneal.errors import UsageError
from anneal.names import printable, visible
from anneal.words import count

if TYPE_CHECKING:
    from anneal.campaign.campaign import Campaign


def add(
    folders: Annotated[list[Path], typer.Argument(help="Folders of images, or manifests.")],
    campaign: CampaignOption = Path("campaign"),
    device: Device = "auto",
    ray: Ray = None,
    as_json: Json = False,
) -> None:
    """Let more folders belong to the archive, and read what is new.

    Example: [bold]anneal add more-photos/ --campaign my-campaign[/]
    """
    from anneal.campaign.campaign import Campaign
    from anneal.campaign.update import add as add_folders

    opened = Campaign.open(campaign)
    add_folders(opened, folders)
    _update(opened, device, ray, as_json)


def update(
    campaign: CampaignOption = Path("campaign"),
    device: Device = "auto",
    ray: Ray = None,
    as_json: Json = False,
) -> None:
    """Look at the archive again, for new, changed, moved and removed files. New images are read and encoded.

    Example: [bold]anneal update --campaign my-campaign[/]
    """
    from anneal.campaign.campaign import Campaign

    _update(Campaign.open(campaign), device, ray, as_json)


def _update(campaign: Campaign, device: str, ray: str | None, as_json: bool) -> None:
    use_device(device)
    from anneal import cluster
    from anneal.campaign import progress
    from anneal.campaign.update import update as look_again

    with is_free(campaign.folder) as mine:
        if not mine:
            campaign.store.set(update_wanted=True)
            found = "anneal label is open: its machine does it now. anneal status says what it found."
        else:
            with progress_bars() as watch, cluster.workers(ray) as workers:
                found = str(look_again(campaign, watch, workers=workers))
    if as_json:
        print_json(progress.archive(campaign))
    else:
        out.print(found, soft_wrap=True)
        out.print(f"{count(len(campaign.live), 'image counts', 'images count')} now.")


def relocate(
    folder: Annotated[Path, typer.Argument(help="Where the images are now.")],
    campaign: CampaignOption = Path("campaign"),
    old: Annotated[
        Path | None, typer.Option("--from", help="A folder that was added; without it, the archive's root.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Even if most of the files are not there.")] = False,
) -> None:
    """Say where the images are, after they were moved.

    Example: [bold]anneal relocate /mnt/photos --campaign my-campaign[/]
    """
    from anneal.campaign.campaign import Campaign
    from anneal.campaign.relocate import relocate as move

    opened = Campaign.open(campaign)
    found = move(opened, folder, old, force=force)
    out.print(f"{count(found, 'image is', 'images are')} in {escape(str(folder))}.", soft_wrap=True)


def duplicates(
    campaign: CampaignOption = Path("campaign"),
    keep: Annotated[
        list[Path] | None, typer.Option(help="An image to ask about although it is a near duplicate.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print path,stands_for_it,kind.")] = False,
    as_json: Json = False,
) -> None:
    """List images that show the same picture as another one: these are asked about and found once.

    Example: [bold]anneal duplicates --campaign my-campaign[/]
    """
    from anneal.campaign.campaign import Campaign

    opened = Campaign.open(campaign)
    if keep:
        _keep(opened, keep)
    paths = opened.archive().paths
    rows = [
        (paths[image], paths[one.of], "same file" if one.reason == "duplicate" else "same picture")
        for image, one in opened.inventory.retired().items()
        if one.of is not None
    ]
    if as_json:
        return print_json([dict(zip(("path", "stands_for_it", "kind"), row, strict=True)) for row in rows])
    if as_csv:
        table: Any = csv.writer(sys.stdout)
        table.writerow(("path", "stands_for_it", "kind"))
        name = visible if sys.stdout.isatty() else printable
        table.writerows([(name(path), name(other), kind) for path, other, kind in rows])
        return None
    for path, other, kind in rows:
        out.print(f"{escape(path)} = {escape(other)}  ({kind})", soft_wrap=True)
    out.print(f"{count(len(rows), 'image is', 'images are')} left out, because another one shows the same.")
    return None


def _keep(campaign: Campaign, wanted: list[Path]) -> None:
    from anneal.campaign import duplicates
    from anneal.campaign.inventory import Reason

    archive = campaign.archive()
    retired = campaign.inventory.retired()
    images = []
    for path in wanted:
        image = archive.find(path)
        if image is None or image not in retired or retired[image].reason != Reason.NEAR:
            raise UsageError(f"{path} is not one of the near duplicates: anneal duplicates lists them.")
        images.append(image)
    with in_use_here(campaign.folder), progress_bars() as watch:
        duplicates.keep(campaign, images)
        from anneal.campaign import extend  # loads torch

        extend.settle(campaign, watch, None)
    err.print(f"{count(len(images), 'image is', 'images are')} asked about again.")
