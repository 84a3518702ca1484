"""Archives: which files become images, which ids they get, and what is kept of them."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from samples import PX, bands, encoded, noise, put, raster, resized

from anneal.archive import safely
from anneal.archive.catalog import Archive, Entry, open_archive, reopen, scan
from anneal.archive.pixels import GrowingArray
from anneal.archive.reading import Reading
from anneal.errors import AnnealError, ArchiveError, UsageError

FIXTURES = Path(__file__).parents[1] / "fixtures"


def assert_same(one: Archive, other: Archive) -> None:
    for column in ("paths", "labels", "splits", "digests", "skipped"):
        assert getattr(one, column) == getattr(other, column), column
    np.testing.assert_array_equal(one.pixels, other.pixels)


# -- which files ------------------------------------------------------------------------------------


def test_a_folder_is_scanned_recursively_in_the_order_of_paths(tmp_path: Path) -> None:
    names = ["b/z.png", "a/2.jpg", "top.tif", "a/deep/er/1.PNG", "a/10.jpeg"]
    for seed, name in enumerate(names):
        put(tmp_path / "in" / name, seed)
    (tmp_path / "in" / "a" / "notes.txt").write_text("no image")
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    assert archive.paths == ("a/10.jpeg", "a/2.jpg", "a/deep/er/1.PNG", "b/z.png", "top.tif")
    assert archive.labels == ("a", "a", "a", "b", "")  # the first folder below the root, if any
    assert archive.splits == ("",) * 5
    assert archive.classes.tolist() == [0, 0, 0, 1, -1]
    assert (len(archive), archive.px, archive.skipped) == (5, PX, ())


def test_hidden_files_and_folders_are_ignored(tmp_path: Path) -> None:
    for name in ("a/seen.png", "a/.hidden.png", ".git/x.png", "a/.thumbs/y.png", "._z.png"):
        put(tmp_path / name)
    assert scan(tmp_path) == (tmp_path, [Entry("a/seen.png", "a")])


def test_a_source_that_is_missing_or_has_no_image_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere does not exist: give a folder"):
        scan(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("no image")
    with pytest.raises(UsageError, match=r"empty holds no image file \(.*\.tif"):
        scan(tmp_path / "empty")


@pytest.mark.parametrize("px", [-1, 0, 7, 2049])
def test_a_size_out_of_range_is_a_usage_error(tmp_path: Path, px: int) -> None:
    put(tmp_path / "in" / "a.png")
    with pytest.raises(UsageError, match=f"--px {px} is not a size"):
        open_archive(tmp_path / "in", px, tmp_path / "cache")


# -- manifests --------------------------------------------------------------------------------------


def listed(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    """A manifest beside three images."""
    for seed, name in enumerate(("a.png", "b.png", "sub/c.png")):
        put(folder / name, seed)
    (folder / "list.csv").write_bytes(text.encode(encoding))
    return folder / "list.csv"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_manifest_gives_order_classes_and_splits(tmp_path: Path, encoding: str, newline: str) -> None:
    lines = ["path,class,split", "sub/c.png,Äcker,train", 'a.png,"b, c",test', "b.png,,", ""]
    archive = open_archive(listed(tmp_path, newline.join(lines), encoding), PX, tmp_path / "cache")
    assert archive.root == tmp_path
    assert archive.paths == ("sub/c.png", "a.png", "b.png")
    assert archive.labels == ("Äcker", "b, c", "")
    assert archive.splits == ("train", "test", "")
    np.testing.assert_array_equal(archive.pixels[0], resized(tmp_path / "sub" / "c.png", PX))


def test_a_manifest_needs_only_the_column_path(tmp_path: Path) -> None:
    source = listed(tmp_path, f"size,path\n3,b.png\n4,{tmp_path}/sub/c.png\n")
    assert scan(source)[1] == [Entry("b.png"), Entry(f"{tmp_path}/sub/c.png")]
    archive = open_archive(source, PX, tmp_path / "cache")
    assert (len(archive), archive.skipped) == (2, ())
    assert archive.find(tmp_path / "sub" / "c.png") == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no column 'path': a manifest is"),
        ("file,class\na.png,x\n", "has no column 'path': a manifest is"),
        ("path;class\na.png;x\n", "has no column 'path': a manifest is"),
        ("path,class\n", "lists no image"),
        ("path\na.png\nb.png\na.png\n", "lists a.png twice"),
        (
            "path,split\na.png,train\nb.png,training\n",
            "gives b.png the split 'training': use train, val, test",
        ),
    ],
)
def test_a_wrong_manifest_is_a_usage_error(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=f"list.csv {sentence}"):
        scan(listed(tmp_path, text))


@pytest.mark.parametrize("text", ["class,path\nx,a.png\ny\n", "path,class\na.png,x\n,y\n"])
def test_a_manifest_line_without_a_path_is_a_usage_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="has a line without a path"):
        scan(listed(tmp_path, text))


def test_a_manifest_that_is_not_utf8_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"list\.csv"):
        scan(listed(tmp_path, "path,class\na.png,Äcker\n", "latin-1"))
    with pytest.raises(UsageError, match=r"a\.png"):  # an image instead of a manifest
        scan(tmp_path / "a.png")


def test_a_listed_file_that_is_not_there_is_skipped_and_named(tmp_path: Path) -> None:
    archive = open_archive(listed(tmp_path, "path\ngone.png\nb.png\n"), PX, tmp_path / "cache")
    assert archive.paths == ("b.png",)
    ((path, reason),) = archive.skipped
    assert path == "gone.png"
    assert "No such file" in reason


# -- pixels -----------------------------------------------------------------------------------------


def test_pixels_are_what_pillow_decodes_and_resizes(drawn: Path, tmp_path: Path) -> None:
    for file in drawn.glob("*/*_000.jpg"):
        shutil.copy(file, tmp_path / file.name)
    Image.fromarray(noise(7, 256)).resize((500, 256)).save(tmp_path / "wide.png")
    archive = open_archive(tmp_path, 224, tmp_path / "cache", reading=Reading(fit="squash"))
    assert (archive.pixels.shape, archive.pixels.dtype.name) == ((9, 224, 224, 3), "uint8")
    for i, path in enumerate(archive.paths):
        np.testing.assert_array_equal(archive.pixels[i], resized(tmp_path / path, 224), err_msg=path)


def test_reading_reports_its_progress(drawn: Path, tmp_path: Path) -> None:
    reports: list[tuple[int, int]] = []
    open_archive(drawn, PX, tmp_path, lambda done, total: reports.append((done, total)))
    assert reports == [(120, 120)]


def test_ids_do_not_depend_on_the_number_of_threads(drawn: Path, tmp_path: Path) -> None:
    one = open_archive(drawn, PX, tmp_path / "one", workers=1)
    assert_same(one, open_archive(drawn, PX, tmp_path / "many", workers=7))
    assert_same(one, open_archive(drawn, PX, tmp_path / "one"))
    assert_same(one, reopen(drawn, one.folder, PX))


def test_a_second_open_decodes_nothing(tmp_path: Path) -> None:
    """The file gets other pixels but keeps its size and time: only a decoder sees the difference."""
    file = tmp_path / "in" / "a.bmp"
    put(file, 1)
    first = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    before = file.stat()
    kept = first.folder / "pixels.bin"
    written = kept.stat().st_mtime_ns
    put(file, 2)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert_same(first, open_archive(tmp_path / "in", PX, tmp_path / "cache"))
    assert kept.stat().st_mtime_ns == written


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.png", 1)
    put(tmp_path / "in" / "b.png", 2)
    first = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    stat = put(tmp_path / "in" / "b.png", 3).stat()
    os.utime(tmp_path / "in" / "b.png", ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    second = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    assert second.folder != first.folder
    np.testing.assert_array_equal(second.pixels[1], resized(tmp_path / "in" / "b.png", PX))
    assert second.digests[0] == first.digests[0]
    assert second.digests[1] != first.digests[1]


def test_another_file_another_size_and_another_class_are_read_again(tmp_path: Path) -> None:
    source = listed(tmp_path, "path,class\na.png,x\n")
    first = open_archive(source, PX, tmp_path / "cache")
    assert open_archive(source, 8, tmp_path / "cache").pixels.shape == (1, 8, 8, 3)
    source.write_text("path,class\na.png,y\n")
    assert open_archive(source, PX, tmp_path / "cache").labels == ("y",)
    source.write_text("path,class\na.png,x\nb.png,y\n")
    assert open_archive(source, PX, tmp_path / "cache").paths == ("a.png", "b.png")
    assert reopen(tmp_path, first.folder, PX).paths == ("a.png",)


def test_the_folder_may_be_removed_after_it_is_read(tmp_path: Path) -> None:
    put(tmp_path / "in" / "x" / "a.png", 1)
    put(tmp_path / "in" / "x" / "b.png", 2)
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    pixels = archive.pixels.copy()
    assert archive.missing() == []
    (tmp_path / "in" / "x" / "b.png").unlink()
    assert archive.missing() == ["x/b.png"]
    shutil.rmtree(tmp_path / "in")
    again = reopen(tmp_path / "in", archive.folder, PX)
    assert_same(again, archive)
    np.testing.assert_array_equal(again.pixels, pixels)
    assert again.missing() == ["x/a.png", "x/b.png"]


def test_pixels_cannot_be_written_to(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.png")
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    with pytest.raises(ValueError, match="read-only"):
        archive.pixels[0, 0, 0, 0] = 1


def spoil(folder: Path, how: str) -> None:
    if how == "all gone":
        shutil.rmtree(folder)
    elif how == "pixels gone":
        (folder / "pixels.bin").unlink()
    elif how == "list gone":
        (folder / "pixels.jsonl").unlink()
    elif how == "list cut short":
        os.truncate(folder / "pixels.jsonl", 3)
    else:
        os.truncate(folder / "pixels.bin", PX * PX)


@pytest.mark.parametrize(
    "how", ["all gone", "pixels gone", "pixels cut short", "list gone", "list cut short"]
)
def test_damaged_pixels_are_an_error_on_reopening_and_are_read_again_on_opening(
    tmp_path: Path, how: str
) -> None:
    put(tmp_path / "in" / "a.png")
    folder = open_archive(tmp_path / "in", PX, tmp_path / "cache").folder
    spoil(folder, how)
    with pytest.raises(ArchiveError, match=f"{folder.name} are gone or incomplete"):
        reopen(tmp_path / "in", folder, PX)
    again = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    np.testing.assert_array_equal(again.pixels[0], resized(tmp_path / "in" / "a.png", PX))


# -- one image --------------------------------------------------------------------------------------


def test_an_image_is_found_by_every_path_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, name in enumerate(("x/a.png", "x/b.png", "y/a.png")):
        put(tmp_path / "in" / name, seed)
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    assert archive.find(tmp_path / "in" / "x" / "b.png") == 1
    assert archive.find(Path("x/b.png")) == 1
    assert archive.find(tmp_path / "in" / "x" / ".." / "y" / "a.png") == 2
    monkeypatch.chdir(tmp_path / "in" / "y")
    assert archive.find(Path("a.png")) == 2
    (tmp_path / "way").symlink_to(tmp_path / "in")
    assert archive.find(tmp_path / "way" / "x" / "a.png") == 0
    (tmp_path / "other.png").symlink_to(tmp_path / "in" / "x" / "b.png")
    assert archive.find(tmp_path / "other.png") == 1


def test_a_file_outside_the_archive_is_not_found(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.png")
    put(tmp_path / "in" / ".b.png")
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    outside = (tmp_path / "a.png", Path("b.png"), tmp_path / "in" / ".b.png", Path("/"), Path("."))
    assert [archive.find(path) for path in outside] == [None] * 5


def test_a_linked_image_is_found_by_its_own_path(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere.png")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link.png").symlink_to(tmp_path / "elsewhere.png")
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    assert archive.find(Path("link.png")) == 0
    assert archive.find(tmp_path / "in" / "link.png") == 0


def test_an_image_listed_with_a_leading_dot_is_found(tmp_path: Path) -> None:
    """As ``find . -name '*.png'`` writes it."""
    archive = open_archive(listed(tmp_path, "path\n./a.png\n./sub/c.png\n"), PX, tmp_path / "cache")
    assert archive.find(tmp_path / "sub" / "c.png") == 1
    assert archive.find(Path("sub/c.png")) == 1


def test_files_of_the_same_content_are_duplicates(tmp_path: Path) -> None:
    for seed, name in enumerate(("a.png", "b.png", "c.png", "d.png")):
        put(tmp_path / "in" / name, seed)
    shutil.copy(tmp_path / "in" / "b.png", tmp_path / "in" / "z1.png")
    shutil.copy(tmp_path / "in" / "a.png", tmp_path / "in" / "z2.png")
    shutil.copy(tmp_path / "in" / "b.png", tmp_path / "in" / "z3.png")
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    assert archive.duplicates == [[0, 5], [1, 4, 6]]


def test_a_picture_is_the_file_in_its_own_proportions(tmp_path: Path) -> None:
    wide = np.repeat(np.arange(0, 240, dtype=np.uint8)[None], 60, axis=0)[..., None].repeat(3, axis=2)
    (tmp_path / "in").mkdir()
    Image.fromarray(wide).save(tmp_path / "in" / "wide.png")
    Image.fromarray(wide.swapaxes(0, 1)).save(tmp_path / "in" / "high.png")
    (tmp_path / "in" / "deep.tif").write_bytes(raster(wide[None, ..., 0].astype(np.uint16) * 100))
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    deep, high, wider = (archive.picture(i, 120) for i in range(3))
    assert (wider.shape, high.shape, deep.shape) == ((30, 120, 3), (120, 30, 3), (30, 120, 3))
    assert {picture.dtype.name for picture in (deep, high, wider)} == {"uint8"}
    np.testing.assert_array_equal(archive.picture(2, 1000), wide)
    for picture in (deep, high.swapaxes(0, 1), wider):  # bright on the right
        assert (np.diff(picture[15, ::10, 0].astype(int)) > 0).all()


@pytest.mark.parametrize("damage", ["gone", "spoilt"])
def test_a_file_that_can_no_longer_be_read_is_named(tmp_path: Path, damage: str) -> None:
    path = put(tmp_path / "in" / "a.png")
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"no image")
    with pytest.raises(ArchiveError, match=r"a\.png can no longer be read"):
        archive.picture(0, 500)


# -- files that cannot be read ----------------------------------------------------------------------


def test_unreadable_files_are_named_and_skipped_and_the_others_keep_their_order(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for seed, name in enumerate(("a.png", "c.png", "e.png")):
        put(folder / name, seed)
    whole = encoded(Image.fromarray(noise(9, 64)), "JPEG")
    (folder / "b.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "d1.jpg").write_text("not an image at all")
    (folder / "d2.png").write_bytes(b"")
    (folder / "d3.tif").write_bytes(b"II*\0" + bytes(50))
    (folder / "d4.png").symlink_to(tmp_path / "gone.png")
    archive = open_archive(folder, PX, tmp_path / "cache")
    assert archive.paths == ("a.png", "c.png", "e.png")
    for i, path in enumerate(archive.paths):
        np.testing.assert_array_equal(archive.pixels[i], resized(folder / path, PX))
    reasons = dict(archive.skipped)
    assert list(reasons) == ["b.jpg", "d1.jpg", "d2.png", "d3.tif", "d4.png"]
    assert "truncated" in reasons["b.jpg"]
    assert reasons["d1.jpg"] == reasons["d2.png"] == "not an image that can be read"
    assert reasons["d3.tif"].startswith("not a raster that can be read")
    assert "No such file" in reasons["d4.png"]
    assert all("\n" not in reason for reason in reasons.values())


def test_a_folder_without_a_readable_file_is_an_archive_error_each_time(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / name).write_text("no")
    for _ in range(2):
        with pytest.raises(
            ArchiveError, match=r"None of the files in .*a\.jpg: not an image that can be read"
        ):
            open_archive(tmp_path, PX, tmp_path / "cache")


def test_a_file_that_needs_rasterio_is_read_after_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason says what to install, so installing it must help."""
    put(tmp_path / "in" / "a.png")
    (tmp_path / "in" / "b.tif").write_bytes(raster(bands(4, np.uint16, 500, 3000)))
    with monkeypatch.context() as without:
        without.setattr(safely, "inside", True)  # the patch is of this process
        without.setitem(sys.modules, "rasterio", None)
        with pytest.raises(UsageError, match=r"1 of 2 files need rasterio, for example b.tif: pip install"):
            open_archive(tmp_path / "in", PX, tmp_path / "cache")
        archive = open_archive(tmp_path / "in", PX, tmp_path / "cache", skip_unreadable=True)
    ((path, reason),) = archive.skipped
    assert path == "b.tif"
    assert "pip install 'anneal[geo]'" in reason
    assert open_archive(tmp_path / "in", PX, tmp_path / "cache").paths == ("a.png", "b.tif")


