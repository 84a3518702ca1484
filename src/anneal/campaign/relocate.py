"""The images of a campaign are somewhere else now."""

import os
from pathlib import Path

from anneal.archive import growth
from anneal.archive.catalog import folders_outside
from anneal.campaign.campaign import Campaign
from anneal.errors import UsageError

SAMPLE = 20  # files whose bytes are compared
ENOUGH = 0.5  # share of the files that must be there


def relocate(campaign: Campaign, new: Path, old: Path | None = None, *, force: bool = False) -> int:
    """Say where the archive's root is now or, with ``old``, where a folder is that was added from outside it.
    Returns how many of its images are there: with the size their file had, if that is known. Fewer than half
    are refused unless it is forced, and so are files of which most have other bytes."""
    if not new.is_dir():
        raise UsageError(f"{new} is not a folder: give the one that holds the images now.")
    names = _names(campaign, old)
    if not names:
        raise UsageError(f"No image of this campaign was read from {old}: give the folder that was added.")
    there = _there(campaign, new, names)
    if not force and len(there) < ENOUGH * len(names):
        found = f"Only {len(there)} of {len(names)} images are in {new} as they were"
        raise UsageError(f"{found}: give another folder, or --force. Nothing was changed.")
    if not force and not _same_bytes(campaign, new, there):
        raise UsageError(f"The files in {new} have other content: give another folder, or --force.")
    with campaign.transaction():
        if old is None:
            _move_root(campaign, new)
        else:
            _move_folder(campaign, new, old, names)
        campaign.inventory.note_growth()
    return len(there)


def _names(campaign: Campaign, old: Path | None) -> dict[int, str]:
    """The files of the images in the root, or in a folder outside it, relative to it. Retired images are left
    out: they may be nowhere."""
    files = growth.files_of(campaign.archive())
    live = campaign.images.tolist()
    if old is None:
        return {i: files[i] for i in live if not os.path.isabs(files[i])}
    before = os.path.abspath(old) + os.sep
    return {i: files[i].removeprefix(before) for i in live if files[i].startswith(before)}


def _there(campaign: Campaign, new: Path, names: dict[int, str]) -> dict[int, str]:
    """Those whose file is in the new folder, with the size that was noted."""
    files = growth.files_of(campaign.archive())
    noted = campaign.inventory.files()
    now = growth.stats(new, set(names.values()))

    def fits(image: int, name: str) -> bool:
        before = noted.get(files[image])
        return name in now and (before is None or before.size == now[name].size)

    return {image: name for image, name in names.items() if fits(image, name)}


def _same_bytes(campaign: Campaign, new: Path, there: dict[int, str]) -> bool:
    """Whether most of a sample of the files have the bytes that were read."""
    archive = campaign.archive()
    digests = {one.file: one.digest for one in growth.held(archive, [], campaign.inventory.digests())}
    files = growth.files_of(archive)
    sample = list(there.items())[:: max(len(there) // SAMPLE, 1)]
    same = [growth.digest_of(new / name) == digests[files[image]] for image, name in sample]
    return sum(same) >= ENOUGH * len(same)


def _move_root(campaign: Campaign, new: Path) -> None:
    where = campaign.store.setting("archive", {})
    beside = os.path.relpath(new.resolve(), campaign.folder.resolve())
    campaign.store.set(archive={**where, "root": str(new.resolve()), "beside": beside})


def _move_folder(campaign: Campaign, new: Path, old: Path, names: dict[int, str]) -> None:
    tiles = growth.tiles_of(campaign.archive())
    place = new.resolve()
    files = {i: (place / name).as_posix() for i, name in names.items()}
    campaign.inventory.move({i: file + tiles[i] for i, file in files.items()})
    folders = {*campaign.store.setting("folders", []), *folders_outside(files.values())}
    before = os.path.abspath(old)
    sources = campaign.store.setting("sources", [])
    moved = [str(place) if os.path.abspath(source) == before else source for source in sources]
    campaign.store.set(sources=moved, folders=sorted(folders))
