"""What has happened to an archive: files that are new, changed, moved, gone or back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anneal.archive.catalog import Archive, open_archive, reopen
from anneal.archive.growth import (
    Changes,
    Held,
    Stat,
    compare,
    digest_of,
    held,
    read_new,
    scan_sources,
    stats,
)
from anneal.archive.reading import Reading
from anneal.errors import ArchiveError

SAME = Stat(1, 1)


def after(files: dict[str, str], known: list[Held], noted: dict[str, Stat] | None = None) -> Changes:
    """What is found when these files have these bytes. All are read, unless they are as they were noted."""
    return compare(known, [], noted or {}, dict.fromkeys(files, SAME), files.__getitem__)


def one(i: int, file: str, digest: str, gone: bool = False) -> Held:
    return Held(file, digest, (i,), gone)


def told(changes: Changes) -> dict[str, object]:
    """What changed, without what was only looked at."""
    fields = ("new", "changed", "moved", "removed", "returned")
    return {name: value for name in fields if (value := getattr(changes, name))}


AB = [one(0, "a", "A"), one(1, "b", "B")]


@pytest.mark.parametrize(
    ("known", "files", "expected"),
    [
        (AB, {"a": "A", "b": "B"}, {}),
        (AB, {"a": "A", "b": "B", "c": "C"}, {"new": ["c"]}),
        (AB, {"a": "A"}, {"removed": [1]}),
        (AB, {"a": "A", "c": "B"}, {"moved": {1: "c"}}),
        (AB, {"a": "A", "b": "X"}, {"changed": [1], "new": ["b"]}),
        (AB, {"a": "B", "b": "A"}, {"moved": {0: "b", 1: "a"}}),  # they have changed places
        (AB, {"a": "A", "b": "B", "c": "B"}, {"new": ["c"]}),  # a copy is an image of its own
        (AB, {"a": "B"}, {"moved": {1: "a"}, "changed": [0]}),
        ([one(0, "a", "A", True)], {"a": "A"}, {"returned": [0]}),
        ([one(0, "a", "A", True)], {"c": "A"}, {"moved": {0: "c"}, "returned": [0]}),
        ([one(0, "a", "A", True), one(1, "a", "B")], {"a": "A"}, {"returned": [0], "changed": [1]}),
        ([one(0, "a", "A", True)], {"b": "A", "a": "A"}, {"returned": [0], "new": ["b"]}),
        ([Held("a", "A", (0, 1), False)], {}, {"removed": [0, 1]}),
    ],
)
def test_what_happened_is_told_by_paths_and_bytes(
    known: list[Held], files: dict[str, str], expected: dict[str, object]
) -> None:
    assert told(after(files, known)) == expected


def test_the_tiles_of_a_file_move_together() -> None:
    tiles = [Held("a.tif", "A", (3, 4), False)]
    places = ["", "", "", "@0,0", "@256,0"]
    changes = compare(tiles, [], {}, {"b.tif": SAME}, {"b.tif": "A"}.__getitem__, places)
    assert told(changes) == {"moved": {3: "b.tif@0,0", 4: "b.tif@256,0"}}


def test_a_file_that_looks_the_same_is_not_read_and_one_that_cannot_be_read_stays() -> None:
    def never(file: str) -> str:
        raise AssertionError(file)

    assert compare(AB, ["c"], dict.fromkeys("abc", SAME), dict.fromkeys("abc", SAME), never) == Changes()
    unreadable = compare(AB, [], {}, dict.fromkeys("ab", SAME), lambda file: "")
    assert unreadable == Changes()  # and nothing is noted of it: it is looked at again


places = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("ABCDE"), max_size=6)


@given(st.lists(places, min_size=2, max_size=5))
def test_after_any_history_each_file_is_one_image_that_counts(history: list[dict[str, str]]) -> None:
    """The changes are carried out as a campaign does it. Ids are never used twice."""
    paths: list[str] = []
    digests: list[str] = []
    gone: set[int] = set()
    for files in history:
        known = [one(i, paths[i], digests[i], i in gone) for i in range(len(paths))]
        changes = after(files, known)
        before = list(digests)
        gone -= {*changes.returned, *changes.moved}
        gone |= {*changes.removed, *changes.changed}
        for i, path in changes.moved.items():
            paths[i] = path
        paths += changes.new
        digests += [files[file] for file in changes.new]
        assert digests[: len(before)] == before  # an id stands for its bytes
        live = {paths[i]: digests[i] for i in range(len(paths)) if i not in gone}
        assert live == files
        assert len(paths) - len(gone) == len(files)
        assert told(after(files, [one(i, paths[i], digests[i], i in gone) for i in range(len(paths))])) == {}
    most = {digest: max(list(files.values()).count(digest) for files in history) for digest in "ABCDE"}
    assert len(paths) == sum(most.values())  # what comes back is no new image


# -- on disk ---------------------------------------------------------------------------------------


@pytest.fixture
def photos(drawn: Path, tmp_path: Path) -> Path:
    """Three kinds of scenes with four images each."""
    for kind in ("forest", "river", "harbour"):
        folder = tmp_path / "photos" / kind
        folder.mkdir(parents=True)
        for file in sorted((drawn / kind).iterdir())[:4]:
            shutil.copy(file, folder)
    return tmp_path / "photos"


def test_sources_are_scanned_as_files_of_one_archive(photos: Path, tmp_path: Path) -> None:
    outside = Path(shutil.copytree(photos / "river", tmp_path / "more" / "kind"))
    own = photos / "campaign"
    shutil.copytree(photos / "forest", own / "cache")
    scanned = scan_sources(photos, [".", "river", str(outside.parent)], Reading(), own)
    files = {entry.path: entry.label for entries in scanned.values() for entry in entries}
    inside = {path.relative_to(photos).as_posix() for path in photos.glob("[!c]*/*.*")}
    assert set(files) == inside | {path.as_posix() for path in outside.iterdir()}
    assert files[sorted(outside.iterdir())[0].as_posix()] == "kind"
    assert {files[path] for path in inside} == {"forest", "river", "harbour"}
    assert all(len(entries) == 1 for entries in scanned.values())
    with pytest.raises(ArchiveError, match="is gone: put it back"):
        scan_sources(photos, ["nowhere"], Reading(), own)


def test_images_are_appended_and_the_others_stay(photos: Path, tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    shutil.move(photos / "river", aside)
    archive = open_archive(photos, 32, tmp_path / "cache")
    pixels = np.array(archive.pixels)
    assert len(archive) == 8
    shutil.move(aside, photos / "river")
    (photos / "river" / "broken.png").write_bytes(b"no image")
    changes = look(archive)
    assert sorted(changes.new) == sorted(f"river/{path.name}" for path in (photos / "river").iterdir())
    scanned = scan_sources(photos, ["."], Reading(), tmp_path / "nowhere")
    read_new(archive, [entry for file in changes.new for entry in scanned[file]])
    grown = reopen(photos, archive.folder, 32)
    assert grown.paths == (*archive.paths, *(file for file in changes.new if "broken" not in file))
    np.testing.assert_array_equal(grown.pixels[:8], pixels)
    whole = open_archive(photos, 32, tmp_path / "whole")
    for i, path in enumerate(grown.paths):
        at = whole.paths.index(path)
        np.testing.assert_array_equal(grown.pixels[i], whole.pixels[at])
        assert (grown.digests[i], grown.labels[i]) == (whole.digests[at], whole.labels[at])
    assert [path for path, _ in grown.skipped] == ["river/broken.png"]
    assert told(look(grown, stats(photos, ["river/broken.png"]))) == {}
    first = reopen(photos, archive.folder, 32, 8)
    assert first.paths == archive.paths
    np.testing.assert_array_equal(first.pixels, pixels)


def look(archive: Archive, noted: dict[str, Stat] | None = None) -> Changes:
    scanned = scan_sources(archive.root, ["."], Reading(), Path("nowhere"))
    unread = [path for path, _ in archive.skipped]
    now = stats(archive.root, scanned)
    return compare(
        held(archive, [], {}), unread, noted or {}, now, lambda file: digest_of(archive.root / file)
    )


def test_a_reader_that_was_killed_leaves_an_archive_that_opens(photos: Path, tmp_path: Path) -> None:
    """The state between two batches: the pixels are marked as incomplete."""
    archive = open_archive(photos, 32, tmp_path / "cache")
    note = archive.folder / "pixels.json"
    note.write_text(note.read_text().replace('"complete": true', '"complete": false'))
    assert reopen(photos, archive.folder, 32, 12).paths == archive.paths
    assert len(reopen(photos, archive.folder, 32, 10, and_more=True)) == 12
    with pytest.raises(ArchiveError, match="incomplete"):
        reopen(photos, archive.folder, 32)
    with pytest.raises(ArchiveError, match="incomplete"):
        reopen(photos, archive.folder, 32, 13)


def test_a_hash_is_that_of_the_catalog_and_empty_without_a_file(photos: Path, tmp_path: Path) -> None:
    archive = open_archive(photos, 32, tmp_path / "cache")
    assert [digest_of(photos / path) for path in archive.paths] == list(archive.digests)
    assert digest_of(photos / "nothing") == ""
    assert stats(photos, ["nothing"]) == {}
    stat = os.stat(photos / archive.paths[0])
    assert stats(photos, archive.paths[:1]) == {archive.paths[0]: (stat.st_size, stat.st_mtime_ns)}
