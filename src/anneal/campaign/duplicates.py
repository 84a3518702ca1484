"""Images that show the same picture are asked about, found and counted once."""

from collections.abc import Collection, Iterable

from anneal.archive.catalog import Archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.inventory import GONE, Near, Reason, Retired
from anneal.method import duplicates
from anneal.pairs import Floats, Ids
from anneal.watch import Progress, silent


def find(
    archive: Archive, vectors: Floats, images: Ids, first: int = 0, progress: Progress = silent
) -> list[Near]:
    """Pairs of ``images`` that show the same picture, by the frozen vectors and the pixels. Of those before
    ``first`` no two are compared."""
    new = images[images >= first]
    pairs, similarity, correlation = duplicates.near(vectors, images, new, archive.pixels, progress)
    found = zip(pairs, similarity.tolist(), correlation.tolist(), strict=True)
    return [Near(pair, s, c) for pair, s, c in found]


def retired(
    archive: Archive, near: Iterable[Near], gone: dict[int, Retired], kept: Collection[int] = ()
) -> dict[int, Retired]:
    """Those that are ``gone``, and the duplicates among the others."""
    pairs = [one.pair for one in near]
    exact, alike = duplicates.represented(archive.duplicates, pairs, gone.keys(), kept)
    return {
        **gone,
        **{image: Retired(Reason.DUPLICATE, of) for image, of in exact.items()},
        **{image: Retired(Reason.NEAR, of) for image, of in alike.items()},
    }


def keep(campaign: Campaign, images: Iterable[int]) -> None:
    """Ask about these images although they show the same picture as others."""
    kept = {*campaign.store.setting("kept", []), *images}
    with campaign.transaction():
        campaign.store.set(kept=sorted(kept), settled=False)
        settle(campaign, campaign.archive(), {})
        campaign.inventory.note_growth()


def settle(campaign: Campaign, archive: Archive, changed: dict[int, Retired | None]) -> None:
    """Retire these images, or take them back (None), and find again who stands for whom."""
    inventory = campaign.inventory
    gone = {image: one for image, one in inventory.retired().items() if one.reason in GONE}
    gone |= {image: one for image, one in changed.items() if one is not None}
    for image, one in changed.items():
        if one is None:
            gone.pop(image, None)
    kept = set(campaign.store.setting("kept", []))
    inventory.retire(retired(archive, inventory.near(), gone, kept))


def listed(campaign: Campaign) -> list[tuple[int, list[int]]]:
    """Each image that stands for others, and those."""
    groups: dict[int, list[int]] = {}
    for image, one in campaign.inventory.retired().items():
        if one.of is not None:
            groups.setdefault(one.of, []).append(image)
    return sorted(groups.items())
