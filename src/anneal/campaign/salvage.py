"""What can be read of a damaged ``campaign.sqlite``, in a new one."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anneal.campaign.campaign import FILE
from anneal.campaign.database import TABLES
from anneal.campaign.rounds import FROZEN, Record, Round
from anneal.campaign.store import Store
from anneal.errors import CampaignError, UsageError
from anneal.settings import Settings, from_json

Values = dict[str, Any]  # a row: column → value


def salvage(folder: Path) -> str:
    """Make a new file of all rows that can be read. The damaged one stays as ``campaign.sqlite.damaged``.
    Returns a sentence with what was saved."""
    path = folder / FILE
    fresh = path.with_name(f"{FILE}.new")
    fresh.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as old:
        saved = {table: list(_readable(old, table)) for table in sorted(TABLES)}
    saved["settings"] = _complete(folder, saved["settings"])
    saved["rounds"] = _sound(folder, saved["rounds"], saved["answers"])
    if not saved["settings"]:
        raise CampaignError(
            f"Nothing can be read in {path}, and no round says how it was made. Restore a backup: "
            f"anneal restore FILE --campaign {folder}."
        )
    with closing(Store(fresh, create=True)) as store, store.transaction():
        store.db.execute("DELETE FROM settings")
        for table, rows in saved.items():
            for row in rows:
                _insert(store.db, table, row)
        kept = store.db.execute("SELECT count(*) FROM answers").fetchone()[0]
    for suffix in ("-wal", "-shm"):
        path.with_name(FILE + suffix).unlink(missing_ok=True)
        path.with_name(fresh.name + suffix).unlink(missing_ok=True)
    path.replace(path.with_name(f"{FILE}.damaged"))
    fresh.replace(path)
    return f"{kept} events of people were saved from the damaged file, which is kept as {FILE}.damaged."


def _readable(old: sqlite3.Connection, table: str) -> Iterator[Values]:
    """The rows of a table from its beginning to the first damaged page, and from its end."""
    seen: set[int] = set()
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError):
            rows = old.execute(f"SELECT rowid AS number, * FROM {table} ORDER BY rowid {order}")  # nosec B608
            names = [about[0] for about in rows.description][1:]
            for number, *values in rows:
                if number not in seen:
                    seen.add(number)
                    yield dict(zip(names, values, strict=True))


def _insert(db: sqlite3.Connection, table: str, row: Values) -> None:
    """Add a row, if the table takes it: a damaged value may break its rules."""
    names = [about[1] for about in db.execute(f"PRAGMA table_info({table})") if about[1] in row]
    marks = ", ".join("?" * len(names))
    sql = f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({marks})"  # nosec B608
    with suppress(sqlite3.IntegrityError, sqlite3.InterfaceError):
        db.execute(sql, [row[name] for name in names])


def _complete(folder: Path, rows: list[Values]) -> list[Values]:
    """The settings that can be read; what is missing comes from a round's model and from the
    stored pixels."""
    settings: dict[str, Any] = {}
    for row in rows:
        with suppress(ValueError, TypeError, KeyError):
            settings[row["key"]] = json.loads(row["value"])
    try:
        from_json(settings.get("settings"))
    except UsageError:
        settings.pop("settings", None)
    caches = sorted((folder / "cache").glob("*/pixels.json"))
    if caches:
        with suppress(OSError, ValueError, KeyError):
            pixels = json.loads(caches[0].read_bytes())
            settings.setdefault("settings", _settings_of_a_model(folder, int(pixels["row"][0])))
            settings.setdefault("size", int(pixels["rows"]))
            where = {"root": str(folder.resolve()), "folder": str(caches[0].parent.resolve())}
            settings.setdefault(
                "archive", where
            )  # where the images are is not known: stored pixels are shown
    settings.setdefault("images", None)
    complete = {"settings", "size", "archive", "images"} <= settings.keys()
    pairs = settings.items() if complete else {}.items()
    return [{"key": key, "value": json.dumps(value)} for key, value in pairs]


def _settings_of_a_model(folder: Path, px: int) -> dict[str, Any]:
    """As the newest readable model notes them; else the defaults."""
    for file in sorted((folder / "rounds").glob("*/model.json"), reverse=True):
        with suppress(OSError, ValueError, KeyError, TypeError):
            return asdict(Settings(**json.loads(file.read_bytes())["settings"]))
    return asdict(Settings(px=px))


def _sound(folder: Path, rows: list[Values], answers: list[Values]) -> list[Values]:
    """A record for every round. One that cannot be read is made anew, without figures."""
    found = {}
    for row in rows:
        with suppress(ValueError, TypeError, KeyError, CampaignError):
            Record.from_json(json.loads(row["about"]))
            found[row["round"]] = row
    sound = []
    for number in range(max((row["round"] for row in rows), default=-1) + 1):
        seen = max((row["id"] for row in answers if row["round"] <= number), default=0)
        serving = number if Round.of(folder, number).has_vectors else FROZEN
        about = json.dumps(asdict(Record(number, seen, serving)))
        sound.append(found.get(number, {"round": number, "finished": 0.0, "about": about}))
    return sound
