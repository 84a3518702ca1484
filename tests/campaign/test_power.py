"""Power may go at any moment: see tests/torture/power.py for the model."""

import shutil
from pathlib import Path

import pytest

from anneal import files
from torture import power

pytestmark = pytest.mark.xdist_group("processes")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[tuple[str, str, int]]]:
    """A campaign before the work, after it, and the system calls in between."""
    if not power.is_possible():
        pytest.skip("system calls cannot be recorded here (strace)")
    folder = tmp_path_factory.mktemp("power").resolve()
    campaign = power.make(folder)
    before = Path(shutil.copytree(campaign, folder / "before"))
    return before, campaign, power.recorded(campaign, folder / "trace")


def test_whenever_the_power_goes_the_campaign_opens_and_no_answer_is_lost(
    work: tuple[Path, Path, list[tuple[str, str, int]]], tmp_path: Path
) -> None:
    before, after, calls = work
    assert power.opened_prefixes(before, after, calls, tmp_path / "disk") > 20


def test_the_model_finds_a_missing_sync(
    work: tuple[Path, Path, list[tuple[str, str, int]]], tmp_path: Path
) -> None:
    before, after, calls = work
    folders = [call for call in calls if call[0] == "fsync" and call[1].endswith("/rounds/0000>")]
    assert len(folders) >= 5  # one for each file of a round
    without = [call for call in calls if call not in folders]
    with pytest.raises(AssertionError):
        power.opened_prefixes(before, after, without, tmp_path / "disk")


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    for name in ("file.999999999.tmp", "file.1.tmp", "file.other.tmp", "file2.999999999.tmp"):
        (tmp_path / name).write_text("part")
    files.write_text(tmp_path / "file", "whole")
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == ["file", "file.1.tmp", "file.other.tmp", "file2.999999999.tmp"]  # process 1 runs
