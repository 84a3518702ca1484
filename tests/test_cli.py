"""The command line as a person meets it: what it prints, what it leaves behind, and how it refuses."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pandas
import pytest
import rasterio
import torch
import typer
from filelock import FileLock
from PIL import Image
from rich.console import Console

from anneal import cli, console
from anneal.campaign.campaign import WORKER_LOCK, Campaign
from anneal.campaign.groups import give_name
from anneal.campaign.questions import next_question
from anneal.campaign.store import Store
from anneal.experiments import runner
from anneal.pairs import Verdict
from anneal.settings import Settings, option

NET = "--backbone random:resnet-18 --px 32"


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as a strict reader takes it: NaN is not JSON."""

        def refuse(word: str) -> None:
            raise ValueError(f"{word} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


class Anneal:
    """Calls the entry point with the words of a command line, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capsys = capsys
        self.monkeypatch = monkeypatch
        monkeypatch.setenv("COLUMNS", "200")

    def __call__(self, words: str, *paths: Path | str) -> Run:
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


@pytest.fixture
def anneal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Anneal:
    return Anneal(capsys, monkeypatch)


@pytest.fixture(scope="session")
def made(drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign fresh from init, in a folder of its own with its archive; copy it before writing."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(drawn, folder / "photos")
    words = f"init photos --campaign c {NET} --strategy mgue --per-round 24"
    command = [sys.executable, "-m", "anneal", *words.split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert "120 images in 8 classes" in done.stdout
    assert "anneal label --campaign c" in done.stdout
    return folder


@pytest.fixture
def campaign(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    store = Store(tmp_path / "copy" / "c" / "campaign.sqlite")
    store.set(archive={**store.settings()["archive"], "root": str(tmp_path / "copy" / "photos")})
    store.close()
    return tmp_path / "copy" / "c"


@pytest.fixture
def opened(campaign: Path) -> Iterator[Campaign]:
    with closing(Campaign.open(campaign)) as opened:
        yield opened


def answer_a_round(folder: Path) -> None:
    with closing(Campaign.open(folder)) as campaign:
        labels = campaign.archive().labels
        while question := next_question(campaign):
            a, b = question.pair
            campaign.answer(a, b, Verdict.SIMILAR if labels[a] == labels[b] else Verdict.DISSIMILAR)


def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(cli.app)
    return dict(group.commands)


# -- help and options --------------------------------------------------------------------------------


def test_help_has_an_example_for_every_command(anneal: Anneal) -> None:
    for name, command in commands().items():
        if not command.hidden:
            run = anneal(f"{name} --help")
            assert run.code == 0
            assert f"Example: anneal {name}" in run.out


def test_the_version_is_printed(anneal: Anneal) -> None:
    assert anneal("--version").out.strip() == "0.1.0"


@pytest.mark.parametrize(
    ("command", "own"), [("init", {}), ("simulate", {"strategy": "place,mgue,random", "per_round": 369})]
)
def test_every_setting_is_an_option_with_its_default_and_help(command: str, own: dict[str, Any]) -> None:
    options = {one.name: one for one in commands()[command].params}
    for one in fields(Settings):
        made = options[one.name]
        assert made.opts == [option(one.name)]
        assert made.default == own.get(one.name, one.default)
        assert made.help == one.metadata["help"]


def test_an_option_reaches_the_campaign(anneal: Anneal, drawn: Path, tmp_path: Path) -> None:
    words = (
        "--strategy mgue --per-round 7 --closure single --diversity none --lambda 2.5 --threshold logistic "
        "--share 0.4 --recheck 0.2 --pseudo-labels 0.1 --heldout 0.3 --loss ntxent --restart cold --seed 9 "
        "--head paper --views 1 --depth head --bands 3,2,1 --stretch image --stretch-by joint --fit pad "
        "--tile 48 --overlap 8"
    )
    run = anneal(
        f"init {{}} {NET} {words} --campaign {{}} --criterion {{}}", drawn, tmp_path / "c", "same use"
    )
    assert run.code == 0, run.err
    expected = Settings(
        backbone="random:resnet-18",
        bands="3,2,1",
        stretch="image",
        stretch_by="joint",
        fit="pad",
        tile=48,
        tile_overlap=8,
        depth="head",
        head="paper",
        views=1,
        px=32,
        strategy="mgue",
        per_round=7,
        closure="single",
        diversity="none",
        lam=2.5,
        threshold="logistic",
        share=0.4,
        recheck=0.2,
        pseudo_labels=0.1,
        heldout=0.3,
        loss="ntxent",
        restart="cold",
        seed=9,
    )
    untouched = [one.name for one in fields(Settings) if getattr(expected, one.name) == one.default]
    assert untouched == ["depth", "sheets"], "a new setting is tried here too"  # sheets are of place
    with closing(Campaign.open(tmp_path / "c")) as campaign:
        assert campaign.settings == expected
        assert campaign.store.setting("criterion", "") == "same use"


# -- a campaign --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("few_steps")
def test_a_campaign_from_first_question_to_search(anneal: Anneal, campaign: Path, tmp_path: Path) -> None:
    before = anneal("status --campaign {} --json", campaign).json
    assert (before["images"], before["answers"], before["rounds"]) == (120, 0, 0)
    assert (before["machine"]["fresh"], before["machine"]["needed"]) == (0, 24)
    answer_a_round(campaign)
    status = anneal("status --campaign {} --json", campaign).json
    assert (status["answers"], status["machine"]["fresh"]) == (24, 24)

    report = anneal("round --campaign {} --json", campaign).json
    assert (report["rounds"], report["answers"], report["contradictions"]) == (1, 24, 0)
    assert set(report["seconds"]) == set(runner.STEPS)
    assert anneal("status --campaign {}", campaign).out.split()[:2] == ["images", "120"]

    example = "beach/beach_003.jpg"
    search = anneal("search {} -k 5 --campaign {} --panel {}", example, campaign, tmp_path / "p.png")
    lines = search.out.splitlines()
    assert lines[0] == example
    scores = [float(line.split()[0]) for line in lines[1:]]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)
    assert example not in search.out.split()[1:], "an image does not find itself"
    with Image.open(tmp_path / "p.png") as picture:
        assert picture.size[0] > picture.size[1]


@pytest.mark.usefixtures("few_steps")
def test_twelve_bands_of_sixteen_bits_go_from_init_to_a_map(anneal: Anneal, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shape = {"count": 12, "height": 24, "width": 40, "dtype": "uint16", "nodata": 0}
    place = rasterio.Affine(10, 0, 500_000, 0, -10, 5_200_000)
    for i in range(12):
        values = rng.integers(500, 900, (12, 24, 40), dtype=np.uint16)
        values[7] += 2000 * (i % 2)
        file = tmp_path / "in" / f"{i % 2}" / f"{i:02d}.tif"
        file.parent.mkdir(parents=True, exist_ok=True)
        with rasterio.open(file, "w", driver="GTiff", crs="EPSG:32632", transform=place, **shape) as out:
            out.write(values)
    os.mkfifo(tmp_path / "in" / "pipe.tif")
    words = (
        f"init {{}} --campaign {{}} {NET} --bands all --per-round 6 --heldout 0 --recheck 0 --strategy mgue"
    )
    made = anneal(words, tmp_path / "in", tmp_path / "c")
    assert "12 images in 2 classes." in made.out
    assert "They are read with bands all (12), one stretch for all (1 " in made.out
    assert "skipped.csv" in made.err
    assert (tmp_path / "c" / "skipped.csv").read_text() == 'path,reason\npipe.tif,"a pipe, not a file"\n'
    with closing(Campaign.open(tmp_path / "c")) as campaign:
        assert campaign.settings.bands == "all"
        assert campaign.archive().pixels.shape == (12, 32, 32, 12)
        labels = campaign.archive().labels
        for _ in range(6):
            question = next_question(campaign)
            assert question is not None
            one, other = question.pair
            verdict = Verdict.SIMILAR if labels[one] == labels[other] else Verdict.DISSIMILAR
            campaign.answer(one, other, verdict)
    assert "Round 0" in anneal("round --campaign {}", tmp_path / "c").out
    shutil.copy(tmp_path / "in" / "1" / "03.tif", tmp_path / "outside.tif")
    (found,) = anneal("search {} --campaign {} -k 3 --json", tmp_path / "outside.tif", tmp_path / "c").json
    assert found["results"][0]["path"] == "1/03.tif"
    assert found["results"][0]["score"] == pytest.approx(1, abs=1e-3)
    assert anneal("classify {} --campaign {}", tmp_path / "all.csv", tmp_path / "c").code == 0
    classes = pandas.read_csv(tmp_path / "all.csv")
    assert sorted(classes["path"]) == sorted(f"{i % 2}/{i:02d}.tif" for i in range(12))
    assert set(classes["how"]) <= {"settled", "predicted"}
    assert (
        anneal("export footprints --geojson {} --campaign {}", tmp_path / "map.geojson", tmp_path / "c").code
        == 0
    )
    located = geopandas.read_file(tmp_path / "map.geojson")
    assert located.crs.to_epsg() == 4326
    assert sorted(located["path"]) == sorted(classes["path"])
    assert located.total_bounds.tolist() == pytest.approx([9.0, 46.951, 9.0053, 46.9534], abs=0.002)
    refused = anneal("init {} --campaign {} --bands nir,red,green", tmp_path / "in", tmp_path / "d")
    assert refused.code == 2
    assert "its bands are 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12" in " ".join(refused.err.split())


def test_answers_on_dissimilar_pairs_alone_are_json_too(anneal: Anneal, opened: Campaign) -> None:
    """There is no threshold then: it is null, not NaN."""
    opened.answer(0, 119, Verdict.DISSIMILAR)
    assert anneal("round --campaign {} --json", opened.folder).json["threshold"] is None
    assert anneal("status --campaign {} --json", opened.folder).json["rounds"] == 1


@pytest.mark.usefixtures("few_steps")
def test_a_round_whose_last_encoder_is_lost_starts_afresh(anneal: Anneal, campaign: Path) -> None:
    answer_a_round(campaign)
    assert anneal("round --campaign {}", campaign).code == 0
    shutil.rmtree(campaign / "rounds" / "0000")
    answer_a_round(campaign)
    assert anneal("round --campaign {} --json", campaign).json["rounds"] == 2
    assert (campaign / "rounds" / "0001" / "model.json").exists()


@pytest.mark.usefixtures("few_steps")
def test_a_file_from_outside_finds_its_copy_in_the_archive(
    anneal: Anneal, campaign: Path, tmp_path: Path
) -> None:
    answer_a_round(campaign)
    anneal("round --campaign {}", campaign)
    stranger = tmp_path / "stranger.jpg"
    shutil.copy(campaign.parent / "photos" / "river" / "river_004.jpg", stranger)
    for _ in ("before deletion", "after deletion of the whole archive"):
        (report,) = anneal("search {} -k 3 --campaign {} --json", stranger, campaign).json
        assert report["query"] == str(stranger)
        best = report["results"][0]
        assert best["path"] == "river/river_004.jpg"
        assert best["score"] == pytest.approx(1, abs=1e-4)
        shutil.rmtree(campaign.parent / "photos", ignore_errors=True)


def test_search_works_before_the_first_round(anneal: Anneal, campaign: Path) -> None:
    run = anneal("search {} -k 2 --campaign {}", "river/river_000.jpg", campaign)
    assert run.code == 0
    assert len(run.out.splitlines()) == 3


@pytest.mark.usefixtures("few_steps")
def test_status_says_when_the_newest_model_does_not_serve(anneal: Anneal, campaign: Path) -> None:
    answer_a_round(campaign)
    assert anneal("round --campaign {}", campaign).code == 0
    assert anneal("status --campaign {} --json", campaign).json["refusal"] == ""
    with closing(Campaign.open(campaign)) as opened:
        (record,) = opened.rounds.records()
        opened.rounds.save(replace(record, serving=-1))
    told = anneal("status --campaign {} --json", campaign).json
    assert (told["rounds"], told["serving"]) == (1, -1)
    assert "does not serve" in anneal("status --campaign {}", campaign).out


def test_lost_files_are_named_and_still_searched(anneal: Anneal, campaign: Path) -> None:
    (campaign.parent / "photos" / "beach" / "beach_000.jpg").unlink()
    run = anneal("status --campaign {}", campaign)
    assert run.code == 0
    assert "1 file is gone from the archive (beach/beach_000.jpg)" in run.err
    assert anneal("search {} --campaign {}", "beach/beach_000.jpg", campaign).code == 0


@pytest.mark.usefixtures("few_steps")
def test_contradictions_are_shown_with_their_answers(anneal: Anneal, opened: Campaign) -> None:
    for a, b, verdict in ((0, 1, 1), (1, 2, 1), (0, 2, 2), (5, 30, 2)):
        opened.answer(a, b, Verdict(verdict))
    run = anneal("round --campaign {}", opened.folder)
    assert run.code == 0
    assert "These answers cannot all be true" in run.err
    assert "beach/beach_000.jpg and beach/beach_002.jpg: dissimilar" in run.err
    assert "beach/beach_001.jpg and beach/beach_002.jpg: similar" in run.err
    assert "beach_005" not in run.err


def test_answers_are_exported_and_imported(anneal: Anneal, opened: Campaign, tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    file.write_text("a,b,verdict\nbeach/beach_000.jpg,river/river_000.jpg,dissimilar\n", encoding="utf-8")
    assert "1 answer was imported" in anneal("import {} --campaign {}", file, opened.folder).out
    run = anneal("export {} --campaign {}", tmp_path / "out.jsonl", opened.folder)
    assert f"1 answer is in {tmp_path / 'out.jsonl'}" in run.out.replace("\n", "")
    (line,) = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["verdict"] == "dissimilar"


def grouped(opened: Campaign) -> None:
    """Three groups, one of them named."""
    for a, b in ((0, 1), (1, 2), (15, 16), (30, 31)):
        opened.answer(a, b, Verdict.SIMILAR)
    give_name(opened, [15], "Bäume, [old]")


def test_groups_are_classified_and_exported(anneal: Anneal, opened: Campaign, tmp_path: Path) -> None:
    refused(anneal("classify {} --campaign {}", tmp_path / "x.csv", opened.folder), 2, "no groups yet")
    grouped(opened)
    run = anneal("classify {} --campaign {} --min-score 1", tmp_path / "classes.csv", opened.folder)
    assert "120 images are in" in run.out
    assert "7 settled by answers, 0 predicted, 113 without a group" in run.out.replace("\n", " ")
    with (tmp_path / "classes.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[16] == {
        "path": "dense_houses/dense_houses_001.jpg", "group": "Bäume, [old]", "score": "1.0",
        "how": "settled",
    }  # fmt: skip
    run = anneal("export groups {} --campaign {}", tmp_path / "groups.csv", opened.folder)
    assert "3 groups and 120 images are in" in run.out
    run = anneal("export groups --links {} --campaign {} --min-score 1", tmp_path / "links", opened.folder)
    assert "120 images are in folders below" in run.out
    assert sorted(path.name for path in (tmp_path / "links").iterdir()) == [
        "Bäume, [old]", "group 0", "group 30", "unplaced",
    ]  # fmt: skip


def test_everything_else_is_exported(anneal: Anneal, opened: Campaign, tmp_path: Path) -> None:
    grouped(opened)
    for kind, place, says in (
        ("vectors", "vectors", "120 vectors are in"),
        ("index", "index.faiss", "The index (exact) is in"),
        ("pairs --implied", "pairs.parquet", "5 pairs are in"),
        ("answers", "answers.csv", "4 answers are in"),
        ("report", "report.html", "The report is in"),
        ("results --query river/river_000.jpg -k 3", "hits.csv", "3 results are in"),
        ("vectors --to", f"qdrant://{tmp_path}/db/scenes", "120 vectors are in qdrant"),
        ("footprints --geojson", "map.geojson", "0 footprints are in"),
    ):
        where = place if place.startswith("qdrant") else str(tmp_path / place)
        run = anneal(f"export {kind} {{}} --campaign {{}}", where, opened.folder)
        assert run.code == 0, run.err
        assert says in run.out.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("everything", "There is nothing called 'everything' to export: use groups, vectors,"),
        ("groups", "Say where to write it, for example groups.csv"),
        ("groups x.csv --copy", "--copy goes with --links"),
        ("groups x.xlsx", "name it .csv, .jsonl or .parquet"),
        ("report x.html --min-score 0.5", "--min-score does not go with report"),
        ("footprints", "Name a file: --geojson"),
        ("footprints x.csv --geojson x.geojson", "A file does not go with footprints"),
        ("footprints --gpkg x.geojson", "name it .gpkg"),
        ("results --geojson x.geojson", "Say what to look for: --query"),
        ("vectors --to http://host/c", "is not an address"),
    ],
)
def test_an_export_that_cannot_be_is_a_sentence(
    anneal: Anneal, opened: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(anneal(f"export {words} --campaign {{}}", opened.folder), 2, says)


def test_hits_are_printed_for_scripts(anneal: Anneal, opened: Campaign, tmp_path: Path) -> None:
    grouped(opened)
    words = "search beach/beach_001.jpg river/river_000.jpg -k 3 --campaign {}"
    first, _ = anneal(f"{words} --json", opened.folder).json
    assert first["query"] == "beach/beach_001.jpg"
    for hit in first["results"]:
        assert Path(hit["file"]).is_absolute()
        assert Path(hit["file"]).is_file()
        assert hit["footprint"] == []
        assert hit["group"] in ("0", "30", "Bäume, [old]")
    run = anneal(f"{words} --csv", opened.folder)
    rows = list(csv.DictReader(io.StringIO(run.out)))
    assert [row["rank"] for row in rows] == ["1", "2", "3"] * 2
    assert {row["footprint"] for row in rows} == {""}
    assert [row["path"] for row in rows[:3]] == [hit["path"] for hit in first["results"]]
    assert anneal(f"{words} --geojson {{}}", opened.folder, tmp_path / "hits.geojson").code == 0
    assert json.loads((tmp_path / "hits.geojson").read_text())["features"] == []
    refused(anneal(f"{words} --csv --json", opened.folder), 2, "Choose one of --json and --csv")


def test_markup_in_a_file_name_is_printed_as_it_is(anneal: Anneal, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (8, 32, 32, 3), dtype=np.uint8)
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"[red]{i}.png")
    run = anneal(f"init {{}} {NET} --campaign {{}} --per-round 5", tmp_path, tmp_path / "c")
    assert run.code == 0
    assert f"anneal search {tmp_path}/[red]0.png" in run.out.replace("\n", "")
    run = anneal("search {} -k 3 --campaign {}", "[red]0.png", tmp_path / "c")
    assert run.out.splitlines()[0] == "[red]0.png"


# -- experiments -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_trials")
def test_simulate_prints_its_rows_as_json_and_status_reads_a_trial(
    anneal: Anneal, drawn: Path, cache: Path, tmp_path: Path
) -> None:
    words = "simulate {} --out {} --cache {} --px 32 --rounds 1 --per-round 12 --strategy place,random"
    words += " --recheck 0"
    rows = anneal(f"{words} --json", drawn, tmp_path, cache).json
    assert [(row["player"], row["round"], row["bits"], row["answers"]) for row in rows] == [
        ("frozen", 0, 0, None), ("place", 0, 12, 12), ("place", 1, 24, 24),
        ("random", 0, 12, 12), ("random", 1, 24, 24),
    ]  # fmt: skip
    assert all(isinstance(row["p5"], int | float) for row in rows)
    again = anneal(words, drawn, tmp_path, cache)
    assert "Training images are scored, split anew. Give --report to score test images.\n" in again.out
    assert "random trial 0 round 1:    24 bits  mAP@5" in again.out
    assert str(tmp_path / "curve.png") in again.out.replace("\n", "")
    for strategy in ("place", "random"):
        trial = tmp_path / "trials" / f"{strategy}-0"
        told = anneal("status --campaign {} --json", trial).json
        assert (told["answers"], told["rounds"]) == (24, 2)
        assert anneal("status --campaign {}", trial).code == 0
        assert anneal("search {} -k 2 --campaign {}", "river/river_000.jpg", trial).code == 0


@pytest.mark.usefixtures("quick_trials")
def test_a_report_is_noted_in_the_results_of_this_folder(
    anneal: Anneal, drawn: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    words = "simulate {} --out {} --cache {} --px 32 --per-round 6 --rounds 0 --strategy random"
    paths = (drawn, tmp_path / "simulated", cache)
    run = anneal(f"{words} --report", *paths)
    assert "Test images are scored, and the run is noted in results/reported.jsonl.\n" in run.out, run.err
    run = anneal("reproduce parts --data {} --out {} --cache {} --px 32 --report", *paths)
    refused(run, 2, "parts is for choosing settings, on training images: leave out --report")
    (line,) = (tmp_path / "results" / "reported.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["experiment"] == "simulate"
    run = anneal(words, *paths)
    refused(run, 2, "holds a run with --report, on test images: give --report again")


@pytest.mark.usefixtures("quick_trials")
def test_reproduce_plays_a_drawn_archive_and_prints_its_report(anneal: Anneal, tmp_path: Path) -> None:
    words = (
        "reproduce comparison --quick --px 32 --per-round 6 --rounds 1 --only mgue,random --out {} --cache {}"
    )
    run = anneal(words, tmp_path / "out", tmp_path / "cache")
    assert run.code == 0, run.err
    assert "160 images in 8 classes" in run.out
    assert "| `mgue` |" in run.out
    assert (tmp_path / "out" / "comparison.png").exists()
    (line,) = (tmp_path / "out" / "reported.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["experiment"] == "comparison", "drawn scenes need no --report"
    assert run.out.endswith(f"this report are in {tmp_path / 'out'}.\n")


def test_ctrl_c_ends_in_a_sentence(
    anneal: Anneal, drawn: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shut: list[dict[str, bool]] = []

    class Interrupted:
        def submit(self, *args: Any) -> None:
            return None

        def shutdown(self, **options: bool) -> None:
            shut.append(options)

    def interrupt(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "get_reusable_executor", lambda *args, **options: Interrupted())
    monkeypatch.setattr(runner, "wait", interrupt)
    run = anneal(f"simulate {{}} {NET} --out {{}} --cache {{}}", drawn, tmp_path, cache)
    refused(run, 130, "Stopped. Give the same command again: it goes on where it was.")
    assert shut == [{"wait": False, "kill_workers": True}]


# -- bad input: a sentence, an exit code, no traceback, nothing lost -----------------------------------


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


def test_no_classes_to_use(anneal: Anneal, drawn: Path, tmp_path: Path) -> None:
    run = anneal(f"init {{}} {NET} --use-classes --campaign {{}}", drawn / "beach", tmp_path / "c")
    refused(run, 2, "--use-classes: there are no classes")


@pytest.mark.usefixtures("quick_trials")
def test_more_pairs_than_there_are(anneal: Anneal, drawn: Path, tmp_path: Path) -> None:
    for kind in ("beach", "river"):
        shutil.copytree(drawn / kind, tmp_path / "photos" / kind)
    words = "simulate {} --px 32 --strategy place --per-round 300 --rounds 0 --cache {} --out {}"
    run = anneal(words, tmp_path / "photos", tmp_path / "cache", tmp_path / "out")  # 24 images, 276 pairs
    refused(run, 2, "only", "still unknown", "--per-round")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--lambda abc", "Invalid value for '--lambda'"),
        ("--lambda nan", "--lambda nan is not a number"),
        ("--strategy best", "choose place or mgue, or give module:name"),
        ("--strategy mgue,mgue", "names one strategy twice"),
        ("--strategy nowhere:mine", "could not be imported"),
        ("--depth deep", "choose one of head, last, full"),
        ("--views 5", "1 to 4 quarter turns"),
        ("--share 1.5", "give a share from 0 to 0.9"),
        ("--px 3", "give 8 to 2048"),
        ("--per-round 0", "at least one question"),
        ("--rounds -1", "--rounds takes 0 or more"),
        ("--noise 0.5", "from 0 to below 0.5"),
        ("--backbone resnet18", "There is no backbone 'resnet18'"),
        ("--start labelled:many", "labelled:N"),
        ("--closure single", "place builds on groups of images: it needs --closure full"),
    ],
)
def test_options_that_make_no_sense(
    anneal: Anneal, drawn: Path, cache: Path, tmp_path: Path, words: str, said: str
) -> None:
    run = anneal(f"simulate {{}} {NET} --cache {{}} --out {{}} {words}", drawn, cache, tmp_path)
    refused(run, 2, said)


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        ("init", "--lambda 2", "--lambda has no effect with place: it is for mgue"),
        ("init", "--strategy bcgue --share 0.3", "--share has no effect with bcgue: it is for mgue"),
        ("init", "--strategy random --diversity none", "it is for mgue, bcgue"),
        ("init", "--depth last --views 1", "--views has no effect with last: it is for head"),
        ("init", "--depth full --head paper", "--head has no effect with full: it is for head"),
        ("simulate", "--strategy place,random --threshold logistic", "--threshold has no effect"),
    ],
)
def test_an_option_without_effect_is_refused(
    anneal: Anneal, drawn: Path, tmp_path: Path, command: str, words: str, said: str
) -> None:
    where = "--campaign" if command == "init" else "--out"
    run = anneal(f"{command} {{}} {NET} {words} {where} {{}}", drawn, tmp_path / "new")
    refused(run, 2, said)
    assert not (tmp_path / "new").exists()


def test_a_labeller_is_no_campaign(anneal: Anneal, drawn: Path, tmp_path: Path) -> None:
    run = anneal(f"init {{}} {NET} --strategy cal --campaign {{}}", drawn, tmp_path / "c")
    refused(run, 2, "choose place or mgue")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--backbone resnet18", 2, "There is no backbone 'resnet18'"),
        ("--backbone ./nowhere", 1, "nowhere cannot be loaded"),
        ("--strategy best", 2, "choose place or mgue"),
    ],
)
def test_a_wrong_name_is_refused_before_an_image_is_read(
    anneal: Anneal, drawn: Path, tmp_path: Path, words: str, code: int, said: str
) -> None:
    refused(anneal(f"init {{}} --campaign {{}} {words}", drawn, tmp_path / "c"), code, said)
    assert not (tmp_path / "c").exists()
    if "backbone" in words:
        play = f"simulate {{}} --cache {{}} --out {{}} {words}"
        refused(anneal(play, drawn, tmp_path / "cache", tmp_path / "out"), code, said)
        assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("name", ["x.foo", "x"])
def test_a_panel_that_is_no_picture_is_refused_before_the_search(
    anneal: Anneal, tmp_path: Path, name: str
) -> None:
    run = anneal("search x.jpg --campaign {} --panel {}", tmp_path / "nowhere", name)
    refused(run, 2, f"--panel {name}: a picture's name ends in .png")


def test_strategies_for_experiments_are_listed_for_experiments_only(anneal: Anneal) -> None:
    shown = anneal("init --help").out
    assert "mgue" in shown
    assert not re.search(r"bcgue|cobra|pfma|typiclust|coreset|What to ask:[^.]*random", shown)
    names = ("bcgue", "random", "cobra", "pfma", "typiclust", "coreset")
    assert all(name in anneal("simulate --help").out for name in names)


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
    words = f"init {{}} {NET} --views 1 --campaign {{}}"
    assert anneal(words, drawn, tmp_path / "c").code == 0
    (folder,) = (tmp_path / "c" / "cache").iterdir()
    shutil.rmtree(tmp_path / "c" / "rounds")
    for file in [*(tmp_path / "c").glob("campaign.sqlite*"), *folder.glob("pixels*")]:
        file.unlink()
    (folder / "pixels.bin").symlink_to("/dev/full")
    run = anneal(words, drawn, tmp_path / "c")
    refused(run, 1, "The disk is full", "Free some space", "goes on where it stopped")
    (folder / "pixels.bin").unlink()
    assert anneal(words, drawn, tmp_path / "c").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("comparison", "Give --data FOLDER"),
        ("figure7 --data {}", "There is no experiment 'figure7'"),
        ("comparison --data {} --mode theirs", "choose ours or paper"),
        ("comparison --data {} --only nobody", "comparison has mgue, bcgue, cal, cal-metric, random, upper"),
        ("comparison --archive mars --data {}", "choose ucmerced or aid"),
        ("panels --archive aid --data {}", "There is no class 'Airport' here: there are beach,"),
        ("beyond --data {} --mode paper", "beyond is played with the defaults"),
    ],
)
def test_reproduce_refuses_in_a_sentence(
    words: str, said: str, anneal: Anneal, drawn: Path, cache: Path, tmp_path: Path
) -> None:
    paths = [drawn] * words.count("{}")
    run = anneal(f"reproduce {words} {NET} --out {{}} --cache {{}}", *paths, tmp_path / "out", cache)
    refused(run, 2, said)


# -- devices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["init {}", "label", "round", "search {}", "export groups", "simulate {}", "reproduce all"]
)
@pytest.mark.parametrize(
    ("device", "sentence"),
    [("cuda", "torch finds no cuda device on this machine"), ("tpu", "There is no device 'tpu': use auto")],
)
def test_a_device_that_is_not_there_is_refused(
    anneal: Anneal, monkeypatch: pytest.MonkeyPatch, drawn: Path, command: str, device: str, sentence: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("ANNEAL_DEVICE", "cpu")
    run = anneal(f"{command} --device {device}", drawn)
    assert (run.code, run.out) == (2, "")
    assert sentence in run.err
    assert os.environ["ANNEAL_DEVICE"] == "cpu"


def test_the_device_is_told_to_the_processes_that_this_one_starts(
    anneal: Anneal, campaign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANNEAL_DEVICE", "tpu")
    assert "There is no device 'tpu'" in anneal("search {} --campaign {}", "x.png", campaign).err
    anneal("search {} --campaign {} --device cpu", "x.png", campaign)
    assert os.environ["ANNEAL_DEVICE"] == "cpu"


# -- progress -----------------------------------------------------------------------------------------


def test_progress_shows_images_a_second_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    ticks = itertools.count()
    terminal = Console(file=screen, force_terminal=True, width=120, get_time=lambda: float(next(ticks)))
    monkeypatch.setattr(console, "err", terminal)
    with console.progress_bars() as watch:
        for step in ("encoding", "choosing"):
            progress = watch(step)
            for done in (0, 50, 100):
                progress(done, 1000)
    lines = re.split(r"[\r\n]", re.sub(r"\x1b\[[\d;?]*\w", "", screen.getvalue()))
    encoding = [line for line in lines if "encoding" in line][-1]
    choosing = [line for line in lines if "choosing" in line][-1]
    assert re.search(r"100/1000 +\d+ images/s +\d:\d\d:\d\d", encoding)
    assert "images/s" not in choosing


# -- an archive that changes -------------------------------------------------------------------------


def test_an_archive_grows_moves_and_loses_files(anneal: Anneal, campaign: Path, tmp_path: Path) -> None:
    photos = campaign.parent / "photos"
    paths = sorted(photos.glob("river/*.jpg"))
    Image.effect_noise((48, 48), 90).convert("RGB").save(photos / "river" / "new.png")
    paths[0].unlink()
    paths[1].rename(photos / "renamed.jpg")
    run = anneal("update --campaign {}", campaign)
    assert run.code == 0
    assert "Images: 1 new, 1 moved, 1 removed." in run.out
    assert "120 images count now." in run.out
    status = anneal("status --campaign {}", campaign)
    assert "Retired because the file is gone: 1" in status.out
    assert "The last update: 1 new, 1 moved, 1 removed" in status.out
    assert "gone from the archive" not in status.err
    more = tmp_path / "more"
    more.mkdir()
    shutil.copy(photos / "river" / "new.png", more)
    told = json.loads(anneal("add {} --campaign {} --json", more, campaign).out)
    assert (told["removed"], told["duplicate"], told["updated"]["new"]) == (1, 1, 1)
    listed = anneal("duplicates --campaign {} --csv", campaign).out.splitlines()
    assert listed == ["path,stands_for_it,kind", f"{more / 'new.png'},river/new.png,same file"]
    assert anneal("add {} --campaign {}", tmp_path / "nowhere", campaign).code == 2


def test_a_near_duplicate_can_be_kept(anneal: Anneal, campaign: Path) -> None:
    photos = campaign.parent / "photos"
    first = sorted(photos.glob("beach/*.jpg"))[0]
    with Image.open(first) as image:
        image.save(photos / "again.jpg", quality=95)
    assert "1 duplicates" in anneal("update --campaign {}", campaign).out
    (row,) = json.loads(anneal("duplicates --campaign {} --json", campaign).out)
    assert row == {"path": "again.jpg", "stands_for_it": f"beach/{first.name}", "kind": "same picture"}
    assert "again.jpg = beach/" in anneal("duplicates --campaign {}", campaign).out
    assert anneal("duplicates --campaign {} --keep {}", campaign, first).code == 2
    kept = anneal("duplicates --campaign {} --keep {}", campaign, photos / "again.jpg")
    assert "0 images are left out" in kept.out
    with closing(Campaign.open(campaign)) as opened:
        assert len(opened.images) == 121


def test_an_archive_that_was_moved_is_named_again(anneal: Anneal, campaign: Path, tmp_path: Path) -> None:
    moved = (campaign.parent / "photos").rename(tmp_path / "moved")
    run = anneal("update --campaign {}", campaign)
    assert run.code == 1
    assert "anneal relocate" in run.err
    assert "120 files are gone" in anneal("status --campaign {}", campaign).err.replace("\n", " ")
    refused = anneal("relocate {} --campaign {}", tmp_path, campaign)
    assert refused.code == 2
    assert "Only 0 of 120 images" in refused.err
    assert "120 images are in" in anneal("relocate {} --campaign {}", moved, campaign).out
    assert "Nothing has changed." in anneal("update --campaign {}", campaign).out


def test_while_the_page_is_open_its_machine_updates(anneal: Anneal, campaign: Path) -> None:
    with FileLock(campaign / WORKER_LOCK):
        run = anneal("update --campaign {}", campaign)
    assert run.code == 0
    assert "its machine does it now" in run.out
    with closing(Campaign.open(campaign)) as opened:
        assert opened.store.setting("update_wanted", False)
