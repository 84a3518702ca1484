"""What is in the campaign's one SQLite file, and its SQL (tables and their history: ``migrations``; how it is
opened: ``database``; what became of images: ``inventory``).

Answers are events: rows are added and never changed. An undo or a correction is one more row. ``log`` works
out what stands. What answers imply is never stored.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from anneal.campaign.database import Database
from anneal.errors import CampaignError
from anneal.pairs import Pair

SINGLE = tuple(("image", "image", table) for table in ("labels", "names", "retired"))
MACHINE = "machine"  # who entered what no person typed
DAY = 86400  # seconds for which a query image is kept


class Purpose(StrEnum):
    """What an answer is for."""

    CHOSEN = "chosen"  # the strategy wanted it
    HELD_OUT = "held-out"  # drawn at random, measures the models, is not learnt from
    IMPORTED = "imported"
    AGAIN = "again"  # asked once more
    RELEASED = "released"  # was held out until the strategy wanted it


class Why(StrEnum):
    """Why a pair is asked again."""

    MODEL = "model"  # the model gave the verdict a low probability
    JOIN = "join"  # it joined two large groups
    CONTRADICTION = "contradiction"
    FEATURES = "features"  # the frozen features speak against it
    CHANGED = "changed"  # asked again, it was answered differently
    REQUEST = "request"  # somebody wanted it


@dataclass(frozen=True)
class Event:
    """An answer, a withdrawal (verdict 0), or an undo (``undoes`` names the row)."""

    a: int
    b: int
    verdict: int
    annotator: str
    strategy: str
    round: int
    purpose: str = Purpose.CHOSEN
    asked: float | None = None  # seconds since 1970
    looked: int | None = None  # milliseconds
    key: str | None = None  # the sender's own name for the event
    undoes: int | None = None
    entered: str | None = None  # who typed it, where that is not the annotator
    why: str | None = None  # of a withdrawal: why the pair is asked again
    sheet: str | None = None  # the sheet that it was given on (method.sheets)
    guess: int | None = None  # the verdict that was marked on the sheet before

    @property
    def pair(self) -> Pair:
        return self.a, self.b


@dataclass(frozen=True)
class Row(Event):
    """An event as it is stored."""

    answered: float = 0.0
    id: int = 0


@dataclass(frozen=True)
class Lease:
    """A pair that somebody has on the screen."""

    pair: Pair
    holder: str
    purpose: str
    sheet: str | None = None
    guess: int | None = None


@dataclass(frozen=True)
class HeldOut:
    """Rows of the tables ``heldout`` (model, draw, a, b) and ``ranks`` (model, a, b, ab, ba, score)."""

    draws: list[tuple[int, int, int, int]]
    ranks: list[tuple[int, int, int, int, int, float]]


@dataclass(frozen=True)
class Query:
    """An image from outside the archive to search with."""

    id: str
    pixels: bytes
    round: int | None  # whose model its vector is of
    vector: bytes | None
    error: str | None


ROW = tuple(one.name for one in fields(Row))
EVENT = tuple(name for name in ROW if name != "id")


def _parsed(path: Path, value: str) -> Any:
    """JSON out of a campaign's file."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise CampaignError(
            f"{path} holds a value that cannot be read ({error}): run anneal check."
        ) from error


