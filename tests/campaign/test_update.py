"""An archive that grows, moves and loses files, under a campaign that goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from tiny import SETTINGS, SHRUNK, answer_truly, pattern_archive

from anneal.archive import growth
from anneal.archive.catalog import open_archive
from anneal.archive.growth import Changes
from anneal.archive.pixels import GrowingArray
from anneal.archive.reading import Reading
from anneal.campaign import duplicates, extend, heldout, progress, turn
from anneal.campaign import update as update_module
from anneal.campaign.campaign import Campaign
from anneal.campaign.inventory import Inventory, Reason, Retired
from anneal.campaign.questions import take
from anneal.campaign.relocate import relocate
from anneal.campaign.rounds import FROZEN
from anneal.campaign.update import Report, add, update
from anneal.errors import AnnealError, UsageError
from anneal.method import estimate
from anneal.method.groups import neighbour_table
from anneal.network import encode
from anneal.network.train import Fit
from anneal.pairs import Pairs
from anneal.search import find_similar

EIGHT = replace(SETTINGS, per_round=8, heldout=0.25)


@pytest.fixture(scope="module")
def patterns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """72 images of six kinds. Copy them."""
    folder = tmp_path_factory.mktemp("patterns")
    pattern_archive(folder, kinds=6, each=12)
    return folder / "images"


@pytest.fixture
def photos(patterns: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(patterns, tmp_path / "photos"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fit, "length", lambda settings, known: 5)


def begun(photos: Path, folder: Path) -> Campaign:
    return turn.begin(folder, open_archive(photos, 32, folder / "cache"), EIGHT, backbone=SHRUNK)


@pytest.fixture
def campaign(photos: Path, tmp_path: Path) -> Iterator[Campaign]:
    """A campaign without the last two images of each kind, which wait in another folder, after one round."""
    for path in sorted(photos.glob("*/1[01].png")):
        aside = tmp_path / "aside" / path.parent.name
        aside.mkdir(parents=True, exist_ok=True)
        path.rename(aside / path.name)
    with closing(begun(photos, tmp_path / "c")) as made:
        answer_truly(made, 8)
        turn.turn(made, SHRUNK)
        yield made


def grow(campaign: Campaign) -> Report:
    return update(campaign, backbone=SHRUNK)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each run of the frozen part encodes, from now on."""
    runs: list[int] = []
    block = encode._block

    def noted(run: Any, pixels: Any, views: int, part: slice) -> Any:
        rows = block(run, pixels, views, part)
        runs.append(len(rows))
        return rows

    monkeypatch.setattr(encode, "_block", noted)
    return runs