@pytest.mark.parametrize("side", [40, 60])  # past 1000 pixels Pillow warns, past 2000 it refuses
def test_an_image_past_pillows_bomb_limit_does_not_stop_the_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: int
) -> None:
    put(tmp_path / "in" / "a.png", 1)
    Image.fromarray(noise(2, side)).save(tmp_path / "in" / "b.png")
    put(tmp_path / "in" / "c.png", 3)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    archive = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    if side == 40:
        assert (archive.paths, archive.skipped) == (("a.png", "b.png", "c.png"), ())
    else:
        assert archive.paths == ("a.png", "c.png")
        assert [path for path, _ in archive.skipped] == ["b.png"]


# -- the list of files ------------------------------------------------------------------------------


def test_an_archive_read_by_version_2_opens_as_it_was() -> None:
    """Its list of files is in the note of the pixels."""
    (folder,) = (FIXTURES / "version-2" / "mgue" / "cache").iterdir()
    assert not (folder / "pixels.jsonl").exists()
    note = json.loads((folder / "pixels.json").read_text(encoding="utf-8"))["note"]
    archive = reopen(Path("gone"), folder, PX)
    columns = zip(archive.paths, archive.labels, archive.splits, archive.digests, strict=True)
    assert [list(row) for row in columns] == note["images"]
    assert len(archive) == len(archive.pixels) == 48


