"""Files that are written whole or not at all, and disk errors as plain sentences."""

import errno
import glob
import mmap
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from anneal.errors import DiskError
from anneal.names import printable

GATHERED = 2048  # rows at once
PART = 1 << 22  # bytes at once


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step: a reader sees the old text or the new text, never a part. It is UTF-8,
    whatever names it holds."""
    with replacing(path) as out:
        out.write(printable(text).encode("utf-8"))


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
    """A new file beside ``path`` to write to. It takes the place of ``path`` at the end, or is removed. Then
    both the file and its name are on the disk: a loss of power does not undo it."""
    with explain_disk_errors(path):
        make_folder(path.parent)
        _remove_leftovers(path)
        fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            # With "wb" np.save leaves the writing to C code, whose error on a full disk has no errno.
            with fresh.open("w+b") as out:
                yield out
                out.flush()
                os.fsync(out.fileno())
            fresh.replace(path)
            _sync_folder(path.parent)
        finally:
            fresh.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where they are missing, and put their names on the disk."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Put the names of a folder's files on the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _remove_leftovers(path: Path) -> None:
    """Remove what processes that were killed in ``replacing`` have left beside this file."""
    for file in path.parent.glob(f"{glob.escape(path.name)}.*.tmp"):
        writer = re.fullmatch(r"(\d+)\.tmp", file.name.removeprefix(f"{path.name}."))
        if writer is not None and not _is_running(int(writer[1])):
            file.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def checksum(path: Path) -> str:
    """CRC-32 of a file's bytes, read a part at a time."""
    value = 0
    with path.open("rb") as file:
        while part := file.read(PART):
            value = zlib.crc32(part, value)
    return f"{value:08x}"


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
