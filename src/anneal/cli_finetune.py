"""The command that fine-tunes the network of a campaign. Heavy modules are imported inside it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast

import typer

from anneal.console import (
    CampaignOption,
    Device,
    Json,
    OwnStrategy,
    StoppedError,
    escape,
    in_use_here,
    out,
    print_json,
    progress_bars,
    use_device,
)
from anneal.errors import UsageError


def finetune(
    campaign: CampaignOption = Path("campaign"),
    depth: Annotated[str, typer.Option(help="last (the last stage) or full (needs a GPU).")] = "last",
    strategy: OwnStrategy = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train the network itself on the answers, for minutes, and use the result if it is better.

    It needs a few hundred answers. Stopped or killed, the campaign stays as it was.

    Example: [bold]anneal finetune --campaign my-campaign[/]
    """
    use_device(device)
    from anneal.campaign import trust, tuning
    from anneal.campaign.campaign import Campaign

    if depth not in tuning.PARTS:
        raise UsageError(f"--depth {depth!r}: choose last or full.")
    opened = Campaign.open(campaign, strategy)
    trust.refuse_unusable(opened)
    if refusal := tuning.refusal(opened):
        raise UsageError(refusal)
    try:
        with in_use_here(campaign), progress_bars() as watch:
            from anneal.campaign.finetune import finetune as train
            from anneal.network.tune import Part

            outcome = train(opened, cast(Part, depth), watch=watch)
    except StoppedError:
        raise StoppedError(tuning.STOPPED) from None
    tuning.end(opened, str(outcome), outcome.adopted)
    if as_json:
        return print_json(asdict(outcome))
    out.print(escape(str(outcome)), soft_wrap=True)
    return None
