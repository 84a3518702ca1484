"""What is said of an image wherever it is listed: path, group, score, footprint."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from anneal.archive.catalog import Archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.groups import Classes, classify
from anneal.export.tables import ROWS, Block
from anneal.names import printable
from anneal.search import Results
from anneal.watch import Progress, silent

SETTLED = "settled"
PREDICTED = "predicted"
CLASSES = {"path": "string", "group": "string", "score": "float", "how": "string"}
RESULTS = {
    "query": "string",
    "rank": "int64",
    "path": "string",
    "file": "string",
    "group": "string",
    "score": "float",
}


@dataclass(frozen=True)
class Catalogue:
    """An archive and the classes of its images."""

    archive: Archive
    classes: Classes

    @classmethod
    def of(cls, campaign: Campaign, progress: Progress = silent) -> Self:
        return cls(campaign.archive(), classify(campaign, progress))

    def path(self, image: int) -> str:
        return printable(self.archive.paths[image])

    def file(self, image: int) -> str:
        """The absolute path."""
        return printable(str(self.archive.file(image).absolute()))

    def group(self, image: int) -> str | None:
        """The name of the image's class, or its number; None without one."""
        found = self.classes.of(image)
        return None if found is None else found.name or str(found.number)

    def score(self, image: int) -> float | None:
        """How sure the class is."""
        return None if self.classes.of(image) is None else round(float(self.classes.score[image]), 4)

    def how(self, image: int) -> str | None:
        if self.classes.of(image) is None:
            return None
        return SETTLED if self.classes.settled[image] else PREDICTED

    def footprint(self, image: int) -> tuple[tuple[float, float], ...]:
        return self.archive.about[image].footprint


def blocks(images: Iterable[int]) -> Iterator[list[int]]:
    """Ids, some at a time."""
    ids = np.asarray(images, dtype=np.int64)
    for start in range(0, len(ids), ROWS):
        yield ids[start : start + ROWS].tolist()


def footprint_rows(catalogue: Catalogue, images: Iterable[int]) -> Iterator[Block]:
    """The columns of CLASSES, and the footprints. A class is called by its name, or by its number."""
    for some in blocks(images):
        yield {
            "path": [catalogue.path(image) for image in some],
            "group": [catalogue.group(image) for image in some],
            "score": [catalogue.score(image) for image in some],
            "how": [catalogue.how(image) for image in some],
            "footprint": [catalogue.footprint(image) for image in some],
        }


def result_rows(catalogue: Catalogue, every: Sequence[Results]) -> Iterator[Block]:
    """The columns of RESULTS, and the footprints: a block for each query. Scores are similarities."""
    for results in every:
        yield {
            "query": [printable(results.query)] * len(results.ids),
            "rank": list(range(1, len(results.ids) + 1)),
            "path": [catalogue.path(image) for image in results.ids],
            "file": [catalogue.file(image) for image in results.ids],
            "group": [catalogue.group(image) for image in results.ids],
            "score": [round(score, 6) for score in results.scores],
            "footprint": [catalogue.footprint(image) for image in results.ids],
        }
