"""How the campaign's SQLite file is opened, brought up to date and written to."""

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from anneal.campaign.migrations import MIGRATIONS
from anneal.errors import CampaignError, DiskError
from anneal.files import make_folder

PATIENCE = 30  # seconds to wait for another process that writes
OF_DISK = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL)
TABLES = {"settings", "answers", "labels", "rounds", "leases", "heldout", "ranks", "machine", "queries"} | {
    *("files", "moved", "retired", "near", "names"),
}


class Database:
    """An open file. Every method that writes has committed when it returns, unless a transaction is open."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if not create and not path.exists():
            raise CampaignError(
                f"There is no campaign in {path.parent}: make one with anneal init ARCHIVE --campaign "
                f"{path.parent}, or with anneal label ARCHIVE --campaign {path.parent}."
            )
        self.path = path
        self._transactions = 0
        self.read_only = not create and not _may_write(path)
        try:
            self._refuse_newer(_version_in_header(path))
            if self.read_only:
                self.db = _copy_in_memory(path)
            else:
                make_folder(path.parent)
                # Threads may share it if they take turns, as those of the page do.
                self.db = sqlite3.connect(
                    path, isolation_level=None, timeout=PATIENCE, check_same_thread=False
                )
                self._switch_to_wal()
                self.db.execute("PRAGMA synchronous = FULL")
            self._migrate()
            self._refuse_incomplete()
            self.db.execute(f"PRAGMA query_only = {self.read_only}")
        except (sqlite3.DatabaseError, OSError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in OF_DISK:
                raise DiskError(
                    f"{path} cannot be opened now ({error}): free some space, check its rights, or end what "
                    "else uses it. Nothing is lost."
                ) from error
            raise CampaignError(
                f"{path} is not a campaign file that can be opened ({error}): anneal check says what can be "
                "saved."
            ) from error

    def _switch_to_wal(self) -> None:
        """SQLite does not wait here as it does elsewhere when two processes open a new file at once."""
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                self.db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                    raise
                time.sleep(0.005)

    def _migrate(self) -> None:
        if self._version() == len(MIGRATIONS):
            return
        with self.transaction():  # another process may have migrated it meanwhile
            self._refuse_newer(self._version())
            for number in range(self._version(), len(MIGRATIONS)):
                try:
                    MIGRATIONS[number](self.db)
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise sqlite3.DatabaseError(f"it holds {type(error).__name__} {error}") from error
                self.db.execute(f"PRAGMA user_version = {number + 1}")

    def _refuse_incomplete(self) -> None:
        """Refuse a file that has lost a table."""
        found = {name for (name,) in self.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if missing := sorted(TABLES - found):
            raise sqlite3.DatabaseError(f"it has no table {', '.join(missing)}")

    def _version(self) -> int:
        return int(self.db.execute("PRAGMA user_version").fetchone()[0])

    def _refuse_newer(self, version: int) -> None:
        if version > len(MIGRATIONS):
            versions = f"file version {version}, this one reads {len(MIGRATIONS)}"
            why = f"was made by a newer anneal ({versions}): update anneal to open it. Nothing was changed."
            raise CampaignError(f"{self.path} {why}")

    def close(self) -> None:
        self.db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, and nobody else writes meanwhile. Inside another transaction it is part of that."""
        if self.db.in_transaction:
            yield
            return
        try:
            self.db.execute("BEGIN IMMEDIATE")
            self._transactions += 1
            yield
            self.db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_ERROR:  # of the SQL, not of the disk
                raise
            raise DiskError(
                f"{self.path} could not be written ({error}): free some space, check its rights, or end what "
                "else uses it, then do the last step again. Everything before it is safe."
            ) from error
        finally:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")

    @property
    def mark(self) -> tuple[int, int] | None:
        """Inside a transaction: the same as long as nothing is written, so what was read is still true."""
        return (self._transactions, self.db.total_changes) if self.db.in_transaction else None


def _may_write(path: Path) -> bool:
    return not path.exists() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def _copy_in_memory(path: Path) -> sqlite3.Connection:
    """The file as it is now, for a place where nothing may be written: SQLite would write even to read."""
    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            db.backup(memory)
    except sqlite3.OperationalError:  # its write-ahead log cannot be opened there
        with tempfile.TemporaryDirectory() as folder:
            for suffix in ("", "-wal"):
                if path.with_name(path.name + suffix).exists():
                    shutil.copy(path.with_name(path.name + suffix), Path(folder) / f"copy{suffix}")
            with closing(sqlite3.connect(Path(folder) / "copy")) as db:
                db.backup(memory)
    return memory


def _version_in_header(path: Path) -> int:
    """The file's version; nothing is touched. 0 if it cannot be read: it is looked at again when the file is
    open. It is read through SQLite: a plain open and close would drop the locks of this process, and another
    process could then remove the write-ahead log."""
    if not path.is_file():
        return 0
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)) as db:
        try:
            return int(db.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.DatabaseError:  # damaged, or another process is writing the file at this moment
            return 0
