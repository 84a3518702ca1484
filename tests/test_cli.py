"""The command line as a person meets it: what it prints, what it leaves behind, and how it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from anneal import cli
from anneal.campaign.campaign import Campaign
from anneal.campaign.store import Store
from anneal.pairs import Verdict

NET = "--backbone random:resnet-18 --px 32"


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str


@pytest.fixture
def anneal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Anneal:
    return Anneal(capsys, monkeypatch)


class Anneal:
    """Calls the entry point with the words of a command line, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capsys, self.monkeypatch = capsys, monkeypatch
        monkeypatch.setenv("COLUMNS", "200")

    def __call__(self, words: str, *paths: Path) -> Run:
        """``{}`` in the words stands for the next path."""
        left = [str(path) for path in paths]
        argv = [left.pop(0) if word == "{}" else word for word in words.split()]
        self.monkeypatch.setattr(sys, "argv", ["anneal", *argv])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = self.capsys.readouterr()
        code = ended.value.code
        return Run(code if isinstance(code, int) else 0, printed.out, printed.err)


@pytest.fixture(scope="session")
def made(drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign fresh from init, in a folder of its own with its archive; copy it before writing."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(drawn, folder / "photos")
    command = [
        sys.executable,
        "-m",
        "anneal",
        "init",
        "photos",
        "--campaign",
        "c",
        *NET.split(),
        *["--strategy", "mgue", "--per-round", "24"],
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert "120 images in 12 classes" in done.stdout
    assert "24 questions are queued" in done.stdout
    return folder


@pytest.fixture
def campaign(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    store = Store(tmp_path / "copy" / "c" / "campaign.sqlite")
    store.set(archive={**store.settings()["archive"], "root": str(tmp_path / "copy" / "photos")})
    store.close()
    return tmp_path / "copy" / "c"


def answer_all(folder: Path) -> None:
    campaign = Campaign.open(folder)
    labels = campaign.archive().labels
    while (pair := campaign.next_pair()) is not None:
        same = labels[pair[0]] == labels[pair[1]]
        campaign.answer(*pair, Verdict.SIMILAR if same else Verdict.DISSIMILAR)
    campaign.store.close()


def test_help_has_an_example_for_every_command(anneal: Anneal) -> None:
    for command in ("init", "round", "status", "search", "simulate", "reproduce", "demo"):
        run = anneal(f"{command} --help")
        assert run.code == 0
        assert f"Example: anneal {command}" in run.out


def test_the_version_is_printed(anneal: Anneal) -> None:
    assert anneal("--version").out.strip() == "0.1.0"


def test_a_round_whose_last_encoder_is_lost_starts_afresh(anneal: Anneal, campaign: Path) -> None:
    answer_all(campaign)
    assert anneal("round --campaign {}", campaign).code == 0
    shutil.rmtree(campaign / "rounds" / "0000")
    answer_all(campaign)
    assert json.loads(anneal("round --campaign {} --json", campaign).out)["rounds"] == 2
    assert (campaign / "rounds" / "0001" / "model.json").exists()


def test_a_campaign_from_first_question_to_search(anneal: Anneal, campaign: Path, tmp_path: Path) -> None:
    before = json.loads(anneal("status --campaign {} --json", campaign).out)
    assert (before["images"], before["answers"], before["queued"], before["rounds"]) == (120, 0, 24, 0)
    answer_all(campaign)
    assert json.loads(anneal("status --campaign {} --json", campaign).out)["queued"] == 0

    report = json.loads(anneal("round --campaign {} --json", campaign).out)
    assert report["rounds"] == 1
    assert report["queued"] == 24
    assert report["contradictions"] == 0
    assert set(report["seconds"]) == {"infer", "fit", "embed", "threshold", "ask", "audit"}
    assert anneal("status --campaign {}", campaign).out.split()[:2] == ["images", "120"]

    example = "beach/beach_003.jpg"
    found = anneal("search {} -k 5 --campaign {} --panel {}", Path(example), campaign, tmp_path / "p.png")
    lines = found.out.splitlines()
    assert lines[0] == example
    scores = [float(line.split()[0]) for line in lines[1:]]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)
    assert example not in found.out.split()[1:], "an image is not its own look-alike"
    with Image.open(tmp_path / "p.png") as picture:
        assert picture.size[0] > picture.size[1]


def test_any_file_is_found_near_its_copy_in_the_archive(
    anneal: Anneal, campaign: Path, tmp_path: Path
) -> None:
    answer_all(campaign)
    anneal("round --campaign {}", campaign)
    stranger = tmp_path / "stranger.jpg"
    shutil.copy(campaign.parent / "photos" / "tanks" / "tanks_004.jpg", stranger)
    for _ in ("before deletion", "after deletion of the whole archive"):
        report = json.loads(anneal("search {} -k 3 --campaign {} --json", stranger, campaign).out)
        assert report[0]["query"] == str(stranger)
        best = report[0]["results"][0]
        assert best["path"] == "tanks/tanks_004.jpg"
        assert best["score"] == pytest.approx(1, abs=1e-4)
        shutil.rmtree(campaign.parent / "photos", ignore_errors=True)


def test_search_works_before_the_first_round(anneal: Anneal, campaign: Path) -> None:
    run = anneal("search {} -k 2 --campaign {}", Path("river/river_000.jpg"), campaign)
    assert run.code == 0
    assert len(run.out.splitlines()) == 3


def test_status_says_when_the_newest_model_is_not_in_service(anneal: Anneal, campaign: Path) -> None:
    answer_all(campaign)
    assert anneal("round --campaign {}", campaign).code == 0
    assert json.loads(anneal("status --campaign {} --json", campaign).out)["refusal"] == ""
    store = Store(campaign / "campaign.sqlite")
    ((number, about),) = store.rounds()
    store.finish_round(number, {**about, "serves": -1}, store.questions())
    store.close()
    told = json.loads(anneal("status --campaign {} --json", campaign).out)
    assert (told["rounds"], told["serving"]) == (1, -1)
    assert "is not in service" in anneal("status --campaign {}", campaign).out


def test_lost_files_are_named_and_still_searched(anneal: Anneal, campaign: Path) -> None:
    (campaign.parent / "photos" / "beach" / "beach_000.jpg").unlink()
    run = anneal("status --campaign {}", campaign)
    assert run.code == 0
    assert "1 files are gone from the archive since init (beach/beach_000.jpg)" in run.err
    assert anneal("search {} --campaign {}", Path("beach/beach_000.jpg"), campaign).code == 0


def test_contradictions_are_shown_with_their_answers(anneal: Anneal, campaign: Path) -> None:
    opened = Campaign.open(campaign)
    for a, b, verdict in ((0, 1, 1), (1, 2, 1), (0, 2, 2), (5, 30, 2)):
        opened.answer(a, b, Verdict(verdict))
    run = anneal("round --campaign {}", campaign)
    assert run.code == 0
    assert "These answers cannot all be true" in run.err
    assert "beach/beach_000.jpg and beach/beach_002.jpg: dissimilar" in run.err
    assert "beach/beach_001.jpg and beach/beach_002.jpg: similar" in run.err
    assert "beach_005" not in run.err


def test_simulate_prints_rows_as_json(anneal: Anneal, drawn: Path, cache: Path, tmp_path: Path) -> None:
    run = anneal(
        f"simulate {{}} {NET} --rounds 1 --per-round 20 --strategy random --json --out {{}} --cache {{}}",
        drawn,
        tmp_path,
        cache,
    )
    rows = json.loads(run.out)
    assert [(row["strategy"], row["round"], row["bits"]) for row in rows] == [
        ("random", 0, 20),
        ("random", 1, 40),
    ]


# -- bad input: a sentence, an exit code, no traceback, nothing lost -----------------------------


def refused(run: Run, code: int, *words: str) -> None:
    assert run.code == code, run
    assert "Traceback" not in run.err + run.out
    flat = " ".join(run.err.replace("│", " ").split())
    for word in words:
        assert word in flat


def test_a_missing_folder(anneal: Anneal, tmp_path: Path) -> None:
    refused(anneal("init {}", tmp_path / "no"), 2, "does not exist: give a folder of images")
    refused(anneal("simulate {}", tmp_path / "no"), 2, "does not exist")


def test_an_empty_folder(anneal: Anneal, tmp_path: Path) -> None:
    refused(anneal("init {} --campaign {}", tmp_path, tmp_path / "c"), 2, "holds no image file")


def test_a_folder_with_nothing_readable(anneal: Anneal, tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_text("not an image")
    refused(anneal("init {} --campaign {}", tmp_path, tmp_path / "c"), 1, "None of the files", "x.jpg")


def test_one_class_only(anneal: Anneal, drawn: Path, tmp_path: Path) -> None:
    shutil.copytree(drawn / "beach", tmp_path / "a" / "beach")
    run = anneal(f"simulate {{}} {NET} --cache {{}}", tmp_path / "a", tmp_path / "cache")
    refused(run, 2, "All images are of one class (beach)")


def test_more_pairs_than_there_are(anneal: Anneal, drawn: Path, cache: Path, tmp_path: Path) -> None:
    words = f"simulate {{}} {NET} --per-round 999999 --cache {{}} --out {{}}"
    refused(anneal(words, drawn, cache, tmp_path), 2, "only", "still unknown", "--per-round")


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ("--lambda abc", "Invalid value for '--lambda'"),
        ("--lambda nan", "--lambda nan is not a number"),
        ("--strategy best", "choose among mgue, bcgue, random"),
        ("--depth deep", "choose one of head, last, full"),
        ("--views 5", "1 to 4 quarter turns"),
        ("--px 3", "give 8 to 2048"),
        ("--per-round 0", "at least one question"),
        ("--backbone resnet18", "There is no backbone 'resnet18'"),
        ("--initial labelled:many", "labelled:N"),
        ("--initial labelled:5000", "wants more images than the 96"),
    ],
)
def test_options_that_make_no_sense(
    anneal: Anneal, drawn: Path, cache: Path, tmp_path: Path, option: str, word: str
) -> None:
    run = anneal(f"simulate {{}} {NET} --cache {{}} --out {{}} {option}", drawn, cache, tmp_path)
    refused(run, 2, word)


def test_a_class_strategy_is_no_campaign(anneal: Anneal, drawn: Path, tmp_path: Path) -> None:
    run = anneal(f"init {{}} {NET} --strategy cal --campaign {{}}", drawn, tmp_path / "c")
    refused(run, 2, "a campaign asks about pairs")


def test_no_campaign_there(anneal: Anneal, tmp_path: Path) -> None:
    for command in ("round", "status", "search x.jpg"):
        refused(anneal(f"{command} --campaign {{}}", tmp_path), 1, "There is no campaign", "anneal init")


def test_init_twice(anneal: Anneal, campaign: Path) -> None:
    vectors = campaign / "rounds" / "frozen" / "vectors.npy"
    before = vectors.read_bytes()
    run = anneal(f"init {{}} --campaign {{}} {NET} --views 1", campaign.parent / "photos", campaign)
    refused(run, 2, "already holds a campaign")
    assert vectors.read_bytes() == before


def test_a_round_without_an_answer(anneal: Anneal, campaign: Path) -> None:
    refused(anneal("round --campaign {}", campaign), 2, "nothing to learn from", "Answer some")


def test_a_campaign_of_a_newer_version(anneal: Anneal, campaign: Path) -> None:
    import sqlite3

    db = sqlite3.connect(campaign / "campaign.sqlite")
    db.execute("PRAGMA user_version = 99")
    db.close()
    refused(anneal("status --campaign {}", campaign), 1, "newer anneal", "Nothing was changed")


def test_a_query_that_is_no_image(anneal: Anneal, campaign: Path, tmp_path: Path) -> None:
    refused(anneal("search {} --campaign {}", tmp_path / "no.jpg", campaign), 2, "neither an image")
    (tmp_path / "x.jpg").write_text("no")
    refused(anneal("search {} --campaign {}", tmp_path / "x.jpg", campaign), 2, "could not be read")


def test_a_full_disk_while_the_cache_is_written(anneal: Anneal, drawn: Path, tmp_path: Path) -> None:
    """/dev/full refuses every byte, as a full disk does."""
    for space in (False, True):
        run = anneal(f"init {{}} {NET} --campaign {{}}", drawn, tmp_path / "c")
        if not space:
            assert run.code == 0
            (folder,) = (tmp_path / "c" / "cache").iterdir()
            shutil.rmtree(tmp_path / "c" / "rounds")
            for file in (tmp_path / "c").glob("campaign.sqlite*"):
                file.unlink()
            for file in folder.glob("pixels*"):
                file.unlink()
            (folder / "pixels.bin").symlink_to("/dev/full")
        else:
            refused(run, 1, "The disk is full", "Free some space", "goes on where it stopped")
            (folder / "pixels.bin").unlink()
    assert anneal(f"init {{}} {NET} --campaign {{}}", drawn, tmp_path / "c").code == 0


def test_markup_in_a_file_name_is_printed_as_it_is(anneal: Anneal, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (8, 32, 32, 3), dtype=np.uint8)
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"[red]{i}.png")
    run = anneal(f"init {{}} {NET} --campaign {{}} --per-round 5", tmp_path, tmp_path / "c")
    assert run.code == 0
    run = anneal("search {} -k 3 --campaign {}", Path("[red]0.png"), tmp_path / "c")
    assert run.out.splitlines()[0] == "[red]0.png"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("comparison", "Give --data FOLDER"),
        ("figure7 --data {}", "There is no experiment 'figure7'"),
        ("comparison --data {} --mode theirs", "choose ours or paper"),
        ("comparison --data {} --only nobody", "comparison has mgue, bcgue, cal, cal-metric, random, upper"),
        ("comparison --archive mars --data {}", "choose ucmerced or aid"),
        ("panels --data {} --class Airport", "There is no class 'Airport' here: there are beach,"),
    ],
)
def test_reproduce_refuses_in_a_sentence(
    words: str, said: str, anneal: Anneal, drawn: Path, cache: Path, tmp_path: Path
) -> None:
    paths = [drawn] * words.count("{}")
    told = anneal(f"reproduce {words} {NET} --out {{}} --cache {{}}", *paths, tmp_path / "out", cache)
    assert told.code == 2
    assert said in " ".join(told.err.split())
    assert "Traceback" not in told.err
