"""A copy of a campaign as it is at one moment, taken while people answer, and its way back."""

import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from anneal.campaign.campaign import FILE, WORKER_LOCK, Campaign
from anneal.campaign.store import Store
from anneal.errors import CampaignError, DiskError, UsageError
from anneal.files import explain_disk_errors, make_folder, replacing
from anneal.watch import Progress, silent

MADE_AGAIN = ("pictures",)  # in cache/: the page makes them when they are shown


@dataclass(frozen=True)
class Backup:
    """What was copied and what was not."""

    events: int  # rows of answers
    left_out: list[str]  # a sentence for each thing that a restored campaign needs beside the copy


def backup(folder: Path, target: Path, *, everything: bool = False, progress: Progress = silent) -> Backup:
    """Copy a campaign's file to the file ``target``; with ``everything`` the whole campaign, to the new
    folder ``target``. Each event that was acknowledged before the start is in the copy."""
    if target.exists():
        raise UsageError(f"{target} is there already: give another name.")
    with closing(Campaign.open(folder)) as campaign:
        file = target / FILE if everything else target
        events = _copy_file(campaign.store, file)
        left_out = [f"The images themselves stay where they are: {campaign.root}."]
        if everything:
            _copy_folders(campaign, target, progress)
        else:
            left_out.append(
                f"Stored pixels ({campaign.archive_folder}) and models ({folder / 'rounds'}) are not in it. "
                "They can be made again from the images (anneal check --repair), or copied with --all."
            )
    return Backup(events, left_out)


def _copy_file(store: Store, target: Path) -> int:
    """SQLite copies the file in one transaction, so the copy is of one moment."""
    make_folder(target.parent)
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(part)) as copy:
            store.db.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
            events = int(copy.execute("SELECT count(*) FROM answers").fetchone()[0])
        with explain_disk_errors(target), replacing(target) as out, part.open("rb") as data:
            shutil.copyfileobj(data, out)
    except sqlite3.OperationalError as error:
        raise DiskError(f"{target} could not be written ({error}): free some space.") from error
    finally:
        part.unlink(missing_ok=True)
    return events


def _copy_folders(campaign: Campaign, target: Path, progress: Progress) -> None:
    """Copy the stored pixels, the features and the files of the rounds. Files of a round are written whole
    and never changed, so a copy of each is whole. A round that is removed meanwhile is not needed."""
    sources = {campaign.archive_folder: target / "cache" / campaign.archive_folder.name}
    for round in sorted((campaign.folder / "rounds").glob("*")):
        sources[round] = target / "rounds" / round.name
    files = [
        (file, copy / file.name)
        for source, copy in sources.items()
        for file in sorted(source.iterdir())
        if file.is_file() and file.suffix not in (".lock", ".tmp")
    ]
    with explain_disk_errors(target / FILE):
        for number, (file, copy) in enumerate(files):
            copy.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copyfile(file, copy)
            except FileNotFoundError:
                copy.unlink(missing_ok=True)
            progress(number + 1, len(files))


def restore(source: Path, folder: Path, *, replace: bool = False) -> list[str]:
    """Put a backup in the place of a campaign. What it replaces is kept beside it under another name. Returns
    sentences that say what was done and what is to do."""
    whole = source.is_dir()
    file = source / FILE if whole else source
    if not file.is_file():
        raise UsageError(f"{source} is not a backup: give what anneal backup wrote.")
    events = _events_in(file)
    old = folder / FILE
    if old.exists() and not replace:
        raise UsageError(f"{folder} holds a campaign: give --replace, or another --campaign.")
    make_folder(folder)
    sentences = []
    try:
        with FileLock(folder / WORKER_LOCK, timeout=0):
            stamp = time.strftime("%Y%m%d-%H%M%S")
            if old.exists():
                for path in (folder / f"{FILE}-wal", folder / f"{FILE}-shm", old):
                    if path.exists():
                        path.replace(path.with_name(path.name.replace(FILE, f"{FILE}.{stamp}")))
                sentences.append(f"The file that was there is kept as {FILE}.{stamp}.")
            if whole:
                for part in ("cache", "rounds"):
                    if (source / part).is_dir():
                        shutil.rmtree(folder / part, ignore_errors=True)
                        shutil.copytree(source / part, folder / part)
            with replacing(old) as out, file.open("rb") as data:
                shutil.copyfileobj(data, out)
    except Timeout:
        raise UsageError("anneal label is open on this campaign: end it first.") from None
    sentences.append(f"{events} events are in {folder}.")
    if not whole:
        sentences.append("Models may be newer than these answers: anneal check --repair makes them again.")
    return sentences


def _events_in(file: Path) -> int:
    """The number of events in a backup; a file that is none is refused."""
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?immutable=1", uri=True)) as db:
            if db.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("it is damaged")
            return int(db.execute("SELECT count(*) FROM answers").fetchone()[0])
    except sqlite3.DatabaseError as error:
        raise CampaignError(
            f"{file} is not a backup that can be read ({error}): give another one."
        ) from error
