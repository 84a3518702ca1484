"""Growing arrays: appended rows are there after a kill and after a full disk."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anneal.archive.pixels import GrowingArray
from anneal.errors import AnnealError, DiskError
from full_disk import no_file_over

WIDTH = 500
ROW = 8 * WIDTH  # bytes


def numbered(start: int, count: int) -> NDArray[np.int64]:
    """Rows of consecutive numbers, so that each value tells its place."""
    return np.arange(start * WIDTH, (start + count) * WIDTH).reshape(count, WIDTH)


def opened(path: Path) -> GrowingArray:
    return GrowingArray(path, np.int64, (WIDTH,))


# -- rows -------------------------------------------------------------------------------------------


def test_rows_come_back_in_the_order_they_were_appended(tmp_path: Path) -> None:
    growing = opened(tmp_path / "deep" / "rows")
    for start, count in ((0, 2), (2, 1), (3, 4)):
        growing.append(numbered(start, count))
    assert growing.rows == 7
    np.testing.assert_array_equal(growing.array(), numbered(0, 7))
    again = opened(tmp_path / "deep" / "rows")
    assert again.rows == 7
    np.testing.assert_array_equal(again.array(), numbered(0, 7))


def test_before_the_first_row_there_is_an_empty_array_and_no_file(tmp_path: Path) -> None:
    growing = GrowingArray(tmp_path / "rows", np.float16, (2, 3))
    assert (growing.rows, growing.complete, growing.note) == (0, False, {})
    assert (growing.array().shape, growing.array().dtype.name) == ((0, 2, 3), "float16")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_append_keeps_its_note_and_no_row(tmp_path: Path) -> None:
    opened(tmp_path / "rows").append(numbered(0, 0), {"skipped": 3})
    again = opened(tmp_path / "rows")
    assert (again.rows, again.note) == (0, {"skipped": 3})
    again.append(numbered(0, 2))
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(0, 2))


def test_a_reopened_array_continues_where_it_stopped(tmp_path: Path) -> None:
    for start in range(5):
        growing = opened(tmp_path / "rows")
        assert growing.rows == start
        growing.append(numbered(start, 1))
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(0, 5))


def test_note_and_completeness_are_saved(tmp_path: Path) -> None:
    growing = opened(tmp_path / "rows")
    growing.append(numbered(0, 1), {"names": ["á", "b"]})
    growing.append(numbered(1, 1))  # without a note the last one stays
    again = opened(tmp_path / "rows")
    assert (again.note, again.complete) == ({"names": ["á", "b"]}, False)
    again.finish({"names": ["c"]})
    last = opened(tmp_path / "rows")
    assert (last.note, last.complete, last.rows) == ({"names": ["c"]}, True, 2)


def test_a_cleared_array_starts_at_the_first_row(tmp_path: Path) -> None:
    growing = opened(tmp_path / "rows")
    growing.append(numbered(0, 3), {"old": True})
    growing.finish()
    growing.clear()
    assert (growing.rows, growing.complete, growing.note) == (0, False, {})
    assert opened(tmp_path / "rows").rows == 0
    growing.append(numbered(5, 1))
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(5, 1))


def test_the_array_is_read_only_and_of_the_asked_type(tmp_path: Path) -> None:
    growing = GrowingArray(tmp_path / "rows", np.float32, (2,))
    growing.append(np.array([[1, 2]], dtype=np.int64))
    array = growing.array()
    assert array.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 9


def test_rows_of_another_shape_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    growing = opened(tmp_path / "rows")
    with pytest.raises(AssertionError, match="rows of"):
        growing.append(np.zeros((1, WIDTH + 1)))
    assert (growing.rows, list(tmp_path.iterdir())) == (0, [])


@pytest.mark.parametrize(("dtype", "row"), [(np.int32, (WIDTH,)), (np.int64, (WIDTH, 1)), (np.int64, (2,))])
def test_another_type_or_shape_starts_empty(tmp_path: Path, dtype: type, row: tuple[int, ...]) -> None:
    growing = opened(tmp_path / "rows")
    growing.append(numbered(0, 3), {"old": True})
    growing.finish()
    other = GrowingArray(tmp_path / "rows", dtype, row)
    assert (other.rows, other.complete, other.note) == (0, False, {})
    other.append(np.full((1, *row), 5))
    again = GrowingArray(tmp_path / "rows", dtype, row)
    np.testing.assert_array_equal(again.array(), np.full((1, *row), 5))
    assert opened(tmp_path / "rows").rows == 0  # the old rows are gone


@pytest.mark.parametrize("note", ["", '{"rows": 3', "[]", "null", "{}", '{"rows": 3}'])
def test_a_damaged_note_starts_empty(tmp_path: Path, note: str) -> None:
    opened(tmp_path / "rows").append(numbered(0, 3))
    (tmp_path / "rows.json").write_text(note, encoding="utf-8")
    growing = opened(tmp_path / "rows")
    assert growing.rows == 0
    growing.append(numbered(0, 1))
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(0, 1))


def test_bytes_after_the_counted_rows_do_not_count(tmp_path: Path) -> None:
    """A writer killed between its rows and its note leaves such bytes."""
    opened(tmp_path / "rows").append(numbered(0, 2))
    with (tmp_path / "rows.bin").open("ab") as file:
        file.write(b"\xff" * (3 * ROW + 5))
    growing = opened(tmp_path / "rows")
    np.testing.assert_array_equal(growing.array(), numbered(0, 2))
    growing.append(numbered(2, 1))
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(0, 3))


# -- killed writers ---------------------------------------------------------------------------------


APPEND_FOR_EVER = """
import sys
from pathlib import Path
import numpy as np
from anneal.archive.pixels import GrowingArray
width = int(sys.argv[2])
growing = GrowingArray(Path(sys.argv[1]), np.int64, (width,))
print(growing.rows, flush=True)
while True:
    start, count = growing.rows, 1 + growing.rows % 60
    rows = np.arange(start * width, (start + count) * width).reshape(count, width)
    growing.append(rows, {"after": start + count})
    print(growing.rows, flush=True)
