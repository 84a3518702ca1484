"""Every known pair and where it comes from: given by a person, implied by answers, or held out."""

from collections.abc import Iterable, Iterator

import numpy as np

from anneal.archive.catalog import Archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.store import Purpose
from anneal.errors import UsageError
from anneal.export.tables import Block
from anneal.names import printable
from anneal.pairs import Ids, Verdict
from anneal.watch import Progress, silent

PAIRS = {
    "path_a": "string",
    "path_b": "string",
    "verdict": "string",
    "source": "string",
    "purpose": "string",
    "annotator": "string",
    "round": "int64",
    "answered": "double",
}
SOME = 512  # images a side of a block of pairs
MOST = 20_000_000  # implied pairs: more make a file that nobody can use
WORDS = {int(verdict): verdict.name.lower() for verdict in Verdict}


def pair_rows(
    campaign: Campaign, archive: Archive, implied: bool, progress: Progress = silent
) -> Iterator[Block]:
    """The columns of PAIRS: the answers that stand, and then, with ``implied``, the pairs that follow from
    them."""

    def paths(images: Iterable[int]) -> list[str]:
        return [printable(archive.paths[image]) for image in images]

    rows = campaign.log().standing()
    yield {
        "path_a": paths(row.a for row in rows),
        "path_b": paths(row.b for row in rows),
        "verdict": [WORDS[row.verdict] for row in rows],
        "source": ["held-out" if row.purpose == Purpose.HELD_OUT else "given" for row in rows],
        "purpose": [str(row.purpose) for row in rows],
        "annotator": [row.annotator for row in rows],
        "round": [row.round for row in rows],
        "answered": [row.answered for row in rows],
    }
    if implied:
        asked = {row.pair for row in rows if row.purpose != Purpose.HELD_OUT}
        for some in _implied(campaign, asked, progress):
            nothing = [None] * len(some)
            yield {
                "path_a": paths(a for a, _, _ in some),
                "path_b": paths(b for _, b, _ in some),
                "verdict": [WORDS[verdict] for _, _, verdict in some],
                "source": ["implied"] * len(some),
                "purpose": nothing,
                "annotator": nothing,
                "round": nothing,
                "answered": nothing,
            }


def _implied(
    campaign: Campaign, asked: set[tuple[int, int]], progress: Progress
) -> Iterator[list[tuple[int, int, int]]]:
    """(a, b, verdict) of the pairs that are known and were not asked, some at a time."""
    known = campaign.known()
    members: Ids = np.intersect1d(known.members, campaign.images)
    if len(members) ** 2 // 2 > MOST:
        raise UsageError(
            f"Up to {len(members) ** 2 // 2:,} pairs follow from the answers: that is too many for a file. "
            "Leave --implied out, and take groups instead."
        )
    parts = -(-len(members) // SOME)
    for done, (rows, columns, verdicts) in enumerate(known.blocks(members, SOME)):
        i, j = np.nonzero((verdicts == Verdict.SIMILAR) | (verdicts == Verdict.DISSIMILAR))
        found = zip(rows[i].tolist(), columns[j].tolist(), verdicts[i, j].tolist(), strict=True)
        yield [(a, b, verdict) for a, b, verdict in found if (a, b) not in asked]
        progress(done + 1, parts * (parts + 1) // 2)
