"""Trials side by side: the files they leave, what may be added, what is refused, and a killed run."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal.archive.catalog import Archive, open_archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.store import Purpose
from anneal.errors import UsageError
from anneal.experiments.oracle import split_of
from anneal.experiments.paper import simulate, training_of
from anneal.experiments.play import Player
from anneal.experiments.runner import COLUMNS, KEY, STEPS, Trial, run, trials_of
from anneal.network import backbones
from anneal.settings import Settings

SETTINGS = Settings(px=32, per_round=12)


def players_of(*names: str, rounds: int = 1, **changed: Any) -> dict[str, Player]:
    return {name: Player(replace(SETTINGS, strategy=name, **changed), rounds) for name in names}


def play(archive: Archive, out: Path, *names: str, trials: int = 1, **changed: Any) -> list[Trial]:
    """Play these players for some rounds; returns the trials."""
    todo = trials_of(archive, players_of(*names, **changed), out, trials)
    run(archive, todo, jobs=1)
    return todo


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def keys(path: Path) -> list[tuple[str, int, int]]:
    return [(row["player"], int(row["trial"]), int(row["round"])) for row in table(path)]


# -- files -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_trials")
def test_a_run_leaves_a_curve_the_times_the_splits_and_what_was_played(
    small_archive: Archive, tmp_path: Path
) -> None:
    told: list[dict[str, Any]] = []
    todo = trials_of(small_archive, players_of("place", "cal"), tmp_path, 2)
    rows = run(small_archive, todo, jobs=1, tell=told.append)
    curve = table(tmp_path / "curve.csv")
    assert tuple(curve[0]) == COLUMNS
    assert [row["player"] for row in rows] == [row["player"] for row in curve]
    assert keys(tmp_path / "curve.csv") == [
        ("frozen", 0, 0), ("frozen", 1, 0),
        ("place", 0, 0), ("place", 0, 1), ("place", 1, 0), ("place", 1, 1),
        ("cal", 0, 0), ("cal", 0, 1), ("cal", 1, 0), ("cal", 1, 1),
    ]  # fmt: skip
    assert [row["bits"] for row in curve[2:4]] == ["12", "24"]
    assert float(curve[2]["map5_min"]) != float(curve[4]["map5_min"]), "each trial has its own seed"
    seconds = table(tmp_path / "seconds.csv")
    assert tuple(seconds[0]) == (*KEY, *STEPS)
    assert keys(tmp_path / "seconds.csv") == keys(tmp_path / "curve.csv")[2:]
    assert all(float(row[step]) >= 0 for row in seconds for step in STEPS)
    assert sorted((row["player"], row["trial"], row["round"]) for row in told) == sorted(
        keys(tmp_path / "seconds.csv")
    )
    about = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert list(about["players"]) == ["place", "cal"]
    assert about["players"]["place"]["settings"]["seed"] == about["seed"] == 0
    assert about["trials"] == 2
    assert about["archive"]["classes"] == 8
    assert about["network"] == {"backbone": backbones.DEFAULT, "depth": "head", "views": 2, "px": 32}
    assert about["versions"]["torch"]


@pytest.mark.usefixtures("quick_trials")
def test_the_split_on_disk_gives_anyone_the_same_parts(
    small_archive: Archive, drawn: Path, tmp_path: Path
) -> None:
    play(small_archive, tmp_path / "out", "random", rounds=0)
    lines = (tmp_path / "out" / "splits" / "trial-0.csv").read_text(encoding="utf-8").splitlines()
    manifest = tmp_path / "split.csv"
    manifest.write_text("\n".join([lines[0], *(f"{drawn}/{line}" for line in lines[1:])]), encoding="utf-8")
    again = open_archive(manifest, 32, tmp_path / "cache")
    split = split_of(small_archive, 0)
    given = split_of(again, seed=7)
    for part in ("train", "val", "test"):
        names = {Path(again.paths[i]).name for i in getattr(given, part)}
        assert names == {Path(small_archive.paths[i]).name for i in getattr(split, part)}


@pytest.mark.usefixtures("quick_trials")
def test_a_trial_gives_the_vectors_of_a_pinned_round(small_archive: Archive, tmp_path: Path) -> None:
    players = players_of("random", rounds=5, per_round=3, heldout=0.0)
    (trial,) = trials_of(small_archive, players, tmp_path, 1, pinned={"random": [1]})
    run(small_archive, [trial], jobs=1)
    assert trial.vectors(1).shape[0] == 120
    assert not np.array_equal(trial.vectors(1), trial.vectors(5))
    with pytest.raises(UsageError, match="has not kept round 0"):
        trial.vectors(0)


def test_players_have_folders_of_their_own(small_archive: Archive, tmp_path: Path) -> None:
    names = ("bcgue γ=0.1", "mgue", "mgue 336-a-round", "mine:closest")
    players = {name: Player(SETTINGS, 0) for name in names}
    trials = trials_of(small_archive, players, tmp_path, 2)
    assert len({trial.folder for trial in trials}) == 8
    assert all(trial.folder.parent == tmp_path / "trials" for trial in trials)
    assert [trial.player.settings.seed for trial in trials] == [0] * 4 + [1] * 4


# -- adding to a run -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_trials")
def test_rounds_trials_and_players_can_be_added(small_archive: Archive, tmp_path: Path) -> None:
    play(small_archive, tmp_path / "whole", "mgue", "cal", trials=2, rounds=2)
    out = tmp_path / "parts"
    play(small_archive, out, "mgue", rounds=0)
    first = table(out / "curve.csv")
    play(small_archive, out, "mgue", rounds=2)
    assert table(out / "curve.csv")[:2] == first
    play(small_archive, out, "mgue", rounds=1, trials=2)
    play(small_archive, out, "cal", rounds=2)
    assert keys(out / "curve.csv") == [
        ("frozen", 0, 0), ("frozen", 1, 0),
        ("mgue", 0, 0), ("mgue", 0, 1), ("mgue", 0, 2), ("mgue", 1, 0), ("mgue", 1, 1),
        ("cal", 0, 0), ("cal", 0, 1), ("cal", 0, 2),
    ]  # fmt: skip
    about = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert {name: player["rounds"] for name, player in about["players"].items()} == {"mgue": 2, "cal": 2}
    play(small_archive, out, "mgue", "cal", trials=2, rounds=2)
    assert (out / "curve.csv").read_bytes() == (tmp_path / "whole" / "curve.csv").read_bytes()
    assert (out / "run.json").read_bytes() == (tmp_path / "whole" / "run.json").read_bytes()


@pytest.mark.usefixtures("quick_trials")
def test_trials_can_be_played_one_by_one(small_archive: Archive, tmp_path: Path) -> None:
    players = {"random": Player(replace(QUICK_NETWORK, strategy="random"), 0)}
    together = trials_of(small_archive, players, tmp_path / "together", 2, inner=True)
    run(small_archive, together, jobs=1)
    for trial in trials_of(small_archive, players, tmp_path / "alone", 2, inner=True):
        run(small_archive, [trial], jobs=1)
    for name in ("curve.csv", "run.json"):
        assert (tmp_path / "alone" / name).read_bytes() == (tmp_path / "together" / name).read_bytes()


@pytest.mark.usefixtures("quick_trials")
def test_rows_of_an_older_curve_stay(small_archive: Archive, tmp_path: Path) -> None:
    """The column threshold was called alpha once."""
    play(small_archive, tmp_path, "mgue")
    curve = tmp_path / "curve.csv"
    before = table(curve)
    curve.write_text(curve.read_text(encoding="utf-8").replace("threshold", "alpha"), encoding="utf-8")
    play(small_archive, tmp_path, "random", rounds=0)
    after = table(curve)
    assert tuple(after[0]) == COLUMNS
    assert after[:3] == before
    assert after[2]["threshold"] != ""
    assert after[3]["player"] == "random"


@pytest.mark.usefixtures("quick_trials")
@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"seed": 1}, "seed"),
        ({"views": 1}, "network"),
        ({"backbone": "resnet-18"}, "network"),
        ({"depth": "full"}, "network"),
    ],
)
def test_another_seed_or_network_is_refused(
    small_archive: Archive, tmp_path: Path, changed: dict[str, Any], what: str
) -> None:
    play(small_archive, tmp_path, "random", rounds=0)
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(UsageError, match=f"holds a run with another {what}: give a new --out"):
        play(small_archive, tmp_path, "mgue", rounds=0, **changed)
    assert (tmp_path / "run.json").read_bytes() == before
    assert keys(tmp_path / "curve.csv") == [("frozen", 0, 0), ("random", 0, 0)]


@pytest.mark.usefixtures("quick_trials")
def test_another_archive_or_split_is_refused(small_archive: Archive, tmp_path: Path) -> None:
    play(small_archive, tmp_path, "random", rounds=0)
    renamed = replace(small_archive, labels=tuple("ab" * 60))
    with pytest.raises(UsageError, match="another archive"):
        play(renamed, tmp_path, "random", rounds=0)
    with pytest.raises(UsageError, match="holds a run with --report, on test images"):
        run(small_archive, trials_of(small_archive, players_of("random"), tmp_path, 1, inner=True), jobs=1)


@pytest.mark.usefixtures("quick_trials")
def test_a_player_with_other_settings_is_refused(small_archive: Archive, tmp_path: Path) -> None:
    play(small_archive, tmp_path, "mgue", rounds=0)
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(UsageError, match="holds mgue with another closure, lam: give a new --out"):
        play(small_archive, tmp_path, "random", "mgue", rounds=1, lam=2.0, closure="none")
    assert (tmp_path / "run.json").read_bytes() == before, "nothing was written"
    assert not (tmp_path / "trials" / "random-0").exists()
    (tmp_path / "run.json").unlink()
    with pytest.raises(UsageError, match="was played with another lam"):  # the trial's folder knows it too
        play(small_archive, tmp_path, "mgue", rounds=0, lam=2.0)


@pytest.mark.usefixtures("quick_trials")
def test_a_trial_that_fails_leaves_what_others_have_played(small_archive: Archive, tmp_path: Path) -> None:
    players = players_of("random", rounds=0)
    players["broken"] = replace(players["random"], start="labelled:5000")
    with pytest.raises(UsageError, match="labelled:5000"):
        simulate(small_archive, players, tmp_path, trials=1, jobs=1)
    assert keys(tmp_path / "curve.csv") == [("frozen", 0, 0), ("random", 0, 0)]


# -- real processes ------------------------------------------------------------------------------------

QUICK_NETWORK = replace(SETTINGS, backbone="random:resnet-18", per_round=40, heldout=0.2)
COMMAND = "--backbone random:resnet-18 --px 32 --per-round 40 --heldout 0.2 --rounds 1 --strategy place,cal"


def kill_in_the_second_round(command: list[str], trial: Path) -> None:
    """Start a run and kill it, with all of its processes, when it has begun the second round of a trial."""
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL) as process:
        while not (trial / "rounds").exists() or not Campaign.is_made(trial):
            assert process.poll() is None
            time.sleep(0.1)
        with closing(Campaign.open(trial)) as campaign:
            while campaign.log().given < 42:
                assert process.poll() is None
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert campaign.rounds.current == 1
            assert 42 <= campaign.log().given <= 80
    for left in Path("/dev/shm").glob(f"sem.loky-{process.pid}-*"):
        left.unlink()


@pytest.mark.xdist_group("processes")
def test_a_run_killed_in_the_middle_of_a_round_goes_on_and_jobs_change_nothing(
    small_archive: Archive, drawn: Path, cache: Path, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    undisturbed = tmp_path / "undisturbed"
    paths = ["--cache", str(cache), "--out", str(killed), "--jobs", "2"]
    command = [sys.executable, "-m", "anneal", "simulate", str(drawn), *COMMAND.split(), *paths]
    kill_in_the_second_round(command, killed / "trials" / "place-0")

    players = {
        name: Player(replace(QUICK_NETWORK, strategy=name), 1, training=training_of(name))
        for name in ("place", "cal")
    }
    for out in (killed, undisturbed):
        run(small_archive, trials_of(small_archive, players, out, 1, inner=True), jobs=1)
    assert len(table(killed / "curve.csv")) == 1 + 2 * 2
    assert (killed / "curve.csv").read_bytes() == (undisturbed / "curve.csv").read_bytes()
    events = []
    for out in (killed, undisturbed):
        with closing(Campaign.open(out / "trials" / "place-0")) as campaign:
            events.append([(row.pair, row.verdict, row.purpose) for row in campaign.log().rows])
    assert events[0] == events[1]
    assert any(purpose == Purpose.HELD_OUT for *_, purpose in events[0])
