"""What people ask about fine-tuning and are told: whether it can begin, how far it is, and what came of it.
The work itself is in ``finetune``."""

import time
from typing import Any

from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import FROZEN
from anneal.errors import UsageError

LEAST = 200  # images with a known similar one: with fewer, nothing can be told about the result
PARTS = ("last", "full")
STOPPED = "Fine-tuning was stopped: the campaign is as it was."


def refusal(campaign: Campaign) -> str:
    """Why the network cannot be fine-tuned now; empty if it can."""
    settings = campaign.settings
    if settings.depth != "head":
        return f"This campaign trains its network in every round (--depth {settings.depth}) already."
    if campaign.rounds.serving == FROZEN:
        return "No model serves yet: answer some questions and let the machine learn first."
    known = campaign.known()
    images = int((known.sizes[known.group[known.members]] > 1).sum())
    if images < LEAST:
        return (
            f"Fine-tuning needs {LEAST} images that answers join to a similar one, and there are {images}: "
            "answer more questions. A few hundred answers are usually enough."
        )
    return ""


def state(campaign: Campaign) -> dict[str, Any]:
    """For the page: idle, wanted, running or stopping; why it cannot begin; what came of it last."""
    asked = campaign.store.setting("finetune", {})
    last = campaign.store.setting("finetuned", {})
    return {
        "state": asked.get("state", "idle"),
        "refusal": refusal(campaign),
        "text": last.get("text", ""),
        "adopted": last.get("adopted"),
    }


def request(campaign: Campaign, part: str) -> None:
    """Ask the machine to fine-tune a part of the network."""
    if why := refusal(campaign):
        raise UsageError(why)
    campaign.store.set(finetune={"state": "wanted", "part": part})


def stop(campaign: Campaign) -> None:
    """Ask the machine to stop, or do not begin."""
    with campaign.store.transaction():
        asked = campaign.store.setting("finetune", {})
        if asked.get("state") == "wanted":
            end(campaign, STOPPED)
        elif asked.get("state") == "running":
            campaign.store.set(finetune={**asked, "state": "stopping"})


def wanted(campaign: Campaign) -> str | None:
    """The part of the network that is to be fine-tuned, if somebody has asked for it."""
    asked = campaign.store.setting("finetune", {})
    return str(asked.get("part", PARTS[0])) if asked.get("state") == "wanted" else None


def begin(campaign: Campaign) -> None:
    campaign.store.set(finetune={"state": "running"})


def is_stopped(campaign: Campaign) -> bool:
    return bool(campaign.store.setting("finetune", {}).get("state") == "stopping")


def end(campaign: Campaign, text: str, adopted: bool = False) -> None:
    """Note what came of it."""
    campaign.store.set(finetune={}, finetuned={"at": time.time(), "text": text, "adopted": adopted})


def recover(campaign: Campaign) -> None:
    """When the machine's process begins: one before it may have been killed in the middle."""
    if campaign.store.setting("finetune", {}).get("state") in ("running", "stopping"):
        end(campaign, "Fine-tuning was interrupted: the campaign is as it was.")
