"""The tables of ``campaign.sqlite``, version by version.

Entry i of MIGRATIONS takes a file from version i to i + 1. Never change what a released one leads to; a step
may be shortened where a later one drops what it made.
"""

import json
import re
import sqlite3
from collections.abc import Callable
from typing import Any


def _version_1(db: sqlite3.Connection) -> None:
    statements = """
        CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
        CREATE TABLE answers (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            a INTEGER NOT NULL, b INTEGER NOT NULL CHECK (a < b),
            verdict INTEGER NOT NULL CHECK (verdict BETWEEN 0 AND 3), -- 0 withdraws the last one
            annotator TEXT NOT NULL,
            asked REAL, answered REAL NOT NULL, -- seconds since 1970
            strategy TEXT NOT NULL, round INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX answers_by_pair ON answers (a, b, annotator);
        CREATE TABLE labels (
            id INTEGER PRIMARY KEY AUTOINCREMENT, image INTEGER NOT NULL, class TEXT NOT NULL,
            annotator TEXT NOT NULL, answered REAL NOT NULL, strategy TEXT NOT NULL, round INTEGER NOT NULL
        ) STRICT;
        CREATE TABLE questions (
            round INTEGER NOT NULL, place INTEGER NOT NULL, a INTEGER NOT NULL, b INTEGER NOT NULL,
            strategy TEXT NOT NULL, PRIMARY KEY (round, place)
        ) STRICT;
        CREATE TABLE rounds (
            round INTEGER PRIMARY KEY, finished REAL NOT NULL, about TEXT NOT NULL -- JSON
        ) STRICT"""
    _run(db, statements)


def _version_2(db: sqlite3.Connection) -> None:
    statements = """
        ALTER TABLE answers ADD COLUMN looked INTEGER; -- milliseconds from seeing the pair to answering
        ALTER TABLE answers ADD COLUMN key TEXT; -- the sender's own name for the event: it is taken once
        ALTER TABLE answers ADD COLUMN undoes INTEGER; -- the row that an undo takes back
        ALTER TABLE answers ADD COLUMN entered TEXT; -- who typed it, where that is not the annotator
        CREATE UNIQUE INDEX answers_by_key ON answers (key) WHERE key IS NOT NULL;
        CREATE INDEX answers_undone ON answers (undoes) WHERE undoes IS NOT NULL;
        CREATE TABLE audits (model INTEGER, draw INTEGER, a INTEGER, b INTEGER);
        CREATE TABLE places (model INTEGER, a INTEGER, b INTEGER, ab INTEGER, ba INTEGER, score REAL);
        CREATE TABLE machine (
            one INTEGER PRIMARY KEY CHECK (one = 1), at REAL NOT NULL, about TEXT NOT NULL -- JSON
        ) STRICT;
        CREATE TABLE queries (
            id TEXT PRIMARY KEY, made REAL NOT NULL, pixels BLOB NOT NULL,
            round INTEGER, vector BLOB, error TEXT
        ) STRICT"""
    _run(db, statements)


def _version_3(db: sqlite3.Connection) -> None:
    """What an answer is for becomes a column of its own; questions are picked when they are wanted, so they
    are no table any more; a round's record has one key for each figure."""
    _add_purposes(db)
    _keep_last_questions(db)
    statements = """
        DROP VIEW IF EXISTS standing;
        DROP VIEW IF EXISTS acts;
        DROP TABLE questions;
        DROP TABLE IF EXISTS leases;
        CREATE TABLE leases (
            a INTEGER NOT NULL, b INTEGER NOT NULL, holder TEXT NOT NULL, until REAL NOT NULL,
            purpose TEXT NOT NULL, PRIMARY KEY (a, b)
        ) STRICT;
        CREATE TABLE heldout ( -- pairs drawn at random to measure with, in the order drawn
            model INTEGER NOT NULL, draw INTEGER NOT NULL,
            a INTEGER NOT NULL, b INTEGER NOT NULL, PRIMARY KEY (model, draw)
        ) STRICT;
        CREATE TABLE ranks ( -- the rank of b beside a and of a beside b in each model
            model INTEGER NOT NULL, a INTEGER NOT NULL, b INTEGER NOT NULL,
            ab INTEGER NOT NULL, ba INTEGER NOT NULL, score REAL NOT NULL, PRIMARY KEY (model, a, b)
        ) STRICT;
        INSERT INTO heldout SELECT model, draw, a, b FROM audits;
        INSERT INTO ranks SELECT model, a, b, ab, ba, score FROM places;
        DROP TABLE audits;
        DROP TABLE places"""
    _run(db, statements)
    last_row = "SELECT coalesce(max(id), 0) FROM answers WHERE round <= ?"
    for number, about in db.execute("SELECT round, about FROM rounds").fetchall():
        (seen,) = db.execute(last_row, (number,)).fetchone()
        record = _record(number, json.loads(about), seen)
        db.execute("UPDATE rounds SET about = ? WHERE round = ?", (json.dumps(record), number))
    plan = db.execute("SELECT value FROM settings WHERE key = 'plan'").fetchone()
    if plan is not None:
        _set(db, "settings", _settings(json.loads(plan[0])))
        db.execute("DELETE FROM settings WHERE key = 'plan'")