"""


def test_a_killed_writer_loses_no_row_it_had_appended(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "rows"
    before = 0
    for _ in range(6):
        command = [sys.executable, "-c", APPEND_FOR_EVER, str(path), str(WIDTH)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert int(writer.stdout.readline()) == before  # it continues where the last one was killed
            time.sleep(rng.uniform(0.005, 0.03))
            writer.kill()
            reports = [int(line) for line in writer.stdout.read().split("\n")[:-1]]  # whole lines only
        growing = opened(path)
        assert growing.rows >= max(reports, default=before)
        np.testing.assert_array_equal(growing.array(), numbered(0, growing.rows))
        if growing.rows:
            assert growing.note == {"after": growing.rows}
        before = growing.rows
    assert before > 0


# -- the disk refuses -------------------------------------------------------------------------------


def test_a_full_disk_is_a_clear_error_and_the_append_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "rows.bin").symlink_to("/dev/full")
    growing = opened(tmp_path / "rows")
    with pytest.raises(DiskError, match=r"^The disk is full: .* Free some space and run") as refused:
        growing.append(numbered(0, 2))
    assert str(tmp_path) in str(refused.value)
    assert (growing.rows, opened(tmp_path / "rows").rows) == (0, 0)
    (tmp_path / "rows.bin").unlink()
    growing.append(numbered(0, 2))
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(0, 2))


def test_rows_from_before_the_full_disk_are_kept(tmp_path: Path) -> None:
    growing = opened(tmp_path / "rows")
    with no_file_over(10 * ROW + 17):
        for start in (0, 3, 6):
            growing.append(numbered(start, 3), {"after": start + 3})
        with pytest.raises(DiskError, match="The disk is full"):  # room for one of three rows
            growing.append(numbered(9, 3), {"after": 12})
    for array in (growing, opened(tmp_path / "rows")):
        assert (array.rows, array.note) == (9, {"after": 9})
        np.testing.assert_array_equal(array.array(), numbered(0, 9))
    growing.append(numbered(9, 3))  # there is room again
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(0, 12))


def test_an_append_whose_note_is_refused_adds_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    growing = opened(tmp_path / "rows")
    long = {"at": "x" * 20 * ROW}
    growing.append(numbered(0, 2), {"at": 2})
    with no_file_over(10 * ROW), pytest.raises(DiskError, match="The disk is full"):
        growing.append(numbered(2, 3), long)
    assert opened(tmp_path / "rows").rows == 2
    assert (growing.rows, growing.note) == (2, {"at": 2})
    growing.append(numbered(2, 3), long)
    np.testing.assert_array_equal(opened(tmp_path / "rows").array(), numbered(0, 5))


def test_an_old_note_never_counts_new_rows(tmp_path: Path) -> None:
    opened(tmp_path / "rows").append(numbered(1, 3))
    other = GrowingArray(tmp_path / "rows", np.float32, (2 * WIDTH,))
    with no_file_over(10 * ROW), pytest.raises(DiskError):  # the note is not written
        other.append(np.zeros((3, 2 * WIDTH)), {"at": "x" * 20 * ROW})
    old = opened(tmp_path / "rows")
    np.testing.assert_array_equal(old.array(), numbered(1, old.rows))


def test_a_file_in_place_of_the_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(AnnealError, match="file"):
        opened(tmp_path / "file" / "rows").append(numbered(0, 1))
    assert (tmp_path / "file").read_text() == "mine"
