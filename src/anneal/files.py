"""Files that are written whole or not at all, and disk errors as plain sentences."""

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from anneal.errors import DiskError

GATHERED = 2048  # rows at once


def printable(name: str) -> str:
    """A file name as text in UTF-8. Bytes that are not UTF-8 become ``\\xe9``, as Python writes them."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step: a reader sees the old text or the new text, never a part."""
    with replacing(path) as out:
        out.write(text.encode("utf-8"))


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Replace a ``.npy`` file in one step."""
    with replacing(path) as out:
        np.save(out, array)


def release(array: NDArray[Any]) -> None:
    """Let go of the memory of a mapped file that was read or written so far. The array stays as it is; other
    arrays are left alone. A pass over a large file then needs one block at a time."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def gather(array: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """A copy of these rows. Of a mapped file, a part at a time is in memory beside the copy: the system
    maps many pages around each row."""
    copy = np.empty((len(rows), *array.shape[1:]), dtype=array.dtype)
    for i in range(0, len(rows), GATHERED):
        copy[i : i + GATHERED] = array[rows[i : i + GATHERED]]
        release(array)
    return copy


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file beside ``path`` to write to. It takes the place of ``path`` at the end, or is removed."""
    with explain_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            # With "wb" np.save leaves the writing to C code, whose error on a full disk has no errno.
            with fresh.open("w+b") as out:
                yield out
                out.flush()
                os.fsync(out.fileno())
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)


@contextmanager
def explain_disk_errors(path: Path) -> Iterator[None]:
    """Raise a DiskError that says what to do when ``path`` cannot be written. Other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            remedy = "Free some space and run the same command again; it goes on where it stopped."
            problem = f"The disk is full: {path.parent} could not be written. {remedy}"
        elif error.errno in {errno.ENOTDIR, errno.EEXIST}:
            problem = f"{path.parent} is not a folder: choose another place."
        elif error.errno in {errno.EACCES, errno.EROFS, errno.EPERM}:
            problem = f"{path.parent} may not be written. Choose another folder or change its rights."
        else:
            raise
        raise DiskError(problem) from error
