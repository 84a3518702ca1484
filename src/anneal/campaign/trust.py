"""A campaign may be a stranger's: what it says is checked before memory is taken for it or code is run."""

from typing import TYPE_CHECKING, Any

import numpy as np

from anneal.archive.pixels import GrowingArray
from anneal.campaign.store import Store
from anneal.errors import CampaignError, DiskError, UsageError
from anneal.method.strategies import Strategy, chosen
from anneal.pairs import Ids
from anneal.settings import Settings

if TYPE_CHECKING:
    from anneal.campaign.campaign import Campaign

MOST = 10_000_000  # images of a campaign whose pixels are lost


def images(store: Store, size: Any, some: Any, pixels: GrowingArray) -> Ids | None:
    """The ids of ``some`` images, or None for all of ``size``. Both must agree with the stored pixels, and no
    answer may be about another image."""
    folder = store.path.parent
    if type(size) is not int or not 0 < size <= (pixels.rows or MOST):
        has = f"its stored pixels have {pixels.rows}" if pixels.rows else "there are no stored pixels"
        raise CampaignError(f"{folder} says it has {size!r:.30} images, but {has}: run anneal check.")
    try:
        ids: Ids = np.array([] if some is None else some, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        ids = np.array([-1])
    largest = max(store.largest_image(), int(ids.max(initial=-1)))
    if ids.ndim != 1 or largest >= size or ids.min(initial=0) < 0:
        raise CampaignError(
            f"{folder} speaks of images that it does not have ({size} images): it is damaged or was tampered "
            "with. anneal check says what can be saved."
        )
    return None if some is None else ids


def refuse_unusable(campaign: "Campaign") -> None:
    """Refuse to ask and learn where nothing can be written, or by a strategy that nobody confirmed."""
    campaign.strategy  # noqa: B018
    if campaign.store.read_only:
        raise DiskError(f"{campaign.folder} may not be written: copy the campaign to another folder.")


def strategy(settings: Settings, named: str | None) -> Strategy:
    """The strategy of these settings. Code from outside anneal is imported only if a person has ``named`` it
    just now."""
    own = settings.strategy
    if named is not None and named != own:
        raise UsageError(f"--strategy {named}: this campaign asks by {own}.")
    if ":" in own and named is None:
        raise UsageError(
            f"This campaign asks by {own}, which is code from outside anneal. If you trust it, give this "
            f"command --strategy {own}."
        )
    return chosen(settings)
