"""The campaign's one SQLite file, and all the SQL there is.

Answers are events: rows are added and never changed. An undo or a correction is one more row, and what
stands is the last row of each annotator on each pair. What answers imply is never stored.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anneal.errors import CampaignError, DiskError
from anneal.pairs import UNKNOWN, Answers, Pairs


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


EVER = 2**62

MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = [_version_1]
"""Entry i takes a file from version i to i + 1. Never change one that has been released."""


@dataclass(frozen=True)
class Questions:
    """Pairs put up to be judged, the round whose answers they will be, and who picked them."""

    pairs: Pairs
    round: int
    strategy: str


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
            self._db = sqlite3.connect(path, isolation_level=None, timeout=30)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._migrate()
        except (sqlite3.DatabaseError, OSError) as error:
            raise CampaignError(f"{path} is not a campaign file that can be opened: {error}.") from error

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

    def set(self, **values: Any) -> None:
        with _transaction(self._db, self.path):
            self._db.executemany(
                "INSERT INTO settings VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                [(key, json.dumps(value)) for key, value in values.items()],
            )

    # -- answers -------------------------------------------------------------------------------

    def add_answers(
        self,
        answers: Iterable[tuple[int, int, int]],  # a, b, verdict (0 takes the last one back)
        *,
        annotator: str,
        strategy: str,
        round: int,
        asked: float | None = None,
    ) -> None:
        now = time.time()
        with _transaction(self._db, self.path):
            self._db.executemany(
                "INSERT INTO answers (a, b, verdict, annotator, asked, answered, strategy, round) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [(a, b, v, annotator, asked, now, strategy, round) for a, b, v in answers],
            )

    def answers(self, upto: int | None = None, since: int = 0) -> Answers:
        """What stands: the last word of each annotator on each pair, in the order it was given; of all
        rounds, or of those from ``since`` up to ``upto``."""
        rows = self._db.execute(
            """SELECT a, b, verdict FROM answers
               WHERE id IN (SELECT max(id) FROM answers GROUP BY a, b, annotator) AND verdict != ?
                 AND round BETWEEN ? AND ?
               ORDER BY id""",
            (UNKNOWN, since, EVER if upto is None else upto),
        )
        a, b, verdicts = _columns(rows, 3)
        return Answers.of(Pairs.of(a, b), verdicts)

    def last_answer(self, annotator: str) -> tuple[int, int] | None:
        """The pair this annotator judged last and has not taken back."""
        return self._db.execute(  # type: ignore[no-any-return]
            """SELECT a, b FROM answers
               WHERE id IN (SELECT max(id) FROM answers WHERE annotator = ? GROUP BY a, b)
                 AND verdict != ? ORDER BY id DESC LIMIT 1""",
            (annotator, UNKNOWN),
        ).fetchone()

    def events(self) -> int:
        """How many rows of answers there are, undone ones and undos included."""
        (count,) = self._db.execute("SELECT count(*) FROM answers").fetchone()
        return int(count)

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

    # -- questions and rounds --------------------------------------------------------------------

    def queue(self, round: int, pairs: Pairs, strategy: str) -> None:
        """Put up the questions of a round."""
        with _transaction(self._db, self.path):
            self._queue(round, pairs, strategy)

    def finish_round(self, round: int, about: dict[str, Any], pairs: Pairs, strategy: str) -> None:
        """Note that the machine's turn is over and put up the next questions, in one step."""
        with _transaction(self._db, self.path):
            self._db.execute(
                "INSERT OR REPLACE INTO rounds VALUES (?, ?, ?)",
                (round, time.time(), json.dumps(about)),
            )
            self._queue(round + 1, pairs, strategy)

    def _queue(self, round: int, pairs: Pairs, strategy: str) -> None:
        self._db.execute("DELETE FROM questions WHERE round = ?", (round,))
        self._db.executemany(
            "INSERT INTO questions VALUES (?, ?, ?, ?, ?)",
            [(round, place, a, b, strategy) for place, (a, b) in enumerate(pairs)],
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
            "SELECT a, b, strategy FROM questions WHERE round = ? ORDER BY place", (number,)
        ).fetchall()
        a, b = _columns([row[:2] for row in rows], 2)
        return Questions(Pairs.of(a, b), number, rows[0][2] if rows else "")


@contextmanager
def _transaction(db: sqlite3.Connection, path: Path) -> Iterator[None]:
    """BEGIN IMMEDIATE … COMMIT; rolled back, and said in a sentence, if the file cannot be written."""
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
