"""An archive that has changed since a campaign began: it is looked at again, and what is new is taken in.

Killed at any point, the campaign opens as it was before, and the next update goes on. What counts is in the
campaign's file, and changes in three steps: which images are gone or have moved; then, when every new image
is read and encoded, how many there are; then that the questions were planned with them.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anneal.archive import growth
from anneal.archive.catalog import Archive, folders_outside, reopen, with_paths
from anneal.archive.growth import Changes
from anneal.archive.reading import Entry
from anneal.campaign import duplicates
from anneal.campaign.campaign import Campaign
from anneal.campaign.inventory import GONE, Near, Reason, Retired
from anneal.campaign.rounds import FROZEN
from anneal.errors import UsageError
from anneal.watch import Watch, unwatched
from anneal.work import Workers

if TYPE_CHECKING:
    from anneal.network.backbones import Backbone


@dataclass(frozen=True)
class Report:
    """What an update found: numbers of images, and of files that could not be read."""

    new: int = 0
    changed: int = 0
    moved: int = 0
    removed: int = 0
    returned: int = 0
    skipped: int = 0
    duplicates: int = 0  # more than before

    def __str__(self) -> str:
        counts = {name: number for name, number in asdict(self).items() if number}
        words = {"skipped": "could not be read"}
        told = ", ".join(f"{number} {words.get(name, name)}" for name, number in counts.items())
        return f"Images: {told}." if told else "Nothing has changed."


def add(campaign: Campaign, folders: Sequence[Path]) -> None:
    """Let these folders, or manifests, belong to the archive: the next update reads them."""
    manifest = any(folder.is_file() for folder in folders)
    sources = [] if manifest and campaign.store.setting("sources", None) is None else _sources(campaign)
    for folder in folders:
        if not folder.exists():
            raise UsageError(f"{folder} does not exist: give a folder of images or a CSV manifest.")
        source = _name(campaign.root, folder)
        if source not in sources:
            sources.append(source)
    campaign.store.set(sources=sources)


def _name(root: Path, folder: Path) -> str:
    """A folder relative to the root if it is inside, else as an absolute path."""
    inside = os.path.relpath(folder.resolve(), root.resolve())
    return str(folder.resolve()) if inside.startswith("..") else Path(inside).as_posix()


def update(
    campaign: Campaign,
    watch: Watch = unwatched,
    *,
    backbone: "Backbone | None" = None,
    workers: Workers | None = None,
) -> Report:
    """Look at the archive again. New images are read and encoded, moved ones keep their id, and those whose
    file is gone are retired until it is back. The caller holds the worker's lock."""
    if campaign.is_simulation:
        raise UsageError("This campaign is a simulation, which asks about some images only: it cannot grow.")
    before = _duplicates(campaign)
    archive = _so_far(campaign)
    unread = len(archive.skipped)
    changes, entries = _look(campaign, archive, watch)
    if entries or len(archive) > campaign.size:  # a stopped update has read some
        growth.read_new(archive, entries, watch("reading"))
        archive = _so_far(campaign)
    new = len(archive) - campaign.size
    if new or campaign.store.setting("compared", 0) < len(archive):
        from anneal.campaign import extend  # loads torch

        extend.extend(campaign, archive, watch, backbone, workers)
        _take_in(campaign, archive, _compare(campaign, archive, watch))
    if not campaign.store.setting("settled", True):
        from anneal.campaign import extend

        extend.settle(campaign, watch, workers)
    report = Report(
        new,
        len(changes.changed),
        len(changes.moved.keys() - set(changes.returned)),
        len(changes.removed),
        len(changes.returned),
        max(len(archive.skipped) - unread, 0),  # one that can be read by now is no longer skipped
        max(_duplicates(campaign) - before, 0),
    )
    campaign.store.set(updated={"at": time.time(), **asdict(report)})
    return report


def _duplicates(campaign: Campaign) -> int:
    """How many images there are that another one stands for."""
    return sum(count for reason, count in campaign.inventory.counts().items() if reason not in GONE)