def test_new_images_are_appended_and_nothing_else_is_encoded(
    campaign: Campaign, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (campaign.size, campaign.rounds.kept()) == (60, [FROZEN, 0])
    before = [np.array(campaign.rounds.vectors(model)) for model in (FROZEN, 0)]
    paths = campaign.archive().paths
    answers = campaign.log().standing()
    shutil.copytree(tmp_path / "aside", photos, dirs_exist_ok=True)
    runs = counted(monkeypatch)
    assert grow(campaign) == Report(new=12)
    assert sum(runs) == 12
    assert campaign.size == len(campaign.images) == 72
    assert campaign.archive().paths[:60] == paths
    for model, old in zip((FROZEN, 0), before, strict=True):
        vectors = campaign.rounds.vectors(model)
        np.testing.assert_array_equal(vectors[:60], old)
        pixels = np.asarray(campaign.archive().pixels[60:])
        np.testing.assert_allclose(
            vectors[60:], turn.encode_images(campaign, pixels, model, SHRUNK), atol=1e-6
        )
    assert campaign.log().standing() == answers
    assert grow(campaign) == Report()
    assert sum(runs) == 12


def test_one_file_at_a_time_gives_the_same_images_and_vectors_as_all_at_once(
    photos: Path, tmp_path: Path
) -> None:
    files = sorted(photos.glob("kind00/*.png"))
    for file in files[2:]:
        file.rename(tmp_path / file.name)
    with closing(begun(photos, tmp_path / "c")) as campaign:
        for file in files[2:6]:
            (tmp_path / file.name).rename(file)
            assert grow(campaign) == Report(new=1)
        for file in files[6:]:
            (tmp_path / file.name).rename(file)
        grow(campaign)
        paths = campaign.archive().paths
        vectors = np.array(campaign.rounds.vectors())
    with closing(begun(photos, tmp_path / "whole")) as whole:
        order = [whole.archive().paths.index(path) for path in paths]
        np.testing.assert_allclose(vectors, whole.rounds.vectors()[order], atol=1e-6)


def test_neighbours_are_found_again_when_there_are_new_images(
    campaign: Campaign, photos: Path, tmp_path: Path
) -> None:
    file = campaign.rounds.files(FROZEN).neighbours
    with np.load(file) as saved:
        assert saved["images"].tolist() == list(range(60))
    shutil.copytree(tmp_path / "aside", photos, dirs_exist_ok=True)
    grow(campaign)
    answer_truly(campaign, 8)
    turn.turn(campaign, SHRUNK)
    expected = neighbour_table(campaign.rounds.vectors(FROZEN), np.arange(72), centred=True)
    with np.load(file) as saved:
        assert saved["images"].tolist() == list(range(72))
        np.testing.assert_array_equal(saved["rows"], expected.ids)
        np.testing.assert_array_equal(saved["scores"], expected.scores)


def test_new_images_are_asked_about_and_found(campaign: Campaign, photos: Path, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "aside", photos, dirs_exist_ok=True)
    running = Campaign.open(campaign.folder)  # as a page has it open
    take(running, "me", "me", 3)
    found = find_similar(running, [photos / running.archive().paths[0]], 100)[0]
    assert len(found.ids) == 59
    grow(campaign)
    assert running.size == 72
    assert {i for i in running.rounds.agenda().images.tolist() if i >= 60}
    new = sorted(photos.glob("*/11.png"))[0]
    (results,) = find_similar(running, [new], 100)
    assert len(results.ids) == 71
    answer_truly(running, 60)
    asked = {image for row in running.log().standing() for image in row.pair}
    assert {image for image in asked if image >= 60}
    turn.turn(campaign, SHRUNK)
    assert campaign.rounds.vectors().shape[0] == 72
    running.close()


def test_a_moved_file_keeps_its_id_and_a_removed_one_is_retired_with_its_answers(
    campaign: Campaign, photos: Path
) -> None:
    archive = campaign.archive()
    answers = campaign.log().standing()
    a, b = answers[0].pair
    verdict = answers[0].verdict
    moved = photos / "elsewhere" / "x.png"
    moved.parent.mkdir()
    (photos / archive.paths[a]).rename(moved)
    (photos / archive.paths[b]).unlink()
    assert grow(campaign) == Report(moved=1, removed=1)
    assert campaign.archive().paths[a] == "elsewhere/x.png"
    assert campaign.archive().find(moved) == a
    assert campaign.retired().tolist() == [b]
    assert campaign.size == 60
    assert b not in campaign.images
    assert progress.standing(campaign).images == 59
    assert campaign.log().standing() == answers
    assert campaign.known().of(_pair(a, b)).tolist() == [verdict]
    for _ in range(40):
        for question in take(campaign, "me", "me", 3):
            assert b not in question.pair
        answer_truly(campaign, 1)
    (results,) = find_similar(campaign, [moved], 100)
    assert b not in results.ids
    assert len(results.ids) == 58
    nearest = campaign.rounds.files(0).nearest()
    assert nearest is not None
    assert b not in nearest
    turn.turn(campaign, SHRUNK)
    assert grow(campaign) == Report()


def _pair(a: int, b: int) -> Pairs:
    return Pairs.from_list([(a, b)])


def test_changed_bytes_are_a_new_image_and_the_old_ones_come_back(campaign: Campaign, photos: Path) -> None:
    first, second = (photos / path for path in campaign.archive().paths[:2])
    old = first.read_bytes()
    Image.new("RGB", (32, 32), "red").save(first)
    second_bytes = second.read_bytes()
    second.unlink()
    assert grow(campaign) == Report(new=1, changed=1, removed=1)
    retired = campaign.inventory.retired()
    assert {i: one.reason for i, one in retired.items()} == {0: Reason.CHANGED, 1: Reason.REMOVED}
    assert campaign.archive().find(first) == 60
    first.write_bytes(old)
    second.write_bytes(second_bytes)
    assert grow(campaign) == Report(changed=1, returned=2)
    assert campaign.retired().tolist() == [60]
    assert campaign.archive().find(first) == 0
    assert len(campaign.images) == 60


def test_held_out_questions_follow_the_images_that_are_left(campaign: Campaign, photos: Path) -> None:
    pairs = list(campaign.rounds.heldout_pairs())
    gone = pairs[0][0]
    path = photos / campaign.archive().paths[gone]
    data = path.read_bytes()
    path.unlink()
    grow(campaign)
    left = [pair for pair in pairs if gone not in pair]
    assert list(campaign.rounds.heldout_pairs()) == left
    ranks = campaign.rounds.ranks()
    expected = estimate.ranks(campaign.rounds.vectors(0), campaign.images, Pairs.from_list(left))
    assert [ranks[0, a, b][0] for a, b in left] == expected.ab.tolist()
    assert heldout.models(campaign)
    path.write_bytes(data)
    grow(campaign)
    assert list(campaign.rounds.heldout_pairs()) == pairs


def test_folders_are_added_from_inside_and_outside(campaign: Campaign, photos: Path, tmp_path: Path) -> None:
    add(campaign, [tmp_path / "aside", photos / "kind00"])
    assert grow(campaign) == Report(new=12)
    archive = campaign.archive()
    outside = sorted((tmp_path / "aside").glob("*/*.png"))
    assert archive.paths[60:] == tuple(path.as_posix() for path in outside)
    assert archive.labels[60:] == tuple(path.parent.name for path in outside)
    assert archive.find(Path(os.path.relpath(outside[3]))) == 63
    assert archive.picture(63, 64).shape == (32, 32, 3)
    outside[0].rename(outside[0].with_name("renamed.png"))
    assert grow(campaign) == Report(moved=1)
    with pytest.raises(UsageError, match="nowhere does not exist"):
        add(campaign, [tmp_path / "nowhere"])


def test_nothing_is_retired_when_the_archive_is_not_there(campaign: Campaign, photos: Path) -> None:
    photos.rename(photos.with_name("unmounted"))
    with pytest.raises(AnnealError, match="anneal relocate"):
        grow(campaign)
    photos.mkdir()
    with pytest.raises(AnnealError, match="holds no image"):
        grow(campaign)
    assert not len(campaign.retired())


def test_a_file_that_cannot_be_read_is_left_out_until_it_can(campaign: Campaign, photos: Path) -> None:
    bad = photos / "kind00" / "bad.png"
    bad.write_bytes(b"not an image")
    assert grow(campaign) == Report(skipped=1)
    assert grow(campaign) == Report()
    Image.new("RGB", (32, 32), "red").save(bad)
    assert grow(campaign).new == 1
    assert campaign.archive().skipped == ()
    assert campaign.archive().paths[60:] == ("kind00/bad.png",)


def test_class_folders_label_new_images_too(photos: Path, tmp_path: Path) -> None:
    (photos / "kind00" / "00.png").rename(tmp_path / "00.png")
    with closing(begun(photos, tmp_path / "c")) as campaign:
        archive = campaign.archive()
        campaign.label((i, label) for i, label in enumerate(archive.labels))
        (tmp_path / "00.png").rename(photos / "kind00" / "00.png")
        grow(campaign)
        assert campaign.store.labels()[71] == "kind00"


def test_a_simulation_does_not_grow(photos: Path, tmp_path: Path) -> None:
    archive = open_archive(photos, 32, tmp_path / "cache")
    with closing(turn.begin(tmp_path / "c", archive, EIGHT, images=np.arange(20), backbone=SHRUNK)) as made:
        with pytest.raises(UsageError, match="a simulation"):
            grow(made)
        assert made.images.tolist() == list(range(20))


# -- duplicates ------------------------------------------------------------------------------------


def test_duplicates_are_asked_about_and_counted_once(photos: Path, tmp_path: Path) -> None:
    first, second = photos / "kind00" / "00.png", photos / "kind01" / "00.png"
    shutil.copy(first, photos / "kind05" / "same.png")
    with Image.open(second) as image:
        image.resize((31, 31)).save(photos / "kind05" / "near.png")
    with closing(begun(photos, tmp_path / "c")) as campaign:
        paths = campaign.archive().paths
        same, near = (paths.index(f"kind05/{name}.png") for name in ("same", "near"))
        assert campaign.inventory.retired() == {
            same: Retired(Reason.DUPLICATE, 0),
            near: Retired(Reason.NEAR, paths.index("kind01/00.png")),
        }
        assert progress.standing(campaign).images == 72
        assert not {same, near} & set(campaign.rounds.agenda().images.tolist())
        duplicates.keep(campaign, [near])
        assert campaign.retired().tolist() == [same]
        first.unlink()  # another one stands for the picture
        assert grow(campaign).removed == 1
        assert campaign.retired().tolist() == [0]
        assert {same, near} <= set(campaign.rounds.agenda().images.tolist())


def test_new_duplicates_are_found(campaign: Campaign, photos: Path) -> None:
    shutil.copy(photos / "kind00" / "00.png", photos / "kind05" / "same.png")
    assert grow(campaign) == Report(new=1, duplicates=1)
    assert duplicates.listed(campaign) == [(0, [60])]
    assert len(campaign.images) == 60


def copies(source: Path, folder: Path, name: str, n: int) -> None:
    """Files with the same bytes, and ``n`` with the same pixels and other bytes."""
    folder.mkdir(exist_ok=True)
    shutil.copy(source, folder / f"{name}-same.png")
    with Image.open(source) as image:
        for number in range(n):
            note = PngInfo()
            note.add_text("number", str(number))
            image.save(folder / f"{name}-again{number}.png", pnginfo=note)


def contents(campaign: Campaign, images: Iterable[int]) -> list[bytes]:
    return [campaign.archive().pixels[image].tobytes() for image in images]


def assert_no_two_are_the_same(campaign: Campaign) -> None:
    """Among all that can be asked: the images that count, the agenda, held-out pairs, and every question."""
    pictures = contents(campaign, campaign.images.tolist())
    assert len(set(pictures)) == len(pictures)
    asked = [*campaign.rounds.agenda().pairs, *campaign.open_heldout(campaign.known())]
    asked += [question.pair for question in take(campaign, "me", "h", 20)]
    assert {image for pair in asked for image in pair} <= set(campaign.images.tolist())
    assert all(len(set(contents(campaign, pair))) == 2 for pair in asked)


def test_no_question_is_about_two_files_that_are_the_same(photos: Path, tmp_path: Path) -> None:
    """However many there are: from the beginning, in new files, and in a folder that is added."""
    copies(photos / "kind00" / "00.png", photos / "kind03", "first", 9)
    with closing(begun(photos, tmp_path / "c")) as campaign:
        assert len(campaign.images) == 72
        assert_no_two_are_the_same(campaign)
        answer_truly(campaign, 8)
        copies(photos / "kind00" / "00.png", photos / "kind04", "later", 4)
        copies(photos / "kind01" / "01.png", photos / "kind04", "other", 9)
        assert grow(campaign).duplicates == 15
        assert_no_two_are_the_same(campaign)
        copies(photos / "kind02" / "02.png", tmp_path / "more", "added", 2)
        add(campaign, [tmp_path / "more"])
        assert grow(campaign).duplicates == 3
        assert len(campaign.images) == 72
        assert_no_two_are_the_same(campaign)
        turn.turn(campaign, SHRUNK)
        assert_no_two_are_the_same(campaign)


# -- a process that is killed ----------------------------------------------------------------------


def kill_at(monkeypatch: pytest.MonkeyPatch, folder: Path, owner: Any, name: str, times: int) -> None:
    """Update in another process, which kills itself when a function has returned for this time."""
    pid = os.fork()
    if not pid:
        function = getattr(owner, name)
        left = times

        def deadly(*args: Any, **options: Any) -> Any:
            nonlocal left
            result = function(*args, **options)
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        monkeypatch.setattr(owner, name, deadly)
        try:
            update(Campaign.open(folder), backbone=SHRUNK)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), name
    assert os.WTERMSIG(status) == signal.SIGKILL


