"""``anneal check``: find what is damaged in a campaign's folder, and make again what can be made.

What people said is in ``campaign.sqlite`` alone. Everything else can be made again from it and the images.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from anneal.archive.reading import Reading
from anneal.archive.recovery import read_again
from anneal.campaign.campaign import FILE, Campaign
from anneal.campaign.rounds import FROZEN, Round, Rounds
from anneal.campaign.salvage import salvage
from anneal.campaign.store import Store
from anneal.errors import AnnealError, DiskError
from anneal.files import checksum
from anneal.method.snapshot import Snapshot
from anneal.settings import Stream
from anneal.watch import Watch, unwatched

if TYPE_CHECKING:
    from anneal.network.backbones import Backbone
    from anneal.network.model import Depth


CHECKED = {"vectors.npy", "model.safetensors", "model.json"}  # others are written anew when images are added


def in_words(number: int) -> str:
    """A model in words."""
    return "the frozen features" if number == FROZEN else f"round {number}"


@dataclass(frozen=True)
class Damage:
    """Something that is not as it should be."""

    what: str  # a file or a folder, relative to the campaign's
    lost: str  # a sentence: what is lost, and what to do about it


def lost(rounds: Rounds) -> list[str]:
    """What the current round needs and what cannot be read, in words."""
    records = rounds.records()
    chosen = records[-1].serving if records else FROZEN
    words = []
    if not rounds.has_vectors(chosen):
        words.append(f"the vectors of {in_words(chosen)}")
    elif not rounds.is_whole(chosen):
        words.append(f"the model of {in_words(chosen)}")
    if rounds.agenda_if_any() is None:
        words.append(f"the questions after {in_words(rounds.current - 1)}")
    return words


def check(folder: Path) -> list[Damage]:
    """Everything that is damaged. A campaign whose file cannot be opened is not looked into further."""
    damage = list(_of_database(folder))
    if damage:
        return damage
    with closing(Campaign.open(folder)) as campaign:
        return [*_of_archive(campaign), *_of_rounds(campaign)]


def repair(folder: Path, watch: Watch = unwatched, strategy: str | None = None) -> list[str]:
    """Make again what can be made; a sentence for each thing that was done. What cannot be made again raises
    an error that says what to do. The campaign must not be in use."""
    done = []
    if list(_of_database(folder)):
        done.append(salvage(folder))
    with closing(Campaign.open(folder, strategy)) as campaign:
        if list(_of_archive(campaign)):
            known = campaign.archive_folder.exists()
            gone = read_again(
                campaign.root,
                campaign.archive_folder,
                campaign.settings.px,
                campaign.size,
                campaign.reading if known else Reading.of(campaign.settings),
                campaign.inventory.moved(),
                watch("reading"),
            )
            done.append(f"The images in {campaign.root} were read again.")
            if gone:
                some = ", ".join(gone[:3]) + (" …" if len(gone) > 3 else "")
                done.append(f"{len(gone)} of them are gone or have changed, and are black ({some}).")
        for file in _damaged_files(campaign):
            file.unlink(missing_ok=True)
            done.append(f"{file.relative_to(folder)} was removed.")
    with closing(Campaign.open(folder, strategy)) as campaign:
        if not campaign.rounds.has_vectors(FROZEN):
            restore_frozen(campaign, None, watch)
            done.append("The images were encoded again.")
        if lost(campaign.rounds):
            if campaign.known().count_groups(1):
                from anneal.campaign.turn import turn  # loads torch

                turn(campaign, watch=watch)
                done.append("A new model was trained on all answers.")
            else:
                restore_frozen(campaign, None, watch)
                done.append("The first questions were planned again.")
    return done


def restore_frozen(campaign: Campaign, backbone: Backbone | None, watch: Watch = unwatched) -> None:
    """Make the frozen features again, and before the first round what it asks about."""
    from anneal.campaign import heldout
    from anneal.campaign.networks import network_of  # loads torch
    from anneal.network import encode

    settings = campaign.settings
    rounds = campaign.rounds
    files = rounds.files(FROZEN)
    network = network_of(campaign, backbone)
    features = encode.inputs(campaign.archive(), network, "head", watch("encoding"), settings.views)
    encode.inputs(campaign.archive(), network, cast("Depth", settings.depth), views=settings.views)
    vectors = files.save_features(features)
    images = campaign.images
    files.save_nearest(heldout.query_results(vectors, images, settings.rng(Stream.QUERIES)))
    files.index_vectors()
    if rounds.current == 0:
        snapshot = Snapshot(vectors, images, campaign.evidence().closure.relations)
        rng = settings.rng(Stream.PLAN, 0)
        files.save_agenda(campaign.strategy.plan(snapshot, settings.per_round, rng))
    rounds.forget()


def _of_database(folder: Path) -> Iterator[Damage]:
    """Whether the file opens, is whole, and holds values that can be read."""
    path = folder / FILE
    lost = "What can be read of the answers is saved by --repair. A backup may hold more: anneal restore."
    if not path.exists():
        Store(path)  # says that there is no campaign
    try:
        with closing(Store(path)) as store:
            told = store.db.execute("PRAGMA integrity_check").fetchone()[0]
            if told != "ok":
                yield Damage(FILE, f"The campaign's file is damaged ({told.splitlines()[0]}). {lost}")
                return
        with closing(Campaign.open(folder)) as campaign:
            campaign.rounds.records()
            campaign.log()
            campaign.store.labels()
            campaign.mailbox.machine()
    except (AnnealError, sqlite3.DatabaseError) as error:
        if "newer anneal" in str(error) or isinstance(error, DiskError):
            raise
        yield Damage(FILE, f"{error} {lost}")


def _of_archive(campaign: Campaign) -> Iterator[Damage]:
    try:
        archive = campaign.archive()
        if len(archive) >= campaign.size:
            return
        why = f"{len(archive)} of {campaign.size} images are stored."
    except (AnnealError, OSError) as error:
        why = str(error)
    where = campaign.archive_folder.name
    yield Damage(f"cache/{where}", f"{why} The answers are safe. --repair reads the images again.")


def _of_rounds(campaign: Campaign) -> Iterator[Damage]:
    """Files that are damaged, and things that are missing."""
    named = set()
    for file in _damaged_files(campaign):
        named.add(file.parent)
        yield Damage(
            str(file.relative_to(campaign.folder)),
            "The file is not as it was written. The answers are safe. --repair removes it and learns anew.",
        )
    rounds = campaign.rounds
    if not rounds.has_vectors(FROZEN) and rounds.files(FROZEN).folder not in named:
        what = "The vectors of the frozen features are lost. The answers are safe."
        yield Damage("rounds/frozen", f"{what} --repair encodes the images again.")
    for what in lost(rounds):
        if not named and in_words(FROZEN) not in what:
            yield Damage(
                "rounds", f"{what.capitalize()} are lost. The answers are safe. --repair learns anew."
            )


def _damaged_files(campaign: Campaign) -> Iterator[Path]:
    """Files of rounds that differ from what was written, or that cannot be read. A file that has grown with
    the archive is as it should be."""
    rounds = campaign.rounds
    for record in rounds.records():
        files = rounds.files(record.number)
        if not files.folder.exists():
            continue
        for name in CHECKED & record.files.keys():
            size, value = record.files[name]
            file = files.folder / name
            if file.exists() and file.stat().st_size == size and checksum(file) != value:
                yield file
    for number in (FROZEN, *(record.number for record in rounds.records())):
        yield from _unreadable(rounds.files(number))


def _unreadable(files: Round) -> list[Path]:
    """The files of a round that are there and cannot be read."""
    found = {
        "vectors.npy": not files.has_vectors,
        "top.npy": files.nearest() is None,
        "agenda.npz": files.agenda() is None,
        "index.faiss": files.index() is None,
        "model.json": files.has_torn_model,
        "model.safetensors": files.has_torn_model,
    }
    return [files.folder / name for name, bad in found.items() if bad and (files.folder / name).exists()]
