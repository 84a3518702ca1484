"""Every image with its class: as a table, and as folders of links."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from anneal.archive.catalog import Archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.groups import Classes
from anneal.errors import UsageError
from anneal.export.tables import ROWS, Block
from anneal.files import explain_disk_errors, printable
from anneal.method.predict import NO_CLASS
from anneal.pairs import Ids
from anneal.watch import Progress, silent

SETTLED = "settled"
PREDICTED = "predicted"
UNPLACED = "unplaced"  # folder of the images without a class

GROUPS = {
    "path": "string",
    "group": "int64",
    "name": "string",
    "size": "int64",
    "score": "float",
    "how": "string",
}
CLASSES = {"path": "string", "group": "string", "score": "float", "how": "string"}


def group_rows(campaign: Campaign, classes: Classes, archive: Archive) -> Iterator[Block]:
    """The columns of GROUPS, in the order of the images' ids."""
    for images in _blocks(campaign.images):
        found = [classes.of(image) for image in images.tolist()]
        yield {
            "path": [printable(archive.paths[image]) for image in images.tolist()],
            "group": [None if one is None else one.number for one in found],
            "name": [None if one is None else one.name for one in found],
            "size": [None if one is None else len(one.images) for one in found],
            "score": _scores(classes, images),
            "how": _how(classes, images),
        }


def class_rows(campaign: Campaign, classes: Classes, archive: Archive) -> Iterator[Block]:
    """The columns of CLASSES: a class is called by its name, or by its number."""
    for images in _blocks(campaign.images):
        found = [classes.of(image) for image in images.tolist()]
        yield {
            "path": [printable(archive.paths[image]) for image in images.tolist()],
            "group": [None if one is None else one.name or str(one.number) for one in found],
            "score": _scores(classes, images),
            "how": _how(classes, images),
        }


def link_images(
    campaign: Campaign,
    classes: Classes,
    archive: Archive,
    folder: Path,
    copy: bool = False,
    progress: Progress = silent,
) -> int:
    """Make a folder for each class, with a link to each of its images, or a copy. Returns how many images.
    An existing folder must be empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already: give a folder that does not exist, or an empty one.")
    names = _folder_names(classes)
    for done, image in enumerate(campaign.images.tolist()):
        column = int(classes.column[image])
        inside = folder / (UNPLACED if column == NO_CLASS else names[column])
        path = Path(archive.paths[image])
        link = inside / f"{image:06d}-{path.name}"
        with explain_disk_errors(link):
            inside.mkdir(parents=True, exist_ok=True)
            source = (archive.root / path).resolve()
            if not copy:
                link.symlink_to(source)
            elif source.exists():
                shutil.copy2(source, link)
            else:
                raise UsageError(f"{source} is gone, so it cannot be copied: put it back, or make links.")
        progress(done + 1, len(campaign.images))
    return len(campaign.images)


def _folder_names(classes: Classes) -> list[str]:
    """A folder name for each class, all different: its name without what a file system may refuse."""
    names: list[str] = []
    taken = {UNPLACED}
    for one in classes.every:
        plain = re.sub(r'[\x00-\x1f/\\:*?"<>|]', "_", one.title).strip(" .")[:100]
        name = plain or f"group {one.number}"
        if name.casefold() in taken:
            name = f"{name} {one.number}"
        taken.add(name.casefold())
        names.append(os.fsdecode(name.encode("utf-8", "replace")))
    return names


def _blocks(images: Ids) -> Iterator[Ids]:
    for start in range(0, len(images), ROWS):
        yield images[start : start + ROWS]


def _scores(classes: Classes, images: Ids) -> list[float | None]:
    placed = (classes.column[images] != NO_CLASS).tolist()
    scores = np.round(classes.score[images].astype(np.float64), 4).tolist()
    return [score if has else None for score, has in zip(scores, placed, strict=True)]


def _how(classes: Classes, images: Ids) -> list[str | None]:
    settled = classes.settled[images].tolist()
    placed = (classes.column[images] != NO_CLASS).tolist()
    words = {True: SETTLED, False: PREDICTED}
    return [words[one] if has else None for one, has in zip(settled, placed, strict=True)]