POINTS: list[tuple[Any, str, int, int]] = [
    (Changes, "__init__", 1, 60),  # before anything is written
    (Inventory, "move", 1, 60),  # inside a transaction
    (update_module, "_note_changes", 1, 60),
    (GrowingArray, "append", 1, 60),  # one batch of pixels is on disk
    (growth, "read_new", 1, 60),
    (encode, "_block", 1, 60),
    (GrowingArray, "finish", 1, 60),  # the features are complete, the vectors are not
    (os, "posix_fallocate", 2, 60),  # one model has longer vectors, one has not
    (duplicates, "find", 1, 60),
    (update_module, "_take_in", 1, 72),  # the new images count, and were not planned with
    (heldout, "again", 1, 72),
    (extend, "plan_again", 1, 72),
    (extend, "settle", 1, 72),
]


def test_killed_at_any_point_the_campaign_opens_and_the_next_update_finishes(
    campaign: Campaign, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Campaign.open(shutil.copytree(campaign.folder, tmp_path / "undisturbed"))) as undisturbed:
        paths = campaign.archive().paths
        shutil.copytree(tmp_path / "aside", photos, dirs_exist_ok=True)
        (photos / paths[3]).unlink()
        (photos / paths[4]).rename(photos / "moved.png")
        grow(undisturbed)
        expected = [np.array(undisturbed.rounds.vectors(model)) for model in (FROZEN, 0)]
        images = undisturbed.images
        archive = undisturbed.archive()
        agenda = undisturbed.rounds.agenda()
    for owner, name, times, size in POINTS:
        kill_at(monkeypatch, campaign.folder, owner, name, times)
        with closing(Campaign.open(campaign.folder)) as opened:
            assert (opened.size, len(opened.archive())) == (size, size), name
            assert len(find_similar(opened, [photos / paths[0]], 3)[0].ids) == 3
            assert len(take(opened, "me", "me", 2)) == 2
            assert progress.archive(opened)["lines"] is not None
    grow(campaign)
    for model, vectors in zip((FROZEN, 0), expected, strict=True):
        np.testing.assert_allclose(campaign.rounds.vectors(model), vectors, atol=1e-6)
    assert campaign.archive().paths == archive.paths
    np.testing.assert_array_equal(campaign.images, images)
    np.testing.assert_array_equal(campaign.rounds.agenda().images, agenda.images)
    assert grow(campaign) == Report()