def test_an_unfinished_read_of_version_2_is_read_again(tmp_path: Path) -> None:
    for seed in range(3):
        put(tmp_path / "in" / f"{seed}.png", seed)
    whole = open_archive(tmp_path / "in", PX, tmp_path / "cache")
    folder = whole.folder
    (folder / "pixels.jsonl").unlink()
    old = GrowingArray(folder / "pixels", np.uint8, (PX, PX, 3))
    old.append(noise(9, PX)[None], {"images": [["0.png", "", "", "x"]], "skipped": []})
    assert_same(open_archive(tmp_path / "in", PX, tmp_path / "cache"), whole)


def test_the_note_stays_small_and_the_list_is_written_once(many: Path, tmp_path: Path) -> None:
    """Else reading a million files would write the list four thousand times."""
    lengths = []

    def look(done: int, total: int) -> None:
        (folder,) = tmp_path.iterdir()
        lengths.append(((folder / "pixels.jsonl").stat().st_size, (folder / "pixels.json").stat().st_size))

    archive = open_archive(many, PX, tmp_path, look)
    lists, notes = zip(*lengths, strict=True)
    assert sorted(lists) == list(lists)
    assert max(notes) < 200
    lines = (archive.folder / "pixels.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 800
    assert json.loads(lines[7 // 2])[0] == "x/006.png"
    assert [json.loads(line)[4] for line in lines if not json.loads(line)[3]] == [
        "not an image that can be read"
    ] * 16


@pytest.mark.parametrize("left", ['["half a li', '["x/1.png", "x", "", "d", ""]\n' * 300])
def test_lines_of_a_killed_reader_do_not_count(many: Path, tmp_path: Path, left: str) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_archive(many, PX, tmp_path / "stopped", stop)
    (folder,) = (tmp_path / "stopped").iterdir()
    with (folder / "pixels.jsonl").open("a", encoding="utf-8") as lines:
        lines.write(left)
    resumed = open_archive(many, PX, tmp_path / "stopped")
    assert_same(resumed, open_archive(many, PX, tmp_path / "undisturbed"))
    assert len((folder / "pixels.jsonl").read_text(encoding="utf-8").splitlines()) == 800


# -- killed readers and two readers -----------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """800 files in two classes, every 50th unreadable: four batches."""
    folder = tmp_path_factory.mktemp("many")
    contents = [encoded(Image.fromarray(noise(seed, 96)), "PNG") for seed in range(17)]
    for i in range(800):
        path = folder / "xy"[i % 2] / f"{i:03}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"no image" if i % 50 == 7 else contents[i % 17])
    return folder


READ = """
import sys
from pathlib import Path
from anneal.archive.catalog import open_archive
tell = lambda done, total: print(done, flush=True)
open_archive(Path(sys.argv[1]), 32, Path(sys.argv[2]), tell, workers=1)
"""


def test_a_killed_read_continues_and_ends_with_the_same_archive(
    many: Path, tmp_path: Path, rng: np.random.Generator
) -> None:
    reports: list[list[int]] = []
    for _ in range(2):
        command = [sys.executable, "-c", READ, str(many), str(tmp_path / "killed")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            first = int(reader.stdout.readline())
            time.sleep(rng.uniform(0, 0.02))
            reader.kill()
            reports.append([first, *map(int, reader.stdout.read().split("\n")[:-1])])
    assert reports[0][0] == 256
    assert all(later[0] > earlier[-1] for earlier, later in pairwise(reports))
    resumed = open_archive(many, PX, tmp_path / "killed")
    undisturbed = open_archive(many, PX, tmp_path / "undisturbed")
    assert_same(resumed, undisturbed)
    assert (len(resumed), len(resumed.skipped)) == (784, 16)
    assert len(resumed.duplicates) == 17


READ_AND_WATCH = """
import sys
from pathlib import Path
from select import select
import numpy as np
from anneal.archive.catalog import open_archive
sys.stdin.readline()
pixels = open_archive(Path(sys.argv[1]), 32, Path(sys.argv[2])).pixels
before = np.array(pixels)
print("read", flush=True)
while not select([sys.stdin], [], [], 0)[0]:  # until stdin is closed
    assert np.array_equal(pixels, before), "the other reader changed these pixels"
"""


def test_two_readers_of_one_folder_keep_each_others_pixels(many: Path, tmp_path: Path) -> None:
    """Two commands start at once on one archive. The first stops in the middle."""
    slow, quick = (
        subprocess.Popen(
            [sys.executable, "-c", script, str(many), str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for script in (READ, READ_AND_WATCH)
    )
    with slow, quick:
        assert slow.stdout is not None
        assert quick.stdout is not None
        assert quick.stdin is not None
        assert slow.stdout.readline() == "256\n"
        slow.send_signal(signal.SIGSTOP)
        quick.stdin.write("go\n")
        quick.stdin.flush()
        select.select([quick.stdout], [], [], 1)  # it may read, or wait for the first
        slow.send_signal(signal.SIGCONT)
        slow.communicate()
        quick.communicate()
    assert (slow.returncode, quick.returncode) == (0, 0)
    assert_same(open_archive(many, PX, tmp_path), open_archive(many, PX, tmp_path / "alone"))


def test_a_cache_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.png")
    (tmp_path / "cache").write_text("mine")
    with pytest.raises(AnnealError, match="cache"):
        open_archive(tmp_path / "in", PX, tmp_path / "cache")
