"""Arrays on disk that grow row by row and survive a killed writer.

``<name>.bin`` holds the rows. ``<name>.json`` holds their number and the writer's note. An append flushes
the rows to disk before it replaces the JSON in one step, so a killed writer loses at most its last batch.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import DTypeLike, NDArray

from anneal.files import explain_disk_errors, write_text


class GrowingArray:
    """An array that grows on disk. ``rows`` is the number of rows, ``complete`` says whether the writer has
    finished, and ``note`` holds the writer's own values, saved with every append."""

    def __init__(self, path: Path, dtype: DTypeLike, row: tuple[int, ...]) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self.row = row
        self._row_bytes = int(np.prod(row)) * self.dtype.itemsize
        self._load()

    def _load(self) -> None:
        """Take over what is on disk. Start empty if it is spoilt or of another type."""
        self._set(0, False, {})
        try:
            saved = json.loads(self._file(".json").read_text(encoding="utf-8"))
            size = self._file(".bin").stat().st_size if saved["rows"] else 0
            same = saved["dtype"] == self.dtype.name and saved["row"] == list(self.row)
        except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError, KeyError, TypeError):
            return
        if same and size >= saved["rows"] * self._row_bytes:
            self._set(saved["rows"], saved["complete"], saved["note"])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the array for one writer. It waits for the current writer, then sees what that one wrote."""
        with explain_disk_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self._file(".lock")):
                self._load()
                yield

    def append(self, rows: NDArray[Any], note: dict[str, Any] | None = None) -> None:
        """Add rows and save the note; without a new note the last one stays."""
        assert rows.shape[1:] == self.row, f"rows of {rows.shape[1:]} for {self.row}"
        with explain_disk_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.rows:
                self._file(".json").unlink(missing_ok=True)  # an old note must not count new rows
            if len(rows):
                self._write(rows)
        self._save(self.rows + len(rows), False, note)

    def _write(self, rows: NDArray[Any]) -> None:
        with self._file(".bin").open("r+b" if self.rows else "wb") as out:
            out.seek(self.rows * self._row_bytes)
            out.write(np.ascontiguousarray(rows, dtype=self.dtype).data)
            out.truncate()
            out.flush()
            os.fsync(out.fileno())

    def clear(self) -> None:
        """Forget the rows and the note. The next append starts at the first row."""
        self._file(".json").unlink(missing_ok=True)
        self._set(0, False, {})

    def finish(self, note: dict[str, Any] | None = None) -> None:
        """Mark the array as complete."""
        self._save(self.rows, True, note)

    def array(self) -> NDArray[Any]:
        """The rows so far, memory-mapped and read-only."""
        if not self.rows:
            return np.empty((0, *self.row), dtype=self.dtype)
        return np.memmap(self._file(".bin"), dtype=self.dtype, mode="r", shape=(self.rows, *self.row))

    def _file(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _save(self, rows: int, complete: bool, note: dict[str, Any] | None) -> None:
        note = self.note if note is None else note
        state = {"dtype": self.dtype.name, "row": list(self.row), "rows": rows, "complete": complete}
        write_text(self._file(".json"), json.dumps({**state, "note": note}))
        self._set(rows, complete, note)  # only after the note is on disk

    def _set(self, rows: int, complete: bool, note: dict[str, Any]) -> None:
        self.rows = rows
        self.complete = complete
        self.note = note
