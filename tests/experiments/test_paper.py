"""The paper's experiments: who plays, that a killed run goes on, that processes change nothing."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from anneal.archive.catalog import Archive, open_archive
from anneal.errors import UsageError
from anneal.experiments.paper import COLD, PAPER, PRESETS, cast, choices, figures, settings
from anneal.experiments.play import campaign_at, inner_split, split_of
from anneal.experiments.runner import FIELDS
from anneal.settings import Plan

pytestmark = pytest.mark.xdist_group("processes")  # each starts several: one after another

SMALL = "--backbone random:resnet-18 --px 32 --per-round 20 --rounds 1 --trials 2 --only mgue,cal"


def command(words: str) -> list[str]:
    return [sys.executable, "-m", "anneal", "reproduce", *words.split()]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything, on a small drawn archive."""
    out = tmp_path_factory.mktemp("quick")
    words = f"all --quick --rounds 1 --out {out} --cache {out / 'cache'}"
    done = subprocess.run(command(words), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "| `mgue` |" in done.stdout
    return out


def test_quick_plays_every_player_of_every_figure(quick: Path) -> None:
    rows = read(quick / "curve.csv")
    assert tuple(rows[0]) == FIELDS
    assert "seconds" not in rows[0]
    players = {player for plans in figures(Plan()).values() for player in plans}
    assert len(players) == 13
    expected = {(player, n) for player in players - {"upper"} for n in "01"} | {
        ("upper", "0"),
        ("frozen", "0"),
    }
    assert {(row["player"], row["round"]) for row in rows} == expected
    score = {(row["player"], int(row["bits"])): float(row["map5_min"]) for row in rows}
    label = np.log2(12)
    assert round(24 * label) == 86
    assert {bits for player, bits in score if player == "mgue"} == {86, 126}
    assert {bits for player, bits in score if player == "cal"} == {86, round(35 * label)}
    upper = next(value for (player, _), value in score.items() if player == "upper")
    assert upper > max(score["random", 86], score["frozen", 0]), "all labels beat a few, and none"


def test_quick_draws_every_figure_twice_and_reports(quick: Path) -> None:
    for figure in ("lambda", "diversity", "comparison", "panels"):
        assert (quick / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert (quick / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
    text = (quick / "report.md").read_text(encoding="utf-8")
    assert text.startswith("# drawn scenes")
    mean = next(row["map5_min"] for row in read(quick / "curve.csv") if row["player"] == "upper")
    assert f"| all training labels | {float(mean):.3f} |" in text
    assert len(read(quick / "seconds.csv")) == 12 * 2 + 1


def test_a_panel_of_another_class_leaves_the_curves_be(quick: Path) -> None:
    curve, panel = (quick / "curve.csv").read_bytes(), (quick / "panels.png").read_bytes()
    words = f"panels --quick --class river --bits 86 --out {quick} --cache {quick / 'cache'} --jobs 1"
    subprocess.run(command(words), check=True, capture_output=True, timeout=300)
    assert (quick / "panels.png").read_bytes() != panel
    assert (quick / "curve.csv").read_bytes() == curve, "the others' rows, and the later rounds, stay"
    assert len(read(quick / "seconds.csv")) == 12 * 2 + 1


def test_past_the_paper_everybody_starts_from_nothing(drawn: Path, cache: Path, tmp_path: Path) -> None:
    words = f"beyond --data {drawn} --cache {cache} --out {tmp_path} --rounds 2 --per-round 20 --trials 1"
    words += " --backbone random:resnet-18 --px 32 --only place,typiclust --jobs 1"
    done = subprocess.run(command(words), check=True, capture_output=True, text=True, timeout=300)
    rows = {(row["player"], int(row["bits"])) for row in read(tmp_path / "curve.csv")}
    assert rows == {("frozen", 0), ("place", 20), ("place", 40), ("typiclust", 22), ("typiclust", 43)}
    assert "| `place` |" in done.stdout
    assert (tmp_path / "answers.png").read_bytes().startswith(b"\x89PNG")


def test_the_players_past_the_paper_differ_in_what_their_name_says() -> None:
    plan = Plan(per_round=123)
    assert {its.strategy for its, _ in COLD["beyond"](plan).values()} == set(COLD["beyond"](plan))
    for name, (its, rate) in COLD["noise"](plan).items():
        strategy, said = name.split(" ")
        assert its == replace(plan, strategy=strategy, recheck=0 if "trusted" in said else plan.recheck)
        assert f"noise-{rate:.0%}" in said
    every = COLD["parts"](plan)
    for name, (its, rate) in every.items():
        plain = every[name.split(" ")[0]][0]
        changed = [field for field in asdict(plain) if getattr(plain, field) != getattr(its, field)]
        assert (len(changed), rate) == (int(" " in name), 0.0)


def test_the_split_on_disk_gives_anyone_the_same_parts(quick: Path, tmp_path: Path) -> None:
    manifest = quick / "archive" / "split.csv"
    manifest.write_text((quick / "splits" / "trial-0.csv").read_text())
    again = open_archive(manifest, 32, tmp_path)
    ours = open_archive(quick / "archive", 32, tmp_path)
    for part in ("train", "val", "test"):
        theirs = {again.paths[i] for i in getattr(split_of(again, 7), part)}
        assert theirs == {ours.paths[i] for i in getattr(split_of(ours, 0), part)}


def test_a_killed_run_goes_on_and_jobs_change_nothing(drawn: Path, cache: Path, tmp_path: Path) -> None:
    def words(out: str, jobs: int) -> list[str]:
        where = f"--data {drawn} --cache {cache} --out {tmp_path / out}"
        return command(f"comparison --archive aid {where} {SMALL} --jobs {jobs}")

    subprocess.run(words("alone", 1), check=True, capture_output=True, timeout=300)
    curve = tmp_path / "killed" / "curve.csv"
    said = tmp_path / "said.txt"
    with said.open("w", encoding="utf-8") as file:
        killed = subprocess.Popen(words("killed", 2), stdout=file, stderr=file)
    deadline = time.monotonic() + 200
    while not curve.exists() or len(read(curve)) < 5:
        assert time.monotonic() < deadline
        assert killed.poll() is None, said.read_text(encoding="utf-8")
        time.sleep(0.1)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert len(read(curve)) < 10, "it was to be killed midway"
    subprocess.run(words("killed", 2), check=True, capture_output=True, timeout=300)
    assert len(read(curve)) == 2 * 2 * 2 + 2  # players, trials, rounds; and two frozen scores
    assert curve.read_bytes() == (tmp_path / "alone" / "curve.csv").read_bytes()


def test_paper_mode_really_trains(drawn: Path, cache: Path, tmp_path: Path) -> None:
    """The whole network, on images, by the paper's recipe; small, and from no pretrained weights."""
    where = f"--data {drawn} --cache {cache} --out {tmp_path}"
    words = f"comparison --mode paper --archive aid {where} --backbone random:resnet-18 --px 32 --trials 1"
    words += " --per-round 20 --rounds 0 --jobs 1 --only"
    subprocess.run(command(f"{words} mgue"), check=True, capture_output=True, timeout=300)
    frozen, mgue = read(tmp_path / "curve.csv")
    assert (frozen["player"], mgue["player"], mgue["bits"]) == ("frozen", "mgue", "287")
    assert mgue["map5_min"] != frozen["map5_min"]
    (seconds,) = read(tmp_path / "seconds.csv")
    assert float(seconds["fit"]) > 0.5, "a network was trained"
    refused = subprocess.run(command(f"{words} mgue --seed 5"), capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "another network" in " ".join(refused.stderr.split())


@pytest.fixture(scope="session")
def archive(drawn: Path, cache: Path) -> Archive:
    return open_archive(drawn, 32, cache)


def test_the_players_of_the_figures() -> None:
    every = figures(settings("ours", PRESETS["ucmerced"]))
    assert {name: plan.lam for name, plan in every["lambda"].items()} == {
        f"mgue-flat-{lam}": lam for lam in (1, 2, 3, 4, 5, 6)
    }
    assert {plan.diversity for plan in every["lambda"].values()} == {"none"}
    flat = {name: plan.diversity for name, plan in every["diversity"].items()}
    assert flat == {"mgue": "kmeans", "mgue-flat-3": "none", "bcgue": "kmeans", "bcgue-flat": "none"}
    assert set(every["comparison"]) == {"mgue", "bcgue", "cal", "cal-metric", "random", "upper"}
    assert list(every["panels"]) == ["cal", "bcgue", "mgue"]


def test_players_start_as_in_the_paper() -> None:
    preset = PRESETS["aid"]
    players = cast(figures(settings("ours", preset))["comparison"], preset, preset.rounds, 8000)
    assert {players[name].initial for name in ("mgue", "cal", "random")} == {"labelled:80"}
    assert (players["mgue"].rounds, players["mgue"].plan.per_round) == (18, 392)
    assert (players["upper"].rounds, players["upper"].initial) == (0, "labelled:8000")
    preset = PRESETS["ucmerced"]
    plan = settings("ours", preset)
    assert (preset.labelled, plan.per_round, 369 + preset.rounds * plan.per_round) == (84, 369, 4059)
    assert settings("ours", preset, per_round=336).per_round == 336


def test_paper_mode_is_the_paper_s() -> None:
    plan = settings("paper", PRESETS["ucmerced"], backbone="weights", px=96)
    assert (plan.backbone, plan.depth, plan.loss, plan.closure, plan.lam) == (
        "weights", "full", "contrastive", "single", 3.0,
    )  # fmt: skip
    assert (plan.recipe, plan.head, plan.space, plan.restart) == ("paper", "paper", "search", "cold")
    assert plan.px == 96
    assert "cal-metric" not in figures(PAPER)["comparison"]


def test_each_choice_changes_one_thing() -> None:
    base = settings("ours", PRESETS["ucmerced"])
    for name, plan in choices(base).items():
        strategy, _, what = name.partition(" ")
        plain = replace(base, strategy=strategy)
        changed = {k for k in vars(plan) if getattr(plan, k) != getattr(plain, k)}
        assert changed - {"length"} and len(changed) <= 2 if what else not changed, name


def test_choices_are_made_on_images_that_no_trial_is_tested_on(archive: Archive) -> None:
    parts = []
    for seed in (0, 1, 2):
        inner = inner_split(archive, (0, 1, 2), seed)
        parts.append(np.concatenate([inner.train, inner.val, inner.test]))
        assert len(set(parts[-1].tolist())) == len(parts[-1])
        assert len(inner.val) == len(inner.test) == len(parts[-1]) // 10
    assert all(np.array_equal(np.sort(part), np.sort(parts[0])) for part in parts)
    for seed in (0, 1, 2):
        split = split_of(archive, seed)
        assert not set(parts[0].tolist()) & {*split.val.tolist(), *split.test.tolist()}


def test_another_plan_is_not_played_on(archive: Archive, tmp_path: Path) -> None:
    plan = Plan(per_round=20, px=32)
    campaign_at(tmp_path, archive, plan, np.arange(50)).close()
    campaign_at(tmp_path, archive, plan, np.arange(50)).close()
    with pytest.raises(UsageError, match="another closure, lam"):
        campaign_at(tmp_path, archive, replace(plan, lam=2.0, closure="none"), np.arange(50))
