"""Every image with its class: as a table, and as folders of links."""

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from anneal.campaign.groups import Classes
from anneal.errors import UsageError
from anneal.export.images import Catalogue, blocks
from anneal.export.tables import Block
from anneal.files import explain_disk_errors
from anneal.method.predict import NO_CLASS
from anneal.watch import Progress, silent

UNPLACED = "unplaced"  # folder of the images without a class
GROUPS = {
    "path": "string",
    "group": "int64",
    "name": "string",
    "size": "int64",
    "score": "float",
    "how": "string",
}


def group_rows(catalogue: Catalogue, images: Iterable[int]) -> Iterator[Block]:
    """The columns of GROUPS."""
    for some in blocks(images):
        found = [catalogue.classes.of(image) for image in some]
        yield {
            "path": [catalogue.path(image) for image in some],
            "group": [None if one is None else one.number for one in found],
            "name": [None if one is None else one.name for one in found],
            "size": [None if one is None else len(one.images) for one in found],
            "score": [catalogue.score(image) for image in some],
            "how": [catalogue.how(image) for image in some],
        }


def link_images(
    catalogue: Catalogue, images: list[int], folder: Path, copy: bool = False, progress: Progress = silent
) -> None:
    """Make a folder for each class, with a link to each of its images, or a copy. An existing folder must be
    empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already: give a folder that does not exist, or an empty one.")
    archive = catalogue.archive
    names = _folder_names(catalogue.classes)
    for done, image in enumerate(images):
        column = int(catalogue.classes.column[image])
        inside = folder / (UNPLACED if column == NO_CLASS else names[column])
        path = Path(archive.paths[image])
        link = inside / f"{image:06d}-{path.name}"
        source = archive.file(image).absolute()
        if copy and not source.exists():
            raise UsageError(f"{source} is gone, so it cannot be copied: put it back, or make links.")
        with explain_disk_errors(link):
            inside.mkdir(parents=True, exist_ok=True)
            if copy:
                shutil.copy2(source, link)
            else:
                link.symlink_to(source)
        progress(done + 1, len(images))


def _folder_names(classes: Classes) -> list[str]:
    """A folder name for each class, all different: its name without what a file system may refuse."""
    names: list[str] = []
    taken = {UNPLACED}
    for one in classes.every:
        plain = re.sub(r'[\x00-\x1f/\\:*?"<>|]', "_", one.title).strip(" .")
        name = plain[:60] or f"group {one.number}"
        if name.casefold() in taken:
            name = f"{name} {one.number}"
        taken.add(name.casefold())
        names.append(name)
    return names
