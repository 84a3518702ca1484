"""The commands that take care of a campaign: check, backup, restore; and fetch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anneal.console import CampaignOption, OwnStrategy, err, escape, in_use_here, out, progress_bars

if TYPE_CHECKING:
    from anneal.campaign.check import Damage


def check(
    campaign: CampaignOption = Path("campaign"),
    mend: Annotated[bool, typer.Option("--repair", help="Make again what can be made.")] = False,
    strategy: OwnStrategy = None,
) -> None:
    """Find damage in a campaign, say what is lost, and repair what can be repaired.

    Example: [bold]anneal check --campaign my-campaign --repair[/]
    """
    from anneal.campaign import check as checking

    found = checking.check(campaign)
    _tell(found)
    if found and mend:
        with in_use_here(campaign), progress_bars() as watch:
            for sentence in checking.repair(campaign, watch, strategy):
                out.print(escape(sentence), soft_wrap=True)
        found = checking.check(campaign)
        _tell(found)
    if found:
        raise typer.Exit(1)
    out.print(f"[bold]{escape(str(campaign))}[/] is in order.")


def _tell(found: list[Damage]) -> None:
    for damage in found:
        err.print(f"[yellow]{escape(damage.what)}[/]: {escape(damage.lost)}", soft_wrap=True)


def backup(
    target: Annotated[Path, typer.Argument(help="A file to write, or with --all a new folder.")],
    campaign: CampaignOption = Path("campaign"),
    everything: Annotated[
        bool, typer.Option("--all", help="Copy models, vectors and stored pixels too.")
    ] = False,
) -> None:
    """Copy what people said, as it is at one moment, also while they answer.

    Example: [bold]anneal backup answers.sqlite --campaign my-campaign[/]
    """
    from anneal.campaign import backup as copies

    with progress_bars() as watch:
        made = copies.backup(campaign, target, everything=everything, progress=watch("copying"))
    out.print(f"{made.events} events are in {escape(str(target))}.", soft_wrap=True)
    for sentence in made.left_out:
        out.print(escape(sentence), soft_wrap=True)


def restore(
    source: Annotated[Path, typer.Argument(help="What anneal backup wrote: a file or a folder.")],
    campaign: CampaignOption = Path("campaign"),
    replace: Annotated[bool, typer.Option("--replace", help="Replace the campaign that is there.")] = False,
) -> None:
    """Put a backup in a campaign's place. What is replaced is kept beside it.

    Example: [bold]anneal restore answers.sqlite --campaign my-campaign --replace[/]
    """
    from anneal.campaign import backup as copies

    for sentence in copies.restore(source, campaign, replace=replace):
        out.print(escape(sentence), soft_wrap=True)


def fetch(name: Annotated[str, typer.Argument(help="A hub id, such as microsoft/resnet-18.")]) -> None:
    """Download a network that you trust, for a campaign that was made with it.

    Example: [bold]anneal fetch microsoft/resnet-18[/]
    """
    from anneal.network import backbones  # loads torch

    backbones.fetch(name)
    out.print(f"{escape(name)} is on this machine.")
