"""Files are replaced whole or not at all, and a disk error is a sentence."""

import errno
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anneal.errors import AnnealError, DiskError
from anneal.files import explain_disk_errors, gather, release, save_array, write_text
from full_disk import no_file_over

Write = Callable[[Path], None]
WRITERS: dict[str, Write] = {
    "write_text": lambda path: write_text(path, "new" * 1000),
    "save_array": lambda path: save_array(path, np.arange(3000)),
    "save_array, transposed": lambda path: save_array(path, np.zeros((100, 30)).T),
}
every_writer = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


# -- what is written --------------------------------------------------------------------------------


def test_text_replaces_the_old_text_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "text.json"
    write_text(path, "a long first text")
    write_text(path, "λ ≥ 3\n")
    assert path.read_bytes() == "λ ≥ 3\n".encode()
    assert [file.name for file in path.parent.iterdir()] == ["text.json"]


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("shape", [(0, 4), (5,), (3, 4)])
def test_a_saved_array_is_what_numpy_would_save(tmp_path: Path, dtype: type, shape: tuple[int, ...]) -> None:
    array: NDArray[Any] = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    path = tmp_path / "new" / "array.npy"
    save_array(path, np.zeros(100))
    save_array(path, array)
    assert [file.name for file in path.parent.iterdir()] == ["array.npy"]
    np.save(tmp_path / "numpy.npy", array)
    assert path.read_bytes() == (tmp_path / "numpy.npy").read_bytes()


WRITE_FOR_EVER = """
import json, sys
from itertools import count
from pathlib import Path
from anneal.files import write_text
for number in count():
    write_text(Path(sys.argv[1]), json.dumps([number] * 30000))
    if not number:
        print("written", flush=True)
"""


def test_a_text_is_whole_at_every_moment_and_after_its_writer_is_killed(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    path = tmp_path / "text"

    def whole() -> bool:
        numbers = json.loads(path.read_text(encoding="utf-8"))
        return len(numbers) == 30000 and len(set(numbers)) == 1

    for _ in range(3):
        command = [sys.executable, "-c", WRITE_FOR_EVER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "written\n"
            end = time.monotonic() + rng.uniform(0.02, 0.06)
            while time.monotonic() < end:
                assert whole()
            writer.kill()
        assert whole()


# -- the disk refuses -------------------------------------------------------------------------------


@every_writer
def test_a_full_disk_keeps_the_old_file_and_leaves_no_other(tmp_path: Path, write: Write) -> None:
    (tmp_path / "file").write_text("old")
    with no_file_over(1000), pytest.raises(DiskError, match=r"^The disk is full: .* Free some space and run"):
        write(tmp_path / "file")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "old")]


@every_writer
def test_a_file_in_place_of_the_folder_is_a_clear_error(tmp_path: Path, write: Write) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(AnnealError, match="file is not a folder: choose another place"):
        write(tmp_path / "file" / "new")
    assert (tmp_path / "file").read_text() == "mine"


WRITE_WHERE_FORBIDDEN = """
import os, sys
from pathlib import Path
import numpy as np
from anneal.errors import DiskError
from anneal.archive.pixels import GrowingArray
from anneal.files import save_array, write_text
os.chdir(sys.argv[1])
if os.geteuid() == 0:  # root ignores permission bits: be nobody
    os.setegid(65534)
    os.seteuid(65534)
for attempt in (
    lambda: GrowingArray(Path("rows"), np.int64, (1,)).append(np.zeros((1, 1))),
    lambda: write_text(Path("text"), "new"),
    lambda: save_array(Path("text"), np.zeros(1)),
):
    try:
        attempt()
    except DiskError as error:
        print(error)
"""


def test_a_folder_that_may_not_be_written_is_a_clear_error(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "text").write_text("old")
    folder.chmod(0o555)
    try:
        command = [sys.executable, "-c", WRITE_WHERE_FORBIDDEN, str(folder)]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    finally:
        folder.chmod(0o755)
    assert lines == [". may not be written. Choose another folder or change its rights."] * 3
    assert [(file.name, file.read_text()) for file in folder.iterdir()] == [("text", "old")]


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (errno.ENOSPC, "The disk is full"),
        (errno.EDQUOT, "The disk is full"),
        (errno.EEXIST, "is not a folder"),
        (errno.EROFS, "may not be written"),
    ],
)
def test_a_disk_error_names_the_folder(code: int, sentence: str) -> None:
    with pytest.raises(DiskError, match=sentence) as raised, explain_disk_errors(Path("folder/file")):
        raise OSError(code, "refused")
    assert "folder" in str(raised.value)


def test_other_errors_pass_unchanged() -> None:
    for error in (FileNotFoundError(errno.ENOENT, "gone"), ValueError("no disk error")):
        with pytest.raises(type(error)) as raised, explain_disk_errors(Path("folder/file")):
            raise error
        assert raised.value is error


def test_a_mapped_array_keeps_its_values_when_its_memory_is_released(tmp_path: Path) -> None:
    written = np.lib.format.open_memmap(tmp_path / "a.npy", mode="w+", dtype=np.float32, shape=(5000, 8))
    written[:] = np.arange(40_000).reshape(5000, 8)
    release(written)
    written[0] = -1
    assert written[1:].ravel().tolist() == list(range(8, 40_000))
    read = np.load(tmp_path / "a.npy", mmap_mode="r")
    release(read)
    assert read[0].tolist() == [-1] * 8
    release(np.ones(3))  # nothing to do


def test_gathered_rows_are_those_of_the_array(tmp_path: Path) -> None:
    save_array(tmp_path / "a.npy", np.arange(30_000, dtype=np.float32).reshape(-1, 3))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    rows = np.random.default_rng(0).integers(10_000, size=5000)
    assert np.array_equal(gather(mapped, rows), mapped[rows])
    assert gather(np.ones((4, 2)), np.array([], dtype=np.int64)).shape == (0, 2)