def _sources(campaign: Campaign) -> list[str]:
    """What the archive is read from. Earlier versions did not note it: a folder then has its paths in order
    and its classes by the first folder; anything else was a manifest, which is to be named."""
    noted = campaign.store.setting("sources", None)
    if noted is not None:
        return list(noted)
    archive = campaign.archive()
    classes = tuple(path.split("/")[0] if "/" in path else "" for path in archive.paths)
    in_order = list(archive.paths) == sorted(archive.paths)
    if in_order and classes == archive.labels and not any(archive.splits):
        return ["."]
    raise UsageError("This campaign was made from a manifest: name it once with anneal add MANIFEST.")


def _so_far(campaign: Campaign) -> Archive:
    """Every image that was read, even if it does not count yet."""
    root = campaign.root
    archive = reopen(root, campaign.archive_folder, campaign.settings.px, campaign.size, and_more=True)
    return with_paths(archive, campaign.inventory.moved())


def _look(campaign: Campaign, archive: Archive, watch: Watch) -> tuple[Changes, list[Entry]]:
    """What has happened to the files, which is noted, and what there is to read."""
    sources = _sources(campaign)
    scanned = growth.scan_sources(archive.root, sources, archive.reading, campaign.folder)
    gone = [i for i, one in campaign.inventory.retired().items() if one.reason in GONE]
    looking = watch("looking")
    hashed: dict[str, str] = {}

    def digest(file: str) -> str:
        looking(len(hashed), len(scanned))
        hashed[file] = growth.digest_of(archive.root / file)
        return hashed[file]

    changes = growth.compare(
        growth.held(archive, gone, campaign.inventory.digests()),
        [path for path, _ in archive.skipped],
        campaign.inventory.files(),
        growth.stats(archive.root, scanned),
        digest,
        growth.tiles_of(archive),
    )
    looking(1, 1)
    cut = {file: hashed[file] for file in changes.seen if scanned[file][0].window is not None}
    with campaign.transaction():
        _note_changes(campaign, archive, changes)
        campaign.store.set(sources=sources, folders=folders_outside(scanned))
        campaign.inventory.note_files(changes.seen, cut)  # before they are read: then may come other bytes
    return changes, [entry for file in changes.new for entry in scanned[file]]


def _note_changes(campaign: Campaign, archive: Archive, changes: Changes) -> None:
    """The first step: which images are gone, back, or have moved."""
    became: dict[int, Retired | None] = dict.fromkeys((*changes.returned, *changes.moved))
    became |= {i: Retired(Reason.REMOVED) for i in changes.removed}
    became |= {i: Retired(Reason.CHANGED) for i in changes.changed}
    if not became:
        return
    # Their paths are those of other images now: a path names one image.
    files = growth.files_of(archive)
    tiles = growth.tiles_of(archive)
    left = {i: f"{files[i]}~{i}{tiles[i]}" for i in changes.changed}
    campaign.inventory.move({**changes.moved, **left})
    duplicates.settle(campaign, archive, became)
    campaign.store.set(settled=False)
    campaign.inventory.note_growth()


def _compare(campaign: Campaign, archive: Archive, watch: Watch) -> list[Near]:
    """Pictures that new images have in common with others."""
    vectors = campaign.rounds.files(FROZEN).vectors()
    gone = [i for i, one in campaign.inventory.retired().items() if one.reason in GONE]
    images = np.setdiff1d(np.arange(len(archive)), gone)
    first = campaign.store.setting("compared", 0)
    return duplicates.find(archive, vectors, images, first, watch("comparing"))


def _take_in(campaign: Campaign, archive: Archive, near: list[Near]) -> None:
    """The second step: the images that were read count from now on."""
    before = campaign.size
    with campaign.transaction():
        campaign.inventory.add_near(near)
        duplicates.settle(campaign, archive, {})
        campaign.store.set(size=len(archive), compared=len(archive), settled=False)
        if campaign.inventory.has_class_labels():
            campaign.label((i, archive.labels[i]) for i in range(before, len(archive)) if archive.labels[i])
        campaign.inventory.note_growth()
