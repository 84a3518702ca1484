"""Whether a file of a round can be read. One that cannot is as good as gone."""

import json
import re
import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np

from anneal.pairs import Ids

NETWORKS = "networks"  # beside the folders of the rounds: the fine-tuned ones
UNREADABLE = (OSError, ValueError, KeyError, IndexError, TypeError, EOFError, zipfile.BadZipFile)


def rows_in(path: Path) -> int | None:
    """The number of rows of a file of vectors; None if there is none that can be read."""
    try:
        stat = path.stat()
        return _rows_of(path, stat.st_mtime_ns, stat.st_size)
    except OSError:
        return None


@lru_cache(maxsize=256)
def _rows_of(path: Path, changed: int, size: int) -> int | None:
    """A file is looked into once, until it changes."""
    try:
        vectors = np.load(path, mmap_mode="r")
        return len(vectors) if vectors.ndim == 2 and vectors.dtype == np.float32 else None
    except UNREADABLE:
        return None


def table(path: Path, columns: int) -> Ids | None:
    """A table of ids; None if there is none that can be read."""
    try:
        table: Ids = np.load(path)
        return table if table.dtype == np.int64 and table.shape[1:] == (columns,) else None
    except UNREADABLE:
        return None


def is_json(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_bytes()), dict)
    except (OSError, ValueError):
        return False


def is_whole(path: Path) -> bool:
    """Whether a safetensors file is as long as its header says."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if length < size else {}
        ends = [about["data_offsets"][1] for name, about in header.items() if name != "__metadata__"]
        return bool(ends) and size == 8 + length + max(ends)
    except UNREADABLE:
        return False


def network_file(folder: Path) -> Path | None:
    """The file of the fine-tuned network that the model in a round's folder stands on; None if that is the
    pretrained one."""
    try:
        name = str(json.loads((folder / "model.json").read_bytes())["network"])
    except UNREADABLE:
        return None
    named = re.fullmatch(r"[0-9a-f]{16}", name)  # a stranger's campaign may say anything
    return folder.parent / NETWORKS / f"{name}.safetensors" if named else None
