"""Kept arrays: what was appended is there, whoever was killed and whatever the disk refused."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anneal.archive.pixels import Kept, write_text
from anneal.errors import AnnealError, DiskError

WIDTH = 500
ROW = 8 * WIDTH  # bytes


def numbered(start: int, count: int) -> NDArray[np.int64]:
    """Rows of which each number says where it belongs."""
    return np.arange(start * WIDTH, (start + count) * WIDTH).reshape(count, WIDTH)


def opened(path: Path) -> Kept:
    return Kept(path, np.int64, (WIDTH,))


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """A disk that is full past ``size`` bytes of a file: Python ignores SIGXFSZ, so writing gives EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# -- rows ------------------------------------------------------------------------------------------


def test_rows_come_back_in_the_order_they_were_appended(tmp_path: Path) -> None:
    kept = opened(tmp_path / "deep" / "rows")
    for start, count in ((0, 2), (2, 1), (3, 4)):
        kept.append(numbered(start, count))
    assert kept.rows == 7
    np.testing.assert_array_equal(kept.array(), numbered(0, 7))
    again = opened(tmp_path / "deep" / "rows")
    assert again.rows == 7
    np.testing.assert_array_equal(again.array(), numbered(0, 7))


def test_before_the_first_row_there_is_an_empty_array_and_no_file(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "rows", np.float16, (2, 3))
    assert (kept.rows, kept.complete, kept.note) == (0, False, {})
    assert (kept.array().shape, kept.array().dtype.name) == ((0, 2, 3), "float16")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_append_keeps_its_note_and_no_row(tmp_path: Path) -> None:
    opened(tmp_path / "rows").append(numbered(0, 0), {"skipped": 3})
    again = opened(tmp_path / "rows")
    assert (again.rows, again.note) == (0, {"skipped": 3})
    again.append(numbered(0, 2))
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(0, 2))


def test_a_reopened_array_goes_on_where_it_stopped(tmp_path: Path) -> None:
    for start in range(5):
        kept = opened(tmp_path / "rows")
        assert kept.rows == start
        kept.append(numbered(start, 1))
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(0, 5))


def test_note_and_completeness_are_found_again(tmp_path: Path) -> None:
    kept = opened(tmp_path / "rows")
    kept.append(numbered(0, 1), {"names": ["á", "b"]})
    kept.append(numbered(1, 1))  # without a note the last one stays
    again = opened(tmp_path / "rows")
    assert (again.note, again.complete) == ({"names": ["á", "b"]}, False)
    again.finish({"names": ["c"]})
    last = opened(tmp_path / "rows")
    assert (last.note, last.complete, last.rows) == ({"names": ["c"]}, True, 2)


def test_the_array_is_read_only_and_of_the_asked_type(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "rows", np.float32, (2,))
    kept.append(np.array([[1, 2]], dtype=np.int64))
    array = kept.array()
    assert array.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 9


def test_rows_of_another_shape_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    kept = opened(tmp_path / "rows")
    with pytest.raises(AssertionError, match="rows of"):
        kept.append(np.zeros((1, WIDTH + 1)))
    assert (kept.rows, list(tmp_path.iterdir())) == (0, [])


@pytest.mark.parametrize(("dtype", "row"), [(np.int32, (WIDTH,)), (np.int64, (WIDTH, 1)), (np.int64, (2,))])
def test_another_type_or_shape_starts_anew(tmp_path: Path, dtype: type, row: tuple[int, ...]) -> None:
    kept = opened(tmp_path / "rows")
    kept.append(numbered(0, 3), {"old": True})
    kept.finish()
    other = Kept(tmp_path / "rows", dtype, row)
    assert (other.rows, other.complete, other.note) == (0, False, {})
    other.append(np.full((1, *row), 5))
    again = Kept(tmp_path / "rows", dtype, row)
    np.testing.assert_array_equal(again.array(), np.full((1, *row), 5))
    assert opened(tmp_path / "rows").rows == 0  # and the old one is gone


@pytest.mark.parametrize("note", ["", '{"rows": 3', "[]", "null"])
def test_a_spoilt_note_starts_anew(tmp_path: Path, note: str) -> None:
    opened(tmp_path / "rows").append(numbered(0, 3))
    (tmp_path / "rows.json").write_text(note, encoding="utf-8")
    kept = opened(tmp_path / "rows")
    assert kept.rows == 0
    kept.append(numbered(0, 1))
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(0, 1))


def test_bytes_after_the_counted_rows_do_not_count(tmp_path: Path) -> None:
    """What a writer leaves that was killed between its rows and its note."""
    opened(tmp_path / "rows").append(numbered(0, 2))
    with (tmp_path / "rows.bin").open("ab") as file:
        file.write(b"\xff" * (3 * ROW + 5))
    kept = opened(tmp_path / "rows")
    np.testing.assert_array_equal(kept.array(), numbered(0, 2))
    kept.append(numbered(2, 1))
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(0, 3))


# -- killed ----------------------------------------------------------------------------------------

APPEND_FOR_EVER = """
import sys
from pathlib import Path
import numpy as np
from anneal.archive.pixels import Kept
width = int(sys.argv[2])
kept = Kept(Path(sys.argv[1]), np.int64, (width,))
print(kept.rows, flush=True)
while True:
    start, count = kept.rows, 1 + kept.rows % 60
    rows = np.arange(start * width, (start + count) * width).reshape(count, width)
    kept.append(rows, {"after": start + count})
    print(kept.rows, flush=True)
"""