# -- somewhere else --------------------------------------------------------------------------------


def test_an_archive_that_was_moved_is_found_by_relocate(
    campaign: Campaign, photos: Path, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    moved = photos.rename(tmp_path / "new" / "place")
    assert campaign.archive().missing() == list(campaign.archive().paths)
    with pytest.raises(UsageError, match=r"Only 0 of 60 images are in .*aside"):
        relocate(campaign, tmp_path / "aside")
    with pytest.raises(UsageError, match="is not a folder"):
        relocate(campaign, tmp_path / "nothing")
    assert relocate(campaign, moved) == 60
    assert campaign.archive().missing() == []
    assert grow(campaign) == Report()
    assert relocate(campaign, tmp_path / "aside", force=True) == 0
    assert len(campaign.archive().missing()) == 60


def test_files_with_other_bytes_are_not_taken_for_the_archive(
    campaign: Campaign, photos: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(photos, tmp_path / "other"))
    for path in other.glob("*/*.png"):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + b"?")
    with pytest.raises(UsageError, match="other content"):
        relocate(campaign, other)


def test_an_added_folder_is_relocated_by_its_name(campaign: Campaign, tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    add(campaign, [aside])
    grow(campaign)
    later = aside.rename(tmp_path / "later")
    with pytest.raises(UsageError, match="No image of this campaign was read from"):
        relocate(campaign, later, tmp_path / "nowhere")
    assert relocate(campaign, later, aside) == 12
    assert campaign.archive().missing() == []
    assert grow(campaign) == Report()


def test_a_campaign_and_its_archive_can_be_copied_elsewhere(
    campaign: Campaign, photos: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "elsewhere"
    shutil.copytree(campaign.folder, whole / "c")
    shutil.copytree(photos, whole / "photos")
    photos.rename(tmp_path / "gone")
    shutil.rmtree(campaign.archive_folder)
    with closing(Campaign.open(whole / "c")) as copied:
        assert copied.root == whole / "photos"
        assert copied.archive().missing() == []
        shutil.copytree(tmp_path / "aside", whole / "photos", dirs_exist_ok=True)
        assert grow(copied) == Report(new=12)
        turn.turn(copied, SHRUNK)


def test_a_campaign_of_an_earlier_version_grows(photos: Path, tmp_path: Path) -> None:
    """Its list of files is in the note of the pixels, and it does not say what it was read from."""
    aside = (photos / "kind00" / "00.png").rename(tmp_path / "00.png")
    with closing(begun(photos, tmp_path / "c")) as campaign:
        note = campaign.archive_folder / "pixels.json"
        listed = note.with_name("pixels.jsonl")
        images = [json.loads(line)[:4] for line in listed.read_text().splitlines()]
        listed.unlink()
        note.write_text(
            json.dumps({**json.loads(note.read_text()), "note": {"images": images, "skipped": []}})
        )
        campaign.store.db.execute("DELETE FROM settings WHERE key IN ('sources', 'compared')")
        campaign.store.db.execute("DELETE FROM files")
    with closing(Campaign.open(tmp_path / "c")) as campaign:
        aside.rename(photos / "kind00" / "00.png")
        assert grow(campaign) == Report(new=1)
        assert campaign.archive().paths[71] == "kind00/00.png"
        assert grow(campaign) == Report()


# -- tiles -----------------------------------------------------------------------------------------


def test_the_tiles_of_a_scene_follow_their_file(tmp_path: Path) -> None:
    pytest.importorskip("rasterio")
    photos = tmp_path / "scenes"
    photos.mkdir()

    def scene(name: str, seed: int) -> Path:
        cells = np.random.default_rng(seed).integers(0, 255, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(cells).resize((96, 96), Image.Resampling.NEAREST).save(photos / name)
        return photos / name

    first = scene("a.tif", 1)
    settings = replace(EIGHT, tile=32)
    archive = open_archive(photos, 32, tmp_path / "c" / "cache", reading=Reading.of(settings))
    with closing(turn.begin(tmp_path / "c", archive, settings, backbone=SHRUNK)) as campaign:
        assert campaign.size == 9
        scene("b.tif", 2)
        assert grow(campaign) == Report(new=9)
        first.rename(photos / "moved.tif")
        assert grow(campaign) == Report(moved=9)
        assert campaign.archive().paths[0] == "moved.tif@0,0"
        assert campaign.archive().picture(0, 64).shape == (32, 32, 3)
        (photos / "b.tif").unlink()
        assert grow(campaign) == Report(removed=9)
        scene("b.tif", 2)
        assert grow(campaign) == Report(returned=9)
        scene("b.tif", 3)
        assert grow(campaign) == Report(new=9, changed=9)
        assert campaign.archive().paths[9] == "b.tif~9@0,0"
        assert len(campaign.images) == 18
