"""What became of the images of a campaign: which are retired and why, which have moved, and which show the
same picture. Its tables are in the campaign's file, and so is their SQL here."""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from anneal.archive.growth import Stat
from anneal.campaign.store import Store
from anneal.pairs import Pair


class Reason(StrEnum):
    """Why an image is not asked about, not found and not counted."""

    REMOVED = "removed"  # its file is gone
    CHANGED = "changed"  # its file has other bytes
    DUPLICATE = "duplicate"  # its file has the same bytes as another one's
    NEAR = "near"  # it shows the same picture as another one


GONE = (Reason.REMOVED, Reason.CHANGED)


@dataclass(frozen=True)
class Retired:
    reason: str
    of: int | None = None  # the image that stands for a duplicate


@dataclass(frozen=True)
class Near:
    """Two images that show the same picture."""

    pair: Pair
    similarity: float  # of the frozen vectors
    correlation: float  # of the pixels


class Inventory:
    """The tables ``files``, ``moved``, ``retired`` and ``near``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._db = store.db

    def note_growth(self) -> None:
        """Something about the images has changed: what was read of them is to be read again."""
        with self._store.transaction():
            self._store.set(grown=self._store.setting("grown", 0) + 1)

    def updates(self) -> tuple[dict[str, Any] | None, bool]:
        """What the last update found, if there was one, and whether another one is wanted."""
        return self._store.setting("updated", None), self._store.setting("update_wanted", False)

    def has_class_labels(self) -> bool:
        """Whether the images of class folders were labelled."""
        sql = "SELECT 1 FROM labels WHERE annotator = 'folders' LIMIT 1"
        return self._db.execute(sql).fetchone() is not None

    def retired(self) -> dict[int, Retired]:
        rows = self._db.execute("SELECT image, reason, of FROM retired ORDER BY image")
        return {image: Retired(reason, of) for image, reason, of in rows}

    def counts(self) -> dict[str, int]:
        """How many images are retired for each reason."""
        return dict(self._db.execute("SELECT reason, count(*) FROM retired GROUP BY reason").fetchall())

    def retire(self, images: Mapping[int, Retired]) -> None:
        """These images and no others. One that was retired for the same reason keeps the time."""
        before = {row[0]: row[1:] for row in self._db.execute("SELECT image, reason, at FROM retired")}
        now = time.time()
        rows = []
        for image, one in images.items():
            reason, at = before.get(image, ("", now))
            rows.append((image, one.reason, one.of, at if reason == one.reason else now))
        with self._store.transaction():
            self._db.execute("DELETE FROM retired")
            self._db.executemany("INSERT INTO retired VALUES (?, ?, ?, ?)", rows)

    def moved(self) -> dict[int, str]:
        """The path now of each image that is not where it was read."""
        rows = self._db.execute("SELECT image, path FROM moved")
        return {image: _path(text) for image, text in rows}

    def move(self, paths: Mapping[int, str]) -> None:
        with self._store.transaction():
            rows = [(image, _text(path)) for image, path in paths.items()]
            self._db.executemany("INSERT OR REPLACE INTO moved VALUES (?, ?)", rows)

    def files(self) -> dict[str, Stat]:
        """What each file was like when it was last read."""
        rows = self._db.execute("SELECT path, size, mtime FROM files")
        return {_path(text): Stat(size, mtime) for text, size, mtime in rows}

    def digests(self) -> dict[str, str]:
        """The hash of each file that was cut into tiles: those of the tiles are of their pixels."""
        rows = self._db.execute("SELECT path, digest FROM files WHERE digest IS NOT NULL")
        return {_path(text): digest for text, digest in rows}

    def note_files(self, files: Mapping[str, Stat], digests: Mapping[str, str]) -> None:
        rows = [(_text(path), *stat, digests.get(path)) for path, stat in files.items()]
        with self._store.transaction():
            self._db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", rows)

    def near(self) -> list[Near]:
        rows = self._db.execute("SELECT a, b, similarity, correlation FROM near ORDER BY a, b")
        return [Near((a, b), similarity, correlation) for a, b, similarity, correlation in rows]

    def add_near(self, found: Iterable[Near]) -> None:
        rows = [(*one.pair, one.similarity, one.correlation) for one in found]
        with self._store.transaction():
            self._db.executemany("INSERT OR REPLACE INTO near VALUES (?, ?, ?, ?)", rows)


HEX = "hex:"  # before a path that SQLite cannot hold as text


def _text(path: str) -> str:
    """A path as SQLite holds it: one that is not UTF-8 as the digits of its bytes."""
    try:
        path.encode()
        plain = not path.startswith(HEX)
    except UnicodeEncodeError:
        plain = False
    return path if plain else HEX + os.fsencode(path).hex()


def _path(text: str) -> str:
    return os.fsdecode(bytes.fromhex(text.removeprefix(HEX))) if text.startswith(HEX) else text