def test_a_killed_writer_loses_no_row_it_had_appended(tmp_path: Path, rng: np.random.Generator) -> None:
    path, before = tmp_path / "rows", 0
    for _ in range(6):
        command = [sys.executable, "-c", APPEND_FOR_EVER, str(path), str(WIDTH)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert int(writer.stdout.readline()) == before  # it went on where the last was killed
            time.sleep(rng.uniform(0.005, 0.03))
            writer.kill()
            said = [int(line) for line in writer.stdout.read().split("\n")[:-1]]  # whole lines only
        kept = opened(path)
        assert kept.rows >= max(said, default=before)
        np.testing.assert_array_equal(kept.array(), numbered(0, kept.rows))
        if kept.rows:
            assert kept.note == {"after": kept.rows}
        before = kept.rows
    assert before > 0


# -- the disk refuses ------------------------------------------------------------------------------


def test_a_full_disk_is_said_in_a_sentence_and_the_append_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "rows.bin").symlink_to("/dev/full")
    kept = opened(tmp_path / "rows")
    with pytest.raises(DiskError, match=r"^The disk is full: .* Free some space and run") as refused:
        kept.append(numbered(0, 2))
    assert str(tmp_path) in str(refused.value)
    assert (kept.rows, opened(tmp_path / "rows").rows) == (0, 0)
    (tmp_path / "rows.bin").unlink()
    kept.append(numbered(0, 2))
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(0, 2))


def test_nothing_before_the_full_disk_is_lost(tmp_path: Path) -> None:
    kept = opened(tmp_path / "rows")
    with no_file_longer_than(10 * ROW + 17):
        for start in (0, 3, 6):
            kept.append(numbered(start, 3), {"after": start + 3})
        with pytest.raises(DiskError, match="The disk is full"):  # there is room for one of three rows
            kept.append(numbered(9, 3), {"after": 12})
    for found in (kept, opened(tmp_path / "rows")):
        assert (found.rows, found.note) == (9, {"after": 9})
        np.testing.assert_array_equal(found.array(), numbered(0, 9))
    kept.append(numbered(9, 3))  # there is room again
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(0, 12))


def test_an_append_whose_note_is_refused_adds_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    kept, long = opened(tmp_path / "rows"), {"at": "x" * 20 * ROW}
    kept.append(numbered(0, 2), {"at": 2})
    with no_file_longer_than(10 * ROW), pytest.raises(DiskError, match="The disk is full"):
        kept.append(numbered(2, 3), long)
    assert opened(tmp_path / "rows").rows == 2
    assert (kept.rows, kept.note) == (2, {"at": 2})
    kept.append(numbered(2, 3), long)
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(0, 5))


def test_starting_anew_leaves_no_old_note_that_counts_the_new_rows(tmp_path: Path) -> None:
    opened(tmp_path / "rows").append(numbered(1, 3))
    other = Kept(tmp_path / "rows", np.float32, (2 * WIDTH,))
    with no_file_longer_than(10 * ROW), pytest.raises(DiskError):  # as good as killed before the note
        other.append(np.zeros((3, 2 * WIDTH)), {"at": "x" * 20 * ROW})
    old = opened(tmp_path / "rows")
    np.testing.assert_array_equal(old.array(), numbered(1, old.rows))


MAY_NOT = """
import os, sys
from pathlib import Path
import numpy as np
from anneal.errors import DiskError
from anneal.archive.pixels import Kept, write_text
os.chdir(sys.argv[1])
if os.geteuid() == 0:  # permission bits do not bite root: be nobody
    os.setegid(65534)
    os.seteuid(65534)
for attempt in (
    lambda: Kept(Path("rows"), np.int64, (1,)).append(np.zeros((1, 1))),
    lambda: write_text(Path("text"), "new"),
):
    try:
        attempt()
    except DiskError as error:
        print(error)
"""


def test_a_folder_that_may_not_be_written_is_said_in_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "text").write_text("old")
    folder.chmod(0o555)
    try:
        command = [sys.executable, "-c", MAY_NOT, str(folder)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    finally:
        folder.chmod(0o755)
    assert said == [". may not be written. Choose another folder or change its rights."] * 2
    assert [(file.name, file.read_text()) for file in folder.iterdir()] == [("text", "old")]


def test_a_file_where_a_folder_should_be_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(AnnealError, match="file"):
        opened(tmp_path / "file" / "rows").append(numbered(0, 1))
    with pytest.raises(AnnealError, match="file"):
        write_text(tmp_path / "file" / "text", "new")
    assert (tmp_path / "file").read_text() == "mine"


# -- write_text ------------------------------------------------------------------------------------


def test_text_replaces_what_was_there_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "text.json"
    write_text(path, "a long first text")
    write_text(path, "λ ≥ 3\n")
    assert path.read_bytes() == "λ ≥ 3\n".encode()
    assert [file.name for file in path.parent.iterdir()] == ["text.json"]


def test_a_refused_text_leaves_the_old_one_and_nothing_beside_it(tmp_path: Path) -> None:
    write_text(tmp_path / "text", "old")
    with no_file_longer_than(1000), pytest.raises(DiskError, match="The disk is full"):
        write_text(tmp_path / "text", "new" * 1000)
    assert (tmp_path / "text").read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["text"]


WRITE_FOR_EVER = """
import json, sys
from itertools import count
from pathlib import Path
from anneal.archive.pixels import write_text
for number in count():
    write_text(Path(sys.argv[1]), json.dumps([number] * 30000))
    if not number:
        print("written", flush=True)
"""


def test_a_text_is_whole_whenever_it_is_read_and_after_its_writer_was_killed(
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
