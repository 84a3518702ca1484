"""The campaign's one SQLite file, and all the SQL there is.

Answers are events: rows are added and never changed. An undo or a correction is one more row, and what
stands is the last row of each annotator on each pair that was not undone. What answers imply is never
stored.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anneal.errors import CampaignError, DiskError
from anneal.pairs import Answers, Pairs


def _version_1(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT")
    db.execute(
        """CREATE TABLE answers (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            a INTEGER NOT NULL, b INTEGER NOT NULL CHECK (a < b),
            verdict INTEGER NOT NULL CHECK (verdict BETWEEN 0 AND 3), -- 0 takes the last one back
            annotator TEXT NOT NULL,
            asked REAL, answered REAL NOT NULL, -- seconds since 1970
            strategy TEXT NOT NULL, round INTEGER NOT NULL
        ) STRICT"""
    )
    db.execute("CREATE INDEX answers_by_pair ON answers (a, b, annotator)")
    db.execute(
        """CREATE TABLE labels (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            image INTEGER NOT NULL, class TEXT NOT NULL,
            annotator TEXT NOT NULL, answered REAL NOT NULL,
            strategy TEXT NOT NULL, round INTEGER NOT NULL
        ) STRICT"""
    )
    db.execute(
        """CREATE TABLE questions (
            round INTEGER NOT NULL, place INTEGER NOT NULL,
            a INTEGER NOT NULL, b INTEGER NOT NULL CHECK (a < b),
            strategy TEXT NOT NULL, PRIMARY KEY (round, place)
        ) STRICT"""
    )
    db.execute(
        """CREATE TABLE rounds (
            round INTEGER PRIMARY KEY, finished REAL NOT NULL, about TEXT NOT NULL -- JSON
        ) STRICT"""
    )


def _version_2(db: sqlite3.Connection) -> None:
    for column in (
        "looked INTEGER",  # milliseconds from seeing the pair to answering
        "key TEXT",  # the sender's own name for the event: the same one is never taken twice
        "undoes INTEGER",  # the row that an undo takes back
        "entered TEXT",  # who typed it, where that is not the annotator whose word it is
    ):
        db.execute(f"ALTER TABLE answers ADD COLUMN {column}")
    db.execute("CREATE UNIQUE INDEX answers_by_key ON answers (key) WHERE key IS NOT NULL")
    db.execute("CREATE INDEX answers_undone ON answers (undoes) WHERE undoes IS NOT NULL")
    db.execute(
        """CREATE VIEW acts AS SELECT * FROM answers
           WHERE undoes IS NULL AND id NOT IN (SELECT undoes FROM answers WHERE undoes IS NOT NULL)"""
    )
    db.execute(
        """CREATE VIEW standing AS SELECT * FROM acts
           WHERE id IN (SELECT max(id) FROM acts GROUP BY a, b, annotator) AND verdict != 0"""
    )
    db.execute("ALTER TABLE questions ADD COLUMN level REAL")  # share of all pairs more similar than it
    db.execute("CREATE INDEX questions_by_pair ON questions (a, b)")
    db.execute(
        """CREATE TABLE leases (
            a INTEGER NOT NULL, b INTEGER NOT NULL, holder TEXT NOT NULL, until REAL NOT NULL,
            PRIMARY KEY (a, b)
        ) STRICT"""
    )
    db.execute(  # questions drawn at random to measure a model with, in the order they were drawn
        """CREATE TABLE audits (
            model INTEGER NOT NULL, draw INTEGER NOT NULL,
            a INTEGER NOT NULL, b INTEGER NOT NULL, PRIMARY KEY (model, draw)
        ) STRICT"""
    )
    db.execute(  # where such a pair stands in each model: b's rank beside a, a's beside b
        """CREATE TABLE places (
            model INTEGER NOT NULL, a INTEGER NOT NULL, b INTEGER NOT NULL,
            ab INTEGER NOT NULL, ba INTEGER NOT NULL, score REAL NOT NULL, PRIMARY KEY (model, a, b)
        ) STRICT"""
    )
    db.execute(
        """CREATE TABLE machine (
            one INTEGER PRIMARY KEY CHECK (one = 1), at REAL NOT NULL, about TEXT NOT NULL -- JSON
        ) STRICT"""
    )
    db.execute(
        """CREATE TABLE queries (
            id TEXT PRIMARY KEY, made REAL NOT NULL, pixels BLOB NOT NULL,
            round INTEGER, vector BLOB, error TEXT
        ) STRICT"""
    )


EVER = 2**62
PATIENCE = 30  # seconds for which one that finds the file in use waits its turn
IMPORT = "import"  # the strategy of answers that were given elsewhere
MACHINE = "machine"  # who entered what no person typed
AUDIT = "audit"  # the strategy of questions drawn at random, whose answers are held back from learning

MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = [_version_1, _version_2]
"""Entry i takes a file from version i to i + 1. Never change one that has been released."""


@dataclass(frozen=True)
class Questions:
    """Pairs put up to be judged, the round whose answers they will be, and what picked each."""

    pairs: Pairs
    round: int
    strategies: tuple[str, ...]
    levels: tuple[float | None, ...] = ()  # see strategies.levels; none where nobody needs them

    @classmethod
    def of(cls, pairs: Pairs, round: int, strategy: str, levels: Iterable[float] = ()) -> Questions:
        """All picked by one strategy."""
        return cls(pairs, round, (strategy,) * len(pairs), tuple(levels))

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def strategy(self) -> str:
        """What picked those that are learnt from."""
        return next((name for name in self.strategies if name != AUDIT), "")

    @property
    def audit(self) -> NDArray[np.bool_]:
        return np.array([name == AUDIT for name in self.strategies], dtype=bool)


@dataclass(frozen=True)
class Event:
    """Something a person does: an answer, or (``undoes``) taking one back."""

    a: int
    b: int
    verdict: int  # 0 withdraws what was said
    annotator: str
    strategy: str
    round: int
    asked: float | None = None  # seconds since 1970
    looked: int | None = None  # milliseconds
    key: str | None = None
    undoes: int | None = None
    entered: str | None = None


@dataclass(frozen=True)
class Row(Event):
    """An event as it is kept."""

    id: int = 0
    answered: float = 0.0


@dataclass(frozen=True)
class Audit:
    """Rows of ``audits`` and ``places``."""

    draws: list[tuple[int, int, int, int]]
    places: list[tuple[int, int, int, int, int, float]]


@dataclass(frozen=True)
class Query:
    """An image from outside that is to be searched for."""

    id: str
    pixels: bytes
    round: int | None  # whose model its vector is of
    vector: bytes | None
    error: str | None


EVENT = (*(field.name for field in fields(Event)), "answered")


class Store:
    """An open campaign file. Every method that writes has committed to disk when it returns."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if not create and not path.exists():
            raise CampaignError(
                f"There is no campaign in {path.parent}: make one with "
                f"anneal init ARCHIVE --campaign {path.parent}."
            )
        self.path = path
        try:
            self._refuse_newer(_version_in(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            # Threads may share it where they take turns, as those of the page do.
            self._db = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE, check_same_thread=False)
            self._go_wal()
            self._db.execute("PRAGMA synchronous = FULL")
            self._migrate()
        except (sqlite3.DatabaseError, OSError) as error:
            raise CampaignError(f"{path} is not a campaign file that can be opened: {error}.") from error

    def _go_wal(self) -> None:
        """Two that open a new file at once cannot both turn it to WAL, and SQLite does not make the second
        wait as it does everywhere else."""
        patient = time.monotonic() + PATIENCE
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > patient:
                    raise
                time.sleep(0.005)

    def _migrate(self) -> None:
        if self._version() == len(MIGRATIONS):
            return
        with _transaction(self._db, self.path):  # whoever comes second finds it done
            self._refuse_newer(self._version())
            for number in range(self._version(), len(MIGRATIONS)):
                MIGRATIONS[number](self._db)
                self._db.execute(f"PRAGMA user_version = {number + 1}")

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _refuse_newer(self, version: int) -> None:
        if version > len(MIGRATIONS):
            raise CampaignError(
                f"{self.path} was made by a newer anneal (file version {version}, this one reads "
                f"{len(MIGRATIONS)}): update anneal to open it. Nothing was changed."
            )

    def close(self) -> None:
        self._db.close()

    # -- settings ------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        rows = self._db.execute("SELECT key, value FROM settings")
        return {key: json.loads(value) for key, value in rows}

    def setting(self, key: str, default: Any) -> Any:
        row = self._db.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
        return default if row is None else json.loads(row[0])

    def set(self, **values: Any) -> None:
        with _transaction(self._db, self.path):
            self._db.executemany(
                "INSERT INTO settings VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                [(key, json.dumps(value)) for key, value in values.items()],
            )

    # -- answers -------------------------------------------------------------------------------

    def add(self, events: Iterable[Event]) -> list[int]:
        """All of them in one step, or none; their rows. One whose key is known is not added again."""
        now = time.time()
        with _transaction(self._db, self.path):
            return [self._add(event, now) for event in events]

    def _add(self, event: Event, now: float) -> int:
        if event.key is not None and (known := self.row_of(event.key)) is not None:
            return known
        values = {**asdict(event), "answered": now}
        names = ", ".join(EVENT)
        done = self._db.execute(
            f"INSERT INTO answers ({names}) VALUES ({', '.join('?' * len(EVENT))})",
            [values[name] for name in EVENT],
        )
        assert done.lastrowid is not None
        return done.lastrowid

    def row_of(self, key: str) -> int | None:
        """The row that an event with this key has become."""
        found = self._db.execute("SELECT id FROM answers WHERE key = ?", (key,)).fetchone()
        return None if found is None else int(found[0])

    def acts_on(self, row: Row) -> list[Row]:
        """This act and the later ones on the same pair in the same annotator's name."""
        sql = "SELECT {} FROM acts WHERE a = ? AND b = ? AND annotator = ? AND id >= ? ORDER BY id"
        return list(self._rows(sql, row.a, row.b, row.annotator, row.id))

    def waiting(self) -> list[Row]:
        """Withdrawals by the machine, of pairs about which nothing was said since."""
        later = "SELECT 1 FROM acts WHERE acts.a = w.a AND acts.b = w.b AND acts.id > w.id"
        sql = f"SELECT {{}} FROM acts AS w WHERE verdict = 0 AND entered = ? AND NOT EXISTS ({later})"
        return list(self._rows(f"{sql} ORDER BY id", MACHINE))

    def doubted(self, before: int = EVER) -> frozenset[tuple[int, int]]:
        """The pairs of which the machine has withdrawn an answer, before a round, whatever was said since."""
        sql = "SELECT a, b FROM acts WHERE verdict = 0 AND entered = ? AND round < ?"
        rows = self._db.execute(sql, (MACHINE, before))
        return frozenset((a, b) for a, b in rows)

    def overturned(self, before: int = EVER) -> int:
        """How many of these answers turned out otherwise: whoever gave one says another thing since it was
        first withdrawn, before a round."""
        said = (
            "SELECT verdict FROM acts WHERE a = w.a AND b = w.b AND annotator = w.annotator "
            "AND verdict != 0 AND round < :before"
        )
        (count,) = self._db.execute(
            "SELECT count(*) FROM (SELECT a, b, annotator, min(id) AS id FROM acts "
            "WHERE verdict = 0 AND entered = :machine AND round < :before GROUP BY a, b, annotator) AS w "
            f"WHERE ({said} AND id < w.id ORDER BY id DESC LIMIT 1) "
            f"!= ({said} AND id > w.id ORDER BY id DESC LIMIT 1)",
            {"before": before, "machine": MACHINE},
        ).fetchone()
        return int(count)

    def acts_about(self, a: int, b: int) -> list[Row]:
        """All that was done about a pair and not undone."""
        return list(self._rows("SELECT {} FROM acts WHERE a = ? AND b = ? ORDER BY id", a, b))

    def acts(self, round: int) -> list[Row]:
        """What was done in a round about chosen questions and not undone, withdrawals included."""
        sql = "SELECT {} FROM acts WHERE round = ? AND strategy NOT IN (?, ?) ORDER BY id"
        return list(self._rows(sql, round, AUDIT, IMPORT))

    def given(self, since: int = 0) -> int:
        """How many answers people have given from a round on, those that were asked again each time."""
        (count,) = self._db.execute(
            "SELECT count(*) FROM acts WHERE verdict != 0 AND round >= ? AND entered IS NOT ?",
            (since, MACHINE),
        ).fetchone()
        return int(count)

    def row(self, number: int) -> Row | None:
        return next(self._rows("SELECT {} FROM answers WHERE id = ?", number), None)

    def standing(self) -> list[Row]:
        """What stands: the last word of each annotator on each pair, in the order it was given."""
        return list(self._rows("SELECT {} FROM standing ORDER BY id"))

    def standing_about(self, a: int, b: int) -> list[Row]:
        """What stands of a pair."""
        last = "SELECT max(id) FROM acts WHERE a = ? AND b = ? GROUP BY annotator"
        return list(self._rows(f"SELECT {{}} FROM acts WHERE id IN ({last}) AND verdict != 0", a, b))

    def touched(self, since: int) -> frozenset[tuple[int, int]]:
        """The pairs about which anything was done after a row."""
        rows = self._db.execute("SELECT DISTINCT a, b FROM answers WHERE id > ?", (since,))
        return frozenset((a, b) for a, b in rows)

    def withdrawn(self) -> list[Row]:
        """The last words that took back what was said before."""
        sql = "SELECT {} FROM acts WHERE id IN (SELECT max(id) FROM acts GROUP BY a, b, annotator) "
        return list(self._rows(sql + "AND verdict = 0 ORDER BY id"))

    def _rows(self, sql: str, *values: Any) -> Iterator[Row]:
        names = (*EVENT, "id")
        for row in self._db.execute(sql.format(", ".join(names)), values):
            yield Row(**dict(zip(names, row, strict=True)))

    def answers(
        self,
        upto: int | None = None,
        since: int = 0,
        *,
        held_back: bool = True,
        only_held_back: bool = False,
    ) -> Answers:
        """What stands, as columns; of all rounds, or of those from ``since`` up to ``upto``; with or
        without the answers that are held back from learning, or those alone."""
        rows = self._db.execute(
            "SELECT a, b, verdict FROM acts "  # the last act of those rounds: what came later was not known
            "WHERE id IN (SELECT max(id) FROM acts WHERE round <= :upto GROUP BY a, b, annotator) "
            "AND verdict != 0 AND round >= :since AND CASE strategy WHEN :audit THEN :held ELSE :others END "
            "ORDER BY id",
            {
                "since": since,
                "upto": EVER if upto is None else upto,
                "audit": AUDIT,
                "held": held_back,
                "others": not only_held_back,
            },
        )
        a, b, verdicts = _columns(rows, 3)
        return Answers.of(Pairs.of(a, b), verdicts)

    def last_act(self, annotator: str) -> Row | None:
        """What this person did last and has not undone."""
        return next(
            self._rows(
                "SELECT {} FROM acts WHERE coalesce(entered, annotator) = ? ORDER BY id DESC LIMIT 1",
                annotator,
            ),
            None,
        )

    def events(self) -> int:
        """How many rows of answers there are, undone ones and undos included."""
        (count,) = self._db.execute("SELECT count(*) FROM answers").fetchone()
        return int(count)

    def fresh(self, row: int) -> int:
        """How much came after this row that changes what is to be learnt: answers that were not undone,
        and undos of what was said before it."""
        (count,) = self._db.execute(
            "SELECT (SELECT count(*) FROM acts WHERE id > :row AND strategy != :audit "
            "AND NOT (verdict = 0 AND entered IS :machine)) "
            "+ (SELECT count(*) FROM answers WHERE id > :row AND undoes <= :row AND strategy != :audit)",
            {"row": row, "audit": AUDIT, "machine": MACHINE},
        ).fetchone()
        return int(count)

    def held_back(self) -> tuple[int, int]:
        """How many answers to questions drawn at random stand, and the last row that was about one."""
        (count,) = self._db.execute("SELECT count(*) FROM standing WHERE strategy = ?", (AUDIT,)).fetchone()
        (last,) = self._db.execute(
            "SELECT coalesce(max(id), 0) FROM answers WHERE strategy = ?", (AUDIT,)
        ).fetchone()
        return int(count), int(last)

    def looked(self, most: int) -> int:
        """Milliseconds of looking in all, none of them counted for more than ``most``."""
        (total,) = self._db.execute(
            "SELECT coalesce(sum(min(looked, ?)), 0) FROM answers", (most,)
        ).fetchone()
        return int(total)

    def newest(self) -> int:
        """The number of the last row; 0 if there is none."""
        (number,) = self._db.execute("SELECT coalesce(max(id), 0) FROM answers").fetchone()
        return int(number)

    # -- class labels --------------------------------------------------------------------------

    def add_labels(
        self, labels: Iterable[tuple[int, str]], *, annotator: str, strategy: str, round: int
    ) -> None:
        now = time.time()
        with _transaction(self._db, self.path):
            self._db.executemany(
                "INSERT INTO labels (image, class, annotator, answered, strategy, round) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                [(image, label, annotator, now, strategy, round) for image, label in labels],
            )

    def labels(self, upto: int | None = None) -> dict[int, str]:
        """Image → its class, the last word on each; of all rounds, or of those up to this one."""
        rows = self._db.execute(
            "SELECT image, class FROM labels WHERE round <= ? ORDER BY id",
            (EVER if upto is None else upto,),
        )
        return dict(rows.fetchall())

    def newest_label(self) -> int:
        (number,) = self._db.execute("SELECT coalesce(max(id), 0) FROM labels").fetchone()
        return int(number)

    # -- questions and rounds --------------------------------------------------------------------

    def queue(self, questions: Questions) -> None:
        """Put up the questions of a round, in place of any it had."""
        with _transaction(self._db, self.path):
            self._queue(questions)

    def queue_more(self, questions: Questions, *, first: bool = False) -> None:
        """Add questions to a round, behind the others or before them; one that was there changes place."""
        with _transaction(self._db, self.path):
            self._db.executemany(
                "DELETE FROM questions WHERE round = ? AND a = ? AND b = ?",
                [(questions.round, a, b) for a, b in questions.pairs],
            )
            low, high = self._db.execute(
                "SELECT coalesce(min(place), 0), coalesce(max(place), -1) FROM questions WHERE round = ?",
                (questions.round,),
            ).fetchone()
            self._ask(questions, low - len(questions) if first else high + 1)

    def finish_round(
        self, round: int, about: dict[str, Any], questions: Questions, audit: Audit | None = None
    ) -> None:
        """Note that the machine's turn is over and put up the next questions, in one step."""
        with _transaction(self._db, self.path):
            self._db.execute(
                "INSERT OR REPLACE INTO rounds VALUES (?, ?, ?)",
                (round, time.time(), json.dumps(about)),
            )
            self._queue(questions)
            if audit is not None:
                self._audit(audit)

    def _queue(self, questions: Questions) -> None:
        self._db.execute("DELETE FROM questions WHERE round = ?", (questions.round,))
        self._ask(questions, 0)

    def _ask(self, questions: Questions, place: int) -> None:
        levels = questions.levels or (None,) * len(questions)
        columns = zip(questions.pairs, questions.strategies, levels, strict=True)
        self._db.executemany(
            "INSERT INTO questions VALUES (?, ?, ?, ?, ?, ?)",
            [
                (questions.round, place + i, a, b, name, level)
                for i, ((a, b), name, level) in enumerate(columns)
            ],
        )

    def rounds(self) -> list[tuple[int, dict[str, Any]]]:
        rows = self._db.execute("SELECT round, about FROM rounds ORDER BY round")
        return [(number, json.loads(about)) for number, about in rows]

    def questions(self) -> Questions:
        """The queue: the questions of the round to come, in their order."""
        (number,) = self._db.execute(
            "SELECT max(coalesce((SELECT max(round) FROM questions), 0), "
            "coalesce((SELECT max(round) + 1 FROM rounds), 0))"
        ).fetchone()
        rows = self._db.execute(
            "SELECT a, b, strategy, level FROM questions WHERE round = ? ORDER BY place", (number,)
        ).fetchall()
        a, b = _columns([row[:2] for row in rows], 2)
        strategies, levels = (tuple(row[i] for row in rows) for i in (2, 3))
        return Questions(Pairs.of(a, b), number, strategies, levels)

    def levels(self) -> tuple[list[float], list[int]]:
        """Of the questions that have a level and an answer: the level and the verdict, similar or not."""
        rows = self._db.execute(
            "SELECT level, verdict FROM standing JOIN questions USING (a, b, round) "
            "WHERE level IS NOT NULL AND verdict IN (1, 2)"
        ).fetchall()
        return [row[0] for row in rows], [row[1] for row in rows]

    def question(self, a: int, b: int) -> tuple[int, str] | None:
        """The round and the strategy that last asked this pair."""
        return self._db.execute(  # type: ignore[no-any-return]
            "SELECT round, strategy FROM questions WHERE a = ? AND b = ? ORDER BY round DESC LIMIT 1", (a, b)
        ).fetchone()

    # -- leases: who is looking at what ------------------------------------------------------------

    def alone(self) -> AbstractContextManager[None]:
        """For as long as this lasts nobody else writes: what is read in it stays true."""
        return _transaction(self._db, self.path)

    def leases(self) -> list[tuple[int, int, str]]:
        """(a, b, holder) of the pairs somebody has before them now, in the order they were given out."""
        return self._db.execute(
            "SELECT a, b, holder FROM leases WHERE until > ? ORDER BY rowid", (time.time(),)
        ).fetchall()

    def lease(self, pairs: Iterable[tuple[int, int]], holder: str, seconds: float) -> None:
        """This holder has these pairs before it, and no others."""
        now = time.time()
        with _transaction(self._db, self.path):
            self._db.execute("DELETE FROM leases WHERE holder = ? OR until <= ?", (holder, now))
            self._db.executemany(
                "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?)",
                [(a, b, holder, now + seconds) for a, b in pairs],
            )

    def renew(self, holder: str, seconds: float) -> None:
        """This holder is still there: what it has is kept for it, once half of the time has passed."""
        now = time.time()
        due = "SELECT 1 FROM leases WHERE holder = ? AND until BETWEEN ? AND ?"
        if self._db.execute(due, (holder, now, now + seconds / 2)).fetchone():
            with _transaction(self._db, self.path):
                self._db.execute("UPDATE leases SET until = ? WHERE holder = ?", (now + seconds, holder))

    # -- questions drawn at random, to measure with --------------------------------------------------

    def audits(self) -> list[tuple[int, int, int, int]]:
        """(model, draw, a, b) of every such question, in the order it was drawn."""
        return self._db.execute("SELECT model, draw, a, b FROM audits ORDER BY model, draw").fetchall()

    def places(self) -> dict[tuple[int, int, int], tuple[int, int, float]]:
        """(model, a, b) → b's rank beside a, a's rank beside b, similarity."""
        rows = self._db.execute("SELECT model, a, b, ab, ba, score FROM places")
        return {row[:3]: row[3:] for row in rows}

    def add_audit(self, audit: Audit) -> None:
        with _transaction(self._db, self.path):
            self._audit(audit)

    def _audit(self, audit: Audit) -> None:
        self._db.executemany("INSERT OR REPLACE INTO audits VALUES (?, ?, ?, ?)", audit.draws)
        self._db.executemany("INSERT OR REPLACE INTO places VALUES (?, ?, ?, ?, ?, ?)", audit.places)

    # -- what the machine is doing, and what it is asked to encode ------------------------------------

    def set_machine(self, **about: Any) -> None:
        with _transaction(self._db, self.path):
            self._db.execute(
                "INSERT OR REPLACE INTO machine VALUES (1, ?, ?)", (time.time(), json.dumps(about))
            )

    def beat(self) -> None:
        """A sign of life of the machine, whatever it is doing."""
        with _transaction(self._db, self.path):
            self._db.execute("UPDATE machine SET at = ?", (time.time(),))

    def machine(self) -> tuple[float, dict[str, Any]]:
        """When it last said something, and what."""
        row = self._db.execute("SELECT at, about FROM machine").fetchone()
        return (0.0, {}) if row is None else (row[0], json.loads(row[1]))

    def add_query(self, name: str, pixels: bytes) -> None:
        with _transaction(self._db, self.path):
            self._db.execute("DELETE FROM queries WHERE made < ?", (time.time() - 86400,))
            self._db.execute(
                "INSERT OR IGNORE INTO queries (id, made, pixels) VALUES (?, ?, ?)",
                (name, time.time(), pixels),
            )

    def query(self, name: str) -> Query | None:
        row = self._db.execute(
            "SELECT id, pixels, round, vector, error FROM queries WHERE id = ?", (name,)
        ).fetchone()
        return None if row is None else Query(*row)

    def waiting_query(self, round: int) -> Query | None:
        """The oldest that has no vector of this round's model yet."""
        row = self._db.execute(
            "SELECT id, pixels, round, vector, error FROM queries WHERE error IS NULL "
            "AND round IS NOT ? ORDER BY made LIMIT 1",
            (round,),
        ).fetchone()
        return None if row is None else Query(*row)

    def encoded(self, name: str, round: int, vector: bytes | None, error: str | None) -> None:
        with _transaction(self._db, self.path):
            self._db.execute(
                "UPDATE queries SET round = ?, vector = ?, error = ? WHERE id = ?",
                (round, vector, error, name),
            )


@contextmanager
def _transaction(db: sqlite3.Connection, path: Path) -> Iterator[None]:
    """BEGIN IMMEDIATE … COMMIT; rolled back, and said in a sentence, if the file cannot be written. Within
    another one it is part of that."""
    if db.in_transaction:
        yield
        return
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("COMMIT")
    except sqlite3.OperationalError as error:
        raise DiskError(
            f"{path} could not be written ({error}): free some space, check its rights, or end what else "
            "holds it, then do the last step again. Everything before it is safe."
        ) from error
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _version_in(path: Path) -> int:
    """The version in a file's header, read without opening (and so without touching) the database."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        header = file.read(64)
    whole = header.startswith(b"SQLite format 3\0") and header[60:61] == b"\0"  # no version is so high
    return int.from_bytes(header[60:64]) if whole else 0


def _columns(rows: Iterable[Sequence[Any]], width: int) -> list[np.ndarray[Any, Any]]:
    table = np.array(list(rows), dtype=np.int64).reshape(-1, width)
    return [table[:, i] for i in range(width)]
