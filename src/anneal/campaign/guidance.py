"""How far a campaign is, in one plain line, and whether to stop.

Whether to stop is decided when the machine has learnt, and noted. Once said, it stays, unless something has
happened that speaks for going on. That reason is part of the text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from anneal.campaign import heldout
from anneal.campaign.campaign import Campaign
from anneal.campaign.heldout import Model
from anneal.campaign.log import is_given
from anneal.campaign.rounds import FROZEN
from anneal.errors import UsageError
from anneal.method.estimate import Estimate
from anneal.method.forecast import AHEAD, FARTHEST, Forecast, forecast
from anneal.words import count

VAGUE = 0.2  # an estimate whose interval is wider is not told as a fact
BELOW = 0.5  # points of P@5: if AHEAD answers bring less, it is time to stop
NEAR = 0.1  # share of images without a group from which a full sort is near
SMALL = 10_000  # images: in a larger archive nobody sorts all


@dataclass(frozen=True)
class Guidance:
    """What to tell the person who answers."""

    stop: bool
    text: str
    gain: Estimate | None  # of P@5 by the next AHEAD answers
    below: float  # points, as the person has set it


def guide(campaign: Campaign, models: Iterable[Model]) -> Guidance:
    """How far the campaign is, by its models so far and what was decided at the last turn."""
    models = list(models)
    told = ahead(campaign, models)
    p5 = _serving(campaign, models)
    noted = _noted(campaign)
    stop = bool(noted.get("stop"))
    lines = [_found(campaign, models)]
    if p5 is not None and round(100 * p5.low) == 100:
        lines.append("There is nothing more to gain.")
    elif stop:
        lines.append(_stop(told, stop_below(campaign)))
    elif told is None:
        lines.append("Too early to tell what more answers would bring.")
    elif told.answers is None:
        lines.append(f"{FARTHEST} more answers would bring less than +1.")
    else:
        lines.append(f"About {told.answers} more answers would bring +1.")
    lines += [str(noted.get("why", "")), sorted_so_far(campaign)]
    gain = None if told is None else told.gain
    return Guidance(stop, " ".join(line for line in lines if line), gain, stop_below(campaign))


def ahead(campaign: Campaign, models: Iterable[Model]) -> Forecast | None:
    """What more answers would bring, by the trained models that have served. The frozen features are on no
    learning curve: the first models may find less than they do. Fine-tuning begins a new curve."""
    records = campaign.rounds.records()
    served = {record.serving for record in records} - {FROZEN}
    first = max((record.number for record in records if record.tuned), default=0)
    used = [model for model in models if model.round in served and model.round >= first]
    return forecast([model.answers for model in used], [model.p5 for model in used])


def is_vague(share: Estimate) -> bool:
    return share.high - share.low > VAGUE


def _found(campaign: Campaign, models: Sequence[Model]) -> str:
    p5 = _serving(campaign, models)
    if p5 is None or not campaign.tally().heldout:
        return "Too early to tell how much search finds."
    low = round(100 * p5.low)
    high = round(100 * p5.high)
    if is_vague(p5):
        return f"Too early to tell how much search finds: somewhere from {low} to {high} of 100."
    interval = f" ({low}–{high})" if low < high else ""
    return f"Search finds {round(100 * p5.value)} of 100{interval}."


def _stop(told: Forecast | None, below: float) -> str:
    if told is None or 100 * told.gain.value >= below:
        return "You can stop: search has levelled off."
    gain = max(100 * told.gain.value, 0.0)
    return f"You can stop: {AHEAD} more answers would bring about +{gain:.1f}, less than +{below:g}."


def sorted_so_far(campaign: Campaign) -> str:
    """How near a full sort of a small archive is; nothing while it is far."""
    left = alone(campaign)
    total = len(campaign.images)
    if left is None or not total or left > max(NEAR * total, 1):
        return ""
    if not left:
        return f"All {count(total, 'image has', 'images have')} a group."
    return f"{left:,} of {count(total, 'image')} {'has' if left == 1 else 'have'} no group yet."


def alone(campaign: Campaign) -> int | None:
    """How many images are alone in their group; None for a large archive, where nobody counts them."""
    images = campaign.images
    if len(images) > SMALL:
        return None
    known = campaign.known()
    return int((known.sizes[known.group[images]] == 1).sum())


def stop_below(campaign: Campaign) -> float:
    """The gain by AHEAD answers, in points, below which the person wants to stop."""
    return float(campaign.store.setting("stop_below", BELOW))


def set_stop_below(campaign: Campaign, points: float) -> None:
    """Set it, and decide anew."""
    if not 0 <= points <= 100:
        raise UsageError(f"Stop below {points:g} points: give 0 to 100, for example {BELOW:g}.")
    campaign.store.set(stop_below=points)
    decide(campaign)


def decide(campaign: Campaign) -> None:
    """Note whether to stop: when a model is new, or the person has set another threshold."""
    if not campaign.settings.heldout:
        return
    models = heldout.models(campaign)
    told = ahead(campaign, models)
    p5 = _serving(campaign, models)
    below = stop_below(campaign)
    before = _noted(campaign)
    enough = told is not None and p5 is not None and not is_vague(p5) and 100 * told.gain.value < below
    if before.get("stop"):
        why = "" if enough else _reason(campaign, before, p5, below)
        if why:
            campaign.store.set(advice={"stop": False, "why": f"Go on after all: {why}."})
    elif enough and p5 is not None:
        seen = campaign.log().newest
        images = len(campaign.images)
        campaign.store.set(
            advice={"stop": True, "seen": seen, "images": images, "high": p5.high, "below": below}
        )


def _reason(campaign: Campaign, before: dict[str, Any], p5: Estimate | None, below: float) -> str:
    """What has happened since the advice to stop that speaks for going on; empty if nothing."""
    added = len(campaign.images) - int(before["images"])
    if added > 0:
        return f"{count(added, 'image was', 'images were')} added"
    log = campaign.log()
    given = [row for row in log.since(int(before["seen"])) if is_given(row)]
    corrected = {row.pair for row in given if len(set(log.verdicts(row.pair))) > 1}
    if corrected:
        return f"{count(len(corrected), 'answer was', 'answers were')} corrected"
    if p5 is not None and p5.value > float(before["high"]):
        return f"search finds {round(100 * p5.value)} of 100, more than was thought possible"
    if below < float(before["below"]):
        return f"you have set the least gain to +{below:g}"
    return ""


def _noted(campaign: Campaign) -> dict[str, Any]:
    noted = campaign.store.setting("advice", {})
    return noted if isinstance(noted, dict) else {}


def _serving(campaign: Campaign, models: Iterable[Model]) -> Estimate | None:
    serving = campaign.rounds.serving
    return next((model.p5 for model in models if model.round == serving), None)
