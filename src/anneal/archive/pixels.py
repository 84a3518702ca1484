"""Arrays kept on disk that grow row by row and survive being killed.

``<name>.bin`` holds the rows, ``<name>.json`` says how many of them count, and whatever else the writer
wants to find again. Rows are written and flushed before the note that counts them is replaced in
one step, so a killed writer loses at most its last batch and never leaves a row that half exists.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import DTypeLike, NDArray

from anneal.errors import DiskError

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Kept:
    """One growing array; ``note`` is the writer's own and is saved with every append."""

    def __init__(self, path: Path, dtype: DTypeLike, row: tuple[int, ...]) -> None:
        self.path, self.dtype, self.row = path, np.dtype(dtype), row
        self._load()

    def _load(self) -> None:
        """What the note says, if the rows it counts are there."""
        self.rows, self.complete = 0, False
        self.note: dict[str, Any] = {}
        saved = _read(_beside(self.path, ".json"))
        if saved.get("dtype") == self.dtype.name and saved.get("row") == list(self.row):
            file = _beside(self.path, ".bin")
            if not saved["rows"] or (file.exists() and file.stat().st_size >= saved["rows"] * self._bytes):
                self.rows, self.complete, self.note = saved["rows"], saved["complete"], saved["note"]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Alone among the writers of this array; another one is waited for, and what it wrote is seen."""
        with disk(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(_beside(self.path, ".lock"))
            lock.acquire()
        try:
            self._load()
            yield
        finally:
            lock.release()

    def append(self, rows: NDArray[Any], note: dict[str, Any] | None = None) -> None:
        """Add rows, and say where the writer now is."""
        assert rows.shape[1:] == self.row, f"rows of {rows.shape[1:]} for {self.row}"
        data = np.ascontiguousarray(rows, dtype=self.dtype)
        with disk(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.rows:
                _beside(self.path, ".json").unlink(missing_ok=True)  # an old note must not count new rows
            file = _beside(self.path, ".bin")
            with file.open("r+b" if self.rows else "wb") as out:
                out.seek(self.rows * self._bytes)
                out.write(data.tobytes())
                out.truncate()
                out.flush()
                os.fsync(out.fileno())
        self._save(self.rows + len(rows), False, note)

    def finish(self, note: dict[str, Any] | None = None) -> None:
        self._save(self.rows, True, note)

    def array(self) -> NDArray[Any]:
        """The rows so far, memory-mapped and read-only."""
        if not self.rows:
            return np.empty((0, *self.row), dtype=self.dtype)
        file = _beside(self.path, ".bin")
        return np.memmap(file, dtype=self.dtype, mode="r", shape=(self.rows, *self.row))

    @property
    def _bytes(self) -> int:
        return int(np.prod(self.row)) * self.dtype.itemsize

    def _save(self, rows: int, complete: bool, note: dict[str, Any] | None) -> None:
        note = self.note if note is None else note
        state = {"dtype": self.dtype.name, "row": list(self.row), "rows": rows, "complete": complete}
        write_text(_beside(self.path, ".json"), json.dumps({**state, "note": note}))
        self.rows, self.complete, self.note = rows, complete, note  # only once it is on disk


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step: whoever reads it sees the old text or the new, never a part."""
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            with fresh.open("w", encoding="utf-8") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Say it in a sentence when the disk will take no more."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise DiskError(
                f"The disk is full: {path.parent} could not be written. Free some space and run "
                "the same command again; it goes on where it stopped."
            ) from error
        if error.errno in {errno.ENOTDIR, errno.EEXIST}:
            raise DiskError(f"{path.parent} is not a folder: choose another place.") from error
        if error.errno in {errno.EACCES, errno.EROFS, errno.EPERM}:
            raise DiskError(
                f"{path.parent} may not be written. Choose another folder or change its rights."
            ) from error
        raise


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _read(path: Path) -> dict[str, Any]:
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return {}
    return saved if isinstance(saved, dict) else {}