class Store(Database):
    """Settings, answers, labels, rounds, held-out pairs and leases."""

    _settings: dict[str, str]  # as they were read at this mark
    _settings_at: tuple[int, int] | None = None

    def settings(self) -> dict[str, Any]:
        rows = self.db.execute("SELECT key, value FROM settings")
        return {key: _parsed(self.path, value) for key, value in rows}

    def setting(self, key: str, default: Any) -> Any:
        """One setting. Inside a transaction all are read at once, and again only after something was written:
        an answer needs several."""
        mark = self.mark
        if mark is None or mark != self._settings_at:
            self._settings = dict(self.db.execute("SELECT key, value FROM settings").fetchall())
            self._settings_at = mark
        value = self._settings.get(key)
        return default if value is None else _parsed(self.path, value)

    def set(self, **values: Any) -> None:
        rows = [(key, json.dumps(value)) for key, value in values.items()]
        with self.transaction():
            self.db.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", rows)

    def add(self, events: Iterable[Event]) -> list[int]:
        """All of them, or none; their row numbers. An event whose key is known is not added again."""
        now = time.time()
        with self.transaction():
            return [self._add(event, now) for event in events]

    def _add(self, event: Event, now: float) -> int:
        if event.key is not None:
            known = self.db.execute("SELECT id FROM answers WHERE key = ?", (event.key,)).fetchone()
            if known is not None:
                return int(known[0])
        values = [getattr(event, name, now) for name in EVENT]  # a Row has its own time
        marks = ", ".join("?" * len(EVENT))
        sql = f"INSERT INTO answers ({', '.join(EVENT)}) VALUES ({marks})"  # nosec B608: names of fields
        done = self.db.execute(sql, values)
        assert done.lastrowid is not None
        return done.lastrowid

    def events(self, after: int) -> list[Row]:
        """The rows of ``answers`` after this one, in order."""
        sql = f"SELECT {', '.join(ROW)} FROM answers WHERE id > ? ORDER BY id"  # nosec B608: names of fields
        rows = self.db.execute(sql, (after,))
        return [Row(*row) for row in rows]

    def largest_image(self) -> int:
        """The largest id in answers, held-out pairs, labels, names and retired images; −1 without any. An id
        below 0 counts as one that is too large."""
        high = -1
        for low, top, table in (("a", "b", "answers"), ("a", "b", "heldout"), *SINGLE):
            sql = f"SELECT coalesce(min({low}), 0), coalesce(max({top}), -1) FROM {table}"  # nosec B608
            least, most = self.db.execute(sql).fetchone()
            high = max(high, most if least >= 0 else 2**63)
        return high

    def add_labels(
        self, labels: Iterable[tuple[int, str]], *, annotator: str, strategy: str, round: int
    ) -> None:
        now = time.time()
        columns = "image, class, annotator, answered, strategy, round"
        rows = [(image, label, annotator, now, strategy, round) for image, label in labels]
        with self.transaction():
            sql = f"INSERT INTO labels ({columns}) VALUES (?, ?, ?, ?, ?, ?)"  # nosec B608
            self.db.executemany(sql, rows)

    def labels(self) -> dict[int, str]:
        """Image → its class, the last one given."""
        return dict(self.db.execute("SELECT image, class FROM labels ORDER BY id").fetchall())

    def newest_label(self) -> int:
        """The number of the last label; 0 if there is none."""
        return int(self.db.execute("SELECT coalesce(max(id), 0) FROM labels").fetchone()[0])

    def add_names(self, names: Iterable[tuple[int, str]], annotator: str) -> None:
        """Give images a name each, which is that of their group; an empty one takes it away."""
        now = time.time()
        rows = [(image, name, annotator, now) for image, name in names]
        with self.transaction():
            self.db.executemany("INSERT INTO names (image, name, annotator, at) VALUES (?, ?, ?, ?)", rows)

    def names(self) -> list[tuple[int, int, str]]:
        """(number, image, name) of every name that was given, in order."""
        return self.db.execute("SELECT id, image, name FROM names ORDER BY id").fetchall()

    def save_round(self, record: dict[str, Any], heldout: HeldOut | None = None) -> None:
        """A finished round, or a new version of its record."""
        with self.transaction():
            row = (record["number"], time.time(), json.dumps(record))
            self.db.execute("INSERT OR REPLACE INTO rounds VALUES (?, ?, ?)", row)
            if heldout is not None:
                self.add_heldout(heldout)

    def rounds(self) -> list[dict[str, Any]]:
        rows = self.db.execute("SELECT about FROM rounds ORDER BY round")
        return [_parsed(self.path, about) for (about,) in rows]

    def rounds_version(self) -> tuple[int, float, int]:
        """Changes whenever a round is saved, or the images change, by any process."""
        grown = "SELECT value FROM settings WHERE key = 'grown'"
        sql = f"SELECT count(*), total(finished), coalesce(({grown}), '0') FROM rounds"  # nosec B608
        count, saved, changes = self.db.execute(sql).fetchone()
        return count, saved, json.loads(changes)

    def add_heldout(self, heldout: HeldOut) -> None:
        with self.transaction():
            self.db.executemany("INSERT OR REPLACE INTO heldout VALUES (?, ?, ?, ?)", heldout.draws)
            self.db.executemany("INSERT OR REPLACE INTO ranks VALUES (?, ?, ?, ?, ?, ?)", heldout.ranks)

    def heldout(self) -> list[tuple[int, int, int, int]]:
        """(model, draw, a, b) of every held-out pair, in the order drawn."""
        return self.db.execute("SELECT model, draw, a, b FROM heldout ORDER BY model, draw").fetchall()

    def ranks(self) -> dict[tuple[int, int, int], tuple[int, int, float]]:
        """(model, a, b) → b's rank beside a, a's rank beside b, similarity."""
        rows = self.db.execute("SELECT model, a, b, ab, ba, score FROM ranks")
        return {row[:3]: row[3:] for row in rows}

    def remove_ranks(self, models: Iterable[int]) -> None:
        """Forget the ranks of held-out pairs in these models."""
        with self.transaction():
            self.db.executemany("DELETE FROM ranks WHERE model = ?", [(model,) for model in models])

    def leases(self) -> list[Lease]:
        """Those that have not run out, in the order they were given."""
        current = "SELECT a, b, holder, purpose, sheet, guess FROM leases WHERE until > ? ORDER BY rowid"
        rows = self.db.execute(current, (time.time(),))
        return [Lease((a, b), *others) for a, b, *others in rows]

    def lease(self, leases: Iterable[Lease], holder: str, seconds: float) -> None:
        """This holder has these and no others."""
        now = time.time()
        with self.transaction():
            self.db.execute("DELETE FROM leases WHERE holder = ? OR until <= ?", (holder, now))
            rows = [(*one.pair, holder, now + seconds, one.purpose, one.sheet, one.guess) for one in leases]
            columns = "a, b, holder, until, purpose, sheet, guess"
            sql = f"INSERT OR REPLACE INTO leases ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # nosec B608
            self.db.executemany(sql, rows)

    def leased_for(self, pair: Pair) -> str | None:
        """The purpose for which a pair was last given out."""
        row = self.db.execute("SELECT purpose FROM leases WHERE a = ? AND b = ?", pair).fetchone()
        return None if row is None else str(row[0])

    def renew(self, holder: str, seconds: float) -> None:
        """This holder is still there. Written only when half of the time has passed."""
        now = time.time()
        due = "SELECT 1 FROM leases WHERE holder = ? AND until BETWEEN ? AND ?"
        if self.db.execute(due, (holder, now, now + seconds / 2)).fetchone():
            with self.transaction():
                self.db.execute("UPDATE leases SET until = ? WHERE holder = ?", (now + seconds, holder))