def _growth(db: sqlite3.Connection) -> None:
    """An archive may grow: what each file was like, and what became of images."""
    statements = """
        CREATE TABLE files (
            path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime INTEGER NOT NULL,
            digest TEXT -- of a file that was cut into tiles
        ) STRICT;
        CREATE TABLE moved (image INTEGER PRIMARY KEY, path TEXT NOT NULL) STRICT;
        CREATE TABLE retired (
            image INTEGER PRIMARY KEY, reason TEXT NOT NULL, of INTEGER, at REAL NOT NULL
        ) STRICT;
        CREATE TABLE near ( -- images that show the same picture
            a INTEGER NOT NULL, b INTEGER NOT NULL CHECK (a < b),
            similarity REAL NOT NULL, correlation REAL NOT NULL, PRIMARY KEY (a, b)
        ) STRICT"""
    _run(db, statements)


def _names_of_groups(db: sqlite3.Connection) -> None:
    statements = """
        CREATE TABLE names ( -- a name given to an image is the name of its group
            id INTEGER PRIMARY KEY AUTOINCREMENT, image INTEGER NOT NULL, name TEXT NOT NULL,
            annotator TEXT NOT NULL, at REAL NOT NULL
        ) STRICT"""
    _run(db, statements)


def _run(db: sqlite3.Connection, statements: str) -> None:
    """All of them in the transaction that is open, which executescript would end."""
    for statement in re.sub("--.*", "", statements).split(";"):
        db.execute(statement)


def _add_purposes(db: sqlite3.Connection) -> None:
    statements = """
        ALTER TABLE answers ADD COLUMN purpose TEXT NOT NULL DEFAULT 'chosen';
        UPDATE answers SET purpose = 'held-out', strategy = '' WHERE strategy = 'audit';
        UPDATE answers SET purpose = 'imported', strategy = '' WHERE strategy = 'import';
        UPDATE answers SET purpose = 'released' WHERE entered = 'machine' AND verdict != 0;
        UPDATE answers SET purpose = 'again' WHERE purpose = 'chosen' AND verdict != 0 AND EXISTS (
            SELECT 1 FROM answers w WHERE w.a = answers.a AND w.b = answers.b AND w.verdict = 0
            AND w.entered = 'machine' AND w.id < answers.id);
        UPDATE answers SET purpose = 'again' WHERE entered = 'machine' AND verdict = 0;
        UPDATE answers SET purpose = 'again' WHERE verdict = 0 AND undoes IS NULL AND EXISTS (
            SELECT 1 FROM questions q WHERE q.a = answers.a AND q.b = answers.b AND q.place < 0
            AND q.round >= answers.round)"""
    _run(db, statements)


def _keep_last_questions(db: sqlite3.Connection) -> None:
    """The list that was being asked, as the agenda of the round."""
    (newest,) = db.execute("SELECT max(round) FROM questions").fetchone()
    sql = "SELECT a, b FROM questions WHERE round = ? AND strategy != 'audit' AND place >= 0 ORDER BY place"
    rows = db.execute(sql, (newest,)).fetchall()
    if rows:
        about = db.execute("SELECT about FROM rounds WHERE round = ?", (newest - 1,)).fetchone()
        lean = 0.0 if about is None else json.loads(about[0]).get("lean", 0.0)
        _set(db, "agenda", {"round": newest, "pairs": rows, "lean": lean})


def _set(db: sqlite3.Connection, key: str, value: Any) -> None:
    db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (key, json.dumps(value)))


def _record(number: int, about: dict[str, Any], seen: int) -> dict[str, Any]:
    """A round's figures. In a simulation ``row`` was a line of the curve, in a campaign the answer it saw."""
    row = about.get("row", seen)
    curve = row if isinstance(row, dict) else None
    told = {**about, **(curve or {})}
    return {
        "number": number,
        "seen": seen if curve else row,
        "serving": about.get("serves", number),
        "answers": told.get("answers", 0),
        "bits": told.get("bits", 0.0),
        "minutes": told.get("minutes", 0.0),
        "threshold": told.get("alpha", float("nan")),
        "cutoff": about.get("limit", float("nan")),
        "loss": about.get("loss", float("nan")),
        "seconds": about.get("seconds", {}),
        "curve": curve,
    }


def _settings(plan: dict[str, Any]) -> dict[str, Any]:
    """The names of today, without what only experiments vary. A round was a third of a batch."""
    old = {"recheck": 0.0, "presume": 0.0, **plan}
    renamed = {"audit": "heldout", "presume": "pseudo_labels"}
    gone = ("space", "recipe", "length", "gamma", "widths")
    kept = {renamed.get(name, name): value for name, value in old.items() if name not in gone}
    if "per_round" in kept:
        kept["per_round"] = -(-kept["per_round"] // 3)
    if kept.get("diversity", "none") != "none":
        kept["diversity"] = "kmeans"
    if str(kept.get("strategy", "")).startswith("place"):
        kept["strategy"] = "place"
    return kept


def _reasons(db: sqlite3.Connection) -> None:
    """Why an answer was withdrawn to be asked again."""
    db.execute("ALTER TABLE answers ADD COLUMN why TEXT")


def _sheets(db: sqlite3.Connection) -> None:
    """Answers that were given together."""
    for table in ("answers", "leases"):
        db.execute(f"ALTER TABLE {table} ADD COLUMN sheet TEXT")  # nosec B608: of this function


def _guesses(db: sqlite3.Connection) -> None:
    """What the machine had marked on a sheet."""
    for table in ("answers", "leases"):
        db.execute(f"ALTER TABLE {table} ADD COLUMN guess INTEGER")  # nosec B608: of this function


MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = [
    _version_1,
    _version_2,
    _version_3,
    _growth,
    _names_of_groups,
    _reasons,
    _sheets,
    _guesses,
]