class Mailbox:
    """What the page and the machine's process tell each other: the machine's state, and query images."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._db = store.db

    def set_machine(self, **about: Any) -> None:
        with self._store.transaction():
            said = (time.time(), json.dumps(about))
            self._db.execute("INSERT OR REPLACE INTO machine VALUES (1, ?, ?)", said)

    def beat(self) -> None:
        """A sign of life of the machine."""
        with self._store.transaction():
            self._db.execute("UPDATE machine SET at = ?", (time.time(),))

    def machine(self) -> tuple[float, dict[str, Any]]:
        """When the machine last said something, and what."""
        row = self._db.execute("SELECT at, about FROM machine").fetchone()
        try:
            return (0.0, {}) if row is None else (row[0], dict(json.loads(row[1])))
        except (ValueError, TypeError):  # damaged; it is said again in two seconds
            return 0.0, {}

    def add_query(self, name: str, pixels: bytes) -> None:
        now = time.time()
        with self._store.transaction():
            self._db.execute("DELETE FROM queries WHERE made < ?", (now - DAY,))
            row = (name, now, pixels)
            self._db.execute("INSERT OR IGNORE INTO queries (id, made, pixels) VALUES (?, ?, ?)", row)

    def query(self, name: str) -> Query | None:
        return self._query("WHERE id = ?", name)

    def waiting_query(self, round: int) -> Query | None:
        """The oldest query that was not yet given to this round's model."""
        return self._query("WHERE round IS NOT ? ORDER BY made LIMIT 1", round)

    def _query(self, which: str, value: str | int) -> Query | None:
        sql = f"SELECT id, pixels, round, vector, error FROM queries {which}"  # nosec B608: of this class
        row = self._db.execute(sql, (value,)).fetchone()
        return None if row is None else Query(*row)

    def encoded(self, name: str, round: int, vector: bytes | None, error: str | None) -> None:
        change = "UPDATE queries SET round = ?, vector = ?, error = ? WHERE id = ?"
        with self._store.transaction():
            self._db.execute(change, (round, vector, error, name))
